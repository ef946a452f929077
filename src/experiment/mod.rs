//! The experiment file: YAML types, parse with spans, axes, arms and the plan.
//!
//! `load` reads a file into [`Experiment`]; [`Experiment::check_supported`] refuses what this version cannot do; [`Plan::new`]
//! multiplies the axes out into arms, cells and visits.
mod arms;
mod error;
mod identity;
mod order;
mod origin;
pub mod plan;
mod render;
mod rules;
mod set;
mod supported;

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::request::Sampling;
use crate::target::config::TargetEntry;
use crate::workload::Workload;
use crate::yaml::words;
pub use crate::yaml::{Axis, Finite, HumanDuration};

pub use error::ExperimentError;
pub use identity::{Identity, IdentityInputs};
pub use origin::Origin;
pub use plan::{Arm, Cell, Plan, Visit};
pub use render::{disk_bytes, json, text};

/// The schema that this version reads and writes.
pub const SCHEMA: u32 = 1;

/// One experiment file.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Version of the format: 1.
    pub schema: u32,
    /// `[a-z0-9-]+`; names the run directory.
    pub name: String,
    /// What the experiment answers, in one sentence; printed on top of the report.
    pub question: String,
    /// Prompts, order, samplers and nonces all derive from it.
    pub seed: u64,
    /// What answers.
    pub target: TargetEntry,
    /// Variants of the target; absent makes each point of the sweep an arm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arms: Option<Vec<ArmEntry>>,
    /// Blocks of timed workloads; each is one value in an interval. Default 6.
    #[serde(default = "default_repeats")]
    pub repeats: u32,
    /// Order of the arms inside the repeats; default `abba`.
    #[serde(default)]
    pub order: Order,
    /// Adds a second copy of the first arm (A/A); default `false`.
    #[serde(default)]
    pub noise_floor: bool,
    /// When a run stops or becomes invalid.
    #[serde(default)]
    pub limits: Limits,
    /// Goodput counts requests that meet all of these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slo: Option<Slo>,
    /// Whether answers are kept; default `keep`.
    #[serde(default)]
    pub text: TextPolicy,
    /// Sampler of every request, always sent in full.
    #[serde(default)]
    pub sampling: Sampling,
    /// Reasoning before the answer; default `default`.
    #[serde(default = "default_thinking")]
    pub thinking: Axis<Thinking>,
    /// Price of energy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power: Option<Power>,
    /// What is asked; at least one.
    pub workloads: Vec<Workload>,
    /// What the report looks like.
    #[serde(default)]
    pub report: ReportSettings,
    /// The text it was read from, for errors that come later.
    #[serde(skip)]
    pub origin: Origin,
}

fn default_repeats() -> u32 {
    6
}

fn default_thinking() -> Axis<Thinking> {
    Axis::One(Thinking::Default)
}

/// One explicit arm.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArmEntry {
    /// Its name; points of a sweep add `+key=value`.
    pub name: String,
    /// Laid over the base target; lists are replaced.
    #[serde(default, rename = "override", skip_serializing_if = "Option::is_none")]
    pub over: Option<TargetEntry>,
}

words! {
    /// Order of the arms inside the repeats.
    #[derive(Default)]
    pub enum Order {
        /// Two arms: every other block is reversed. More: rows of a seeded Latin square.
        #[default]
        Abba = "abba",
        /// The same in every block.
        Sequential = "sequential",
        /// Drawn anew for every block, seeded.
        Shuffled = "shuffled",
    }
}

words! {
    /// What becomes of the text of answers.
    #[derive(Default)]
    pub enum TextPolicy {
        /// Kept in `texts.jsonl`; scored workloads need it.
        #[default]
        Keep = "keep",
        /// Only its hash.
        Hash = "hash",
    }
}

words! {
    /// A form of the report.
    pub enum ReportFormat {
        /// Markdown.
        Md = "md",
        /// One self-contained page.
        Html = "html",
        /// Tables for a spreadsheet.
        Csv = "csv",
    }
}

words! {
    /// Language of the report.
    #[derive(Default)]
    pub enum Language {
        /// English.
        #[default]
        En = "en",
        /// Chinese.
        Zh = "zh",
    }
}

/// Reasoning before the answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Thinking {
    /// As the target does when it is not asked.
    Default,
    /// None.
    Off,
    /// As much as it likes.
    On,
    /// At most so many tokens.
    Budget(u32),
}

/// When a run stops or becomes invalid.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Failed over issued above which the run is invalid; default 0.01.
    pub max_failure_rate: Finite,
    /// Wall time after which the run stops; default 4h.
    pub max_duration: HumanDuration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_failure_rate: Finite(0.01), max_duration: HumanDuration::seconds(4 * 3600) }
    }
}

/// Limits of goodput.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slo {
    /// Most time to first token, in ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttft_ms: Option<Finite>,
    /// Most time per output token, in ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tpot_ms: Option<Finite>,
}

/// Price of energy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Power {
    /// Money for one kWh.
    pub price_per_kwh: Finite,
    /// Which money, as CNY.
    pub currency: String,
}

/// What the report looks like.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ReportSettings {
    /// Default all of `md`, `html`, `csv`.
    pub formats: Vec<ReportFormat>,
    /// Default `en`.
    pub language: Language,
}

impl Default for ReportSettings {
    fn default() -> Self {
        Self { formats: ReportFormat::ALL.to_vec(), language: Language::En }
    }
}

/// Reads an experiment file and lays `--set KEY=VALUE` over it.
///
/// # Errors
/// A file that cannot be read or does not say what an experiment is, with the place; a `--set` that fits no key.
pub fn load(path: &Path, sets: &[String]) -> Result<Experiment, ExperimentError> {
    Experiment::from_source(crate::yaml::Source::read(path)?, sets)
}

impl Experiment {
    /// Reads an experiment from memory; `name` stands in errors where a path would.
    ///
    /// # Errors
    /// As [`load`].
    pub fn from_bytes(name: &str, bytes: &[u8], sets: &[String]) -> Result<Self, ExperimentError> {
        Self::from_source(crate::yaml::Source::new(name, bytes)?, sets)
    }

    fn from_source(source: crate::yaml::Source, sets: &[String]) -> Result<Self, ExperimentError> {
        let mut experiment: Self = source.parse()?;
        experiment.origin = Origin::of(source);
        let experiment = if sets.is_empty() { experiment } else { set::apply(experiment, sets)? };
        rules::check(&experiment)?;
        Ok(experiment)
    }
}
