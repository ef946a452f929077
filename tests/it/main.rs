//! Every integration test, in one binary.

mod cli;
mod engine_oracle;
mod pin;
mod real_model;
