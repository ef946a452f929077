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

use Better::{Higher, Lower, Neither};

const TTFT: &str = "first generated token of any kind - sent; never a role-only or empty delta";
const TPOT: &str = "(last token - first token) / (n - tokens in the first chunk)";
const ICL: &str = "gap between two chunks that carry tokens; a chunk is not a token";
const ITL: &str = "gap between two tokens; only where every chunk carried exactly one";
const E2E: &str = "end - sent";

/// Metrics in the order of a report.
pub const METRICS: &[MetricInfo] = &[
    metric(
        "decode_tok_s_aggregate",
        "decode, all lanes",
        "tok/s",
        Higher,
        "tokens emitted while all lanes decode and none prefills, divided by that time; one value a repeat, geometric mean and t interval on logs",
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
        "completion tokens of a repeat divided by its whole duration, prefill included; geometric mean and t interval on logs over repeats",
    ),
    metric(
        "prefill_tok_s",
        "prefill",
        "tok/s",
        Higher,
        "prompt tokens computed divided by the time in prefill; where the target does not say, (prompt - cached) / ttft, labelled so; geometric mean and t interval on logs over repeats",
    ),
    metric(
        "request_rate_req_s",
        "requests",
        "req/s",
        Higher,
        "answered requests of a repeat divided by its whole duration; geometric mean and t interval on logs over repeats",
    ),
    metric(
        "offered_req_s",
        "offered",
        "req/s",
        Neither,
        "arrivals a second that the schedule of an open loop holds, mean",
    ),
    metric("goodput_req_s", "goodput", "req/s", Higher, "requests that met every objective, divided by the window"),
    metric(
        "slo_attainment_percent",
        "attainment",
        "%",
        Higher,
        "requests that met every objective, of all issued; Wilson interval",
    ),
    metric(
        "acceptance",
        "acceptance",
        "%",
        Higher,
        "sum of accepted tokens divided by sum of drafted tokens, over the cell",
    ),
    metric(
        "tokens_per_round",
        "tokens a round",
        "tokens",
        Higher,
        "1 + sum of accepted tokens divided by sum of verification rounds, over the cell",
    ),
    metric("drafted_tokens", "drafted", "tokens", Neither, "sum of drafted tokens over the cell"),
    metric("accepted_tokens", "accepted", "tokens", Neither, "sum of accepted tokens over the cell"),
    metric("spec_rounds", "rounds", "rounds", Neither, "sum of verification rounds over the cell"),
    metric(
        "ttft_ms_mean",
        "TTFT mean",
        "ms",
        Lower,
        "first generated token of any kind - sent; mean of a repeat, geometric mean and t interval on logs over repeats",
    ),
    metric("ttft_ms_p50", "TTFT p50", "ms", Lower, TTFT),
    metric("ttft_ms_p90", "TTFT p90", "ms", Lower, TTFT),
    metric("ttft_ms_p95", "TTFT p95", "ms", Lower, TTFT),
    metric("ttft_ms_p99", "TTFT p99", "ms", Lower, TTFT),
    metric(
        "tpot_ms_mean",
        "TPOT mean",
        "ms",
        Lower,
        "(last token - first token) / (n - tokens in the first chunk); mean of a repeat, geometric mean and t interval on logs over repeats",
    ),
    metric("tpot_ms_p50", "TPOT p50", "ms", Lower, TPOT),
    metric("tpot_ms_p90", "TPOT p90", "ms", Lower, TPOT),
    metric("tpot_ms_p95", "TPOT p95", "ms", Lower, TPOT),
    metric("tpot_ms_p99", "TPOT p99", "ms", Lower, TPOT),
    metric("icl_ms_p50", "ICL p50", "ms", Lower, ICL),
    metric("icl_ms_p90", "ICL p90", "ms", Lower, ICL),
    metric("icl_ms_p95", "ICL p95", "ms", Lower, ICL),
    metric("icl_ms_p99", "ICL p99", "ms", Lower, ICL),
    metric("itl_ms_p50", "ITL p50", "ms", Lower, ITL),
    metric("itl_ms_p99", "ITL p99", "ms", Lower, ITL),
    metric(
        "e2e_latency_ms_mean",
        "end-to-end mean",
        "ms",
        Lower,
        "end - sent; mean of a repeat, geometric mean and t interval on logs over repeats",
    ),
    metric("e2e_latency_ms_p50", "end-to-end p50", "ms", Lower, E2E),
    metric("e2e_latency_ms_p90", "end-to-end p90", "ms", Lower, E2E),
    metric("e2e_latency_ms_p95", "end-to-end p95", "ms", Lower, E2E),
    metric("e2e_latency_ms_p99", "end-to-end p99", "ms", Lower, E2E),
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
    metric(
        "ttft_from_schedule_ms_p90",
        "TTFT from schedule p90",
        "ms",
        Lower,
        "first token - the time it was scheduled",
    ),
    metric(
        "ttft_from_schedule_ms_p95",
        "TTFT from schedule p95",
        "ms",
        Lower,
        "first token - the time it was scheduled",
    ),
    metric(
        "ttft_from_schedule_ms_p99",
        "TTFT from schedule p99",
        "ms",
        Lower,
        "first token - the time it was scheduled",
    ),
    metric(
        "e2e_latency_from_schedule_ms_p50",
        "end-to-end from schedule p50",
        "ms",
        Lower,
        "end - the time it was scheduled",
    ),
    metric(
        "e2e_latency_from_schedule_ms_p90",
        "end-to-end from schedule p90",
        "ms",
        Lower,
        "end - the time it was scheduled",
    ),
    metric(
        "e2e_latency_from_schedule_ms_p95",
        "end-to-end from schedule p95",
        "ms",
        Lower,
        "end - the time it was scheduled",
    ),
    metric(
        "e2e_latency_from_schedule_ms_p99",
        "end-to-end from schedule p99",
        "ms",
        Lower,
        "end - the time it was scheduled",
    ),
    metric("ttfb_ms_p50", "first byte p50", "ms", Lower, "first byte of the body - sent"),
    metric("server_queue_ms_p50", "queue, target's clock p50", "ms", Lower, "time before prefill, as the target says"),
    metric(
        "server_decode_tok_s_p50",
        "decode, target's clock p50",
        "tok/s",
        Higher,
        "the target's own rate, over n - 1 intervals",
    ),
    metric("lateness_ms_p50", "our lateness p50", "ms", Lower, "sent - scheduled: the load generator's own delay"),
    metric("lateness_ms_p99", "our lateness p99", "ms", Lower, "sent - scheduled: the load generator's own delay"),
    metric(
        "decode_window_percent",
        "all lanes decode",
        "%",
        Neither,
        "share of a repeat's duration in which all lanes decode and none prefills: what the aggregate rests on",
    ),
    metric("in_flight_mean", "in flight mean", "requests", Neither, "requests in flight, mean over time"),
    metric("in_flight_max", "in flight max", "requests", Neither, "most requests in flight at once"),
    metric("prompt_tokens_mean", "prompt", "tokens", Neither, "prompt length as the target counts it"),
    metric("completion_tokens_mean", "completion", "tokens", Neither, "generated tokens as the target counts them"),
];

/// Direction of a metric.
pub(super) fn better(name: &str) -> Better {
    METRICS.iter().find(|m| m.name == name).map_or(Better::Neither, |m| m.better)
}
