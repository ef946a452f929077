//! The engine against llama.cpp on the same weights: next-token log-probabilities, greedy text, perplexity.
//!
//! Golden file and the command that made it: `tests/oracle/llama_goldens.py`. llama.cpp ran the weights as an F32 file with an f32 KV
//! cache and flash attention off; we run the Q4_1/Q8_0 file, which holds the same numbers.
use std::sync::Arc;

use inferlab::engine::model::{Llama, LlamaSize, Logits, Span, evaluate};
use inferlab::engine::weights::ModelFile;
use inferlab::engine::{Engine, EngineConfig, EngineFinish, Generate, KvDtype};
use inferlab::request::Sampling;
use serde_json::Value;

use crate::real_model::smollm2;

fn golden() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/llama_cpp/smollm2_135m_f32.json");
    serde_json::from_slice(&std::fs::read(path).expect("the golden file is in the repository")).expect("it is JSON")
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().expect("a list").iter().map(|id| id.as_u64().expect("an id") as u32).collect()
}

fn log_probabilities(logits: &[f32]) -> Vec<f64> {
    let max = logits.iter().fold(f32::NEG_INFINITY, |a, &b| a.max(b));
    let total: f64 = logits.iter().map(|&l| f64::from(l - max).exp()).sum();
    logits.iter().map(|&l| f64::from(l - max) - total.ln()).collect()
}

#[test]
fn top_ten_log_probabilities_lie_within_two_hundredths_of_llama_cpp() {
    let Some(model) = smollm2() else { return };
    let golden = golden();
    let prompts = golden["next_token"].as_array().expect("prompts");
    assert!(prompts.len() >= 8);
    let mut worst = 0.0f64;
    for prompt in prompts {
        let tokens = ids(&prompt["ids"]);
        let mut last = Vec::new();
        evaluate(&model, &tokens, 2, KvDtype::F32, |position, logits| {
            if position + 1 == tokens.len() {
                last = log_probabilities(logits);
            }
        });
        for pair in prompt["top"].as_array().expect("ten") {
            let (id, want) = (pair[0].as_u64().expect("id") as usize, pair[1].as_f64().expect("log-probability"));
            worst = worst.max((last[id] - want).abs());
        }
    }
    println!("largest difference of a top-10 log-probability: {worst:.6}");
    assert!(worst <= 0.02, "{worst}");
}

#[test]
fn greedy_text_is_that_of_llama_cpp_or_diverges_at_a_near_tie() {
    let Some(model) = smollm2() else { return };
    let golden = golden();
    let prompts = golden["greedy"].as_array().expect("prompts");
    assert!(prompts.len() >= 20);
    let config =
        EngineConfig { kv_dtype: KvDtype::F32, max_context: 1024, max_concurrency: 4, ..EngineConfig::default() };
    let engine = Engine::start(model, config).expect("it fits");
    let waiting: Vec<_> = prompts
        .iter()
        .map(|prompt| {
            engine.submit(Generate {
                prompt: ids(&prompt["prompt_ids"]),
                sampling: Sampling::default(),
                max_tokens: 64,
                ignore_eos: true,
                stop_ids: vec![],
                seed: 1,
            })
        })
        .collect();
    let mut equal = 0;
    for (prompt, receiver) in prompts.iter().zip(waiting) {
        let got = receiver.blocking_recv().expect("an answer");
        assert_eq!(got.finish, EngineFinish::Length);
        let want = ids(&prompt["tokens"]);
        match got.tokens.iter().zip(&want).position(|(a, b)| a != b) {
            None => equal += 1,
            Some(at) => {
                let gap = prompt["gaps"][at.to_string()].as_f64();
                println!("{}: diverges at {at}, llama.cpp's gap there {gap:?}", prompt["user"]);
                assert!(gap.is_some_and(|gap| gap < 0.02), "{} diverges at {at}, gap {gap:?}", prompt["user"]);
            }
        }
    }
    println!("{equal} of {} greedy texts of 64 tokens are equal", prompts.len());
    assert!(equal * 2 > prompts.len());
}

#[test]
fn perplexity_of_the_stated_text_lies_within_two_thousandths_of_llama_cpp() {
    let Some(model) = smollm2() else { return };
    let golden = golden();
    let tokens = ids(&golden["perplexity"]["ids"]);
    let mut nll = 0.0;
    evaluate(&model, &tokens, 2, KvDtype::F32, |position, logits| {
        if let Some(&next) = tokens.get(position + 1) {
            nll -= log_probabilities(logits)[next as usize];
        }
    });
    let perplexity = (nll / (tokens.len() - 1) as f64).exp();
    let want = golden["perplexity"]["perplexity"].as_f64().expect("a number");
    println!("perplexity {perplexity:.6}, llama.cpp {want:.6}, ratio {:.6}", perplexity / want);
    assert!((perplexity / want - 1.0).abs() <= 0.002, "{perplexity} against {want}");
}

#[test]
fn a_rotation_of_the_wrong_pairs_is_seen_by_the_oracle() {
    // The negative control: the GGUF trap of the family must move log-probabilities far more than the tolerance.
    let Some(model) = smollm2() else { return };
    let golden = golden();
    let prompt = &golden["next_token"][4];
    let tokens = ids(&prompt["ids"]);
    drop(model);
    let path = crate::real_model::smollm2_path().expect("it was there a moment ago");
    let mut wrong = ModelFile::open(path).expect("the pinned file opens");
    wrong.shape.rope_pairs = inferlab::engine::weights::RopePairs::Halves;
    let size = LlamaSize {
        threads: 2,
        max_tokens: tokens.len(),
        max_context: tokens.len(),
        max_logits: 1,
        pages: 2,
        kv_dtype: KvDtype::F32,
    };
    let mut llama = Llama::new(Arc::new(wrong), size);
    let table = llama.kv().reserve(tokens.len()).expect("pages");
    let logits = llama.prefill(Span { tokens: &tokens, first: 0, table: &table }, Logits::Last).to_vec();
    let got = log_probabilities(&logits);
    let worst = prompt["top"].as_array().expect("ten").iter().fold(0.0f64, |worst, pair| {
        let id = pair[0].as_u64().expect("id") as usize;
        worst.max((got[id] - pair[1].as_f64().expect("number")).abs())
    });
    println!("with the wrong pairs turned, the largest difference is {worst:.3}");
    assert!(worst > 0.2, "ten times the tolerance: {worst}");
}
