//! Everything an endpoint needs to know, resolved to single values.
use std::time::Duration;

use super::secret::Secret;

/// How long each stage of a request may take. Each has its own outcome word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// From the start of a connection to its end, TLS included; `timeout_connect`.
    pub connect: Duration,
    /// From an open connection to the first byte of the body; `timeout_first_byte`.
    pub first_byte: Duration,
    /// Between two outputs, from the first byte on; keep-alives do not count; `timeout_idle`.
    pub idle: Duration,
    /// The whole request; `timeout_total`.
    pub total: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        let s = Duration::from_secs;
        Self { connect: s(5), first_byte: s(600), idle: s(60), total: s(1800) }
    }
}

/// What a server speaks beyond plain OpenAI.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Dialect {
    /// Found out by asking.
    #[default]
    Auto,
    /// Nothing beyond OpenAI chat.
    OpenAi,
    /// llama.cpp server: `cache_prompt`, `timings`, `/props`.
    LlamaCpp,
}

impl Dialect {
    /// The word of the contract.
    pub fn word(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::OpenAi => "openai",
            Self::LlamaCpp => "llama_cpp",
        }
    }
}

/// The resolved settings of one endpoint.
#[derive(Debug, Clone)]
pub struct EndpointSettings {
    /// Base address, as `http://127.0.0.1:8080/v1`.
    pub url: String,
    /// Model id sent in every request.
    pub model: String,
    /// Key for `Authorization: Bearer`.
    pub api_key: Option<Secret>,
    /// Deadlines.
    pub timeouts: Timeouts,
    /// What the server speaks.
    pub dialect: Dialect,
    /// The workloads must not be answered from a prompt cache: where the server can be told so, it is.
    pub cold: bool,
    /// Ask for token counts in every chunk where the dialect has them (llama.cpp `timings_per_token`), so that the tokens of the
    /// first chunk are known; costs the server some bytes a token.
    pub chunk_counts: bool,
    /// Most requests in flight, to check the limit of open files before the start.
    pub concurrency: u32,
}

impl EndpointSettings {
    /// Settings with the defaults of the contract.
    pub fn new(url: impl Into<String>, model: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            model: model.into(),
            api_key: None,
            timeouts: Timeouts::default(),
            dialect: Dialect::Auto,
            cold: true,
            chunk_counts: false,
            concurrency: 1,
        }
    }
}
