//! Pages and who holds them.
use super::KvDtype;
use crate::engine::op::buffer::{Buffer, Disjoint};

/// Tokens in a page.
pub const PAGE_TOKENS: usize = 64;

/// Sizes that fix a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvLayout {
    /// Decoder layers.
    pub layers: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// How values are stored.
    pub dtype: KvDtype,
}

impl KvLayout {
    /// Exact bytes a token takes: `2 * layers * kv_heads * head_dim * bits(dtype) / 8`.
    pub fn bytes_per_token(&self) -> usize {
        2 * self.layers * self.kv_heads * self.head_dim * self.dtype.bytes()
    }

    /// Values of one head in one page.
    fn block(&self) -> usize {
        PAGE_TOKENS * self.head_dim
    }

    /// Values of a page: `[layers][kv_heads][keys [head_dim][64], values [64][head_dim]]`.
    fn page(&self) -> usize {
        self.layers * self.kv_heads * 2 * self.block()
    }

    fn keys(&self, page: u32, layer: usize, head: usize) -> usize {
        assert!(layer < self.layers && head < self.kv_heads, "layer {layer}, head {head} of {self:?}");
        page as usize * self.page() + (layer * self.kv_heads + head) * 2 * self.block()
    }

    fn values(&self, page: u32, layer: usize, head: usize) -> usize {
        self.keys(page, layer, head) + self.block()
    }
}

/// All pages of an engine.
pub struct KvPool {
    layout: KvLayout,
    store: Store,
    free: Vec<u32>,
    pages: usize,
}

enum Store {
    F32(Buffer<f32>),
    Bf16(Buffer<u16>),
}

/// Keys `[head_dim][64]` or values `[64][head_dim]` of one head in one page, as stored.
#[derive(Clone, Copy)]
pub enum PageValues<'a> {
    /// 32-bit floats.
    F32(&'a [f32]),
    /// Upper halves of 32-bit floats.
    Bf16(&'a [u16]),
}

impl PageValues<'_> {
    /// Number of values.
    pub fn len(&self) -> usize {
        match self {
            Self::F32(v) => v.len(),
            Self::Bf16(v) => v.len(),
        }
    }

    /// Never: a page holds 64 tokens.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Value `at` as f32.
    pub fn at(&self, at: usize) -> f32 {
        match self {
            Self::F32(v) => v[at],
            Self::Bf16(v) => f32::from_bits(u32::from(v[at]) << 16),
        }
    }
}

/// The upper half of `value`, rounded to nearest even; NaN stays NaN.
fn bf16_bits(value: f32) -> u16 {
    half::bf16::from_f32(value).to_bits()
}

impl KvPool {
    /// A pool of `pages` pages, all free. The system gives a page its memory when it is first written.
    ///
    /// Panics for a dtype that [`KvDtype::is_supported`] refuses.
    pub fn new(layout: KvLayout, pages: usize) -> Self {
        let values = pages * layout.page();
        let store = match layout.dtype {
            KvDtype::F32 => Store::F32(Buffer::zeroed(values)),
            KvDtype::Bf16 => Store::Bf16(Buffer::zeroed(values)),
            other => panic!("the capacity planner refuses `{}`", other.word()),
        };
        // Handed out from the end, so page 0 first.
        let free = (0..u32::try_from(pages).unwrap_or(u32::MAX)).rev().collect();
        Self { layout, store, free, pages }
    }

    /// Sizes.
    pub fn layout(&self) -> KvLayout {
        self.layout
    }

    /// Pages in all, and free ones.
    pub fn pages(&self) -> (usize, usize) {
        (self.pages, self.free.len())
    }

    /// Takes pages for `tokens` tokens, or none at all when fewer are free.
    pub fn reserve(&mut self, tokens: usize) -> Option<Vec<u32>> {
        let n = tokens.div_ceil(PAGE_TOKENS);
        (n <= self.free.len()).then(|| self.free.split_off(self.free.len() - n).into_iter().rev().collect())
    }

    /// Gives pages back.
    pub fn release(&mut self, table: Vec<u32>) {
        self.free.extend(table.into_iter().rev());
    }

    /// The pool as several threads write it, each other tokens.
    pub fn writer(&mut self) -> KvWriter<'_> {
        let layout = self.layout;
        match &mut self.store {
            Store::F32(values) => KvWriter { layout, store: Writing::F32(Disjoint::new(values)) },
            Store::Bf16(values) => KvWriter { layout, store: Writing::Bf16(Disjoint::new(values)) },
        }
    }

    /// Keys of one head in one page, `[head_dim][64]`.
    pub fn keys(&self, page: u32, layer: usize, head: usize) -> PageValues<'_> {
        self.slice(self.layout.keys(page, layer, head))
    }

    /// Values of one head in one page, `[64][head_dim]`.
    pub fn values(&self, page: u32, layer: usize, head: usize) -> PageValues<'_> {
        self.slice(self.layout.values(page, layer, head))
    }

    fn slice(&self, at: usize) -> PageValues<'_> {
        let end = at + self.layout.block();
        match &self.store {
            Store::F32(values) => PageValues::F32(&values[at..end]),
            Store::Bf16(values) => PageValues::Bf16(&values[at..end]),
        }
    }
}

/// A pool while it is written.
pub struct KvWriter<'a> {
    layout: KvLayout,
    store: Writing<'a>,
}

enum Writing<'a> {
    F32(Disjoint<'a, f32>),
    Bf16(Disjoint<'a, u16>),
}

impl KvWriter<'_> {
    /// Stores key and value of one token. `key`, `value`: `[kv_heads][head_dim]`.
    ///
    /// # Safety
    /// No other thread writes the same token of the same table at the same time.
    pub unsafe fn write(&self, table: &[u32], layer: usize, position: usize, key: &[f32], value: &[f32]) {
        let (page, slot, dim) = (table[position / PAGE_TOKENS], position % PAGE_TOKENS, self.layout.head_dim);
        for head in 0..self.layout.kv_heads {
            let (keys, values) = (self.layout.keys(page, layer, head), self.layout.values(page, layer, head));
            let (key, value) = (&key[head * dim..(head + 1) * dim], &value[head * dim..(head + 1) * dim]);
            match &self.store {
                // SAFETY: these slots belong to this token alone.
                Writing::F32(store) => unsafe { put(store, keys + slot, values + slot * dim, key, value, |v| v) },
                // SAFETY: as above.
                Writing::Bf16(store) => unsafe { put(store, keys + slot, values + slot * dim, key, value, bf16_bits) },
            }
        }
    }
}

/// # Safety
/// The slots of this token are written by this thread alone.
unsafe fn put<T>(
    store: &Disjoint<'_, T>,
    keys: usize,
    values: usize,
    key: &[f32],
    value: &[f32],
    as_stored: impl Fn(f32) -> T,
) {
    let column = store.pointer(keys, keys + (key.len() - 1) * PAGE_TOKENS + 1);
    for (d, &v) in key.iter().enumerate() {
        // SAFETY: inside the range just checked; one column of the page, which is this token's.
        unsafe { column.add(d * PAGE_TOKENS).write(as_stored(v)) };
    }
    // SAFETY: this token's row.
    for (to, &v) in unsafe { store.part(values..values + value.len()) }.iter_mut().zip(value) {
        *to = as_stored(v);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(dtype: KvDtype) -> KvLayout {
        KvLayout { layers: 2, kv_heads: 3, head_dim: 4, dtype }
    }

    #[test]
    fn what_is_written_is_read_back_in_its_place_and_bf16_rounds_to_even() {
        for dtype in [KvDtype::F32, KvDtype::Bf16] {
            let mut pool = KvPool::new(layout(dtype), 4);
            let table = pool.reserve(130).expect("three pages of four");
            let writer = pool.writer();
            for position in 0..130usize {
                let row: Vec<f32> = (0..12).map(|i| (position * 12 + i) as f32 + 0.3).collect();
                let negative: Vec<f32> = row.iter().map(|v| -v).collect();
                // SAFETY: one thread.
                unsafe { writer.write(&table, 1, position, &row, &negative) };
            }
            let stored = |v: f32| if dtype == KvDtype::Bf16 { half::bf16::from_f32(v).to_f32() } else { v };
            for position in 0..130usize {
                let (page, slot) = (table[position / 64], position % 64);
                for head in 0..3 {
                    for d in 0..4 {
                        let want = stored((position * 12 + head * 4 + d) as f32 + 0.3);
                        assert_eq!(pool.keys(page, 1, head).at(d * 64 + slot), want);
                        assert_eq!(pool.values(page, 1, head).at(slot * 4 + d), -want);
                        assert_eq!(pool.keys(page, 0, head).at(d * 64 + slot), 0.0, "another layer");
                    }
                }
            }
        }
    }

    #[test]
    fn bf16_rounds_to_nearest_and_a_tie_to_even() {
        // 1 + 1/256 lies half-way between 1 and 1 + 1/128; 1 + 3/256 between 1 + 1/128 and 1 + 2/128.
        assert_eq!(bf16_bits(1.0 + 1.0 / 256.0), 0x3F80);
        assert_eq!(bf16_bits(1.0 + 3.0 / 256.0), 0x3F82);
        assert_eq!(bf16_bits(1.0 + 1.01 / 256.0), 0x3F81);
        assert_eq!(bf16_bits(-0.0), 0x8000);
    }

    #[test]
    fn pages_are_taken_whole_or_not_at_all_and_come_back() {
        let mut pool = KvPool::new(layout(KvDtype::F32), 3);
        let first = pool.reserve(65).expect("two pages");
        assert_eq!(first, [0, 1]);
        assert!(pool.reserve(65).is_none());
        assert_eq!(pool.pages(), (3, 1));
        pool.release(first);
        assert_eq!(pool.pages(), (3, 3));
        assert_eq!(layout(KvDtype::Bf16).bytes_per_token(), 2 * 2 * 3 * 4 * 2);
        assert_eq!(layout(KvDtype::F32).bytes_per_token(), 2 * 2 * 3 * 4 * 4);
    }
}
