//! What a reader should know of a run that may be valid all the same.
use std::collections::BTreeMap;

use serde_json::Value;

use super::cell::N_TOO_SMALL;
use super::row;
use super::summary::CellSummary;
use super::validity::{Judged, LENGTH_PARITY, failed_warmups, plain, settings_of};
use crate::record::{LoggedRun, OutcomeGroup, PlannedRun, RequestRecord};
use crate::statistics::{mean, minimum_n, student_t_quantile};

/// Facts of host and build that differ between any two moments and say nothing.
const PASSING: [&str; 5] = ["load average", "memory available", "boot id", "arguments", "time"];
/// Lateness in ms worth a word.
const LATE_MS: f64 = 5.0;
/// Share of the machine that other programs may take before it is worth a word.
const OTHERS: f64 = 0.1;

/// Repeats below which an interval says more of Student's t than of the machine.
const MIN_REPEATS: usize = 4;

/// Every warning, most general first.
pub fn warnings(run: &LoggedRun, plan: &PlannedRun, judged: &[Judged<'_>], cells: &[CellSummary]) -> Vec<String> {
    let mut said = Vec::new();
    said.extend(busy_at_start(run));
    said.extend(busy_meanwhile(run, plan));
    resumed(run, &mut said);
    logged(run, &mut said);
    unplanned(run, plan, &mut said);
    unverified(run, plan, &mut said);
    few(judged, cells, &mut said);
    for judged in judged {
        of_cell(judged, &mut said);
    }
    twins(plan, cells, &mut said);
    said
}

/// A fact of the host; names are written with blanks or underscores.
fn host<'a>(provenance: &'a Value, name: &str) -> Option<&'a str> {
    let host = &provenance["host"];
    host[name].as_str().or_else(|| host[name.replace(' ', "_")].as_str())
}

fn processors(run: &LoggedRun) -> Option<f64> {
    run.segments.iter().find_map(|s| host(&s.open.provenance, "cores available")?.parse().ok())
}

/// Load average over half of the processors when a segment started.
fn busy_at_start(run: &LoggedRun) -> Option<String> {
    let first = |text: &str| text.split([' ', ',']).next()?.parse::<f64>().ok();
    let load = run.segments.iter().filter_map(|s| first(host(&s.open.provenance, "load average")?));
    let (load, cores) = (load.reduce(f64::max)?, processors(run)?);
    (load > 0.5 * cores)
        .then(|| format!("the host was busy at the start: load average {load:.2} on {cores} processors"))
}

/// Other programs took more than a tenth of the machine while our own engine ran. With a server as target that may be the server.
fn busy_meanwhile(run: &LoggedRun, plan: &PlannedRun) -> Option<String> {
    let ours = plan.arms.iter().all(|arm| arm.target.get("in_process").is_some());
    let cores = processors(run)?;
    let others: Vec<f64> = run
        .hardware
        .iter()
        .filter_map(|sample| {
            let host = sample.fields.get("host_cpu_percent")?.as_f64()? / 100.0 * cores;
            Some((host - sample.fields.get("process_cpu_percent")?.as_f64()? / 100.0).max(0.0))
        })
        .collect();
    let others = mean(&others).filter(|&others| ours && others > OTHERS * cores)?;
    Some(format!("other programs used {others:.1} of {cores} processors while the run went on"))
}

fn resumed(run: &LoggedRun, said: &mut Vec<String>) {
    let Some((first, later)) = run.segments.split_first().filter(|(_, later)| !later.is_empty()) else { return };
    let replaced = run.superseded();
    said.push(format!(
        "the run was interrupted and resumed: {} segments, {replaced} rows replaced by a rerun",
        run.segments.len()
    ));
    for part in ["host", "build"] {
        let facts = |s: &crate::record::Segment| s.open.provenance[part].as_object().cloned().unwrap_or_default();
        let before = facts(first);
        let mut differs: Vec<String> = Vec::new();
        for segment in later {
            let now = facts(segment);
            let names = before.keys().chain(now.keys());
            differs.extend(names.filter(|name| before.get(*name) != now.get(*name)).cloned());
        }
        differs.sort();
        differs.dedup();
        differs.retain(|name| !PASSING.contains(&name.replace('_', " ").as_str()));
        if !differs.is_empty() {
            said.push(format!("it was resumed on another {part}: {} differ", differs.join(", ")));
        }
    }
    if later.iter().any(|s| s.open.boot_id.is_some() && s.open.boot_id != first.open.boot_id) {
        said.push("the host was booted anew between segments".into());
    }
}

fn logged(run: &LoggedRun, said: &mut Vec<String>) {
    if run.torn && run.end.is_none() {
        said.push("a crash cut the last line of the log; the rest is whole and the run can be resumed".into());
    }
    let warnings = run.events.iter().filter(|event| event.what == "warning");
    for message in warnings.filter_map(|event| event.fields.get("message")) {
        let message = plain(message);
        if !said.contains(&message) {
            said.push(message);
        }
    }
}

fn unplanned(run: &LoggedRun, plan: &PlannedRun, said: &mut Vec<String>) {
    let known = |r: &RequestRecord| {
        plan.arms.iter().any(|arm| arm.name == r.arm) && plan.cells.iter().any(|cell| cell.id == r.cell)
    };
    let n = run.live_rows().into_iter().filter(|r| !known(r)).count();
    if n > 0 {
        said.push(format!("{n} rows belong to no arm and cell of the plan and are left out"));
    }
}

fn unverified(run: &LoggedRun, plan: &PlannedRun, said: &mut Vec<String>) {
    for arm in &plan.arms {
        let mut keys: Vec<&str> =
            settings_of(run, arm).filter(|(_, _, effective)| effective.is_null()).map(|(key, ..)| key).collect();
        keys.dedup();
        if !keys.is_empty() {
            said.push(format!("{}: unverified, the target does not say what runs: {}", arm.name, keys.join(", ")));
        }
    }
}

/// Numbers that rest on too little.
fn few(judged: &[Judged<'_>], cells: &[CellSummary], said: &mut Vec<String>) {
    let once = judged.iter().filter(|j| j.rows.repeats.len() == 1).count();
    if once > 0 {
        let all = judged.len();
        said.push(format!("{once} of {all} cells were measured in one repeat only: they have no interval"));
    }
    let few = judged.iter().filter(|j| (2..MIN_REPEATS).contains(&j.rows.repeats.len()));
    if let Some(n) = few.map(|j| j.rows.repeats.len()).min() {
        let t = student_t_quantile(0.975, (n - 1) as f64).unwrap_or(f64::INFINITY);
        said.push(format!(
            "intervals rest on {n} repeats only (Student t {t:.1} for 95 %, 2.6 with 6): they are wide whatever was measured; ask for {MIN_REPEATS} repeats or more"
        ));
    }
    let small = |ending: &str| {
        let left_out = |c: &CellSummary| {
            c.metrics.iter().any(|(name, e)| name.ends_with(ending) && e.note.as_deref() == Some(N_TOO_SMALL))
        };
        cells.iter().filter(|c| left_out(c)).count()
    };
    let percentiles: Vec<String> = [("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99)]
        .into_iter()
        .filter(|(name, _)| small(name) > 0)
        .map(|(name, p)| format!("{name} (needs {})", minimum_n(p)))
        .collect();
    if !percentiles.is_empty() {
        said.push(format!("some percentiles are left out for want of requests: {}", percentiles.join(", ")));
    }
}

/// What single rows of a cell tell.
fn of_cell(judged: &Judged<'_>, said: &mut Vec<String>) {
    let place = format!("{}, {}", judged.arm.name, judged.cell.id);
    let rows: Vec<&RequestRecord> = judged.rows.measured().collect();
    let n = rows.len();
    let mut count = |of: &dyn Fn(&RequestRecord) -> bool, text: &str| {
        let seen = rows.iter().filter(|r| of(r)).count();
        if seen > 0 {
            said.push(format!("{place}: {seen} of {n} requests {text}"));
        }
    };
    count(&|r| r.outcome.group() == OutcomeGroup::Cancelled, "were cancelled when the run was stopped");
    count(&|r| r.outcome.group() == OutcomeGroup::Shed, "were never sent");
    count(&|r| r.usage_mismatch == Some(true), "report usage that cannot be true or differs from our count");
    count(&|r| r.bad_chunks.is_some_and(|n| n > 0), "held chunks that could not be read");
    count(&|r| r.bad_text.is_some_and(|n| n > 0), "held bytes that are not UTF-8");
    let late = rows.iter().filter_map(|r| row::lateness_ms(r)).reduce(f64::max);
    if let Some(late) = late.filter(|&late| late > LATE_MS) {
        said.push(format!(
            "{place}: a request was sent {late:.1} ms after its time; latencies from schedule hold that"
        ));
    }
    let tokens: Vec<f64> = judged.rows.ok().filter_map(row::completion_tokens).map(f64::from).collect();
    let planned = judged.cell.completion_tokens;
    if let Some(found) = mean(&tokens)
        && planned > 0
        && (found / f64::from(planned) - 1.0).abs() > LENGTH_PARITY
    {
        said.push(format!("{place}: answers hold {found:.1} tokens on average, {planned} were asked for"));
    }
    let failed = failed_warmups(judged);
    if failed > 0 {
        said.push(format!("{place}: {failed} warm-up requests failed"));
    }
}

/// Two arms whose numbers are the same to five digits were probably answered by the same process.
fn twins(plan: &PlannedRun, cells: &[CellSummary], said: &mut Vec<String>) {
    const COMPARED: [&str; 4] = ["decode_tok_s_aggregate", "prefill_tok_s", "ttft_ms_mean", "e2e_latency_ms_mean"];
    let mut seen: BTreeMap<(&str, Vec<String>), &str> = BTreeMap::new();
    for cell in cells {
        let digits: Vec<String> =
            COMPARED.iter().filter_map(|name| Some(format!("{name} {:.4e}", cell.metrics.get(name)?.value?))).collect();
        if digits.len() < 2 || !plan.arms.iter().any(|arm| arm.name == cell.arm) {
            continue;
        }
        if let Some(other) = seen.insert((&cell.cell, digits), &cell.arm) {
            said.push(format!(
                "{}: {other} and {} measure the same to five digits; did one process answer both?",
                cell.cell, cell.arm
            ));
        }
    }
}
