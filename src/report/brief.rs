//! The main numbers of a run as a plain table for a terminal.
use crate::inert;
use crate::metric::summary::{Estimate, RunSummary};

/// Columns: head and metric.
const COLUMNS: [(&str, &str); 4] = [
    ("decode tok/s", "decode_tok_s_aggregate"),
    ("prefill tok/s", "prefill_tok_s"),
    ("TTFT ms, mean", "ttft_ms_mean"),
    ("TPOT ms, p50", "tpot_ms_p50"),
];

/// One line for every arm × cell: value, 95 % interval over repeats, n; `–` where nothing was measured. Safe on a terminal.
pub fn brief(summary: &RunSummary) -> String {
    let several = summary.arms.len() > 1;
    let mut head = vec!["cell".to_owned()];
    if several {
        head.insert(0, "arm".to_owned());
    }
    head.extend(COLUMNS.map(|(head, _)| head.to_owned()));
    let mut rows = vec![head];
    for cell in &summary.cells {
        let mut row = vec![inert::terminal_line(&cell.cell).into_owned()];
        if several {
            row.insert(0, inert::terminal_line(&cell.arm).into_owned());
        }
        row.extend(COLUMNS.map(|(_, metric)| cell.metrics.get(metric).map_or_else(|| "–".to_owned(), shown)));
        rows.push(row);
    }
    let widths: Vec<usize> = (0..rows[0].len())
        .map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0))
        .collect();
    let line = |row: &Vec<String>| {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(text, &width)| format!("{text:<width$}")).collect();
        cells.join("  ").trim_end().to_owned()
    };
    let mut out: Vec<String> = rows.iter().map(line).collect();
    for comparison in &summary.comparisons {
        let (arm, baseline) = (inert::terminal_line(&comparison.arm), inert::terminal_line(&comparison.baseline));
        let (cell, metric) = (inert::terminal_line(&comparison.cell), comparison.metric);
        out.push(format!("{arm} against {baseline}, {cell}, {metric}: {}", inert::terminal_line(&comparison.verdict)));
    }
    if summary.synthetic {
        out.push("speed only: random weights, the text means nothing".to_owned());
    }
    out.join("\n")
}

fn shown(estimate: &Estimate) -> String {
    let number = |x: f64| super::number::plain(x);
    let n = estimate.n;
    match (estimate.value, estimate.low, estimate.high) {
        (Some(value), Some(low), Some(high)) => format!("{} ({}–{}) n={n}", number(value), number(low), number(high)),
        (Some(value), ..) => format!("{} n={n}", number(value)),
        (None, ..) => "–".to_owned(),
    }
}
