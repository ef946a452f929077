//! Matrix products of a step, spread over the worker pool.
use super::dot::{Columns, MAX_TOGETHER, dot_rows};
use crate::engine::weights::Matrix;
use crate::engine::worker_pool::WorkerPool;
use std::cell::UnsafeCell;

/// One product `out = xs @ W^T`: `W` `[rows, cols]`, `xs` `[tokens, cols]`, `out` `[tokens, rows]`, all row-major.
pub struct Product<'a> {
    /// The weights.
    pub matrix: &'a Matrix,
    /// Where the result goes.
    pub out: &'a mut [f32],
}

/// Rows of weights dequantised at once in prefill: large enough that packing the activations again for every tile is a small part
/// (measured: 64 rows cost 25 % over 288), small enough that a tile of 1,536 columns stays in the L2/L3 cache.
const TILE_ROWS: usize = 288;

/// Scratch of every thread: one dequantised tile.
pub struct Tiles {
    threads: Vec<UnsafeCell<Vec<f32>>>,
}

// SAFETY: each thread of a pool uses the entry of its own number.
unsafe impl Sync for Tiles {}

impl Tiles {
    /// Room for tiles of `max_cols` columns on `threads` threads.
    pub fn new(threads: usize, max_cols: usize) -> Self {
        Self { threads: (0..threads).map(|_| UnsafeCell::new(vec![0.0; TILE_ROWS * max_cols])).collect() }
    }

    /// Bytes held.
    pub fn bytes(threads: usize, max_cols: usize) -> usize {
        threads * TILE_ROWS * max_cols * size_of::<f32>()
    }
}

struct Task {
    product: usize,
    rows: std::ops::Range<usize>,
}

fn split(products: &[Product<'_>], rows_each: impl Fn(&Matrix) -> usize) -> Vec<Task> {
    let mut tasks = Vec::new();
    for (product, p) in products.iter().enumerate() {
        let each = rows_each(p.matrix).max(1);
        let mut start = 0;
        while start < p.matrix.rows {
            let end = (start + each).min(p.matrix.rows);
            tasks.push(Task { product, rows: start..end });
            start = end;
        }
    }
    tasks
}

/// The decode form: few tokens, weights decoded in registers and read once for every [`MAX_TOGETHER`] tokens.
///
/// Every `out[t, r]` is one fixed sum, whatever the batch and the number of threads.
pub fn linear_decode(pool: &mut WorkerPool, xs: &[f32], products: &mut [Product<'_>]) {
    let tokens = products.first().map_or(0, |p| xs.len() / p.matrix.cols);
    let total: usize = products.iter().map(|p| p.matrix.rows).sum();
    // About four tasks a thread: enough to even out, few enough that taking one costs nothing beside it.
    let each = total.div_ceil(pool.threads() * 4).max(8);
    let tasks = split(products, |_| each);
    let columns: Vec<(&Matrix, Columns)> = products
        .iter_mut()
        .map(|p| (p.matrix, Columns::new(&mut p.out[..tokens * p.matrix.rows], p.matrix.rows)))
        .collect();
    pool.run(tasks.len(), &|task, _| {
        let Task { product, rows } = &tasks[task];
        let (matrix, out) = columns[*product];
        // SAFETY: tasks hold disjoint rows.
        unsafe { dot_rows(matrix, rows.clone(), xs, out) };
    });
}

/// The prefill form: a tile of weights is dequantised once and multiplied with all tokens by an f32 GEMM.
///
/// Every `out[t, r]` is one fixed sum over `cols`, whatever the tile, the other tokens and the number of threads.
pub fn linear_prefill(pool: &mut WorkerPool, tiles: &Tiles, xs: &[f32], products: &mut [Product<'_>]) {
    let tokens = products.first().map_or(0, |p| xs.len() / p.matrix.cols);
    let threads = pool.threads();
    let tasks = split(products, |m| {
        // The same number of tiles for every thread, none above TILE_ROWS.
        let rounds = m.rows.div_ceil(threads * TILE_ROWS);
        m.rows.div_ceil(threads * rounds).next_multiple_of(8).min(TILE_ROWS)
    });
    let columns: Vec<(&Matrix, Columns)> = products
        .iter_mut()
        .map(|p| (p.matrix, Columns::new(&mut p.out[..tokens * p.matrix.rows], p.matrix.rows)))
        .collect();
    pool.run(tasks.len(), &|task, thread| {
        let Task { product, rows } = &tasks[task];
        let (matrix, out) = columns[*product];
        let (n, k) = (rows.len(), matrix.cols);
        // SAFETY: this thread's own scratch.
        let tile = unsafe { &mut *tiles.threads[thread].get() };
        let tile = &mut tile[..n * k];
        matrix.dequantise_rows(rows.clone(), tile);
        // SAFETY: xs is [tokens, k], tile [n, k] read as its transpose, and the columns of these rows are this task's alone.
        unsafe {
            matrixmultiply::sgemm(
                tokens,
                k,
                n,
                1.0,
                xs.as_ptr(),
                k as isize,
                1,
                tile.as_ptr(),
                1,
                k as isize,
                0.0,
                out.at(rows.start),
                out.stride() as isize,
                1,
            );
        }
    });
}

/// Tokens up to which the decode form is used for a group of sequences; it is always used for decode, never for prefill.
pub const DECODE_GROUP: usize = MAX_TOGETHER;
