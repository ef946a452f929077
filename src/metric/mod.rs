//! Numbers: one plain function a row metric; sums, intervals, VALID rules and the summary a report prints.
//!
//! Metrics are functions of rows, and every table of a summary is small: nothing here needs a data frame.
mod cell;
mod cell_rows;
mod client_error;
mod compare;
mod decode_window;
mod differences;
mod names;
pub mod row;
#[cfg(test)]
mod samples;
mod summarise;
pub mod summary;
mod timeline;
mod validity;
mod warnings;

pub use client_error::CLIENT_ERROR;
pub use decode_window::{NoRate, Throughput, decode_throughput};
pub use names::METRICS;
pub use summarise::summarise;
pub use timeline::{Held, InFlight, concurrency_held, in_flight, run_throughput};
