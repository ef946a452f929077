//! Ratios between arms, paired by block, and the sentence each allows.
use std::collections::BTreeMap;

use super::cell_rows::{CellRows, RepeatValues, repeat_values};
use super::differences::factors;
use super::names::better;
use super::summary::{Better, Comparison, Estimate};
use crate::record::{LoggedRun, PlannedArm, PlannedCell, PlannedRun};
use crate::statistics::{noise_floor, paired_ratio_interval, pooled_log_spread};

/// Metrics that arms are compared by. TTFT stands as the mean of a block: a block holds too few requests for a percentile of its own.
const COMPARED: [&str; 3] = ["decode_tok_s_aggregate", "prefill_tok_s", "ttft_ms_mean"];

/// Compares every arm with the first, cell by cell. `rows` are those of each arm and cell.
pub fn compare(run: &LoggedRun, plan: &PlannedRun, rows: &BTreeMap<(&str, &str), CellRows<'_>>) -> Vec<Comparison> {
    let Some((baseline, others)) = plan.arms.split_first().filter(|(_, others)| !others.is_empty()) else {
        return Vec::new();
    };
    let mut comparisons = Vec::new();
    for cell in &plan.cells {
        for metric in COMPARED.into_iter().filter(|&m| m != "decode_tok_s_aggregate" || cell.completion_tokens > 1) {
            let of =
                |arm: &PlannedArm| rows.get(&(&*arm.name, &*cell.id)).map(|rows| repeat_values(rows, cell, metric));
            let first = of(baseline).unwrap_or_default();
            let values: Vec<RepeatValues> = others.iter().map(|arm| of(arm).unwrap_or_default()).collect();
            let spread = Spread::of(baseline, &first, others, &values);
            for (arm, values) in others.iter().zip(&values) {
                let factors = factors(run, baseline, arm);
                comparisons.extend(one(cell, metric, (baseline, &first), (arm, values), &spread, &factors));
            }
        }
    }
    comparisons
}

/// New ÷ old in the blocks that hold both.
fn pairs(new: &RepeatValues, old: &RepeatValues) -> Vec<(f64, f64)> {
    let of = |repeat: u32| old.values.iter().find(|(r, _)| *r == repeat).map(|&(_, value)| value);
    new.values.iter().filter_map(|&(repeat, value)| Some((value, of(repeat)?))).collect()
}

/// What the noise floor of one cell and metric is made of.
struct Spread {
    /// Within-arm values of every arm of the run.
    arms: Vec<Vec<f64>>,
    /// |ratio − 1| of the A/A pair, where there is one.
    copies: Option<f64>,
}

impl Spread {
    fn of(baseline: &PlannedArm, first: &RepeatValues, others: &[PlannedArm], values: &[RepeatValues]) -> Self {
        let named = |name: &str| {
            let mut all = std::iter::once((baseline, first)).chain(others.iter().zip(values));
            all.find(|(arm, _)| arm.name == name).map(|(_, values)| values)
        };
        let apart = |(arm, values): (&PlannedArm, &RepeatValues)| {
            let ratio = paired_ratio_interval(&pairs(values, named(arm.copy_of.as_deref()?)?))?.centre;
            Some(ratio.max(1.0 / ratio) - 1.0)
        };
        Self {
            arms: std::iter::once(first).chain(values).map(RepeatValues::only).collect(),
            copies: others.iter().zip(values).filter_map(apart).reduce(f64::max),
        }
    }

    /// Half-width of the noise floor over `blocks`: by the pooled spread inside arms, and not below what the A/A pair showed.
    fn floor(&self, blocks: usize) -> Option<f64> {
        let pooled = pooled_log_spread(&self.arms).and_then(|spread| noise_floor(spread, blocks));
        pooled.into_iter().chain(self.copies).reduce(f64::max)
    }
}

fn one(
    cell: &PlannedCell,
    metric: &'static str,
    (baseline, old): (&PlannedArm, &RepeatValues),
    (arm, new): (&PlannedArm, &RepeatValues),
    spread: &Spread,
    factors: &[String],
) -> Option<Comparison> {
    let pairs = pairs(new, old);
    let interval = paired_ratio_interval(&pairs)?;
    let copy = arm.copy_of.as_deref() == Some(&baseline.name);
    let floor = spread.floor(pairs.len());
    let note = new.note.or(old.note).map(str::to_owned);
    let ratio = Estimate { n: interval.n, value: Some(interval.centre), low: interval.low, high: interval.high, note };
    let verdict = sentence(&ratio, floor, better(metric), factors, copy);
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
fn sentence(ratio: &Estimate, floor: Option<f64>, better: Better, factors: &[String], copy: bool) -> String {
    let percent = |x: f64| format!("{:+.1} %", (x - 1.0) * 100.0).replace('-', "−");
    let (Some(value), Some(low), Some(high)) = (ratio.value, ratio.low, ratio.high) else {
        return format!("no verdict: {} blocks show no spread to judge by; ask for more repeats", ratio.n);
    };
    let range = format!("{} ({} to {}, {} blocks)", percent(value), percent(low), percent(high), ratio.n);
    let shown = low > 1.0 || high < 1.0;
    let outside = floor.is_none_or(|floor| value > 1.0 + floor || value < 1.0 / (1.0 + floor));
    if copy {
        let seen = if shown { "the machine was not steady" } else { "no difference shown" };
        return format!("the same arm twice: {seen}, {range}");
    }
    let seen = if !shown {
        format!("no difference shown, {range}")
    } else if !outside {
        let floor = floor.map_or_else(String::new, |floor| format!(" of ±{:.1} %", floor * 100.0));
        format!("inside the noise floor{floor}, {range}")
    } else {
        // How many per cent more work in the same time, or less time for the same work.
        let size = |x: f64| format!("{:.1}", (x - 1.0).abs() * 100.0);
        let (word, unit) = match (better, value > 1.0) {
            (Better::Higher, true) => ("faster by", ""),
            (Better::Higher, false) => ("slower by", ""),
            (Better::Lower, false) => ("faster by", " of the time"),
            (Better::Lower, true) => ("slower by", " of the time"),
            (Better::Neither, _) => ("differs by", ""),
        };
        let (near, far) = if value > 1.0 { (low, high) } else { (high, low) };
        format!("{word} {} %{unit} ({} to {} %, {} blocks)", size(value), size(near), size(far), ratio.n)
    };
    if factors.len() > 1 { format!("confounded by {}; {seen}", factors.join(", ")) } else { seen }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ratio(value: f64, low: f64, high: f64) -> Estimate {
        Estimate { n: 6, value: Some(value), low: Some(low), high: Some(high), note: None }
    }

    fn of(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_difference_inside_the_noise_is_never_called_a_win() {
        let say = |r: &Estimate, floor: f64| sentence(r, Some(floor), Better::Higher, &of(&["kv_dtype"]), false);
        assert_eq!(
            say(&ratio(1.04, 1.01, 1.07), 0.05),
            "inside the noise floor of ±5.0 %, +4.0 % (+1.0 % to +7.0 %, 6 blocks)"
        );
        assert_eq!(say(&ratio(1.04, 0.99, 1.09), 0.01), "no difference shown, +4.0 % (−1.0 % to +9.0 %, 6 blocks)");
        assert_eq!(say(&ratio(1.041, 1.02, 1.063), 0.01), "faster by 4.1 % (2.0 to 6.3 %, 6 blocks)");
        assert_eq!(say(&ratio(0.9, 0.85, 0.95), 0.01), "slower by 10.0 % (5.0 to 15.0 %, 6 blocks)");
        let lower = sentence(&ratio(0.9, 0.85, 0.95), Some(0.01), Better::Lower, &[], false);
        assert_eq!(lower, "faster by 10.0 % of the time (5.0 to 15.0 %, 6 blocks)");
    }

    #[test]
    fn two_factors_are_confounded_and_one_block_has_no_verdict() {
        let two = of(&["kv_dtype", "threads"]);
        assert_eq!(
            sentence(&ratio(1.5, 1.4, 1.6), Some(0.01), Better::Higher, &two, false),
            "confounded by kv_dtype, threads; faster by 50.0 % (40.0 to 60.0 %, 6 blocks)"
        );
        let one = Estimate { n: 1, value: Some(2.0), ..Estimate::default() };
        assert!(sentence(&one, None, Better::Higher, &[], false).starts_with("no verdict: 1 blocks"));
    }

    #[test]
    fn an_arm_and_its_copy_never_win_over_each_other() {
        let say = |r: &Estimate| sentence(r, Some(0.01), Better::Higher, &[], true);
        assert!(say(&ratio(1.2, 1.1, 1.3)).starts_with("the same arm twice: the machine was not steady"));
        assert!(say(&ratio(1.0, 0.9, 1.1)).starts_with("the same arm twice: no difference shown"));
    }
}
