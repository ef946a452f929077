//! What can be wrong with a model.
use std::fmt::{self, Write as _};
use std::path::PathBuf;

use miette::Diagnostic;
use thiserror::Error;

use super::gguf::GgufError;
use crate::engine::chat_template::TemplateError;
use crate::engine::tokenizer::TokenizerError;

/// Why a model cannot be used. Text from the file is shown escaped and shortened.
#[derive(Debug, Error, Diagnostic)]
pub enum ModelError {
    /// The operating system refused.
    #[error("cannot read the model `{}`: {source}", path.display())]
    #[diagnostic(help("check the path and the permissions; `inferlab model list` shows what is known"))]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A folder, a pipe or a device.
    #[error("`{}` is not a file", path.display())]
    #[diagnostic(help("give the path of one .gguf file"))]
    NotAFile {
        /// What was given.
        path: PathBuf,
    },
    /// The container is broken.
    #[error("`{}`: {cause}", path.display())]
    #[diagnostic(forward(cause))]
    Gguf {
        /// The file.
        path: PathBuf,
        /// What is broken, and where.
        cause: Box<GgufError>,
    },
    /// Another kind of model.
    #[error("`{}`: architecture `{found}` is not in this version", path.display())]
    #[diagnostic(help("this version computes architecture `llama`; for others use an endpoint target"))]
    Architecture {
        /// The file.
        path: PathBuf,
        /// `general.architecture`.
        found: String,
    },
    /// Metadata the model cannot be built without.
    #[error("`{}`: the metadata has no `{key}`", path.display())]
    #[diagnostic(help("the file was not written by a converter for this architecture; convert the model again"))]
    MissingKey {
        /// The file.
        path: PathBuf,
        /// The key.
        key: String,
    },
    /// Metadata with a value that cannot be.
    #[error("`{}`: `{key}` is {found}, expected {expected}", path.display())]
    #[diagnostic(help("the file is damaged or was converted wrongly; compare it with its published checksum"))]
    KeyValue {
        /// The file.
        path: PathBuf,
        /// The key.
        key: String,
        /// Its value.
        found: String,
        /// What may stand there.
        expected: String,
    },
    /// A feature of the model that would change its answers if it were ignored.
    #[error("`{}`: `{key}` = {value} is not in this version", path.display())]
    #[diagnostic(help("{why}; ignoring it would change the answers, so the model is refused"))]
    NotSupported {
        /// The file.
        path: PathBuf,
        /// Key or tensor.
        key: String,
        /// Its value.
        value: String,
        /// What it does.
        why: &'static str,
    },
    /// A tensor of the architecture is not there.
    #[error("`{}`: tensor `{tensor}` is missing", path.display())]
    #[diagnostic(help("the file is incomplete (one of several parts?) or of another architecture than it says"))]
    MissingTensor {
        /// The file.
        path: PathBuf,
        /// Its name.
        tensor: String,
    },
    /// A tensor that disagrees with the metadata.
    #[error("`{}`: tensor `{tensor}` is {found}, the metadata asks for {expected}", path.display())]
    #[diagnostic(help("sizes are [columns, rows] as GGUF stores them; the file is damaged or was converted wrongly"))]
    TensorShape {
        /// The file.
        path: PathBuf,
        /// Its name.
        tensor: String,
        /// Its dimensions.
        found: String,
        /// What they must be.
        expected: String,
    },
    /// A tensor in a format the engine cannot compute with yet.
    #[error("`{}`: tensor `{tensor}` has type {found}, which is not in this version", path.display())]
    #[diagnostic(help("supported: F32, F16, BF16, Q8_0, Q4_1; `llama-quantize` can write the model in one of them"))]
    TensorFormat {
        /// The file.
        path: PathBuf,
        /// Its name.
        tensor: String,
        /// Its type.
        found: &'static str,
    },
    /// The vocabulary cannot be used.
    #[error("`{}`: {cause}", path.display())]
    #[diagnostic(forward(cause))]
    Tokenizer {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        cause: Box<TokenizerError>,
    },
    /// The chat template cannot be used.
    #[error("`{}`: {cause}", path.display())]
    #[diagnostic(forward(cause))]
    Template {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        cause: Box<TemplateError>,
    },
    /// No such random model.
    #[error("unknown synthetic shape `{name}`")]
    #[diagnostic(help("{}known shapes: {known}", nearest.as_ref().map(|n| format!("did you mean `{n}`? ")).unwrap_or_default()))]
    UnknownShape {
        /// What was asked for.
        name: String,
        /// The known name closest to it.
        nearest: Option<String>,
        /// All of them.
        known: String,
    },
}

/// Text of a file for a message: control characters escaped, at most 80 characters.
pub(crate) fn shown(text: &[u8]) -> String {
    Shown(text).to_string()
}

/// The same, put into words only when the message is.
#[derive(Clone, Copy)]
pub(crate) struct Shown<'a>(pub(crate) &'a [u8]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MOST: usize = 80;
        let text = String::from_utf8_lossy(&self.0[..self.0.len().min(4 * MOST)]);
        for character in text.chars().take(MOST).flat_map(char::escape_debug) {
            f.write_char(character)?;
        }
        if text.chars().nth(MOST).is_some() { f.write_char('…') } else { Ok(()) }
    }
}

/// The known word closest to `word`, when it is close enough to be a slip.
pub(crate) fn nearest(word: &str, known: &[&str]) -> Option<String> {
    let word: String = word.chars().take(64).collect();
    known
        .iter()
        .map(|candidate| (strsim::jaro_winkler(&word, candidate), candidate))
        .filter(|(likeness, _)| *likeness > 0.75)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| (*candidate).to_owned())
}
