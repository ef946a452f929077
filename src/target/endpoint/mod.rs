//! OpenAI-compatible HTTP servers as a target.
//!
//! `sse` cuts bytes into events, `chunk` reads one event, `answer` folds them, `stream` does all three for one body and names the
//! outcome; `client` carries a request under its deadlines and `probe` asks a server what it is.
mod address;
mod answer;
mod body;
mod chunk;
mod client;
mod connection;
mod error;
mod lenient;
mod probe;
mod secret;
mod settings;
mod sse;
mod stream;

pub use address::{UrlError, endpoint_url};
pub use error::EndpointError;
pub use secret::Secret;
pub use settings::{EndpointSettings, Timeouts};
pub use sse::{SseItem, SseParser, SseTail, SseTooLong};
pub use stream::{BodyEnd, MAX_BODY_BYTES, MAX_ERROR_BYTES, MAX_EVENT_BYTES, Step, StreamReader};

use super::config::Dialect;
use super::{Observation, PromptCount, Target, TargetFacts};
use crate::record::Outcome;
use crate::request::{Message, Request};
use crate::units::Clock;
use address::Addresses;
use client::{Flight, HttpClient};

/// Sockets and files a run needs besides its requests: log, texts, tables, pipes, name resolution.
const OTHER_FILES: u64 = 64;

/// A server that answers OpenAI chat requests.
#[derive(Debug)]
pub struct Endpoint {
    settings: EndpointSettings,
    addresses: Addresses,
    http: HttpClient,
    dialect: Dialect,
    facts: TargetFacts,
    overhead: Option<u32>,
    warnings: Vec<String>,
}

impl Endpoint {
    /// Prepares a client without asking the server anything; facts are empty. For callers that probed before.
    pub fn attach(settings: EndpointSettings) -> Result<Self, EndpointError> {
        let addresses = Addresses::new(&settings.url)?;
        let http = HttpClient::new(&addresses, settings.api_key.as_ref(), settings.timeouts)?;
        let dialect = settings.dialect;
        Ok(Self {
            settings,
            addresses,
            http,
            dialect,
            facts: TargetFacts::default(),
            overhead: None,
            warnings: Vec::new(),
        })
    }

    /// Reaches the server and learns what it is, so that one that is away, loading or refusing ends the run before its start.
    ///
    /// Asks `/v1/models`, `/health` and `/props`, then for one token of a prompt of known length, from which the tokens of the
    /// chat template follow.
    pub async fn connect(settings: EndpointSettings) -> Result<Self, EndpointError> {
        check_file_limit(settings.concurrency)?;
        let mut endpoint = Self::attach(settings)?;
        endpoint.probe().await?;
        Ok(endpoint)
    }

    /// Things a reader of the report should know; also among the facts.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Tokens that the chat template and `settings.prefix` add to a prompt of one user message, where the server told.
    pub fn overhead_tokens(&self) -> Option<u32> {
        self.overhead
    }

    /// What the server speaks, as found by asking.
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }
}

impl Target for Endpoint {
    fn facts(&self) -> &TargetFacts {
        &self.facts
    }

    fn count_prompt(&self, _messages: &[Message]) -> PromptCount {
        PromptCount::Unknown
    }

    fn raw_vocabulary(&self) -> Option<u32> {
        None
    }

    async fn submit(&self, request: &Request, clock: &Clock, seen: &mut Observation) {
        let Some(body) = body::chat_body(&self.settings, self.dialect, request) else {
            seen.record.outcome = Outcome::Shed;
            seen.record.error = Some("a chat endpoint takes messages, not token ids".to_owned());
            return;
        };
        let mut flight = Flight::new(seen, clock, self.settings.api_key.as_ref());
        self.http.post(&self.addresses.chat, body, &mut flight).await;
    }
}

/// Checks that `concurrency` requests can be in flight, and raises the soft limit of open files when that is all it takes.
pub fn check_file_limit(concurrency: u32) -> Result<(), EndpointError> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let needed = u64::from(concurrency) + OTHER_FILES;
    let found = getrlimit(Resource::Nofile);
    let enough = |limit: Option<u64>| limit.is_none_or(|limit| limit >= needed);
    if enough(found.current) {
        return Ok(());
    }
    let raised = Rlimit { current: Some(needed), maximum: found.maximum };
    if enough(found.maximum) && setrlimit(Resource::Nofile, raised).is_ok() {
        return Ok(());
    }
    let limit = found.maximum.or(found.current).unwrap_or(0);
    Err(EndpointError::FileLimit { wanted: concurrency, needed, limit })
}
