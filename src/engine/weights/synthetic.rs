//! Random weights at a named shape: for speed only, every table says so.
//!
//! Values are uniform with mean 0 and variance `1/cols`, so each product keeps the size of its input and logits have
//! a spread of about 1. Norm weights are 1. The same shape, seed and format give the same bytes on every machine.
use half::{bf16, f16};

use super::llama::{Layer, LlamaWeights};
use super::matrix::{Matrix, WeightFormat};
use super::shape::{ModelShape, RopePairs};

/// Names of the shapes, smallest first.
pub const SHAPES: [&str; 3] = ["tiny-llama", "smollm2-135m", "llama-1b"];

/// The shape of that name and the format it comes in, or `None`.
pub(super) fn shape(name: &str) -> Option<(ModelShape, WeightFormat)> {
    let llama = |layers, hidden, heads, kv_heads, feed_forward, vocabulary, context, rope_theta| ModelShape {
        architecture: "llama".to_owned(),
        layers,
        hidden,
        heads,
        kv_heads,
        head_dim: 64,
        feed_forward,
        vocabulary,
        context,
        rope_theta,
        rope_pairs: RopePairs::Interleaved,
        rms_eps: 1e-5,
    };
    match name {
        "tiny-llama" => Some((llama(4, 256, 4, 2, 768, 4096, 32_768, 1e4), WeightFormat::F32)),
        "smollm2-135m" => Some((llama(30, 576, 9, 3, 1536, 49_152, 8192, 1e5), WeightFormat::F32)),
        // Llama 3.2 1B's widths without its frequency factors; two bytes a weight, as it is published.
        "llama-1b" => Some((llama(16, 2048, 32, 8, 8192, 128_256, 131_072, 5e5), WeightFormat::BF16)),
        _ => None,
    }
}

/// Fills a model of that shape; the head is tied.
pub(super) fn weights(shape: &ModelShape, seed: u64, format: WeightFormat) -> LlamaWeights {
    let mut stream = Stream(seed);
    let mut matrix = |rows, cols| random_matrix(&mut stream, rows, cols, format);
    let (hidden, q, kv, ff) = (shape.hidden, shape.q_width(), shape.kv_width(), shape.feed_forward);
    let token_embedding = matrix(shape.vocabulary, hidden);
    let layers = (0..shape.layers)
        .map(|_| Layer {
            attn_norm: vec![1.0; hidden],
            q: matrix(q, hidden),
            k: matrix(kv, hidden),
            v: matrix(kv, hidden),
            o: matrix(hidden, q),
            ffn_norm: vec![1.0; hidden],
            gate: matrix(ff, hidden),
            up: matrix(ff, hidden),
            down: matrix(hidden, ff),
        })
        .collect();
    LlamaWeights { token_embedding, layers, output_norm: vec![1.0; hidden], output: None }
}

/// SplitMix64 (Steele, Lea and Flood, 2014): eight random bytes a step from a counter, which vectorises.
struct Stream(u64);

impl Stream {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// `pair(a, b)` for as many pairs of values as `count` needs, each uniform in `[-limit, limit)`.
    fn fill(&mut self, count: usize, limit: f32, mut put: impl FnMut(f32)) {
        let scale = limit / (1u32 << 31) as f32;
        for _ in 0..count / 2 {
            let bits = self.next();
            put((bits as u32 as i32) as f32 * scale);
            put(((bits >> 32) as u32 as i32) as f32 * scale);
        }
        if count % 2 == 1 {
            put((self.next() as u32 as i32) as f32 * scale);
        }
    }

    fn fill_bytes(&mut self, out: &mut [u8]) {
        for chunk in out.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_le_bytes()[..chunk.len()]);
        }
    }
}

fn random_matrix(stream: &mut Stream, rows: usize, cols: usize, format: WeightFormat) -> Matrix {
    let count = rows * cols;
    // A uniform on [-a, a) has variance a²/3.
    let limit = (3.0 / cols as f32).sqrt();
    let matrix = match format {
        WeightFormat::F32 => {
            let mut values = Vec::with_capacity(count);
            stream.fill(count, limit, |value| values.push(value));
            Matrix::from_f32(rows, cols, values)
        }
        WeightFormat::F16 | WeightFormat::BF16 => {
            let mut bytes = Vec::with_capacity(count * 2);
            if format == WeightFormat::F16 {
                stream.fill(count, limit, |value| bytes.extend(f16::from_f32(value).to_le_bytes()));
            } else {
                stream.fill(count, limit, |value| bytes.extend(bf16::from_f32(value).to_le_bytes()));
            }
            Matrix::from_bytes(rows, cols, format, bytes)
        }
        WeightFormat::Q8_0 => {
            let mut bytes = vec![0; count / 32 * 34];
            let d = f16::from_f32(limit / 128.0).to_le_bytes();
            for block in bytes.as_chunks_mut::<34>().0 {
                stream.fill_bytes(&mut block[2..]);
                block[..2].copy_from_slice(&d);
            }
            Matrix::from_bytes(rows, cols, format, bytes)
        }
        WeightFormat::Q4_1 => {
            let mut bytes = vec![0; count / 32 * 20];
            let d = f16::from_f32(limit / 7.5).to_le_bytes();
            let m = f16::from_f32(-limit).to_le_bytes();
            for block in bytes.as_chunks_mut::<20>().0 {
                stream.fill_bytes(&mut block[4..]);
                block[..2].copy_from_slice(&d);
                block[2..4].copy_from_slice(&m);
            }
            Matrix::from_bytes(rows, cols, format, bytes)
        }
    };
    matrix.expect("a named shape's widths are multiples of 32 and its bytes were counted")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_named_shape_is_consistent() {
        for name in SHAPES {
            let (shape, format) = shape(name).expect("listed");
            assert_eq!(shape.heads % shape.kv_heads, 0, "{name}");
            assert_eq!(shape.hidden % format.block(), 0, "{name}");
        }
        // Parameter counts published for the real models.
        assert_eq!(shape("smollm2-135m").expect("listed").0.tied_parameters(), 134_515_008);
        assert_eq!(shape("llama-1b").expect("listed").0.tied_parameters(), 1_235_814_400);
    }

    #[test]
    fn weights_have_mean_zero_and_variance_one_over_cols_in_every_format() {
        for format in WeightFormat::ALL {
            let matrix = random_matrix(&mut Stream(7), 512, 256, format);
            let mut out = vec![0.0; 512 * 256];
            matrix.dequantise_rows(0..512, &mut out);
            let mean = out.iter().map(|&v| f64::from(v)).sum::<f64>() / out.len() as f64;
            let square = out.iter().map(|&v| f64::from(v) * f64::from(v)).sum::<f64>() / out.len() as f64;
            // 131,072 values: the mean's standard error is 1.7e-4; Q4_1's sixteen levels widen the spread by 13 %.
            assert!(mean.abs() < 1e-3, "{format:?} mean {mean}");
            assert!((0.97..1.15).contains(&(square * 256.0)), "{format:?} variance × cols {}", square * 256.0);
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_bytes_and_another_seed_does_not() {
        let a = random_matrix(&mut Stream(1), 4, 32, WeightFormat::F32);
        let b = random_matrix(&mut Stream(1), 4, 32, WeightFormat::F32);
        let c = random_matrix(&mut Stream(2), 4, 32, WeightFormat::F32);
        assert_eq!(a.encoded_rows(0..4), b.encoded_rows(0..4));
        assert_ne!(a.encoded_rows(0..4), c.encoded_rows(0..4));
    }
}
