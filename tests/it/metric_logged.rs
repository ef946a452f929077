//! Logs in memory with stated times, for the tests of metrics.
use std::collections::BTreeMap;

use inferlab::record::{
    Header, LoggedRow, LoggedRun, Open, Outcome, PlannedArm, PlannedCell, PlannedRun, RequestRecord, Segment,
};
use inferlab::request::{Prompt, Request, RequestKey, Sampling};
use inferlab::units::TimestampNs;
use serde_json::{Value, json};

/// A time in ms.
pub fn ms(ms: f64) -> Option<TimestampNs> {
    Some(TimestampNs((ms * 1e6).round() as i64))
}

/// An arm of our own engine.
pub fn arm(name: &str) -> PlannedArm {
    let target = json!({"in_process": {"kv_dtype": "bf16", "max_context": 4096, "max_concurrency": 4, "threads": 2}});
    PlannedArm { name: name.into(), target, thinking: json!("default"), copy_of: None }
}

/// A cell of `decode_scaling`.
pub fn cell(id: &str, concurrency: u32, completion_tokens: u32, requests: u32) -> PlannedCell {
    PlannedCell {
        id: id.into(),
        workload: id.split('/').next().unwrap_or(id).into(),
        concurrency,
        prompt_tokens: 512,
        completion_tokens,
        requests,
        warmup: 0,
        cold: true,
        offer: None,
    }
}

/// A plan of `arms` and `cells`.
pub fn plan(arms: Vec<PlannedArm>, cells: Vec<PlannedCell>) -> PlannedRun {
    let bare: PlannedRun =
        serde_json::from_value(json!({"name": "test", "question": "Does it add up?"})).expect("plan");
    PlannedRun { arms, cells, ..bare }
}

/// What a target says of itself that runs as [`arm`] asks.
pub fn facts() -> Value {
    json!({"name": "in-process cpu", "model": "m", "synthetic": false, "version": "1", "effective_kv_dtype": "bf16",
        "effective_context": 4096, "effective_concurrency": 4, "facts": [["weights", "1 GiB"]]})
}

/// A finished run of one segment; the end line counts the rows.
pub fn run(plan: PlannedRun, rows: Vec<RequestRecord>) -> LoggedRun {
    let target: BTreeMap<String, Value> = plan.arms.iter().map(|arm| (arm.name.clone(), facts())).collect();
    let host = json!({"cpu": "example", "cores available": "2", "load average": "0.10 0.10 0.10"});
    let open = Open {
        utc: "2026-11-30T21:45:00Z".into(),
        boot_id: Some("b0".into()),
        anchor_ns: Some(0),
        provenance: json!({"host": host, "build": {"version": "0.1.0", "git revision": "abc"}, "target": target}),
    };
    let mut run = LoggedRun::new(Header::new("3f9a1c", &BTreeMap::new(), "k7q2", plan));
    run.segments.push(Segment { number: 0, open, close: Some("done".into()) });
    run.rows = rows.into_iter().map(|record| LoggedRow { segment: 0, record }).collect();
    run.end = Some(run.row_counts());
    run
}

/// Key of a measured row.
pub fn key(arm: &str, cell: &str, repeat: u32, index: u32) -> RequestKey {
    RequestKey { arm: arm.into(), cell: cell.into(), repeat, index, warmup: false }
}

/// A row of which nothing is known but its key; its outcome is `shed`.
pub fn blank(key: RequestKey) -> RequestRecord {
    let request = Request {
        key,
        prompt: Prompt::TokenIds(vec![1]),
        prompt_tokens_planned: Some(512),
        sampling: Sampling::default(),
        max_tokens: 64,
        ignore_eos: true,
        seed: 1,
    };
    RequestRecord::planned(&request, 0)
}

/// A row answered by our own engine: sent and first token at the stated ms, then `n − 1` tokens `gap_ms` apart.
pub fn answered(key: RequestKey, sent_ms: f64, first_ms: f64, gap_ms: f64, n: u32) -> RequestRecord {
    let mut r = blank(key);
    r.outcome = Outcome::Ok;
    let last = first_ms + gap_ms * f64::from(n - 1);
    (r.scheduled_ns, r.sent_ns, r.first_token_ns) = (ms(sent_ms), ms(sent_ms), ms(first_ms));
    (r.first_answer_ns, r.last_token_ns, r.end_ns) = (ms(first_ms), ms(last), ms(last));
    r.gap_us = vec![(gap_ms * 1e3).round() as u32; n as usize - 1];
    (r.first_chunk_tokens, r.usage_completion_tokens, r.usage_prompt_tokens) = (Some(1), Some(n), Some(512));
    (r.usage_cached_tokens, r.chunks) = (Some(0), Some(n));
    (r.server_prompt_n, r.server_prompt_ms) = (Some(512), Some(first_ms - sent_ms));
    r
}

/// A request that failed.
pub fn failed(key: RequestKey, sent_ms: f64, outcome: Outcome, error: &str) -> RequestRecord {
    let mut r = blank(key);
    r.outcome = outcome;
    (r.scheduled_ns, r.sent_ns, r.end_ns) = (ms(sent_ms), ms(sent_ms), ms(sent_ms + 5.0));
    r.error = Some(error.into());
    r
}

/// `requests` one after another in one lane, 100 ms of prefill and `n` tokens `gap_ms` apart each.
pub fn lane(arm: &str, cell: &str, repeat: u32, requests: u32, gap_ms: f64, n: u32) -> Vec<RequestRecord> {
    let length = 100.0 + gap_ms * f64::from(n - 1);
    let one = |i| {
        let sent = f64::from(i) * length;
        answered(key(arm, cell, repeat, i), sent, sent + 100.0, gap_ms, n)
    };
    (0..requests).map(one).collect()
}
