//! Every integration test, in one binary.

mod cli;
mod endpoint_client;
mod endpoint_connect;
mod endpoint_llama_server;
mod endpoint_stream;
mod engine_oracle;
mod gguf_cases;
mod gguf_writer;
mod inert;
mod log_contract;
mod log_faults;
mod log_kill;
mod log_rows;
mod log_torn;
mod peak_memory;
mod pin;
mod real_model;
mod report_check;
mod report_files;
mod report_hostile;
mod report_pictures;
mod report_summary;
mod table;
mod tokenizer;
mod wire;
