//! Ratios between arms, paired by block, and the sentence each allows.
use serde_json::Value;

use super::cell::{CellRows, repeat_values};
use super::names::better;
use super::summary::{ArmSummary, Better, Comparison, Estimate};
use crate::record::{LoggedRun, PlannedArm, PlannedCell, PlannedRun};
use crate::statistics::{noise_floor, paired_ratio_interval, pooled_log_spread};

/// Metrics that arms are compared by.
const COMPARED: [&str; 3] = ["decode_tok_s_aggregate", "prefill_tok_s", "ttft_ms_mean"];

/// Settings in which arms differ: path and value, from the resolved targets. Only paths that differ between any two arms are listed.
pub fn differences(plan: &PlannedRun) -> Vec<Vec<(String, String)>> {
    let flat: Vec<Vec<(String, String)>> = plan.arms.iter().map(settings).collect();
    let mut paths: Vec<&String> = flat.iter().flatten().map(|(path, _)| path).collect();
    paths.sort();
    paths.dedup();
    let value = |arm: &[(String, String)], path: &str| {
        arm.iter().find(|(p, _)| p == path).map_or_else(|| "–".to_owned(), |(_, value)| value.clone())
    };
    paths.retain(|path| flat.iter().any(|arm| value(arm, path) != value(&flat[0], path)));
    flat.iter().map(|arm| paths.iter().map(|path| (short(path), value(arm, path))).collect()).collect()
}

/// The last part of a path, as a report names it: `in_process.kv_dtype` is `kv_dtype`.
fn short(path: &str) -> String {
    path.split_once('.').map_or(path, |(_, rest)| rest).to_owned()
}

fn settings(arm: &PlannedArm) -> Vec<(String, String)> {
    fn walk(path: &str, value: &Value, into: &mut Vec<(String, String)>) {
        match value {
            Value::Object(map) => {
                for (key, value) in map {
                    let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                    walk(&path, value, into);
                }
            }
            Value::String(text) => into.push((path.to_owned(), text.clone())),
            other => into.push((path.to_owned(), other.to_string())),
        }
    }
    let mut into = Vec::new();
    walk("", &arm.target, &mut into);
    walk("thinking", &arm.thinking, &mut into);
    into
}

/// Every arm with what answers it and where it differs.
pub fn arms(run: &LoggedRun, plan: &PlannedRun) -> Vec<ArmSummary> {
    let differs = differences(plan);
    plan.arms
        .iter()
        .zip(differs)
        .map(|(arm, differs)| {
            let facts = run.segments.first().map(|s| &s.open.provenance["target"][&arm.name]);
            let word = |key: &str| facts.and_then(|f| f[key].as_str()).unwrap_or_default();
            let (name, model) = (word("name"), word("model"));
            let target = match (name, model) {
                ("", "") => "–".to_owned(),
                (name, "") => name.to_owned(),
                (name, model) => format!("{name}, {model}"),
            };
            ArmSummary { name: arm.name.clone(), target, differs }
        })
        .collect()
}

/// Compares every arm with the first, cell by cell. `rows(arm, cell)` gives their rows.
pub fn compare<'a>(plan: &PlannedRun, rows: &dyn Fn(&str, &str) -> Option<&'a CellRows<'a>>) -> Vec<Comparison> {
    let Some((baseline, others)) = plan.arms.split_first() else { return Vec::new() };
    let differs = differences(plan);
    let mut comparisons = Vec::new();
    for cell in &plan.cells {
        for (arm, arm_differs) in others.iter().zip(&differs[1..]) {
            let factors: Vec<&str> =
                arm_differs.iter().zip(&differs[0]).filter(|(a, b)| a.1 != b.1).map(|(a, _)| a.0.as_str()).collect();
            for metric in COMPARED {
                let pair = rows(&baseline.name, &cell.id).zip(rows(&arm.name, &cell.id));
                comparisons.extend(pair.and_then(|pair| one(cell, metric, (baseline, arm), pair, &factors)));
            }
        }
    }
    comparisons
}

fn one(
    cell: &PlannedCell,
    metric: &'static str,
    (baseline, arm): (&PlannedArm, &PlannedArm),
    (first, second): (&CellRows<'_>, &CellRows<'_>),
    factors: &[&str],
) -> Option<Comparison> {
    let (a, b) = (repeat_values(first, cell, metric), repeat_values(second, cell, metric));
    let pairs: Vec<(f64, f64)> =
        b.iter().filter_map(|&(repeat, new)| Some((new, a.iter().find(|(r, _)| *r == repeat)?.1))).collect();
    let interval = paired_ratio_interval(&pairs)?;
    let only = |values: &[(u32, f64)]| values.iter().map(|&(_, v)| v).collect::<Vec<f64>>();
    let floor = pooled_log_spread(&[only(&a), only(&b)]).and_then(|spread| noise_floor(spread, pairs.len()));
    let ratio =
        Estimate { n: interval.n, value: Some(interval.centre), low: interval.low, high: interval.high, note: None };
    let verdict = sentence(&ratio, floor, better(metric), factors, arm.copy_of.is_some());
    Some(Comparison {
        baseline: baseline.name.clone(),
        arm: arm.name.clone(),
        cell: cell.id.clone(),
        metric,
        ratio,
        noise_floor: floor,
        verdict,
    })
}

/// What the interval of a ratio allows one to say. A difference is named only when the interval leaves out 1 and the ratio lies outside the
/// noise floor; arms that differ in more than one factor are never told apart by cause.
fn sentence(ratio: &Estimate, floor: Option<f64>, better: Better, factors: &[&str], copy: bool) -> String {
    let percent = |x: f64| format!("{:+.1} %", (x - 1.0) * 100.0);
    let (Some(value), Some(low), Some(high)) = (ratio.value, ratio.low, ratio.high) else {
        return "no verdict: one block has no spread; ask for more repeats".into();
    };
    let range = format!("{} ({} to {}, {} blocks)", percent(value), percent(low), percent(high), ratio.n);
    let shown = low > 1.0 || high < 1.0;
    let outside = floor.is_none_or(|floor| value > 1.0 + floor || value < 1.0 / (1.0 + floor));
    let confounded = if factors.len() > 1 { format!("; confounded by {}", factors.join(", ")) } else { String::new() };
    if copy {
        let seen = if shown {
            "the same arm twice differs: the machine was not steady"
        } else {
            "the same arm twice: no difference shown"
        };
        return format!("{seen}, {range}");
    }
    if !shown {
        return format!("no difference shown, {range}{confounded}");
    }
    if !outside {
        let floor = floor.map_or_else(String::new, |floor| format!(" of ±{:.1} %", floor * 100.0));
        return format!("inside the noise floor{floor}, {range}{confounded}");
    }
    let word = match (better, value > 1.0) {
        (Better::Higher, true) | (Better::Lower, false) => "better",
        (Better::Higher, false) | (Better::Lower, true) => "worse",
        (Better::Neither, _) => "different",
    };
    format!("{word}, {range}{confounded}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ratio(value: f64, low: f64, high: f64) -> Estimate {
        Estimate { n: 6, value: Some(value), low: Some(low), high: Some(high), note: None }
    }

    #[test]
    fn a_difference_inside_the_noise_is_never_called_a_win() {
        let say = |r: &Estimate, floor: f64| sentence(r, Some(floor), Better::Higher, &["kv_dtype"], false);
        assert!(say(&ratio(1.04, 1.01, 1.07), 0.05).starts_with("inside the noise floor of ±5.0 %"));
        assert!(say(&ratio(1.04, 0.99, 1.09), 0.01).starts_with("no difference shown"));
        assert_eq!(say(&ratio(1.041, 1.02, 1.063), 0.01), "better, +4.1 % (+2.0 % to +6.3 %, 6 blocks)");
        assert!(say(&ratio(0.9, 0.85, 0.95), 0.01).starts_with("worse"));
        let lower = sentence(&ratio(0.9, 0.85, 0.95), Some(0.01), Better::Lower, &[], false);
        assert!(lower.starts_with("better"));
    }

    #[test]
    fn two_factors_are_confounded_and_one_block_has_no_verdict() {
        let two = sentence(&ratio(1.5, 1.4, 1.6), Some(0.01), Better::Higher, &["kv_dtype", "threads"], false);
        assert!(two.ends_with("confounded by kv_dtype, threads"), "{two}");
        let one = Estimate { n: 1, value: Some(2.0), ..Estimate::default() };
        assert!(sentence(&one, None, Better::Higher, &[], false).starts_with("no verdict"));
    }
}
