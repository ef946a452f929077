//! The latency figure: how time to first token and the gaps after it are distributed, a curve for each arm and cell.
use super::{Curve, DIMENSIONS, DistributionChart, Figure, MOST_CURVES, Panel, scale};
use crate::metric::summary::{CellSummary, RunSummary};

/// Samples that a median needs, and a 90th percentile: `n ≥ ln(0.01)/ln(p)`.
const NEEDED: [(f64, usize); 2] = [(0.5, 7), (0.9, 44)];

struct Quantity {
    heading: &'static str,
    x_name: &'static str,
    of: &'static str,
    metric: &'static str,
    samples: fn(&CellSummary) -> &[f64],
}

const TTFT: Quantity = Quantity {
    heading: "Time to first token",
    x_name: "TTFT [ms]",
    of: "requests",
    metric: "ttft_ms",
    samples: |cell| &cell.samples.ttft_ms,
};
const ICL: Quantity = Quantity {
    heading: "Inter-chunk latency",
    x_name: "ICL [ms]",
    of: "gaps",
    metric: "icl_ms",
    samples: |cell| &cell.samples.icl_ms,
};
const TPOT: Quantity = Quantity {
    heading: "Time per output token",
    x_name: "TPOT [ms]",
    of: "requests",
    metric: "tpot_ms",
    samples: |cell| &cell.samples.tpot_ms,
};

/// The figures of one workload: one, or more where there are more curves than one can hold.
pub(super) fn figures(run: &RunSummary, workload: &str, cells: &[&CellSummary]) -> Vec<Figure> {
    // All arms together where they fit; else a figure for each arm, so that each sweep stays whole.
    let mut groups: Vec<(Option<&str>, Vec<&CellSummary>)> = vec![];
    if cells.len() <= MOST_CURVES {
        groups.push((None, cells.to_vec()));
    } else {
        for cell in cells {
            match groups.iter_mut().find(|(arm, _)| *arm == Some(cell.arm.as_str())) {
                Some((_, group)) => group.push(cell),
                None => groups.push((Some(&cell.arm), vec![cell])),
            }
        }
    }
    let parts: Vec<(Option<&str>, &[&CellSummary])> =
        groups.iter().flat_map(|(arm, group)| group.chunks(MOST_CURVES).map(move |part| (*arm, part))).collect();
    let count = parts.len();
    parts
        .into_iter()
        .enumerate()
        .filter(|(_, (_, part))| !part.is_empty())
        .map(|(index, (arm, part))| figure(run, workload, cells, part, arm, (index, count)))
        .collect()
}

fn figure(
    run: &RunSummary,
    workload: &str,
    cells: &[&CellSummary],
    part: &[&CellSummary],
    arm: Option<&str>,
    (index, count): (usize, usize),
) -> Figure {
    let gaps = if part.iter().any(|cell| !cell.samples.icl_ms.is_empty()) { ICL } else { TPOT };
    let several_arms = part.iter().any(|cell| cell.arm != part[0].arm);
    let panel = |quantity: &Quantity| Panel {
        heading: quantity.heading.to_owned(),
        x_name: quantity.x_name.to_owned(),
        of: quantity.of,
        curves: part.iter().map(|cell| curve(cell, quantity, cells, several_arms)).collect(),
    };
    // One token has no gap after it.
    let single_token = part.iter().all(|cell| cell.completion_tokens <= 1 && cell.samples.icl_ms.is_empty());
    let mut panels = vec![panel(&TTFT)];
    panels.extend((!single_token).then(|| panel(&gaps)));
    let title = match count {
        1 => format!("Latency distribution, {workload}"),
        _ => format!("Latency distribution, {workload}, {} of {count}", index + 1),
    };
    let mut subtitle = vec![run.run_id.clone()];
    subtitle.extend(
        arm.or((!several_arms).then(|| part[0].arm.as_str())).map(|arm| format!("arm {}", crate::inert::clip(arm, 80))),
    );
    subtitle.extend(super::constants(cells, None));
    subtitle.push("p50 and p90 marked where n is large enough (7, 44)".to_owned());
    let alt = say(&title, &panels);
    let chart =
        DistributionChart { title: title.clone(), subtitle: subtitle.join(" · "), marks: super::marks(run), panels };
    let slug = if count == 1 { format!("latency_{workload}") } else { format!("latency_{workload}_{}", index + 1) };
    Figure { slug, workload: workload.to_owned(), title, alt, scene: chart.scene() }
}

fn curve(cell: &CellSummary, quantity: &Quantity, cells: &[&CellSummary], several_arms: bool) -> Curve {
    let mut name: Vec<String> = several_arms.then(|| cell.arm.clone()).into_iter().collect();
    name.extend(DIMENSIONS.into_iter().filter(|d| d.varies(cells)).filter_map(|d| d.say(cell)));
    let name = if name.is_empty() { cell.cell.clone() } else { name.join(", ") };
    let mut sorted: Vec<f64> = (quantity.samples)(cell).iter().copied().filter(|v| v.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    // The figure repeats the table's percentile where there is one.
    let percentile = |(p, needed): (f64, usize)| {
        let stated = cell.metrics.iter().find(|(key, _)| **key == format!("{}_p{:.0}", quantity.metric, p * 100.0));
        match stated {
            Some((_, estimate)) => estimate.value,
            None => (sorted.len() >= needed).then(|| interpolated(&sorted, p)).flatten(),
        }
    };
    Curve { name, p50: percentile(NEEDED[0]), p90: percentile(NEEDED[1]), samples: sorted }
}

/// Linear interpolation at `(n − 1)·p`.
fn interpolated(sorted: &[f64], p: f64) -> Option<f64> {
    let at = (sorted.len().checked_sub(1)?) as f64 * p;
    let (low, high) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    Some(low + (high - low) * at.fract())
}

fn say(title: &str, panels: &[Panel]) -> String {
    let mut words = title.to_owned();
    for panel in panels {
        words.push_str(&format!(". {} in ms: ", panel.heading));
        let value = |v: Option<f64>| v.map_or("none".to_owned(), |v| scale::tick_label(v, 0.0));
        let curves: Vec<String> = panel
            .curves
            .iter()
            .map(|c| {
                format!(
                    "{}: n {}, p50 {}, p90 {}",
                    crate::inert::clip(&c.name, 80),
                    c.samples.len(),
                    value(c.p50),
                    value(c.p90)
                )
            })
            .collect();
        words.push_str(&curves.join("; "));
    }
    words
}
