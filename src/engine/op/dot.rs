//! Dot products of stored weight rows with f32 activations.
//!
//! Floors. One token reads every stored byte once (Q4_1: 0.625 B a weight) and does 2 FLOP a weight. Read roofs measured for one thread:
//! 14 GB/s on the slowest machine seen, which is 22 G weights/s of Q4_1, 20 and 40 GB/s on later ones. Decoding costs 18 instructions for
//! 32 weights with AVX2 and 8 with AVX-512, about 5 and 2 cycles, so a decode step is near the memory roof of the slowest on one thread.
//! Many tokens: 2 FLOP a weight and token against 32 (AVX2) or 64 (AVX-512) FLOP a cycle. What was reached stands in
//! `benches/engine_ops.rs`.
//!
//! There are two forms with one order of addition ([`vector`](super::vector)): up to [`FUSED_TOKENS`] tokens decode weights in registers;
//! for more, a tile of rows is decoded once into f32 and multiplied from cache. **Every `out[t, r]` has the same bits in both**, in any
//! batch, for any tile and any number of threads; so prefill in chunks of any size, decode alone and decode in company agree exactly.
use super::buffer::Disjoint;
use super::isa::{Isa, by_isa};
use super::vector::{BLOCK, LANES, Vector};
use crate::engine::weights::{Matrix, WeightFormat};

/// Tokens up to which weights are decoded in registers.
pub const FUSED_TOKENS: usize = 4;

/// Bytes that are asked for before they are used. Rows are too short for the hardware to find their streams in time: without this a model
/// that lies in memory was read at a quarter of the roof (measured: 10 of 40 GB/s on one thread of an EPYC 9005).
const AHEAD: usize = 4096;

/// Bytes of a cache line.
const LINE: usize = 64;

/// How 32 weights are stored.
trait Stored {
    const BYTES: usize;
    /// # Safety
    /// `BYTES` readable bytes, and the instructions of `V`.
    unsafe fn decode<V: Vector>(from: *const u8) -> V::Block;
}

macro_rules! stored {
    ($($name:ident $bytes:literal $decode:ident),*) => {$(
        struct $name;
        impl Stored for $name {
            const BYTES: usize = $bytes;
            #[inline(always)]
            unsafe fn decode<V: Vector>(from: *const u8) -> V::Block {
                // SAFETY: the caller's promise.
                unsafe { V::$decode(from) }
            }
        }
    )*};
}

stored!(F32 128 f32_block, F16 64 f16_block, Bf16 64 bf16_block, Q8_0 34 q8_0_block, Q4_1 20 q4_1_block);

/// Some rows of weights, some tokens, and where the products go: pointers since a task writes columns of a shared matrix.
#[derive(Clone, Copy)]
struct Work {
    /// First byte of the first row.
    weights: *const u8,
    row_bytes: usize,
    rows: usize,
    cols: usize,
    /// `[tokens, cols]`.
    xs: *const f32,
    tokens: usize,
    /// Column of the first row in the first token's row.
    out: *mut f32,
    /// Distance of two tokens in `out`.
    stride: usize,
}

/// `R` rows by `T` tokens, weights decoded in registers.
#[inline(always)]
unsafe fn fused<V: Vector, S: Stored, const R: usize, const T: usize>(w: Work) {
    // SAFETY: `rows`, `cols` and `tokens` of the caller are at least R, whole blocks, and T.
    unsafe {
        let mut sums = [[V::zeros(); T]; R];
        for block in 0..w.cols / BLOCK {
            let x = w.xs.add(block * BLOCK);
            // R rows lie one after the other; this walks the bytes after them at the pace at which these are used.
            let ahead = w.weights.wrapping_add(block * R * S::BYTES + AHEAD);
            for line in 0..(R * S::BYTES).div_ceil(LINE) {
                V::prefetch(ahead.wrapping_add(line * LINE));
            }
            for (r, sums) in sums.iter_mut().enumerate() {
                let weights = S::decode::<V>(w.weights.add(r * w.row_bytes + block * S::BYTES));
                for half in 0..BLOCK / LANES {
                    for part in 0..V::PARTS {
                        let i = half * V::PARTS + part;
                        for (t, sum) in sums.iter_mut().enumerate() {
                            let x = V::load(x.add(t * w.cols + i * V::WIDTH));
                            sum[part] = weights[i].mul_add(x, sum[part]);
                        }
                    }
                }
            }
        }
        for (r, sums) in sums.into_iter().enumerate() {
            for (t, sum) in sums.into_iter().enumerate() {
                *w.out.add(t * w.stride + r) = V::fold(sum);
            }
        }
    }
}

#[inline(always)]
unsafe fn fused_rows<V: Vector, S: Stored, const R: usize, const T: usize>(mut w: Work) {
    // SAFETY: advances inside the caller's rows.
    unsafe {
        while w.rows >= R {
            fused::<V, S, R, T>(w);
            w.weights = w.weights.add(R * w.row_bytes);
            w.out = w.out.add(R);
            w.rows -= R;
        }
        while w.rows > 0 {
            fused::<V, S, 1, T>(w);
            w.weights = w.weights.add(w.row_bytes);
            w.out = w.out.add(1);
            w.rows -= 1;
        }
    }
}

/// Register tiles: as many sums as registers hold beside the decoded weights.
#[inline(always)]
unsafe fn fused_tokens<V: Vector, S: Stored>(w: Work) {
    // SAFETY: the caller's promise.
    unsafe {
        match (w.tokens, V::MANY) {
            (1, false) => fused_rows::<V, S, 2, 1>(w),
            (1, true) => fused_rows::<V, S, 4, 1>(w),
            (2, false) => fused_rows::<V, S, 2, 2>(w),
            (2, true) => fused_rows::<V, S, 4, 2>(w),
            (3, false) => fused_rows::<V, S, 1, 3>(w),
            (3, true) => fused_rows::<V, S, 4, 3>(w),
            (_, false) => fused_rows::<V, S, 1, 4>(w),
            (_, true) => fused_rows::<V, S, 4, 4>(w),
        }
    }
}

#[inline(always)]
unsafe fn fused_body<V: Vector>(format: WeightFormat, w: Work) {
    // SAFETY: the caller's promise.
    unsafe {
        match format {
            WeightFormat::F32 => fused_tokens::<V, F32>(w),
            WeightFormat::F16 => fused_tokens::<V, F16>(w),
            WeightFormat::BF16 => fused_tokens::<V, Bf16>(w),
            WeightFormat::Q8_0 => fused_tokens::<V, Q8_0>(w),
            WeightFormat::Q4_1 => fused_tokens::<V, Q4_1>(w),
        }
    }
}

by_isa! {
    /// # Safety
    /// `w` describes readable weights of `format` and activations, and columns of `out` that no other thread touches; 1 to 4 tokens.
    unsafe fn fused_by_isa(format: WeightFormat, w: Work) = fused_body
}

#[inline(always)]
unsafe fn decode_blocks<V: Vector, S: Stored>(from: *const u8, blocks: usize, to: *mut f32) {
    // SAFETY: whole blocks on both sides, as the caller vouches.
    unsafe {
        for block in 0..blocks {
            for line in 0..S::BYTES.div_ceil(LINE) {
                V::prefetch(from.wrapping_add(block * S::BYTES + AHEAD + line * LINE));
            }
            let weights = S::decode::<V>(from.add(block * S::BYTES));
            for i in 0..BLOCK / V::WIDTH {
                weights[i].store(to.add(block * BLOCK + i * V::WIDTH));
            }
        }
    }
}

#[inline(always)]
unsafe fn decode_body<V: Vector>(format: WeightFormat, from: *const u8, blocks: usize, to: *mut f32) {
    // SAFETY: the caller's promise.
    unsafe {
        match format {
            WeightFormat::F32 => decode_blocks::<V, F32>(from, blocks, to),
            WeightFormat::F16 => decode_blocks::<V, F16>(from, blocks, to),
            WeightFormat::BF16 => decode_blocks::<V, Bf16>(from, blocks, to),
            WeightFormat::Q8_0 => decode_blocks::<V, Q8_0>(from, blocks, to),
            WeightFormat::Q4_1 => decode_blocks::<V, Q4_1>(from, blocks, to),
        }
    }
}

by_isa! {
    /// # Safety
    /// `blocks` blocks of 32 weights are readable at `from` and as many floats writable at `to`.
    unsafe fn decode_by_isa(format: WeightFormat, from: *const u8, blocks: usize, to: *mut f32) = decode_body
}

/// `R` rows of f32 weights by `T` tokens.
#[inline(always)]
#[allow(clippy::needless_range_loop)] // register tiles are plain indices; iterators over three arrays at once would hide them
unsafe fn tile<V: Vector, const R: usize, const T: usize>(w: Work) {
    // SAFETY: `rows` and `tokens` of the caller are at least R and T, `cols` a multiple of 16.
    unsafe {
        let weights = w.weights.cast::<f32>();
        let mut sums = [[V::zeros(); T]; R];
        let mut at = 0;
        while at < w.cols {
            for part in 0..V::PARTS {
                let from = at + part * V::WIDTH;
                let mut row = [V::splat(0.0); R];
                for (r, row) in row.iter_mut().enumerate() {
                    *row = V::load(weights.add(r * w.cols + from));
                }
                for t in 0..T {
                    let x = V::load(w.xs.add(t * w.cols + from));
                    for r in 0..R {
                        sums[r][t][part] = row[r].mul_add(x, sums[r][t][part]);
                    }
                }
            }
            at += LANES;
        }
        for (r, sums) in sums.into_iter().enumerate() {
            for (t, sum) in sums.into_iter().enumerate() {
                *w.out.add(t * w.stride + r) = V::fold(sum);
            }
        }
    }
}

#[inline(always)]
unsafe fn tile_rows<V: Vector, const R: usize, const T: usize>(mut w: Work) {
    // SAFETY: advances inside the caller's rows.
    unsafe {
        while w.rows >= R {
            tile::<V, R, T>(w);
            w.weights = w.weights.add(R * w.row_bytes);
            w.out = w.out.add(R);
            w.rows -= R;
        }
        while w.rows > 0 {
            tile::<V, 1, T>(w);
            w.weights = w.weights.add(w.row_bytes);
            w.out = w.out.add(1);
            w.rows -= 1;
        }
    }
}

/// All tokens against a tile of f32 rows: tokens in groups that stay in L1 while the tile passes by from L2.
#[inline(always)]
unsafe fn tile_body<V: Vector>(mut w: Work) {
    // SAFETY: advances inside the caller's tokens.
    unsafe {
        while w.tokens > 0 {
            let group = w.tokens.min(if V::MANY { 6 } else { 3 });
            match (group, V::MANY) {
                (1, false) => tile_rows::<V, 4, 1>(w),
                (2, false) => tile_rows::<V, 2, 2>(w),
                (_, false) => tile_rows::<V, 2, 3>(w),
                (1, true) => tile_rows::<V, 4, 1>(w),
                (2, true) => tile_rows::<V, 4, 2>(w),
                (3, true) => tile_rows::<V, 4, 3>(w),
                (4, true) => tile_rows::<V, 4, 4>(w),
                (5, true) => tile_rows::<V, 4, 5>(w),
                (_, true) => tile_rows::<V, 4, 6>(w),
            }
            w.xs = w.xs.add(group * w.cols);
            w.out = w.out.add(group * w.stride);
            w.tokens -= group;
        }
    }
}

by_isa! {
    /// # Safety
    /// `w` describes readable f32 weights and activations, and columns of `out` that no other thread touches.
    unsafe fn tile_by_isa(w: Work) = tile_body
}

/// `out[t, r] = sum_c W[r, c] * xs[t, c]` for the rows `r` in `rows` and every token. `xs`: `[tokens, cols]`, `out`: `[tokens, W.rows]`.
///
/// `scratch` holds `rows.len() * cols` floats when there are more than [`FUSED_TOKENS`] tokens. Panics when sizes do not fit or
/// `cols` is no multiple of 32.
///
/// # Safety
/// No other thread reads or writes these columns of `out` at the same time.
pub unsafe fn dot_rows(
    isa: Isa,
    matrix: &Matrix,
    rows: std::ops::Range<usize>,
    xs: &[f32],
    scratch: &mut [f32],
    out: &Disjoint<'_, f32>,
) {
    let (cols, n) = (matrix.cols, rows.len());
    let tokens = xs.len() / cols;
    assert!(cols.is_multiple_of(BLOCK) && xs.len() == tokens * cols, "{} columns, {} values", cols, xs.len());
    if tokens == 0 || n == 0 {
        return;
    }
    let bytes = matrix.encoded_rows(rows.clone());
    let mut work = Work {
        weights: bytes.as_ptr(),
        row_bytes: matrix.row_bytes(),
        rows: n,
        cols,
        xs: xs.as_ptr(),
        tokens,
        out: out.pointer(rows.start, (tokens - 1) * matrix.rows + rows.end),
        stride: matrix.rows,
    };
    if tokens <= FUSED_TOKENS {
        // SAFETY: sizes were checked above; the columns are the caller's.
        return unsafe { fused_by_isa(isa, matrix.format, work) };
    }
    match matrix.as_f32() {
        Some(values) => work.weights = values[rows.start * cols..rows.end * cols].as_ptr().cast(),
        None => {
            let scratch = &mut scratch[..n * cols];
            // SAFETY: `bytes` holds `n * cols / 32` blocks of the format, and scratch as many floats.
            unsafe { decode_by_isa(isa, matrix.format, bytes.as_ptr(), n * cols / BLOCK, scratch.as_mut_ptr()) };
            work.weights = scratch.as_ptr().cast();
        }
    }
    work.row_bytes = cols * size_of::<f32>();
    // SAFETY: as above, with f32 rows.
    unsafe { tile_by_isa(isa, work) };
}
