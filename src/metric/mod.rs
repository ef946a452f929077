//! Numbers: one plain function a row metric, aggregated by Polars; intervals, VALID rules and the summary a report prints.
pub mod summary;
