//! What to ask. A workload turns one cell of the plan into requests; it knows nothing of transport.
mod decode_scaling;
mod length;
mod load;
mod prefill_scaling;
mod prompt;
mod requests;
mod schedule;
mod seed;
mod serving;

use serde::{Deserialize, Serialize};

pub use decode_scaling::DecodeScaling;
pub use length::{Distribution, Length, Lognormal, Uniform};
pub use load::{Closed, Load, Offer, Ramp, Rate, Trace};
pub use prefill_scaling::PrefillScaling;
pub use prompt::{PromptFit, WorkloadError};
pub use requests::{Ask, CellRequests, Turn, requests};
pub use schedule::arrivals;
pub(crate) use seed::permutation;
pub use seed::{MAX_REQUESTS, request_seed, stream};
pub use serving::{Prefix, Serving, Sessions, Shape};

/// One line per workload; the YAML key is the file's name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Workload {
    /// Decode rate against concurrency.
    DecodeScaling(DecodeScaling),
    /// Prefill rate and time to first token against prompt length.
    PrefillScaling(PrefillScaling),
    /// Serving under a load.
    Serving(Serving),
}

impl Workload {
    /// The YAML key.
    pub fn key(&self) -> &'static str {
        match self {
            Self::DecodeScaling(_) => "decode_scaling",
            Self::PrefillScaling(_) => "prefill_scaling",
            Self::Serving(_) => "serving",
        }
    }

    /// How requests arrive.
    pub fn load(&self) -> &Load {
        match self {
            Self::DecodeScaling(workload) => &workload.load,
            Self::PrefillScaling(workload) => &workload.load,
            Self::Serving(workload) => &workload.load,
        }
    }

    /// Requests in flight; 0 for an open loop, which holds none.
    pub fn concurrency(&self) -> u32 {
        self.load().concurrency()
    }

    /// Prompt length in tokens as the target counts them; the mean where it is drawn or mixed.
    pub fn prompt_tokens(&self) -> u32 {
        match self {
            Self::DecodeScaling(workload) => workload.prompt_tokens.first(),
            Self::PrefillScaling(workload) => workload.prompt_tokens.first(),
            Self::Serving(workload) => workload.mean(|shape| shape.prompt_tokens),
        }
    }

    /// Tokens every request generates; the mean where it is drawn or mixed.
    pub fn completion_tokens(&self) -> u32 {
        match self {
            Self::DecodeScaling(workload) => workload.completion_tokens.first(),
            Self::PrefillScaling(_) => prefill_scaling::COMPLETION_TOKENS,
            Self::Serving(workload) => workload.mean(|shape| shape.completion_tokens),
        }
    }

    /// Measured requests in one repeat.
    pub fn requests(&self) -> u32 {
        match self {
            Self::DecodeScaling(workload) => workload.requests_per_lane.saturating_mul(self.concurrency()),
            Self::PrefillScaling(workload) => workload.requests,
            Self::Serving(workload) => workload.requests(),
        }
    }

    /// Warm-up requests before them.
    pub fn warmup(&self) -> u32 {
        match self {
            Self::DecodeScaling(workload) => workload.warmup_per_lane.saturating_mul(self.concurrency()),
            Self::PrefillScaling(_) => prefill_scaling::WARMUP_PER_LANE.saturating_mul(self.concurrency()),
            Self::Serving(workload) => workload.warmup(),
        }
    }

    /// Whether no prompt may be answered from a cache.
    pub fn cold(&self) -> bool {
        match self {
            Self::DecodeScaling(_) | Self::PrefillScaling(_) => true,
            Self::Serving(workload) => workload.prefix.is_none() && workload.sessions.is_none(),
        }
    }

    /// Longest prompt and completion together that a request may have; a conversation holds all of its turns.
    pub fn longest(&self) -> u64 {
        let Self::Serving(workload) = self else {
            return u64::from(self.prompt_tokens()) + u64::from(self.completion_tokens());
        };
        let most = |length: Length| u64::from(length.bounds().1);
        let turns = u64::from(workload.turns());
        let messages = workload.sessions.map_or(0, |sessions| u64::from(sessions.turn_tokens) * (turns - 1));
        let of = |shape: &Shape| most(shape.prompt_tokens) + turns * most(shape.completion_tokens) + messages;
        workload.shapes().iter().map(of).max().unwrap_or(0)
    }

    /// How many points [`Self::points`] gives.
    pub fn point_count(&self) -> usize {
        let prompts_and_completions = match self {
            Self::DecodeScaling(w) => w.prompt_tokens.values().len().saturating_mul(w.completion_tokens.values().len()),
            Self::PrefillScaling(w) => w.prompt_tokens.values().len(),
            Self::Serving(w) => return w.point_count(),
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
            Self::Serving(workload) => workload.points().into_iter().map(|(id, at)| (id, Self::Serving(at))).collect(),
        }
    }
}

/// `c2-p512` from the axes that are named.
fn point_id(axes: &[(String, bool)]) -> String {
    axes.iter().filter(|(_, named)| *named).map(|(name, _)| name.as_str()).collect::<Vec<_>>().join("-")
}
