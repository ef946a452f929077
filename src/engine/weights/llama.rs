//! The weights of a Llama-family decoder.
use super::matrix::Matrix;

/// One decoder layer. Shapes in terms of [`ModelShape`](super::ModelShape).
#[derive(Debug, Clone)]
pub struct Layer {
    /// RMSNorm before attention, `[hidden]`.
    pub attn_norm: Vec<f32>,
    /// `[q_width, hidden]`.
    pub q: Matrix,
    /// `[kv_width, hidden]`.
    pub k: Matrix,
    /// `[kv_width, hidden]`.
    pub v: Matrix,
    /// `[hidden, q_width]`.
    pub o: Matrix,
    /// RMSNorm before the MLP, `[hidden]`.
    pub ffn_norm: Vec<f32>,
    /// `[feed_forward, hidden]`.
    pub gate: Matrix,
    /// `[feed_forward, hidden]`.
    pub up: Matrix,
    /// `[hidden, feed_forward]`.
    pub down: Matrix,
}

impl Layer {
    /// The seven matrices, in the order in which a step reads them.
    pub fn matrices(&self) -> [&Matrix; 7] {
        [&self.q, &self.k, &self.v, &self.o, &self.gate, &self.up, &self.down]
    }
}

/// All weights of a Llama-family decoder.
#[derive(Debug, Clone)]
pub struct LlamaWeights {
    /// `[vocabulary, hidden]`.
    pub token_embedding: Matrix,
    /// The decoder layers, in order.
    pub layers: Vec<Layer>,
    /// RMSNorm before the head, `[hidden]`.
    pub output_norm: Vec<f32>,
    /// `[vocabulary, hidden]`; `None` when the head is the embedding itself (tied).
    pub output: Option<Matrix>,
}

impl LlamaWeights {
    /// The matrix that gives logits: `output`, or the embedding when tied.
    pub fn head(&self) -> &Matrix {
        self.output.as_ref().unwrap_or(&self.token_embedding)
    }

    /// Bytes of all weights as stored; a tied head counts once.
    pub fn bytes(&self) -> usize {
        let norms =
            self.output_norm.len() + self.layers.iter().map(|l| l.attn_norm.len() + l.ffn_norm.len()).sum::<usize>();
        let layers: usize = self.layers.iter().flat_map(Layer::matrices).map(Matrix::bytes).sum();
        let ends = self.token_embedding.bytes() + self.output.as_ref().map_or(0, Matrix::bytes);
        layers + ends + norms * size_of::<f32>()
    }

    /// Bytes that decoding one token must read: every matrix once, the head, every norm, and one row of the embedding.
    pub fn bytes_read_per_token(&self) -> usize {
        match &self.output {
            None => self.bytes(),
            Some(_) => self.bytes() - self.token_embedding.bytes() + self.token_embedding.row_bytes(),
        }
    }
}
