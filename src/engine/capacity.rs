//! The capacity planner: weights, KV pages and workspace are sized at start-up; what does not fit is refused then, never later.
use crate::engine::kv::{KvDtype, KvLayout, PAGE_TOKENS};
use crate::engine::model::LlamaSize;
use crate::engine::weights::ModelFile;
use crate::engine::{EngineConfig, EngineError};

/// The account of an engine's memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capacity {
    /// Threads that compute.
    pub threads: usize,
    /// KV dtype that runs.
    pub kv_dtype: KvDtype,
    /// Most tokens of a sequence.
    pub max_context: u32,
    /// Most sequences decoded together.
    pub max_concurrency: u32,
    /// Bytes of weights as stored.
    pub weight_bytes: usize,
    /// Exact bytes of keys and values a token.
    pub kv_bytes_per_token: usize,
    /// Tokens all pages hold.
    pub kv_tokens: usize,
    /// Bytes of activations, tiles, scores, logits.
    pub workspace_bytes: usize,
    /// Bytes that were free when it was planned, where the system says so.
    pub available_bytes: Option<u64>,
}

impl Capacity {
    /// Bytes of the KV pool.
    pub fn kv_bytes(&self) -> usize {
        self.kv_tokens * self.kv_bytes_per_token
    }

    /// The account as name and value, for logs and reports.
    pub fn account(&self) -> Vec<(String, String)> {
        let mib = |bytes: usize| format!("{:.1}", bytes as f64 / f64::from(1 << 20));
        let pairs = [
            ("threads", self.threads.to_string()),
            ("weights_mib", mib(self.weight_bytes)),
            ("kv_dtype", self.kv_dtype.word().to_owned()),
            ("kv_bytes_per_token", self.kv_bytes_per_token.to_string()),
            ("kv_capacity_tokens", self.kv_tokens.to_string()),
            ("kv_pool_mib", mib(self.kv_bytes())),
            ("workspace_mib", mib(self.workspace_bytes)),
        ];
        pairs.map(|(name, value)| (name.to_owned(), value)).to_vec()
    }

    /// Sizes an engine, or says what does not fit.
    pub(super) fn plan(model: &ModelFile, config: &EngineConfig) -> Result<(Self, LlamaSize), EngineError> {
        let shape = &model.shape;
        let positive = [
            ("max_context", config.max_context),
            ("max_concurrency", config.max_concurrency),
            ("prefill_chunk", config.prefill_chunk),
        ];
        if let Some((key, _)) = positive.into_iter().find(|&(_, value)| value == 0) {
            return Err(EngineError::Zero { key });
        }
        if config.max_context as usize > shape.context {
            return Err(EngineError::ContextBeyondModel { asked: config.max_context, trained: shape.context });
        }
        if !shape.hidden.is_multiple_of(32)
            || !shape.feed_forward.is_multiple_of(32)
            || !shape.q_width().is_multiple_of(32)
        {
            return Err(EngineError::Width { hidden: shape.hidden, feed_forward: shape.feed_forward });
        }
        let threads =
            config.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, std::num::NonZero::get));
        let layout = KvLayout {
            layers: shape.layers,
            kv_heads: shape.kv_heads,
            head_dim: shape.head_dim,
            dtype: config.kv_dtype,
        };
        let per_sequence = (config.max_context as usize).div_ceil(PAGE_TOKENS);
        let pages = match config.kv_capacity_tokens {
            Some(tokens) => tokens as usize / PAGE_TOKENS,
            None => per_sequence * config.max_concurrency as usize,
        };
        if pages < per_sequence {
            return Err(EngineError::KvTooSmall {
                tokens: (pages * PAGE_TOKENS) as u64,
                needed: (per_sequence * PAGE_TOKENS) as u64,
            });
        }
        let size = LlamaSize {
            threads,
            max_tokens: (config.prefill_chunk as usize)
                .min(config.max_context as usize)
                .max(config.max_concurrency as usize),
            max_context: config.max_context as usize,
            max_logits: config.max_concurrency as usize,
            pages,
            kv_dtype: config.kv_dtype,
        };
        let capacity = Self {
            threads,
            kv_dtype: config.kv_dtype,
            max_context: config.max_context,
            max_concurrency: config.max_concurrency,
            weight_bytes: model.weights.bytes(),
            kv_bytes_per_token: layout.bytes_per_token(),
            kv_tokens: pages * PAGE_TOKENS,
            workspace_bytes: size.workspace_bytes(model),
            available_bytes: available_memory(),
        };
        // Weights lie in the page cache or are owned already; pool and workspace are what is still to be had.
        let needed = capacity.kv_bytes() as u64 + capacity.workspace_bytes as u64;
        match capacity.available_bytes {
            Some(available) if needed > available => {
                Err(EngineError::Memory { needed, available, kv: capacity.kv_bytes() as u64 })
            }
            _ => Ok((capacity, size)),
        }
    }
}

/// What the system and the control group leave, in bytes. Source: `proc(5)` MemAvailable, cgroup v2 `memory.max`.
fn available_memory() -> Option<u64> {
    let meminfo = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let host = line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)?;
    let number = |path: &str| std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let group = number("/sys/fs/cgroup/memory.max")
        .zip(number("/sys/fs/cgroup/memory.current"))
        .map(|(max, current)| max.saturating_sub(current));
    Some(group.map_or(host, |group| group.min(host)))
}
