//! Causal attention with grouped queries over paged keys and values.
//!
//! `out[h] = softmax_p(q[h] . k[p] / sqrt(head_dim)) @ v[p]` over positions `p <= position`; query head `h` uses KV head
//! `h / (heads / kv_heads)`. Sums in f32. Source: Vaswani et al. 2017, arXiv:1706.03762; groups: Ainslie et al. 2023, arXiv:2305.13245.
use super::elementwise::softmax_unnormalised;
use super::simd_dispatch;
use crate::engine::kv::{KvPool, PAGE_TOKENS};

/// Scratch of one thread.
#[derive(Default)]
pub struct AttentionScratch {
    scores: Vec<f32>,
    page: Vec<f32>,
    out: Vec<f32>,
}

impl AttentionScratch {
    /// Room for `rows` rows of scores over `context` positions and heads of `head_dim`.
    pub fn new(rows: usize, context: usize, head_dim: usize) -> Self {
        let padded = context.next_multiple_of(PAGE_TOKENS);
        Self {
            scores: vec![0.0; rows * padded],
            page: vec![0.0; PAGE_TOKENS * head_dim],
            out: vec![0.0; rows * head_dim],
        }
    }

    /// Bytes held by one thread's scratch.
    pub fn bytes(rows: usize, context: usize, head_dim: usize) -> usize {
        (rows * context.next_multiple_of(PAGE_TOKENS) + (PAGE_TOKENS + rows) * head_dim) * size_of::<f32>()
    }
}

/// Whose keys and values are read, and by which head.
#[derive(Clone, Copy)]
pub struct Reading<'a> {
    /// The pages.
    pub pool: &'a KvPool,
    /// Pages of the sequence.
    pub table: &'a [u32],
    /// Layer.
    pub layer: usize,
    /// KV head.
    pub kv_head: usize,
}

#[inline(always)]
fn key_scores_body(q: &[f32], keys: &[f32], scores: &mut [f32]) {
    for (score, key) in scores.iter_mut().zip(keys.chunks_exact(q.len())) {
        let mut lanes = [0.0f32; 16];
        for (k, q) in key.as_chunks::<16>().0.iter().zip(q.as_chunks::<16>().0) {
            for l in 0..16 {
                lanes[l] += k[l] * q[l];
            }
        }
        let tail = q.len() / 16 * 16;
        let rest: f32 = key[tail..].iter().zip(&q[tail..]).map(|(k, q)| k * q).sum();
        let mut width = 8;
        while width > 0 {
            for i in 0..width {
                lanes[i] += lanes[i + width];
            }
            width /= 2;
        }
        *score = lanes[0] + rest;
    }
}

simd_dispatch! {
    /// `scores[p] = q . keys[p]`. `q`: `[head_dim]`, `keys`: `[n, head_dim]`, `scores`: `[n]`.
    fn key_scores(q: &[f32], keys: &[f32], scores: &mut [f32]) = key_scores_body
}

#[inline(always)]
fn weighted_values_body(weights: &[f32], values: &[f32], out: &mut [f32]) {
    for (&w, value) in weights.iter().zip(values.chunks_exact(out.len())) {
        for (o, v) in out.iter_mut().zip(value) {
            *o += w * v;
        }
    }
}

simd_dispatch! {
    /// `out += sum_p weights[p] * values[p]`. `values`: `[n, head_dim]`.
    fn weighted_values(weights: &[f32], values: &[f32], out: &mut [f32]) = weighted_values_body
}

/// One new token of a sequence of `length` tokens, all query heads of one KV head. `q`, `out`: `[group][head_dim]`.
pub fn decode(reading: Reading<'_>, length: usize, q: &[f32], scratch: &mut AttentionScratch, out: &mut [f32]) {
    let dim = reading.pool.layout().head_dim;
    let scale = 1.0 / (dim as f32).sqrt();
    let padded = length.next_multiple_of(PAGE_TOKENS);
    let AttentionScratch { scores, page, .. } = scratch;
    for (number, &id) in reading.table[..length.div_ceil(PAGE_TOKENS)].iter().enumerate() {
        let start = number * PAGE_TOKENS;
        let n = (length - start).min(PAGE_TOKENS);
        let keys = reading.pool.block(id, reading.layer, false, reading.kv_head, n, page);
        for (row, q) in q.chunks_exact(dim).enumerate() {
            key_scores(q, &keys, &mut scores[row * padded + start..row * padded + start + n]);
        }
    }
    out.fill(0.0);
    let group = q.len() / dim;
    let mut sums = [0.0f32; 64];
    for row in 0..group {
        sums[row % 64] = softmax_unnormalised(&mut scores[row * padded..row * padded + length], scale);
    }
    for (number, &id) in reading.table[..length.div_ceil(PAGE_TOKENS)].iter().enumerate() {
        let start = number * PAGE_TOKENS;
        let n = (length - start).min(PAGE_TOKENS);
        let values = reading.pool.block(id, reading.layer, true, reading.kv_head, n, page);
        for (row, out) in out.chunks_exact_mut(dim).enumerate() {
            weighted_values(&scores[row * padded + start..row * padded + start + n], &values, out);
        }
    }
    for (row, out) in out.chunks_exact_mut(dim).enumerate() {
        let inverse = 1.0 / sums[row % 64];
        out.iter_mut().for_each(|o| *o *= inverse);
    }
}

/// A block of new tokens at positions `first..first + rows` and one query head.
///
/// `q`: row `i` at `q[i * q_stride..][..head_dim]`; `out` the same with `out_stride`, written through a pointer since other threads
/// write other heads of the same rows.
///
/// # Safety
/// `out` is valid for those rows and no other thread touches them.
pub unsafe fn prefill(
    reading: Reading<'_>,
    first: usize,
    rows: usize,
    (q, q_stride): (&[f32], usize),
    scratch: &mut AttentionScratch,
    (out, out_stride): (*mut f32, usize),
) {
    let dim = reading.pool.layout().head_dim;
    let scale = 1.0 / (dim as f32).sqrt();
    let length = first + rows;
    let padded = length.next_multiple_of(PAGE_TOKENS);
    debug_assert!(q.len() >= (rows - 1) * q_stride + dim);
    let AttentionScratch { scores, page, out: sum } = scratch;
    for (number, &id) in reading.table[..length.div_ceil(PAGE_TOKENS)].iter().enumerate() {
        let start = number * PAGE_TOKENS;
        let n = (length - start).min(PAGE_TOKENS);
        let keys = reading.pool.block(id, reading.layer, false, reading.kv_head, n, page);
        // SAFETY: q holds `rows` rows of `dim`, keys `n` rows of `dim`, scores `rows` rows of `padded`.
        unsafe {
            let to = scores.as_mut_ptr().add(start);
            let (q, qs, p) = (q.as_ptr(), q_stride as isize, padded as isize);
            matrixmultiply::sgemm(rows, dim, n, 1.0, q, qs, 1, keys.as_ptr(), 1, dim as isize, 0.0, to, p, 1);
        }
    }
    for row in 0..rows {
        let seen = first + row + 1;
        let line = &mut scores[row * padded..(row + 1) * padded];
        let total = softmax_unnormalised(&mut line[..seen], scale);
        let inverse = 1.0 / total;
        line[..seen].iter_mut().for_each(|v| *v *= inverse);
        line[seen..].fill(0.0);
    }
    let sum = &mut sum[..rows * dim];
    for (number, &id) in reading.table[..length.div_ceil(PAGE_TOKENS)].iter().enumerate() {
        let start = number * PAGE_TOKENS;
        let n = (length - start).min(PAGE_TOKENS);
        let values = reading.pool.block(id, reading.layer, true, reading.kv_head, n, page);
        let beta = if number == 0 { 0.0 } else { 1.0 };
        // SAFETY: as above; sum holds `rows` rows of `dim`.
        unsafe {
            let from = scores.as_ptr().add(start);
            let (d, p) = (dim as isize, padded as isize);
            matrixmultiply::sgemm(rows, n, dim, 1.0, from, p, 1, values.as_ptr(), d, 1, beta, sum.as_mut_ptr(), d, 1);
        }
    }
    for (row, values) in sum.chunks_exact(dim).enumerate() {
        // SAFETY: the caller's promise.
        unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), out.add(row * out_stride), dim) };
    }
}
