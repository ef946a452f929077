//! What a metric's name says: its family, statistic, unit and meaning. Meanings follow the project's formulas.
use crate::metric::METRICS;
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

/// Families shown with the results; all others stand under "Further measures".
const PRIMARY: [&str; 12] = [
    "decode_tok_s_aggregate",
    "decode_tok_s",
    "run_tok_s",
    "prefill_tok_s",
    "request_rate_req_s",
    "goodput_req_s",
    "slo_attainment_percent",
    "acceptance",
    "ttft_ms",
    "tpot_ms",
    "icl_ms",
    "e2e_latency_ms",
];

const STATISTICS: [&str; 11] = ["p50", "p90", "p95", "p99", "p999", "mean", "min", "max", "sd", "median", "total"];

/// Family and statistic of a name.
fn split(name: &str) -> (&str, &str) {
    match name.rsplit_once('_') {
        Some((stem, last)) if STATISTICS.contains(&last) => (stem, last),
        _ => (name, ""),
    }
}

/// What `name` says, from the table of metrics; a name that is not in it is told by its own parts.
pub fn describe(name: &str) -> Described {
    let (stem, statistic) = split(name);
    let of_family = || METRICS.iter().enumerate().filter(|(_, metric)| split(metric.name).0 == stem);
    // What a family means is said of one request; its mean adds only how repeats are put together.
    let told = of_family().find(|(_, metric)| split(metric.name).1 != "mean").or_else(|| of_family().next());
    let (family, statistic) = (stem.to_owned(), statistic.to_owned());
    match told.zip(of_family().next()) {
        Some(((_, metric), (rank, _))) => {
            let words = metric.label.strip_suffix(split(metric.name).1).unwrap_or(metric.label).trim_end();
            Described {
                family,
                label: words.to_owned(),
                statistic,
                unit: metric.unit,
                meaning: metric.meaning,
                better: metric.better,
                rank,
                primary: PRIMARY.contains(&stem),
            }
        }
        None => Described {
            family,
            label: stem.replace('_', " "),
            statistic,
            unit: unit_in(stem),
            meaning: "",
            better: Better::Neither,
            rank: METRICS.len(),
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
        let run = describe("request_rate_req_s");
        assert_eq!((run.label.as_str(), run.unit, run.primary), ("requests", "req/s", true));
        for metric in METRICS {
            let described = describe(metric.name);
            assert_eq!((described.unit, described.meaning.is_empty()), (metric.unit, false), "{}", metric.name);
        }
        for family in PRIMARY {
            assert!(METRICS.iter().any(|metric| split(metric.name).0 == family), "{family} names no metric");
        }
        let new = describe("thing_tok_s_p50");
        assert_eq!((new.label.as_str(), new.unit, new.statistic.as_str()), ("thing tok s", "tok/s", "p50"));
    }
}
