//! Our own inference engine: one thread that steps, admit → schedule → forward → sample → emit.
//!
//! The engine knows nothing of experiments. All memory is sized at start-up by [`capacity`]; a sequence's KV pages are reserved when it
//! is admitted, so that no request fails half-way.
//!
//! What a request generates depends on its prompt, sampling and seed alone: the same tokens come at any number of threads, in any company,
//! with any prefill chunk and policy. Logits are the same bits on AVX2 and AVX-512; the portable form differs in the last places.
pub mod capacity;
pub mod chat_template;
pub mod kv;
pub mod model;
pub mod op;
pub mod sampler;
mod scheduler;
mod thread;
pub mod tokenizer;
pub mod weights;
pub mod worker_pool;

use std::sync::Arc;
use std::time::{Duration, Instant};

use miette::Diagnostic;
use thiserror::Error;

pub use capacity::Capacity;
pub use kv::KvDtype;
pub use scheduler::SchedulerPolicy;
pub use thread::Engine;

use crate::request::Sampling;

/// What an engine is started with.
#[derive(Debug, Clone)]
pub struct EngineConfig {
    /// Threads that compute; `None` takes one for every processor this process may use.
    pub threads: Option<usize>,
    /// Most tokens of a sequence, prompt and completion together.
    pub max_context: u32,
    /// Most sequences decoded together.
    pub max_concurrency: u32,
    /// How keys and values are stored.
    pub kv_dtype: KvDtype,
    /// Tokens all KV pages hold; `None` is `max_context * max_concurrency`.
    pub kv_capacity_tokens: Option<u32>,
    /// Prompt tokens computed between two looks at the other sequences.
    pub prefill_chunk: u32,
    /// Who goes first.
    pub scheduler: SchedulerPolicy,
    /// How long a request may wait for admission.
    pub pending_timeout: Duration,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            threads: None,
            max_context: 4096,
            max_concurrency: 4,
            kv_dtype: KvDtype::Bf16,
            kv_capacity_tokens: None,
            prefill_chunk: 512,
            scheduler: SchedulerPolicy::Serial,
            pending_timeout: Duration::from_secs(600),
        }
    }
}

/// One request to the engine.
#[derive(Debug, Clone)]
pub struct Generate {
    /// Token ids, at least one.
    pub prompt: Vec<u32>,
    /// How tokens are drawn.
    pub sampling: Sampling,
    /// Most tokens generated, at least one.
    pub max_tokens: u32,
    /// Go on past `stop_ids`.
    pub ignore_eos: bool,
    /// Tokens that end the answer.
    pub stop_ids: Vec<u32>,
    /// Seed of the sampler.
    pub seed: u32,
}

/// Why a generation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineFinish {
    /// A stop token.
    Stop,
    /// `max_tokens` were generated.
    Length,
    /// Prompt and completion do not fit a sequence; nothing was computed and nothing cut.
    ContextLengthExceeded,
    /// An empty prompt, no token asked for, or a token outside the vocabulary; nothing was computed.
    InvalidRequest,
    /// It was not admitted in time.
    PendingTimeout,
    /// The receiver was dropped.
    Cancelled,
    /// The engine's thread panicked.
    Failed,
}

/// What a request came to; sent once, at its end.
#[derive(Debug, Clone)]
pub struct Generation {
    /// Generated ids; a stop token is the last of them.
    pub tokens: Vec<u32>,
    /// When each was known.
    pub token_at: Vec<Instant>,
    /// When pages were reserved for it.
    pub admitted_at: Option<Instant>,
    /// When its first prefill chunk began.
    pub prefill_started_at: Option<Instant>,
    /// When the logits of its prompt's last token were there.
    pub prefill_ended_at: Option<Instant>,
    /// When it ended.
    pub ended_at: Instant,
    /// Length of the prompt.
    pub prompt_tokens: u32,
    /// Why it ended.
    pub finish: EngineFinish,
    /// Most other sequences admitted while it decoded.
    pub peers_in_flight: u32,
    /// Most other sequences in prefill while it decoded.
    pub peers_prefilling: u32,
}

/// Why an engine cannot start.
#[derive(Debug, Error, Diagnostic)]
pub enum EngineError {
    /// A size of zero.
    #[error("{key} is 0")]
    #[diagnostic(help("give at least 1"))]
    Zero {
        /// Which.
        key: &'static str,
    },
    /// A KV dtype this version does not store.
    #[error("kv_dtype {dtype} is not in this version")]
    #[diagnostic(help("the CPU engine stores keys and values as f32 or bf16"))]
    KvDtype {
        /// Asked for.
        dtype: KvDtype,
    },
    /// More positions than the model knows.
    #[error("max_context is {asked}, but the model was trained for {trained} positions")]
    #[diagnostic(help("set max_context to {trained} or less"))]
    ContextBeyondModel {
        /// Asked for.
        asked: u32,
        /// Of the model.
        trained: usize,
    },
    /// Widths the kernels cannot take.
    #[error(
        "widths must be multiples of 32: hidden is {hidden}, feed-forward {feed_forward}, all heads together {q_width}"
    )]
    Width {
        /// Residual stream.
        hidden: usize,
        /// MLP.
        feed_forward: usize,
        /// Query heads.
        q_width: usize,
    },
    /// The KV pool cannot hold one full sequence.
    #[error("kv_capacity is {tokens} tokens in whole pages, but one sequence of max_context needs {needed}")]
    #[diagnostic(help("raise kv_capacity or lower max_context"))]
    KvTooSmall {
        /// Whole pages asked for, in tokens.
        tokens: u64,
        /// One sequence.
        needed: u64,
    },
    /// It does not fit in memory.
    #[error(
        "the engine needs {needed} bytes ({kv} of them for keys and values, {weights} for weights of the file), {available} are free"
    )]
    #[diagnostic(help("lower max_context, max_concurrency or kv_capacity, or store keys and values as bf16"))]
    Memory {
        /// All of it.
        needed: u64,
        /// Free now, page cache included.
        available: u64,
        /// KV pool.
        kv: u64,
        /// Weights that are read from a mapped file.
        weights: u64,
    },
    /// The system gives no thread.
    #[error("the engine's thread could not start: {0}")]
    Thread(std::io::Error),
}

/// The account an engine would have, or what does not fit, without starting it.
///
/// # Errors
/// As [`Engine::start`].
pub fn plan(model: &Arc<weights::ModelFile>, config: &EngineConfig) -> Result<Capacity, EngineError> {
    Capacity::plan(model, config).map(|(capacity, _)| capacity)
}
