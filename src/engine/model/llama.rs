//! The Llama family: `x += Wo attn(rms(x)); x += Wdown swiglu(Wgate rms(x), Wup rms(x))`, then `logits = head rms(x)`.
//!
//! Bytes of a decode step: every weight once, and each sequence's keys and values once. FLOP of a prefill token: 2 a weight of the layers,
//! plus `4 * heads * head_dim` a position and layer for attention. A step is five parallel regions a layer and one for the head.
//!
//! Every number of a token depends on the tokens before it alone: not on the chunk, the batch or the threads ([`dot`](crate::engine::op::dot),
//! [`attention`]).
use std::ops::Range;
use std::sync::Arc;

use super::{Batch, Logits, Span};
use crate::engine::kv::{KvDtype, KvLayout, KvPool};
use crate::engine::op::attention::{AttentionScratch, MAX_ROWS, Queries, Reading, attend};
use crate::engine::op::buffer::{Buffer, Disjoint};
use crate::engine::op::elementwise::{RopeTable, add, rms_norm, swiglu};
use crate::engine::op::isa::Isa;
use crate::engine::op::linear::{Product, Tiles, linear};
use crate::engine::weights::{Layer, ModelFile, ModelShape};
use crate::engine::worker_pool::{PerThread, WorkerPool};

/// Queries of one head that a prefill task answers: whole register tiles of 6.
const QUERY_BLOCK: usize = 48;

/// Rows below which a token-wise operation is done by the calling thread: waking others would take longer.
const SERIAL_ROWS: usize = 8;

/// A model with its memory: weights, KV pages, workspace, threads.
pub struct Llama {
    model: Arc<ModelFile>,
    isa: Isa,
    workers: WorkerPool,
    kv: KvPool,
    rope: RopeTable,
    tiles: Tiles,
    attention: PerThread<AttentionScratch>,
    space: Workspace,
    logits: Buffer<f32>,
}

/// Activations of one step, `[max_tokens, width]` each.
struct Workspace {
    x: Buffer<f32>,
    normed: Buffer<f32>,
    q: Buffer<f32>,
    k: Buffer<f32>,
    v: Buffer<f32>,
    attended: Buffer<f32>,
    gate: Buffer<f32>,
    up: Buffer<f32>,
    delta: Buffer<f32>,
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

fn widest(shape: &ModelShape) -> usize {
    shape.hidden.max(shape.feed_forward).max(shape.q_width())
}

impl LlamaSize {
    /// Bytes of everything but weights and KV pages.
    pub fn workspace_bytes(&self, shape: &ModelShape) -> usize {
        let widths = Workspace::widths(shape);
        widths.iter().map(|width| Buffer::<f32>::bytes(self.max_tokens * width)).sum::<usize>()
            + Buffer::<f32>::bytes(self.max_logits * shape.vocabulary)
            + Tiles::bytes(self.threads, widest(shape))
            + self.threads * AttentionScratch::bytes(self.attention_rows(shape), self.max_context)
            + RopeTable::bytes(self.max_context, shape.head_dim)
    }

    /// Rows of scores a task holds: a block of tokens of one head, or the heads of one group.
    fn attention_rows(&self, shape: &ModelShape) -> usize {
        (shape.heads / shape.kv_heads).min(MAX_ROWS).max(QUERY_BLOCK.min(self.max_tokens))
    }
}

impl Workspace {
    fn widths(s: &ModelShape) -> [usize; 9] {
        let (q, kv, ff) = (s.q_width(), s.kv_width(), s.feed_forward);
        [s.hidden, s.hidden, q, kv, kv, q, ff, ff, s.hidden]
    }

    fn new(shape: &ModelShape, tokens: usize) -> Self {
        let [x, normed, q, k, v, attended, gate, up, delta] =
            Self::widths(shape).map(|width| Buffer::zeroed(tokens * width));
        Self { x, normed, q, k, v, attended, gate, up, delta }
    }
}

impl Llama {
    /// Takes all memory the model will ever use, with the widest instructions of this CPU.
    pub fn new(model: Arc<ModelFile>, size: LlamaSize) -> Self {
        Self::with_isa(model, size, Isa::widest())
    }

    /// The same with the instructions given.
    pub fn with_isa(model: Arc<ModelFile>, size: LlamaSize, isa: Isa) -> Self {
        let s = &model.shape;
        let workers = WorkerPool::new(size.threads);
        let threads = workers.threads();
        let rows = size.attention_rows(s);
        let layout = KvLayout { layers: s.layers, kv_heads: s.kv_heads, head_dim: s.head_dim, dtype: size.kv_dtype };
        Self {
            isa,
            kv: KvPool::new(layout, size.pages),
            rope: RopeTable::new(size.max_context, s.head_dim, s.rope_theta),
            tiles: Tiles::new(threads, widest(s)),
            attention: PerThread::new(threads, || AttentionScratch::new(rows, size.max_context)),
            space: Workspace::new(s, size.max_tokens),
            logits: Buffer::zeroed(size.max_logits * s.vocabulary),
            workers,
            model,
        }
    }

    /// The KV pages.
    pub fn kv(&mut self) -> &mut KvPool {
        &mut self.kv
    }

    /// The instructions that run.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// A chunk of one sequence's prompt, at most `max_tokens` tokens. Returns logits `[rows, vocabulary]` as asked.
    ///
    /// Panics for a token outside the vocabulary.
    pub fn prefill(&mut self, span: Span<'_>, want: Logits) -> &[f32] {
        let rows = span.tokens.len();
        let logits = match want {
            Logits::None => 0,
            Logits::Last => rows.min(1),
            Logits::All => rows,
        };
        let token = |row: usize| Token { id: span.tokens[row], position: span.first + row, table: span.table };
        self.forward(rows, logits, &token, Step::Prefill)
    }

    /// One new token of every sequence, at most `max_tokens` and `max_logits`. Returns logits `[sequences, vocabulary]`.
    ///
    /// Panics for a token outside the vocabulary.
    pub fn decode(&mut self, batch: &(impl Batch + ?Sized)) -> &[f32] {
        let rows = batch.sequences();
        let token = |row: usize| {
            let span = batch.span(row);
            Token { id: span.tokens[0], position: span.first, table: span.table }
        };
        self.forward(rows, rows, &token, Step::Decode)
    }

    fn forward<'a>(
        &mut self,
        n: usize,
        wanted: usize,
        token: &(dyn Fn(usize) -> Token<'a> + Sync),
        step: Step,
    ) -> &[f32] {
        let Self { model, isa, workers, kv, rope, tiles, attention, space, logits } = self;
        let (isa, shape, weights) = (*isa, &model.shape, &model.weights);
        let (hidden, q_width, kv_width, ff) = (shape.hidden, shape.q_width(), shape.kv_width(), shape.feed_forward);
        let space = &mut *space;
        for (row, x) in space.x[..n * hidden].chunks_exact_mut(hidden).enumerate() {
            let id = token(row).id as usize;
            weights.token_embedding.dequantise_rows(id..id + 1, x);
        }
        let last_layer = weights.layers.len().wrapping_sub(1);
        // Rows that go on: in the last layer only those whose logits are wanted.
        let mut active = 0..n;
        for (number, layer) in weights.layers.iter().enumerate() {
            let Layer { attn_norm, ffn_norm, .. } = layer;
            norm(workers, &space.x[..n * hidden], attn_norm, shape.rms_eps, &mut space.normed);
            let mut products = [
                Product { matrix: &layer.q, out: &mut space.q[..n * q_width] },
                Product { matrix: &layer.k, out: &mut space.k[..n * kv_width] },
                Product { matrix: &layer.v, out: &mut space.v[..n * kv_width] },
            ];
            linear(workers, isa, tiles, &space.normed[..n * hidden], &mut products);
            rotate_and_store(workers, shape, rope, kv, number, n, token, space);
            if number == last_layer {
                active = n - wanted..n;
            }
            let (from, rows) = (active.start, active.len());
            let heads = Heads { shape, isa, layer: number, rows: active.clone(), token, step };
            heads.attend(workers, attention, kv, &space.q, &mut space.attended);
            let x = &mut space.x[from * hidden..n * hidden];
            let delta = &mut space.delta[..rows * hidden];
            let attended = &space.attended[from * q_width..n * q_width];
            linear(workers, isa, tiles, attended, &mut [Product { matrix: &layer.o, out: delta }]);
            add_rows(workers, x, delta, hidden);
            norm(workers, x, ffn_norm, shape.rms_eps, &mut space.normed);
            let (gate, up) = (&mut space.gate[..rows * ff], &mut space.up[..rows * ff]);
            let mut products = [Product { matrix: &layer.gate, out: gate }, Product { matrix: &layer.up, out: up }];
            linear(workers, isa, tiles, &space.normed[..rows * hidden], &mut products);
            swiglu_rows(workers, &mut space.gate[..rows * ff], &space.up[..rows * ff], ff);
            let gate = &space.gate[..rows * ff];
            linear(workers, isa, tiles, gate, &mut [Product { matrix: &layer.down, out: delta }]);
            add_rows(workers, x, delta, hidden);
        }
        if wanted == 0 {
            return &[];
        }
        norm(
            workers,
            &space.x[(n - wanted) * hidden..n * hidden],
            &weights.output_norm,
            shape.rms_eps,
            &mut space.normed,
        );
        let logits = &mut logits[..wanted * shape.vocabulary];
        let normed = &space.normed[..wanted * hidden];
        linear(workers, isa, tiles, normed, &mut [Product { matrix: weights.head(), out: logits }]);
        logits
    }
}

/// One row of a step.
struct Token<'a> {
    id: u32,
    position: usize,
    table: &'a [u32],
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Rows are tokens in a row of one sequence.
    Prefill,
    /// Rows are tokens of different sequences.
    Decode,
}

/// Calls `body` with ranges that cover `rows`, on all threads when there are enough of them.
fn by_rows(workers: &mut WorkerPool, rows: usize, body: &(dyn Fn(Range<usize>) + Sync)) {
    if rows < SERIAL_ROWS {
        return body(0..rows);
    }
    let each = rows.div_ceil(workers.threads() * 2);
    workers.run(rows.div_ceil(each), &|task, _| body(task * each..((task + 1) * each).min(rows)));
}

fn norm(workers: &mut WorkerPool, x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    let width = weight.len();
    let out = Disjoint::new(&mut out[..x.len()]);
    by_rows(workers, x.len() / width, &|rows| {
        for row in rows {
            let row = row * width..(row + 1) * width;
            // SAFETY: every row is one task's.
            rms_norm(&x[row.clone()], weight, eps, unsafe { out.part(row) });
        }
    });
}

fn add_rows(workers: &mut WorkerPool, x: &mut [f32], y: &[f32], width: usize) {
    let rows = x.len() / width;
    let x = Disjoint::new(x);
    by_rows(workers, rows, &|rows| {
        let part = rows.start * width..rows.end * width;
        // SAFETY: every row is one task's.
        add(unsafe { x.part(part.clone()) }, &y[part]);
    });
}

fn swiglu_rows(workers: &mut WorkerPool, gate: &mut [f32], up: &[f32], width: usize) {
    let rows = gate.len() / width;
    let gate = Disjoint::new(gate);
    by_rows(workers, rows, &|rows| {
        let part = rows.start * width..rows.end * width;
        // SAFETY: every row is one task's.
        swiglu(unsafe { gate.part(part.clone()) }, &up[part]);
    });
}

#[allow(clippy::too_many_arguments)] // the borrowed parts of a `Llama`, each of another type
fn rotate_and_store<'a>(
    workers: &mut WorkerPool,
    shape: &ModelShape,
    rope: &RopeTable,
    kv: &mut KvPool,
    layer: usize,
    n: usize,
    token: &(dyn Fn(usize) -> Token<'a> + Sync),
    space: &mut Workspace,
) {
    let (dim, q_width, kv_width) = (shape.head_dim, shape.q_width(), shape.kv_width());
    let (q, k) = (Disjoint::new(&mut space.q[..n * q_width]), Disjoint::new(&mut space.k[..n * kv_width]));
    let (v, writer) = (&space.v, kv.writer());
    by_rows(workers, n, &|rows| {
        for row in rows {
            let Token { position, table, .. } = token(row);
            // SAFETY: every row is one task's.
            let (q, k) =
                unsafe { (q.part(row * q_width..(row + 1) * q_width), k.part(row * kv_width..(row + 1) * kv_width)) };
            q.chunks_exact_mut(dim).for_each(|head| rope.rotate(head, position, shape.rope_pairs));
            k.chunks_exact_mut(dim).for_each(|head| rope.rotate(head, position, shape.rope_pairs));
            // SAFETY: rows of a step are different tokens, each stored by one task.
            unsafe { writer.write(table, layer, position, k, &v[row * kv_width..(row + 1) * kv_width]) };
        }
    });
}

/// Attention of one layer.
struct Heads<'s, 't> {
    shape: &'s ModelShape,
    isa: Isa,
    layer: usize,
    rows: Range<usize>,
    token: &'s (dyn Fn(usize) -> Token<'t> + Sync),
    step: Step,
}

impl Heads<'_, '_> {
    fn attend(
        &self,
        workers: &mut WorkerPool,
        scratch: &PerThread<AttentionScratch>,
        pool: &KvPool,
        q: &[f32],
        out: &mut [f32],
    ) {
        let (heads, kv_heads, dim) = (self.shape.heads, self.shape.kv_heads, self.shape.head_dim);
        let (width, group) = (heads * dim, heads / kv_heads);
        let Range { start, end } = self.rows;
        assert!(end * width <= q.len() && end * width <= out.len(), "{} rows fit the workspace", end);
        let out = Disjoint::new(out);
        let run = |kv_head: usize, at: usize, queries: Queries, table: &[u32], thread: usize| {
            let reading = Reading { pool, table, layer: self.layer, kv_head };
            debug_assert!(at < end * width);
            // SAFETY: this thread's own scratch; tasks answer disjoint rows and heads, all inside `q` and `out`.
            unsafe { attend(self.isa, reading, queries, scratch.get(thread)) };
        };
        let queries = |at: usize| (q[at..].as_ptr(), out.pointer(at, end * width));
        match self.step {
            Step::Prefill => {
                let blocks = self.rows.len().div_ceil(QUERY_BLOCK);
                workers.run(blocks * heads, &|task, thread| {
                    // The last blocks see the most positions: they go first, so that no thread is left with one at the end.
                    let (block, head) = (blocks - 1 - task / heads, task % heads);
                    let first = start + block * QUERY_BLOCK;
                    let at = first * width + head * dim;
                    let ((q, out), Token { position, table, .. }) = (queries(at), (self.token)(first));
                    let rows = (end - first).min(QUERY_BLOCK);
                    let queries = Queries { q, out, stride: width, rows, first_sees: position + 1, each_sees: 1 };
                    run(head / group, at, queries, table, thread);
                });
            }
            Step::Decode => {
                // Heads of a group share what they read; they go apart when there is too little work for all threads.
                let apart = group > MAX_ROWS || self.rows.len() * kv_heads < workers.threads() * 4;
                let (each, rows) = if apart { (heads, 1) } else { (kv_heads, group) };
                workers.run(self.rows.len() * each, &|task, thread| {
                    let (row, head) = (start + task / each, task % each * rows);
                    let at = row * width + head * dim;
                    let ((q, out), Token { position, table, .. }) = (queries(at), (self.token)(row));
                    let queries = Queries { q, out, stride: dim, rows, first_sees: position + 1, each_sees: 0 };
                    run(head / group, at, queries, table, thread);
                });
            }
        }
    }
}
