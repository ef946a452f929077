//! Causal attention with grouped queries over paged keys and values, without a copy of the cache.
//!
//! `out[h] = softmax_p(q[h] . k[p] / sqrt(head_dim)) @ v[p]` over positions `p <= position`; query head `h` uses KV head
//! `h / (heads / kv_heads)`. Source: Vaswani et al. 2017, arXiv:1706.03762; groups: Ainslie et al. 2023, arXiv:2305.13245.
//!
//! Floor of a decoded token: its sequence's keys and values are read once, `bytes_per_token * length`. FLOP: 4 a stored value and query.
//! Keys lie `[head_dim][64]` in a page, so 64 scores grow side by side in registers and no register is ever folded.
//!
//! Order of addition: scores over `head_dim` upwards, weights over 8 lanes of positions, values over positions upwards. It depends on the
//! position alone: a query has the same bits in a prefill chunk of any size and in decode.
use super::elementwise::softmax_unnormalised;
use super::isa::{Isa, by_isa};
use super::vector::{LANES, Vector};
use crate::engine::kv::{KvPool, PAGE_TOKENS, PageValues};

/// Scores of one thread: `[rows][positions]`.
pub struct AttentionScratch(Vec<f32>);

impl AttentionScratch {
    /// Room for `rows` queries over `context` positions.
    pub fn new(rows: usize, context: usize) -> Self {
        Self(vec![0.0; rows * context.next_multiple_of(PAGE_TOKENS)])
    }

    /// Bytes held by one thread's scratch.
    pub fn bytes(rows: usize, context: usize) -> usize {
        rows * context.next_multiple_of(PAGE_TOKENS) * size_of::<f32>()
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

/// Some queries of one KV head and where their answers go. Row `i` of both lies `stride` floats after row `i - 1`.
#[derive(Clone, Copy)]
pub struct Queries {
    /// First query, `[head_dim]`.
    pub q: *const f32,
    /// First answer, `[head_dim]`.
    pub out: *mut f32,
    /// Distance of two rows, of `q` and `out` alike.
    pub stride: usize,
    /// Rows.
    pub rows: usize,
    /// Positions the first row sees.
    pub first_sees: usize,
    /// How many more each next row sees: 1 for tokens in a row, 0 for heads of the same token.
    pub each_sees: usize,
}

/// A value of the cache as it is stored.
trait Element: Copy {
    /// # Safety
    /// A register of values is readable, and the instructions of `V` are there.
    unsafe fn load<V: Vector>(from: *const Self) -> V;
    fn value(self) -> f32;
}

impl Element for f32 {
    #[inline(always)]
    unsafe fn load<V: Vector>(from: *const f32) -> V {
        // SAFETY: the caller's promise.
        unsafe { V::load(from) }
    }
    #[inline(always)]
    fn value(self) -> f32 {
        self
    }
}

impl Element for u16 {
    #[inline(always)]
    unsafe fn load<V: Vector>(from: *const u16) -> V {
        // SAFETY: the caller's promise.
        unsafe { V::load_bf16(from) }
    }
    #[inline(always)]
    fn value(self) -> f32 {
        f32::from_bits(u32::from(self) << 16)
    }
}

/// `c[i, j] (+)= sum_k a[i, k] * b[k, j]`, the sum over `k` upwards. `a`, `c` have rows of their strides, `b` rows of `n` values.
#[derive(Clone, Copy)]
struct Update<E> {
    a: *const f32,
    a_stride: usize,
    b: *const E,
    c: *mut f32,
    c_stride: usize,
    rows: usize,
    k: usize,
    n: usize,
    /// Columns computed, at most `n`.
    columns: usize,
    /// Whether `c` is added to.
    more: bool,
}

/// `M` rows and `N` registers of columns.
#[inline(always)]
unsafe fn update_tile<V: Vector, E: Element, const M: usize, const N: usize>(u: Update<E>) {
    // SAFETY: the caller has M rows and N registers of columns.
    unsafe {
        let mut sums = [[V::splat(0.0); N]; M];
        if u.more {
            for (m, sums) in sums.iter_mut().enumerate() {
                for (n, sum) in sums.iter_mut().enumerate() {
                    *sum = V::load(u.c.add(m * u.c_stride + n * V::WIDTH));
                }
            }
        }
        for k in 0..u.k {
            let mut b = [V::splat(0.0); N];
            for (n, b) in b.iter_mut().enumerate() {
                *b = E::load::<V>(u.b.add(k * u.n + n * V::WIDTH));
            }
            for (m, sums) in sums.iter_mut().enumerate() {
                let a = V::splat(*u.a.add(m * u.a_stride + k));
                for (sum, b) in sums.iter_mut().zip(b) {
                    *sum = a.mul_add(b, *sum);
                }
            }
        }
        for (m, sums) in sums.into_iter().enumerate() {
            for (n, sum) in sums.into_iter().enumerate() {
                sum.store(u.c.add(m * u.c_stride + n * V::WIDTH));
            }
        }
    }
}

/// All columns for `M` rows; what is left of a register is done value by value in the same order.
#[inline(always)]
unsafe fn update_rows<V: Vector, E: Element, const M: usize, const N: usize>(u: Update<E>) {
    // SAFETY: moves inside the caller's columns.
    unsafe {
        let mut at = 0;
        let step = |at: usize| Update { b: u.b.add(at), c: u.c.add(at), ..u };
        while at + N * V::WIDTH <= u.columns {
            update_tile::<V, E, M, N>(step(at));
            at += N * V::WIDTH;
        }
        while at + V::WIDTH <= u.columns {
            update_tile::<V, E, M, 1>(step(at));
            at += V::WIDTH;
        }
        for column in at..u.columns {
            for m in 0..M {
                let c = u.c.add(m * u.c_stride + column);
                let mut sum = if u.more { *c } else { 0.0 };
                for k in 0..u.k {
                    sum = V::scalar_mul_add(*u.a.add(m * u.a_stride + k), (*u.b.add(k * u.n + column)).value(), sum);
                }
                *c = sum;
            }
        }
    }
}

#[inline(always)]
unsafe fn update<V: Vector, E: Element>(mut u: Update<E>) {
    // SAFETY: advances inside the caller's rows.
    unsafe {
        while u.rows > 0 {
            let rows = u.rows.min(6);
            match (rows, V::MANY) {
                (1, _) => update_rows::<V, E, 1, 4>(u),
                (2, _) => update_rows::<V, E, 2, 4>(u),
                (3, false) => update_rows::<V, E, 3, 2>(u),
                (4, false) => update_rows::<V, E, 4, 2>(u),
                (5, false) => update_rows::<V, E, 5, 2>(u),
                (_, false) => update_rows::<V, E, 6, 2>(u),
                (3, true) => update_rows::<V, E, 3, 4>(u),
                (4, true) => update_rows::<V, E, 4, 4>(u),
                (5, true) => update_rows::<V, E, 5, 4>(u),
                (_, true) => update_rows::<V, E, 6, 4>(u),
            }
            u.a = u.a.add(rows * u.a_stride);
            u.c = u.c.add(rows * u.c_stride);
            u.rows -= rows;
        }
    }
}

#[inline(always)]
unsafe fn f32_body<V: Vector>(u: Update<f32>) {
    // SAFETY: the caller's promise.
    unsafe { update::<V, f32>(u) }
}

#[inline(always)]
unsafe fn bf16_body<V: Vector>(u: Update<u16>) {
    // SAFETY: the caller's promise.
    unsafe { update::<V, u16>(u) }
}

by_isa! {
    /// # Safety
    /// `u` describes readable `a`, `b` and writable `c`.
    unsafe fn update_f32(u: Update<f32>) = f32_body
}

by_isa! {
    /// # Safety
    /// `u` describes readable `a`, `b` and writable `c`.
    unsafe fn update_bf16(u: Update<u16>) = bf16_body
}

/// `c (+)= a @ page`, `page` `[k][n]`.
///
/// # Safety
/// `a` has `rows` rows of `k` floats and `c` writable rows of `columns`.
unsafe fn times_page(isa: Isa, page: PageValues<'_>, u: Update<()>) {
    assert!(u.k * u.n <= page.len() && u.columns <= u.n, "a page holds what is read");
    let Update { a, a_stride, b: _, c, c_stride, rows, k, n, columns, more } = u;
    // SAFETY: the caller's promise, and the page was measured.
    unsafe {
        match page {
            PageValues::F32(v) => {
                update_f32(isa, Update { a, a_stride, b: v.as_ptr(), c, c_stride, rows, k, n, columns, more })
            }
            PageValues::Bf16(v) => {
                update_bf16(isa, Update { a, a_stride, b: v.as_ptr(), c, c_stride, rows, k, n, columns, more })
            }
        }
    }
}

/// Answers some queries of one KV head. Sees what lies in the cache: keys and values of these tokens are written before.
///
/// # Safety
/// Rows of `queries.q` are readable and rows of `queries.out` writable, `[head_dim]` each, and no other thread touches the latter.
pub unsafe fn attend(isa: Isa, reading: Reading<'_>, queries: Queries, scratch: &mut AttentionScratch) {
    let Reading { pool, table, layer, kv_head } = reading;
    let Queries { q, out, stride, rows, first_sees, each_sees } = queries;
    if rows == 0 {
        return;
    }
    let dim = pool.layout().head_dim;
    let scale = 1.0 / (dim as f32).sqrt();
    let length = first_sees + (rows - 1) * each_sees;
    let padded = length.next_multiple_of(PAGE_TOKENS);
    let scores = &mut scratch.0[..rows * padded];
    let pages = || table[..length.div_ceil(PAGE_TOKENS)].iter().enumerate();
    for (number, &page) in pages() {
        let start = number * PAGE_TOKENS;
        let product = Update {
            a: q,
            a_stride: stride,
            b: std::ptr::null(),
            c: scores[start..].as_mut_ptr(),
            c_stride: padded,
            rows,
            k: dim,
            n: PAGE_TOKENS,
            // Positions not yet written are computed too where a register reaches past the end; nobody reads them.
            columns: (length - start).min(PAGE_TOKENS).next_multiple_of(LANES),
            more: false,
        };
        // SAFETY: rows of q as the caller vouches; every row of scores has `padded` floats.
        unsafe { times_page(isa, pool.keys(page, layer, kv_head), product) };
    }
    // Few rows are a group or a block: their sums fit here.
    let mut sums = [0.0f32; MAX_ROWS];
    assert!(rows <= MAX_ROWS, "{rows} rows");
    for (row, sum) in sums[..rows].iter_mut().enumerate() {
        let seen = first_sees + row * each_sees;
        let line = &mut scores[row * padded..(row + 1) * padded];
        *sum = softmax_unnormalised(&mut line[..seen], scale);
        // Later positions of this block weigh nothing: adding 0 * v leaves every bit of a sum as it is.
        line[seen..length].fill(0.0);
    }
    for (number, &page) in pages() {
        let start = number * PAGE_TOKENS;
        let product = Update {
            a: scores[start..].as_ptr(),
            a_stride: padded,
            b: std::ptr::null(),
            c: out,
            c_stride: stride,
            rows,
            k: (length - start).min(PAGE_TOKENS),
            n: dim,
            columns: dim,
            more: number > 0,
        };
        // SAFETY: rows of out as the caller vouches.
        unsafe { times_page(isa, pool.values(page, layer, kv_head), product) };
    }
    for (row, sum) in sums[..rows].iter().enumerate() {
        let inverse = 1.0 / sum;
        // SAFETY: a row of out, `head_dim` floats.
        unsafe { std::slice::from_raw_parts_mut(out.add(row * stride), dim) }.iter_mut().for_each(|o| *o *= inverse);
    }
}

/// Most queries answered at once.
pub const MAX_ROWS: usize = 64;
