//! Text to token ids and back.
use miette::Diagnostic;
use thiserror::Error;

use super::weights::gguf::Header;

/// Why a vocabulary cannot be used.
#[derive(Debug, Error, Diagnostic)]
pub enum TokenizerError {}

/// Text to token ids and back, from the vocabulary in a GGUF file.
#[derive(Debug)]
pub struct Tokenizer {}

impl Tokenizer {
    /// The vocabulary of a file.
    ///
    /// # Errors
    /// When it is there and cannot be used exactly.
    pub fn from_gguf(_header: &Header<'_>) -> Result<Option<Self>, TokenizerError> {
        Ok(None)
    }

    /// Number of ids, which run from 0.
    pub fn vocabulary(&self) -> usize {
        0
    }

    /// The token that begins a text.
    pub fn bos(&self) -> Option<u32> {
        None
    }

    /// The token that ends a text.
    pub fn eos(&self) -> Option<u32> {
        None
    }

    /// Text of a token as it stands in the vocabulary.
    pub fn token_text(&self, _id: u32) -> Option<String> {
        None
    }
}
