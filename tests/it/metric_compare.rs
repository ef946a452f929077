//! What a comparison of arms may say: with known effects, known noise, an A/A pair, and arms that differ in more than one thing.
use inferlab::metric::summarise;
use inferlab::metric::summary::{Comparison, RunSummary};
use inferlab::record::{LoggedRun, PlannedArm, RequestRecord};
use serde_json::json;

use crate::metric_logged::{arm, cell, lane, plan, run};

const C1: &str = "decode_scaling/c1";

/// Four requests a repeat whose tokens are `gaps[repeat]` ms apart.
fn rows(arm: &str, gaps: &[f64]) -> Vec<RequestRecord> {
    gaps.iter().enumerate().flat_map(|(repeat, &gap)| lane(arm, C1, repeat as u32, 4, gap, 11)).collect()
}

fn logged(arms: Vec<PlannedArm>, gaps: &[&[f64]]) -> LoggedRun {
    let rows = arms.iter().zip(gaps).flat_map(|(arm, gaps)| rows(&arm.name, gaps)).collect();
    run(plan(arms, vec![cell(C1, 1, 11, 4)]), rows)
}

fn decode<'a>(summary: &'a RunSummary, arm: &str) -> &'a Comparison {
    let found = summary.comparisons.iter().find(|c| c.arm == arm && c.metric == "decode_tok_s_aggregate");
    found.expect("a comparison")
}

fn with_kv(name: &str, kv_dtype: &str) -> PlannedArm {
    let mut arm = arm(name);
    arm.target["in_process"]["kv_dtype"] = json!(kv_dtype);
    arm
}

#[test]
fn a_difference_far_outside_the_noise_is_named_with_its_interval() {
    let base = [10.0, 10.1, 9.9, 10.0];
    let new: Vec<f64> = [9.02, 9.1, 8.91, 8.99].to_vec();
    let summary = summarise("r", &logged(vec![arm("base"), with_kv("new", "f32")], &[&base, &new]));
    let found = decode(&summary, "new");
    assert_eq!((found.baseline.as_str(), found.ratio.n), ("base", 4));
    let by_hand: f64 = base.iter().zip(&new).map(|(b, n)| (b / n).ln()).sum::<f64>() / 4.0;
    assert!((found.ratio.value.expect("ratio") - by_hand.exp()).abs() < 1e-4);
    assert!(found.verdict.starts_with("faster by 11."), "{}", found.verdict);
    assert!(found.verdict.ends_with("4 blocks)"), "{}", found.verdict);
    assert!(found.noise_floor.is_some_and(|floor| (0.005..0.05).contains(&floor)), "{found:?}");
    // The other way round it is slower, and TTFT, which is the same in both, shows no difference.
    let summary = summarise("r", &logged(vec![arm("new"), with_kv("base", "f32")], &[&new, &base]));
    assert!(decode(&summary, "base").verdict.starts_with("slower by 10."));
    let ttft = summary.comparisons.iter().find(|c| c.metric == "ttft_ms_mean").expect("TTFT");
    assert!(ttft.verdict.starts_with("no difference shown"), "{}", ttft.verdict);
}

#[test]
fn a_steady_difference_smaller_than_the_spread_of_the_day_is_no_win() {
    // The pair differs by 1 % in every block, and the blocks themselves by 10 %: paired it is clear, and still inside the noise floor.
    let base = [10.0, 11.0, 9.5, 10.5, 9.0, 10.8];
    let new: Vec<f64> = base.iter().map(|gap| gap / 1.01).collect();
    let summary = summarise("r", &logged(vec![arm("base"), with_kv("new", "f32")], &[&base, &new]));
    let found = decode(&summary, "new");
    assert!(found.ratio.low.is_some_and(|low| low > 1.0), "{found:?}");
    assert!(found.verdict.starts_with("inside the noise floor of ±"), "{}", found.verdict);
}

#[test]
fn an_a_a_pair_raises_the_floor_to_what_it_showed() {
    let base = [10.0, 10.01, 10.0, 10.01];
    let copy: Vec<f64> = base.iter().map(|gap| gap * 1.05).collect();
    let new: Vec<f64> = base.iter().map(|gap| gap * 0.97).collect();
    let mut twin = arm("base-again");
    twin.copy_of = Some("base".into());
    let arms = vec![arm("base"), twin, with_kv("new", "f32")];
    let summary = summarise("r", &logged(arms, &[&base, &copy, &new]));
    let found = decode(&summary, "base-again");
    assert!(found.verdict.starts_with("the same arm twice: the machine was not steady"), "{}", found.verdict);
    let found = decode(&summary, "new");
    assert!(found.noise_floor.is_some_and(|floor| (floor - 0.05).abs() < 1e-3), "{found:?}");
    assert!(found.verdict.starts_with("inside the noise floor of ±5.0 %"), "{}", found.verdict);
}

#[test]
fn one_block_has_no_verdict_and_blocks_are_paired_by_repeat() {
    let arms = || vec![arm("base"), with_kv("new", "f32")];
    let summary = summarise("r", &logged(arms(), &[&[10.0], &[5.0]]));
    assert!(decode(&summary, "new").verdict.starts_with("no verdict"));
    // The new arm lost repeat 0: two pairs are left, and they agree exactly.
    let mut run = logged(arms(), &[&[99.0, 10.0, 20.0], &[1.0, 9.0, 18.0]]);
    run.rows.retain(|row| row.record.arm == "base" || row.record.repeat > 0);
    let summary = summarise("r", &run);
    let found = decode(&summary, "new");
    assert_eq!(found.ratio.n, 2);
    assert!((found.ratio.value.expect("ratio") - 10.0 / 9.0).abs() < 1e-4);
}

#[test]
fn arms_that_differ_in_more_than_one_factor_are_confounded() {
    let gaps: [&[f64]; 2] = [&[10.0, 10.01, 10.0], &[5.0, 5.005, 5.0]];
    let mut two = with_kv("new", "f32");
    two.target["in_process"]["threads"] = json!(4);
    let summary = summarise("r", &logged(vec![arm("base"), two], &gaps));
    let verdict = &decode(&summary, "new").verdict;
    assert!(verdict.starts_with("confounded by kv_dtype, threads; faster by 100.0 %"), "{verdict}");
    let differs = |arm: usize| summary.arms[arm].differs.clone();
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(differs(0), [pair("kv_dtype", "bf16"), pair("threads", "2")]);
    assert_eq!(differs(1), [pair("kv_dtype", "f32"), pair("threads", "4")]);

    // A setting that is a map is one factor; what the target says is another where no setting explains it.
    let mut one = arm("new");
    one.target["in_process"]["speculation"] = json!({"mtp": {"draft_tokens": 3, "deep": true}});
    let mut run = logged(vec![arm("base"), one], &gaps);
    let verdict = summarise("r", &run).comparisons[0].verdict.clone();
    assert!(verdict.starts_with("faster by 100.0 %"), "{verdict}");
    run.segments[0].open.provenance["target"]["new"]["model"] = json!("another model");
    let verdict = summarise("r", &run).comparisons[0].verdict.clone();
    assert!(verdict.starts_with("confounded by speculation, model; "), "{verdict}");
}

#[test]
fn two_servers_are_one_factor_and_their_settings_others() {
    let gaps: [&[f64]; 2] = [&[10.0, 10.01, 10.0], &[5.0, 5.005, 5.0]];
    let server = |name: &str, url: &str, model: &str| {
        let mut arm = arm(name);
        arm.target = json!({"endpoint": {"url": url, "dialect": "auto", "model": model}});
        arm
    };
    let mut run = logged(vec![server("a", "http://h:1", "m"), server("b", "http://h:2", "m")], &gaps);
    run.segments[0].open.provenance["target"]["b"]["version"] = json!("2");
    let verdict = summarise("r", &run).comparisons[0].verdict.clone();
    assert!(verdict.starts_with("faster by"), "{verdict}");
    run.segments[0].open.provenance["target"]["b"]["effective_kv_dtype"] = json!("q8_0");
    let verdict = summarise("r", &run).comparisons[0].verdict.clone();
    assert!(verdict.starts_with("confounded by engine, kv_dtype; "), "{verdict}");
}

#[test]
fn arms_with_the_same_digits_were_perhaps_one_process() {
    // B79: the old server answered for the new arm.
    let gaps: [&[f64]; 2] = [&[10.0, 11.0], &[10.0, 11.0]];
    let said = summarise("r", &logged(vec![arm("base"), with_kv("new", "f32")], &gaps)).warnings;
    assert!(said.iter().any(|w| w.contains("base and new measure the same to five digits")), "{said:?}");
}
