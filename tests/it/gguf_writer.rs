//! Writes GGUF files for tests, from the format's description and not from the reader.

/// A file under construction.
#[derive(Clone)]
pub struct GgufWriter {
    pub version: u32,
    pub alignment: usize,
    metadata: Vec<(String, Vec<u8>)>,
    tensors: Vec<(String, Vec<u64>, u32, Vec<u8>)>,
}

fn string(text: &[u8]) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text].concat()
}

impl GgufWriter {
    pub fn new() -> Self {
        Self { version: 3, alignment: 32, metadata: Vec::new(), tensors: Vec::new() }
    }

    /// An entry with its type number and its bytes as they stand in the file.
    pub fn raw(&mut self, key: &str, kind: u32, value: &[u8]) -> &mut Self {
        self.metadata.push((key.to_owned(), [&kind.to_le_bytes(), value].concat()));
        self
    }

    pub fn text(&mut self, key: &str, value: &str) -> &mut Self {
        self.raw(key, 8, &string(value.as_bytes()))
    }

    pub fn u32(&mut self, key: &str, value: u32) -> &mut Self {
        self.raw(key, 4, &value.to_le_bytes())
    }

    pub fn f32(&mut self, key: &str, value: f32) -> &mut Self {
        self.raw(key, 6, &value.to_le_bytes())
    }

    pub fn bool(&mut self, key: &str, value: bool) -> &mut Self {
        self.raw(key, 7, &[u8::from(value)])
    }

    pub fn texts(&mut self, key: &str, values: &[impl AsRef<str>]) -> &mut Self {
        let items: Vec<u8> = values.iter().flat_map(|value| string(value.as_ref().as_bytes())).collect();
        let head = [&8u32.to_le_bytes()[..], &(values.len() as u64).to_le_bytes()].concat();
        self.raw(key, 9, &[head, items].concat())
    }

    pub fn i32s(&mut self, key: &str, values: &[i32]) -> &mut Self {
        let items: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let head = [&5u32.to_le_bytes()[..], &(values.len() as u64).to_le_bytes()].concat();
        self.raw(key, 9, &[head, items].concat())
    }

    pub fn without(&mut self, key: &str) -> &mut Self {
        self.metadata.retain(|(name, _)| name != key);
        self
    }

    pub fn tensor(&mut self, name: &str, dims: &[u64], kind: u32, data: Vec<u8>) -> &mut Self {
        self.tensors.push((name.to_owned(), dims.to_vec(), kind, data));
        self
    }

    pub fn without_tensor(&mut self, name: &str) -> &mut Self {
        self.tensors.retain(|(tensor, ..)| tensor != name);
        self
    }

    /// The file, and where its data begins.
    pub fn build(&self) -> (Vec<u8>, usize) {
        let pad = |length: usize| length.next_multiple_of(self.alignment) - length;
        let mut out = b"GGUF".to_vec();
        out.extend(self.version.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.metadata.len() as u64).to_le_bytes());
        for (key, value) in &self.metadata {
            out.extend(string(key.as_bytes()));
            out.extend(value);
        }
        let mut offset = 0usize;
        for (name, dims, kind, data) in &self.tensors {
            out.extend(string(name.as_bytes()));
            out.extend((dims.len() as u32).to_le_bytes());
            out.extend(dims.iter().flat_map(|dim| dim.to_le_bytes()));
            out.extend(kind.to_le_bytes());
            out.extend((offset as u64).to_le_bytes());
            offset += data.len() + pad(data.len());
        }
        out.resize(out.len() + pad(out.len()), 0);
        let begin = out.len();
        for (_, _, _, data) in &self.tensors {
            out.extend(data);
            out.resize(out.len() + pad(data.len()), 0);
        }
        (out, begin)
    }
}

/// Number, values in a block, bytes of a block: the formats the engine computes with.
pub const FORMATS: [(u32, u64, u64); 5] = [(0, 1, 4), (1, 1, 2), (30, 1, 2), (8, 32, 34), (3, 32, 20)];

/// Form of a small model.
#[derive(Debug, Clone, Copy)]
pub struct Small {
    pub hidden: u64,
    pub layers: u64,
    pub heads: u64,
    pub kv_heads: u64,
    pub feed_forward: u64,
    pub vocabulary: u64,
    pub tied: bool,
    /// Index into [`FORMATS`].
    pub format: usize,
}

pub const SMALL: Small =
    Small { hidden: 32, layers: 2, heads: 2, kv_heads: 1, feed_forward: 64, vocabulary: 48, tied: true, format: 3 };

/// A sound Llama file without a vocabulary; weights are bytes counted up.
pub fn small_llama(small: Small) -> GgufWriter {
    let mut file = GgufWriter::new();
    file.text("general.architecture", "llama").text("general.name", "small").text("general.license", "cc0-1.0");
    file.u32("llama.block_count", small.layers as u32)
        .u32("llama.context_length", 64)
        .u32("llama.embedding_length", small.hidden as u32)
        .u32("llama.feed_forward_length", small.feed_forward as u32)
        .u32("llama.attention.head_count", small.heads as u32)
        .u32("llama.attention.head_count_kv", small.kv_heads as u32)
        .f32("llama.attention.layer_norm_rms_epsilon", 1e-5)
        .f32("llama.rope.freq_base", 10_000.0);
    let (kind, block, block_bytes) = FORMATS[small.format];
    let mut counter = 0u8;
    let mut bytes = |count: u64| -> Vec<u8> {
        (0..count)
            .map(|_| {
                counter = counter.wrapping_add(1);
                counter & 0x3F
            })
            .collect()
    };
    let head_dim = small.hidden / small.heads;
    let mut matrix = |file: &mut GgufWriter, name: String, columns: u64, rows: u64| {
        let data = bytes(columns / block * block_bytes * rows);
        file.tensor(&name, &[columns, rows], kind, data);
    };
    let norm = |file: &mut GgufWriter, name: String| {
        let ones: Vec<u8> = (0..small.hidden).flat_map(|_| 1f32.to_le_bytes()).collect();
        file.tensor(&name, &[small.hidden], 0, ones);
    };
    matrix(&mut file, "token_embd.weight".into(), small.hidden, small.vocabulary);
    for layer in 0..small.layers {
        let name = |part: &str| format!("blk.{layer}.{part}.weight");
        norm(&mut file, name("attn_norm"));
        matrix(&mut file, name("attn_q"), small.hidden, small.hidden);
        matrix(&mut file, name("attn_k"), small.hidden, small.kv_heads * head_dim);
        matrix(&mut file, name("attn_v"), small.hidden, small.kv_heads * head_dim);
        matrix(&mut file, name("attn_output"), small.hidden, small.hidden);
        norm(&mut file, name("ffn_norm"));
        matrix(&mut file, name("ffn_gate"), small.hidden, small.feed_forward);
        matrix(&mut file, name("ffn_up"), small.hidden, small.feed_forward);
        matrix(&mut file, name("ffn_down"), small.feed_forward, small.hidden);
    }
    norm(&mut file, "output_norm.weight".into());
    if !small.tied {
        matrix(&mut file, "output.weight".into(), small.hidden, small.vocabulary);
    }
    file
}

/// Adds a vocabulary: texts with their kinds (1 normal, 3 control, 4 user-defined, 5 unused).
pub fn vocabulary(file: &mut GgufWriter, tokens: &[(&str, i32)], merges: &[&str]) {
    let texts: Vec<&str> = tokens.iter().map(|(text, _)| *text).collect();
    let kinds: Vec<i32> = tokens.iter().map(|(_, kind)| *kind).collect();
    file.text("tokenizer.ggml.model", "gpt2").text("tokenizer.ggml.pre", "gpt-2");
    file.texts("tokenizer.ggml.tokens", &texts).i32s("tokenizer.ggml.token_type", &kinds);
    file.texts("tokenizer.ggml.merges", merges);
}
