//! The request row: one struct is the log line and the Parquet row.
use serde::{Deserialize, Serialize};

use super::columns::{Cell, ColumnValue, Dtype, record_columns};
use crate::request::{Request, RequestKey};
use crate::units::TimestampNs;

macro_rules! words {
    ($(#[$meta:meta])* pub enum $name:ident { $($(#[doc = $doc:literal])* $variant:ident = $word:literal,)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum $name { $($(#[doc = $doc])* #[serde(rename = $word)] $variant,)* }

        impl $name {
            /// Every word, in the order of the contract.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The word as it stands in the log.
            pub fn word(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }
        }

        impl ColumnValue for $name {
            const DTYPE: Dtype = Dtype::Utf8;
            fn cell(&self) -> Cell<'_> { Cell::Utf8(self.word()) }
        }
    };
}

words! {
    /// How a request ended, in one closed word (`contracts/words.json`).
    pub enum Outcome {
        /// Finish reason seen and the stream ended.
        Ok = "ok",
        /// Connection closed cleanly before a finish reason.
        Truncated = "truncated",
        /// Connection reset or cut below HTTP.
        Reset = "reset",
        /// Error object inside a 200 stream.
        ServerErrorStream = "server_error_stream",
        /// Status outside 2xx.
        HttpError = "http_error",
        /// 2xx without one usable event.
        BadPayload = "bad_payload",
        /// Refused, unreachable, DNS or TLS failure.
        ConnectFailed = "connect_failed",
        /// No connection in time.
        TimeoutConnect = "timeout_connect",
        /// No first byte in time.
        TimeoutFirstByte = "timeout_first_byte",
        /// No output in time; keep-alives do not count.
        TimeoutIdle = "timeout_idle",
        /// The whole request took too long.
        TimeoutTotal = "timeout_total",
        /// We stopped it.
        Cancelled = "cancelled",
        /// Never sent: our own cap or a lost schedule.
        Shed = "shed",
    }
}

words! {
    /// The four groups that issued requests add up to.
    pub enum OutcomeGroup {
        /// Answered.
        Ok = "ok",
        /// Not answered.
        Failed = "failed",
        /// Stopped by us.
        Cancelled = "cancelled",
        /// Never sent.
        Shed = "shed",
    }
}

words! {
    /// Why the model stopped, in the servers' words.
    pub enum Finish {
        /// End of sequence or a stop string.
        Stop = "stop",
        /// The token limit.
        Length = "length",
        /// A tool call.
        ToolCalls = "tool_calls",
        /// Filtered.
        ContentFilter = "content_filter",
        /// A word we do not know.
        Other = "other",
        /// None was given.
        None = "none",
    }
}

words! {
    /// Where `first_chunk_tokens` comes from.
    pub enum FirstChunkSource {
        /// Usage in every chunk, or the engine itself.
        Usage = "usage",
        /// Our own tokenizer.
        Tokenizer = "tokenizer",
        /// Unknown.
        None = "none",
    }
}

impl Outcome {
    /// The group of `words.json`.
    pub fn group(self) -> OutcomeGroup {
        match self {
            Self::Ok => OutcomeGroup::Ok,
            Self::Cancelled => OutcomeGroup::Cancelled,
            Self::Shed => OutcomeGroup::Shed,
            _ => OutcomeGroup::Failed,
        }
    }
}

record_columns! {
    /// What one request did, as seen by the load generator. Times are ns since the segment's anchor; `None` is unknown, never 0.
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct RequestRecord {
        arm: String, "", "Name of the arm.";
        cell: String, "", "Id of the cell: workload and point of its sweep.";
        repeat: u32, "", "Which repeat (block), from 0.";
        index: u32, "", "Number of the request inside cell and repeat.";
        attempt: u32, "", "0 at first; higher after a resume reran the repeat. Only the highest attempt is live.";
        warmup: bool, "", "Sent before the measured requests and left out of every number.";
        #[serde(default)] session: Option<u32>, "", "Conversation, for multi-turn workloads.";
        #[serde(default)] turn: Option<u32>, "", "Turn inside the conversation.";
        #[serde(default)] fixture: Option<String>, "", "Name of the prompt source.";
        #[serde(default)] prompt_sha256: Option<String>, "", "SHA-256 of the prompt as sent, first 16 hex digits.";
        #[serde(default)] prompt_tokens_planned: Option<u32>, "tokens", "Prompt length the plan asked for.";
        #[serde(default)] scheduled_ns: Option<TimestampNs>, "ns", "When the arrival process wanted it sent.";
        #[serde(default)] sent_ns: Option<TimestampNs>, "ns", "When it was handed to the target; sent - scheduled is our own lateness.";
        #[serde(default)] headers_ns: Option<TimestampNs>, "ns", "When the response headers were complete.";
        #[serde(default)] first_byte_ns: Option<TimestampNs>, "ns", "When the first byte of the body arrived.";
        #[serde(default)] first_token_ns: Option<TimestampNs>, "ns", "First generated token of any kind; never a role-only or empty delta.";
        #[serde(default)] first_answer_ns: Option<TimestampNs>, "ns", "First token of the answer, after any reasoning.";
        #[serde(default)] last_token_ns: Option<TimestampNs>, "ns", "Last chunk that carried a token.";
        #[serde(default)] end_ns: Option<TimestampNs>, "ns", "When the last byte we wait for arrived.";
        #[serde(default)] gap_us: Vec<u32>, "us", "Gaps between chunks that carry tokens; a chunk is not a token.";
        #[serde(default)] first_chunk_tokens: Option<u32>, "tokens", "Tokens in the first chunk that carried any.";
        #[serde(default)] first_chunk_tokens_source: Option<FirstChunkSource>, "", "Where first_chunk_tokens comes from.";
        #[serde(default)] usage_prompt_tokens: Option<u32>, "tokens", "Prompt length as the target counts it.";
        #[serde(default)] usage_completion_tokens: Option<u32>, "tokens", "Generated tokens as the target counts them.";
        #[serde(default)] usage_reasoning_tokens: Option<u32>, "tokens", "Reasoning tokens among them.";
        #[serde(default)] usage_cached_tokens: Option<u32>, "tokens", "Prompt tokens answered from a cache.";
        #[serde(default)] counted_prompt_tokens: Option<u32>, "tokens", "Prompt length by our own tokenizer.";
        #[serde(default)] counted_completion_tokens: Option<u32>, "tokens", "Generated tokens by our own tokenizer.";
        #[serde(default)] temperature: Option<f64>, "", "Sampler: 0 is greedy.";
        #[serde(default)] top_p: Option<f64>, "", "Sampler: nucleus.";
        #[serde(default)] top_k: Option<u32>, "", "Sampler: 0 is off.";
        #[serde(default)] min_p: Option<f64>, "", "Sampler: 0 is off.";
        #[serde(default)] presence_penalty: Option<f64>, "", "Sampler.";
        #[serde(default)] frequency_penalty: Option<f64>, "", "Sampler.";
        #[serde(default)] max_tokens: Option<u32>, "tokens", "Most tokens generated.";
        #[serde(default)] ignore_eos: Option<bool>, "", "Whether the end of sequence was to be ignored.";
        #[serde(default)] seed: Option<u32>, "", "Seed of the sampler, 31 bits.";
        #[serde(default)] thinking_asked: Option<String>, "", "Thinking mode as asked.";
        #[serde(default)] thinking_seen: Option<bool>, "", "Whether reasoning came.";
        #[serde(default)] finish: Option<Finish>, "", "Why the model stopped.";
        outcome: Outcome, "", "How it ended, in one closed word.";
        #[serde(default)] http_status: Option<u32>, "", "HTTP status.";
        #[serde(default)] error: Option<String>, "", "Cause of a failure in the words of whoever reported it.";
        #[serde(default)] new_connection: Option<bool>, "", "Whether a connection was opened for it.";
        #[serde(default)] streamed: Option<bool>, "", "Whether the answer came as a stream.";
        #[serde(default)] chunks: Option<u32>, "", "Chunks that carried tokens.";
        #[serde(default)] keepalives: Option<u32>, "", "Comments and empty events.";
        #[serde(default)] bad_chunks: Option<u32>, "", "Chunks that could not be read.";
        #[serde(default)] bad_text: Option<u32>, "", "Places where bytes were not UTF-8.";
        #[serde(default)] done_seen: Option<bool>, "", "Whether the stream's end mark came.";
        #[serde(default)] tail_unterminated: Option<bool>, "", "Whether the last event lacked its blank line.";
        #[serde(default)] usage_mismatch: Option<bool>, "", "Usage cannot be true, or differs from our count.";
        #[serde(default)] server_cache_n: Option<u32>, "tokens", "Server: prompt tokens from its cache.";
        #[serde(default)] server_prompt_n: Option<u32>, "tokens", "Server: prompt tokens computed.";
        #[serde(default)] server_prompt_ms: Option<f64>, "ms", "Server: time in prefill.";
        #[serde(default)] server_predicted_n: Option<u32>, "tokens", "Server: tokens generated.";
        #[serde(default)] server_predicted_ms: Option<f64>, "ms", "Server: time in decode.";
        #[serde(default)] server_queue_ms: Option<f64>, "ms", "Server: time waiting before prefill.";
        #[serde(default)] server_draft_n: Option<u32>, "tokens", "Server: tokens drafted.";
        #[serde(default)] server_draft_accepted: Option<u32>, "tokens", "Server: drafted tokens accepted.";
        #[serde(default)] server_rounds: Option<u32>, "", "Server: verification rounds.";
        #[serde(default)] server_accepted_per_position: Option<Vec<u32>>, "tokens", "Server: accepted tokens by draft position.";
        #[serde(default)] reuse_path: Option<String>, "", "Server: how the prefix was reused.";
        #[serde(default)] peers_in_flight: Option<u32>, "", "Most other requests in flight while it decoded.";
        #[serde(default)] peers_prefilling: Option<u32>, "", "Most other requests in prefill while it decoded.";
    }
}

impl RequestRecord {
    /// A row for `request` with nothing observed yet; the outcome is `shed` until something else is known.
    pub fn planned(request: &Request, attempt: u32) -> Self {
        let RequestKey { arm, cell, repeat, index, warmup } = request.key.clone();
        let s = request.sampling;
        Self {
            arm,
            cell,
            repeat,
            index,
            attempt,
            warmup,
            session: None,
            turn: None,
            fixture: None,
            prompt_sha256: None,
            prompt_tokens_planned: request.prompt_tokens_planned,
            scheduled_ns: None,
            sent_ns: None,
            headers_ns: None,
            first_byte_ns: None,
            first_token_ns: None,
            first_answer_ns: None,
            last_token_ns: None,
            end_ns: None,
            gap_us: Vec::new(),
            first_chunk_tokens: None,
            first_chunk_tokens_source: None,
            usage_prompt_tokens: None,
            usage_completion_tokens: None,
            usage_reasoning_tokens: None,
            usage_cached_tokens: None,
            counted_prompt_tokens: None,
            counted_completion_tokens: None,
            temperature: Some(s.temperature),
            top_p: Some(s.top_p),
            top_k: Some(s.top_k),
            min_p: Some(s.min_p),
            presence_penalty: Some(s.presence_penalty),
            frequency_penalty: Some(s.frequency_penalty),
            max_tokens: Some(request.max_tokens),
            ignore_eos: Some(request.ignore_eos),
            seed: Some(request.seed),
            thinking_asked: None,
            thinking_seen: None,
            finish: None,
            outcome: Outcome::Shed,
            http_status: None,
            error: None,
            new_connection: None,
            streamed: None,
            chunks: None,
            keepalives: None,
            bad_chunks: None,
            bad_text: None,
            done_seen: None,
            tail_unterminated: None,
            usage_mismatch: None,
            server_cache_n: None,
            server_prompt_n: None,
            server_prompt_ms: None,
            server_predicted_n: None,
            server_predicted_ms: None,
            server_queue_ms: None,
            server_draft_n: None,
            server_draft_accepted: None,
            server_rounds: None,
            server_accepted_per_position: None,
            reuse_path: None,
            peers_in_flight: None,
            peers_prefilling: None,
        }
    }

    /// The key of this row.
    pub fn key(&self) -> RequestKey {
        RequestKey {
            arm: self.arm.clone(),
            cell: self.cell.clone(),
            repeat: self.repeat,
            index: self.index,
            warmup: self.warmup,
        }
    }
}

/// What the model said. Kept in `texts.jsonl`, never in the row.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResponseText {
    /// Reasoning before the answer.
    #[serde(default)]
    pub reasoning: String,
    /// The answer.
    #[serde(default)]
    pub content: String,
    /// Tool calls, merged by index.
    #[serde(default)]
    pub tool_calls: Vec<ToolCall>,
    /// How much of it came with the first chunk, for a count of its tokens; not kept in files.
    #[serde(skip)]
    pub first_chunk: Option<FirstChunk>,
}

/// Bytes of an answer that came with its first chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FirstChunk {
    /// Of the reasoning.
    pub reasoning_bytes: usize,
    /// Of the answer.
    pub content_bytes: usize,
}

/// One tool call.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// Function name.
    pub name: String,
    /// Its arguments, as the model wrote them.
    pub arguments: String,
}
