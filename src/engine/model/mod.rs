//! Model families: one forward pass each.
mod batch;
mod evaluate;
mod llama;

pub use batch::{Batch, Logits, Span};
pub use evaluate::evaluate;
pub use llama::{Llama, LlamaSize};
