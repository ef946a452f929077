//! Every operation of the engine against the same formula written naively in f64, on every instruction set of this CPU.
use inferlab::engine::KvDtype;
use inferlab::engine::kv::{KvLayout, KvPool};
use inferlab::engine::op::attention::{AttentionScratch, Queries, Reading, attend};
use inferlab::engine::op::buffer::Disjoint;
use inferlab::engine::op::dot::dot_rows;
use inferlab::engine::op::elementwise::{RopeTable, rms_norm, softmax_unnormalised, swiglu};
use inferlab::engine::op::isa::Isa;
use inferlab::engine::op::linear::{Product, Tiles, linear};
use inferlab::engine::weights::{Matrix, RopePairs, WeightFormat};
use inferlab::engine::worker_pool::WorkerPool;

/// Reproducible values in [-1, 1).
pub fn values(n: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    (0..n)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 40) as f32 / (1u32 << 23) as f32) - 1.0
        })
        .collect()
}

/// Random stored weights whose scales and exponents keep every value below about 2.
pub fn matrix(format: WeightFormat, rows: usize, cols: usize, seed: u64) -> Matrix {
    let n = rows * cols / format.block() * format.block_bytes();
    let mut raw: Vec<u8> = values(n, seed).iter().map(|v| (v * 128.0) as i32 as u8).collect();
    match format {
        WeightFormat::F32 => raw.chunks_exact_mut(4).for_each(|b| b[3] = 0x3E | (b[3] & 0x80)),
        WeightFormat::F16 => raw.chunks_exact_mut(2).for_each(|b| b[1] = 0x30 | (b[1] & 0x83)),
        WeightFormat::BF16 => raw.chunks_exact_mut(2).for_each(|b| b[1] = 0x3E | (b[1] & 0x80)),
        WeightFormat::Q8_0 => raw.chunks_exact_mut(34).for_each(|b| b[1] = 0x20 | (b[1] & 0x80)),
        WeightFormat::Q4_1 => raw.chunks_exact_mut(20).for_each(|b| (b[1], b[3]) = (0x2C, 0xB4 | (b[3] & 3))),
    }
    Matrix::from_bytes(rows, cols, format, raw).expect("whole blocks")
}

#[test]
fn products_of_every_format_meet_f64_and_have_the_same_bits_for_any_batch_tile_and_thread_count() {
    // 37 rows leave a rest in every register tile; 13 tokens leave one in every token group.
    let (rows, cols, most) = (37, 192, 13);
    let xs = values(most * cols, 2);
    for format in WeightFormat::ALL {
        let m = matrix(format, rows, cols, 1);
        let mut w = vec![0.0f32; rows * cols];
        m.dequantise_rows(0..rows, &mut w);
        for isa in Isa::available() {
            let mut alone = vec![0.0f32; most * rows];
            for (x, out) in xs.chunks_exact(cols).zip(alone.chunks_exact_mut(rows)) {
                // SAFETY: one thread.
                unsafe { dot_rows(isa, &m, 0..rows, x, &mut [], &Disjoint::new(out)) };
            }
            for t in 0..most {
                for r in 0..rows {
                    let terms = || (0..cols).map(|c| f64::from(w[r * cols + c]) * f64::from(xs[t * cols + c]));
                    let (want, size): (f64, f64) = (terms().sum(), terms().map(f64::abs).sum());
                    let got = f64::from(alone[t * rows + r]);
                    assert!((got - want).abs() <= 1e-6 * size, "{format:?} {} [{t},{r}]: {got} {want}", isa.name());
                }
            }
            for tokens in 1..=most {
                for threads in [1, 2, 3] {
                    let (mut pool, tiles) = (WorkerPool::new(threads), Tiles::new(threads, cols));
                    let mut out = vec![0.0f32; tokens * rows];
                    let mut products = [Product { matrix: &m, out: &mut out }];
                    linear(&mut pool, isa, &tiles, &xs[..tokens * cols], &mut products);
                    assert_eq!(
                        out,
                        alone[..tokens * rows],
                        "{format:?} {} {tokens} tokens, {threads} threads",
                        isa.name()
                    );
                }
            }
        }
    }
}

#[test]
fn avx2_and_avx512_give_the_same_bits() {
    let wide: Vec<Isa> = Isa::available().into_iter().skip(1).collect();
    let [first, second] = wide[..] else {
        println!("skipped: this CPU has not both");
        return;
    };
    let xs = values(7 * 256, 5);
    for format in WeightFormat::ALL {
        let m = matrix(format, 21, 256, 3);
        for tokens in [1, 2, 3, 4, 5, 7] {
            let product = |isa| {
                let (mut out, mut scratch) = (vec![0.0f32; tokens * 21], vec![0.0f32; 21 * 256]);
                // SAFETY: one thread.
                unsafe { dot_rows(isa, &m, 0..21, &xs[..tokens * 256], &mut scratch, &Disjoint::new(&mut out)) };
                out
            };
            assert_eq!(product(first), product(second), "{format:?}");
        }
    }
}

#[test]
fn three_products_of_the_same_activations_are_each_their_own() {
    let (cols, tokens) = (64, 9);
    let (a, b, c) = (
        matrix(WeightFormat::Q4_1, 40, cols, 1),
        matrix(WeightFormat::F32, 8, cols, 2),
        matrix(WeightFormat::Q8_0, 71, cols, 3),
    );
    let xs = values(tokens * cols, 4);
    let (mut pool, tiles) = (WorkerPool::new(2), Tiles::new(2, cols));
    let mut alone = [vec![0.0f32; tokens * 40], vec![0.0f32; tokens * 8], vec![0.0f32; tokens * 71]];
    for (m, out) in [&a, &b, &c].into_iter().zip(&mut alone) {
        linear(&mut pool, Isa::widest(), &tiles, &xs, &mut [Product { matrix: m, out }]);
    }
    let mut together = alone.clone().map(|v| vec![0.0f32; v.len()]);
    let [x, y, z] = &mut together;
    let mut products = [Product { matrix: &a, out: x }, Product { matrix: &b, out: y }, Product { matrix: &c, out: z }];
    linear(&mut pool, Isa::widest(), &tiles, &xs, &mut products);
    assert_eq!(together, alone);
}

#[test]
fn rms_norm_meets_f64() {
    for n in [1, 7, 64, 577] {
        let (x, w) = (values(n, 1), values(n, 2));
        let mut out = vec![0.0; n];
        rms_norm(&x, &w, 1e-5, &mut out);
        let mean = x.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>() / n as f64;
        for i in 0..n {
            let want = f64::from(x[i]) / (mean + 1e-5).sqrt() * f64::from(w[i]);
            assert!((f64::from(out[i]) - want).abs() <= 1e-6 * want.abs() + 1e-7, "{n} {i}");
        }
    }
}

#[test]
fn swiglu_and_softmax_meet_f64_far_out_too() {
    let gate: Vec<f32> = (-300..300).map(|i| i as f32 / 2.9).collect();
    let up = values(600, 3);
    let mut got = gate.clone();
    swiglu(&mut got, &up);
    for i in 0..600 {
        let want = f64::from(gate[i]) / (1.0 + (-f64::from(gate[i])).exp()) * f64::from(up[i]);
        assert!((f64::from(got[i]) - want).abs() <= 1e-6 * want.abs() + 1e-30, "{}: {} {want}", gate[i], got[i]);
    }
    for n in [1, 8, 77, 1000] {
        let scores: Vec<f32> = values(n, 9).iter().map(|v| v * 60.0).collect();
        let mut got = scores.clone();
        let sum = f64::from(softmax_unnormalised(&mut got, 0.7));
        let max = scores.iter().copied().fold(f32::MIN, f32::max);
        let want: Vec<f64> = scores.iter().map(|&s| (f64::from(s - max) * f64::from(0.7f32)).exp()).collect();
        let total: f64 = want.iter().sum();
        for i in 0..n {
            let (got, want) = (f64::from(got[i]) / sum, want[i] / total);
            assert!((got - want).abs() <= 1e-6 * want + 1e-9, "{got} {want}");
        }
    }
}

#[test]
fn rotation_meets_f64_for_both_pairings_at_far_positions() {
    let (dim, theta) = (64usize, 100_000.0f32);
    let table = RopeTable::new(8192, dim, theta);
    for position in [0usize, 1, 77, 4095, 8191] {
        let head = values(dim, position as u64 + 1);
        for pairs in [RopePairs::Interleaved, RopePairs::Halves] {
            let mut got = head.clone();
            table.rotate(&mut got, position, pairs);
            for j in 0..dim / 2 {
                let (a, b) = match pairs {
                    RopePairs::Interleaved => (2 * j, 2 * j + 1),
                    RopePairs::Halves => (j, j + dim / 2),
                };
                let angle = position as f64 * f64::from(theta).powf(-2.0 * j as f64 / dim as f64);
                let (x, y) = (f64::from(head[a]), f64::from(head[b]));
                assert!((f64::from(got[a]) - (x * angle.cos() - y * angle.sin())).abs() < 2e-7, "{pairs:?} {position}");
                assert!((f64::from(got[b]) - (x * angle.sin() + y * angle.cos())).abs() < 2e-7, "{pairs:?} {position}");
            }
        }
    }
}

struct Cache {
    pool: KvPool,
    table: Vec<u32>,
    keys: Vec<f32>,
    values: Vec<f32>,
}

/// A cache of `n` tokens in layer 1 of 2, its pages in a scrambled order.
fn cache(dtype: KvDtype, kv_heads: usize, head_dim: usize, n: usize) -> Cache {
    let mut pool = KvPool::new(KvLayout { layers: 2, kv_heads, head_dim, dtype }, n.div_ceil(64) + 1);
    let mut table = pool.reserve(n).expect("pages");
    table.reverse();
    let width = kv_heads * head_dim;
    let round = |v: f32| if dtype == KvDtype::Bf16 { half::bf16::from_f32(v).to_f32() } else { v };
    let rows = |seed| -> Vec<f32> { values(n * width, seed).into_iter().map(|v| v * 2.0).collect() };
    let (keys, values) = (rows(11), rows(12));
    let writer = pool.writer();
    for p in 0..n {
        let row = p * width..(p + 1) * width;
        // SAFETY: one thread.
        unsafe { writer.write(&table, 1, p, &keys[row.clone()], &values[row]) };
    }
    let stored = |v: Vec<f32>| v.into_iter().map(round).collect();
    Cache { table, keys: stored(keys), values: stored(values), pool }
}

fn reference(cache: &Cache, kv_heads: usize, kv_head: usize, q: &[f32], seen: usize) -> Vec<f64> {
    let dim = q.len();
    let row = |all: &[f32], p: usize, d: usize| f64::from(all[(p * kv_heads + kv_head) * dim + d]);
    let score = |p| (0..dim).map(|d| f64::from(q[d]) * row(&cache.keys, p, d)).sum::<f64>() / (dim as f64).sqrt();
    let scores: Vec<f64> = (0..seen).map(score).collect();
    let max = scores.iter().copied().fold(f64::MIN, f64::max);
    let total: f64 = scores.iter().map(|s| (s - max).exp()).sum();
    (0..dim)
        .map(|d| (0..seen).map(|p| (scores[p] - max).exp() / total * row(&cache.values, p, d)).sum::<f64>())
        .collect()
}

#[test]
fn attention_meets_f64_and_a_query_has_the_same_bits_in_a_block_and_alone() {
    // 20 values a head leave a rest beside every register; 7 and 13 rows leave one in every row tile.
    for (kv_heads, dim) in [(2, 64), (1, 32), (3, 20)] {
        for dtype in [KvDtype::F32, KvDtype::Bf16] {
            for (first, rows) in [(0usize, 1usize), (0, 13), (50, 7), (63, 2), (130, 48)] {
                let n = first + rows;
                let cache = cache(dtype, kv_heads, dim, n);
                let q = values(rows * dim, 21);
                for isa in Isa::available() {
                    let (mut out, mut scratch) = (vec![0.0f32; rows * dim], AttentionScratch::new(64, n));
                    let kv_head = kv_heads - 1;
                    let reading = Reading { pool: &cache.pool, table: &cache.table, layer: 1, kv_head };
                    let mut answer = |q: &[f32], out: &mut [f32], rows, first_sees, each_sees| {
                        let queries =
                            Queries { q: q.as_ptr(), out: out.as_mut_ptr(), stride: dim, rows, first_sees, each_sees };
                        // SAFETY: one thread; both have `rows` rows.
                        unsafe { attend(isa, reading, queries, &mut scratch) };
                    };
                    answer(&q, &mut out, rows, first + 1, 1);
                    for row in 0..rows {
                        let range = row * dim..(row + 1) * dim;
                        let want = reference(&cache, kv_heads, kv_head, &q[range.clone()], first + row + 1);
                        for (got, want) in out[range.clone()].iter().zip(want) {
                            assert!((f64::from(*got) - want).abs() < 3e-6, "{} {dtype} {got} {want}", isa.name());
                        }
                        let mut alone = vec![0.0f32; dim];
                        answer(&q[range.clone()], &mut alone, 1, first + row + 1, 0);
                        assert_eq!(alone, out[range], "{} {dtype}: row {row} of {rows} at {first}", isa.name());
                    }
                }
            }
        }
    }
}

#[test]
fn heads_of_a_group_answer_as_each_would_alone() {
    let cache = cache(KvDtype::F32, 2, 64, 200);
    let q = values(3 * 64, 31);
    let reading = Reading { pool: &cache.pool, table: &cache.table, layer: 1, kv_head: 0 };
    let (mut out, mut scratch) = (vec![0.0f32; 3 * 64], AttentionScratch::new(3, 200));
    let queries = Queries { q: q.as_ptr(), out: out.as_mut_ptr(), stride: 64, rows: 3, first_sees: 200, each_sees: 0 };
    // SAFETY: one thread; both have three rows.
    unsafe { attend(Isa::widest(), reading, queries, &mut scratch) };
    for head in 0..3 {
        let want = reference(&cache, 2, 0, &q[head * 64..(head + 1) * 64], 200);
        for (got, want) in out[head * 64..].iter().zip(want) {
            assert!((f64::from(*got) - want).abs() < 3e-6);
        }
    }
}
