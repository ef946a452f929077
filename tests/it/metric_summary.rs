//! The summary of a run against schedules that can be worked out by hand, and against the rows of public bug reports.
use inferlab::metric::summary::{CellSummary, Estimate, RunSummary, Verdict};
use inferlab::metric::{METRICS, summarise};
use inferlab::record::{LoggedRun, Outcome, PlannedOffer, PlannedSlo, RequestRecord, Segment};
use serde_json::{Value, json};

use crate::metric_logged::{answered, arm, blank, cell, facts, failed, key, lane, ms, plan, run};

const C1: &str = "decode_scaling/c1";

fn one_cell(concurrency: u32, rows: Vec<RequestRecord>) -> LoggedRun {
    run(plan(vec![arm("base")], vec![cell(C1, concurrency, 11, rows.len() as u32)]), rows)
}

fn metric<'a>(cell: &'a CellSummary, name: &str) -> &'a Estimate {
    cell.metrics.get(name).unwrap_or_else(|| panic!("{name} is not in the cell"))
}

#[track_caller]
fn is(cell: &CellSummary, name: &str, expected: f64) {
    let found = metric(cell, name);
    let value = found.value.unwrap_or_else(|| panic!("{name} has no value: {found:?}"));
    assert!((value - expected).abs() <= 1e-9 * expected.abs(), "{name} is {value}, by hand {expected}");
}

fn cases(name: &str) -> Option<String> {
    let folder = std::env::var("INFERLAB_SHARED")
        .unwrap_or_else(|_| concat!(env!("CARGO_MANIFEST_DIR"), "/../shared").to_owned());
    let path = std::path::Path::new(&folder).join("cases").join(name);
    std::fs::read_to_string(&path).map_err(|error| println!("skipped: {}: {error}", path.display())).ok()
}

#[test]
fn a_run_of_one_lane_gives_the_numbers_worked_out_by_hand() {
    // Two repeats of four requests: 100 ms prefill of 512 tokens, then 10 tokens 10 ms (20 ms in the second repeat) apart.
    let rows = [lane("base", C1, 0, 4, 10.0, 11), lane("base", C1, 1, 4, 20.0, 11)].concat();
    let summary = summarise("r", &one_cell(1, rows));
    assert_eq!((summary.verdict, summary.reasons.as_slice()), (Verdict::Valid, [].as_slice()));
    let cell = &summary.cells[0];
    assert_eq!((cell.repeats, cell.rows.issued, cell.rows.ok), (2, 8, 8));
    // Geometric means of two repeats: 100 and 50 tok/s; 44 tokens in 0.8 and in 1.2 s; 4 requests in the same.
    is(cell, "decode_tok_s_aggregate", (100.0_f64 * 50.0).sqrt());
    is(cell, "run_tok_s", (55.0_f64 * (44.0 / 1.2)).sqrt());
    is(cell, "request_rate_req_s", (5.0_f64 * (4.0 / 1.2)).sqrt());
    is(cell, "prefill_tok_s", 5120.0);
    is(cell, "ttft_ms_mean", 100.0);
    is(cell, "ttft_ms_p50", 100.0);
    is(cell, "tpot_ms_mean", (10.0_f64 * 20.0).sqrt());
    is(cell, "tpot_ms_p50", 15.0);
    is(cell, "e2e_latency_ms_mean", (200.0_f64 * 300.0).sqrt());
    is(cell, "icl_ms_p50", 15.0);
    is(cell, "itl_ms_p50", 15.0);
    is(cell, "decode_window_percent", (50.0 + 200.0 / 3.0) / 2.0);
    is(cell, "in_flight_mean", 1.0);
    is(cell, "in_flight_max", 1.0);
    is(cell, "completion_tokens_mean", 11.0);
    // 8 rows are enough for a median, not for more; 80 gaps for p50 and p90? 44 are needed.
    assert_eq!(metric(cell, "ttft_ms_p90").note.as_deref(), Some("n too small"));
    assert_eq!((metric(cell, "ttft_ms_p90").value, metric(cell, "ttft_ms_p90").n), (None, 8));
    is(cell, "icl_ms_p90", 20.0);
    // The interval of two repeats on logarithms: t(0.975, 1) = tan(0.475 π), half = t · ln 2 / 2.
    let t = (0.475 * std::f64::consts::PI).tan();
    let high = (100.0_f64 * 50.0).sqrt() * (t * 2.0_f64.ln() / 2.0).exp();
    let estimate = metric(cell, "decode_tok_s_aggregate");
    assert_eq!(estimate.n, 2);
    assert!((estimate.high.expect("interval") / high - 1.0).abs() < 1e-6, "{estimate:?}");
}

#[test]
fn two_lanes_add_up_where_both_decode() {
    // Both lanes prefill one after the other (100 ms each) and decode 10 ms a token; the second prefill stalls the first lane.
    // Lane one: first token at 100, then a gap of 110 ms, then 9 of 10 ms: ends at 300. Lane two: first at 200, 10 tokens: ends at 300.
    let mut first = answered(key("base", C1, 0, 0), 0.0, 100.0, 10.0, 11);
    first.gap_us[0] = 110_000;
    (first.last_token_ns, first.end_ns) = (ms(300.0), ms(300.0));
    let second = answered(key("base", C1, 0, 1), 0.0, 200.0, 10.0, 11);
    let summary = summarise("r", &one_cell(2, vec![first, second]));
    let cell = &summary.cells[0];
    // From 200 to 300 ms: 10 tokens of each lane.
    is(cell, "decode_tok_s_aggregate", 200.0);
    is(cell, "decode_window_percent", 100.0 / 3.0);
    is(cell, "run_tok_s", 22.0 / 0.3);
    assert_eq!(metric(cell, "decode_tok_s_aggregate").note.as_deref(), Some("one repeat, no interval"));
    assert!(summary.warnings.iter().any(|w| w.contains("one repeat only")), "{:?}", summary.warnings);
}

#[test]
fn every_metric_has_an_entry_with_unit_and_meaning() {
    let mut rows = lane("base", C1, 0, 8, 10.0, 11);
    for row in &mut rows {
        (row.server_draft_n, row.server_draft_accepted, row.server_rounds) = (Some(10), Some(5), Some(5));
        (row.server_predicted_n, row.server_predicted_ms, row.server_queue_ms) = (Some(11), Some(100.0), Some(1.0));
        (row.first_byte_ns, row.first_answer_ns) = (row.first_token_ns, row.last_token_ns);
    }
    let mut logged = one_cell(1, rows);
    logged.header.plan.slo = Some(PlannedSlo { ttft_ms: Some(1000.0), tpot_ms: Some(50.0) });
    let summary = summarise("r", &logged);
    let mut names: Vec<&str> = METRICS.iter().map(|m| m.name).collect();
    for name in summary.cells[0].metrics.keys() {
        assert!(names.contains(name), "{name} is not in METRICS");
    }
    // What only an open loop has.
    let offer = PlannedOffer { load: "constant".into(), rate_req_s: 20.0, duration_s: 30.0, max_in_flight: 64 };
    logged.header.plan.cells[0].offer = Some(offer);
    let open = summarise("r", &logged);
    let has = |name: &str| [&summary, &open].iter().any(|summary| summary.cells[0].metrics.contains_key(name));
    names.retain(|name| !has(name));
    assert_eq!(names, [""; 0], "METRICS names what no cell has");
    assert!(METRICS.iter().all(|m| !m.unit.is_empty() && !m.label.is_empty() && m.meaning.len() > 5));
}

#[test]
fn a_workload_of_one_token_has_no_decode_metrics() {
    let rows = (0..8).map(|i| answered(key("base", "prefill_scaling/p512", 0, i), 0.0, 50.0, 0.0, 1)).collect();
    let summary = summarise("r", &run(plan(vec![arm("base")], vec![cell("prefill_scaling/p512", 8, 1, 8)]), rows));
    let cell = &summary.cells[0];
    assert!(!cell.metrics.keys().any(|name| name.contains("decode") || name.contains("tpot") || name.contains("icl")));
    is(cell, "prefill_tok_s", 10_240.0);
}

#[test]
fn an_unmeasured_rate_says_why() {
    let unknown = |change: &dyn Fn(&mut RequestRecord)| {
        let mut rows = lane("base", C1, 0, 4, 10.0, 11);
        rows.iter_mut().for_each(change);
        summarise("r", &one_cell(1, rows)).cells.remove(0)
    };
    let cell = unknown(&|r| r.usage_completion_tokens = None);
    for name in ["decode_tok_s_aggregate", "run_tok_s"] {
        let found = metric(&cell, name);
        assert_eq!(
            (found.n, found.value, found.note.as_deref()),
            (0, None, Some("completion tokens unknown")),
            "{name}"
        );
    }
    // A flush: no stream was seen, and not a rate of thousands either.
    let cell = unknown(&|r| {
        r.gap_us = vec![0; 10];
        (r.first_token_ns, r.first_answer_ns) = (r.last_token_ns, r.last_token_ns);
    });
    let found = metric(&cell, "decode_tok_s_aggregate");
    assert!(found.value.is_none() && found.note.as_deref().is_some_and(|n| n.starts_with("no decode window")));
    assert_eq!(metric(&cell, "decode_tok_s_p50").value, None);
    // One row without a time leaves the mean out: those that are known may be the quick ones.
    let cell = unknown(&|r| {
        if r.index == 2 {
            r.first_token_ns = None;
        }
    });
    assert_eq!(metric(&cell, "ttft_ms_mean").note.as_deref(), Some("unknown for some requests"));
    // Where the target tells no prefill phase, the rate is from TTFT and says so.
    let cell = unknown(&|r| r.server_prompt_ms = None);
    is(&cell, "prefill_tok_s", 5120.0);
    assert_eq!(metric(&cell, "prefill_tok_s").note.as_deref(), Some("from ttft, queue included"));
}

#[test]
fn goodput_counts_requests_that_meet_every_objective() {
    // Four requests of 200 ms: TTFT 100 ms; the last is slow to start, one more failed.
    let mut rows = lane("base", C1, 0, 4, 10.0, 11);
    rows[3].first_token_ns = ms(750.0);
    rows.push(failed(key("base", C1, 0, 4), 790.0, Outcome::Reset, "cut"));
    let mut logged = one_cell(1, rows);
    logged.header.plan.slo = Some(PlannedSlo { ttft_ms: Some(120.0), tpot_ms: Some(50.0) });
    let cell = summarise("r", &logged).cells.remove(0);
    is(&cell, "goodput_req_s", 3.0 / 0.8);
    is(&cell, "slo_attainment_percent", 60.0);
    // 3 of 5 by Wilson: 23.07 to 88.24 % (scipy).
    let share = metric(&cell, "slo_attainment_percent");
    assert!((share.low.expect("low") - 23.07).abs() < 0.01 && (share.high.expect("high") - 88.24).abs() < 0.01);
    // Unknown times are not met and are counted; all unknown is no number at all.
    let mut logged = one_cell(1, lane("base", C1, 0, 4, 10.0, 11));
    logged.header.plan.slo = Some(PlannedSlo { ttft_ms: Some(120.0), tpot_ms: None });
    logged.rows[1].record.first_token_ns = None;
    let cell = summarise("r", &logged).cells.remove(0);
    is(&cell, "slo_attainment_percent", 75.0);
    assert!(metric(&cell, "slo_attainment_percent").note.as_deref().is_some_and(|n| n.starts_with("1 answers")));
    logged.rows.iter_mut().for_each(|row| row.record.first_token_ns = None);
    let cell = summarise("r", &logged).cells.remove(0);
    assert_eq!((metric(&cell, "goodput_req_s").value, metric(&cell, "slo_attainment_percent").value), (None, None));
}

#[test]
fn a_run_without_one_answer_is_a_report_of_nulls_and_counts() {
    // B55: 20 rows, all http_error.
    let text = cases("B55.rows.jsonl").unwrap_or_else(|| {
        (0..20).map(|i| format!("{{\"i\":{i},\"outcome\":\"http_error\",\"status\":503}}\n")).collect()
    });
    let rows: Vec<RequestRecord> = text.lines().map(|line| from_case(line, C1)).collect();
    assert_eq!(rows.len(), 20);
    let summary = summarise("r", &one_cell(1, rows));
    let cell = &summary.cells[0];
    assert_eq!((cell.rows.issued, cell.rows.ok, cell.rows.failed, cell.repeats), (20, 0, 20, 0));
    for (name, estimate) in &cell.metrics {
        assert_eq!((estimate.value, estimate.low, estimate.high), (None, None, None), "{name}");
        assert_eq!(estimate.n, 0, "{name}");
    }
    assert_eq!(summary.verdict, Verdict::Invalid);
    assert!(summary.reasons.iter().any(|r| r.rule == "V1" && r.message.contains("20 of 20")), "{:?}", summary.reasons);
    let failure = &summary.failures[0];
    assert_eq!((failure.outcome, failure.count, failure.example.as_deref()), (Outcome::HttpError, 20, Some("503")));
    strict(&summary);
}

/// A row of the cases: `{"i", "outcome", "ttft_ms", "e2e_ms", "completion_tokens"}`, tokens evenly spread from first to end.
fn from_case(line: &str, cell: &str) -> RequestRecord {
    let case: Value = serde_json::from_str(line).expect("a JSON line");
    let index = u32::try_from(case["i"].as_u64().expect("i")).expect("small");
    let mut r = blank(key("base", cell, 0, index));
    r.outcome = serde_json::from_value(case["outcome"].clone()).expect("a word of the contract");
    let sent = f64::from(index) * 3000.0;
    (r.scheduled_ns, r.sent_ns) = (ms(sent), ms(sent));
    r.end_ns = case["e2e_ms"].as_f64().and_then(|t| ms(sent + t));
    r.first_token_ns = case["ttft_ms"].as_f64().and_then(|t| ms(sent + t));
    r.usage_completion_tokens = case["completion_tokens"].as_u64().map(|n| n as u32);
    if let (Some(n), Some(first)) = (r.usage_completion_tokens, case["ttft_ms"].as_f64()) {
        let gap = (case["e2e_ms"].as_f64().expect("an end") - first) / f64::from(n - 1);
        (r.last_token_ns, r.first_chunk_tokens) = (r.end_ns, Some(1));
        r.gap_us = vec![(gap * 1e3) as u32; n as usize - 1];
    }
    r.error = case["status"].as_u64().map(|s| s.to_string());
    r
}

#[test]
fn a_failed_request_between_others_takes_nobodys_tokens() {
    // B57: ok, fail, ok, ok with 11, 101 and 201 tokens, 10 ms each.
    let text = cases("B57.rows.jsonl").unwrap_or_else(|| {
        let ok = |i: u32, ttft: u32, e2e: u32, n: u32| {
            format!(r#"{{"i":{i},"outcome":"ok","ttft_ms":{ttft},"e2e_ms":{e2e},"completion_tokens":{n}}}"#)
        };
        let failed = r#"{"i":1,"outcome":"reset","ttft_ms":10,"e2e_ms":null,"completion_tokens":null}"#.to_owned();
        [ok(0, 10, 110, 11), failed, ok(2, 20, 1020, 101), ok(3, 30, 2030, 201)].join("\n")
    });
    let mut rows: Vec<RequestRecord> = text.lines().map(|line| from_case(line, C1)).collect();
    let of = |rows: &[RequestRecord]| summarise("r", &one_cell(1, rows.to_vec()));
    let summary = of(&rows);
    let cell = &summary.cells[0];
    is(cell, "completion_tokens_mean", 313.0 / 3.0);
    is(cell, "run_tok_s", 313.0 / 11.03);
    is(cell, "tpot_ms_mean", 10.0);
    is(cell, "decode_tok_s_aggregate", 100.0);
    let json = serde_json::to_string(&summary).expect("JSON");
    for _ in 0..rows.len() {
        rows.rotate_left(1);
        assert_eq!(serde_json::to_string(&of(&rows)).expect("JSON"), json);
    }
    rows.swap(0, 2);
    assert_eq!(serde_json::to_string(&of(&rows)).expect("JSON"), json);
}

#[test]
fn statistics_over_no_and_one_sample_are_strict_json() {
    // B59: the spread of one sample is not a number, and is not written as one.
    let one = cases("B59.rows.jsonl")
        .unwrap_or_else(|| r#"{"i":0,"outcome":"ok","ttft_ms":10,"e2e_ms":110,"completion_tokens":11}"#.to_owned());
    let row = from_case(one.lines().next().expect("a line"), C1);
    for rows in [vec![], vec![row]] {
        let summary = summarise("r", &one_cell(1, rows));
        strict(&summary);
        let estimate = metric(&summary.cells[0], "ttft_ms_mean");
        assert_eq!((estimate.low, estimate.high), (None, None));
    }
}

/// Every number of the summary survives a strict reader: none became null on the way, as serde_json does with NaN.
pub fn strict(summary: &RunSummary) {
    let json: Value = serde_json::from_str(&serde_json::to_string(summary).expect("JSON")).expect("strict JSON");
    for (cell, written) in summary.cells.iter().zip(json["cells"].as_array().expect("cells")) {
        for (name, estimate) in &cell.metrics {
            let members = [("value", estimate.value), ("low", estimate.low), ("high", estimate.high)];
            for (member, number) in members {
                assert!(number.is_none_or(f64::is_finite), "{name}.{member} is {number:?}");
                assert_eq!(written["metrics"][name][member].as_f64(), number, "{name}.{member}");
            }
        }
    }
    for comparison in &summary.comparisons {
        for number in [comparison.ratio.value, comparison.ratio.low, comparison.ratio.high, comparison.noise_floor] {
            assert!(number.is_none_or(f64::is_finite), "{comparison:?}");
        }
    }
}

#[test]
fn a_rerun_repeat_counts_once_and_is_told() {
    let mut logged = one_cell(1, lane("base", C1, 0, 4, 10.0, 11));
    let mut again = logged.rows.clone();
    for row in &mut again {
        (row.segment, row.record.attempt, row.record.server_prompt_ms) = (1, 1, Some(50.0));
    }
    logged.rows.extend(again);
    let mut open = logged.segments[0].open.clone();
    open.provenance["host"]["load average"] = json!("0.20 0.10 0.10");
    open.provenance["build"]["git revision"] = json!("def");
    logged.segments.push(Segment { number: 1, open, close: Some("done".into()) });
    logged.segments[0].close = Some("interrupted".into());
    let summary = summarise("r", &logged);
    assert_eq!((summary.superseded, summary.segments, summary.rows.issued), (4, 2, 4));
    is(&summary.cells[0], "prefill_tok_s", 10_240.0);
    assert!(summary.warnings.iter().any(|w| w.contains("2 segments, 4 rows replaced")), "{:?}", summary.warnings);
    assert!(
        summary.warnings.contains(&"it was resumed on another build: git revision differ".to_owned()),
        "{:?}",
        summary.warnings
    );
    assert!(!summary.warnings.iter().any(|w| w.contains("another host")), "load is not another host");
}

#[test]
fn warnings_tell_of_load_lateness_and_rows_outside_the_plan() {
    let mut rows = lane("base", C1, 0, 4, 10.0, 11);
    rows[2].scheduled_ns = ms(392.0);
    rows.push(answered(key("other", C1, 0, 0), 0.0, 100.0, 10.0, 11));
    let mut logged = one_cell(1, rows);
    logged.segments[0].open.provenance["host"]["load average"] = json!("1.90 0.10 0.10");
    let said = summarise("r", &logged).warnings;
    assert!(said.contains(&"the host was busy at the start: load average 1.90 on 2 processors".to_owned()), "{said:?}");
    assert!(said.iter().any(|w| w.contains("sent 8.0 ms after its time")), "{said:?}");
    assert!(said.contains(&"1 rows belong to no arm and cell of the plan and are left out".to_owned()), "{said:?}");
}

#[test]
fn provenance_stands_in_groups_with_the_facts_of_each_target() {
    let summary = summarise("r", &one_cell(1, vec![]));
    let groups: Vec<&str> = summary.provenance.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(groups, ["host", "build", "target of base"]);
    let target = &summary.provenance[2].1;
    assert!(target.contains(&("model".into(), "m".into())) && target.contains(&("weights".into(), "1 GiB".into())));
    assert_eq!(summary.arms[0].target, "in-process cpu, m");
    assert_eq!(facts()["synthetic"], json!(summary.synthetic));
}
