//! Tokens a second of whole models: `cargo bench --bench engine_model [-- NAME...]`, NAME one of `smollm2` (the file that
//! `INFERLAB_TEST_SMOLLM2` names) and the synthetic shapes.
//!
//! Every line is the best and the median of some rounds, with the load average, since on a shared machine a wall time says little alone.
use std::sync::Arc;
use std::time::{Duration, Instant};

use inferlab::engine::KvDtype;
use inferlab::engine::model::{Llama, LlamaSize, Logits, Span};
use inferlab::engine::op::isa::Isa;
use inferlab::engine::weights::ModelFile;

const PROMPT: usize = 512;
const STEPS: usize = 64;

fn load() -> String {
    std::fs::read_to_string("/proc/loadavg").map_or("?".into(), |l| l.split(' ').take(1).collect())
}

fn line(what: &str, tokens: usize, times: &mut [Duration]) {
    times.sort();
    let rate = |t: Duration| tokens as f64 / t.as_secs_f64();
    println!(
        "{what}: best {:.1} tok/s, median {:.1} tok/s, load {}",
        rate(times[0]),
        rate(times[times.len() / 2]),
        load()
    );
}

fn measure(model: &Arc<ModelFile>, isa: Isa, threads: usize, kv_dtype: KvDtype, rounds: usize) {
    let lanes = 8;
    let context = PROMPT + rounds.max(1) * STEPS + 1;
    let size = LlamaSize {
        threads,
        max_tokens: PROMPT,
        max_context: context.min(model.shape.context),
        max_logits: lanes,
        pages: lanes * context.div_ceil(64),
        kv_dtype,
    };
    let mut llama = Llama::with_isa(Arc::clone(model), size, isa);
    let tables: Vec<Vec<u32>> = (0..lanes).map(|_| llama.kv().reserve(context).expect("pages")).collect();
    let prompt: Vec<u32> = (0..PROMPT as u32).map(|i| i * 89 % model.shape.vocabulary as u32).collect();
    let name = format!("{}, {}, {threads} threads, kv {kv_dtype}", model.name, isa.name());
    let mut times: Vec<Duration> = (0..rounds)
        .map(|_| {
            let start = Instant::now();
            llama.prefill(Span { tokens: &prompt, first: 0, table: &tables[0] }, Logits::Last);
            start.elapsed()
        })
        .collect();
    line(&format!("{name}, pp{PROMPT}"), PROMPT, &mut times);
    for batch in [1, 2, 4, 8] {
        let mut times: Vec<Duration> = (0..rounds)
            .map(|_| {
                let start = Instant::now();
                for step in 0..STEPS {
                    let spans: Vec<Span<'_>> = tables[..batch]
                        .iter()
                        .map(|table| Span { tokens: &prompt[step..step + 1], first: step, table })
                        .collect();
                    llama.decode(&spans[..]);
                }
                start.elapsed()
            })
            .collect();
        line(&format!("{name}, tg{STEPS} x {batch}"), STEPS * batch, &mut times);
    }
}

fn main() {
    let mut names: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    if names.is_empty() {
        names.push("smollm2".into());
    }
    for name in names {
        let model = if name == "smollm2" {
            let Ok(path) = std::env::var("INFERLAB_TEST_SMOLLM2") else {
                println!("skipped: INFERLAB_TEST_SMOLLM2 names no file");
                continue;
            };
            ModelFile::open(path).expect("a model of the Llama family")
        } else {
            ModelFile::synthetic(&name, 1).expect("a known shape")
        };
        let model = Arc::new(model);
        for isa in Isa::available().into_iter().skip(1) {
            for threads in [1, 2] {
                measure(&model, isa, threads, KvDtype::F32, 5);
            }
        }
    }
}
