//! Rows of one arm × cell, and the values that its repeats give: one value a repeat is what intervals and ratios are made of.
use std::collections::BTreeMap;

use super::decode_window::{NO_DATA, NoRate, decode_throughput};
use super::row::{self, Labelled, Work};
use super::summary::RowCounts;
use super::timeline::{request_rate, run_throughput};
use crate::record::{OutcomeGroup, PlannedCell, RequestRecord};
use crate::statistics::mean;

/// Rows of one arm × cell, by repeat.
pub struct CellRows<'a> {
    /// Measured live rows of every repeat that has any, by index.
    pub repeats: BTreeMap<u32, Vec<&'a RequestRecord>>,
    /// Warm-up rows.
    pub warmup: Vec<&'a RequestRecord>,
}

impl<'a> CellRows<'a> {
    /// Sorts the live rows of one arm and cell by repeat.
    pub fn of(rows: &[&'a RequestRecord]) -> Self {
        let mut repeats: BTreeMap<u32, Vec<&'a RequestRecord>> = BTreeMap::new();
        let mut warmup = Vec::new();
        for &row in rows {
            if row.warmup {
                warmup.push(row);
            } else {
                repeats.entry(row.repeat).or_default().push(row);
            }
        }
        // The order of rows in a log is the order in which requests ended; no figure may depend on it.
        repeats.values_mut().for_each(|rows| rows.sort_by_key(|row| row.index));
        warmup.sort_by_key(|row| (row.repeat, row.index));
        Self { repeats, warmup }
    }

    /// Measured rows.
    pub fn measured(&self) -> impl Iterator<Item = &'a RequestRecord> + '_ {
        self.repeats.values().flatten().copied()
    }

    /// Measured rows that were answered.
    pub fn ok(&self) -> impl Iterator<Item = &'a RequestRecord> + '_ {
        self.measured().filter(|row| is_ok(row))
    }

    /// Counts by group.
    pub fn counts(&self) -> RowCounts {
        let mut counts = RowCounts { warmup: self.warmup.len(), ..RowCounts::default() };
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

    /// One value a repeat, by `value` over its measured rows; where there is none, why.
    pub fn by_repeat(&self, value: impl Fn(&[&RequestRecord]) -> Result<Labelled, NoRate>) -> RepeatValues {
        let mut values = RepeatValues::default();
        for (&repeat, rows) in &self.repeats {
            match value(rows) {
                Ok(labelled) if labelled.value.is_finite() => {
                    values.values.push((repeat, labelled.value));
                    values.note = values.note.or(labelled.note);
                }
                Ok(_) => {}
                Err(why) => values.missing = values.missing.or(Some(why)),
            }
        }
        values
    }
}

/// Whether a row was answered.
pub fn is_ok(row: &RequestRecord) -> bool {
    row.outcome.group() == OutcomeGroup::Ok
}

/// One value a repeat.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RepeatValues {
    /// Repeat and value.
    pub values: Vec<(u32, f64)>,
    /// Label of a value.
    pub note: Option<&'static str>,
    /// Why a repeat has no value.
    pub missing: Option<NoRate>,
}

impl RepeatValues {
    /// The values alone.
    pub fn only(&self) -> Vec<f64> {
        self.values.iter().map(|&(_, value)| value).collect()
    }
}

/// Metrics with one value a repeat. A name that is none of them has no values.
pub fn repeat_values(rows: &CellRows<'_>, planned: &PlannedCell, metric: &str) -> RepeatValues {
    let plain = |value: f64| Labelled { value, note: None };
    match metric {
        "decode_tok_s_aggregate" => rows.by_repeat(|rows| {
            let value = decode_throughput(rows, planned.concurrency)?.tok_s().ok_or(NO_DATA)?;
            Ok(Labelled { value, note: rows.iter().filter(|r| is_ok(r)).find_map(|r| row::tpot_ms(r)?.note) })
        }),
        "run_tok_s" => rows.by_repeat(|rows| run_throughput(rows)?.tok_s().map(plain).ok_or(NO_DATA)),
        "request_rate_req_s" => rows.by_repeat(|rows| request_rate(rows).map(plain)),
        "prefill_tok_s" => rows.by_repeat(prefill_tok_s),
        "ttft_ms_mean" => rows.by_repeat(|rows| mean_of(rows, &|r| row::ttft_ms(r).map(plain))),
        "tpot_ms_mean" => rows.by_repeat(|rows| mean_of(rows, &row::tpot_ms)),
        "e2e_latency_ms_mean" => rows.by_repeat(|rows| mean_of(rows, &|r| row::e2e_latency_ms(r).map(plain))),
        _ => RepeatValues::default(),
    }
}

/// Arithmetic mean over the ok rows of a repeat; none where one of them is unknown, since those that are known may be the quick ones.
fn mean_of(rows: &[&RequestRecord], of: &dyn Fn(&RequestRecord) -> Option<Labelled>) -> Result<Labelled, NoRate> {
    let ok: Vec<&RequestRecord> = rows.iter().copied().filter(|row| is_ok(row)).collect();
    if ok.is_empty() {
        return Err(NO_DATA);
    }
    let all: Option<Vec<Labelled>> = ok.iter().map(|row| of(row)).collect();
    let all = all.ok_or("unknown for some requests")?;
    let values: Vec<f64> = all.iter().map(|labelled| labelled.value).collect();
    Ok(Labelled { value: mean(&values).ok_or(NO_DATA)?, note: all.iter().find_map(|labelled| labelled.note) })
}

/// Prompt tokens over time in prefill, as a ratio of sums over the ok rows of a repeat: from the target's own phase times where every row
/// has them, else all from the time to first token, with the label.
fn prefill_tok_s(rows: &[&RequestRecord]) -> Result<Labelled, NoRate> {
    let ok: Vec<&RequestRecord> = rows.iter().copied().filter(|row| is_ok(row)).collect();
    if ok.is_empty() {
        return Err(NO_DATA);
    }
    let all = |of: fn(&RequestRecord) -> Option<Work>| ok.iter().map(|row| of(row)).collect::<Option<Vec<Work>>>();
    let works = all(row::prefill_work_of_server).or_else(|| all(row::prefill_work_from_ttft));
    let works = works.ok_or("prompt tokens or prefill time unknown for some requests")?;
    let (tokens, ms): (f64, f64) = works.iter().fold((0.0, 0.0), |sum, w| (sum.0 + w.tokens, sum.1 + w.ms));
    Ok(Labelled { value: tokens * 1e3 / ms, note: works.iter().find_map(|w| w.note) })
}
