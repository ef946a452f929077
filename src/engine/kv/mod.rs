//! The KV cache: pages of 64 tokens, a block table a sequence, dtypes with their exact bytes.
mod dtype;
mod pool;

pub use dtype::KvDtype;
pub use pool::{KvLayout, KvPool, KvWriter, PAGE_TOKENS, PageValues};
