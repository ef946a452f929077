//! A token's numbers depend on the tokens before it alone (R20): not on threads, chunks, batch, page order or instruction width.
use std::sync::Arc;

use inferlab::engine::model::{Llama, LlamaSize, Logits, Span, evaluate};
use inferlab::engine::op::isa::Isa;
use inferlab::engine::weights::{ModelFile, RopePairs, WeightFormat};
use inferlab::engine::{Engine, EngineConfig, Generate, KvDtype, SchedulerPolicy};
use inferlab::request::Sampling;

fn tiny(format: WeightFormat) -> Arc<ModelFile> {
    Arc::new(ModelFile::synthetic_in("tiny-llama", 7, format).expect("a known shape"))
}

fn prompt(n: usize, seed: u32) -> Vec<u32> {
    (0..n as u32).map(|i| (i * 2_654_435 + seed * 40_503) % 4096).collect()
}

fn llama(model: &Arc<ModelFile>, threads: usize, kv_dtype: KvDtype, isa: Isa) -> Llama {
    let size = LlamaSize { threads, max_tokens: 256, max_context: 512, max_logits: 8, pages: 64, kv_dtype };
    Llama::with_isa(Arc::clone(model), size, isa)
}

/// Logits after `tokens`, prefilled in chunks, the last `decoded` of them by decode steps.
fn logits(llama: &mut Llama, tokens: &[u32], chunk: usize, decoded: usize) -> Vec<f32> {
    let table = llama.kv().reserve(tokens.len()).expect("pages");
    let (prefilled, rest) = tokens.split_at(tokens.len() - decoded);
    let mut last = Vec::new();
    for (number, part) in prefilled.chunks(chunk).enumerate() {
        let span = Span { tokens: part, first: number * chunk, table: &table };
        let want = if (number + 1) * chunk >= prefilled.len() { Logits::Last } else { Logits::None };
        last = llama.prefill(span, want).to_vec();
    }
    for i in 0..rest.len() {
        last = llama.decode(&[Span { tokens: &rest[i..], first: prefilled.len() + i, table: &table }]).to_vec();
    }
    llama.kv().release(table);
    last
}

#[test]
fn logits_have_the_same_bits_at_any_thread_count_chunk_and_split_into_prefill_and_decode() {
    let tokens = prompt(150, 1);
    for (format, kv) in
        [(WeightFormat::Q4_1, KvDtype::F32), (WeightFormat::BF16, KvDtype::Bf16), (WeightFormat::F32, KvDtype::F32)]
    {
        let model = tiny(format);
        for isa in Isa::available() {
            let want = logits(&mut llama(&model, 1, kv, isa), &tokens, 256, 0);
            for threads in [1, 2, 8] {
                let mut llama = llama(&model, threads, kv, isa);
                for (chunk, decoded) in [(256, 0), (1, 0), (7, 0), (16, 0), (64, 3), (149, 1), (100, 50)] {
                    let got = logits(&mut llama, &tokens, chunk, decoded);
                    assert!(
                        got == want,
                        "{format:?} {} {threads} threads, chunk {chunk}, {decoded} decoded",
                        isa.name()
                    );
                }
            }
        }
        // Fused and unfused sums differ in the last places only.
        let all: Vec<Vec<f32>> =
            Isa::available().into_iter().map(|isa| logits(&mut llama(&model, 1, kv, isa), &tokens, 256, 0)).collect();
        for other in &all[1..] {
            let worst = all[0].iter().zip(other).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(worst < 2e-2, "{format:?}: {worst}");
            assert_eq!(other, &all[1], "{format:?}: vector widths agree");
        }
    }
}

#[test]
fn a_sequence_has_the_same_logits_alone_and_in_a_batch() {
    let model = tiny(WeightFormat::Q8_0);
    let prompts: Vec<Vec<u32>> = (0..7).map(|i| prompt(20 + 17 * i, i as u32)).collect();
    let mut llama = llama(&model, 2, KvDtype::Bf16, Isa::widest());
    let alone: Vec<Vec<f32>> = prompts.iter().map(|p| logits(&mut llama, p, 256, 1)).collect();
    for n in 1..=prompts.len() {
        let tables: Vec<Vec<u32>> = prompts[..n].iter().map(|p| llama.kv().reserve(p.len()).expect("pages")).collect();
        for (p, table) in prompts.iter().zip(&tables) {
            llama.prefill(Span { tokens: &p[..p.len() - 1], first: 0, table }, Logits::None);
        }
        let spans: Vec<Span<'_>> = prompts
            .iter()
            .zip(&tables)
            .map(|(p, table)| Span { tokens: &p[p.len() - 1..], first: p.len() - 1, table })
            .collect();
        let together = llama.decode(&spans[..]).to_vec();
        for (got, want) in together.chunks_exact(4096).zip(&alone) {
            assert!(got == &want[..], "batch of {n}");
        }
        tables.into_iter().for_each(|table| llama.kv().release(table));
    }
}

/// The forward pass of `facts/engine.md` §2.1 in f64, one position at a time, sharing no code with the engine.
fn naive(model: &ModelFile, tokens: &[u32]) -> Vec<Vec<f64>> {
    let s = &model.shape;
    let times = |m: &inferlab::engine::weights::Matrix, x: &[f64]| -> Vec<f64> {
        let mut row = vec![0.0f32; m.cols];
        (0..m.rows)
            .map(|r| {
                m.dequantise_rows(r..r + 1, &mut row);
                row.iter().zip(x).map(|(&w, x)| f64::from(w) * x).sum()
            })
            .collect()
    };
    let rms = |x: &[f64], w: &[f32]| -> Vec<f64> {
        let scale = (x.iter().map(|v| v * v).sum::<f64>() / x.len() as f64 + f64::from(s.rms_eps)).sqrt();
        x.iter().zip(w).map(|(v, &w)| v / scale * f64::from(w)).collect()
    };
    let rotate = |heads: &mut [f64], position: usize| {
        for head in heads.chunks_exact_mut(s.head_dim) {
            for j in 0..s.head_dim / 2 {
                let angle = position as f64 * f64::from(s.rope_theta).powf(-2.0 * j as f64 / s.head_dim as f64);
                let (a, b) = match s.rope_pairs {
                    RopePairs::Interleaved => (2 * j, 2 * j + 1),
                    RopePairs::Halves => (j, j + s.head_dim / 2),
                };
                let (x, y) = (head[a], head[b]);
                (head[a], head[b]) = (x * angle.cos() - y * angle.sin(), x * angle.sin() + y * angle.cos());
            }
        }
    };
    let mut cache: Vec<Vec<(Vec<f64>, Vec<f64>)>> = vec![Vec::new(); s.layers];
    let mut all = Vec::new();
    for (position, &id) in tokens.iter().enumerate() {
        let mut row = vec![0.0f32; s.hidden];
        model.weights.token_embedding.dequantise_rows(id as usize..id as usize + 1, &mut row);
        let mut x: Vec<f64> = row.into_iter().map(f64::from).collect();
        for (layer, cache) in model.weights.layers.iter().zip(&mut cache) {
            let h = rms(&x, &layer.attn_norm);
            let (mut q, mut k, v) = (times(&layer.q, &h), times(&layer.k, &h), times(&layer.v, &h));
            rotate(&mut q, position);
            rotate(&mut k, position);
            cache.push((k, v));
            let mut attended = Vec::new();
            for (head, q) in q.chunks_exact(s.head_dim).enumerate() {
                let at = head / (s.heads / s.kv_heads) * s.head_dim;
                let score =
                    |k: &[f64]| q.iter().zip(&k[at..]).map(|(q, k)| q * k).sum::<f64>() / (s.head_dim as f64).sqrt();
                let weights: Vec<f64> = cache.iter().map(|(k, _)| score(k).exp()).collect();
                let total: f64 = weights.iter().sum();
                for d in 0..s.head_dim {
                    attended.push(weights.iter().zip(cache.iter()).map(|(w, (_, v))| w / total * v[at + d]).sum());
                }
            }
            x.iter_mut().zip(times(&layer.o, &attended)).for_each(|(x, d)| *x += d);
            let h = rms(&x, &layer.ffn_norm);
            let (gate, up) = (times(&layer.gate, &h), times(&layer.up, &h));
            let inner: Vec<f64> = gate.iter().zip(up).map(|(g, u)| g / (1.0 + (-g).exp()) * u).collect();
            x.iter_mut().zip(times(&layer.down, &inner)).for_each(|(x, d)| *x += d);
        }
        all.push(times(model.weights.head(), &rms(&x, &model.weights.output_norm)));
    }
    all
}

#[test]
fn every_logit_meets_a_naive_forward_pass_in_f64() {
    // Crossing a page at 64 is what 70 tokens are for.
    for (format, pairs, n) in
        [(WeightFormat::Q4_1, RopePairs::Interleaved, 70), (WeightFormat::F16, RopePairs::Halves, 6)]
    {
        let mut model = ModelFile::synthetic_in("tiny-llama", 3, format).expect("a known shape");
        model.shape.rope_pairs = pairs;
        let model = Arc::new(model);
        let tokens = prompt(n, 5);
        let want = naive(&model, &tokens);
        let (mut worst, mut positions) = (0.0f64, 0);
        evaluate(&model, &tokens, 2, KvDtype::F32, |position, logits| {
            positions += 1;
            for (got, want) in logits.iter().zip(&want[position]) {
                worst = worst.max((f64::from(*got) - want).abs());
            }
        });
        assert_eq!(positions, n);
        // Logits spread over about 1 (the weights' variance is 1 / width).
        assert!(worst < 2e-4, "{format:?}: {worst}");
    }
}

fn run(model: &Arc<ModelFile>, config: EngineConfig, sampling: Sampling, apart: bool) -> Vec<Vec<u32>> {
    let engine = Engine::start(Arc::clone(model), config).expect("it fits");
    let ask = |i: usize| {
        engine.submit(Generate {
            prompt: prompt(30 + 40 * i, i as u32),
            sampling,
            max_tokens: 24,
            ignore_eos: true,
            stop_ids: vec![],
            seed: 100 + i as u32,
        })
    };
    let take = |receiver: tokio::sync::oneshot::Receiver<inferlab::engine::Generation>| {
        receiver.blocking_recv().expect("an answer").tokens
    };
    if apart {
        return (0..6).map(|i| take(ask(i))).collect();
    }
    let waiting: Vec<_> = (0..6).map(ask).collect();
    waiting.into_iter().map(take).collect()
}

#[test]
fn generated_tokens_are_the_same_at_1_2_and_8_threads_alone_and_in_company_under_every_policy() {
    let model = tiny(WeightFormat::Q4_1);
    let base = EngineConfig { threads: Some(1), max_context: 512, max_concurrency: 1, ..EngineConfig::default() };
    let drawn = Sampling { temperature: 0.9, top_p: 0.95, frequency_penalty: 0.3, ..Sampling::default() };
    let mut seen = Vec::new();
    for sampling in [Sampling::default(), drawn] {
        let want = run(&model, base.clone(), sampling, true);
        for threads in [1, 2, 8] {
            for (scheduler, prefill_chunk) in
                [(SchedulerPolicy::Serial, 512), (SchedulerPolicy::Mixed, 16), (SchedulerPolicy::Serial, 33)]
            {
                let config = EngineConfig {
                    threads: Some(threads),
                    max_concurrency: 4,
                    scheduler,
                    prefill_chunk,
                    ..base.clone()
                };
                assert_eq!(
                    run(&model, config, sampling, false),
                    want,
                    "{threads} threads, {scheduler:?} {prefill_chunk}"
                );
            }
        }
        seen.push(want);
    }
    assert_ne!(seen[0], seen[1], "sampling is not greedy");
}
