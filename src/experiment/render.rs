//! The plan for a reader: what would run, in which order, and how much of it.
use std::fmt::Write;

use serde_json::{Value, json};

use super::TextPolicy;
use super::plan::{Plan, to_json};
use crate::target::config::TargetConfig;
use crate::yaml::printable;

/// Bytes of a row in the log without its gaps; measured on the sample of the contract with all members filled.
const ROW_BYTES: u64 = 1600;
/// Bytes of one gap in the log, and of one token of text.
const GAP_BYTES: u64 = 6;
const TEXT_BYTES: u64 = 6;
/// Most visits that the text lists by name.
const MAX_SHOWN_VISITS: usize = 24;

/// Sums over a whole plan.
struct Totals {
    launches: u64,
    warmup: u64,
    measured: u64,
    prompt_tokens: u64,
    completion_tokens: u64,
    disk_bytes: u64,
}

impl Totals {
    fn of(plan: &Plan) -> Self {
        let launches = plan.visits.len() as u64;
        let mut totals =
            Self { launches, warmup: 0, measured: 0, prompt_tokens: 0, completion_tokens: 0, disk_bytes: 0 };
        for cell in &plan.cells {
            let (warmup, measured) = (u64::from(cell.workload.warmup()), u64::from(cell.workload.requests()));
            let completion = u64::from(cell.workload.completion_tokens());
            let requests = (warmup + measured) * launches;
            totals.warmup += warmup * launches;
            totals.measured += measured * launches;
            totals.prompt_tokens += requests * u64::from(cell.workload.prompt_tokens());
            totals.completion_tokens += requests * completion;
            let text = if plan.experiment.text == TextPolicy::Keep { TEXT_BYTES * completion } else { 0 };
            totals.disk_bytes += requests * (ROW_BYTES + GAP_BYTES * completion + text);
        }
        totals
    }
}

/// Bytes that log and texts of the whole plan take, about.
pub fn disk_bytes(plan: &Plan) -> u64 {
    Totals::of(plan).disk_bytes
}

/// The plan as one JSON object; `time_s` is null while nothing is known about it.
pub fn json(plan: &Plan) -> Value {
    let totals = Totals::of(plan);
    let planned = plan.planned();
    json!({
        "name": planned.name,
        "question": planned.question,
        "seed": planned.seed,
        "repeats": planned.repeats,
        "order": planned.order,
        "arms": to_json(&planned.arms),
        "cells": to_json(&planned.cells),
        "visits": to_json(&planned.visits),
        "launches": totals.launches,
        "requests": {"warmup": totals.warmup, "measured": totals.measured},
        "tokens": {"prompt": totals.prompt_tokens, "completion": totals.completion_tokens},
        "disk_bytes_estimate": totals.disk_bytes,
        "time_s": null,
    })
}

/// The plan as text, safe on a terminal.
pub fn text(plan: &Plan) -> String {
    let mut out = String::new();
    write_text(&mut out, plan).expect("a string takes all text");
    out
}

fn write_text(out: &mut String, plan: &Plan) -> std::fmt::Result {
    let experiment = &plan.experiment;
    let totals = Totals::of(plan);
    writeln!(out, "{}: {}", printable(&experiment.name), printable(&experiment.question))?;
    let order = if plan.arms.len() > 1 { format!("order {}", experiment.order.word()) } else { "one arm".to_owned() };
    writeln!(out, "seed {}, {} repeats, {order}", experiment.seed, experiment.repeats)?;
    writeln!(out, "\narms")?;
    let width = plan.arms.iter().map(|arm| arm.name.chars().count()).max().unwrap_or(0);
    for arm in &plan.arms {
        let copy = arm
            .copy_of
            .as_ref()
            .map_or(String::new(), |first| format!("  (copy of {}, for the noise floor)", printable(first)));
        writeln!(out, "  {:width$}  {}{copy}", printable(&arm.name), printable(&target_line(&arm.target)))?;
    }
    writeln!(out, "\ncells, in each repeat of each arm")?;
    let width = plan.cells.iter().map(|cell| cell.id.chars().count()).max().unwrap_or(0).max(4);
    let head = ["in flight", "prompt tok", "completion tok", "warm-up req", "measured req"];
    writeln!(out, "  {:width$}  {}", "cell", head.join("  "))?;
    for cell in &plan.cells {
        let workload = &cell.workload;
        let load = match workload.load().offer() {
            Some(offer) => format!("{:.3}/s", offer.rate_req_s),
            None => workload.concurrency().to_string(),
        };
        let counts = [workload.prompt_tokens(), workload.completion_tokens(), workload.warmup(), workload.requests()];
        let numbers = std::iter::once(load).chain(counts.iter().map(u32::to_string));
        let numbers: Vec<String> =
            numbers.zip(head).map(|(number, head)| format!("{number:>0$}", head.len())).collect();
        writeln!(out, "  {:width$}  {}", cell.id, numbers.join("  "))?;
    }
    writeln!(out, "\norder")?;
    let mut shown = 0;
    for repeat in 0..experiment.repeats {
        let block: Vec<String> =
            plan.visits.iter().filter(|v| v.repeat == repeat).map(|v| printable(&plan.arms[v.arm].name)).collect();
        shown += block.len();
        if shown > MAX_SHOWN_VISITS && repeat > 0 {
            writeln!(out, "  ... and so on to repeat {}", experiment.repeats - 1)?;
            break;
        }
        writeln!(out, "  repeat {repeat}: {}", block.join(", "))?;
    }
    writeln!(out)?;
    writeln!(out, "launches  {}", totals.launches)?;
    writeln!(out, "requests  {} measured, {} warm-up", totals.measured, totals.warmup)?;
    writeln!(
        out,
        "tokens    {} prompt, {} completion, warm-up included",
        totals.prompt_tokens, totals.completion_tokens
    )?;
    writeln!(out, "disk      about {}", bytes(totals.disk_bytes))?;
    writeln!(out, "time      unknown")
}

fn target_line(target: &TargetConfig) -> String {
    match target {
        TargetConfig::InProcess(target) => {
            let threads = target.threads.value().map_or("auto".to_owned(), |threads| threads.to_string());
            let capacity = target.kv_capacity.value().map_or("auto".to_owned(), |tokens| format!("{tokens} tok"));
            format!(
                "in process, {}, device {}, threads {threads}, context {} tok, {} sequences, KV {} ({capacity}), prefill chunk {} tok, {}",
                target.model,
                target.device,
                target.max_context,
                target.max_concurrency,
                target.kv_dtype.word(),
                target.prefill_chunk,
                target.scheduler.word()
            )
        }
        TargetConfig::Endpoint(target) => {
            format!(
                "endpoint {}, model {}, dialect {}, api {}",
                target.url,
                target.model,
                target.dialect.word(),
                target.api.word()
            )
        }
    }
}

fn bytes(count: u64) -> String {
    match count {
        0..=9_999 => format!("{count} B"),
        10_000..=9_999_999 => format!("{} kB", count / 1000),
        _ => format!("{} MB", count / 1_000_000),
    }
}
