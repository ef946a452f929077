//! The plan as it stands in the header of a log: what was asked, resolved, without any reference to the experiment types, so that
//! a log stays readable when those change.
use serde::{Deserialize, Serialize};

use crate::request::Sampling;

/// The resolved plan of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlannedRun {
    /// Name of the experiment.
    pub name: String,
    /// The question it answers; printed on top of the report.
    #[serde(default)]
    pub question: String,
    /// Seed of prompts, order, samplers.
    #[serde(default)]
    pub seed: u64,
    /// Blocks; each is one value in an interval.
    #[serde(default)]
    pub repeats: u32,
    /// Order of arms inside repeats: `abba`, `sequential` or `shuffled`.
    #[serde(default)]
    pub order: String,
    /// Every arm with its resolved target.
    #[serde(default)]
    pub arms: Vec<PlannedArm>,
    /// Every cell: one workload at one point of its sweep. All arms run all cells.
    #[serde(default)]
    pub cells: Vec<PlannedCell>,
    /// What runs when: all cells of `arm` inside `repeat`.
    #[serde(default)]
    pub visits: Vec<PlannedVisit>,
    /// When a run stops or becomes invalid.
    #[serde(default)]
    pub limits: PlannedLimits,
    /// Goodput limits.
    #[serde(default)]
    pub slo: Option<PlannedSlo>,
    /// `keep` or `hash`.
    #[serde(default)]
    pub text: String,
    /// Sampler of every request.
    #[serde(default)]
    pub sampling: Sampling,
    /// Report formats (`md`, `html`, `csv`) and language (`en`, `zh`).
    #[serde(default)]
    pub report: PlannedReport,
}

/// One arm.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlannedArm {
    /// Its name.
    pub name: String,
    /// The resolved target, as in the experiment file but without axes.
    #[serde(default)]
    pub target: serde_json::Value,
    /// Thinking mode asked for.
    #[serde(default)]
    pub thinking: serde_json::Value,
    /// Name of the arm this one repeats, for the A/A noise floor.
    #[serde(default)]
    pub copy_of: Option<String>,
}

/// One cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlannedCell {
    /// As `decode_scaling/c2` or `prefill_scaling/p512`: unique in the plan.
    pub id: String,
    /// YAML key of the workload.
    pub workload: String,
    /// Requests in flight (closed loop); 0 in an open loop.
    pub concurrency: u32,
    /// Prompt length asked for, in tokens as the target counts them.
    pub prompt_tokens: u32,
    /// Tokens every request generates.
    pub completion_tokens: u32,
    /// Measured requests in one repeat.
    pub requests: u32,
    /// Warm-up requests before them.
    pub warmup: u32,
    /// No prompt may be answered from a cache.
    pub cold: bool,
    /// What an open loop offers; absent in a closed one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offer: Option<PlannedOffer>,
}

/// What an open loop offers in one repeat.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlannedOffer {
    /// `constant`, `poisson`, `ramp` or `trace`.
    pub load: String,
    /// Mean arrivals a second.
    pub rate_req_s: f64,
    /// From the start to the last arrival, about, in s.
    pub duration_s: f64,
    /// Requests in flight above which an arrival is shed.
    pub max_in_flight: u32,
}

/// One visit of an arm.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlannedVisit {
    /// Which repeat.
    pub repeat: u32,
    /// Name of the arm.
    pub arm: String,
}

/// Limits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PlannedLimits {
    /// Failed over issued above which the run is invalid.
    pub max_failure_rate: f64,
    /// Wall time after which the run stops, in seconds.
    pub max_duration_s: Option<f64>,
}

impl Default for PlannedLimits {
    fn default() -> Self {
        Self { max_failure_rate: 0.01, max_duration_s: None }
    }
}

/// Goodput limits: a request counts when it meets all that are given.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PlannedSlo {
    /// Most time to first token, in ms.
    #[serde(default)]
    pub ttft_ms: Option<f64>,
    /// Most time per output token, in ms.
    #[serde(default)]
    pub tpot_ms: Option<f64>,
}

/// Report settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PlannedReport {
    /// `md`, `html`, `csv`.
    pub formats: Vec<String>,
    /// `en` or `zh`.
    pub language: String,
}

impl Default for PlannedReport {
    fn default() -> Self {
        Self { formats: ["md", "html", "csv"].map(String::from).to_vec(), language: "en".into() }
    }
}
