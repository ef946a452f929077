//! inferlab: a reproducible benchmark-and-eval laboratory for LLM inference engines.
//!
//! A run is a line of plain data: experiment file → plan → requests → rows in a log → tables → metrics → report.
pub mod calibrate;
pub mod cli;
pub mod engine;
pub mod experiment;
pub mod hardware;
pub mod inert;
pub mod loadgen;
pub mod metric;
pub mod pin;
pub mod plot;
pub mod record;
pub mod report;
pub mod request;
pub mod run;
pub mod statistics;
pub mod table;
pub mod target;
pub mod units;
pub mod workload;
pub mod yaml;
