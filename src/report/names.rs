//! What a metric's name says: its family, statistic, unit and meaning. Meanings follow the project's formulas.
use crate::metric::summary::Better;

/// A metric as a table needs it.
#[derive(Debug, Clone, PartialEq)]
pub struct Described {
    /// The name without its statistic, as `ttft_ms`: metrics of one family stand in one table.
    pub family: String,
    /// Label of the family, as `TTFT`.
    pub label: String,
    /// `p50`, `mean`, …; empty where the metric is one number.
    pub statistic: String,
    /// Unit.
    pub unit: &'static str,
    /// What it is.
    pub meaning: &'static str,
    /// Which way is better.
    pub better: Better,
    /// Place among the families of a report.
    pub rank: usize,
    /// Shown with the results; others stand under "Further measures".
    pub primary: bool,
}

struct Family {
    name: &'static str,
    label: &'static str,
    unit: &'static str,
    better: Better,
    primary: bool,
    meaning: &'static str,
}

const fn family(
    name: &'static str,
    label: &'static str,
    unit: &'static str,
    better: Better,
    primary: bool,
    meaning: &'static str,
) -> Family {
    Family { name, label, unit, better, primary, meaning }
}

use Better::{Higher, Lower, Neither};

/// In the order of a report. A longer name wins over its prefix.
const FAMILIES: &[Family] = &[
    family(
        "decode_tok_s_aggregate",
        "decode, all lanes",
        "tok/s",
        Higher,
        true,
        "tokens emitted while all lanes decode and none prefills, divided by that time",
    ),
    family(
        "decode_tok_s",
        "decode, one request",
        "tok/s",
        Higher,
        true,
        "1000 / tpot_ms of one request, by the wall clock",
    ),
    family(
        "run_tok_s",
        "whole run",
        "tok/s",
        Higher,
        true,
        "completion tokens of the cell divided by its whole duration, prefill included",
    ),
    family(
        "prefill_tok_s",
        "prefill",
        "tok/s",
        Higher,
        true,
        "prompt tokens computed divided by the time in prefill; where the target does not say, (prompt - cached) / ttft, labelled so",
    ),
    family(
        "request_rate_req_s",
        "answered",
        "req/s",
        Higher,
        true,
        "answered requests of a repeat divided by its whole duration",
    ),
    family(
        "offered_req_s",
        "offered",
        "req/s",
        Neither,
        false,
        "arrivals a second that the schedule of an open loop holds, mean",
    ),
    family(
        "goodput_req_s",
        "goodput",
        "req/s",
        Higher,
        true,
        "requests that met every objective, divided by the window; TTFT from schedule in an open loop",
    ),
    family(
        "slo_attainment_percent",
        "attainment",
        "%",
        Higher,
        true,
        "requests that met every objective, of all issued; Wilson interval",
    ),
    family(
        "acceptance",
        "acceptance",
        "%",
        Higher,
        true,
        "sum of accepted tokens divided by sum of drafted tokens, over the cell",
    ),
    family(
        "ttft_ms",
        "TTFT",
        "ms",
        Lower,
        true,
        "first generated token of any kind - sent; never a role-only or empty delta",
    ),
    family("tpot_ms", "TPOT", "ms", Lower, true, "(last token - first token) / (n - tokens in the first chunk)"),
    family("icl_ms", "ICL", "ms", Lower, true, "gap between two chunks that carry tokens; a chunk is not a token"),
    family("e2e_latency_ms", "end-to-end latency", "ms", Lower, true, "end - sent"),
    family("itl_ms", "ITL", "ms", Lower, false, "icl_ms where every chunk carries exactly one token"),
    family(
        "ttft_answer_ms",
        "TTFT of the answer",
        "ms",
        Lower,
        false,
        "first token of the answer, after any reasoning - sent",
    ),
    family(
        "ttft_from_schedule_ms",
        "TTFT from schedule",
        "ms",
        Lower,
        false,
        "first generated token - the time the arrival process wanted it sent",
    ),
    family(
        "ttft_answer_from_schedule_ms",
        "TTFT of the answer from schedule",
        "ms",
        Lower,
        false,
        "first token of the answer - the time the arrival process wanted it sent",
    ),
    family("ttfb_ms", "first byte", "ms", Lower, false, "first byte of the body - sent"),
    family(
        "e2e_latency_from_schedule_ms",
        "end-to-end latency from schedule",
        "ms",
        Lower,
        false,
        "end - the time the arrival process wanted it sent",
    ),
    family("lateness_ms", "our lateness", "ms", Lower, false, "sent - scheduled: the load generator's own delay"),
    family(
        "server_decode_tok_s",
        "decode, server's clock",
        "tok/s",
        Higher,
        false,
        "the server's own decode rate, normalised to n - 1 intervals",
    ),
    family("prompt_tokens", "prompt", "tokens", Neither, false, "prompt length as the target counts it"),
    family("completion_tokens", "completion", "tokens", Neither, false, "generated tokens as the target counts them"),
];

const STATISTICS: [&str; 11] = ["p50", "p90", "p95", "p99", "p999", "mean", "min", "max", "sd", "median", "total"];

/// What `name` says.
pub fn describe(name: &str) -> Described {
    let (stem, statistic) = match name.rsplit_once('_') {
        Some((stem, last)) if STATISTICS.contains(&last) => (stem, last),
        _ => (name, ""),
    };
    let known = FAMILIES.iter().position(|f| f.name == stem);
    let statistic = statistic.to_owned();
    match known {
        Some(rank) => {
            let Family { label, unit, better, primary, meaning, .. } = FAMILIES[rank];
            Described {
                family: stem.to_owned(),
                label: label.to_owned(),
                statistic,
                unit,
                meaning,
                better,
                rank,
                primary,
            }
        }
        None => Described {
            family: stem.to_owned(),
            label: stem.replace('_', " "),
            statistic,
            unit: unit_in(stem),
            meaning: "",
            better: Neither,
            rank: FAMILIES.len(),
            // A rate nobody described is still a result.
            primary: matches!(unit_in(stem), "tok/s" | "req/s"),
        },
    }
}

/// The unit that closes a name, or stands before its statistic.
fn unit_in(stem: &str) -> &'static str {
    let parts = [
        ("_tok_s", "tok/s"),
        ("_req_s", "req/s"),
        ("_ms", "ms"),
        ("_tokens", "tokens"),
        ("_percent", "%"),
        ("_j_token", "J/token"),
        ("_us", "µs"),
    ];
    parts
        .into_iter()
        .find(|(part, _)| stem.ends_with(part) || stem.contains(&format!("{part}_")))
        .map_or("", |(_, unit)| unit)
}

/// Place of a statistic among the columns of its family.
pub fn statistic_rank(statistic: &str) -> usize {
    STATISTICS.iter().position(|s| *s == statistic).unwrap_or(STATISTICS.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_tells_its_family_statistic_and_unit() {
        let ttft = describe("ttft_ms_p99");
        assert_eq!((ttft.family.as_str(), ttft.statistic.as_str(), ttft.unit), ("ttft_ms", "p99", "ms"));
        let aggregate = describe("decode_tok_s_aggregate");
        assert_eq!(
            (aggregate.family.as_str(), aggregate.statistic.as_str(), aggregate.unit),
            ("decode_tok_s_aggregate", "", "tok/s")
        );
        let new = describe("thing_tok_s_p50");
        assert_eq!((new.label.as_str(), new.unit, new.statistic.as_str()), ("thing tok s", "tok/s", "p50"));
    }
}
