//! Everything a report prints, computed from a run's log: plain data, no text layout.
use std::collections::BTreeMap;

use serde::Serialize;

use crate::record::Outcome;

/// A number with the count it rests on. `value` is `None` where nothing was measured or n is too small; never NaN, never a 0 for unknown.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Estimate {
    /// Values behind it: rows for a percentile, repeats for an interval.
    pub n: usize,
    /// The number.
    pub value: Option<f64>,
    /// Lower end of the 95 % interval.
    pub low: Option<f64>,
    /// Upper end of the 95 % interval.
    pub high: Option<f64>,
    /// Why there is none, or how to read it: `n too small`, `from ttft, queue included`, `first chunk unknown`.
    pub note: Option<String>,
}

/// One metric a cell may have.
#[derive(Debug, Clone, Copy)]
pub struct MetricInfo {
    /// Name with unit and statistic, as `ttft_ms_p50`: the key in [`CellSummary::metrics`] and the CSV column.
    pub name: &'static str,
    /// Short label for a table head, as `TTFT p50`.
    pub label: &'static str,
    /// Unit: `ms`, `tok/s`, `tokens`, `req/s`, `%`.
    pub unit: &'static str,
    /// Meaning and formula in one sentence.
    pub meaning: &'static str,
    /// Whether more is better, less is better, or neither.
    pub better: Better,
}

/// Direction of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Better {
    /// More is better.
    Higher,
    /// Less is better.
    Lower,
    /// Neither.
    Neither,
}

/// Whether the run supports its claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It does.
    Valid,
    /// It does not; the reasons say why.
    Invalid,
    /// It was not finished.
    Partial,
}

/// A VALID rule that was broken.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Reason {
    /// Id in `contracts/formulas.md`, as `V2`.
    pub rule: &'static str,
    /// What was seen, with its figures.
    pub message: String,
}

/// Issued rows by group; issued = ok + failed + cancelled + shed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct RowCounts {
    /// Measured rows.
    pub issued: usize,
    /// Answered.
    pub ok: usize,
    /// Not answered.
    pub failed: usize,
    /// Stopped by us.
    pub cancelled: usize,
    /// Never sent.
    pub shed: usize,
    /// Warm-up rows, beside the measured ones.
    pub warmup: usize,
}

/// Everything known about one run.
#[derive(Debug, Clone, Serialize)]
pub struct RunSummary {
    /// Name of the run directory.
    pub run_id: String,
    /// Name of the experiment.
    pub name: String,
    /// The question.
    pub question: String,
    /// Identity hash of the plan.
    pub identity: String,
    /// UTC start of the first segment, RFC 3339.
    pub started_utc: String,
    /// Segments: 1 unless it was resumed.
    pub segments: usize,
    /// Random weights: every table says "speed only".
    pub synthetic: bool,
    /// The verdict.
    pub verdict: Verdict,
    /// Broken rules.
    pub reasons: Vec<Reason>,
    /// What a reader should know though the run is valid.
    pub warnings: Vec<String>,
    /// What is known of the client's own error, a line each.
    pub client_error: Vec<String>,
    /// Rows of the whole run.
    pub rows: RowCounts,
    /// Rows replaced by a later attempt.
    pub superseded: usize,
    /// Groups of name and value: host, build, target.
    pub provenance: Vec<(String, Vec<(String, String)>)>,
    /// Every arm.
    pub arms: Vec<ArmSummary>,
    /// Every arm × cell, in plan order.
    pub cells: Vec<CellSummary>,
    /// Ratios between arms, where there are two or more.
    pub comparisons: Vec<Comparison>,
    /// Failures by arm, cell and outcome.
    pub failures: Vec<Failure>,
}

/// One arm.
#[derive(Debug, Clone, Serialize)]
pub struct ArmSummary {
    /// Its name.
    pub name: String,
    /// What answered, as `in-process cpu`.
    pub target: String,
    /// Settings in which arms differ: name, value.
    pub differs: Vec<(String, String)>,
}

/// One arm × cell.
#[derive(Debug, Clone, Serialize)]
pub struct CellSummary {
    /// Arm.
    pub arm: String,
    /// Cell id.
    pub cell: String,
    /// Workload key.
    pub workload: String,
    /// Requests in flight; 0 in an open loop.
    pub concurrency: u32,
    /// Mean arrivals a second of an open loop.
    pub rate_req_s: Option<f64>,
    /// Prompt length asked for.
    pub prompt_tokens: u32,
    /// Tokens generated a request, as asked for.
    pub completion_tokens: u32,
    /// Repeats with at least one ok row.
    pub repeats: usize,
    /// Rows.
    pub rows: RowCounts,
    /// Metric name → number; a metric that does not apply to the workload is absent.
    pub metrics: BTreeMap<&'static str, Estimate>,
    /// Samples for the distribution figure, over ok measured rows of all repeats.
    #[serde(skip)]
    pub samples: Samples,
}

/// Raw samples of a cell in milliseconds.
#[derive(Debug, Clone, Default)]
pub struct Samples {
    /// Time to first token.
    pub ttft_ms: Vec<f64>,
    /// Time per output token.
    pub tpot_ms: Vec<f64>,
    /// Inter-chunk latency.
    pub icl_ms: Vec<f64>,
    /// End-to-end latency.
    pub e2e_latency_ms: Vec<f64>,
}

/// A ratio of two arms in one cell and metric.
#[derive(Debug, Clone, Serialize)]
pub struct Comparison {
    /// First arm.
    pub baseline: String,
    /// Second arm.
    pub arm: String,
    /// Cell id.
    pub cell: String,
    /// Metric name.
    pub metric: &'static str,
    /// Ratio arm ÷ baseline with its t interval over blocks.
    pub ratio: Estimate,
    /// Half-width of the noise floor as a ratio minus 1, where known.
    pub noise_floor: Option<f64>,
    /// A sentence: `faster by 4.1 % (2.0 to 6.3 %)`, `no difference shown`, `confounded by kv_dtype`.
    pub verdict: String,
}

/// Failures of one kind.
#[derive(Debug, Clone, Serialize)]
pub struct Failure {
    /// Arm.
    pub arm: String,
    /// Cell id.
    pub cell: String,
    /// How they ended.
    pub outcome: Outcome,
    /// How many.
    pub count: usize,
    /// One cause in the words of whoever reported it.
    pub example: Option<String>,
}
