//! The numbers of one arm × cell.
use std::collections::BTreeMap;

use super::aggregate::{decode_throughput, run_throughput};
use super::row;
use super::summary::{CellSummary, Estimate, RowCounts, Samples};
use crate::record::{OutcomeGroup, PlannedCell, PlannedSlo, RequestRecord};
use crate::statistics::{Interval, geometric_interval, minimum_n, percentile};

/// Rows of one arm × cell, by repeat.
pub struct CellRows<'a> {
    /// Measured live rows of every repeat that has any.
    pub repeats: BTreeMap<u32, Vec<&'a RequestRecord>>,
    /// Warm-up rows.
    pub warmup: usize,
}

impl<'a> CellRows<'a> {
    /// Takes the rows of `arm` and `cell` out of `rows`.
    pub fn of(rows: &[&'a RequestRecord], arm: &str, cell: &str) -> Self {
        let mut repeats: BTreeMap<u32, Vec<&'a RequestRecord>> = BTreeMap::new();
        let mut warmup = 0;
        for row in rows.iter().filter(|row| row.arm == arm && row.cell == cell) {
            if row.warmup {
                warmup += 1;
            } else {
                repeats.entry(row.repeat).or_default().push(row);
            }
        }
        // The order of rows in a log is the order in which requests ended; no figure may depend on it.
        repeats.values_mut().for_each(|rows| rows.sort_by_key(|row| row.index));
        Self { repeats, warmup }
    }

    /// Measured rows.
    pub fn measured(&self) -> impl Iterator<Item = &'a RequestRecord> + '_ {
        self.repeats.values().flatten().copied()
    }

    /// Measured rows that were answered.
    pub fn ok(&self) -> impl Iterator<Item = &'a RequestRecord> + '_ {
        self.measured().filter(|row| row.outcome.group() == OutcomeGroup::Ok)
    }

    /// One value a repeat, over its ok rows.
    fn by_repeat(&self, value: impl Fn(&[&RequestRecord]) -> Option<f64>) -> Vec<(u32, f64)> {
        self.repeats
            .iter()
            .filter_map(|(&repeat, rows)| {
                let ok: Vec<&RequestRecord> =
                    rows.iter().copied().filter(|row| row.outcome.group() == OutcomeGroup::Ok).collect();
                Some((repeat, value(&ok)?))
            })
            .collect()
    }

    /// Counts by group.
    pub fn counts(&self) -> RowCounts {
        let mut counts = RowCounts { warmup: self.warmup, ..RowCounts::default() };
        for row in self.measured() {
            counts.issued += 1;
            match row.outcome.group() {
                OutcomeGroup::Ok => counts.ok += 1,
                OutcomeGroup::Failed => counts.failed += 1,
                OutcomeGroup::Cancelled => counts.cancelled += 1,
                OutcomeGroup::Shed => counts.shed += 1,
            }
        }
        counts
    }
}

/// The values that repeats are compared by, for the metrics that have an interval over repeats.
pub fn repeat_values(rows: &CellRows<'_>, planned: &PlannedCell, metric: &str) -> Vec<(u32, f64)> {
    match metric {
        "decode_tok_s_aggregate" => {
            rows.by_repeat(|ok| decode_throughput(ok, planned.concurrency).and_then(super::Throughput::tok_s))
        }
        "run_tok_s" => rows.by_repeat(|ok| run_throughput(ok).and_then(super::Throughput::tok_s)),
        "prefill_tok_s" => rows.by_repeat(|ok| prefill(ok).map(|(rate, _)| rate)),
        "ttft_ms_mean" => rows.by_repeat(|ok| {
            let values: Option<Vec<f64>> = ok.iter().map(|row| row::ttft_ms(row)).collect();
            crate::statistics::mean(&values?)
        }),
        _ => Vec::new(),
    }
}

/// Prompt tokens over time in prefill, as a ratio of sums, with the label it needs.
fn prefill(ok: &[&RequestRecord]) -> Option<(f64, Option<&'static str>)> {
    let (mut tokens, mut ms, mut note) = (0.0, 0.0, None);
    for row in ok {
        let work = row::prefill_work_of_server(row).or_else(|| row::prefill_work_from_ttft(row))?;
        tokens += work.tokens;
        ms += work.ms;
        note = note.or(work.note);
    }
    Some((tokens * 1e3 / ms, note)).filter(|(rate, _)| rate.is_finite())
}

fn of_interval(values: &[(u32, f64)], note: Option<&str>) -> Estimate {
    let values: Vec<f64> = values.iter().map(|&(_, value)| value).collect();
    let n = values.len();
    let note = note.map(str::to_owned);
    match geometric_interval(&values) {
        Some(Interval { centre, low, high, .. }) => Estimate { n, value: Some(centre), low, high, note },
        None => Estimate { n, value: None, low: None, high: None, note },
    }
}

fn of_percentile(values: &[f64], p: f64, note: Option<&str>) -> Estimate {
    let n = values.len();
    let enough = n >= minimum_n(p);
    let note = if enough || n == 0 { note.map(str::to_owned) } else { Some("n too small".to_owned()) };
    Estimate { n, value: enough.then(|| percentile(values, p)).flatten(), low: None, high: None, note }
}

/// Everything a report says of one arm × cell.
pub fn summarise(arm: &str, planned: &PlannedCell, rows: &CellRows<'_>, slo: Option<PlannedSlo>) -> CellSummary {
    let mut metrics = BTreeMap::new();
    let mut samples = Samples::default();
    let decodes = planned.completion_tokens > 1;
    let ok: Vec<&RequestRecord> = rows.ok().collect();
    let unknown_first = ok.iter().filter_map(|r| row::tpot_ms(r)).find_map(|labelled| labelled.note);

    let over_repeats = |metric: &str, note: Option<&str>| of_interval(&repeat_values(rows, planned, metric), note);
    let prefill_note = prefill(&ok).and_then(|(_, note)| note);
    metrics.insert("prefill_tok_s", over_repeats("prefill_tok_s", prefill_note));
    metrics.insert("ttft_ms_mean", over_repeats("ttft_ms_mean", None));
    if decodes {
        metrics.insert("decode_tok_s_aggregate", over_repeats("decode_tok_s_aggregate", unknown_first));
        metrics.insert("run_tok_s", over_repeats("run_tok_s", None));
    }

    let values =
        |of: &dyn Fn(&RequestRecord) -> Option<f64>| -> Vec<f64> { ok.iter().filter_map(|row| of(row)).collect() };
    samples.ttft_ms = values(&row::ttft_ms);
    samples.e2e_latency_ms = values(&row::e2e_latency_ms);
    samples.tpot_ms = values(&|r| row::tpot_ms(r).map(|labelled| labelled.value));
    samples.icl_ms = ok.iter().flat_map(|r| row::icl_ms(r)).collect();
    for (name, p) in [("ttft_ms_p50", 0.5), ("ttft_ms_p90", 0.9), ("ttft_ms_p99", 0.99)] {
        metrics.insert(name, of_percentile(&samples.ttft_ms, p, None));
    }
    for (name, p) in [("e2e_latency_ms_p50", 0.5), ("e2e_latency_ms_p90", 0.9), ("e2e_latency_ms_p99", 0.99)] {
        metrics.insert(name, of_percentile(&samples.e2e_latency_ms, p, None));
    }
    let answer = values(&row::ttft_answer_ms);
    if answer != samples.ttft_ms {
        metrics.insert("ttft_answer_ms_p50", of_percentile(&answer, 0.5, None));
    }
    metrics.insert("ttft_from_schedule_ms_p50", of_percentile(&values(&row::ttft_from_schedule_ms), 0.5, None));
    let first_bytes = values(&row::ttfb_ms);
    if !first_bytes.is_empty() {
        metrics.insert("ttfb_ms_p50", of_percentile(&first_bytes, 0.5, None));
    }
    if decodes {
        for (name, p) in [("tpot_ms_p50", 0.5), ("tpot_ms_p90", 0.9)] {
            metrics.insert(name, of_percentile(&samples.tpot_ms, p, unknown_first));
        }
        for (name, p) in [("icl_ms_p50", 0.5), ("icl_ms_p99", 0.99)] {
            metrics.insert(name, of_percentile(&samples.icl_ms, p, None));
        }
        let rates = values(&|r| row::decode_tok_s(r).map(|labelled| labelled.value));
        metrics.insert("decode_tok_s_p50", of_percentile(&rates, 0.5, unknown_first));
        let server = values(&row::server_decode_tok_s);
        if !server.is_empty() {
            metrics.insert("server_decode_tok_s_p50", of_percentile(&server, 0.5, None));
        }
    }
    let late: Vec<f64> = rows.measured().filter_map(row::lateness_ms).collect();
    metrics.insert("lateness_ms_p99", of_percentile(&late, 0.99, None));
    if let Some(speculation) = row::speculation(ok.iter().copied()) {
        let value = speculation.acceptance().map(|share| share * 100.0);
        metrics.insert("acceptance", Estimate { n: speculation.rows, value, ..Estimate::default() });
    }
    if let Some(slo) = slo {
        let per_repeat = rows.by_repeat(|ok| goodput(ok, slo));
        let values: Vec<f64> = per_repeat.iter().map(|&(_, v)| v).collect();
        let interval = crate::statistics::mean_interval(&values);
        metrics.insert(
            "goodput_req_s",
            Estimate {
                n: values.len(),
                value: interval.map(|i| i.centre),
                low: interval.and_then(|i| i.low).map(|low| low.max(0.0)),
                high: interval.and_then(|i| i.high),
                note: None,
            },
        );
    }
    let with_ok = rows.by_repeat(|ok| (!ok.is_empty()).then_some(1.0)).len();
    CellSummary {
        arm: arm.to_owned(),
        cell: planned.id.clone(),
        workload: planned.workload.clone(),
        concurrency: planned.concurrency,
        prompt_tokens: planned.prompt_tokens,
        completion_tokens: planned.completion_tokens,
        repeats: with_ok,
        rows: rows.counts(),
        metrics,
        samples,
    }
}

/// Requests that met every objective a second, over the time from the first sent to the last ended. A request whose value is unknown did
/// not meet it.
fn goodput(ok: &[&RequestRecord], slo: PlannedSlo) -> Option<f64> {
    let start = ok.iter().filter_map(|row| row.sent_ns).min()?;
    let end = ok.iter().filter_map(|row| row.end_ns).max()?;
    let met = |value: Option<f64>, limit: Option<f64>| limit.is_none_or(|limit| value.is_some_and(|v| v <= limit));
    let good = ok
        .iter()
        .filter(|r| met(row::ttft_ms(r), slo.ttft_ms) && met(row::tpot_ms(r).map(|l| l.value), slo.tpot_ms))
        .count();
    let seconds = end.ms_since(start) / 1e3;
    (seconds > 0.0).then(|| good as f64 / seconds)
}
