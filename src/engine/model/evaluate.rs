//! Logits of every position of a text, for perplexity and log-probabilities; off the hot path.
use std::sync::Arc;

use super::{Llama, LlamaSize, Logits, Span};
use crate::engine::kv::{KvDtype, PAGE_TOKENS};
use crate::engine::weights::ModelFile;

/// Tokens of one forward call: logits of so many positions are held at once.
const CHUNK: usize = 128;

/// Hands the logits of every position of `tokens` to `each(position, logits)`, in order: `logits` are those of token `position + 1`.
///
/// Memory is taken for this call alone and is not planned. Panics for a KV dtype that is not supported.
pub fn evaluate(
    model: &Arc<ModelFile>,
    tokens: &[u32],
    threads: usize,
    kv_dtype: KvDtype,
    mut each: impl FnMut(usize, &[f32]),
) {
    let pages = tokens.len().div_ceil(PAGE_TOKENS);
    let size =
        LlamaSize { threads, max_tokens: CHUNK, max_context: tokens.len().max(1), max_logits: CHUNK, pages, kv_dtype };
    let mut llama = Llama::new(Arc::clone(model), size);
    let table = llama.kv().reserve(tokens.len()).unwrap_or_default();
    for (number, chunk) in tokens.chunks(CHUNK).enumerate() {
        let first = number * CHUNK;
        let logits = llama.prefill(Span { tokens: chunk, first, table: &table }, Logits::All);
        for (i, row) in logits.chunks_exact(model.shape.vocabulary).enumerate() {
            each(first + i, row);
        }
    }
}
