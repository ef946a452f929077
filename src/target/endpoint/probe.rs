//! What a server says of itself before the first request: reachable, ready, which server, which model, which limits, which template.
use std::time::{Duration, Instant};

use reqwest::Url;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::Endpoint;
use super::address::shown;
use super::client::Document;
use super::dialect::{self, Pages};
use super::error::EndpointError;
use super::metrics_page::{self, Source};
use super::models::{count, listed_models};
use super::stream::shorten;
use super::survey::{CacheReset, Survey};
use crate::record::{Outcome, RequestRecord, ResponseText};
use crate::request::{Message, Prompt, Request, RequestKey, Sampling};
use crate::target::config::{Dialect, TokenizerFrom};
use crate::target::{Observation, Target};
use crate::units::Clock;

/// A server that cannot list its models in this time is not ready for measurement.
const PROBE_TIME: Duration = Duration::from_secs(10);
/// Pages that not every server has are not waited for as long.
const EXTRA_TIME: Duration = Duration::from_secs(3);
/// Model lists of gateways are long.
const PROBE_BYTES: usize = 4 << 20;
/// Time for a server to close its connection after a stream.
const CLOSE_TIME: Duration = Duration::from_millis(30);
/// Words of the calibration prompt.
const CALIBRATION_WORDS: u32 = 16;

/// `prefix` and `n` words that every byte-pair and sentence-piece vocabulary in use holds as one token each with the space before
/// it; the prompts of the workloads are built alike.
fn calibration_prompt(prefix: &str, n: u32) -> String {
    format!("{prefix}{}", " the".repeat(n as usize))
}

impl Endpoint {
    /// Asks the server for its pages and for one token, and fills the facts.
    pub(super) async fn probe(&mut self) -> Result<(), EndpointError> {
        let begun = Instant::now();
        let survey = self.survey().await?;
        self.take(&survey)?;
        self.calibrate().await?;
        self.watch_connection().await;
        let warnings = std::mem::take(&mut self.warnings);
        self.facts.facts.extend(warnings.iter().map(|w| ("warning".to_owned(), w.clone())));
        self.warnings = warnings;
        self.facts.facts.push(("probe_ms".to_owned(), begun.elapsed().as_millis().to_string()));
        self.clean_facts();
        Ok(())
    }

    /// Asks the server for its pages; asks for no token. The dialect that was found is spoken from now on, unless one was named.
    ///
    /// # Errors
    /// When nobody answers, or the answer is "not yet" or "not you".
    pub async fn survey(&mut self) -> Result<Survey, EndpointError> {
        let models = self.ask_models().await?;
        self.ask_health().await?;
        let mut missing = Vec::new();
        let mut pages = Pages { models, ..Pages::default() };
        let read = |body: Option<Document>| body.and_then(|body| serde_json::from_slice(&body.body).ok());
        pages.props = read(self.ask_extra("props", &mut missing).await);
        pages.load = read(self.ask_extra("v1/load", &mut missing).await);
        let page = self.ask_extra("metrics", &mut missing).await;
        pages.metrics = page.map(|page| metrics_page::of_page(&String::from_utf8_lossy(&page.body)));
        // The rest only where those leave it open.
        let so_far = dialect::detect(&pages).dialect;
        if matches!(so_far, Dialect::Openai | Dialect::Sglang) || self.settings.dialect == Dialect::Sglang {
            pages.server_info = read(self.ask_extra("server_info", &mut missing).await);
            if pages.server_info.is_none() {
                pages.server_info = read(self.ask_extra("get_server_info", &mut missing).await);
            }
        }
        if matches!(dialect::detect(&pages).dialect, Dialect::Openai | Dialect::Vllm) {
            pages.version = read(self.ask_extra("version", &mut missing).await);
        }

        let found = dialect::detect(&pages);
        let mut warnings = Vec::new();
        self.dialect = match self.settings.dialect {
            Dialect::Auto => found.dialect,
            named => {
                let other = found.dialect != named && found.dialect != Dialect::Openai;
                let unseen = matches!(named, Dialect::Ninfer | Dialect::Sglang | Dialect::Vllm | Dialect::LlamaCpp);
                if other {
                    let (named, found) = (named.word(), found.dialect.word());
                    warnings.push(format!("the suite says the server is {named}, its pages say {found}"));
                } else if unseen && found.dialect == Dialect::Openai {
                    let named = named.word();
                    warnings.push(format!("the suite says the server is {named}, but none of its pages shows that"));
                }
                named
            }
        };
        let models = pages.models.as_ref().map(listed_models).unwrap_or_default();
        let metrics = pages.metrics.as_ref();
        let mut counters = metrics.map(|page| page.counters.clone()).unwrap_or_default();
        self.sources.clear();
        if metrics.is_some_and(|page| page.reading.samples > 0) {
            self.sources.push(Source::Metrics);
        }
        if let Some(load) = pages.load.as_ref().and_then(metrics_page::of_load) {
            self.sources.push(Source::Load);
            counters = counters.and(load);
        }
        let number = |page: &Option<Value>, paths: &[&str]| {
            paths.iter().find_map(|path| page.as_ref()?.pointer(path).and_then(count))
        };
        let mine = models.iter().find(|m| m.ids.contains(&self.settings.model)).or(match models.as_slice() {
            [only] => Some(only),
            _ => None,
        });
        let listed = mine.and_then(|model| model.context);
        let context = number(&pages.props, &["/default_generation_settings/n_ctx"])
            .or_else(|| number(&pages.load, &["/capacity/max_context"]))
            .or(listed)
            .or_else(|| number(&pages.server_info, &["/context_length"]));
        let slots = number(&pages.props, &["/total_slots"])
            .or_else(|| number(&pages.load, &["/capacity/max_concurrency"]))
            .or_else(|| number(&pages.server_info, &["/max_running_requests"]));
        let text = |page: &Option<Value>, path: &str| {
            page.as_ref().and_then(|p| p.pointer(path)).and_then(Value::as_str).map(str::to_owned)
        };
        let kv_dtype =
            metrics.and_then(|page| page.kv_dtype.clone()).or_else(|| text(&pages.server_info, "/kv_cache_dtype"));
        let mut facts = mine.map(|model| model.facts.clone()).unwrap_or_default();
        if let Some(template) = text(&pages.props, "/chat_template") {
            let digest = Sha256::digest(template.as_bytes());
            let hex: String = digest.iter().take(8).map(|b| format!("{b:02x}")).collect();
            facts.push(("chat_template_sha256".to_owned(), hex));
        }
        // Only the file's name: the folder is the server's business.
        if let Some(path) = text(&pages.props, "/model_path")
            && let Some(file) = path.rsplit(['/', '\\']).next()
        {
            facts.push(("model_file".to_owned(), file.to_owned()));
        }
        let mut survey = Survey {
            url: shown(self.addresses.of(self.settings.api)),
            dialect: self.dialect,
            evidence: found.evidence,
            version: found.version,
            models,
            context,
            slots,
            kv_dtype,
            counters: counters.counters.keys().cloned().collect(),
            counter_pages: self.sources.iter().map(|source| source.path()).collect(),
            restarts_observable: counters.observable(),
            missing_pages: missing,
            cache_reset: CacheReset::of(self.dialect),
            facts,
            warnings,
        };
        if let Some(key) = &self.settings.api_key {
            survey.each_text(|text| *text = key.redact(text).into_owned());
        }
        Ok(survey)
    }

    /// One page outside `/v1` that only some servers have. After one that hangs the others are not asked.
    async fn ask_extra(&self, path: &'static str, missing: &mut Vec<&'static str>) -> Option<Document> {
        if missing.contains(&HUNG) {
            return None;
        }
        let within = EXTRA_TIME.min(self.probe_time());
        let begun = Instant::now();
        match self.http.get(&self.addresses.at_root(path), PROBE_BYTES, within).await {
            Ok(document) if document.status == 200 => return Some(document),
            Ok(_) => missing.push(path),
            Err(_) if begun.elapsed() >= within => missing.extend([path, HUNG]),
            Err(_) => missing.push(path),
        }
        None
    }

    async fn ask_models(&self) -> Result<Option<Value>, EndpointError> {
        let url = shown(&self.addresses.models);
        match self.http.get(&self.addresses.models, PROBE_BYTES, self.probe_time()).await {
            Err(cause) => Err(EndpointError::Unreachable { url, cause: self.clean(&cause) }),
            Ok(Document { status: status @ (401 | 403 | 407), body, .. }) => {
                Err(EndpointError::Refused { url, status, said: self.clean_body(&body) })
            }
            Ok(Document { status: 503, body, .. }) => {
                Err(EndpointError::NotReady { url, status: 503, said: self.clean_body(&body) })
            }
            Ok(Document { status: 200, body, .. }) => Ok(serde_json::from_slice(&body).ok()),
            // Not every server has a list.
            Ok(_) => Ok(None),
        }
    }

    async fn ask_health(&self) -> Result<(), EndpointError> {
        // Only a plain "not yet" counts; many servers have no such page.
        match self.http.get(&self.addresses.health, ERROR_BYTES, self.probe_time()).await {
            Ok(Document { status: 503, body, .. }) => Err(EndpointError::NotReady {
                url: shown(&self.addresses.health),
                status: 503,
                said: self.clean_body(&body),
            }),
            _ => Ok(()),
        }
    }

    fn probe_time(&self) -> Duration {
        PROBE_TIME.min(self.settings.timeouts.total)
    }

    /// One request for one token: proves that the model answers, and tells how many tokens its template adds.
    ///
    /// `overhead = usage.prompt_tokens - words`, every word being one token; the prefix of all prompts counts as overhead.
    async fn calibrate(&mut self) -> Result<(), EndpointError> {
        let seen = self.one_token().await;
        let row = seen.record;
        let url = shown(self.addresses.of(self.settings.api));
        let said = row.error.unwrap_or_default();
        match row.outcome {
            Outcome::Ok => {}
            Outcome::HttpError => {
                let status = row.http_status.and_then(|s| u16::try_from(s).ok()).unwrap_or(0);
                return Err(EndpointError::Refused { url, status, said });
            }
            Outcome::ConnectFailed | Outcome::TimeoutConnect => {
                return Err(EndpointError::Unreachable { url, cause: said });
            }
            outcome => return Err(EndpointError::NoAnswer { url, outcome: outcome.word(), cause: said }),
        }
        self.overhead = row.usage_prompt_tokens.and_then(|n| n.checked_sub(CALIBRATION_WORDS));
        let prompt = calibration_prompt(&self.settings.prefix, CALIBRATION_WORDS);
        let own = match &self.counter {
            Some(counter) => counter.text(&prompt),
            None if self.counts_by_server() => self.tokenize(&prompt).await,
            None => None,
        };
        self.template_tokens = row.usage_prompt_tokens.zip(own).and_then(|(usage, own)| usage.checked_sub(own));
        if self.settings.tokenizer != TokenizerFrom::None {
            match (own, self.template_tokens) {
                (None, _) => {
                    self.warnings.push("the tokenizer named by the suite counts nothing: no /tokenize?".to_owned())
                }
                (Some(own), None) => self.warnings.push(format!(
                    "the tokenizer named by the suite counts {own} tokens of a prompt that is {} for the server",
                    row.usage_prompt_tokens.map_or_else(|| "uncounted".to_owned(), |n| n.to_string())
                )),
                (Some(_), Some(template)) => {
                    self.facts.facts.push(("template_tokens".to_owned(), template.to_string()));
                }
            }
        }
        match self.overhead {
            Some(n) => self.facts.facts.push(("template_and_prefix_tokens".to_owned(), n.to_string())),
            None => self
                .warnings
                .push("the server reports no usable prompt_tokens; prompt lengths are not known".to_owned()),
        }
        if row.streamed == Some(false) {
            self.warnings.push("the server answers without a stream: there are no token times".to_owned());
        }
        Ok(())
    }

    /// Asks for one token of a prompt of known length, as a stream.
    pub async fn one_token(&self) -> Observation {
        let request = Request {
            key: RequestKey { arm: String::new(), cell: "calibration".to_owned(), repeat: 0, index: 0, warmup: true },
            prompt: Prompt::Chat(vec![Message {
                role: "user".to_owned(),
                content: calibration_prompt(&self.settings.prefix, CALIBRATION_WORDS),
            }]),
            prompt_tokens_planned: None,
            sampling: Sampling::default(),
            max_tokens: 1,
            ignore_eos: true,
            seed: 1,
        };
        let mut seen = Observation { record: RequestRecord::planned(&request, 0), text: ResponseText::default() };
        self.submit(&request, &Clock::start(), &mut seen).await;
        seen
    }

    /// Empties the server's prompt cache. `None` where it has no way; the prompts of cold workloads start with a nonce anyway.
    ///
    /// - SGLang: `POST /flush_cache`. vLLM: `POST /reset_prefix_cache`, in its developer mode only.
    /// - llama.cpp: `POST /slots/{id}?action=erase` for each slot, only with `--slot-save-path`.
    pub async fn reset_cache(&self) -> Option<Result<(), String>> {
        CacheReset::of(self.dialect)?;
        let slots = self.facts.effective_concurrency.unwrap_or(1);
        let urls: Vec<Url> = match self.dialect {
            Dialect::Sglang => vec![self.addresses.at_root("flush_cache")],
            Dialect::Vllm => vec![self.addresses.at_root("reset_prefix_cache")],
            _ => (0..slots)
                .map(|slot| {
                    let mut url = self.addresses.at_root(&format!("slots/{slot}"));
                    url.set_query(Some("action=erase"));
                    url
                })
                .collect(),
        };
        for url in urls {
            match self.http.ask(&url, Vec::new(), ERROR_BYTES, self.probe_time()).await {
                Ok(Document { status: 200..=299, .. }) => {}
                Ok(Document { status, body, .. }) => {
                    return Some(Err(format!("{}: status {status}: {}", shown(&url), self.clean_body(&body))));
                }
                Err(cause) => return Some(Err(format!("{}: {}", shown(&url), self.clean(&cause)))),
            }
        }
        Some(Ok(()))
    }

    /// Finds out whether the server closes its connection after a stream without announcing it, as llama.cpp does within 0.1 ms.
    ///
    /// A closed loop would send its next request into the closing connection and see a reset that no user of the server would.
    async fn watch_connection(&mut self) {
        tokio::time::sleep(CLOSE_TIME).await;
        let again = self.http.get(&self.addresses.health, ERROR_BYTES, self.probe_time()).await;
        if self.dialect == Dialect::LlamaCpp || again.is_ok_and(|document| document.new_connection) {
            self.http.close_after_each_stream();
            let how = "one a request: the server closes it after each stream";
            self.facts.facts.push(("connection".to_owned(), how.to_owned()));
        }
    }

    fn clean(&self, said: &str) -> String {
        match &self.settings.api_key {
            Some(key) => shorten(&key.redact(said)).to_owned(),
            None => shorten(said).to_owned(),
        }
    }

    fn clean_body(&self, body: &[u8]) -> String {
        let said = self.clean(String::from_utf8_lossy(body).trim());
        if said.is_empty() { "no text".to_owned() } else { said }
    }

    /// A server may repeat the key anywhere.
    fn clean_facts(&mut self) {
        let Some(key) = self.settings.api_key.clone() else { return };
        let facts = &mut self.facts;
        let texts = [&mut facts.name, &mut facts.model, &mut facts.version].into_iter();
        let more = facts.facts.iter_mut().flat_map(|(name, value)| [name, value]);
        for text in texts.chain(more).chain(&mut self.warnings) {
            *text = key.redact(text).into_owned();
        }
    }
}

/// Enough of a health page.
const ERROR_BYTES: usize = super::stream::ERROR_READ_BYTES;
/// Stands among the missing pages when one of them did not even refuse.
const HUNG: &str = "(a page hung; the others were not asked)";
