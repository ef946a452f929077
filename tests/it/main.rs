//! Every integration test, in one binary.
mod gguf_cases;
mod gguf_writer;
mod peak_memory;
mod tokenizer;
