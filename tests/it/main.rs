//! Every integration test, in one binary.
mod experiment_cases;
mod experiment_mutation;
mod experiment_plan;
mod experiment_requests;
mod experiment_set;
