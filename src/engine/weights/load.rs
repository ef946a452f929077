//! From a checked GGUF header to a model: metadata to a shape, tensors to weights, each compared with the other.
use std::collections::HashSet;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use memmap2::Mmap;

use super::error::shown;
use super::gguf::{Header, Tensor, Value};
use super::matrix::Storage;
use super::{Inspection, Layer, LlamaWeights, Matrix, ModelError, ModelFile, ModelShape, RopePairs};
use crate::engine::chat_template::ChatTemplate;
use crate::engine::tokenizer::Tokenizer;

/// Bound on every count of a shape: no real model comes near, and products of two still fit.
const MOST_COUNT: u64 = 1 << 24;

pub(super) fn open(path: &Path) -> Result<ModelFile, ModelError> {
    load(path, map(path)?)
}

pub(super) fn from_bytes(path: &Path, bytes: Vec<u8>) -> Result<ModelFile, ModelError> {
    load(path, Storage::Bytes(Arc::new(bytes)))
}

pub(super) fn inspect(path: &Path) -> Result<Inspection, ModelError> {
    let storage = map(path)?;
    let header = parse(path, &storage)?;
    let source = Source { path, header: &header };
    let shape = source.shape();
    let refused = match &shape {
        Err(error) => Some(error.to_string()),
        Ok(shape) => load_checked(&source, &storage, shape.clone()).err().map(|error| error.to_string()),
    };
    Ok(Inspection { refused, ..Inspection::of_header(path, &header, shape.ok()) })
}

/// Maps a file read-only.
fn map(path: &Path) -> Result<Storage, ModelError> {
    let io = |source| ModelError::Io { path: path.to_owned(), source };
    // Asked before opening: opening a pipe would wait for a writer.
    if !std::fs::metadata(path).map_err(io)?.is_file() {
        return Err(ModelError::NotAFile { path: path.to_owned() });
    }
    let file = File::open(path).map_err(io)?;
    if file.metadata().map_err(io)?.len() == 0 {
        return Ok(Storage::Bytes(Arc::new(Vec::new())));
    }
    // SAFETY: the map is private and read-only. Nobody may change or cut the file while it is mapped; the module's
    // documentation says what happens otherwise (a changed weight, or SIGBUS), which is not ours to prevent.
    let map = unsafe { Mmap::map(&file) }.map_err(io)?;
    Ok(Storage::Mapped(Arc::new(map)))
}

fn parse<'a>(path: &Path, storage: &'a Storage) -> Result<Header<'a>, ModelError> {
    Header::parse(storage.as_bytes())
        .map_err(|cause| ModelError::Gguf { path: path.to_owned(), cause: Box::new(cause) })
}

fn load(path: &Path, storage: Storage) -> Result<ModelFile, ModelError> {
    let header = parse(path, &storage)?;
    let source = Source { path, header: &header };
    let shape = source.shape()?;
    load_checked(&source, &storage, shape)
}

fn load_checked(source: &Source<'_>, storage: &Storage, shape: ModelShape) -> Result<ModelFile, ModelError> {
    source.refuse_unknown_math()?;
    let path = source.path;
    let weights = source.weights(&shape, storage)?;
    let tokenizer = Tokenizer::from_gguf(source.header)
        .map_err(|cause| ModelError::Tokenizer { path: path.to_owned(), cause: Box::new(cause) })?;
    if let Some(tokenizer) = tokenizer.as_ref().filter(|tokenizer| tokenizer.vocabulary() > shape.vocabulary) {
        return Err(ModelError::TensorShape {
            path: path.to_owned(),
            tensor: "token_embd.weight".to_owned(),
            found: format!("[{}, {}]", shape.hidden, shape.vocabulary),
            expected: format!("[{}, {}], a row for each token", shape.hidden, tokenizer.vocabulary()),
        });
    }
    let chat_template = match source.text("tokenizer.chat_template")? {
        None => None,
        Some(template) => {
            let token = |id: Option<u32>| id.and_then(|id| tokenizer.as_ref()?.token_text(id));
            let (bos, eos) = match &tokenizer {
                Some(tokenizer) => (token(tokenizer.bos()), token(tokenizer.eos())),
                None => (None, None),
            };
            let compiled = ChatTemplate::new(template, bos.as_deref(), eos.as_deref());
            Some(compiled.map_err(|cause| ModelError::Template { path: path.to_owned(), cause: Box::new(cause) })?)
        }
    };
    let inspection = Inspection::of_header(path, source.header, Some(shape.clone()));
    Ok(ModelFile {
        name: inspection.name.clone(),
        shape,
        weights,
        tokenizer,
        chat_template,
        synthetic: false,
        license: inspection.license.clone(),
        file_bytes: source.header.file_bytes(),
        inspection,
    })
}

/// A header with the path its errors name.
struct Source<'a> {
    path: &'a Path,
    header: &'a Header<'a>,
}

impl<'a> Source<'a> {
    fn wrong(&self, key: &str, found: impl ToString, expected: impl Into<String>) -> ModelError {
        ModelError::KeyValue {
            path: self.path.to_owned(),
            key: key.to_owned(),
            found: found.to_string(),
            expected: expected.into(),
        }
    }

    fn required(&self, key: &str) -> Result<Value<'a>, ModelError> {
        let missing = || ModelError::MissingKey { path: self.path.to_owned(), key: key.to_owned() };
        self.header.value(key).ok_or_else(missing)
    }

    fn text(&self, key: &str) -> Result<Option<&'a str>, ModelError> {
        match self.header.value(key) {
            None => Ok(None),
            Some(value) => value.as_text().map(Some).ok_or_else(|| self.wrong(key, value, "a UTF-8 string")),
        }
    }

    fn count_of(&self, key: &str, value: Value<'_>) -> Result<usize, ModelError> {
        value
            .as_unsigned()
            .filter(|count| (1..=MOST_COUNT).contains(count))
            .and_then(|count| usize::try_from(count).ok())
            .ok_or_else(|| self.wrong(key, value, format!("a whole number from 1 to {MOST_COUNT}")))
    }

    fn count(&self, key: &str) -> Result<usize, ModelError> {
        self.count_of(key, self.required(key)?)
    }

    fn count_or(&self, key: &str, default: usize) -> Result<usize, ModelError> {
        self.header.value(key).map_or(Ok(default), |value| self.count_of(key, value))
    }

    fn positive(&self, key: &str, value: Value<'_>) -> Result<f32, ModelError> {
        let number = value.as_float().map(|number| number as f32).filter(|number| number.is_finite() && *number > 0.0);
        number.ok_or_else(|| self.wrong(key, value, "a positive number"))
    }

    /// The form of the model, checked in itself.
    fn shape(&self) -> Result<ModelShape, ModelError> {
        let architecture = self.required("general.architecture")?;
        let architecture =
            architecture.as_text().ok_or_else(|| self.wrong("general.architecture", architecture, "a string"))?;
        if architecture != "llama" {
            return Err(ModelError::Architecture { path: self.path.to_owned(), found: shown(architecture.as_bytes()) });
        }
        let hidden = self.count("llama.embedding_length")?;
        let heads = self.count("llama.attention.head_count")?;
        let kv_heads = self.count_or("llama.attention.head_count_kv", heads)?;
        if !heads.is_multiple_of(kv_heads) {
            let expected = format!("a divisor of the {heads} query heads");
            return Err(self.wrong("llama.attention.head_count_kv", kv_heads, expected));
        }
        let head_dim = match self.header.value("llama.attention.key_length") {
            Some(value) => self.count_of("llama.attention.key_length", value)?,
            None if hidden.is_multiple_of(heads) => hidden / heads,
            None => {
                let expected = format!("a divisor of the width {hidden}, as there is no `llama.attention.key_length`");
                return Err(self.wrong("llama.attention.head_count", heads, expected));
            }
        };
        if !head_dim.is_multiple_of(2) {
            return Err(self.wrong("llama.attention.key_length", head_dim, "an even number, for rotary pairs"));
        }
        for key in ["llama.attention.value_length", "llama.rope.dimension_count"] {
            let found = self.count_or(key, head_dim)?;
            if found != head_dim {
                return Err(self.wrong(key, found, format!("{head_dim}, the width of a head")));
            }
        }
        let rope_theta = match self.header.value("llama.rope.freq_base") {
            None => 10_000.0, // llama.cpp's default where the key is missing
            Some(value) => self.positive("llama.rope.freq_base", value)?,
        };
        let eps_key = "llama.attention.layer_norm_rms_epsilon";
        let vocabulary = match self.header.tensor("token_embd.weight").as_ref().map(Tensor::dims) {
            Some(&[_, rows]) => usize::try_from(rows).ok().filter(|&rows| rows as u64 <= MOST_COUNT),
            _ => None,
        };
        Ok(ModelShape {
            architecture: architecture.to_owned(),
            layers: self.count("llama.block_count")?,
            hidden,
            heads,
            kv_heads,
            head_dim,
            feed_forward: self.count("llama.feed_forward_length")?,
            // A missing or odd embedding is named when the weights are read.
            vocabulary: vocabulary.unwrap_or(0),
            context: self.count("llama.context_length")?,
            rope_theta,
            rope_pairs: RopePairs::Interleaved,
            rms_eps: self.positive(eps_key, self.required(eps_key)?)?,
        })
    }

    /// Refuses what would change the answers if it were passed over.
    fn refuse_unknown_math(&self) -> Result<(), ModelError> {
        let refuse = |key: &str, value: Value<'_>, why| {
            Err(ModelError::NotSupported {
                path: self.path.to_owned(),
                key: key.to_owned(),
                value: value.to_string(),
                why,
            })
        };
        if let Some(value) = self.header.value("general.type").filter(|value| value.as_text() != Some("model")) {
            return refuse("general.type", value, "the file is a part of a model, such as an adapter or a projector");
        }
        if let Some(value) = self.header.value("split.count").filter(|value| value.as_unsigned() != Some(1)) {
            return refuse(
                "split.count",
                value,
                "the model is split over several files; join them with `llama-gguf-split --merge`",
            );
        }
        let scaling = self.header.value("llama.rope.scaling.type");
        if let Some(value) = scaling.filter(|value| value.as_text() != Some("none")) {
            return refuse("llama.rope.scaling.type", value, "it stretches the rotary positions");
        }
        // Without a type llama.cpp takes a factor as linear; a factor of 0 or 1 changes nothing.
        let idle = |value: &Value<'_>| matches!(value.as_float(), Some(0.0 | 1.0));
        for key in ["llama.rope.scaling.factor", "llama.rope.scale_linear"] {
            if let Some(value) = self.header.value(key).filter(|value| scaling.is_none() && !idle(value)) {
                return refuse(key, value, "it stretches the rotary positions");
            }
        }
        let off = |value: &Value<'_>| matches!(value.as_float(), Some(0.0)) || value.as_bool() == Some(false);
        for (key, why) in [
            ("llama.expert_count", "the MLP is a mixture of experts"),
            ("llama.attention.sliding_window", "attention looks back only over a window"),
            ("llama.attention.clamp_kqv", "queries, keys and values are clamped"),
            ("llama.attention.scale", "attention scores are scaled otherwise"),
            ("llama.attn_logit_softcapping", "attention scores are capped"),
            ("llama.final_logit_softcapping", "logits are capped"),
            ("llama.logit_scale", "logits are scaled"),
            ("llama.embedding_scale", "embeddings are scaled"),
            ("llama.residual_scale", "the residual stream is scaled"),
            ("llama.use_parallel_residual", "attention and MLP read the same input"),
            ("llama.pooling_type", "the model gives embeddings of texts, not tokens"),
        ] {
            if let Some(value) = self.header.value(key).filter(|value| !off(value)) {
                return refuse(key, value, why);
            }
        }
        if let Some(value) = self.header.value("llama.attention.causal").filter(|value| value.as_bool() != Some(true)) {
            return refuse("llama.attention.causal", value, "attention also looks forward");
        }
        Ok(())
    }

    fn weights(&self, shape: &ModelShape, storage: &Storage) -> Result<LlamaWeights, ModelError> {
        let mut tensors = Tensors { source: self, storage, used: HashSet::new() };
        let (hidden, q, kv, ff) = (shape.hidden, shape.q_width(), shape.kv_width(), shape.feed_forward);
        if self.header.tensor("token_embd.weight").is_some_and(|tensor| tensor.dims().len() != 2) {
            return Err(tensors.wrong_shape("token_embd.weight", &format!("[{hidden}, tokens]")));
        }
        let token_embedding = tensors.matrix("token_embd.weight", shape.vocabulary, hidden)?;
        // No capacity from the file's count: the first missing layer ends the loop.
        let mut layers = Vec::new();
        for index in 0..shape.layers {
            let name = |part: &str| format!("blk.{index}.{part}.weight");
            layers.push(Layer {
                attn_norm: tensors.norm(&name("attn_norm"), hidden)?,
                q: tensors.matrix(&name("attn_q"), q, hidden)?,
                k: tensors.matrix(&name("attn_k"), kv, hidden)?,
                v: tensors.matrix(&name("attn_v"), kv, hidden)?,
                o: tensors.matrix(&name("attn_output"), hidden, q)?,
                ffn_norm: tensors.norm(&name("ffn_norm"), hidden)?,
                gate: tensors.matrix(&name("ffn_gate"), ff, hidden)?,
                up: tensors.matrix(&name("ffn_up"), ff, hidden)?,
                down: tensors.matrix(&name("ffn_down"), hidden, ff)?,
            });
        }
        let output_norm = tensors.norm("output_norm.weight", hidden)?;
        let output = match self.header.tensor("output.weight") {
            None => None,
            Some(_) => Some(tensors.matrix("output.weight", shape.vocabulary, hidden)?),
        };
        tensors.refuse_unused()?;
        Ok(LlamaWeights { token_embedding, layers, output_norm, output })
    }
}

/// Takes tensors by name and remembers which.
struct Tensors<'a> {
    source: &'a Source<'a>,
    storage: &'a Storage,
    used: HashSet<&'a str>,
}

impl<'a> Tensors<'a> {
    fn matrix(&mut self, name: &str, rows: usize, cols: usize) -> Result<Matrix, ModelError> {
        self.take(name, rows, cols, &[cols as u64, rows as u64])
    }

    fn norm(&mut self, name: &str, width: usize) -> Result<Vec<f32>, ModelError> {
        let row = self.take(name, 1, width, &[width as u64])?;
        let mut values = vec![0.0; width];
        row.dequantise_rows(0..1, &mut values);
        Ok(values)
    }

    fn take(&mut self, name: &str, rows: usize, cols: usize, dims: &[u64]) -> Result<Matrix, ModelError> {
        let path = || self.source.path.to_owned();
        let missing = || ModelError::MissingTensor { path: path(), tensor: name.to_owned() };
        let tensor = self.source.header.tensor(name).ok_or_else(missing)?;
        if tensor.dims() != dims {
            return Err(self.wrong_shape(name, &format!("{dims:?}")));
        }
        let format = tensor.kind.weight_format().ok_or_else(|| ModelError::TensorFormat {
            path: path(),
            tensor: name.to_owned(),
            found: tensor.kind.name(),
        })?;
        self.used.insert(tensor.name);
        let offset = usize::try_from(self.source.header.data_offset(&tensor)).ok();
        let matrix = offset.and_then(|offset| Matrix::view(rows, cols, format, self.storage.clone(), offset));
        Ok(matrix.expect("the header was checked: blocks divide the columns and the data lies inside the file"))
    }

    fn wrong_shape(&self, name: &str, expected: &str) -> ModelError {
        let found = self.source.header.tensor(name).map_or_else(String::new, |tensor| format!("{:?}", tensor.dims()));
        ModelError::TensorShape {
            path: self.source.path.to_owned(),
            tensor: name.to_owned(),
            found,
            expected: expected.to_owned(),
        }
    }

    /// A tensor that nothing read is math that would be left out.
    fn refuse_unused(&self) -> Result<(), ModelError> {
        let Some(unused) = self.source.header.tensors().find(|tensor| !self.used.contains(tensor.name)) else {
            return Ok(());
        };
        let why = if unused.name.starts_with("rope_freqs") || unused.name.contains("rope_factors") {
            "it bends the rotary frequencies for long contexts, as in Llama 3.1 and later"
        } else if unused.name.ends_with(".bias") {
            "it is a bias, which this architecture's forward does not add here"
        } else if unused.name.contains("_exps") || unused.name.contains("gate_inp") {
            "it belongs to a mixture of experts"
        } else {
            "the engine has no place for this tensor"
        };
        Err(ModelError::NotSupported {
            path: self.source.path.to_owned(),
            key: shown(unused.name.as_bytes()),
            value: format!("{} {:?}", unused.kind.name(), unused.dims()),
            why,
        })
    }
}
