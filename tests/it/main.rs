//! Every integration test, in one binary.
mod endpoint_client;
mod endpoint_connect;
mod endpoint_llama_server;
mod endpoint_stream;
mod wire;
