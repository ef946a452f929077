//! What a model file holds, for `inferlab model inspect`.
use std::path::Path;

use serde::Serialize;

use super::error::{ModelError, shown};
use super::gguf::{Header, TensorType, Value};
use super::llama::{Layer, LlamaWeights};
use super::load;
use super::matrix::Matrix;
use super::shape::ModelShape;

/// Most metadata entries that are listed.
const MOST_METADATA: usize = 512;

/// Tensors of one type.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FormatShare {
    /// Type as GGUF tools print it.
    pub format: &'static str,
    /// How many tensors have it.
    pub tensors: usize,
    /// Values in them.
    pub parameters: u64,
    /// Bytes of them.
    pub bytes: u64,
}

/// What a model file holds. Text from the file is escaped and shortened.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Inspection {
    /// `general.name`, else the file name.
    pub name: String,
    /// `general.architecture`.
    pub architecture: Option<String>,
    /// The form, where this version knows the architecture.
    pub shape: Option<ModelShape>,
    /// Values in all tensors; a tied head counts once.
    pub parameters: u64,
    /// By type, most bytes first.
    pub formats: Vec<FormatShare>,
    /// `general.license`.
    pub license: Option<String>,
    /// Size of the file in bytes.
    pub file_bytes: u64,
    /// GGUF version; `None` for random weights.
    pub gguf_version: Option<u32>,
    /// `tokenizer.ggml.model` and its pre-tokenizer.
    pub tokenizer: Option<String>,
    /// Tokens of the vocabulary.
    pub tokens: Option<u64>,
    /// Whether the file says how to write a chat.
    pub chat_template: bool,
    /// Why this version's engine cannot run the file; `None` when it can.
    pub refused: Option<String>,
    /// Every metadata entry in the file's order, arrays by their length (the first 512).
    pub metadata: Vec<(String, String)>,
}

/// Looks into a GGUF file of any architecture without loading it.
///
/// # Errors
/// When the file cannot be read or is no sound GGUF. A model that the engine would refuse is no error here: see
/// [`Inspection::refused`].
pub fn inspect(path: &Path) -> Result<Inspection, ModelError> {
    load::inspect(path)
}

impl Inspection {
    /// From a parsed header; `shape` where the architecture is known.
    pub(super) fn of_header(path: &Path, header: &Header<'_>, shape: Option<ModelShape>) -> Self {
        let text = |key: &str| header.value(key).and_then(|value| value.as_text().map(|text| shown(text.as_bytes())));
        let file_name = path.file_name().map_or_else(String::new, |name| shown(name.to_string_lossy().as_bytes()));
        let mut formats = Formats::default();
        for tensor in header.tensors() {
            formats.add(tensor.kind.name(), tensor.values, tensor.bytes);
        }
        let tokenizer = text("tokenizer.ggml.model").map(|model| match text("tokenizer.ggml.pre") {
            Some(pre) => format!("{model}, pre {pre}"),
            None => model,
        });
        let tokens = match header.value("tokenizer.ggml.tokens") {
            Some(Value::Array(array)) => Some(array.count),
            _ => None,
        };
        Self {
            name: text("general.name").unwrap_or(file_name),
            architecture: text("general.architecture"),
            shape,
            parameters: formats.parameters(),
            formats: formats.sorted(),
            license: text("general.license"),
            file_bytes: header.file_bytes(),
            gguf_version: Some(header.version()),
            tokenizer,
            tokens,
            chat_template: header.value("tokenizer.chat_template").is_some(),
            refused: None,
            metadata: header
                .entries()
                .take(MOST_METADATA)
                .map(|(key, value)| (shown(key.as_bytes()), value.to_string()))
                .collect(),
        }
    }

    /// From weights in memory.
    pub(super) fn of_weights(name: String, shape: &ModelShape, weights: &LlamaWeights) -> Self {
        let mut formats = Formats::default();
        let ends = std::iter::once(&weights.token_embedding).chain(&weights.output);
        for matrix in ends.chain(weights.layers.iter().flat_map(Layer::matrices)) {
            formats.add(matrix.format.name(), values(matrix), matrix.bytes() as u64);
        }
        let norms = weights.layers.iter().flat_map(|layer| [&layer.attn_norm, &layer.ffn_norm]);
        for norm in norms.chain([&weights.output_norm]) {
            formats.add(TensorType::F32.name(), norm.len() as u64, 4 * norm.len() as u64);
        }
        Self {
            name,
            architecture: Some(shape.architecture.clone()),
            shape: Some(shape.clone()),
            parameters: formats.parameters(),
            formats: formats.sorted(),
            license: None,
            file_bytes: weights.bytes() as u64,
            gguf_version: None,
            tokenizer: None,
            tokens: None,
            chat_template: false,
            refused: None,
            metadata: Vec::new(),
        }
    }
}

fn values(matrix: &Matrix) -> u64 {
    matrix.rows as u64 * matrix.cols as u64
}

#[derive(Default)]
struct Formats(Vec<FormatShare>);

impl Formats {
    fn add(&mut self, format: &'static str, parameters: u64, bytes: u64) {
        let share = match self.0.iter_mut().find(|share| share.format == format) {
            Some(share) => share,
            None => {
                self.0.push(FormatShare { format, tensors: 0, parameters: 0, bytes: 0 });
                self.0.last_mut().expect("one was just pushed")
            }
        };
        share.tensors += 1;
        share.parameters = share.parameters.saturating_add(parameters);
        share.bytes = share.bytes.saturating_add(bytes);
    }

    fn parameters(&self) -> u64 {
        self.0.iter().fold(0, |sum, share| sum.saturating_add(share.parameters))
    }

    fn sorted(mut self) -> Vec<FormatShare> {
        self.0.sort_by(|a, b| b.bytes.cmp(&a.bytes).then(a.format.cmp(b.format)));
        self.0
    }
}
