//! Who answers. A target sends a request, observes what happens and never computes a rate.
pub mod config;
pub mod endpoint;
pub mod in_process;

use crate::record::{RequestRecord, ResponseText};
use crate::request::{Message, Request};
use crate::units::Clock;

/// Everything one request showed: the row and the text.
#[derive(Debug, Clone, PartialEq)]
pub struct Observation {
    /// The row; key, prompt and sampler are filled before `submit`.
    pub record: RequestRecord,
    /// What the model said.
    pub text: ResponseText,
}

/// What a target says of itself before the first request; written to the log as provenance of the segment.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct TargetFacts {
    /// What the report calls it, as `in-process cpu` or `llama.cpp b1234`.
    pub name: String,
    /// The model as the target names it.
    pub model: String,
    /// `true` for random weights: every table says "speed only".
    pub synthetic: bool,
    /// Version, which is part of the identity.
    pub version: String,
    /// KV dtype that runs, where it can be known.
    pub effective_kv_dtype: Option<String>,
    /// Tokens a sequence may hold, where it can be known.
    pub effective_context: Option<u32>,
    /// Sequences decoded together, where it can be known.
    pub effective_concurrency: Option<u32>,
    /// Anything else worth printing: name, value.
    pub facts: Vec<(String, String)>,
}

/// How the target counts a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromptCount {
    /// Exactly this many tokens.
    Exact(u32),
    /// The target cannot say before it is asked.
    Unknown,
}

/// Something that answers requests: our own engine or a server.
#[allow(async_fn_in_trait)] // one thread drives every target, so no Send bound is wanted
pub trait Target {
    /// What the target says of itself.
    fn facts(&self) -> &TargetFacts;

    /// Tokens of a chat as the target would count it, template included.
    fn count_prompt(&self, messages: &[Message]) -> PromptCount;

    /// `Some(vocabulary size)` for a model that has no tokenizer and takes token ids.
    fn raw_vocabulary(&self) -> Option<u32>;

    /// Carries out one request and fills what it saw. A failure is an outcome in the row, never an `Err`.
    ///
    /// `record.sent_ns` is set by the target at the moment it hands the request over; every time is read from `clock`.
    async fn submit(&self, request: &Request, clock: &Clock, seen: &mut Observation);
}
