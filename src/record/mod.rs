//! The primary data of a run: what was observed, one row a request, and the log that keeps it.
//!
//! Rates, percentiles and verdicts are never stored here; `metric` computes them from rows.
mod columns;
mod planned;
mod row;

pub use columns::{Cell, Column, Dtype};
pub use planned::{PlannedArm, PlannedCell, PlannedLimits, PlannedReport, PlannedRun, PlannedSlo, PlannedVisit};
pub use row::{COLUMNS, Finish, FirstChunkSource, Outcome, OutcomeGroup, RequestRecord, ResponseText, ToolCall};
