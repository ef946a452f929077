//! Prefill rate and time to first token against prompt length.
use serde::{Deserialize, Serialize};

use super::Load;
use crate::yaml::Axis;

/// One generated token ends the prefill; more would only add decoding.
pub(super) const COMPLETION_TOKENS: u32 = 1;
/// A request of each lane before the measured ones: the first prefill of a process pays for pages and caches.
pub(super) const WARMUP_PER_LANE: u32 = 1;

/// The YAML of `prefill_scaling`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PrefillScaling {
    /// How requests arrive; default a closed loop of one lane.
    pub load: Load,
    /// Prompt length in tokens as the target counts them; default 128, 512 and 2048.
    pub prompt_tokens: Axis<u32>,
    /// Measured requests in one repeat, after one warm-up request a lane; default 4.
    pub requests: u32,
}

impl Default for PrefillScaling {
    fn default() -> Self {
        Self { load: Load::closed(Axis::One(1)), prompt_tokens: Axis::Many(vec![128, 512, 2048]), requests: 4 }
    }
}

impl PrefillScaling {
    pub(super) fn points(&self) -> Vec<(String, Self)> {
        let mut points = Vec::new();
        let varies_c = self.load.concurrencies().len() > 1;
        for &c in self.load.concurrencies() {
            for &p in self.prompt_tokens.values() {
                let id = super::point_id(&[
                    (format!("c{c}"), varies_c),
                    (format!("p{p}"), self.prompt_tokens.varies() || !varies_c),
                ]);
                points
                    .push((id, Self { load: Load::closed(Axis::One(c)), prompt_tokens: Axis::One(p), ..self.clone() }));
            }
        }
        points
    }
}
