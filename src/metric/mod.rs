//! Numbers: one plain function a row metric; sums, intervals, VALID rules and the summary a report prints.
mod aggregate;
mod cell;
mod compare;
mod names;
pub mod row;
mod run;
pub mod summary;
mod validity;

pub use aggregate::{Throughput, decode_throughput};
pub use names::METRICS;
pub use run::summarise;
