//! The numbers that fix a model's form.
use serde::Serialize;

/// Which elements of a head rotary embedding turns together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RopePairs {
    /// `(2i, 2i+1)`: GGUF files of architecture `llama`, whose converter permutes the rows of Wq and Wk for it.
    Interleaved,
    /// `(i, i + head_dim/2)`: NeoX, and every safetensors checkpoint of the family.
    Halves,
}

/// Form of a Llama-family model. All counts are at least 1 and consistent: `heads % kv_heads == 0`, `head_dim` is even.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ModelShape {
    /// Architecture word of the file, as `llama`.
    pub architecture: String,
    /// Decoder layers.
    pub layers: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Width of one head, of queries, keys and values alike.
    pub head_dim: usize,
    /// Inner width of the gated MLP.
    pub feed_forward: usize,
    /// Rows of the embedding, which is also the number of logits.
    pub vocabulary: usize,
    /// Positions the model was trained for.
    pub context: usize,
    /// Base of the rotary frequencies.
    pub rope_theta: f32,
    /// Which elements turn together.
    pub rope_pairs: RopePairs,
    /// Added to the mean square in every RMSNorm.
    pub rms_eps: f32,
}

impl ModelShape {
    /// Width of all query heads together: rows of Wq, columns of Wo.
    pub fn q_width(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Width of all key (or value) heads together: rows of Wk and Wv.
    pub fn kv_width(&self) -> usize {
        self.kv_heads * self.head_dim
    }

    /// Values the KV cache holds per token: keys and values of every layer.
    pub fn kv_values_per_token(&self) -> usize {
        2 * self.layers * self.kv_width()
    }

    /// Parameters of the matrices and norms, with a tied head (`output` counted once with the embedding).
    pub fn tied_parameters(&self) -> u64 {
        let (h, ff) = (self.hidden as u64, self.feed_forward as u64);
        let (q, kv) = (self.q_width() as u64, self.kv_width() as u64);
        let layer = 2 * h * q + 2 * h * kv + 3 * h * ff + 2 * h;
        self.layers as u64 * layer + self.vocabulary as u64 * h + h
    }
}
