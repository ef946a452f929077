//! Tokens a second of whole models: `cargo bench --bench engine_model [-- NAME...]`, NAME one of `smollm2` (the file that
//! `INFERLAB_TEST_SMOLLM2` names) and the synthetic shapes.
//!
//! Every line is the best and the median of some rounds, with the load average, since on a shared machine a wall time says little alone.
use std::sync::Arc;
use std::time::Instant;

use inferlab::engine::KvDtype;
use inferlab::engine::model::{Llama, LlamaSize, Logits, Span};
use inferlab::engine::op::isa::Isa;
use inferlab::engine::weights::ModelFile;

const PROMPT: usize = 512;
const STEPS: usize = 64;

fn load() -> String {
    std::fs::read_to_string("/proc/loadavg").map_or("?".into(), |l| l.split(' ').take(1).collect())
}

/// Seconds all threads of this process ran: on a shared machine tokens a CPU-second say more than tokens a second.
fn cpu_seconds() -> f64 {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let times = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("schedstat")).ok());
    times.filter_map(|stat| stat.split(' ').next()?.parse::<f64>().ok()).sum::<f64>() / 1e9
}

/// Runs `work`, worth `tokens` tokens, `rounds` times.
fn line(what: &str, tokens: usize, rounds: usize, mut work: impl FnMut()) {
    let (mut wall, mut cpu) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let (start, ran) = (Instant::now(), cpu_seconds());
        work();
        wall.push(tokens as f64 / start.elapsed().as_secs_f64());
        cpu.push(tokens as f64 / (cpu_seconds() - ran));
    }
    wall.sort_by(f64::total_cmp);
    cpu.sort_by(f64::total_cmp);
    let (best, median) = (wall[rounds - 1], wall[rounds / 2]);
    let (cpu_best, cpu_median) = (cpu[rounds - 1], cpu[rounds / 2]);
    println!(
        "{what}: best {best:.1} tok/s, median {median:.1}; a CPU-second best {cpu_best:.1}, median {cpu_median:.1}; load {}",
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
    line(&format!("{name}, pp{PROMPT}"), PROMPT, rounds, || {
        llama.prefill(Span { tokens: &prompt, first: 0, table: &tables[0] }, Logits::Last);
    });
    for batch in [1, 2, 4, 8] {
        line(&format!("{name}, tg{STEPS} x {batch}"), STEPS * batch, rounds, || {
            for step in 0..STEPS {
                let spans: Vec<Span<'_>> = tables[..batch]
                    .iter()
                    .map(|table| Span { tokens: &prompt[step..step + 1], first: step, table })
                    .collect();
                llama.decode(&spans[..]);
            }
        });
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
        for isa in Isa::available().into_iter().skip(1).rev() {
            for threads in [1, 2] {
                measure(&model, isa, threads, KvDtype::F32, 5);
            }
        }
    }
}
