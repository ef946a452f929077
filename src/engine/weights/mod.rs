//! Model files: a bounded GGUF reader, Llama-family weights, and random weights at true shapes.
//!
//! A model file is mapped read-only and its weights are read where they lie. **Risk:** when another process cuts the
//! file short while it is mapped, reading past the new end raises SIGBUS and ends the program; no check here can
//! prevent that. Replace model files by renaming a new one over them, never by writing into them.
pub mod gguf;

mod dequantise;
mod error;
mod inspect;
mod llama;
mod load;
mod matrix;
mod shape;
mod synthetic;

use std::path::Path;

pub use error::ModelError;
pub(crate) use error::{Shown, nearest, shown};
pub use inspect::{FormatShare, Inspection, inspect};
pub use llama::{Layer, LlamaWeights};
pub use matrix::{Matrix, WeightFormat};
pub use shape::{ModelShape, RopePairs};
pub use synthetic::SHAPES;

use super::chat_template::ChatTemplate;
use super::tokenizer::Tokenizer;

/// A model, ready for the engine: weights, and what turns text into tokens and back.
#[derive(Debug)]
pub struct ModelFile {
    /// `general.name` of the file, else its file name; `synthetic <shape>` for random weights.
    pub name: String,
    /// The form of the model.
    pub shape: ModelShape,
    /// The weights, where they lie in the file.
    pub weights: LlamaWeights,
    /// Text to ids and back; `None` for random weights and for files without a vocabulary.
    pub tokenizer: Option<Tokenizer>,
    /// How a chat is written as one text; `None` when the file has no template.
    pub chat_template: Option<ChatTemplate>,
    /// Random weights: good for speed, meaningless as answers.
    pub synthetic: bool,
    /// `general.license`.
    pub license: Option<String>,
    /// Size of the file; for random weights the bytes in memory.
    pub file_bytes: u64,
    inspection: Inspection,
}

impl ModelFile {
    /// Opens and checks a GGUF file of the Llama family.
    ///
    /// # Errors
    /// When the file cannot be read, is no sound GGUF, or holds a model that this engine does not compute exactly.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, ModelError> {
        load::open(path.as_ref())
    }

    /// The same from bytes in memory; `name` stands for the path in errors.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn from_bytes(name: &str, bytes: Vec<u8>) -> Result<Self, ModelError> {
        load::from_bytes(Path::new(name), bytes)
    }

    /// Seeded random weights of a named shape ([`SHAPES`]) in that shape's own format.
    ///
    /// # Errors
    /// [`ModelError::UnknownShape`].
    pub fn synthetic(shape: &str, seed: u64) -> Result<Self, ModelError> {
        let (_, format) = known_shape(shape)?;
        Self::synthetic_in(shape, seed, format)
    }

    /// Seeded random weights of a named shape in a given format.
    ///
    /// # Errors
    /// [`ModelError::UnknownShape`].
    pub fn synthetic_in(name: &str, seed: u64, format: WeightFormat) -> Result<Self, ModelError> {
        let (shape, _) = known_shape(name)?;
        let weights = synthetic::weights(&shape, seed, format);
        let inspection = Inspection::of_weights(format!("synthetic {name}"), &shape, &weights);
        Ok(Self {
            name: inspection.name.clone(),
            file_bytes: inspection.file_bytes,
            shape,
            weights,
            tokenizer: None,
            chat_template: None,
            synthetic: true,
            license: None,
            inspection,
        })
    }

    /// What `inferlab model inspect` prints.
    pub fn inspect(&self) -> &Inspection {
        &self.inspection
    }
}

fn known_shape(name: &str) -> Result<(ModelShape, WeightFormat), ModelError> {
    synthetic::shape(name).ok_or_else(|| ModelError::UnknownShape {
        name: error::shown(name.as_bytes()),
        nearest: error::nearest(name, &SHAPES),
        known: SHAPES.join(", "),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_shape_gets_the_nearest_spelling() {
        let error = ModelFile::synthetic("smollm2-135", 1).expect_err("no such shape");
        assert_eq!(error.to_string(), "unknown synthetic shape `smollm2-135`");
        let help = miette::Diagnostic::help(&error).expect("has help").to_string();
        assert_eq!(help, "did you mean `smollm2-135m`? known shapes: tiny-llama, smollm2-135m, llama-1b");
    }

    #[test]
    fn a_synthetic_model_says_so_and_counts_its_parameters() {
        let model = ModelFile::synthetic("tiny-llama", 1).expect("known shape");
        assert!(model.synthetic && model.tokenizer.is_none() && model.chat_template.is_none());
        assert_eq!(model.inspect().parameters, model.shape.tied_parameters());
        assert_eq!(model.weights.bytes() as u64, 4 * model.shape.tied_parameters());
        assert_eq!(model.weights.bytes_read_per_token(), model.weights.bytes());
    }
}
