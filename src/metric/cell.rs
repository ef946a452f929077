//! The numbers of one arm × cell.
use std::collections::BTreeMap;

use super::cell_rows::{CellRows, RepeatValues, is_ok, repeat_values};
use super::decode_window::{NO_DATA, decode_throughput};
use super::row::{self, Labelled};
use super::summary::{CellSummary, Estimate, Samples};
use super::timeline::{in_flight, window_s};
use crate::record::{PlannedCell, PlannedSlo, RequestRecord};
use crate::statistics::{geometric_interval, mean, minimum_n, percentile_sorted, sorted, wilson};

/// Label of a percentile that too few rows back.
pub const N_TOO_SMALL: &str = "n too small";
const ONE_REPEAT: &str = "one repeat, no interval";

type Metrics = BTreeMap<&'static str, Estimate>;
/// Percentile names of a family with their percentiles.
type Percentiles = &'static [(&'static str, f64)];

const TTFT: Percentiles = &[("ttft_ms_p50", 0.5), ("ttft_ms_p90", 0.9), ("ttft_ms_p95", 0.95), ("ttft_ms_p99", 0.99)];
const TPOT: Percentiles = &[("tpot_ms_p50", 0.5), ("tpot_ms_p90", 0.9), ("tpot_ms_p95", 0.95), ("tpot_ms_p99", 0.99)];
const ICL: Percentiles = &[("icl_ms_p50", 0.5), ("icl_ms_p90", 0.9), ("icl_ms_p95", 0.95), ("icl_ms_p99", 0.99)];
const ITL: Percentiles = &[("itl_ms_p50", 0.5), ("itl_ms_p99", 0.99)];
const E2E: Percentiles = &[
    ("e2e_latency_ms_p50", 0.5),
    ("e2e_latency_ms_p90", 0.9),
    ("e2e_latency_ms_p95", 0.95),
    ("e2e_latency_ms_p99", 0.99),
];
const TTFT_ANSWER: Percentiles = &[("ttft_answer_ms_p50", 0.5)];
const TTFT_FROM_SCHEDULE: Percentiles = &[
    ("ttft_from_schedule_ms_p50", 0.5),
    ("ttft_from_schedule_ms_p90", 0.9),
    ("ttft_from_schedule_ms_p95", 0.95),
    ("ttft_from_schedule_ms_p99", 0.99),
];
const E2E_FROM_SCHEDULE: Percentiles = &[
    ("e2e_latency_from_schedule_ms_p50", 0.5),
    ("e2e_latency_from_schedule_ms_p90", 0.9),
    ("e2e_latency_from_schedule_ms_p95", 0.95),
    ("e2e_latency_from_schedule_ms_p99", 0.99),
];
const TTFB: Percentiles = &[("ttfb_ms_p50", 0.5)];
const QUEUE: Percentiles = &[("server_queue_ms_p50", 0.5)];
const LATENESS: Percentiles = &[("lateness_ms_p50", 0.5), ("lateness_ms_p99", 0.99)];
const DECODE: Percentiles = &[("decode_tok_s_p50", 0.5)];
const SERVER_DECODE: Percentiles = &[("server_decode_tok_s_p50", 0.5)];

/// Geometric mean and t interval on logarithms, over one value a repeat.
fn over_repeats(values: &RepeatValues) -> Estimate {
    let only = values.only();
    let n = only.len();
    let interval = geometric_interval(&only);
    // A repeat of 0 (no request met its objectives) has no logarithm: the plain mean is shown, without an interval.
    let value = interval.map(|i| i.centre).or_else(|| mean(&only));
    let note = match (values.note, values.missing, n) {
        (_, why, 0) => Some(why.unwrap_or(NO_DATA)),
        (Some(note), ..) => Some(note),
        (None, Some(why), _) => Some(why),
        (None, None, 1) => Some(ONE_REPEAT),
        _ if interval.is_none() => Some("a repeat is 0, no interval"),
        _ => None,
    };
    let (low, high) = (interval.and_then(|i| i.low), interval.and_then(|i| i.high));
    Estimate { n, value, low, high, note: note.map(str::to_owned) }
}

/// Percentiles over all ok rows of all repeats: no value where n is too small for one.
fn percentiles(metrics: &mut Metrics, names: Percentiles, values: &[f64], note: Option<&str>) {
    let rising = sorted(values);
    let n = rising.len();
    for &(name, p) in names {
        let value = percentile_sorted(&rising, p).filter(|_| n >= minimum_n(p));
        let note = match (n, value) {
            (0, _) => Some(NO_DATA),
            (_, None) => Some(N_TOO_SMALL),
            _ => note,
        };
        metrics.insert(name, Estimate { n, value, low: None, high: None, note: note.map(str::to_owned) });
    }
}

fn plain(n: usize, value: Option<f64>) -> Estimate {
    Estimate { n, value, ..Estimate::default() }
}

/// Everything a report says of one arm × cell.
pub fn summarise(arm: &str, planned: &PlannedCell, rows: &CellRows<'_>, slo: Option<PlannedSlo>) -> CellSummary {
    let ok: Vec<&RequestRecord> = rows.ok().collect();
    let decodes = planned.completion_tokens > 1;
    let values = |of: &dyn Fn(&RequestRecord) -> Option<f64>| ok.iter().filter_map(|r| of(r)).collect::<Vec<f64>>();
    let samples = Samples {
        ttft_ms: values(&row::ttft_ms),
        tpot_ms: values(&|r| row::tpot_ms(r).map(|l| l.value)),
        icl_ms: ok.iter().flat_map(|r| row::icl_ms(r)).collect(),
        e2e_latency_ms: values(&row::e2e_latency_ms),
    };
    let mut metrics = Metrics::new();
    for name in ["prefill_tok_s", "request_rate_req_s", "ttft_ms_mean", "e2e_latency_ms_mean"] {
        metrics.insert(name, over_repeats(&repeat_values(rows, planned, name)));
    }
    percentiles(&mut metrics, TTFT, &samples.ttft_ms, None);
    percentiles(&mut metrics, E2E, &samples.e2e_latency_ms, None);
    percentiles(&mut metrics, TTFT_FROM_SCHEDULE, &values(&row::ttft_from_schedule_ms), None);
    percentiles(&mut metrics, E2E_FROM_SCHEDULE, &values(&row::e2e_latency_from_schedule_ms), None);
    percentiles(&mut metrics, LATENESS, &values(&row::lateness_ms), None);
    // Only where the target tells them, or where they differ from what stands there already.
    let answer = values(&row::ttft_answer_ms);
    if answer != samples.ttft_ms {
        percentiles(&mut metrics, TTFT_ANSWER, &answer, None);
    }
    for (names, seen) in [(TTFB, values(&row::ttfb_ms)), (QUEUE, values(&server_queue_ms))] {
        if !seen.is_empty() {
            percentiles(&mut metrics, names, &seen, None);
        }
    }
    load(&mut metrics, rows);
    if let Some(offer) = &planned.offer {
        metrics
            .insert("offered_req_s", plain(rows.repeats.len(), Some(offer.rate_req_s).filter(|rate| rate.is_finite())));
    }
    lengths(&mut metrics, &ok);
    if decodes {
        decode(&mut metrics, planned, rows, &samples);
    }
    speculation(&mut metrics, &ok);
    if let Some(slo) = slo {
        // From schedule in an open loop: a client that sends late must not make a server look good.
        let ttft = if planned.offer.is_some() { row::ttft_from_schedule_ms } else { row::ttft_ms };
        goodput(&mut metrics, rows, Objectives { slo, ttft });
    }
    CellSummary {
        arm: arm.to_owned(),
        cell: planned.id.clone(),
        workload: planned.workload.clone(),
        concurrency: planned.concurrency,
        rate_req_s: planned.offer.as_ref().map(|offer| offer.rate_req_s),
        prompt_tokens: planned.prompt_tokens,
        completion_tokens: planned.completion_tokens,
        repeats: rows.repeats.values().filter(|rows| rows.iter().any(|r| is_ok(r))).count(),
        rows: rows.counts(),
        metrics,
        samples,
    }
}

/// The server's queue in ms, as it says.
fn server_queue_ms(row: &RequestRecord) -> Option<f64> {
    row.server_queue_ms.filter(|ms| ms.is_finite())
}

/// Everything about decode; absent for a workload that generates one token.
fn decode(metrics: &mut Metrics, planned: &PlannedCell, rows: &CellRows<'_>, samples: &Samples) {
    // An open loop has no lanes that could all decode.
    let lanes = planned.concurrency > 0;
    let aggregate = lanes.then_some("decode_tok_s_aggregate");
    for name in aggregate.into_iter().chain(["run_tok_s", "tpot_ms_mean"]) {
        metrics.insert(name, over_repeats(&repeat_values(rows, planned, name)));
    }
    let ok: Vec<&RequestRecord> = rows.ok().collect();
    let unknown_first = ok.iter().find_map(|r| row::tpot_ms(r)?.note);
    percentiles(metrics, TPOT, &samples.tpot_ms, unknown_first);
    percentiles(metrics, ICL, &samples.icl_ms, None);
    let rates: Vec<Labelled> = ok.iter().filter_map(|r| row::decode_tok_s(r)).collect();
    let rates: Vec<f64> = rates.iter().map(|l| l.value).collect();
    percentiles(metrics, DECODE, &rates, unknown_first);
    let server: Vec<f64> = ok.iter().filter_map(|r| row::server_decode_tok_s(r)).collect();
    if !server.is_empty() {
        percentiles(metrics, SERVER_DECODE, &server, None);
    }
    // A gap is a token's only where every chunk of every row carried one.
    let tokens: Option<Vec<Vec<f64>>> = ok.iter().map(|r| row::itl_ms(r)).collect();
    if let Some(tokens) = tokens.filter(|t| !t.is_empty()) {
        percentiles(metrics, ITL, &tokens.concat(), None);
    }
    if !lanes {
        return;
    }
    let share = rows.by_repeat(|rows| {
        let full = decode_throughput(rows, planned.concurrency)?.seconds;
        Ok(Labelled { value: 100.0 * full / window_s(rows).ok_or(NO_DATA)?, note: None })
    });
    metrics.insert("decode_window_percent", plain(share.values.len(), mean(&share.only())));
}

/// Requests in flight, mean over time and most at once.
fn load(metrics: &mut Metrics, rows: &CellRows<'_>) {
    let seen: Vec<_> = rows.repeats.values().filter_map(|rows| in_flight(rows)).collect();
    let (area, seconds) = seen.iter().fold((0.0, 0.0), |sum, i| (sum.0 + i.request_s, sum.1 + i.seconds));
    metrics.insert("in_flight_mean", plain(seen.len(), (seconds > 0.0).then(|| area / seconds)));
    metrics.insert("in_flight_max", plain(seen.len(), seen.iter().map(|i| i.peak as f64).reduce(f64::max)));
}

/// Lengths as the target counts them.
fn lengths(metrics: &mut Metrics, ok: &[&RequestRecord]) {
    let mean_of = |of: fn(&RequestRecord) -> Option<u32>| {
        let values: Vec<f64> = ok.iter().filter_map(|r| of(r)).map(f64::from).collect();
        plain(values.len(), mean(&values))
    };
    metrics.insert("prompt_tokens_mean", mean_of(row::prompt_tokens));
    metrics.insert("completion_tokens_mean", mean_of(row::completion_tokens));
}

/// Speculation: ratios of sums over the cell, and the counts they are made of. Absent where nothing was drafted.
fn speculation(metrics: &mut Metrics, ok: &[&RequestRecord]) {
    let Some(sums) = row::speculation(ok.iter().copied()) else { return };
    let n = sums.rows;
    metrics.insert("acceptance", plain(n, sums.acceptance().map(|share| 100.0 * share)));
    metrics.insert("tokens_per_round", plain(n, sums.tokens_per_round()));
    metrics.insert("drafted_tokens", plain(n, Some(sums.drafted as f64)));
    metrics.insert("accepted_tokens", plain(n, Some(sums.accepted as f64)));
    metrics.insert("spec_rounds", plain(n, sums.rounds.map(|rounds| rounds as f64)));
}

/// What a request must meet, and by which clock.
#[derive(Clone, Copy)]
struct Objectives {
    slo: PlannedSlo,
    ttft: fn(&RequestRecord) -> Option<f64>,
}

/// Goodput and attainment. A failed request met nothing; neither did one whose value is unknown, and the note counts those.
fn goodput(metrics: &mut Metrics, rows: &CellRows<'_>, slo: Objectives) {
    let met = |r: &RequestRecord| is_ok(r) && meets(r, slo) == Some(true);
    let rate = rows.by_repeat(|rows| {
        let value = rows.iter().filter(|r| met(r)).count() as f64 / window_s(rows).ok_or(NO_DATA)?;
        Ok(Labelled { value, note: None })
    });
    let (issued, good) = (rows.measured().count(), rows.measured().filter(|r| met(r)).count());
    let ok = rows.ok().count();
    let unknown = rows.ok().filter(|r| meets(r, slo).is_none()).count();
    let note = (unknown > 0).then(|| format!("{unknown} answers could not be judged and count as missed"));
    let known = ok == 0 || unknown < ok;
    let mut estimate = over_repeats(&rate);
    let mut share = plain(issued, None);
    if known {
        let interval = wilson(good as u64, issued as u64);
        share.value = (issued > 0).then(|| 100.0 * good as f64 / issued as f64);
        (share.low, share.high) = (interval.map(|i| 100.0 * i.0), interval.map(|i| 100.0 * i.1));
    } else {
        // Not one answer could be judged: 0 would be a verdict that nobody gave.
        estimate = Estimate { n: estimate.n, ..Estimate::default() };
    }
    if note.is_some() {
        (estimate.note, share.note) = (note.clone(), note);
    }
    metrics.insert("goodput_req_s", estimate);
    metrics.insert("slo_attainment_percent", share);
}

/// Whether a row meets every objective; `None` where one cannot be judged. An answer of one chunk has no time per output token to limit.
fn meets(r: &RequestRecord, Objectives { slo, ttft }: Objectives) -> Option<bool> {
    let below = |value: Option<f64>, limit: Option<f64>| match limit {
        None => Some(true),
        Some(limit) => value.map(|value| value <= limit),
    };
    let single = row::completion_tokens(r).is_some_and(|n| n <= r.first_chunk_tokens.unwrap_or(1).max(1));
    let tpot = if single { Some(true) } else { below(row::tpot_ms(r).map(|l| l.value), slo.tpot_ms) };
    match (below(ttft(r), slo.ttft_ms), tpot) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (Some(true), Some(true)) => Some(true),
        _ => None,
    }
}
