//! Matrix products of a step, spread over the worker pool by rows of weights.
use super::buffer::{Buffer, Disjoint};
use super::dot::{FUSED_TOKENS, dot_rows};
use super::isa::Isa;
use crate::engine::weights::Matrix;
use crate::engine::worker_pool::{PerThread, WorkerPool};

/// One product `out = xs @ W^T`: `W` `[rows, cols]`, `xs` `[tokens, cols]`, `out` `[tokens, rows]`, all row-major.
pub struct Product<'a> {
    /// The weights.
    pub matrix: &'a Matrix,
    /// Where the result goes.
    pub out: &'a mut [f32],
}

/// Most products of the same activations at once: queries, keys and values.
const MAX_PRODUCTS: usize = 3;

/// Bytes of a decoded tile: it stays in L2 while every token passes by.
const TILE_BYTES: usize = 192 << 10;

/// Rows of a tile of `cols` columns: a multiple of 4, the register tile.
fn tile_rows(cols: usize) -> usize {
    (TILE_BYTES / (cols * size_of::<f32>()) / 4 * 4).clamp(4, 64)
}

/// Scratch of every thread: one decoded tile.
pub struct Tiles(PerThread<Buffer<f32>>);

impl Tiles {
    /// Room for tiles of up to `max_cols` columns on `threads` threads.
    pub fn new(threads: usize, max_cols: usize) -> Self {
        Self(PerThread::new(threads, || Buffer::zeroed(Self::floats(max_cols))))
    }

    /// Bytes held.
    pub fn bytes(threads: usize, max_cols: usize) -> usize {
        threads * Buffer::<f32>::bytes(Self::floats(max_cols))
    }

    fn floats(max_cols: usize) -> usize {
        (TILE_BYTES / size_of::<f32>()).max(4 * max_cols)
    }
}

struct Part<'a> {
    matrix: &'a Matrix,
    out: Disjoint<'a, f32>,
    /// Tasks up to and with this product.
    tasks_end: usize,
}

/// Computes up to three products of the same activations in one parallel region.
///
/// Every `out[t, r]` has bits that depend on row `r` and token `t` alone ([`dot`](super::dot)). Allocates nothing.
pub fn linear(pool: &mut WorkerPool, isa: Isa, tiles: &Tiles, xs: &[f32], products: &mut [Product<'_>]) {
    assert!(products.len() <= MAX_PRODUCTS, "{} products", products.len());
    let Some(cols) = products.first().map(|p| p.matrix.cols) else { return };
    let total: usize = products.iter().map(|p| p.matrix.rows).sum();
    let each = if xs.len() / cols > FUSED_TOKENS {
        tile_rows(cols)
    } else {
        // About four tasks a thread even out a late one; taking one costs nothing beside its rows.
        total.div_ceil(pool.threads() * 4).next_multiple_of(4).max(8)
    };
    let mut tasks = 0;
    let mut parts: [Option<Part<'_>>; MAX_PRODUCTS] = [const { None }; MAX_PRODUCTS];
    for (part, product) in parts.iter_mut().zip(products) {
        assert_eq!(product.matrix.cols, cols, "products of the same activations have the same columns");
        tasks += product.matrix.rows.div_ceil(each);
        *part = Some(Part { matrix: product.matrix, out: Disjoint::new(product.out), tasks_end: tasks });
    }
    pool.run(tasks, &|task, thread| {
        let mut before = 0;
        for part in parts.iter().flatten() {
            if task < part.tasks_end {
                let start = (task - before) * each;
                let rows = start..(start + each).min(part.matrix.rows);
                // SAFETY: this thread's own scratch; tasks hold disjoint rows of disjoint products.
                unsafe { dot_rows(isa, part.matrix, rows, xs, tiles.0.get(thread), &part.out) };
                return;
            }
            before = part.tasks_end;
        }
    });
}
