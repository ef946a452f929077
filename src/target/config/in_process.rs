//! `target.in_process`: our own engine.
use std::fmt;

use serde::de::{Deserializer, Error, Visitor};
use serde::{Deserialize, Serialize, Serializer};

use super::{ModelRef, layered};
use crate::yaml::{AutoOr, Axis, Finite, HumanDuration, words};

layered! {
    /// The YAML of `target.in_process`; every key that takes a list is an [`Axis`].
    pub struct InProcess {
        /// A pin under `models/`, a file path, or `{synthetic: {shape, seed}}`. Required.
        model: ModelRef,
        /// Where it computes; default `auto`, which is the CPU in this version.
        device: Device,
        /// Compute threads; default `auto`.
        threads: AutoOr<u32>,
        /// Tokens a sequence may hold; default 4096.
        max_context: Axis<u32>,
        /// Sequences decoded together; default 4.
        max_concurrency: Axis<u32>,
        /// Format of the KV cache; default `bf16`.
        kv_dtype: Axis<KvDtype>,
        /// Tokens the KV cache holds for all sequences together; default `auto`: `max_concurrency` full contexts.
        kv_capacity: Axis<AutoOr<u32>>,
        /// Tokens of one prefill step; default 512.
        prefill_chunk: Axis<u32>,
        /// Who prefills while others decode; default `serial`.
        scheduler: Axis<SchedulerPolicy>,
        /// Replay of captured launches on CUDA; default `true`. A CPU has none: the key changes nothing there.
        cuda_graph: Axis<bool>,
        /// Speculative decoding; default `none`, the only one of this version.
        speculation: Axis<Speculation>,
        /// Reuse of equal prefixes. This version has no prefix cache: absent means off, and `true` is refused.
        prefix_cache: Axis<bool>,
        /// Longest wait for admission; default 600s. Not part of the identity.
        pending_timeout: HumanDuration,
    }
}

/// A resolved in-process target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InProcessConfig {
    /// Which model.
    pub model: ModelRef,
    /// Where it computes.
    pub device: Device,
    /// Compute threads.
    pub threads: AutoOr<u32>,
    /// Tokens a sequence may hold.
    pub max_context: u32,
    /// Sequences decoded together.
    pub max_concurrency: u32,
    /// Format of the KV cache.
    pub kv_dtype: KvDtype,
    /// Tokens the KV cache holds for all sequences together.
    pub kv_capacity: AutoOr<u32>,
    /// Tokens of one prefill step.
    pub prefill_chunk: u32,
    /// Who prefills while others decode.
    pub scheduler: SchedulerPolicy,
    /// Replay of captured launches on CUDA.
    pub cuda_graph: bool,
    /// Speculative decoding.
    pub speculation: Speculation,
    /// Reuse of equal prefixes; always off in this version.
    pub prefix_cache: bool,
    /// Longest wait for admission.
    pub pending_timeout: HumanDuration,
}

impl InProcess {
    /// The first value of every axis, and the default of every absent key; `None` when there is no model.
    pub fn resolve(&self) -> Option<InProcessConfig> {
        fn first<T: Clone>(axis: &Option<Axis<T>>, default: T) -> T {
            axis.as_ref().and_then(|axis| axis.values().first()).cloned().unwrap_or(default)
        }
        Some(InProcessConfig {
            model: self.model.clone()?,
            device: self.device.clone().unwrap_or(Device::Auto),
            threads: self.threads.unwrap_or(AutoOr::Auto),
            max_context: first(&self.max_context, 4096),
            max_concurrency: first(&self.max_concurrency, 4),
            kv_dtype: first(&self.kv_dtype, KvDtype::Bf16),
            kv_capacity: first(&self.kv_capacity, AutoOr::Auto),
            prefill_chunk: first(&self.prefill_chunk, 512),
            scheduler: first(&self.scheduler, SchedulerPolicy::Serial),
            cuda_graph: first(&self.cuda_graph, true),
            speculation: first(&self.speculation, Speculation::None),
            prefix_cache: first(&self.prefix_cache, false),
            pending_timeout: self.pending_timeout.unwrap_or(HumanDuration::seconds(600)),
        })
    }
}

words! {
    /// Format of the KV cache, as `words.json` lists them.
    pub enum KvDtype {
        /// 32-bit float.
        F32 = "f32",
        /// IEEE half.
        F16 = "f16",
        /// bfloat16.
        Bf16 = "bf16",
        /// NInfer fp8: E4M3 with one f16 scale a 256-row.
        Fp8 = "fp8",
        /// NInfer int8: group 64, f16 scale.
        Int8 = "int8",
        /// 8-bit keys, 4-bit values.
        K8v4 = "k8v4",
        /// Rotated 8-bit keys, 4-bit values.
        Rk8v4 = "rk8v4",
        /// Rotated 4-bit keys, 4-bit values.
        Rk4v4 = "rk4v4",
        /// As shipped by the forks: half-integer coset discarded.
        Rk4v4E8 = "rk4v4-e8",
        /// Ours: exact E8, the coset bit carried in the parity of the sum.
        Rk4v4E8x = "rk4v4-e8x",
        /// Rotated 2-bit keys on E8, 4-bit values.
        Rk2v4E8 = "rk2v4-e8",
        /// FP4 with block scales.
        Nvfp4 = "nvfp4",
        /// llama.cpp block of 32, 8 bit.
        Q8_0 = "q8_0",
        /// llama.cpp block of 32, 4 bit.
        Q4_0 = "q4_0",
    }
}

words! {
    /// Who prefills while others decode.
    pub enum SchedulerPolicy {
        /// One prefill at a time; decode waits for it.
        Serial = "serial",
        /// Decode keeps a share of every step.
        Mixed = "mixed",
    }
}

/// Speculative decoding.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Speculation {
    /// One token a step.
    None,
    /// Draft by the model's own multi-token-prediction head.
    Mtp(Draft),
    /// Draft by lookup of n-grams in the text so far.
    Ngram(Draft),
    /// Acceptance drawn at given rates, whatever the text: for speed only.
    Synthetic(SyntheticAcceptance),
}

/// Size of a draft.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Draft {
    /// Tokens drafted in a round.
    pub draft_tokens: u32,
}

/// Acceptance by position.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SyntheticAcceptance {
    /// Probability that the draft token at each position is accepted, given that the one before was.
    pub rates: Vec<Finite>,
}

/// Where the engine computes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Device {
    /// The best there is; the CPU in this version.
    Auto,
    /// The CPU.
    Cpu,
    /// The CUDA device with this number.
    Cuda(u32),
    /// The CUDA device with this UUID, as nvidia-smi prints it.
    GpuUuid(String),
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(number) => write!(f, "cuda:{number}"),
            Self::GpuUuid(uuid) => f.write_str(uuid),
        }
    }
}

impl Serialize for Device {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Device {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Word;
        impl Visitor<'_> for Word {
            type Value = Device;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("auto, cpu, cuda:0 or GPU-<uuid>")
            }
            fn visit_str<E: Error>(self, word: &str) -> Result<Device, E> {
                let is_uuid = |uuid: &str| {
                    !uuid.is_empty() && uuid.len() <= 64 && uuid.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-')
                };
                match word {
                    "auto" => return Ok(Device::Auto),
                    "cpu" => return Ok(Device::Cpu),
                    _ => {}
                }
                if let Some(number) = word.strip_prefix("cuda:").and_then(|number| number.parse().ok()) {
                    return Ok(Device::Cuda(number));
                }
                if word.strip_prefix("GPU-").is_some_and(is_uuid) {
                    return Ok(Device::GpuUuid(word.to_owned()));
                }
                Err(E::unknown_variant(word, &["auto", "cpu", "cuda:0", "GPU-<uuid>"]))
            }
        }
        deserializer.deserialize_str(Word)
    }
}
