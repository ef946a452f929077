//! Every integration test, in one binary.
mod log_contract;
mod log_faults;
mod log_kill;
mod log_rows;
mod log_torn;
mod table;
