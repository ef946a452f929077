//! Pages and who holds them.
use std::cell::UnsafeCell;

use super::KvDtype;

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
    /// Exact bytes a token takes: `2 * layers * kv_heads * head_dim * bytes(dtype)`.
    pub fn bytes_per_token(&self) -> usize {
        2 * self.layers * self.kv_heads * self.head_dim * self.dtype.bytes()
    }

    /// Values of one head in one page.
    fn block(&self) -> usize {
        PAGE_TOKENS * self.head_dim
    }

    /// Values of a page: `[layers][k, v][kv_heads][64][head_dim]`.
    fn page(&self) -> usize {
        self.layers * 2 * self.kv_heads * self.block()
    }

    fn offset(&self, page: u32, layer: usize, value: bool, head: usize) -> usize {
        page as usize * self.page() + ((layer * 2 + usize::from(value)) * self.kv_heads + head) * self.block()
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
    F32(UnsafeCell<Vec<f32>>),
    Bf16(UnsafeCell<Vec<u16>>),
}

// SAFETY: the engine's thread writes tokens of one layer, and only after that do workers read them; `write` takes `&mut self`.
unsafe impl Sync for KvPool {}

/// Keys or values of one head in one page as f32, `[64][head_dim]`.
pub enum PageBlock<'a> {
    /// In place.
    Stored(&'a [f32]),
    /// Decoded into the caller's scratch.
    Decoded(&'a [f32]),
}

impl std::ops::Deref for PageBlock<'_> {
    type Target = [f32];
    fn deref(&self) -> &[f32] {
        match self {
            Self::Stored(values) | Self::Decoded(values) => values,
        }
    }
}

fn bf16_bits(value: f32) -> u16 {
    half::bf16::from_f32(value).to_bits()
}

impl KvPool {
    /// A pool of `pages` pages, all free. Memory is taken from the system when a page is first written.
    pub fn new(layout: KvLayout, pages: usize) -> Self {
        let values = pages * layout.page();
        let store = match layout.dtype {
            KvDtype::F32 => Store::F32(UnsafeCell::new(vec![0.0; values])),
            KvDtype::Bf16 => Store::Bf16(UnsafeCell::new(vec![0; values])),
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

    /// Stores key and value of one token. `key`, `value`: `[kv_heads][head_dim]`.
    pub fn write(&mut self, table: &[u32], layer: usize, position: usize, key: &[f32], value: &[f32]) {
        let layout = self.layout;
        let (page, slot, dim) = (table[position / PAGE_TOKENS], position % PAGE_TOKENS, layout.head_dim);
        for (is_value, row) in [(false, key), (true, value)] {
            for (head, row) in row.chunks_exact(dim).enumerate() {
                let at = layout.offset(page, layer, is_value, head) + slot * dim;
                match &mut self.store {
                    Store::F32(values) => values.get_mut()[at..at + dim].copy_from_slice(row),
                    Store::Bf16(values) => {
                        for (stored, &v) in values.get_mut()[at..at + dim].iter_mut().zip(row) {
                            *stored = bf16_bits(v);
                        }
                    }
                }
            }
        }
    }

    /// The first `tokens` rows of keys (or values) of one head in one page. `scratch`: at least `64 * head_dim`.
    pub fn block<'a>(
        &'a self,
        page: u32,
        layer: usize,
        value: bool,
        head: usize,
        tokens: usize,
        scratch: &'a mut [f32],
    ) -> PageBlock<'a> {
        let at = self.layout.offset(page, layer, value, head);
        let n = tokens * self.layout.head_dim;
        match &self.store {
            // SAFETY: nobody writes while a shared reference is out: `write` takes `&mut self`.
            Store::F32(values) => PageBlock::Stored(unsafe { &(&*values.get())[at..at + n] }),
            Store::Bf16(values) => {
                // SAFETY: as above.
                let stored = unsafe { &(&*values.get())[at..at + n] };
                for (out, &bits) in scratch[..n].iter_mut().zip(stored) {
                    *out = f32::from_bits(u32::from(bits) << 16);
                }
                PageBlock::Decoded(&scratch[..n])
            }
        }
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
            for position in 0..130usize {
                let row: Vec<f32> = (0..12).map(|i| (position * 12 + i) as f32 + 0.3).collect();
                let negative: Vec<f32> = row.iter().map(|v| -v).collect();
                pool.write(&table, 1, position, &row, &negative);
            }
            let mut scratch = vec![0.0; 256];
            for position in [0usize, 63, 64, 129] {
                for head in 0..3 {
                    let block = pool.block(table[position / 64], 1, true, head, position % 64 + 1, &mut scratch);
                    let want = -((position * 12 + head * 4 + 2) as f32 + 0.3);
                    let want = if dtype == KvDtype::Bf16 { half::bf16::from_f32(want).to_f32() } else { want };
                    assert_eq!(block[(position % 64) * 4 + 2], want);
                }
            }
        }
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
    }
}
