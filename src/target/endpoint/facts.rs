//! From what a server says of itself to the facts and warnings of a target.
use super::Endpoint;
use super::error::EndpointError;
use super::survey::Survey;
use crate::target::TargetFacts;
use crate::target::config::{Api, Dialect, Thinking, thinking_members};

impl Endpoint {
    /// Turns a survey into facts and warnings.
    pub(super) fn take(&mut self, survey: &Survey) -> Result<(), EndpointError> {
        let address = self.addresses.of(self.settings.api);
        let host = address.host_str().unwrap_or("?").to_owned();
        let port = address.port_or_known_default().map_or(String::new(), |p| format!(":{p}"));
        let name = match (self.dialect, &survey.version) {
            (Dialect::LlamaCpp, Some(build)) => format!("llama.cpp {build}"),
            (Dialect::Openai | Dialect::Auto, _) => format!("OpenAI endpoint {host}{port}"),
            (dialect, Some(version)) => format!("{} {version}", proper(dialect)),
            (dialect, None) => format!("{} at {host}{port}", proper(dialect)),
        };
        let mut facts = TargetFacts {
            name,
            model: self.settings.model.clone(),
            version: survey.version.clone().unwrap_or_else(|| "not stated".to_owned()),
            effective_context: survey.context,
            effective_concurrency: survey.slots,
            effective_kv_dtype: survey.kv_dtype.clone(),
            ..TargetFacts::default()
        };
        let mut note = |name: &str, value: String| facts.facts.push((name.to_owned(), value));
        note("url", survey.url.clone());
        note("dialect", self.dialect.word().to_owned());
        for sign in survey.evidence.iter().filter(|sign| sign.dialect == self.dialect.word()) {
            note("dialect_seen", format!("{}: {}", sign.page, sign.saw));
        }
        if self.settings.api != Api::Chat {
            note("api", self.settings.api.word().to_owned());
        }
        note("counters", if survey.counter_pages.is_empty() { "none" } else { "scraped" }.to_owned());
        note("restarts", if survey.restarts_observable { "observable" } else { "not observable" }.to_owned());
        if let Some(reset) = &survey.cache_reset {
            note("cache_reset", reset.how.to_owned());
        }
        facts.facts.extend(survey.facts.iter().cloned());
        self.facts = facts;

        self.warnings.extend(survey.warnings.iter().cloned());
        match survey.models.as_slice() {
            [] => self.warnings.push("the server lists no models; the model id could not be checked".to_owned()),
            all if all.iter().any(|model| model.ids.contains(&self.settings.model)) => {}
            all => {
                let names: Vec<&str> = all.iter().filter_map(|m| m.ids.first()).map(String::as_str).take(8).collect();
                let (asked, listed) = (&self.settings.model, names.join(", "));
                self.warnings.push(format!("the server does not list the model `{asked}`; it lists {listed}"));
            }
        }
        if let Some(slots) = survey.slots.filter(|&slots| slots < self.settings.concurrency) {
            let asked = self.settings.concurrency;
            self.warnings.push(format!("the server decodes {slots} sequences together, {asked} were asked for"));
        }
        if self.settings.api == Api::Messages {
            let said = "the Messages interface knows no ignore_eos: answers may be shorter than asked for";
            self.warnings.push(said.to_owned());
        }
        if let Some(flag) = budget_flag(self.dialect).filter(|_| matches!(self.settings.thinking, Thinking::Budget(_)))
        {
            let server = proper(self.dialect);
            self.warnings.push(format!(
                "{server} without {flag} ignores a thinking budget in silence: compare it with the reasoning tokens"
            ));
        }
        match thinking_members(self.settings.api, self.dialect, self.settings.thinking) {
            Ok(_) => Ok(()),
            Err(why) => Err(EndpointError::Thinking { dialect: self.dialect.word(), why }),
        }
    }
}

/// The flag without which a server drops the thinking budget of a request (`facts/engines.md` §13).
fn budget_flag(dialect: Dialect) -> Option<&'static str> {
    match dialect {
        Dialect::Sglang => Some("--enable-strict-thinking"),
        Dialect::Vllm => Some("--reasoning-config"),
        _ => None,
    }
}

/// The name of a server as its makers write it.
fn proper(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Ninfer => "NInfer",
        Dialect::Sglang => "SGLang",
        Dialect::Vllm => "vLLM",
        Dialect::LlamaCpp => "llama.cpp",
        Dialect::Inferlab => "inferlab",
        Dialect::Auto | Dialect::Openai => "OpenAI endpoint",
    }
}
