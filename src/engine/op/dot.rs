//! Dot products of stored weight rows with f32 activations, decoded in registers.
//!
//! Floor for one token: every stored byte is read once (Q4_1: 0.625 B a weight), and a weight costs 2 FLOP for the product and about 2
//! more to decode. At 14 GB/s a thread Q4_1 allows 22 G weights/s, so the decode is bound by instructions and not by memory.
//!
//! The order of every sum is fixed: 16 lanes over blocks of 32, then a tree. It does not depend on how many activations are multiplied
//! together, on the thread or on the row, so a token's numbers are the same alone and in any batch.
use crate::engine::weights::{Matrix, WeightFormat};

/// Most activation rows multiplied in one pass over a weight row; more take several passes over cached bytes.
pub const MAX_TOGETHER: usize = 4;

const BLOCK: usize = 32;
const LANES: usize = 16;

#[inline(always)]
fn fma<const FMA: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FMA { a.mul_add(b, c) } else { a * b + c }
}

/// Exact for every finite half, subnormals too; infinities and NaN, which no weight file may hold, come out finite.
#[inline(always)]
fn half_to_f32(bits: u16) -> f32 {
    let magnitude = f32::from_bits(u32::from(bits & 0x7FFF) << 13) * f32::from_bits(0x7780_0000);
    f32::from_bits(magnitude.to_bits() | (u32::from(bits & 0x8000) << 16))
}

/// How 32 weights are stored.
trait Stored {
    const BYTES: usize;
    fn decode<const FMA: bool>(block: &[u8], w: &mut [f32; BLOCK]);
}

struct F32;
struct F16;
struct Bf16;
struct Q8_0;
struct Q4_1;

impl Stored for F32 {
    const BYTES: usize = 128;
    #[inline(always)]
    fn decode<const FMA: bool>(block: &[u8], w: &mut [f32; BLOCK]) {
        for (w, raw) in w.iter_mut().zip(block.as_chunks::<4>().0) {
            *w = f32::from_le_bytes(*raw);
        }
    }
}

impl Stored for F16 {
    const BYTES: usize = 64;
    #[inline(always)]
    fn decode<const FMA: bool>(block: &[u8], w: &mut [f32; BLOCK]) {
        for (w, raw) in w.iter_mut().zip(block.as_chunks::<2>().0) {
            *w = half_to_f32(u16::from_le_bytes(*raw));
        }
    }
}

impl Stored for Bf16 {
    const BYTES: usize = 64;
    #[inline(always)]
    fn decode<const FMA: bool>(block: &[u8], w: &mut [f32; BLOCK]) {
        for (w, raw) in w.iter_mut().zip(block.as_chunks::<2>().0) {
            *w = f32::from_bits(u32::from(u16::from_le_bytes(*raw)) << 16);
        }
    }
}

impl Stored for Q8_0 {
    const BYTES: usize = 34;
    #[inline(always)]
    fn decode<const FMA: bool>(block: &[u8], w: &mut [f32; BLOCK]) {
        let d = half_to_f32(u16::from_le_bytes([block[0], block[1]]));
        for (w, &q) in w.iter_mut().zip(&block[2..34]) {
            *w = d * f32::from(q.cast_signed());
        }
    }
}

impl Stored for Q4_1 {
    const BYTES: usize = 20;
    #[inline(always)]
    fn decode<const FMA: bool>(block: &[u8], w: &mut [f32; BLOCK]) {
        let d = half_to_f32(u16::from_le_bytes([block[0], block[1]]));
        let m = half_to_f32(u16::from_le_bytes([block[2], block[3]]));
        let q = &block[4..20];
        for i in 0..16 {
            w[i] = fma::<FMA>(d, f32::from(q[i] & 15), m);
            w[16 + i] = fma::<FMA>(d, f32::from(q[i] >> 4), m);
        }
    }
}

#[inline(always)]
fn step<const FMA: bool>(w: &[f32; BLOCK], x: &[f32; BLOCK], acc: &mut [f32; LANES]) {
    for l in 0..LANES {
        acc[l] = fma::<FMA>(w[l], x[l], acc[l]);
    }
    for l in 0..LANES {
        acc[l] = fma::<FMA>(w[LANES + l], x[LANES + l], acc[l]);
    }
}

#[inline(always)]
fn tree(acc: &[f32; LANES]) -> f32 {
    let mut a = *acc;
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            a[i] += a[i + width];
        }
        width /= 2;
    }
    a[0]
}

#[inline(always)]
fn dot_row<S: Stored, const FMA: bool, const T: usize>(row: &[u8], xs: [&[f32]; T]) -> [f32; T] {
    let mut acc = [[0.0f32; LANES]; T];
    let mut w = [0.0f32; BLOCK];
    for (number, block) in row.chunks_exact(S::BYTES).enumerate() {
        S::decode::<FMA>(block, &mut w);
        for (acc, x) in acc.iter_mut().zip(xs) {
            // Whole blocks of both: `x` has as many values as the row.
            if let Some(x) = x[number * BLOCK..].first_chunk::<BLOCK>() {
                step::<FMA>(&w, x, acc);
            }
        }
    }
    acc.map(|acc| tree(&acc))
}

/// Where one thread may write: column `row` of `[tokens, stride]`.
#[derive(Clone, Copy)]
pub struct Columns {
    out: *mut f32,
    stride: usize,
    len: usize,
}

// SAFETY: every task writes other columns; `linear` hands each row to one task only.
unsafe impl Send for Columns {}
// SAFETY: as above.
unsafe impl Sync for Columns {}

impl Columns {
    /// All columns of `out`, `[tokens, stride]` row-major.
    pub fn new(out: &mut [f32], stride: usize) -> Self {
        Self { out: out.as_mut_ptr(), stride, len: out.len() }
    }

    /// # Safety
    /// No other thread may write column `row` at the same time.
    #[inline(always)]
    unsafe fn write(&self, token: usize, row: usize, value: f32) {
        let at = token * self.stride + row;
        debug_assert!(row < self.stride && at < self.len);
        // SAFETY: inside the slice this was made from, and nobody else's column.
        unsafe { *self.out.add(at) = value };
    }

    /// The pointer to column `row` of the first token, for a GEMM that writes `[tokens, rows]` with this stride.
    pub fn at(&self, row: usize) -> *mut f32 {
        debug_assert!(row < self.stride);
        // SAFETY: `row` is inside the first row.
        unsafe { self.out.add(row) }
    }

    /// Distance between two tokens.
    pub fn stride(&self) -> usize {
        self.stride
    }
}

#[inline(always)]
fn rows_with<S: Stored, const FMA: bool>(
    bytes: &[u8],
    row_bytes: usize,
    first_row: usize,
    xs: &[f32],
    cols: usize,
    out: Columns,
) {
    let tokens = xs.len() / cols;
    let x = |t: usize| &xs[t * cols..(t + 1) * cols];
    for (number, row) in bytes.chunks_exact(row_bytes).enumerate() {
        let column = first_row + number;
        let mut t = 0;
        while t < tokens {
            let n = (tokens - t).min(MAX_TOGETHER);
            let mut values = [0.0f32; MAX_TOGETHER];
            match n {
                1 => values[..1].copy_from_slice(&dot_row::<S, FMA, 1>(row, [x(t)])),
                2 => values[..2].copy_from_slice(&dot_row::<S, FMA, 2>(row, [x(t), x(t + 1)])),
                3 => values[..3].copy_from_slice(&dot_row::<S, FMA, 3>(row, [x(t), x(t + 1), x(t + 2)])),
                _ => values = dot_row::<S, FMA, 4>(row, [x(t), x(t + 1), x(t + 2), x(t + 3)]),
            }
            for (i, &value) in values[..n].iter().enumerate() {
                // SAFETY: this call owns the columns of its rows.
                unsafe { out.write(t + i, column, value) };
            }
            t += n;
        }
    }
}

#[inline(always)]
fn rows_of<const FMA: bool>(matrix: &Matrix, rows: std::ops::Range<usize>, xs: &[f32], out: Columns) {
    let (first, cols, row_bytes) = (rows.start, matrix.cols, matrix.row_bytes());
    let bytes = matrix.encoded_rows(rows);
    match matrix.format {
        WeightFormat::F32 => rows_with::<F32, FMA>(bytes, row_bytes, first, xs, cols, out),
        WeightFormat::F16 => rows_with::<F16, FMA>(bytes, row_bytes, first, xs, cols, out),
        WeightFormat::BF16 => rows_with::<Bf16, FMA>(bytes, row_bytes, first, xs, cols, out),
        WeightFormat::Q8_0 => rows_with::<Q8_0, FMA>(bytes, row_bytes, first, xs, cols, out),
        WeightFormat::Q4_1 => rows_with::<Q4_1, FMA>(bytes, row_bytes, first, xs, cols, out),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn rows_of_avx2(matrix: &Matrix, rows: std::ops::Range<usize>, xs: &[f32], out: Columns) {
    rows_of::<true>(matrix, rows, xs, out);
}

/// `out[t, r] = sum_c W[r, c] * xs[t, c]` for the rows `r` in `rows`. `xs`: `[tokens, cols]`; `cols` a multiple of 32.
///
/// # Safety
/// No other thread may write these columns of `out` at the same time.
pub unsafe fn dot_rows(matrix: &Matrix, rows: std::ops::Range<usize>, xs: &[f32], out: Columns) {
    debug_assert!(matrix.cols.is_multiple_of(BLOCK) && xs.len().is_multiple_of(matrix.cols));
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
        // SAFETY: the features were just found.
        return unsafe { rows_of_avx2(matrix, rows, xs, out) };
    }
    rows_of::<false>(matrix, rows, xs, out);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix(format: WeightFormat, rows: usize, cols: usize) -> Matrix {
        let mut state = 12_345u32;
        let mut byte = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        let bytes = rows * cols / format.block() * format.block_bytes();
        let mut raw: Vec<u8> = (0..bytes).map(|_| byte()).collect();
        // Scales and 16-bit values get exponents near one, so that no product overflows.
        match format {
            WeightFormat::F32 => raw.chunks_exact_mut(4).for_each(|b| b[3] = 0x3E | (b[3] & 0x80)),
            WeightFormat::F16 => raw.chunks_exact_mut(2).for_each(|b| b[1] = 0x30 | (b[1] & 0x83)),
            WeightFormat::BF16 => raw.chunks_exact_mut(2).for_each(|b| b[1] = 0x3E | (b[1] & 0x80)),
            WeightFormat::Q8_0 => raw.chunks_exact_mut(34).for_each(|b| b[1] = 0x24),
            WeightFormat::Q4_1 => raw.chunks_exact_mut(20).for_each(|b| (b[1], b[3]) = (0x2C, 0xB0)),
        }
        Matrix::from_bytes(rows, cols, format, raw).expect("whole blocks")
    }

    #[test]
    fn every_format_meets_the_f64_dot_product_of_its_dequantised_rows() {
        for format in [WeightFormat::F32, WeightFormat::F16, WeightFormat::BF16, WeightFormat::Q8_0, WeightFormat::Q4_1]
        {
            let (rows, cols, tokens) = (5, 96, 7);
            let m = matrix(format, rows, cols);
            let xs: Vec<f32> = (0..tokens * cols).map(|i| ((i * 31 % 67) as f32 - 33.0) / 20.0).collect();
            let mut out = vec![0.0f32; tokens * rows];
            // SAFETY: one thread.
            unsafe { dot_rows(&m, 0..rows, &xs, Columns::new(&mut out, rows)) };
            let mut w = vec![0.0f32; rows * cols];
            m.dequantise_rows(0..rows, &mut w);
            for t in 0..tokens {
                for r in 0..rows {
                    let pairs = || (0..cols).map(|c| f64::from(w[r * cols + c]) * f64::from(xs[t * cols + c]));
                    let (want, size): (f64, f64) = (pairs().sum(), pairs().map(f64::abs).sum());
                    let got = f64::from(out[t * rows + r]);
                    assert!((got - want).abs() <= 1e-6 * size, "{} [{t},{r}]: {got} against {want}", format.name());
                }
            }
        }
    }

    #[test]
    fn a_token_has_the_same_bits_alone_and_in_a_batch() {
        let m = matrix(WeightFormat::Q4_1, 9, 192);
        let xs: Vec<f32> = (0..6 * 192).map(|i| (i as f32 * 0.37).sin()).collect();
        let mut together = vec![0.0f32; 6 * 9];
        // SAFETY: one thread.
        unsafe { dot_rows(&m, 0..9, &xs, Columns::new(&mut together, 9)) };
        for t in 0..6 {
            let mut alone = vec![0.0f32; 9];
            // SAFETY: one thread.
            unsafe { dot_rows(&m, 0..9, &xs[t * 192..(t + 1) * 192], Columns::new(&mut alone, 9)) };
            assert_eq!(alone, together[t * 9..(t + 1) * 9]);
        }
    }

    #[test]
    fn every_finite_half_converts_exactly() {
        for bits in 0..=u16::MAX {
            let want = half::f16::from_bits(bits);
            if want.is_finite() {
                assert_eq!(half_to_f32(bits).to_bits(), want.to_f32().to_bits(), "{bits:#06x}");
            }
        }
    }
}
