//! Run summaries made by hand, for the report's tests.
use std::collections::BTreeMap;

use inferlab::metric::summary::{
    ArmSummary, CellSummary, Comparison, Estimate, Failure, Reason, RowCounts, RunSummary, Samples, Verdict,
};
use inferlab::record::Outcome;

/// An estimate with an interval.
pub fn estimate(value: f64, half: f64, n: usize) -> Estimate {
    Estimate { n, value: Some(value), low: Some(value - half), high: Some(value + half), note: None }
}

/// An estimate of nothing.
pub fn missing(n: usize, note: &str) -> Estimate {
    Estimate { n, note: Some(note.to_owned()), ..Estimate::default() }
}

/// Latencies with a long right tail, from a fixed congruential generator.
pub fn tail(n: usize, scale: f64, seed: u32) -> Vec<f64> {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(12345);
    (0..n)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let u = (f64::from(state >> 8) + 1.0) / f64::from(1u32 << 24);
            scale * (1.0 + 0.12 * -u.ln() + 0.05 * u)
        })
        .collect()
}

fn counts(ok: usize, failed: usize) -> RowCounts {
    RowCounts { issued: ok + failed, ok, failed, cancelled: 0, shed: 0, warmup: 2 }
}

fn cell(
    arm: &str,
    workload: &str,
    swept: u32,
    metrics: Vec<(&'static str, Estimate)>,
    samples: Samples,
) -> CellSummary {
    let decode = workload == "decode_scaling";
    CellSummary {
        arm: arm.to_owned(),
        cell: format!("{workload}/{}{swept}", if decode { "c" } else { "p" }),
        workload: workload.to_owned(),
        concurrency: if decode { swept } else { 1 },
        rate_req_s: None,
        prompt_tokens: if decode { 128 } else { swept },
        completion_tokens: if decode { 64 } else { 1 },
        repeats: 4,
        rows: counts(48, 0),
        metrics: BTreeMap::from_iter(metrics),
        samples,
    }
}

/// Two arms, both workloads, everything measured.
pub fn full_run() -> RunSummary {
    let mut cells = vec![];
    for (arm, factor) in [("kv-f32", 1.0), ("kv-bf16", 1.09)] {
        for (index, (concurrency, rate)) in [(1, 41.2), (2, 74.6), (4, 121.0), (8, 158.0)].into_iter().enumerate() {
            let seed = index as u32 + 7 * u32::from(factor > 1.0);
            let tpot = 1000.0 * f64::from(concurrency) / (rate * factor);
            let samples = Samples {
                ttft_ms: tail(48, 38.0 * f64::from(concurrency), seed),
                tpot_ms: tail(48, tpot, seed + 1),
                icl_ms: tail(3024, tpot, seed + 2),
                e2e_latency_ms: tail(48, 64.0 * tpot, seed + 3),
            };
            cells.push(cell(
                arm,
                "decode_scaling",
                concurrency,
                vec![
                    ("decode_tok_s_aggregate", estimate(rate * factor, 0.012 * rate, 4)),
                    ("ttft_ms_p50", estimate(41.0 * f64::from(concurrency), 1.2, 48)),
                    ("ttft_ms_p90", estimate(49.0 * f64::from(concurrency), 2.6, 48)),
                    ("ttft_ms_p99", missing(48, "n too small")),
                    ("tpot_ms_p50", Estimate { note: Some("first chunk unknown".into()), ..estimate(tpot, 0.4, 48) }),
                ],
                samples,
            ));
        }
        for (prompt, rate) in [(128, 820.0), (256, 905.0), (512, 931.0), (1024, 902.0), (2048, 815.0)] {
            let ttft = 1000.0 * f64::from(prompt) / (rate * factor);
            let samples = Samples { ttft_ms: tail(16, ttft, prompt), ..Samples::default() };
            cells.push(cell(
                arm,
                "prefill_scaling",
                prompt,
                vec![
                    ("prefill_tok_s_mean", estimate(rate * factor, 0.02 * rate, 4)),
                    ("ttft_ms_p50", estimate(ttft, 0.015 * ttft, 16)),
                ],
                samples,
            ));
        }
    }
    RunSummary {
        run_id: "kv-dtype-20261130T091500Z-4f1c2a".into(),
        name: "kv-dtype".into(),
        question: "Does a bf16 KV cache decode faster than f32 on this CPU?".into(),
        identity: "4f1c2a".into(),
        started_utc: "2026-11-30T09:15:00Z".into(),
        segments: 1,
        synthetic: false,
        verdict: Verdict::Valid,
        reasons: vec![],
        warnings: vec!["host load was 1.4 at the start: other programs were running; rerun on an idle host".into()],
        client_error: vec!["client error not calibrated".into()],
        rows: counts(864, 0),
        superseded: 0,
        provenance: vec![
            (
                "host".into(),
                vec![("cpu".into(), "AMD EPYC 9V74, 2 cores".into()), ("os".into(), "Debian 12, Linux 6.1".into())],
            ),
            ("build".into(), vec![("inferlab".into(), "0.1.0".into()), ("rustc".into(), "1.95.0".into())]),
            ("target kv-f32".into(), vec![("model".into(), "SmolLM2-135M-Instruct Q8_0".into())]),
        ],
        arms: vec![
            ArmSummary {
                name: "kv-f32".into(),
                target: "in-process cpu".into(),
                differs: vec![("kv_dtype".into(), "f32".into())],
            },
            ArmSummary {
                name: "kv-bf16".into(),
                target: "in-process cpu".into(),
                differs: vec![("kv_dtype".into(), "bf16".into())],
            },
        ],
        cells,
        comparisons: vec![Comparison {
            baseline: "kv-f32".into(),
            arm: "kv-bf16".into(),
            cell: "decode_scaling/c1".into(),
            metric: "decode_tok_s_aggregate",
            ratio: estimate(1.09, 0.021, 4),
            noise_floor: Some(0.012),
            verdict: "faster by 9.0 % (6.9 to 11.1 %)".into(),
        }],
        failures: vec![],
    }
}

/// Random weights, invalid, with failures.
pub fn invalid_synthetic_run() -> RunSummary {
    let mut run = full_run();
    run.run_id = "quickstart-20261130T101500Z-9be001".into();
    run.question = "How many tokens a second does this machine reach?".into();
    run.synthetic = true;
    run.verdict = Verdict::Invalid;
    run.reasons = vec![Reason { rule: "V1", message: "6 of 864 requests failed (0.69 %), above 0.5 %".into() }];
    run.cells.retain(|cell| cell.arm == "kv-f32");
    run.arms.truncate(1);
    run.arms[0].differs.clear();
    run.comparisons.clear();
    run.rows.ok = 858;
    run.rows.failed = 6;
    run.failures = vec![Failure {
        arm: "kv-f32".into(),
        cell: "decode_scaling/c8".into(),
        outcome: Outcome::HttpError,
        count: 6,
        example: Some("503 Service Unavailable: request queue timeout after 30 s".into()),
    }];
    run
}

/// 20 requests, none answered (case B55).
pub fn failed_run() -> RunSummary {
    let mut run = invalid_synthetic_run();
    run.synthetic = false;
    for cell in &mut run.cells {
        cell.rows = counts(0, 20);
        cell.repeats = 0;
        cell.samples = Samples::default();
        cell.metrics.values_mut().for_each(|estimate| *estimate = Estimate::default());
    }
    run.rows = RowCounts { warmup: 0, ..counts(0, 20) };
    run
}
