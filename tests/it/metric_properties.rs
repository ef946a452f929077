//! R12: whatever rows a log holds, a summary is made: no panic, NaN, infinity, or 0 that stands for unknown; JSON strict; parts sum to the
//! whole; the order of rows does not matter.
use std::cell::Cell as Counter;

use inferlab::metric::summarise;
use inferlab::metric::summary::{CellSummary, Estimate, RunSummary, Verdict};
use inferlab::record::{LoggedRun, Outcome, PlannedSlo, RequestRecord};
use inferlab::units::TimestampNs;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::json;

use crate::metric_logged::{answered, arm, blank, cell, failed, key, lane, plan, run};
use crate::metric_summary::strict;

const CELLS: [&str; 2] = ["decode_scaling/c2", "prefill_scaling/p64"];

/// Times that a row may hold: near each other, unknown, or at the ends of the clock.
fn time() -> impl Strategy<Value = Option<TimestampNs>> {
    prop_oneof![
        12 => (0i64..5_000_000_000).prop_map(|t| Some(TimestampNs(t))),
        2 => Just(None),
        1 => prop_oneof![Just(i64::MIN), Just(i64::MAX), Just(0), Just(-1)].prop_map(|t| Some(TimestampNs(t))),
    ]
}

fn count() -> impl Strategy<Value = Option<u32>> {
    prop_oneof![6 => (0u32..200).prop_map(Some), 2 => Just(None), 1 => Just(Some(u32::MAX))]
}

fn duration() -> impl Strategy<Value = Option<f64>> {
    let strange = prop_oneof![Just(0.0), Just(-1.0), Just(f64::NAN), Just(f64::INFINITY), Just(f64::MIN_POSITIVE)];
    prop_oneof![6 => (0.001f64..5e3).prop_map(Some), 2 => Just(None), 1 => strange.prop_map(Some)]
}

/// A row that no target would write, or one that it would.
fn record() -> impl Strategy<Value = RequestRecord> {
    let key = (0u32..2, 0u32..2, 0u32..3, any::<bool>());
    let wild = (
        (time(), time(), time(), time(), time(), time()),
        (count(), count(), count(), count(), count(), count(), count()),
        (duration(), duration(), duration()),
        (prop::sample::select(Outcome::ALL), any::<Option<bool>>()),
        prop::collection::vec(prop_oneof![9 => 0u32..40_000, 1 => Just(u32::MAX)], 0..12),
    );
    let sane = (0.0f64..2000.0, 0.5f64..400.0, 0.1f64..30.0, 1u32..40);
    (key, any::<bool>(), wild, sane).prop_map(|(k, use_sane, wild, sane)| {
        let name = ["base", "new"][k.0 as usize];
        let mut k = key_of(name, CELLS[k.1 as usize], k.2, k.3 && wild.3.1 == Some(true));
        k.index = 0;
        if use_sane {
            let (sent, prefill, gap, n) = sane;
            return answered(k, sent, sent + prefill, gap, n);
        }
        let mut r = blank(k);
        (r.scheduled_ns, r.sent_ns, r.first_byte_ns, r.first_token_ns, r.last_token_ns, r.end_ns) = wild.0;
        r.first_answer_ns = r.first_token_ns;
        let (usage, counted, first, prompt, cached, drafted, predicted) = wild.1;
        (r.usage_completion_tokens, r.counted_completion_tokens, r.first_chunk_tokens) = (usage, counted, first);
        (r.usage_prompt_tokens, r.usage_cached_tokens, r.server_draft_n) = (prompt, cached, drafted);
        (r.server_predicted_n, r.server_draft_accepted, r.server_rounds) = (predicted, first, counted);
        (r.server_prompt_n, r.server_prompt_ms, r.server_predicted_ms) = (prompt, wild.2.0, wild.2.1);
        r.server_queue_ms = wild.2.2;
        (r.outcome, r.usage_mismatch) = wild.3;
        r.gap_us = wild.4;
        r
    })
}

fn key_of(arm: &str, cell: &str, repeat: u32, warmup: bool) -> inferlab::request::RequestKey {
    let mut key = key(arm, cell, repeat, 0);
    key.warmup = warmup;
    key
}

fn of(mut rows: Vec<RequestRecord>) -> LoggedRun {
    for (index, row) in rows.iter_mut().enumerate() {
        row.index = index as u32;
    }
    let mut plan = plan(vec![arm("base"), arm("new")], vec![cell(CELLS[0], 2, 16, 4), cell(CELLS[1], 1, 1, 4)]);
    plan.slo = Some(PlannedSlo { ttft_ms: Some(500.0), tpot_ms: Some(20.0) });
    run(plan, rows)
}

/// What holds for every summary.
fn holds(summary: &RunSummary) {
    strict(summary);
    assert_eq!(summary.cells.len(), 4);
    let rows = summary.rows;
    assert_eq!(rows.issued, rows.ok + rows.failed + rows.cancelled + rows.shed);
    let sum = |of: fn(&CellSummary) -> usize| summary.cells.iter().map(of).sum::<usize>();
    assert_eq!((sum(|c| c.rows.issued), sum(|c| c.rows.ok)), (rows.issued, rows.ok));
    assert_eq!((sum(|c| c.rows.failed), sum(|c| c.rows.warmup)), (rows.failed, rows.warmup));
    let not_ok: usize = summary.failures.iter().map(|f| f.count).sum();
    assert_eq!(not_ok, rows.issued - rows.ok);
    for cell in &summary.cells {
        each_cell(cell);
    }
    assert_eq!(summary.verdict == Verdict::Valid, summary.reasons.is_empty());
}

fn each_cell(cell: &CellSummary) {
    let value = |name: &str| cell.metrics.get(name).and_then(|e| e.value);
    for (name, e) in &cell.metrics {
        known(name, e);
    }
    let samples = [
        ("ttft_ms", &cell.samples.ttft_ms),
        ("tpot_ms", &cell.samples.tpot_ms),
        ("icl_ms", &cell.samples.icl_ms),
        ("e2e_latency_ms", &cell.samples.e2e_latency_ms),
    ];
    for (family, samples) in samples {
        assert!(samples.iter().all(|x| x.is_finite() && *x >= 0.0), "{family}: {samples:?}");
        let least = samples.iter().copied().reduce(f64::min);
        let most = samples.iter().copied().reduce(f64::max);
        let steps = ["p50", "p90", "p95", "p99"].map(|p| value(&format!("{family}_{p}")));
        let rising: Vec<f64> = [least].into_iter().chain(steps).chain([most]).flatten().collect();
        assert!(rising.is_sorted(), "{family}: {rising:?}");
        if let (Some(mean), Some(least), Some(most)) = (value(&format!("{family}_mean")), least, most) {
            assert!(mean >= least * (1.0 - 1e-9) && mean <= most * (1.0 + 1e-9), "{family}: {least} {mean} {most}");
        }
    }
    if let (Some(mean), Some(peak)) = (value("in_flight_mean"), value("in_flight_max")) {
        assert!(peak >= mean - 1e-9, "peak {peak} below mean {mean}");
    }
    // Percentages are shares; what nobody answered has no number at all.
    for name in ["slo_attainment_percent", "decode_window_percent"] {
        assert!(value(name).is_none_or(|share| (0.0..=100.0 + 1e-9).contains(&share)), "{name}: {:?}", value(name));
    }
    if cell.rows.ok == 0 {
        let of_answers = cell
            .metrics
            .iter()
            .filter(|(name, _)| !["in_flight", "lateness", "goodput", "slo"].iter().any(|ours| name.starts_with(ours)));
        for (name, e) in of_answers {
            assert_eq!(e.value, None, "{name} of no answer");
        }
    }
}

/// A value rests on something, an interval holds it, and nothing that is missing stands there as 0.
fn known(name: &str, e: &Estimate) {
    if e.n == 0 {
        assert_eq!((e.value, e.low, e.high), (None, None, None), "{name} of nothing");
    }
    assert_eq!(e.low.is_some(), e.high.is_some(), "{name}: {e:?}");
    if let (Some(value), Some(low), Some(high)) = (e.value, e.low, e.high) {
        assert!(low <= value * (1.0 + 1e-9) && value <= high * (1.0 + 1e-9) + 1e-12, "{name}: {e:?}");
    }
    // A rate or length of 0 was never measured here: rows give only what is above it.
    let may_be_zero = [
        "goodput",
        "slo",
        "lateness",
        "in_flight",
        "acceptance",
        "drafted",
        "accepted",
        "spec",
        "completion",
        "prompt_",
        "run_",
    ];
    if !may_be_zero.iter().any(|start| name.starts_with(start)) && !name.contains("_ms_") {
        assert_ne!(e.value, Some(0.0), "{name}: {e:?}");
    }
}

#[test]
fn ten_thousand_random_row_sets_hold() {
    let mut runner = TestRunner::new(Config { cases: 10_000, ..Config::default() });
    let (answers, rates) = (Counter::new(0usize), Counter::new(0usize));
    let rows = prop::collection::vec(record(), 0..24);
    runner
        .run(&(rows, any::<prop::sample::Index>()), |(rows, turn)| {
            let mut logged = of(rows);
            let summary = summarise("r", &logged);
            holds(&summary);
            answers.set(answers.get() + usize::from(summary.rows.ok > 0));
            let rated = |c: &CellSummary| c.metrics.get("decode_tok_s_aggregate").is_some_and(|e| e.value.is_some());
            rates.set(rates.get() + usize::from(summary.cells.iter().any(rated)));
            if !logged.rows.is_empty() {
                let at = turn.index(logged.rows.len());
                logged.rows.rotate_left(at);
                logged.rows.reverse();
                let json = |s: &RunSummary| serde_json::to_value(s).expect("JSON");
                prop_assert_eq!(json(&summarise("r", &logged)), json(&summary));
            }
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{error}"));
    // The sets are not all empty ones, and the sweep is reached.
    assert!(answers.get() > 5_000 && rates.get() > 500, "{} with answers, {} with a rate", answers.get(), rates.get());
}

#[test]
fn no_row_one_row_two_rows_all_failed_all_equal_and_nulls_only() {
    let c = CELLS[0];
    let equal = lane("base", c, 0, 12, 10.0, 16);
    let all_failed = (0..5).map(|i| failed(key("base", c, 0, i), 0.0, Outcome::TimeoutIdle, "silence")).collect();
    let nulls = (0..5).map(|i| {
        let mut r = blank(key("base", c, 0, i));
        r.outcome = Outcome::Ok;
        r
    });
    let sets: [Vec<RequestRecord>; 6] =
        [vec![], equal[..1].to_vec(), equal[..2].to_vec(), all_failed, equal.clone(), nulls.collect()];
    for rows in sets {
        holds(&summarise("r", &of(rows)));
    }
    let summary = summarise("r", &of(equal));
    let p50 = &summary.cells[0].metrics["ttft_ms_p50"];
    assert_eq!((p50.value, p50.n), (Some(100.0), 12));
}

#[test]
fn a_header_without_a_plan_is_an_empty_partial_summary() {
    let bare = serde_json::from_value(json!({"name": "sample"})).expect("a plan of a name only");
    let mut logged = run(bare, lane("base", "decode_scaling/c1", 0, 1, 10.0, 11));
    logged.segments.clear();
    logged.end = None;
    let summary = summarise("r", &logged);
    assert_eq!((summary.verdict, summary.cells.len(), summary.started_utc.as_str()), (Verdict::Partial, 0, ""));
    assert!(summary.warnings.iter().any(|w| w.contains("1 rows belong to no arm and cell")));
    strict(&summary);
}
