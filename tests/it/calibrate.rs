//! The client's own error: how it is measured, kept, and held against the numbers of a run.
use inferlab::metric::summary::RunSummary;
use inferlab::metric::{CLIENT_ERROR, summarise};
use inferlab::record::{LoggedEvent, LoggedRun};
use inferlab::units::TimestampNs;
use serde_json::{Value, json};

use crate::metric_logged::{arm, cell, lane, plan, run};
use crate::run_lab::{Lab, code, said, synthetic};

#[test]
fn the_client_is_measured_against_an_emitter_and_the_result_is_kept() {
    let lab = Lab::new("");
    let cache = tempfile::tempdir().unwrap();
    let mut command = lab.command(&["calibrate", "--concurrency", "1", "4", "--time", "1", "--json"]);
    let output = command.env("INFERLAB_CACHE", cache.path()).output().unwrap();
    assert_eq!(code(&output), 0, "{}", said(&output));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let levels = found["calibration"]["levels"].as_array().unwrap();
    assert_eq!(levels.iter().map(|level| &level["concurrency"]).collect::<Vec<_>>(), [&json!(1), &json!(4)]);
    for level in levels {
        assert!(level["requests"].as_u64().unwrap() > 0 && level["failed"] == 0, "{level}");
        for error in ["dispatch_ms", "ttft_ms", "event_ms", "gap_ms", "tpot_ms"] {
            // Sixteen tokens 10 ms apart: an error of seconds would be a fault of the clock, not of a busy machine.
            let p50 = level[error]["p50"].as_f64().unwrap();
            assert!((0.0..1000.0).contains(&p50), "{error}: {level}");
        }
        // One event for each token, one gap fewer.
        let n = level["requests"].as_u64().unwrap();
        assert_eq!((level["event_ms"]["n"].as_u64(), level["gap_ms"]["n"].as_u64()), (Some(16 * n), Some(15 * n)));
    }
    let file = std::fs::read(found["file"].as_str().unwrap()).unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&file).unwrap(), found["calibration"]);
}

#[test]
fn our_own_engine_has_no_client_between() {
    let lab = Lab::new(&synthetic(
        "",
        1,
        &["prefill_scaling: {load: {closed: {concurrency: 1}}, prompt_tokens: [8], requests: 2}"],
    ));
    lab.output(&["run", "suite.yaml"]);
    let report = lab.path().join("reports").join(lab.run().file_name().unwrap()).join("report.md");
    let text = std::fs::read_to_string(report).unwrap();
    assert!(text.contains("client error: none for our own engine"), "{text}");
}

/// A server's run: TTFT 100 ms, TPOT 10 ms, two lanes; with a calibration of so much TTFT error at each concurrency.
fn server(levels: &[(u32, f64)]) -> RunSummary {
    let c2 = "decode_scaling/c2";
    let rows = [lane("base", c2, 0, 10, 10.0, 11), lane("base", c2, 0, 10, 10.0, 11)].concat();
    let mut logged: LoggedRun = run(plan(vec![arm("base")], vec![cell(c2, 2, 11, 10)]), rows);
    logged.header.plan.arms[0].target = json!({"endpoint": {"url": "http://127.0.0.1:1/v1", "model": "m"}});
    if !levels.is_empty() {
        let error = |ms: f64| json!({"n": 500, "p50": ms, "p99": 2.0 * ms, "max": 3.0 * ms});
        let level = |&(concurrency, ms): &(u32, f64)| {
            json!({"concurrency": concurrency, "requests": 500, "failed": 0, "dispatch_ms": error(0.1), "ttft_ms": error(ms),
                "event_ms": error(0.1), "gap_ms": error(0.1), "tpot_ms": error(ms / 10.0)})
        };
        let calibration =
            json!({"utc": "2026-12-01T00:00:00Z", "levels": levels.iter().map(level).collect::<Vec<_>>()});
        let fields = json!({ "calibration": calibration }).as_object().unwrap().clone();
        logged.events.push(LoggedEvent { segment: 0, t_ns: TimestampNs(0), what: "calibration".into(), fields });
    }
    summarise("r", &logged)
}

fn v8(summary: &RunSummary) -> Vec<&str> {
    summary.reasons.iter().filter(|reason| reason.rule == "V8").map(|reason| reason.message.as_str()).collect()
}

#[test]
fn an_error_over_a_twentieth_of_the_claim_is_invalid_and_greys_what_it_touches() {
    let tpot = server(&[]).cells[0].metrics["tpot_ms_p50"].value.unwrap();
    // The calibrated TPOT error is a tenth of the number given: 6 % of TPOT, then 4 %.
    let over = server(&[(2, 0.6 * tpot)]);
    assert_eq!(v8(&over).len(), 1, "{:?}", over.reasons);
    assert!(v8(&over)[0].contains("6.0 % of tpot_ms_p50"), "{:?}", v8(&over));
    let note = |summary: &RunSummary, name: &str| summary.cells[0].metrics[name].note.clone().unwrap_or_default();
    assert!(note(&over, "tpot_ms_p50").starts_with(CLIENT_ERROR), "{}", note(&over, "tpot_ms_p50"));
    assert!(!note(&over, "prefill_tok_s").starts_with(CLIENT_ERROR), "a rate of the server has no client in it");
    assert_eq!(v8(&server(&[(2, 0.4 * tpot)])), [""; 0]);
}

#[test]
fn the_level_that_was_in_flight_speaks_and_a_missing_one_is_said() {
    let tpot = server(&[]).cells[0].metrics["tpot_ms_p50"].value.unwrap();
    // Bad at 64, good at 2: the cell has two in flight.
    assert_eq!(v8(&server(&[(2, 0.1 * tpot), (64, 2.0 * tpot)])), [""; 0]);
    let beyond = server(&[(1, 0.1 * tpot)]);
    assert!(
        beyond.client_error.iter().any(|line| line.contains("more in flight than was calibrated")),
        "{:?}",
        beyond.client_error
    );
    let none = server(&[]);
    assert!(none.client_error[0].contains("not calibrated") && v8(&none).is_empty(), "{:?}", none.client_error);
}
