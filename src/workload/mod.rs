//! What to ask. A workload turns one cell of the plan into requests; it knows nothing of transport.
mod decode_scaling;
mod load;
mod prefill_scaling;
mod prompt;
mod requests;
mod seed;

use serde::{Deserialize, Serialize};

pub use decode_scaling::DecodeScaling;
pub use load::{Closed, Constant, Load, Poisson, Ramp, Trace};
pub use prefill_scaling::PrefillScaling;
pub use prompt::{PromptFit, WorkloadError};
pub use requests::{CellRequests, requests};
pub(crate) use seed::permutation;
pub use seed::{MAX_REQUESTS, request_seed, stream};

/// One line per workload; the YAML key is the file's name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Workload {
    /// Decode rate against concurrency.
    DecodeScaling(DecodeScaling),
    /// Prefill rate and time to first token against prompt length.
    PrefillScaling(PrefillScaling),
}

impl Workload {
    /// The YAML key.
    pub fn key(&self) -> &'static str {
        match self {
            Self::DecodeScaling(_) => "decode_scaling",
            Self::PrefillScaling(_) => "prefill_scaling",
        }
    }

    /// How requests arrive.
    pub fn load(&self) -> &Load {
        match self {
            Self::DecodeScaling(workload) => &workload.load,
            Self::PrefillScaling(workload) => &workload.load,
        }
    }

    /// Requests in flight; of an open loop, 1.
    pub fn concurrency(&self) -> u32 {
        match self.load() {
            Load::Closed(closed) => closed.concurrency.first(),
            _ => 1,
        }
    }

    /// Prompt length in tokens as the target counts them.
    pub fn prompt_tokens(&self) -> u32 {
        match self {
            Self::DecodeScaling(workload) => workload.prompt_tokens.first(),
            Self::PrefillScaling(workload) => workload.prompt_tokens.first(),
        }
    }

    /// Tokens every request generates.
    pub fn completion_tokens(&self) -> u32 {
        match self {
            Self::DecodeScaling(workload) => workload.completion_tokens.first(),
            Self::PrefillScaling(_) => prefill_scaling::COMPLETION_TOKENS,
        }
    }

    /// Measured requests in one repeat.
    pub fn requests(&self) -> u32 {
        match self {
            Self::DecodeScaling(workload) => workload.requests_per_lane.saturating_mul(self.concurrency()),
            Self::PrefillScaling(workload) => workload.requests,
        }
    }

    /// Warm-up requests before them.
    pub fn warmup(&self) -> u32 {
        match self {
            Self::DecodeScaling(workload) => workload.warmup_per_lane.saturating_mul(self.concurrency()),
            Self::PrefillScaling(_) => prefill_scaling::WARMUP_PER_LANE.saturating_mul(self.concurrency()),
        }
    }

    /// Whether no prompt may be answered from a cache.
    pub fn cold(&self) -> bool {
        true
    }

    /// How many points [`Self::points`] gives.
    pub fn point_count(&self) -> usize {
        let prompts_and_completions = match self {
            Self::DecodeScaling(w) => w.prompt_tokens.values().len().saturating_mul(w.completion_tokens.values().len()),
            Self::PrefillScaling(w) => w.prompt_tokens.values().len(),
        };
        self.load().concurrencies().len().saturating_mul(prompts_and_completions)
    }

    /// Every point of the axes, in the order concurrency, prompt, completion, with the part of the cell's id that names it:
    /// `c2` and so on for the axes that vary, and the leading axis of the workload where none does.
    pub fn points(&self) -> Vec<(String, Self)> {
        match self {
            Self::DecodeScaling(workload) => {
                workload.points().into_iter().map(|(id, at)| (id, Self::DecodeScaling(at))).collect()
            }
            Self::PrefillScaling(workload) => {
                workload.points().into_iter().map(|(id, at)| (id, Self::PrefillScaling(at))).collect()
            }
        }
    }
}

/// `c2-p512` from the axes that are named.
fn point_id(axes: &[(char, u32, bool)]) -> String {
    axes.iter().filter(|axis| axis.2).map(|(letter, value, _)| format!("{letter}{value}")).collect::<Vec<_>>().join("-")
}
