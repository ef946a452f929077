//! The Llama family: `x += Wo attn(rms(x)); x += Wdown swiglu(Wgate rms(x), Wup rms(x))`, then `logits = head rms(x)`.
//!
//! Bytes of a decode step: every weight once for up to four sequences, plus each sequence's keys and values. FLOP of a prefill
//! token: 2 a weight, plus `4 * heads * head_dim` a position and layer for attention.
use std::sync::Arc;

use crate::engine::kv::{KvDtype, KvLayout, KvPool};
use crate::engine::op::attention::{self, AttentionScratch, Reading};
use crate::engine::op::elementwise::{RopeTable, add, rms_norm, swiglu};
use crate::engine::op::linear::{Product, Tiles, linear_decode, linear_prefill};
use crate::engine::weights::{Layer, ModelFile};
use crate::engine::worker_pool::WorkerPool;
use std::cell::UnsafeCell;

/// Queries a prefill attention task handles at once.
const QUERY_BLOCK: usize = 64;

/// New tokens of one sequence.
#[derive(Debug, Clone, Copy)]
pub struct Span<'a> {
    /// The tokens.
    pub tokens: &'a [u32],
    /// Position of the first.
    pub first: usize,
    /// Pages of the sequence, enough for all of them.
    pub table: &'a [u32],
}

/// Which positions get logits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Logits {
    /// None: a chunk of prefill that is not the last.
    None,
    /// The last token of every span.
    Last,
    /// Every token.
    All,
}

/// A model with its memory: weights, KV pages, workspace, threads.
pub struct Llama {
    model: Arc<ModelFile>,
    workers: WorkerPool,
    kv: KvPool,
    rope: RopeTable,
    tiles: Tiles,
    attention: PerThread<AttentionScratch>,
    space: Workspace,
    logits: Vec<f32>,
}

struct PerThread<T>(Vec<UnsafeCell<T>>);

// SAFETY: each thread of the pool uses the entry of its own number.
unsafe impl<T: Send> Sync for PerThread<T> {}

/// Activations of one step, `[max_tokens, width]` each.
struct Workspace {
    x: Vec<f32>,
    normed: Vec<f32>,
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    attended: Vec<f32>,
    gate: Vec<f32>,
    up: Vec<f32>,
    hidden: Vec<f32>,
    last: Vec<f32>,
}

/// What a [`Llama`] is built for.
#[derive(Debug, Clone, Copy)]
pub struct LlamaSize {
    /// Threads.
    pub threads: usize,
    /// Most tokens of one forward call.
    pub max_tokens: usize,
    /// Most positions of a sequence.
    pub max_context: usize,
    /// Most rows of logits of one call.
    pub max_logits: usize,
    /// KV pages.
    pub pages: usize,
    /// KV dtype.
    pub kv_dtype: KvDtype,
}

impl LlamaSize {
    /// Bytes of everything but weights and KV pages.
    pub fn workspace_bytes(&self, model: &ModelFile) -> usize {
        let s = &model.shape;
        let row = 4 * s.hidden + 2 * s.q_width() + 2 * s.kv_width() + 2 * s.feed_forward;
        let widest = s.hidden.max(s.feed_forward).max(s.q_width());
        let scores = AttentionScratch::bytes(self.attention_rows(model), self.max_context, s.head_dim);
        (self.max_tokens * row + self.max_logits * (s.hidden + s.vocabulary)) * size_of::<f32>()
            + Tiles::bytes(self.threads, widest)
            + self.threads * scores
            + self.max_context * s.head_dim * size_of::<f32>()
    }

    fn attention_rows(&self, model: &ModelFile) -> usize {
        (model.shape.heads / model.shape.kv_heads).max(QUERY_BLOCK.min(self.max_tokens))
    }
}

impl Llama {
    /// Takes all memory the model will ever use.
    pub fn new(model: Arc<ModelFile>, size: LlamaSize) -> Self {
        let s = &model.shape;
        let workers = WorkerPool::new(size.threads);
        let n = size.max_tokens;
        let floats = |width: usize| vec![0.0f32; n * width];
        let space = Workspace {
            x: floats(s.hidden),
            normed: floats(s.hidden),
            q: floats(s.q_width()),
            k: floats(s.kv_width()),
            v: floats(s.kv_width()),
            attended: floats(s.q_width()),
            gate: floats(s.feed_forward),
            up: floats(s.feed_forward),
            hidden: floats(s.hidden),
            last: vec![0.0; size.max_logits * s.hidden],
        };
        let widest = s.hidden.max(s.feed_forward).max(s.q_width());
        let rows = size.attention_rows(&model);
        let scratch = (0..workers.threads())
            .map(|_| UnsafeCell::new(AttentionScratch::new(rows, size.max_context, s.head_dim)))
            .collect();
        let layout = KvLayout { layers: s.layers, kv_heads: s.kv_heads, head_dim: s.head_dim, dtype: size.kv_dtype };
        Self {
            kv: KvPool::new(layout, size.pages),
            rope: RopeTable::new(size.max_context, s.head_dim, s.rope_theta),
            tiles: Tiles::new(workers.threads(), widest),
            attention: PerThread(scratch),
            space,
            logits: vec![0.0; size.max_logits * s.vocabulary],
            workers,
            model,
        }
    }

    /// The KV pages.
    pub fn kv(&mut self) -> &mut KvPool {
        &mut self.kv
    }

    /// A chunk of one sequence's prompt. Returns logits `[rows, vocabulary]` as asked.
    pub fn prefill(&mut self, span: Span<'_>, want: Logits) -> &[f32] {
        self.forward(&[span], want, true)
    }

    /// One new token of every sequence. Returns logits `[spans, vocabulary]`.
    pub fn decode(&mut self, spans: &[Span<'_>]) -> &[f32] {
        self.forward(spans, Logits::Last, false)
    }

    fn forward(&mut self, spans: &[Span<'_>], want: Logits, prefill: bool) -> &[f32] {
        let Self { model, workers, kv, rope, tiles, attention, space, logits } = self;
        let (shape, weights) = (&model.shape, &model.weights);
        let n: usize = spans.iter().map(|span| span.tokens.len()).sum();
        let hidden = shape.hidden;
        let (q_width, kv_width, ff) = (shape.q_width(), shape.kv_width(), shape.feed_forward);
        let Workspace { x, normed, q, k, v, attended, gate, up, hidden: delta, last } = space;
        let (x, normed, delta) = (&mut x[..n * hidden], &mut normed[..n * hidden], &mut delta[..n * hidden]);
        let (q, k, v) = (&mut q[..n * q_width], &mut k[..n * kv_width], &mut v[..n * kv_width]);
        let (attended, gate, up) = (&mut attended[..n * q_width], &mut gate[..n * ff], &mut up[..n * ff]);
        let ids = spans.iter().flat_map(|span| span.tokens);
        for (&id, row) in ids.zip(x.chunks_exact_mut(hidden)) {
            let id = (id as usize).min(shape.vocabulary - 1);
            weights.token_embedding.dequantise_rows(id..id + 1, row);
        }
        let product = |workers: &mut WorkerPool, xs: &[f32], products: &mut [Product<'_>]| {
            if prefill { linear_prefill(workers, tiles, xs, products) } else { linear_decode(workers, xs, products) }
        };
        for (number, layer) in weights.layers.iter().enumerate() {
            let Layer { attn_norm, ffn_norm, .. } = layer;
            norm_rows(x, attn_norm, shape.rms_eps, normed);
            product(
                workers,
                normed,
                &mut [
                    Product { matrix: &layer.q, out: q },
                    Product { matrix: &layer.k, out: k },
                    Product { matrix: &layer.v, out: v },
                ],
            );
            let mut token = 0;
            for span in spans {
                for i in 0..span.tokens.len() {
                    let position = span.first + i;
                    let key = &mut k[token * kv_width..(token + 1) * kv_width];
                    for head in q[token * q_width..(token + 1) * q_width].chunks_exact_mut(shape.head_dim) {
                        rope.rotate(head, position, shape.rope_pairs);
                    }
                    for head in key.chunks_exact_mut(shape.head_dim) {
                        rope.rotate(head, position, shape.rope_pairs);
                    }
                    kv.write(span.table, number, position, key, &v[token * kv_width..(token + 1) * kv_width]);
                    token += 1;
                }
            }
            let heads = Heads { heads: shape.heads, kv_heads: shape.kv_heads, dim: shape.head_dim, layer: number };
            if prefill {
                attend_prefill(workers, attention, kv, heads, spans[0], q, attended);
            } else {
                attend_decode(workers, attention, kv, heads, spans, q, attended);
            }
            product(workers, attended, &mut [Product { matrix: &layer.o, out: delta }]);
            add(x, delta);
            norm_rows(x, ffn_norm, shape.rms_eps, normed);
            product(
                workers,
                normed,
                &mut [Product { matrix: &layer.gate, out: gate }, Product { matrix: &layer.up, out: up }],
            );
            // `gate` is read and written element by element.
            let (gate_in, out) = (&*up, &mut *gate);
            swiglu_in_place(out, gate_in);
            product(workers, gate, &mut [Product { matrix: &layer.down, out: delta }]);
            add(x, delta);
        }
        let rows: Vec<usize> = match want {
            Logits::None => return &[],
            Logits::All => (0..n).collect(),
            Logits::Last => spans
                .iter()
                .scan(0, |end, span| {
                    *end += span.tokens.len();
                    Some(*end - 1)
                })
                .collect(),
        };
        let last = &mut last[..rows.len() * hidden];
        for (&row, out) in rows.iter().zip(last.chunks_exact_mut(hidden)) {
            rms_norm(&x[row * hidden..(row + 1) * hidden], &weights.output_norm, shape.rms_eps, out);
        }
        let logits = &mut logits[..rows.len() * shape.vocabulary];
        linear_decode(workers, last, &mut [Product { matrix: weights.head(), out: logits }]);
        logits
    }
}

fn norm_rows(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    for (x, out) in x.chunks_exact(weight.len()).zip(out.chunks_exact_mut(weight.len())) {
        rms_norm(x, weight, eps, out);
    }
}

/// `gate = silu(gate) * up` through a small buffer, since input and output are the same slice.
fn swiglu_in_place(gate: &mut [f32], up: &[f32]) {
    let mut buffer = [0.0f32; 256];
    for (gate, up) in gate.chunks_mut(256).zip(up.chunks(256)) {
        let out = &mut buffer[..gate.len()];
        swiglu(gate, up, out);
        gate.copy_from_slice(out);
    }
}

#[derive(Clone, Copy)]
struct Heads {
    heads: usize,
    kv_heads: usize,
    dim: usize,
    layer: usize,
}

fn attend_decode(
    workers: &mut WorkerPool,
    scratch: &PerThread<AttentionScratch>,
    pool: &KvPool,
    heads: Heads,
    spans: &[Span<'_>],
    q: &[f32],
    out: &mut [f32],
) {
    let group = heads.heads / heads.kv_heads * heads.dim;
    let target = Shared(out.as_mut_ptr());
    workers.run(spans.len() * heads.kv_heads, &|task, thread| {
        let span = &spans[task / heads.kv_heads];
        // SAFETY: this thread's own scratch.
        let scratch = unsafe { &mut *scratch.0[thread].get() };
        let at = task * group;
        // SAFETY: tasks write disjoint groups of heads, all inside `out`, which is as long as `q`.
        let out = unsafe { std::slice::from_raw_parts_mut(target.pointer().add(at), group) };
        let reading = Reading { pool, table: span.table, layer: heads.layer, kv_head: task % heads.kv_heads };
        attention::decode(reading, span.first + 1, &q[at..at + group], scratch, out);
    });
}

fn attend_prefill(
    workers: &mut WorkerPool,
    scratch: &PerThread<AttentionScratch>,
    pool: &KvPool,
    heads: Heads,
    span: Span<'_>,
    q: &[f32],
    out: &mut [f32],
) {
    let width = heads.heads * heads.dim;
    let tokens = span.tokens.len();
    let blocks = tokens.div_ceil(QUERY_BLOCK);
    let target = Shared(out.as_mut_ptr());
    workers.run(blocks * heads.heads, &|task, thread| {
        // The last blocks see the most positions: they go first, so that no thread is left with one at the end.
        let (block, head) = (blocks - 1 - task / heads.heads, task % heads.heads);
        let start = block * QUERY_BLOCK;
        let rows = (tokens - start).min(QUERY_BLOCK);
        let at = start * width + head * heads.dim;
        // SAFETY: this thread's own scratch.
        let scratch = unsafe { &mut *scratch.0[thread].get() };
        let kv_head = head / (heads.heads / heads.kv_heads);
        let reading = Reading { pool, table: span.table, layer: heads.layer, kv_head };
        // SAFETY: tasks write disjoint rows and heads, all inside `out`, which is as long as `q`.
        unsafe {
            let to = (target.pointer().add(at), width);
            attention::prefill(reading, span.first + start, rows, (&q[at..], width), scratch, to);
        }
    });
}

#[derive(Clone, Copy)]
struct Shared(*mut f32);

impl Shared {
    fn pointer(self) -> *mut f32 {
        self.0
    }
}

// SAFETY: tasks write disjoint parts.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

/// Logits of every position of `tokens`, handed to `each(position, logits)` chunk by chunk: for perplexity and log-probabilities.
pub fn evaluate(
    model: &Arc<ModelFile>,
    tokens: &[u32],
    threads: usize,
    kv_dtype: KvDtype,
    mut each: impl FnMut(usize, &[f32]),
) {
    const CHUNK: usize = 128;
    let pages = tokens.len().div_ceil(crate::engine::kv::PAGE_TOKENS);
    let size =
        LlamaSize { threads, max_tokens: CHUNK, max_context: tokens.len().max(1), max_logits: CHUNK, pages, kv_dtype };
    let mut llama = Llama::new(Arc::clone(model), size);
    let table = llama.kv().reserve(tokens.len()).unwrap_or_default();
    let vocabulary = model.shape.vocabulary;
    for (number, chunk) in tokens.chunks(CHUNK).enumerate() {
        let first = number * CHUNK;
        let logits = llama.prefill(Span { tokens: chunk, first, table: &table }, Logits::All);
        for (i, row) in logits.chunks_exact(vocabulary).enumerate() {
            each(first + i, row);
        }
    }
}
