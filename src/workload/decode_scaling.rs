//! Decode rate against concurrency: every request decodes the same number of tokens while a fixed number are in flight.
use serde::{Deserialize, Serialize};

use super::Load;
use crate::yaml::Axis;

/// The YAML of `decode_scaling`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DecodeScaling {
    /// How requests arrive; default a closed loop of 1, 2 and 4 lanes.
    pub load: Load,
    /// Prompt length in tokens as the target counts them; default 512.
    pub prompt_tokens: Axis<u32>,
    /// Tokens every request decodes; `ignore_eos` is sent so that all of them do. Default 128.
    pub completion_tokens: Axis<u32>,
    /// Measured requests of each lane in one repeat; default 4.
    pub requests_per_lane: u32,
    /// Requests of each lane before them, recorded as warm-up and left out of every number; default 1.
    pub warmup_per_lane: u32,
}

impl Default for DecodeScaling {
    fn default() -> Self {
        Self {
            load: Load::closed(Axis::Many(vec![1, 2, 4])),
            prompt_tokens: Axis::One(512),
            completion_tokens: Axis::One(128),
            requests_per_lane: 4,
            warmup_per_lane: 1,
        }
    }
}

impl DecodeScaling {
    pub(super) fn points(&self) -> Vec<(String, Self)> {
        let mut points = Vec::new();
        let varies_c = self.load.concurrencies().len() > 1;
        let names_none = !varies_c && !self.prompt_tokens.varies() && !self.completion_tokens.varies();
        for &c in self.load.concurrencies() {
            for &p in self.prompt_tokens.values() {
                for &n in self.completion_tokens.values() {
                    let id = super::point_id(&[
                        (format!("c{c}"), varies_c || names_none),
                        (format!("p{p}"), self.prompt_tokens.varies()),
                        (format!("n{n}"), self.completion_tokens.varies()),
                    ]);
                    let load = Load::closed(Axis::One(c));
                    let at =
                        Self { load, prompt_tokens: Axis::One(p), completion_tokens: Axis::One(n), ..self.clone() };
                    points.push((id, at));
                }
            }
        }
        points
    }
}
