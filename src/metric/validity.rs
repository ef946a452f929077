//! What makes a run invalid: one function a rule, each with its reason in figures. Ids are those of `contracts/formulas.md`.
use serde_json::Value;

use super::aggregate::concurrency_held;
use super::cell::CellRows;
use super::row;
use super::summary::Reason;
use crate::record::{FirstChunkSource, LoggedRun, OutcomeGroup, PlannedCell, PlannedRun, RequestRecord};

/// Share of the window in which the asked concurrency must stand.
const HELD: f64 = 0.95;
/// Largest difference of completion lengths between arms.
const LENGTH_PARITY: f64 = 0.10;
/// Most tokens that a chat template may add to a prompt whose length the target cannot tell beforehand.
const TEMPLATE_TOKENS: u32 = 64;

/// One arm × cell with its rows.
pub struct Judged<'a> {
    /// Arm.
    pub arm: &'a str,
    /// Cell.
    pub cell: &'a PlannedCell,
    /// Rows.
    pub rows: &'a CellRows<'a>,
}

fn reason(rule: &'static str, message: String) -> Reason {
    Reason { rule, message }
}

/// Every broken rule.
pub fn judge(run: &LoggedRun, plan: &PlannedRun, cells: &[Judged<'_>]) -> Vec<Reason> {
    let mut reasons = Vec::new();
    reasons.extend(v1_failures(plan, cells));
    for judged in cells {
        reasons.extend(v2_concurrency(judged));
        reasons.extend(v4_tokens(judged));
        reasons.extend(v5_cache(judged));
        reasons.extend(v9_prompt(judged));
    }
    reasons.extend(v3_length(plan, cells));
    reasons.extend(v6_effective(run, plan));
    reasons.extend(v7_storage(run));
    reasons.extend(v8_client(cells));
    reasons
}

/// V1: failed ÷ issued above `limits.max_failure_rate`; also a run with no answered request at all.
fn v1_failures(plan: &PlannedRun, cells: &[Judged<'_>]) -> Option<Reason> {
    let (mut issued, mut failed, mut ok) = (0usize, 0usize, 0usize);
    for judged in cells {
        let counts = judged.rows.counts();
        (issued, failed, ok) = (issued + counts.issued, failed + counts.failed, ok + counts.ok);
    }
    let share = failed as f64 / issued.max(1) as f64;
    let limit = plan.limits.max_failure_rate;
    if share > limit {
        let message = format!(
            "{failed} of {issued} requests failed ({:.1} %); the limit is {:.1} %",
            share * 100.0,
            limit * 100.0
        );
        return Some(reason("V1", message));
    }
    (ok == 0).then(|| reason("V1", format!("none of {issued} measured requests was answered")))
}

/// V2: the asked concurrency was not held in 95 % of the window, over all repeats of a cell.
fn v2_concurrency(judged: &Judged<'_>) -> Option<Reason> {
    let (mut held, mut total) = (0.0, 0.0);
    for rows in judged.rows.repeats.values() {
        if let Some((share, seconds)) = concurrency_held(rows, judged.cell.concurrency) {
            held += share * seconds;
            total += seconds;
        }
    }
    let share = held / total;
    (total > 0.0 && share < HELD).then(|| {
        let Judged { arm, cell, .. } = judged;
        let message = format!(
            "{arm}, {}: {} requests in flight were held in {:.1} % of the window",
            cell.id,
            cell.concurrency,
            share * 100.0
        );
        reason("V2", message)
    })
}

/// V3: completion lengths of arms differ by more than 10 % in a cell that fixes them.
fn v3_length(plan: &PlannedRun, cells: &[Judged<'_>]) -> Vec<Reason> {
    let mut reasons = Vec::new();
    for cell in &plan.cells {
        let mean_of = |judged: &Judged<'_>| {
            let n: Vec<f64> = judged.rows.ok().filter_map(row::completion_tokens).map(f64::from).collect();
            crate::statistics::mean(&n)
        };
        let means: Vec<(&str, f64)> =
            cells.iter().filter(|j| j.cell.id == cell.id).filter_map(|j| Some((j.arm, mean_of(j)?))).collect();
        let by = |a: &&(&str, f64), b: &&(&str, f64)| a.1.total_cmp(&b.1);
        if let (Some(least), Some(most)) = (means.iter().min_by(by), means.iter().max_by(by))
            && most.1 > least.1 * (1.0 + LENGTH_PARITY)
        {
            let message = format!(
                "{}: completions hold {:.1} tokens on average in {} and {:.1} in {}",
                cell.id, least.1, least.0, most.1, most.0
            );
            reasons.push(reason("V3", message));
        }
    }
    reasons
}

/// V4: usage and our own count differ by more than 2 % and 2 tokens on a row used in a rate, or neither is known.
fn v4_tokens(judged: &Judged<'_>) -> Option<Reason> {
    let (mut unknown, mut differ, mut n) = (0usize, 0usize, 0usize);
    for r in judged.rows.ok() {
        n += 1;
        match (r.usage_completion_tokens, r.counted_completion_tokens) {
            (Some(usage), Some(count)) if row::counts_disagree(usage, count) => differ += 1,
            _ if row::completion_tokens(r).is_none() => unknown += 1,
            _ => {}
        }
    }
    (unknown + differ > 0).then(|| {
        let message = format!(
            "{}, {}: of {n} answered requests {unknown} have no token count and {differ} have two that disagree",
            judged.arm, judged.cell.id
        );
        reason("V4", message)
    })
}

/// V5: cached tokens in a workload that must be cold. The few tokens of a chat template that every request shares are no such hit.
fn v5_cache(judged: &Judged<'_>) -> Option<Reason> {
    if !judged.cell.cold {
        return None;
    }
    let hit = |r: &&RequestRecord| row::cached_tokens(r).is_some_and(|n| n > TEMPLATE_TOKENS);
    let hits = judged.rows.ok().filter(hit).count();
    (hits > 0).then(|| {
        let most = judged.rows.ok().filter_map(row::cached_tokens).max().unwrap_or(0);
        let message = format!(
            "{}, {}: {hits} prompts were answered from a cache, up to {most} tokens",
            judged.arm, judged.cell.id
        );
        reason("V5", message)
    })
}

/// V6: what was asked and what ran differ in KV dtype, context or concurrency.
fn v6_effective(run: &LoggedRun, plan: &PlannedRun) -> Vec<Reason> {
    let mut reasons = Vec::new();
    for arm in &plan.arms {
        let asked = &arm.target["in_process"];
        for segment in &run.segments {
            let facts = &segment.open.provenance["target"][&arm.name];
            let pairs = [
                ("kv_dtype", &asked["kv_dtype"], &facts["effective_kv_dtype"]),
                ("max_context", &asked["max_context"], &facts["effective_context"]),
                ("max_concurrency", &asked["max_concurrency"], &facts["effective_concurrency"]),
            ];
            for (key, asked, effective) in pairs {
                if !asked.is_null() && !effective.is_null() && asked != effective {
                    let message = format!("{}: {key} {} was asked, {} ran", arm.name, plain(asked), plain(effective));
                    reasons.push(reason("V6", message));
                }
            }
        }
    }
    reasons.dedup();
    reasons
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// V7: a row could not be written, or the log was cut.
fn v7_storage(run: &LoggedRun) -> Vec<Reason> {
    let told = |event: &crate::record::LoggedEvent| {
        let message = event.fields.get("message").map_or_else(|| "a row could not be written".to_owned(), plain);
        reason("V7", message)
    };
    let mut reasons: Vec<Reason> = run.storage_incidents().map(told).collect();
    if run.torn {
        reasons.push(reason("V7", "the last line of the log is cut: the run crashed there".into()));
    }
    reasons.dedup();
    reasons
}

/// V8: our own lateness is over 5 % of the claimed latency: median of (sent − scheduled) against the median time to first token.
fn v8_client(cells: &[Judged<'_>]) -> Vec<Reason> {
    let mut reasons = Vec::new();
    for judged in cells {
        let late: Vec<f64> = judged.rows.ok().filter_map(row::lateness_ms).collect();
        let first: Vec<f64> = judged.rows.ok().filter_map(row::ttft_ms).collect();
        if let (Some(late), Some(first)) = (crate::statistics::median(&late), crate::statistics::median(&first))
            && late > 0.05 * first
        {
            let message = format!(
                "{}, {}: requests were sent {late:.2} ms late at the median, over 5 % of the time to first token ({first:.2} ms)",
                judged.arm, judged.cell.id
            );
            reasons.push(reason("V8", message));
        }
    }
    reasons
}

/// V9: the target's prompt count differs from the plan by more than the template. Where the engine is ours the count must be exact.
fn v9_prompt(judged: &Judged<'_>) -> Option<Reason> {
    let (mut wrong, mut example) = (0usize, None);
    for r in judged.rows.ok() {
        let (Some(planned), Some(got)) = (r.prompt_tokens_planned, r.usage_prompt_tokens) else { continue };
        // Our engine says where each token came from; a server may add its template to a prompt that we could not count.
        let exact = r.http_status.is_none() && r.first_chunk_tokens_source == Some(FirstChunkSource::Usage);
        let allowed = if exact { 0 } else { TEMPLATE_TOKENS };
        if planned.abs_diff(got) > allowed {
            wrong += 1;
            example = Some((planned, got));
        }
    }
    let (planned, got) = example?;
    let message = format!(
        "{}, {}: {wrong} prompts were counted otherwise than planned, as {got} tokens for {planned}",
        judged.arm, judged.cell.id
    );
    Some(reason("V9", message))
}

/// What a reader should know of a run that may be valid all the same.
pub fn warnings(run: &LoggedRun, cells: &[Judged<'_>]) -> Vec<String> {
    let mut warnings = Vec::new();
    let load = run.segments.iter().filter_map(|s| {
        let text = s.open.provenance["host"]["load_average"].as_str()?;
        text.split([' ', ',']).next()?.parse::<f64>().ok()
    });
    let cores =
        run.segments.iter().find_map(|s| s.open.provenance["host"]["cores_available"].as_str()?.parse::<f64>().ok());
    if let (Some(load), Some(cores)) = (load.reduce(f64::max), cores)
        && load > 0.5 * cores
    {
        warnings.push(format!("the host was busy at the start: load average {load:.2} on {cores} processors"));
    }
    if run.segments.len() > 1 {
        warnings.push(format!("the run was interrupted and resumed: {} segments", run.segments.len()));
        let differs = |part: &str| {
            let first = &run.segments[0].open.provenance[part];
            run.segments
                .iter()
                .any(|s| ["cpu", "version", "revision"].iter().any(|k| s.open.provenance[part][k] != first[k]))
        };
        for part in ["host", "build"] {
            if differs(part) {
                warnings.push(format!("segments ran on another {part}: their numbers may not belong together"));
            }
        }
    }
    for event in run.events.iter().filter(|event| event.what == "warning") {
        if let Some(message) = event.fields.get("message").and_then(Value::as_str) {
            warnings.push(message.to_owned());
        }
    }
    let few = cells.iter().filter(|j| j.rows.repeats.len() == 1).count();
    if few > 0 {
        warnings
            .push(format!("{few} of {} cells were measured in one repeat only: they have no interval", cells.len()));
    }
    let cancelled: usize =
        cells.iter().flat_map(|j| j.rows.measured()).filter(|r| r.outcome.group() == OutcomeGroup::Cancelled).count();
    if cancelled > 0 {
        warnings.push(format!("{cancelled} requests were cancelled when the run was stopped"));
    }
    warnings
}
