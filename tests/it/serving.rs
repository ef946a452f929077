//! The serving workload through the program: loads, schedules, mixes, and what a report says of them.
use std::collections::BTreeMap;

use inferlab::metric::summary::Verdict;
use inferlab::metric::{row, summarise};
use inferlab::record::{LoggedRun, Outcome, PlannedOffer, RequestRecord};

use crate::experiment_cases::plan;
use crate::metric_logged::{answered, arm, blank, cell, key, ms, run};
use crate::run_lab::{Lab, code, stderr, stdout};

const SUITE: &str = r#"
schema: 1
name: serving
question: Does an open loop hold its schedule?
seed: 11
target: {in_process: {model: {synthetic: {shape: tiny-llama, seed: 1}}, max_context: 512, max_concurrency: 2, kv_dtype: [f32, bf16]}}
repeats: 1
slo: {ttft_ms: 1000, tpot_ms: 1000}
workloads:
  - serving: {load: {poisson: {rate_req_s: 40, duration: 1s}}, prompt_tokens: 32, completion_tokens: 4}
  - serving:
      load: {closed: {concurrency: 3}}
      mix:
        - {prompt_tokens: 16, completion_tokens: 8, share: 2}
        - {prompt_tokens: {uniform: {min: 100, max: 200}}, completion_tokens: 2}
      requests_per_lane: 3
  - serving: {load: {ramp: {from_req_s: 20, to_req_s: 60, requests: 20, max_in_flight: 64}}, prompt_tokens: 16, completion_tokens: 2, prefix: {share: 0.5, groups: 2}}
"#;

fn of<'a>(log: &'a LoggedRun, arm: &str, cell: &str) -> Vec<&'a RequestRecord> {
    let mut rows: Vec<_> =
        log.live_rows().into_iter().filter(|r| r.arm == arm && r.cell == cell && !r.warmup).collect();
    rows.sort_by_key(|r| r.index);
    rows
}

#[test]
fn every_load_runs_and_both_arms_meet_the_same_schedule_and_shapes() {
    let lab = Lab::new(SUITE);
    let said = lab.output(&["run", "suite.yaml", "--json"]);
    // A busy machine may break V2 or V8; anything else is a fault.
    assert!([0, 10].contains(&code(&said)), "{}{}", stdout(&said), stderr(&said));
    let log = lab.log();
    let names: Vec<&str> = log.header.plan.cells.iter().map(|cell| cell.id.as_str()).collect();
    assert_eq!(names, ["serving/r40", "serving-2/c3", "serving-3/r20to60"]);
    for (name, n) in names.into_iter().zip([40, 9, 20]) {
        let (a, b) = (of(&log, "base+kv_dtype=f32", name), of(&log, "base+kv_dtype=bf16", name));
        assert_eq!((a.len(), b.len()), (n, n), "{name}");
        for (a, b) in a.iter().zip(&b) {
            assert_eq!((a.outcome, a.usage_prompt_tokens), (Outcome::Ok, a.prompt_tokens_planned));
            assert_eq!((&a.prompt_sha256, a.max_tokens, a.seed), (&b.prompt_sha256, b.max_tokens, b.seed));
        }
        if !name.contains('c') {
            let times = |rows: &[&RequestRecord]| {
                let at = |r: &RequestRecord| r.scheduled_ns.unwrap().0;
                rows.iter().map(|r| at(r) - at(rows[0])).collect::<Vec<i64>>()
            };
            assert_eq!(times(&a), times(&b));
            assert!(a.iter().all(|r| row::lateness_ms(r).unwrap() >= 0.0));
        }
    }
    let mut shapes: BTreeMap<bool, usize> = BTreeMap::new();
    for r in of(&log, "base+kv_dtype=f32", "serving-2/c3") {
        *shapes.entry(r.usage_prompt_tokens == Some(16)).or_default() += 1;
    }
    assert_eq!(shapes, BTreeMap::from([(true, 6), (false, 3)]));
    lab.assert_sound();
    let report = lab.path().join("reports").join(lab.run().file_name().unwrap());
    let text = std::fs::read_to_string(report.join("report.md")).unwrap();
    for words in ["TTFT from schedule", "our lateness", "goodput", "attainment", "offered"] {
        assert!(text.contains(words), "{words} is not in the report");
    }
}

/// A cell of an open loop at 20 req/s.
fn open(n: u32) -> inferlab::record::PlannedCell {
    let offer = PlannedOffer { load: "constant".into(), rate_req_s: 20.0, duration_s: 30.0, max_in_flight: 64 };
    inferlab::record::PlannedCell { offer: Some(offer), ..cell("serving/r20", 0, 4, n) }
}

/// 600 requests at 20 req/s, answered in 5 ms and then 3 gaps of 10 ms, sent when `sent` says.
fn sent_at(sent: impl Fn(f64) -> f64) -> LoggedRun {
    let rows = (0..600).map(|i| {
        let due = f64::from(i) * 50.0;
        let sent = sent(due);
        let mut r = answered(key("a", "serving/r20", 0, i), sent, sent + 5.0, 10.0, 4);
        r.scheduled_ns = ms(due);
        r
    });
    run(crate::metric_logged::plan(vec![arm("a")], vec![open(600)]), rows.collect())
}

#[test]
fn two_seconds_of_stall_stand_in_the_p99_from_schedule_and_not_in_that_from_send() {
    // B: 2 s in 30 s at 20 req/s. 40 of 600 arrivals wait 2000, 1950, … ms; linear interpolation at 0.99·599 = 593.01 of the sorted
    // waits lies between the 7th and 6th longest: 1700 and 1750 ms.
    let stalled = |due: f64| if (10_000.0..12_000.0).contains(&due) { 12_000.0 } else { due };
    let summary = summarise("r", &sent_at(stalled));
    let value = |name: &str| summary.cells[0].metrics[name].value.unwrap();
    assert!((value("ttft_ms_p99") - 5.0).abs() < 1e-9);
    assert!((value("ttft_from_schedule_ms_p99") - (5.0 + 1700.0 + 0.01 * 50.0)).abs() < 1e-6);
    assert!((value("lateness_ms_p99") - 1700.5).abs() < 1e-6 && value("lateness_ms_p50") == 0.0);
    // 40 of 600 late is 6.7 %: the schedule was not held in 95 %.
    let rules: Vec<&str> = summary.reasons.iter().map(|reason| reason.rule).collect();
    assert_eq!((summary.verdict, rules), (Verdict::Invalid, vec!["V2"]), "{:?}", summary.reasons);
}

#[test]
fn a_schedule_held_to_five_ms_is_valid_and_shed_arrivals_are_not_held() {
    assert_eq!(summarise("r", &sent_at(|due| due + 0.2)).verdict, Verdict::Valid);
    let mut shed = sent_at(|due| due + 0.2);
    for logged in shed.rows.iter_mut().take(31) {
        let scheduled_ns = logged.record.scheduled_ns;
        logged.record = blank(logged.record.key());
        logged.record.scheduled_ns = scheduled_ns;
    }
    shed.end = Some(shed.row_counts());
    let summary = summarise("r", &shed);
    assert_eq!((summary.rows.shed, summary.rows.ok), (31, 569));
    assert!(summary.reasons.iter().any(|reason| reason.rule == "V2" && reason.message.contains("31 were shed")));
}

#[test]
fn goodput_counts_from_the_schedule_in_an_open_loop() {
    let mut logged = sent_at(|due| if due < 15_000.0 { due } else { due + 50.0 });
    logged.header.plan.slo = serde_json::from_value(serde_json::json!({"ttft_ms": 20})).unwrap();
    let summary = summarise("r", &logged);
    let attainment = &summary.cells[0].metrics["slo_attainment_percent"];
    // 300 of 600; Wilson by hand: centre (0.5 + z²/2n)/(1 + z²/n) = 0.5, half-width z·sqrt(0.25/n + z²/4n²)/(1 + z²/n), z = 1.95996.
    let (z, n) = (1.959_964_f64, 600.0_f64);
    let half = z * (0.25 / n + z * z / (4.0 * n * n)).sqrt() / (1.0 + z * z / n);
    assert_eq!(attainment.value, Some(50.0));
    assert!((attainment.low.unwrap() - 100.0 * (0.5 - half)).abs() < 1e-4);
}

#[test]
fn a_load_without_an_end_and_a_mix_beside_lengths_are_refused_at_their_place() {
    let refused = |from: &str, to: &str| {
        assert!(SUITE.contains(from));
        let drawn = format!("{:?}", miette::Report::new(plan(&SUITE.replace(from, to)).expect_err("refused")));
        // A message is broken into lines by the width it is drawn at.
        drawn.split_whitespace().filter(|word| !["│", "|"].contains(word)).collect::<Vec<_>>().join(" ")
    };
    let said = refused("duration: 1s", "max_in_flight: 9");
    assert!(said.contains("neither `duration` nor `requests`"), "{said}");
    let said = refused("duration: 1s", "duration: 1s, requests: 9");
    assert!(said.contains("both `duration` and `requests`"), "{said}");
    let said = refused("requests_per_lane: 3", "prompt_tokens: 9");
    assert!(said.contains("lengths stand here and beside"), "{said}");
    let said = refused("max: 200", "max: 20");
    assert!(said.contains("nothing can be drawn"), "{said}");
    let said = refused("max: 200", "max: 2000");
    assert!(said.contains("512 tokens of context"), "{said}");
    let open = "serving: {load: {poisson: {rate_req_s: 40, duration: 1s}}, prompt_tokens: 32, completion_tokens: 4}";
    let said = refused(open, "decode_scaling: {load: {poisson: {rate_req_s: 40, duration: 1s}}}");
    assert!(said.contains("serving"), "{said}");
}
