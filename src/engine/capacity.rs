//! The capacity planner: weights, KV pages and workspace are sized at start-up; what does not fit is refused then, never later.
use std::path::Path;

use crate::engine::kv::{KvDtype, KvLayout, PAGE_TOKENS};
use crate::engine::model::LlamaSize;
use crate::engine::op::isa::Isa;
use crate::engine::sampler::SamplerScratch;
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
            ("instructions", Isa::widest().name().to_owned()),
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
        if !config.kv_dtype.is_supported() {
            return Err(EngineError::KvDtype { dtype: config.kv_dtype });
        }
        if config.threads == Some(0) {
            return Err(EngineError::Zero { key: "threads" });
        }
        if config.max_context as usize > shape.context {
            return Err(EngineError::ContextBeyondModel { asked: config.max_context, trained: shape.context });
        }
        let widths = [shape.hidden, shape.feed_forward, shape.q_width()];
        if widths.iter().any(|width| !width.is_multiple_of(32)) {
            let [hidden, feed_forward, q_width] = widths;
            return Err(EngineError::Width { hidden, feed_forward, q_width });
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
            workspace_bytes: size.workspace_bytes(shape) + SamplerScratch::bytes(shape.vocabulary),
            available_bytes: available_memory(),
        };
        // Pages of a mapped file count as free in what the system says, though every step reads them; random weights are owned already.
        let weights = if model.synthetic { 0 } else { capacity.weight_bytes as u64 };
        let kv = capacity.kv_bytes() as u64;
        let needed = kv + capacity.workspace_bytes as u64 + weights;
        match capacity.available_bytes {
            Some(available) if needed > available => Err(EngineError::Memory { needed, available, kv, weights }),
            _ => Ok((capacity, size)),
        }
    }
}

/// One line a name, for the start of a run.
impl std::fmt::Display for Capacity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut separator = "";
        for (name, value) in self.account() {
            write!(f, "{separator}{name} {value}")?;
            separator = "\n";
        }
        Ok(())
    }
}

/// What the system and every control group of this process leave, in bytes, page cache counted as free. Sources: `proc(5)` MemAvailable,
/// `cgroups(7)` and the kernel's cgroup-v2 document for `memory.max`, `memory.current`, `memory.stat`.
fn available_memory() -> Option<u64> {
    let host = mem_available(&std::fs::read_to_string("/proc/meminfo").ok()?)?;
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let own = own.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    let root = Path::new("/sys/fs/cgroup");
    let groups = root.join(own);
    let read = |folder: &Path, name: &str| std::fs::read_to_string(folder.join(name)).ok();
    let limits = groups.ancestors().take_while(|folder| folder.starts_with(root)).filter_map(|folder| {
        group_free(&read(folder, "memory.max")?, &read(folder, "memory.current")?, &read(folder, "memory.stat")?)
    });
    limits.chain([host]).min()
}

fn mem_available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// `None` for a group without a limit (`max`).
fn group_free(max: &str, current: &str, stat: &str) -> Option<u64> {
    let (max, current) = (max.trim().parse::<u64>().ok()?, current.trim().parse::<u64>().ok()?);
    let file = stat.lines().find_map(|line| line.strip_prefix("file ")?.trim().parse::<u64>().ok()).unwrap_or(0);
    Some(max.saturating_sub(current.saturating_sub(file)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model() -> ModelFile {
        ModelFile::synthetic("tiny-llama", 1).expect("known shape")
    }

    #[test]
    fn the_account_adds_up_from_the_shape() {
        // tiny-llama: 4 layers, 2 KV heads of 64.
        let config =
            EngineConfig { max_context: 1000, max_concurrency: 3, threads: Some(2), ..EngineConfig::default() };
        let (capacity, size) = Capacity::plan(&model(), &config).expect("fits");
        assert_eq!(capacity.kv_bytes_per_token, 2 * 4 * 2 * 64 * 2);
        assert_eq!(capacity.kv_tokens, 3 * 1024);
        assert_eq!(size.pages, 48);
        assert_eq!(capacity.weight_bytes as u64, 4 * model().shape.tied_parameters());
        let text = capacity.to_string();
        assert!(text.contains("kv_capacity_tokens 3072") && text.contains("kv_bytes_per_token 2048"), "{text}");
    }

    #[test]
    fn what_cannot_run_is_refused_with_its_reason() {
        let refuse = |config: EngineConfig| Capacity::plan(&model(), &config).expect_err("cannot run").to_string();
        let base = EngineConfig { max_context: 1024, ..EngineConfig::default() };
        let with = |change: fn(&mut EngineConfig)| {
            let mut config = base.clone();
            change(&mut config);
            refuse(config)
        };
        assert_eq!(with(|c| c.max_concurrency = 0), "max_concurrency is 0");
        assert_eq!(with(|c| c.prefill_chunk = 0), "prefill_chunk is 0");
        assert_eq!(with(|c| c.threads = Some(0)), "threads is 0");
        assert_eq!(with(|c| c.kv_dtype = KvDtype::Int8), "kv_dtype int8 is not in this version");
        assert!(with(|c| c.max_context = 1 << 20).starts_with("max_context is 1048576, but the model was trained"));
        assert!(with(|c| c.kv_capacity_tokens = Some(1023)).starts_with("kv_capacity is 960 tokens"));
        // 2^32 - 1 tokens of 2,048 bytes are 8 TiB.
        if available_memory().is_some() {
            assert!(with(|c| c.kv_capacity_tokens = Some(u32::MAX)).ends_with("are free"));
        }
    }

    #[test]
    fn free_memory_is_read_from_the_kernels_own_formats() {
        assert_eq!(mem_available("MemTotal:  9 kB\nMemAvailable:     1234 kB\n"), Some(1234 * 1024));
        assert_eq!(mem_available("MemTotal:  9 kB\n"), None);
        assert_eq!(group_free("1000\n", "700\n", "anon 300\nfile 400\n"), Some(700));
        assert_eq!(group_free("1000\n", "1700\n", "anon 1600\nfile 100\n"), Some(0));
        assert_eq!(group_free("max\n", "700\n", ""), None);
    }
}
