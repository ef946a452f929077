//! HTTP servers as a target: OpenAI chat and completions, Anthropic messages.
//!
//! `sse` cuts bytes into events, `chunk` and `messages` read one event, `answer` folds them, `stream` does all three for one body and names the
//! outcome; `client` carries a request under its deadlines and `probe` asks a server what it is.
mod ability;
mod address;
mod answer;
mod body;
mod chunk;
mod client;
mod connection;
mod counter;
mod deadlines;
mod dialect;
mod error;
mod facts;
mod figures;
mod lenient;
mod messages;
pub mod metrics_page;
mod models;
mod probe;
mod secret;
mod settings;
mod sse;
mod stream;
mod survey;

pub use ability::{Ability, AnswerFields, abilities};
pub use address::{UrlError, endpoint_url};
pub use counter::{AnswerCount, TokenCounter};
pub use dialect::Evidence;
pub use error::EndpointError;
pub use models::ListedModel;
pub use secret::Secret;
pub use settings::{EndpointSettings, Timeouts};
pub use sse::{SseItem, SseParser, SseTail, SseTooLong};
pub use stream::{BodyEnd, MAX_BODY_BYTES, MAX_ERROR_BYTES, MAX_EVENT_BYTES, Step, StreamReader};
pub use survey::{CacheReset, Survey};

use std::cell::OnceCell;

use super::config::{Dialect, TokenizerFrom};
use super::{Observation, PromptCount, Target, TargetFacts};
use crate::record::Outcome;
use crate::request::{Message, Request};
use crate::units::Clock;
use address::Addresses;
use client::{Flight, HttpClient};
use metrics_page::{Scraper, Source};

/// Sockets and files a run needs besides its requests: log, texts, tables, pipes, name resolution.
const OTHER_FILES: u64 = 64;

/// A server that answers over HTTP.
#[derive(Debug)]
pub struct Endpoint {
    settings: EndpointSettings,
    addresses: Addresses,
    http: HttpClient,
    dialect: Dialect,
    facts: TargetFacts,
    overhead: Option<u32>,
    /// The vocabulary named by the suite.
    counter: Option<TokenCounter>,
    /// What the template adds to a prompt as our own vocabulary counts it.
    template_tokens: Option<u32>,
    warnings: Vec<String>,
    /// Where the server keeps counters, as found by asking.
    sources: Vec<Source>,
    /// Asks for them, made when it is first wanted.
    scrape_http: OnceCell<HttpClient>,
}

impl Endpoint {
    /// Prepares a client without asking the server anything; facts are empty. For callers that probed before.
    pub fn attach(settings: EndpointSettings) -> Result<Self, EndpointError> {
        let addresses = Addresses::new(&settings.url)?;
        let http = HttpClient::new(&addresses, settings.api_key.as_ref(), settings.timeouts)?;
        let dialect = settings.dialect;
        let counter = match &settings.tokenizer {
            TokenizerFrom::File(path) => Some(TokenCounter::open(path)?),
            TokenizerFrom::None | TokenizerFrom::Server => None,
        };
        Ok(Self {
            settings,
            addresses,
            http,
            dialect,
            facts: TargetFacts::default(),
            overhead: None,
            counter,
            template_tokens: None,
            warnings: Vec::new(),
            sources: Vec::new(),
            scrape_http: OnceCell::new(),
        })
    }

    /// Reaches the server and learns what it is, so that one that is away, loading or refusing ends the run before its start.
    ///
    /// Asks for its pages ([`survey`](Self::survey)), then for one token of a prompt of known length, from which the tokens of the chat
    /// template follow.
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

    /// Asks for the server's counters on a connection of its own; `None` where it keeps none.
    pub fn scraper(&self) -> Option<Scraper> {
        if self.sources.is_empty() {
            return None;
        }
        if self.scrape_http.get().is_none() {
            let http = HttpClient::new(&self.addresses, self.settings.api_key.as_ref(), self.settings.timeouts).ok()?;
            let _ = self.scrape_http.set(http);
        }
        let http = self.scrape_http.get()?.clone();
        let sources = self.sources.iter().map(|source| (*source, self.addresses.at_root(source.path())));
        Some(Scraper::new(http, sources.collect(), self.settings.api_key.clone()))
    }

    /// The vocabulary named by the suite, for counts of answers.
    pub fn counter(&self) -> Option<&TokenCounter> {
        self.counter.as_ref()
    }

    /// Whether the suite wants the server's own `/tokenize` to count.
    pub fn counts_by_server(&self) -> bool {
        self.settings.tokenizer == TokenizerFrom::Server
    }

    /// Tokens of a text by the server's own `/tokenize`; `None` where it has none or does not answer.
    pub async fn tokenize(&self, text: &str) -> Option<u32> {
        if text.is_empty() {
            return Some(0);
        }
        let (url, body) = (self.addresses.at_root("tokenize"), counter::tokenize_body(&self.settings.model, text));
        match self.http.ask(&url, body, MAX_BODY_BYTES, self.settings.timeouts.total).await {
            Ok(answer) if answer.status == 200 => counter::tokenize_count(&answer.body),
            _ => None,
        }
    }

    /// Tokens of a prompt as the server would count it, by its own `/tokenize`; `None` where that cannot be said.
    pub async fn tokenize_prompt(&self, messages: &[Message]) -> Option<u32> {
        self.tokenize(&body::completion_text(messages)).await?.checked_add(self.template_tokens?)
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

    fn count_prompt(&self, messages: &[Message]) -> PromptCount {
        let own = self.counter.as_ref().and_then(|counter| counter.text(&body::completion_text(messages)));
        match own.zip(self.template_tokens).and_then(|(text, template)| text.checked_add(template)) {
            Some(n) => PromptCount::Exact(n),
            None => PromptCount::Unknown,
        }
    }

    fn raw_vocabulary(&self) -> Option<u32> {
        None
    }

    async fn submit(&self, request: &Request, clock: &Clock, seen: &mut Observation) {
        seen.record.thinking_asked = self.settings.thinking.word();
        let body = match body::body(&self.settings, self.dialect, request) {
            Ok(body) => body,
            Err(why) => {
                seen.record.outcome = Outcome::Shed;
                seen.record.error = Some(why);
                return;
            }
        };
        let api = self.settings.api;
        let mut flight = Flight::new(seen, clock, self.settings.api_key.as_ref(), api);
        self.http.post(self.addresses.of(api), body, &mut flight).await;
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
