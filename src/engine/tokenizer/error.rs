//! What can be wrong with a vocabulary.
use miette::Diagnostic;
use thiserror::Error;

/// Why a vocabulary cannot be used. Text from the file is shown escaped and shortened.
#[derive(Debug, Error, Diagnostic)]
pub enum TokenizerError {
    /// Not byte-level BPE.
    #[error("tokenizer model `{found}` is not in this version")]
    #[diagnostic(help("this version reads byte-level BPE (`gpt2`); for other vocabularies use an endpoint target"))]
    Model {
        /// `tokenizer.ggml.model`.
        found: String,
    },
    /// A way of splitting words that is not known.
    #[error("pre-tokenizer `{found}` is not in this version")]
    #[diagnostic(help(
        "{}known: {known}; another one would split words otherwise and change every answer",
        nearest.as_ref().map(|n| format!("did the converter mean `{n}`? ")).unwrap_or_default()
    ))]
    Pre {
        /// `tokenizer.ggml.pre`.
        found: String,
        /// The known name closest to it.
        nearest: Option<String>,
        /// All of them.
        known: String,
    },
    /// A list that is not there.
    #[error("the metadata has no `{key}`")]
    #[diagnostic(help("the file was converted without its vocabulary; convert the model again"))]
    MissingKey {
        /// The key.
        key: &'static str,
    },
    /// A value that cannot be.
    #[error("`{key}` is {found}, expected {expected}")]
    #[diagnostic(help("the file is damaged or was converted wrongly; compare it with its published checksum"))]
    KeyValue {
        /// The key.
        key: &'static str,
        /// Its value.
        found: String,
        /// What may stand there.
        expected: &'static str,
    },
    /// An entry that is no UTF-8.
    #[error("`{key}`: entry {index} `{entry}` is not {expected}")]
    #[diagnostic(help("the file is damaged or was converted wrongly; compare it with its published checksum"))]
    Entry {
        /// The list.
        key: &'static str,
        /// Number of the entry, from 0.
        index: usize,
        /// The entry.
        entry: String,
        /// What it should be.
        expected: &'static str,
    },
    /// Two ids with one text.
    #[error("tokens {first} and {second} are both `{token}`")]
    #[diagnostic(help("the file is damaged or was converted wrongly; compare it with its published checksum"))]
    Duplicate {
        /// The text.
        token: String,
        /// The smaller id.
        first: u32,
        /// The larger id.
        second: u32,
    },
    /// Merges that do not fit the tokens.
    #[error("`tokenizer.ggml.merges` does not fit the tokens: {message}")]
    #[diagnostic(help("the file is damaged or was converted wrongly; compare it with its published checksum"))]
    Merges {
        /// What the tokenizer said.
        message: String,
    },
}
