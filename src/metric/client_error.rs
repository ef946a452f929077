//! The client's own error as calibrated, against the numbers it stands in: rule V8, and the lines that every report prints.
use std::collections::BTreeMap;

use super::summary::{CellSummary, Estimate, Reason};
use super::validity::Judged;
use crate::record::{CalibratedLevel, Calibration, ErrorMs, LoggedRun};

/// Largest share of a metric that may be the client's own error.
const BUDGET: f64 = 0.05;
/// Begins the note of a metric whose value is not to be believed; a report draws it in grey.
pub const CLIENT_ERROR: &str = "client error";

/// The calibration that the log holds, from the last segment that has one.
pub fn calibration(run: &LoggedRun) -> Option<Calibration> {
    let found = run.events.iter().filter(|event| event.what == "calibration");
    found.rev().find_map(|event| serde_json::from_value(event.fields.get("calibration")?.clone()).ok())
}

/// The error that stands in a metric, by its family; `None` for one that has none: counts, rates over a whole run, the server's own clock.
fn error_of<'a>(level: &'a CalibratedLevel, metric: &str) -> Option<&'a ErrorMs> {
    let family = |name: &str| metric.starts_with(name);
    if family("ttft_ms") || family("ttft_answer_ms") || family("ttfb_ms") || family("e2e_latency_ms") {
        Some(&level.ttft_ms)
    } else if family("tpot_ms") {
        Some(&level.tpot_ms)
    } else if family("icl_ms") || family("itl_ms") {
        Some(&level.gap_ms)
    } else {
        None
    }
}

/// Half of the errors are below their median: it stands beside means and medians, the worst beside the tails.
fn budget(error: &ErrorMs, metric: &str) -> Option<f64> {
    let tail = ["_p90", "_p95", "_p99"].iter().any(|end| metric.ends_with(end));
    if tail { error.worst() } else { error.p50 }
}

/// The metric that each workload claims first: V8 judges it.
fn primary(workload: &str) -> &'static [&'static str] {
    match workload {
        "decode_scaling" => &["tpot_ms_p50"],
        "prefill_scaling" => &["ttft_ms_p50"],
        _ => &["ttft_ms_p50", "tpot_ms_p50"],
    }
}

/// Marks every metric of a server's cell in which the client's error is over 5 %, and gives a reason for each claim among them.
pub fn mark(calibration: &Calibration, judged: &[Judged<'_>], cells: &mut [CellSummary]) -> Vec<Reason> {
    let mut reasons = Vec::new();
    for (judged, cell) in judged.iter().zip(cells) {
        let Some(level) = of_server(judged).then(|| calibration.level(in_flight(cell))).flatten() else { continue };
        let over = over_budget(level, &cell.metrics);
        for (name, ms, value) in over {
            let share = 100.0 * ms / value;
            if primary(&cell.workload).contains(&name) {
                let message = format!(
                    "{}, {}: the client's own error is {share:.1} % of {name} ({ms:.3} ms of {value:.3} ms, calibrated at {} in flight); \
                     5 % is the limit",
                    cell.arm, cell.cell, level.concurrency
                );
                reasons.push(Reason { rule: "V8", message });
            }
            if let Some(estimate) = cell.metrics.get_mut(name) {
                estimate.note = Some(format!("{CLIENT_ERROR} over 5 %: {ms:.3} ms"));
            }
        }
    }
    reasons
}

fn over_budget(level: &CalibratedLevel, metrics: &BTreeMap<&'static str, Estimate>) -> Vec<(&'static str, f64, f64)> {
    let one = |(&name, estimate): (&&'static str, &Estimate)| {
        let (ms, value) = (budget(error_of(level, name)?, name)?, estimate.value?);
        (ms > BUDGET * value).then_some((name, ms, value))
    };
    metrics.iter().filter_map(one).collect()
}

/// Our own engine stamps its tokens itself: no client stands between.
fn of_server(judged: &Judged<'_>) -> bool {
    judged.arm.target.get("endpoint").is_some()
}

/// Requests that were in flight: as asked, or as an open loop came to.
fn in_flight(cell: &CellSummary) -> f64 {
    let seen = cell.metrics.get("in_flight_mean").and_then(|estimate| estimate.value);
    if cell.concurrency > 0 { f64::from(cell.concurrency) } else { seen.unwrap_or(1.0) }
}

/// What a report says of the client's error, a line each.
pub fn lines(run: &LoggedRun, judged: &[Judged<'_>], cells: &[CellSummary]) -> Vec<String> {
    if !judged.iter().any(of_server) {
        return vec!["client error: none for our own engine, which stamps every token itself".to_owned()];
    }
    let Some(calibration) = calibration(run) else {
        return vec![
            "client error not calibrated: run `inferlab calibrate` on this host before the next run".to_owned(),
        ];
    };
    let mut used: Vec<&CalibratedLevel> = Vec::new();
    let mut beyond = false;
    for cell in judged.iter().zip(cells).filter(|(judged, _)| of_server(judged)).map(|(_, cell)| cell) {
        let Some(level) = calibration.level(in_flight(cell)) else { continue };
        beyond |= f64::from(level.concurrency) < in_flight(cell);
        if !used.contains(&level) {
            used.push(level);
        }
    }
    used.sort_by_key(|level| level.concurrency);
    let say = |error: &ErrorMs| {
        let number = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), |ms| format!("{ms:.2}"));
        format!("{} / {}", number(error.p50), number(error.worst()))
    };
    let mut lines: Vec<String> = used
        .into_iter()
        .map(|level| {
            format!(
                "client error at {} in flight, ms, p50 / p99: TTFT {}, gap {}, TPOT {}, lateness {} (calibrated {}, n = {})",
                level.concurrency,
                say(&level.ttft_ms),
                say(&level.gap_ms),
                say(&level.tpot_ms),
                say(&level.dispatch_ms),
                calibration.utc,
                level.requests
            )
        })
        .collect();
    if beyond {
        lines.push("some cells had more in flight than was calibrated: their client error may be larger".to_owned());
    }
    lines
}

/// Lateness at the 99th percentile as calibrated for so many requests in flight.
pub fn lateness_p99_ms(calibration: Option<&Calibration>, in_flight: f64) -> Option<f64> {
    calibration?.level(in_flight)?.dispatch_ms.worst()
}
