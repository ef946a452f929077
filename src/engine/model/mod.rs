//! Model families: one forward pass each.
mod llama;

pub use llama::{Llama, LlamaSize, Logits, Span, evaluate};
