//! Every integration test, in one binary.
mod engine_oracle;
mod real_model;
