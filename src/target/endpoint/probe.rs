//! What a server says of itself before the first request: reachable, ready, which model, which limits, which template.
use std::time::{Duration, Instant};

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::Endpoint;
use super::address::shown;
use super::client::Document;
use super::error::EndpointError;
use super::stream::shorten;
use crate::record::{Outcome, RequestRecord, ResponseText};
use crate::request::{Message, Prompt, Request, RequestKey, Sampling};
use crate::target::config::Dialect;
use crate::target::{Observation, Target, TargetFacts};
use crate::units::Clock;

/// A server that cannot list its models in this time is not ready for measurement.
const PROBE_TIME: Duration = Duration::from_secs(10);
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
    /// Asks the server for its models, health and properties and for one token, and fills the facts.
    pub(super) async fn probe(&mut self) -> Result<(), EndpointError> {
        let begun = Instant::now();
        let models = self.ask_models().await?;
        self.ask_health().await?;
        let props = self.ask_props().await;

        let host = self.addresses.chat.host_str().unwrap_or("?").to_owned();
        let port = self.addresses.chat.port_or_known_default().map_or(String::new(), |p| format!(":{p}"));
        let mut facts = TargetFacts {
            name: format!("OpenAI endpoint {host}{port}"),
            model: self.settings.model.clone(),
            version: "not stated".to_owned(),
            ..TargetFacts::default()
        };
        let mut note = |name: &str, value: String| facts.facts.push((name.to_owned(), value));
        note("url", shown(&self.addresses.chat));

        let listed = models.as_ref().map(listed_models).unwrap_or_default();
        let mine = listed.iter().find(|m| m.ids.contains(&self.settings.model));
        match (mine, listed.as_slice()) {
            (_, []) => self.warnings.push("the server lists no models; the model id could not be checked".to_owned()),
            (None, all) => {
                let names: Vec<&str> = all.iter().filter_map(|m| m.ids.first()).map(String::as_str).take(8).collect();
                self.warnings.push(format!(
                    "the server does not list the model `{}`; it lists {}",
                    self.settings.model,
                    names.join(", ")
                ));
            }
            (Some(_), _) => {}
        }
        let about = mine.or(match listed.as_slice() {
            [only] => Some(only),
            _ => None,
        });
        facts.effective_context = about.and_then(|m| m.context);
        if let Some(model) = about {
            facts.facts.extend(model.facts.iter().cloned());
        }

        let build = props.as_ref().and_then(|p| p.get("build_info")).and_then(Value::as_str);
        if let (Some(build), Some(props)) = (build, &props) {
            self.dialect = Dialect::LlamaCpp;
            facts.name = format!("llama.cpp {build}");
            facts.version = build.to_owned();
            let context = props.pointer("/default_generation_settings/n_ctx").and_then(count);
            facts.effective_context = context.or(facts.effective_context);
            facts.effective_concurrency = props.get("total_slots").and_then(count);
            if let Some(template) = props.get("chat_template").and_then(Value::as_str) {
                let digest = Sha256::digest(template.as_bytes());
                let hex: String = digest.iter().take(8).map(|b| format!("{b:02x}")).collect();
                facts.facts.push(("chat_template_sha256".to_owned(), hex));
            }
            // Only the file's name: the folder is the server's business.
            if let Some(file) =
                props.get("model_path").and_then(Value::as_str).and_then(|p| p.rsplit(['/', '\\']).next())
            {
                facts.facts.push(("model_file".to_owned(), file.to_owned()));
            }
        } else {
            if self.settings.dialect == Dialect::LlamaCpp {
                self.warnings.push("the suite says llama_cpp, but /props of the server has no build_info".to_owned());
            }
            if self.dialect == Dialect::Auto {
                self.dialect = Dialect::Openai;
            }
        }
        if let Some(slots) = facts.effective_concurrency.filter(|&slots| slots < self.settings.concurrency) {
            let asked = self.settings.concurrency;
            self.warnings.push(format!("the server decodes {slots} sequences together, {asked} were asked for"));
        }
        facts.facts.push(("dialect".to_owned(), self.dialect.word().to_owned()));
        self.facts = facts;

        self.calibrate().await?;
        self.watch_connection().await;
        let warnings = std::mem::take(&mut self.warnings);
        self.facts.facts.extend(warnings.iter().map(|w| ("warning".to_owned(), w.clone())));
        self.warnings = warnings;
        self.facts.facts.push(("probe_ms".to_owned(), begun.elapsed().as_millis().to_string()));
        self.clean_facts();
        Ok(())
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

    async fn ask_props(&self) -> Option<Value> {
        match self.http.get(&self.addresses.props, PROBE_BYTES, self.probe_time()).await {
            Ok(Document { status: 200, body, .. }) => serde_json::from_slice(&body).ok(),
            _ => None,
        }
    }

    fn probe_time(&self) -> Duration {
        PROBE_TIME.min(self.settings.timeouts.total)
    }

    /// One request for one token: proves that the model answers, and tells how many tokens its template adds.
    ///
    /// `overhead = usage.prompt_tokens - words`, every word being one token; the prefix of all prompts counts as overhead.
    async fn calibrate(&mut self) -> Result<(), EndpointError> {
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
        let row = seen.record;
        let url = shown(&self.addresses.chat);
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

/// One entry of a model list.
#[derive(Debug, Default)]
struct ListedModel {
    ids: Vec<String>,
    context: Option<u32>,
    facts: Vec<(String, String)>,
}

/// The models of `/v1/models`; vLLM and SGLang say `max_model_len`, llama.cpp `meta.n_ctx` and aliases.
fn listed_models(list: &Value) -> Vec<ListedModel> {
    let Some(entries) = list.get("data").and_then(Value::as_array) else { return Vec::new() };
    let mut models = Vec::new();
    for entry in entries {
        let Some(id) = entry.get("id").and_then(Value::as_str) else { continue };
        let mut ids = vec![id.to_owned()];
        let aliases = entry.get("aliases").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        ids.extend(aliases.iter().filter_map(Value::as_str).map(str::to_owned));
        let at = |path: &str| entry.pointer(path).and_then(count);
        let facts = [
            ("/meta/n_ctx_train", "trained_context"),
            ("/meta/n_vocab", "vocabulary"),
            ("/meta/n_params", "parameters"),
        ];
        let facts = facts.iter().filter_map(|(path, name)| {
            entry.pointer(path).filter(|v| v.is_u64()).map(|value| ((*name).to_owned(), value.to_string()))
        });
        models.push(ListedModel {
            context: at("/max_model_len").or_else(|| at("/meta/n_ctx")),
            facts: facts.collect(),
            ids,
        });
    }
    models
}

fn count(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|n| u32::try_from(n).ok())
}
