//! What a server can be measured in, judged by its pages and one answer.
use serde::Serialize;

use super::survey::Survey;
use crate::record::RequestRecord;
use crate::target::config::{Api, Thinking, thinking_members};

/// What stood in a real streamed answer of one token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AnswerFields {
    /// The answer came as a stream.
    pub stream: bool,
    /// Token counts at the end.
    pub usage: bool,
    /// Token counts in the chunks.
    pub usage_per_chunk: bool,
    /// The server's own clock.
    pub timings: bool,
    /// Prompt tokens from a cache.
    pub cached_tokens: bool,
    /// Reasoning, as text or as a count.
    pub reasoning: bool,
    /// Speculation counts.
    pub drafts: bool,
    /// The end mark came.
    pub end_mark: bool,
}

impl AnswerFields {
    /// The fields of a row.
    pub fn of(row: &RequestRecord) -> Self {
        Self {
            stream: row.streamed == Some(true),
            usage: row.usage_prompt_tokens.is_some() && row.usage_completion_tokens.is_some(),
            usage_per_chunk: row.first_chunk_tokens.is_some(),
            timings: row.server_prompt_ms.is_some() || row.server_predicted_ms.is_some(),
            cached_tokens: row.usage_cached_tokens.is_some() || row.server_cache_n.is_some(),
            reasoning: row.thinking_seen == Some(true) || row.usage_reasoning_tokens.is_some(),
            drafts: row.server_draft_n.is_some(),
            end_mark: row.done_seen == Some(true),
        }
    }
}

/// One thing that can be measured, or not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Ability {
    /// `workload`, `load`, `thinking` or `figure`.
    pub kind: &'static str,
    /// The key of an experiment file, or the figure.
    pub name: &'static str,
    /// Whether it can.
    pub can: bool,
    /// Why not, or under which condition; empty where there is nothing to say.
    pub why: String,
}

/// Workloads, loads, thinking and figures, each with the reason where it is out of reach.
pub fn abilities(survey: &Survey, fields: &AnswerFields, api: Api) -> Vec<Ability> {
    const NO_STREAM: &str = "answers come without a stream: there are no token times";
    let mut all = Vec::new();
    let mut say = |kind, name, can: bool, why: &str| {
        all.push(Ability { kind, name, can, why: why.to_owned() });
    };
    let counted = fields.usage;
    let decode = match (fields.stream, counted) {
        (false, _) => NO_STREAM,
        (true, false) => "no usage: set `tokenizer`, so that tokens are counted here",
        (true, true) if api == Api::Messages => "lengths may differ: the Messages interface knows no ignore_eos",
        (true, true) => "",
    };
    say("workload", "decode_scaling", fields.stream, decode);
    let prefill = match (fields.stream, counted, fields.timings) {
        (false, ..) => NO_STREAM,
        (true, false, _) => "no usage: set `tokenizer`, so that prompts are counted here",
        (true, true, false) => "the rate is read from the time to first token, queue included",
        (true, true, true) => "",
    };
    say("workload", "prefill_scaling", fields.stream, prefill);
    say("workload", "serving", fields.stream, decode);
    let slots = survey.slots.map(|n| format!("{n} sequences are decoded together; more wait")).unwrap_or_default();
    say("load", "closed", true, &slots);
    for load in ["constant", "poisson", "ramp"] {
        say("load", load, true, "");
    }
    say("load", "trace", false, "not in this version");
    for (name, asked) in [("off", Thinking::Off), ("on", Thinking::On), ("budget", Thinking::Budget(2000))] {
        let members = thinking_members(api, survey.dialect, asked);
        say("thinking", name, members.is_ok(), members.err().as_deref().unwrap_or_default());
    }
    let without = |there: bool, why: &'static str| if there { "" } else { why };
    let first = "the chunks carry no counts: set `tokenizer`, or rates are labelled \"first chunk unknown\"";
    say("figure", "tokens of the first chunk", fields.usage_per_chunk, without(fields.usage_per_chunk, first));
    let cached =
        "the answer tells no cached tokens (SGLang: --enable-cache-report, vLLM: --enable-prompt-tokens-details)";
    say("figure", "cache hits", fields.cached_tokens, without(fields.cached_tokens, cached));
    let counted_drafts = survey.counters.iter().any(|name| name == "drafted_tokens");
    let drafts = "neither the answer nor a page of counters tells drafts: none are made, or none are told";
    let can = fields.drafts || counted_drafts;
    say("figure", "draft acceptance", can, without(can, drafts));
    let pages = "no page of counters (llama.cpp: --metrics, SGLang: --enable-metrics)";
    say("figure", "server counters", !survey.counters.is_empty(), without(!survey.counters.is_empty(), pages));
    let restarts = without(survey.restarts_observable, "nothing of the server tells its lives apart");
    say("figure", "restarts", survey.restarts_observable, restarts);
    all
}
