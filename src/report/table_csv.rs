//! `tables.csv`: one row for each run, arm, cell and metric, for a spreadsheet or another program.
use super::names;
use super::{ReportError, results};
use crate::inert::csv_text;
use crate::metric::summary::RunSummary;

/// The columns.
pub const COLUMNS: [&str; 16] = [
    "run",
    "arm",
    "cell",
    "workload",
    "concurrency",
    "prompt_tokens",
    "completion_tokens",
    "metric",
    "unit",
    "n",
    "value",
    "low",
    "high",
    "note",
    "verdict",
    "synthetic",
];

/// Writes the rows. Unknown numbers are empty; numbers are never quoted as text, text never reads as a formula.
///
/// # Errors
/// [`ReportError::Csv`] when a row cannot be written.
pub fn csv(runs: &[RunSummary]) -> Result<Vec<u8>, ReportError> {
    let mut writer = csv::WriterBuilder::new().terminator(csv::Terminator::Any(b'\n')).from_writer(vec![]);
    writer.write_record(COLUMNS).map_err(ReportError::csv)?;
    for run in runs {
        for cell in &run.cells {
            for (name, estimate) in &cell.metrics {
                let row: [std::borrow::Cow<str>; 16] = [
                    csv_text(&run.run_id),
                    csv_text(&cell.arm),
                    csv_text(&cell.cell),
                    csv_text(&cell.workload),
                    cell.concurrency.to_string().into(),
                    cell.prompt_tokens.to_string().into(),
                    cell.completion_tokens.to_string().into(),
                    csv_text(name),
                    names::describe(name).unit.into(),
                    estimate.n.to_string().into(),
                    figure(estimate.value).into(),
                    figure(estimate.low).into(),
                    figure(estimate.high).into(),
                    csv_text(estimate.note.as_deref().unwrap_or_default()),
                    results::verdict(run.verdict).into(),
                    run.synthetic.to_string().into(),
                ];
                writer.write_record(row.iter().map(|field| field.as_bytes())).map_err(ReportError::csv)?;
            }
        }
    }
    writer.into_inner().map_err(ReportError::csv)
}

/// The shortest digits that read back as the same number; empty for what is unknown.
fn figure(value: Option<f64>) -> String {
    match value.filter(|v| v.is_finite()) {
        None => String::new(),
        Some(v) if v == 0.0 || (1e-5..1e15).contains(&v.abs()) => v.to_string(),
        Some(v) => format!("{v:e}"),
    }
}
