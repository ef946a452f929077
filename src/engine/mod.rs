//! Our own inference engine: one thread that steps, admit → schedule → forward → sample → emit.
pub mod chat_template;
pub mod tokenizer;
pub mod weights;
