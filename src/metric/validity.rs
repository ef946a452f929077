//! What makes a run invalid: one function a rule, each with its reason in figures. Ids are those of `contracts/formulas.md`.
use serde_json::Value;

use super::cell_rows::{CellRows, is_ok};
use super::client_error::lateness_p99_ms;
use super::row;
use super::summary::Reason;
use super::timeline::{concurrency_held, in_flight};
use crate::record::{
    Calibration, FirstChunkSource, LoggedEvent, LoggedRun, OutcomeGroup, PlannedArm, PlannedCell, PlannedRun,
    RequestRecord,
};
use crate::statistics::{mean, median};

/// Share of the window in which the asked concurrency must stand.
const HELD: f64 = 0.95;
/// Shortest window, in s, that rule V2 judges: in a shorter one the 4 ms tick of a system's scheduler alone is most of the 5 %.
const LEAST_WINDOW_S: f64 = 0.1;
/// Lateness in ms that a schedule allows without a calibration.
const LATE_MS: f64 = 5.0;
/// Largest difference of completion lengths between arms.
pub const LENGTH_PARITY: f64 = 0.10;
/// Largest share of a claimed metric that may be the client's own error.
const CLIENT_BUDGET: f64 = 0.05;
/// Most tokens that a chat template may add to a prompt whose length the target cannot tell beforehand.
const TEMPLATE_TOKENS: u32 = 64;

/// One arm × cell with its rows.
pub struct Judged<'a> {
    /// Arm.
    pub arm: &'a PlannedArm,
    /// Cell.
    pub cell: &'a PlannedCell,
    /// Rows.
    pub rows: &'a CellRows<'a>,
}

impl Judged<'_> {
    /// Where a reason was seen.
    fn place(&self) -> String {
        format!("{}, {}", self.arm.name, self.cell.id)
    }
}

fn reason(rule: &'static str, message: String) -> Reason {
    Reason { rule, message }
}

/// A JSON value as a reader writes it.
pub fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Every broken rule, by id.
///
/// `calibration` is what is known of the client's own lateness.
pub fn judge(
    run: &LoggedRun,
    plan: &PlannedRun,
    cells: &[Judged<'_>],
    calibration: Option<&Calibration>,
) -> Vec<Reason> {
    let mut reasons = v1_failures(run, plan, cells);
    reasons.extend(cells.iter().filter_map(v2_concurrency));
    reasons.extend(cells.iter().filter_map(|judged| v2_schedule(judged, calibration)));
    reasons.extend(v3_length(plan, cells));
    reasons.extend(cells.iter().filter_map(v4_tokens));
    reasons.extend(cells.iter().filter_map(v5_cache));
    reasons.extend(v6_effective(run, plan));
    reasons.extend(v6_thinking(plan, cells));
    reasons.extend(v7_storage(run, plan, cells));
    reasons.extend(cells.iter().filter_map(v8_lateness));
    reasons.extend(v8_budget(run));
    reasons.extend(cells.iter().filter_map(v9_prompt));
    reasons
}

/// V1: failed ÷ issued of an arm above `limits.max_failure_rate`, so that a good arm does not hide a bad one; a cell in which nothing was
/// answered; and, in a run that ended, a cell without a row.
fn v1_failures(run: &LoggedRun, plan: &PlannedRun, cells: &[Judged<'_>]) -> Vec<Reason> {
    let limit = plan.limits.max_failure_rate;
    let mut reasons = Vec::new();
    for arm in &plan.arms {
        let counts = cells.iter().filter(|j| j.arm.name == arm.name).map(|j| j.rows.counts());
        let (issued, failed) = counts.fold((0, 0), |sum, c| (sum.0 + c.issued, sum.1 + c.failed));
        let share = failed as f64 / issued.max(1) as f64;
        if share > limit {
            let (share, limit) = (100.0 * share, 100.0 * limit);
            let message =
                format!("{}: {failed} of {issued} requests failed ({share:.1} %); the limit is {limit:.1} %", arm.name);
            reasons.push(reason("V1", message));
        }
    }
    for judged in cells {
        let counts = judged.rows.counts();
        let place = judged.place();
        if counts.issued > 0 && counts.ok == 0 {
            let message = format!("{place}: none of {} measured requests was answered", counts.issued);
            reasons.push(reason("V1", message));
        } else if counts.issued == 0 && judged.cell.requests > 0 && run.end.is_some() {
            reasons.push(reason("V1", format!("{place}: the run ended without a measured request")));
        }
    }
    reasons
}

/// V2: the asked concurrency was not held in 95 % of the window ([`concurrency_held`]), over all repeats of a cell.
fn v2_concurrency(judged: &Judged<'_>) -> Option<Reason> {
    let lanes = judged.cell.concurrency;
    if judged.cell.offer.is_some() {
        return None;
    }
    let held = judged.rows.repeats.values().filter_map(|rows| concurrency_held(rows, lanes));
    let (held, total) = held.fold((0.0, 0.0), |sum, h| (sum.0 + h.held_s, sum.1 + h.window_s));
    (total >= LEAST_WINDOW_S && held < HELD * total).then(|| {
        let (place, share, needed) = (judged.place(), 100.0 * held / total, 100.0 * HELD);
        let message = format!(
            "{place}: {lanes} requests in flight were held in {share:.1} % of {total:.2} s; {needed:.0} % is needed: ask for \
             longer requests, or stop what else runs here"
        );
        reason("V2", message)
    })
}

/// V2 for a schedule: fewer than 95 % of the arrivals went out within max(5 ms, 2 × calibrated p99 lateness) of their time. Shed ones did not go
/// out at all; later turns of a conversation have no time of their own.
fn v2_schedule(judged: &Judged<'_>, calibration: Option<&Calibration>) -> Option<Reason> {
    let offer = judged.cell.offer.as_ref()?;
    let flying =
        judged.rows.repeats.values().filter_map(|rows| in_flight(rows)).map(|seen| seen.mean()).reduce(f64::max);
    let calibrated = lateness_p99_ms(calibration, flying.unwrap_or(1.0));
    let limit = LATE_MS.max(2.0 * calibrated.unwrap_or(0.0));
    let arrivals = || judged.rows.measured().filter(|r| r.turn.unwrap_or(0) == 0);
    let in_time = arrivals().filter(|r| row::lateness_ms(r).is_some_and(|late| late <= limit)).count();
    let shed = arrivals().filter(|r| r.outcome.group() == OutcomeGroup::Shed).count();
    let n = arrivals().count();
    ((in_time as f64) < HELD * n as f64).then(|| {
        let place = judged.place();
        let (share, needed) = (100.0 * in_time as f64 / n as f64, 100.0 * HELD);
        let message = format!(
            "{place}: {share:.1} % of {n} arrivals went out within {limit:.1} ms of their time, {shed} were shed with {} in flight; \
             {needed:.0} % is needed: ask for a lower rate, raise `max_in_flight`, or stop what else runs here",
            offer.max_in_flight
        );
        reason("V2", message)
    })
}

/// V3: completion lengths of arms differ by more than 10 % in a cell, whose workload fixes them.
fn v3_length(plan: &PlannedRun, cells: &[Judged<'_>]) -> Vec<Reason> {
    let mut reasons = Vec::new();
    for cell in &plan.cells {
        let mean_of = |judged: &Judged<'_>| {
            mean(&judged.rows.ok().filter_map(row::completion_tokens).map(f64::from).collect::<Vec<f64>>())
        };
        let means: Vec<(&str, f64)> =
            cells.iter().filter(|j| j.cell.id == cell.id).filter_map(|j| Some((&*j.arm.name, mean_of(j)?))).collect();
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
            "{}: of {n} answered requests {unknown} have no token count to trust and {differ} have two that disagree",
            judged.place()
        );
        reason("V4", message)
    })
}

/// V5: cached tokens in a workload that must be cold. The few tokens of a chat template that every request shares are no such hit.
fn v5_cache(judged: &Judged<'_>) -> Option<Reason> {
    let seen: Vec<u32> = judged.rows.ok().filter_map(row::cached_tokens).filter(|&n| n > TEMPLATE_TOKENS).collect();
    let most = *seen.iter().max().filter(|_| judged.cell.cold)?;
    let message = format!("{}: {} prompts were answered from a cache, up to {most} tokens", judged.place(), seen.len());
    Some(reason("V5", message))
}

/// V6: what was asked and what ran differ in KV dtype, context or concurrency, in any segment.
fn v6_effective(run: &LoggedRun, plan: &PlannedRun) -> Vec<Reason> {
    let mut reasons = Vec::new();
    for arm in &plan.arms {
        for (key, asked, effective) in settings_of(run, arm) {
            if !effective.is_null() && asked != effective {
                let (asked, effective) = (plain(asked), plain(effective));
                reasons.push(reason("V6", format!("{}: {key} {asked} was asked, {effective} ran", arm.name)));
            }
        }
        reasons.extend(v6_slots(run, plan, arm));
    }
    // Each segment of a resumed run says the same again.
    let mut once: Vec<Reason> = Vec::new();
    for reason in reasons {
        if !once.contains(&reason) {
            once.push(reason);
        }
    }
    once
}

/// V6 for a server: it decodes fewer sequences together than a cell that fixes its concurrency asks for, so the rest wait in its queue.
fn v6_slots(run: &LoggedRun, plan: &PlannedRun, arm: &PlannedArm) -> Vec<Reason> {
    if arm.target.get("endpoint").is_none() {
        return Vec::new();
    }
    let slots = run
        .segments
        .iter()
        .filter_map(|segment| segment.open.provenance["target"][&arm.name]["effective_concurrency"].as_u64());
    let Some(slots) = slots.min() else { return Vec::new() };
    let too_many = |cell: &&PlannedCell| cell.workload == "decode_scaling" && u64::from(cell.concurrency) > slots;
    plan.cells
        .iter()
        .filter(too_many)
        .map(|cell| {
            let message = format!(
                "{}, {}: {} requests in flight were asked, the server decodes {slots} together and lets the rest wait",
                arm.name, cell.id, cell.concurrency
            );
            reason("V6", message)
        })
        .collect()
}

/// Every setting that an arm asks for, with what each segment's target says of it (null where it does not).
pub fn settings_of<'a>(
    run: &'a LoggedRun,
    arm: &'a PlannedArm,
) -> impl Iterator<Item = (&'static str, &'a Value, &'a Value)> {
    let asked = &arm.target["in_process"];
    let names = [
        ("kv_dtype", "effective_kv_dtype"),
        ("max_context", "effective_context"),
        ("max_concurrency", "effective_concurrency"),
    ];
    run.segments
        .iter()
        .flat_map(move |segment| {
            let facts = &segment.open.provenance["target"][&arm.name];
            names.into_iter().map(move |(key, effective)| (key, &asked[key], &facts[effective]))
        })
        .filter(|(_, asked, _)| !asked.is_null())
}

/// V6 for thinking: reasoning came though it was asked off, or never came though it was asked for.
fn v6_thinking(plan: &PlannedRun, cells: &[Judged<'_>]) -> Vec<Reason> {
    let mut reasons = Vec::new();
    for arm in &plan.arms {
        let seen: Vec<bool> = cells
            .iter()
            .filter(|j| j.arm.name == arm.name)
            .flat_map(|j| j.rows.ok())
            .filter_map(|r| r.thinking_seen)
            .collect();
        let (n, thought) = (seen.len(), seen.iter().filter(|&&seen| seen).count());
        let wanted = arm.thinking == "on" || arm.thinking.get("budget").is_some();
        if arm.thinking == "off" && thought > 0 {
            reasons
                .push(reason("V6", format!("{}: thinking was asked off, {thought} of {n} answers hold it", arm.name)));
        } else if wanted && n > 0 && thought == 0 {
            reasons.push(reason("V6", format!("{}: thinking was asked for, none of {n} answers holds it", arm.name)));
        }
    }
    reasons
}

/// Whether rows that were seen are missing in the log.
pub fn rows_lost(run: &LoggedRun) -> bool {
    run.storage_incidents().next().is_some() || run.segments.iter().any(|s| s.close.as_deref() == Some("storage"))
}

/// V7: a row could not be written, or the log does not verify: an incident of the writer, a segment closed for want of storage, something
/// cut after the end line, rows that are not those the end line counts, or fewer than the plan asks for in a run that ended. A cut line before the end is a crash: the run is partial.
fn v7_storage(run: &LoggedRun, plan: &PlannedRun, cells: &[Judged<'_>]) -> Vec<Reason> {
    let told = |event: &LoggedEvent| {
        event.fields.get("message").map_or_else(|| "a row could not be written".to_owned(), plain)
    };
    let mut reasons: Vec<Reason> = run.storage_incidents().map(|event| reason("V7", told(event))).collect();
    for segment in run.segments.iter().filter(|s| s.close.as_deref() == Some("storage")) {
        reasons.push(reason("V7", format!("segment {} closed because the log could not be written", segment.number)));
    }
    if run.torn && run.end.is_some() {
        reasons.push(reason("V7", "the log goes on after its end line, and is cut there".into()));
    }
    let found = run.row_counts();
    if let Some(end) = run.end.filter(|&end| end != found) {
        let message = format!(
            "the end line counts {} requests ({} ok, {} failed), the log holds {} ({} ok, {} failed)",
            end.issued(),
            end.ok,
            end.failed,
            found.issued(),
            found.ok,
            found.failed
        );
        reasons.push(reason("V7", message));
    }
    if run.end.is_some() {
        let short = cells.iter().filter_map(|judged| {
            let planned = judged.cell.requests as usize * plan.repeats as usize;
            // A cell without any row is a matter of V1.
            let found = judged.rows.counts().issued;
            (0 < found && found < planned).then(|| {
                reason("V7", format!("{}: the log holds {found} of {planned} planned requests", judged.place()))
            })
        });
        reasons.extend(short);
    }
    reasons.dedup();
    reasons
}

/// V8: our own lateness is over 5 % of the claimed latency: median of (sent − scheduled) against the median time to first token.
fn v8_lateness(judged: &Judged<'_>) -> Option<Reason> {
    let late = median(&judged.rows.ok().filter_map(row::lateness_ms).collect::<Vec<f64>>())?;
    let first = median(&judged.rows.ok().filter_map(row::ttft_ms).collect::<Vec<f64>>())?;
    (late > CLIENT_BUDGET * first).then(|| {
        let message = format!(
            "{}: requests were sent {late:.2} ms late at the median, over 5 % of the time to first token ({first:.2} ms)",
            judged.place()
        );
        reason("V8", message)
    })
}

/// V8 as calibrated: an event `client_budget` with `share` (the client's error ÷ the metric) and, where given, `metric`, `arm`, `cell`.
fn v8_budget(run: &LoggedRun) -> Vec<Reason> {
    let word = |event: &LoggedEvent, key: &str| event.fields.get(key).and_then(Value::as_str).map(str::to_owned);
    run.events
        .iter()
        .filter(|event| event.what == "client_budget")
        .filter_map(|event| Some((event, event.fields.get("share")?.as_f64()?)))
        .filter(|&(_, share)| share > CLIENT_BUDGET)
        .map(|(event, share)| {
            let place: Vec<String> = ["arm", "cell"].into_iter().filter_map(|key| word(event, key)).collect();
            let place = if place.is_empty() { "the client".to_owned() } else { place.join(", ") };
            let metric = word(event, "metric").unwrap_or_else(|| "the claimed metric".into());
            reason(
                "V8",
                format!("{place}: the client's own error is {:.1} % of {metric}; 5 % is the limit", 100.0 * share),
            )
        })
        .collect()
}

/// V9: the target's prompt count differs from the plan by more than the template. Where the engine is ours the count must be exact.
fn v9_prompt(judged: &Judged<'_>) -> Option<Reason> {
    let ours = judged.arm.target.get("in_process").is_some();
    // A server may add its template to a prompt that nobody could count beforehand; ours counts with the template in it.
    let exact = |r: &RequestRecord| {
        ours || (r.http_status.is_none() && r.first_chunk_tokens_source == Some(FirstChunkSource::Usage))
    };
    let wrong: Vec<(u32, u32)> = judged
        .rows
        .ok()
        .filter_map(|r| Some((r, r.prompt_tokens_planned?, r.usage_prompt_tokens?)))
        .filter(|(r, planned, got)| planned.abs_diff(*got) > if exact(r) { 0 } else { TEMPLATE_TOKENS })
        .map(|(_, planned, got)| (planned, got))
        .collect();
    let (planned, got) = wrong.iter().max_by_key(|(planned, got)| planned.abs_diff(*got))?;
    let (n, place) = (wrong.len(), judged.place());
    Some(reason(
        "V9",
        format!("{place}: {n} prompts were counted otherwise than planned, as {got} tokens for {planned}"),
    ))
}

/// Rows that failed before the measured ones: not part of any number, worth a word.
pub fn failed_warmups(judged: &Judged<'_>) -> usize {
    judged.rows.warmup.iter().filter(|r| !is_ok(r) && r.outcome.group() != OutcomeGroup::Cancelled).count()
}
