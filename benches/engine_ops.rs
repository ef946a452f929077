//! Products of stored weights with activations, in bytes of weights read (few tokens) and FLOP (many tokens) a second:
//! `cargo bench --bench engine_ops`.
use divan::Bencher;
use divan::counter::{BytesCount, ItemsCount};
use inferlab::engine::op::buffer::Disjoint;
use inferlab::engine::op::dot::dot_rows;
use inferlab::engine::op::isa::Isa;
use inferlab::engine::weights::{Matrix, WeightFormat};

const ROWS: usize = 1536;
const COLS: usize = 576;

fn main() {
    divan::main();
}

fn matrix(format: WeightFormat, rows: usize) -> Matrix {
    let mut bytes = vec![0u8; rows * COLS / format.block() * format.block_bytes()];
    let mut state = 1u32;
    bytes.iter_mut().for_each(|byte| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        // Small exponents in every format, so that nothing overflows.
        *byte = (state >> 24) as u8 & 0x3B;
    });
    Matrix::from_bytes(rows, COLS, format, bytes).expect("whole blocks")
}

fn product(bencher: Bencher<'_, '_>, isa: Isa, format: WeightFormat, rows: usize, tokens: usize) {
    let m = matrix(format, rows);
    let xs: Vec<f32> = (0..tokens * COLS).map(|i| (i as f32 * 0.37).sin()).collect();
    let (mut scratch, mut out) = (vec![0.0f32; 64 * COLS], vec![0.0f32; tokens * rows]);
    bencher.counter(BytesCount::new(m.bytes())).counter(ItemsCount::new(2 * rows * COLS * tokens)).bench_local(|| {
        for start in (0..rows).step_by(64) {
            let to = Disjoint::new(&mut out);
            // SAFETY: one thread.
            unsafe { dot_rows(isa, &m, start..(start + 64).min(rows), &xs, &mut scratch, &to) };
        }
    });
}

/// The same without AVX-512, where the CPU has both.
#[divan::bench(args = WeightFormat::ALL)]
fn gemv_avx2(bencher: Bencher<'_, '_>, format: WeightFormat) {
    product(bencher, Isa::available().into_iter().nth(1).unwrap_or(Isa::PORTABLE), format, 16 * ROWS, 1);
}

/// One token, 24,576 rows: within the last cache of a server.
#[divan::bench(args = WeightFormat::ALL)]
fn gemv(bencher: Bencher<'_, '_>, format: WeightFormat) {
    product(bencher, Isa::widest(), format, 16 * ROWS, 1);
}

/// One token, 245,760 rows: from memory, so bytes a second stand beside the read roof.
#[divan::bench(args = [WeightFormat::Q8_0, WeightFormat::Q4_1])]
fn gemv_from_memory(bencher: Bencher<'_, '_>, format: WeightFormat) {
    product(bencher, Isa::widest(), format, 160 * ROWS, 1);
}

/// One token without vector instructions.
#[divan::bench(args = WeightFormat::ALL)]
fn gemv_portable(bencher: Bencher<'_, '_>, format: WeightFormat) {
    product(bencher, Isa::PORTABLE, format, 16 * ROWS, 1);
}

/// The naive form: rows dequantised to memory, then a dot product.
#[divan::bench(args = WeightFormat::ALL)]
fn gemv_dequantise_then_dot(bencher: Bencher<'_, '_>, format: WeightFormat) {
    let m = matrix(format, 16 * ROWS);
    let x: Vec<f32> = (0..COLS).map(|i| (i as f32 * 0.37).sin()).collect();
    let (mut row, mut out) = (vec![0.0f32; COLS], vec![0.0f32; 16 * ROWS]);
    bencher.counter(BytesCount::new(m.bytes())).bench_local(|| {
        for (r, out) in out.iter_mut().enumerate() {
            m.dequantise_rows(r..r + 1, &mut row);
            *out = row.iter().zip(&x).map(|(w, x)| w * x).sum();
        }
    });
}

/// Four sequences decoded together.
#[divan::bench(args = WeightFormat::ALL)]
fn four_tokens(bencher: Bencher<'_, '_>, format: WeightFormat) {
    product(bencher, Isa::widest(), format, 16 * ROWS, 4);
}

/// A prefill chunk: items are FLOP.
#[divan::bench(args = WeightFormat::ALL)]
fn prefill_512(bencher: Bencher<'_, '_>, format: WeightFormat) {
    product(bencher, Isa::widest(), format, ROWS, 512);
}

/// The same by `matrixmultiply`, weights as f32 already.
#[divan::bench]
fn prefill_512_matrixmultiply(bencher: Bencher<'_, '_>) {
    let (w, xs) = (vec![0.5f32; ROWS * COLS], vec![0.25f32; 512 * COLS]);
    let mut out = vec![0.0f32; 512 * ROWS];
    let (k, n) = (COLS as isize, ROWS as isize);
    bencher.counter(ItemsCount::new(2 * ROWS * COLS * 512)).bench_local(|| {
        // SAFETY: `[512, k] @ [n, k]^T` into `[512, n]`.
        unsafe {
            matrixmultiply::sgemm(
                512,
                COLS,
                ROWS,
                1.0,
                xs.as_ptr(),
                k,
                1,
                w.as_ptr(),
                1,
                k,
                0.0,
                out.as_mut_ptr(),
                n,
                1,
            );
        }
    });
}
