//! Every metric a cell may have.
use super::summary::{Better, MetricInfo};

const fn metric(
    name: &'static str,
    label: &'static str,
    unit: &'static str,
    better: Better,
    meaning: &'static str,
) -> MetricInfo {
    MetricInfo { name, label, unit, meaning, better }
}

use Better::{Higher, Lower};

/// Metrics in the order of a report.
pub const METRICS: &[MetricInfo] = &[
    metric(
        "decode_tok_s_aggregate",
        "decode, all lanes",
        "tok/s",
        Higher,
        "tokens emitted while all lanes decode and none prefills, divided by that time; mean and t interval over repeats, on logs",
    ),
    metric(
        "decode_tok_s_p50",
        "decode, one request p50",
        "tok/s",
        Higher,
        "1000 / tpot_ms of one request, by the wall clock",
    ),
    metric(
        "run_tok_s",
        "whole run",
        "tok/s",
        Higher,
        "completion tokens of a repeat divided by its whole duration, prefill included",
    ),
    metric(
        "prefill_tok_s",
        "prefill",
        "tok/s",
        Higher,
        "prompt tokens computed divided by the time in prefill; where the target does not say, (prompt - cached) / ttft, labelled so",
    ),
    metric("goodput_req_s", "goodput", "req/s", Higher, "requests that met every objective, divided by the window"),
    metric("acceptance", "acceptance", "%", Higher, "sum of accepted tokens divided by sum of drafted tokens"),
    metric("ttft_ms_mean", "TTFT mean", "ms", Lower, "first generated token of any kind - sent"),
    metric("ttft_ms_p50", "TTFT p50", "ms", Lower, "first generated token of any kind - sent"),
    metric("ttft_ms_p90", "TTFT p90", "ms", Lower, "first generated token of any kind - sent"),
    metric("ttft_ms_p99", "TTFT p99", "ms", Lower, "first generated token of any kind - sent"),
    metric("tpot_ms_p50", "TPOT p50", "ms", Lower, "(last token - first token) / (n - tokens in the first chunk)"),
    metric("tpot_ms_p90", "TPOT p90", "ms", Lower, "(last token - first token) / (n - tokens in the first chunk)"),
    metric("icl_ms_p50", "ICL p50", "ms", Lower, "gap between two chunks that carry tokens; a chunk is not a token"),
    metric("icl_ms_p99", "ICL p99", "ms", Lower, "gap between two chunks that carry tokens; a chunk is not a token"),
    metric("e2e_latency_ms_p50", "end-to-end p50", "ms", Lower, "end - sent"),
    metric("e2e_latency_ms_p90", "end-to-end p90", "ms", Lower, "end - sent"),
    metric("e2e_latency_ms_p99", "end-to-end p99", "ms", Lower, "end - sent"),
    metric(
        "ttft_answer_ms_p50",
        "TTFT of the answer p50",
        "ms",
        Lower,
        "first token of the answer, after any reasoning - sent",
    ),
    metric(
        "ttft_from_schedule_ms_p50",
        "TTFT from schedule p50",
        "ms",
        Lower,
        "first token - the time it was scheduled",
    ),
    metric("ttfb_ms_p50", "first byte p50", "ms", Lower, "first byte of the body - sent"),
    metric(
        "server_decode_tok_s_p50",
        "decode, target's clock p50",
        "tok/s",
        Higher,
        "the target's own rate, over n - 1 intervals",
    ),
    metric("lateness_ms_p99", "our lateness p99", "ms", Lower, "sent - scheduled: the load generator's own delay"),
];

/// Direction of a metric.
pub(super) fn better(name: &str) -> Better {
    METRICS.iter().find(|m| m.name == name).map_or(Better::Neither, |m| m.better)
}
