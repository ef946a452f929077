//! From a log to everything a report prints.
use std::collections::BTreeMap;

use serde_json::Value;

use super::cell;
use super::cell_rows::CellRows;
use super::client_error;
use super::compare::compare;
use super::differences;
use super::summary::{Failure, RowCounts, RunSummary, Verdict};
use super::validity::{self, Judged};
use super::warnings::warnings;
use crate::record::{LoggedRun, Outcome, OutcomeGroup, RequestRecord};

/// Computes the summary of a run. Nothing but the log is read, so a corrected formula repairs every old run.
pub fn summarise(run_id: &str, run: &LoggedRun) -> RunSummary {
    let plan = &run.header.plan;
    let mut grouped: BTreeMap<(&str, &str), Vec<&RequestRecord>> = BTreeMap::new();
    for row in run.live_rows() {
        grouped.entry((&row.arm, &row.cell)).or_default().push(row);
    }
    let rows: BTreeMap<(&str, &str), CellRows<'_>> = plan
        .arms
        .iter()
        .flat_map(|arm| plan.cells.iter().map(move |cell| (arm.name.as_str(), cell.id.as_str())))
        .map(|key| (key, CellRows::of(grouped.get(&key).map_or(&[], Vec::as_slice))))
        .collect();
    let judged: Vec<Judged<'_>> = plan
        .arms
        .iter()
        .flat_map(|arm| plan.cells.iter().map(move |cell| (arm, cell)))
        .filter_map(|(arm, cell)| {
            let rows = rows.get(&(arm.name.as_str(), cell.id.as_str()))?;
            Some(Judged { arm, cell, rows })
        })
        .collect();
    let mut cells: Vec<_> = judged.iter().map(|j| cell::summarise(&j.arm.name, j.cell, j.rows, plan.slo)).collect();
    let counts = cells.iter().fold(RowCounts::default(), |mut sum, cell| {
        sum.issued += cell.rows.issued;
        sum.ok += cell.rows.ok;
        sum.failed += cell.rows.failed;
        sum.cancelled += cell.rows.cancelled;
        sum.shed += cell.rows.shed;
        sum.warmup += cell.rows.warmup;
        sum
    });
    let partial = run.end.is_none();
    let calibration = client_error::calibration(run);
    let mut reasons = validity::judge(run, plan, &judged, calibration.as_ref());
    reasons.extend(calibration.iter().flat_map(|found| client_error::mark(found, &judged, &mut cells)));
    // A log that lost rows supports nothing, also where that kept it from its end; any other broken rule of an unfinished run may yet be mended.
    let verdict = match (partial, reasons.is_empty()) {
        _ if validity::rows_lost(run) => Verdict::Invalid,
        (true, _) => Verdict::Partial,
        (false, true) => Verdict::Valid,
        (false, false) => Verdict::Invalid,
    };
    let first = run.segments.first();
    RunSummary {
        run_id: run_id.to_owned(),
        name: plan.name.clone(),
        question: plan.question.clone(),
        identity: run.header.identity.clone(),
        started_utc: first.map_or_else(String::new, |s| s.open.utc.clone()),
        segments: run.segments.len(),
        synthetic: run
            .segments
            .iter()
            .filter_map(|segment| segment.open.provenance["target"].as_object())
            .any(|targets| targets.values().any(|facts| facts["synthetic"] == Value::Bool(true))),
        verdict,
        reasons,
        warnings: warnings(run, plan, &judged, &cells),
        client_error: client_error::lines(run, &judged, &cells),
        rows: counts,
        superseded: run.superseded(),
        provenance: provenance(run),
        arms: differences::arms(run, plan),
        comparisons: compare(run, plan, &rows),
        failures: failures(&judged),
        cells,
    }
}

/// Groups of name and value from the last segment, targets by arm.
fn provenance(run: &LoggedRun) -> Vec<(String, Vec<(String, String)>)> {
    let Some(segment) = run.segments.last() else { return Vec::new() };
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let mut groups = Vec::new();
    for part in ["host", "build"] {
        if let Some(map) = segment.open.provenance[part].as_object() {
            groups.push((part.to_owned(), map.iter().map(|(k, v)| (k.clone(), text(v))).collect()));
        }
    }
    if let Some(targets) = segment.open.provenance["target"].as_object() {
        for (arm, facts) in targets {
            let mut pairs = Vec::new();
            for (key, value) in facts.as_object().into_iter().flatten() {
                match value {
                    Value::Null => {}
                    Value::Array(more) => {
                        pairs.extend(more.iter().filter_map(|pair| Some((text(pair.get(0)?), text(pair.get(1)?)))));
                    }
                    other => pairs.push((key.clone(), text(other))),
                }
            }
            groups.push((format!("target of {arm}"), pairs));
        }
    }
    groups
}

fn failures(judged: &[Judged<'_>]) -> Vec<Failure> {
    let mut failures = Vec::new();
    for j in judged {
        let mut by: BTreeMap<Outcome, Vec<&RequestRecord>> = BTreeMap::new();
        for row in j.rows.measured().filter(|row| row.outcome.group() != OutcomeGroup::Ok) {
            by.entry(row.outcome).or_default().push(row);
        }
        failures.extend(by.into_iter().map(|(outcome, rows)| Failure {
            arm: j.arm.name.clone(),
            cell: j.cell.id.clone(),
            outcome,
            count: rows.len(),
            example: rows.iter().find_map(|row| row.error.clone()),
        }));
    }
    failures
}
