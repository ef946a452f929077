//! Speed of turning stored weights into f32, per format: `cargo bench --bench dequantise`.
//!
//! Counted in bytes of f32 written, for a matrix that fits the cache (the engine dequantises tiles).
use divan::{Bencher, counter::BytesCount};
use inferlab::engine::weights::{Matrix, WeightFormat};

fn main() {
    divan::main();
}

const ROWS: usize = 16;
const COLS: usize = 2048;

#[divan::bench(args = WeightFormat::ALL)]
fn dequantise(bencher: Bencher, format: WeightFormat) {
    let bytes = vec![0x3C; ROWS * COLS / format.block() * format.block_bytes()];
    let matrix = Matrix::from_bytes(ROWS, COLS, format, bytes).expect("whole blocks");
    let mut out = vec![0.0f32; ROWS * COLS];
    bencher.counter(BytesCount::of_slice(&out)).bench_local(|| matrix.dequantise_rows(0..ROWS, &mut out));
}
