//! What a server says of itself, gathered from its pages before the first token is asked for.
use serde::Serialize;

use super::dialect::Evidence;
use super::models::ListedModel;
use crate::target::config::Dialect;

/// Everything its pages tell. All texts are foreign.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Survey {
    /// Where requests go.
    pub url: String,
    /// What it speaks.
    pub dialect: Dialect,
    /// Every sign of a dialect.
    pub evidence: Vec<Evidence>,
    /// Its version, where it tells.
    pub version: Option<String>,
    /// Models that it lists.
    pub models: Vec<ListedModel>,
    /// Tokens a sequence may hold.
    pub context: Option<u32>,
    /// Sequences decoded together.
    pub slots: Option<u32>,
    /// KV dtype in its own word.
    pub kv_dtype: Option<String>,
    /// Counters that are known here, by our names.
    pub counters: Vec<String>,
    /// Pages on which they stand.
    pub counter_pages: Vec<&'static str>,
    /// Whether a restart would show there.
    pub restarts_observable: bool,
    /// Pages that it does not have.
    pub missing_pages: Vec<&'static str>,
    /// How its prompt cache is emptied.
    pub cache_reset: Option<CacheReset>,
    /// Anything else worth printing: name, value.
    pub facts: Vec<(String, String)>,
    /// Things a reader should know.
    pub warnings: Vec<String>,
}

/// A way to empty a prompt cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct CacheReset {
    /// What is asked, and on which condition it works. It is not tried before it is wanted.
    pub how: &'static str,
}

impl CacheReset {
    /// The way of this server, where it has one (`facts/engines.md` §6, §13).
    pub fn of(dialect: Dialect) -> Option<Self> {
        let how = match dialect {
            Dialect::Sglang => "POST /flush_cache",
            Dialect::Vllm => "POST /reset_prefix_cache (with VLLM_SERVER_DEV_MODE=1)",
            Dialect::LlamaCpp => "POST /slots/{id}?action=erase (with --slot-save-path)",
            Dialect::Auto | Dialect::Openai | Dialect::Ninfer | Dialect::Inferlab => return None,
        };
        Some(Self { how })
    }
}

impl Survey {
    /// Every foreign text, to be made harmless.
    pub(super) fn each_text(&mut self, change: impl Fn(&mut String)) {
        let models = self.models.iter_mut().flat_map(|model| {
            model.ids.iter_mut().chain(model.facts.iter_mut().flat_map(|(name, value)| [name, value]))
        });
        let facts = self.facts.iter_mut().flat_map(|(name, value)| [name, value]);
        let single = self.version.iter_mut().chain(self.kv_dtype.iter_mut());
        let evidence = self.evidence.iter_mut().map(|sign| &mut sign.saw);
        models.chain(facts).chain(single).chain(evidence).chain(&mut self.warnings).for_each(change);
    }
}
