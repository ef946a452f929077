//! The result tables of a run: one for each workload and family of metrics, a row for each arm and cell.
use std::collections::BTreeMap;

use super::document::{Cell, Head, Rich, Table, plain, strong};
use super::names::{self, Described};
use super::number;
use crate::metric::CLIENT_ERROR;
use crate::metric::summary::{CellSummary, Estimate, RunSummary, Verdict};

/// Columns of numbers a table takes before it becomes too wide to read in a forum.
const MOST_COLUMNS: usize = 6;

/// The tables of one workload.
pub struct Results {
    /// Throughput, then each primary latency.
    pub primary: Vec<Table>,
    /// The other families.
    pub further: Vec<Table>,
    /// Families that no cell has a value for.
    pub not_measured: Vec<String>,
}

/// Families that are results under an open loop and further measures under a closed one.
const FROM_SCHEDULE: [&str; 3] = ["ttft_from_schedule_ms", "e2e_latency_from_schedule_ms", "lateness_ms"];

/// What describes a cell: head, unit, value. An open loop has a rate, a closed one a concurrency.
type Length = (&'static str, &'static str, fn(&CellSummary) -> Option<f64>);

const LENGTHS: [Length; 4] = [
    ("concurrency", "in flight", |cell| (cell.concurrency > 0).then(|| f64::from(cell.concurrency))),
    ("offered", "req/s", |cell| cell.rate_req_s),
    ("prompt", "tokens", |cell| Some(f64::from(cell.prompt_tokens))),
    ("completion", "tokens", |cell| Some(f64::from(cell.completion_tokens))),
];

/// A length as a cell of a table.
fn length(value: Option<f64>) -> Cell {
    match value {
        Some(value) if value.fract() == 0.0 => Cell::count(value as usize),
        Some(value) => Cell { text: format!("{value:.3}"), sort: Some(value), ..Cell::default() },
        None => Cell::words(number::NOTHING),
    }
}

/// What every table of the run must say beside its subject.
pub fn flags(runs: &[RunSummary]) -> Rich {
    let mut flags = vec![];
    let some = |wanted: &dyn Fn(&RunSummary) -> bool| {
        let names: Vec<&str> = runs.iter().filter(|run| wanted(run)).map(|run| run.run_id.as_str()).collect();
        (!names.is_empty()).then_some(names)
    };
    let mut flag = |words: &str, names: Option<Vec<&str>>| {
        let Some(names) = names else { return };
        flags.push(plain(" "));
        flags.push(strong(words.to_owned()));
        if names.len() < runs.len() {
            flags.push(plain(" ("));
            for (index, name) in names.into_iter().enumerate() {
                flags.extend((index > 0).then(|| plain(", ")));
                flags.push(super::document::code(name));
            }
            flags.push(plain(")"));
        }
        flags.push(plain("."));
    };
    flag("speed only: random weights", some(&|run| run.synthetic));
    flag("INVALID run", some(&|run| run.verdict == Verdict::Invalid));
    flag("PARTIAL run", some(&|run| run.verdict == Verdict::Partial));
    flags
}

/// The tables of `cells`, all of one workload.
pub fn tables(run: &RunSummary, workload: &str, cells: &[&CellSummary]) -> Results {
    let mut families = families(cells);
    if cells.iter().any(|cell| cell.rate_req_s.is_some()) {
        // Under an open loop the clock of the schedule stands beside that of the send: their difference is ours.
        for (first, _) in families.iter_mut().filter(|(first, _)| FROM_SCHEDULE.contains(&first.family.as_str())) {
            first.primary = true;
        }
    }
    let mut results = Results { primary: vec![], further: vec![], not_measured: vec![] };
    // Rates share a table: each is one number a cell.
    let (rates, latencies): (Vec<_>, Vec<_>) =
        families.into_iter().partition(|(first, _)| first.primary && first.unit != "ms");
    let rates: Vec<(Described, &'static str)> = rates.into_iter().flat_map(|(_, metrics)| metrics).collect();
    results.primary.extend(split(run, workload, cells, "throughput", &rates, true));
    for (first, metrics) in latencies {
        let measured = metrics
            .iter()
            .any(|(_, name)| cells.iter().any(|cell| cell.metrics.get(name).is_some_and(|e| e.value.is_some())));
        if first.primary {
            results.primary.extend(split(run, workload, cells, &first.label, &metrics, false));
        } else if measured {
            results.further.extend(split(run, workload, cells, &first.label, &metrics, false));
        } else {
            results.not_measured.push(first.family);
        }
    }
    results
}

/// Metrics that the cells have, by family, in the order of a report.
fn families(cells: &[&CellSummary]) -> Vec<(Described, Vec<(Described, &'static str)>)> {
    let mut by_family: BTreeMap<(usize, String), Vec<(Described, &'static str)>> = BTreeMap::new();
    let mut seen: Vec<&'static str> = cells.iter().flat_map(|cell| cell.metrics.keys().copied()).collect();
    seen.sort_unstable();
    seen.dedup();
    for name in seen {
        let described = names::describe(name);
        by_family.entry((described.rank, described.family.clone())).or_default().push((described, name));
    }
    by_family
        .into_values()
        .map(|mut metrics| {
            metrics.sort_by_key(|(described, _)| names::statistic_rank(&described.statistic));
            (metrics[0].0.clone(), metrics)
        })
        .collect()
}

fn split(
    run: &RunSummary,
    workload: &str,
    cells: &[&CellSummary],
    subject: &str,
    metrics: &[(Described, &'static str)],
    counts: bool,
) -> Vec<Table> {
    if metrics.is_empty() && counts {
        return vec![table(run, workload, cells, "requests", metrics, true)];
    }
    metrics
        .chunks(MOST_COLUMNS)
        .enumerate()
        .map(|(part, metrics)| table(run, workload, cells, subject, metrics, counts && part == 0))
        .collect()
}

fn table(
    run: &RunSummary,
    workload: &str,
    cells: &[&CellSummary],
    subject: &str,
    metrics: &[(Described, &'static str)],
    counts: bool,
) -> Table {
    let varies = |of: fn(&CellSummary) -> Option<f64>| cells.windows(2).any(|pair| of(pair[0]) != of(pair[1]));
    let swept: Vec<&Length> = LENGTHS.iter().filter(|(.., of)| varies(*of)).collect();
    let held: Vec<String> = LENGTHS
        .iter()
        .filter(|(.., of)| !varies(*of))
        .filter_map(|(name, unit, of)| {
            let value = of(cells.first()?)?;
            let unit = match *unit {
                "tokens" if value == 1.0 => " token",
                "tokens" => " tokens",
                "req/s" => " req/s",
                _ => "",
            };
            Some(format!("{name} {}{unit}", length(Some(value)).text))
        })
        .collect();
    let mut caption = vec![super::document::foreign(workload), plain(format!(", {subject}"))];
    if !held.is_empty() {
        caption.push(plain(format!("; {}", held.join(", "))));
    }
    caption.push(plain(". Value, 95 % interval in brackets, n behind it."));
    caption.extend(flags(std::slice::from_ref(run)));

    let mut heads = vec![Head::words("arm")];
    heads.extend(swept.iter().map(|(name, unit, _)| Head::numbers(*name, *unit)));
    if counts {
        heads.push(Head::numbers("repeats", ""));
        heads.push(Head::numbers("answered / issued", "requests"));
    }
    heads.extend(metrics.iter().map(|(described, _)| head(described, metrics)));
    let mut table = Table { number: 0, caption, heads, rows: vec![], notes: vec![] };
    for cell in cells {
        let mut row = vec![Cell::foreign(&cell.arm)];
        row.extend(swept.iter().map(|(.., of)| length(of(cell))));
        if counts {
            row.push(Cell::count(cell.repeats));
            let text = format!("{} / {}", number::count(cell.rows.ok), number::count(cell.rows.issued));
            row.push(Cell { text, sort: Some(cell.rows.ok as f64), ..Cell::default() });
        }
        for (_, name) in metrics {
            let written = estimate(cell.metrics.get(name), &mut table);
            row.push(written);
        }
        table.rows.push(row);
    }
    table
}

/// A column is named by what tells it from its neighbours: the statistic inside a family, the label among rates.
fn head(described: &Described, metrics: &[(Described, &'static str)]) -> Head {
    let one_family = described.unit == "ms" && metrics.iter().all(|(other, _)| other.family == described.family);
    let name = match (described.statistic.as_str(), one_family) {
        ("", _) => described.label.clone(),
        (statistic, true) => statistic.to_owned(),
        (statistic, false) => format!("{} {statistic}", described.label),
    };
    Head::numbers(name, described.unit)
}

/// An estimate as a cell. A metric that the cell does not have is `–` alone; one without a value is `–` with its n.
pub fn estimate(estimate: Option<&Estimate>, table: &mut Table) -> Cell {
    let Some(estimate) = estimate else { return Cell::words(number::NOTHING) };
    let note = estimate.note.as_deref().map(|note| table.note(note));
    let n = Some(number::count(estimate.n));
    match number::write(estimate) {
        Some(written) => {
            let grey = estimate.note.as_deref().is_some_and(|note| note.starts_with(CLIENT_ERROR));
            Cell {
                text: written.value,
                interval: written.interval,
                n,
                note,
                sort: estimate.value,
                foreign: false,
                grey,
            }
        }
        None => Cell { text: number::NOTHING.to_owned(), n, note, ..Cell::default() },
    }
}

/// The numbers a reader compares first, for the overview of several runs.
pub fn headline(cells: &[&CellSummary]) -> Vec<(Described, &'static str)> {
    let families = families(cells);
    let rates = families.iter().filter(|(first, _)| first.primary && first.unit != "ms").take(2);
    let latencies = families.iter().filter(|(first, _)| first.primary && first.unit == "ms").take(2);
    rates.chain(latencies).map(|(_, metrics)| metrics[0].clone()).collect()
}

/// A row for each cell and run, cell by cell, so that runs stand under each other.
pub fn overview(runs: &[RunSummary], workload: &str) -> Table {
    let all: Vec<(&RunSummary, &CellSummary)> = runs
        .iter()
        .flat_map(|run| run.cells.iter().filter(|cell| cell.workload == workload).map(move |cell| (run, cell)))
        .collect();
    let cells: Vec<&CellSummary> = all.iter().map(|(_, cell)| *cell).collect();
    let metrics = headline(&cells);
    let mut order: Vec<(&str, &str)> = vec![];
    for cell in &cells {
        if !order.contains(&(&cell.cell, &cell.arm)) {
            order.push((&cell.cell, &cell.arm));
        }
    }
    order.sort_by_key(|(cell, _)| cells.iter().position(|c| c.cell == *cell));
    let mut caption = vec![
        super::document::foreign(workload),
        plain(", run beside run. Value, 95 % interval in brackets, n behind it."),
    ];
    caption.extend(flags(runs));
    let mut heads = vec![Head::words("cell"), Head::words("arm"), Head::words("run"), Head::words("verdict")];
    heads.extend(metrics.iter().map(|(described, _)| head(described, &metrics)));
    let mut table = Table { number: 0, caption, heads, rows: vec![], notes: vec![] };
    for (cell_id, arm) in order {
        for (run, cell) in all.iter().filter(|(_, cell)| cell.cell == cell_id && cell.arm == arm) {
            let mut row = vec![
                Cell::foreign(cell_id),
                Cell::foreign(arm),
                Cell::foreign(&run.run_id),
                Cell::words(verdict(run.verdict).to_uppercase()),
            ];
            for (_, name) in &metrics {
                let written = estimate(cell.metrics.get(name), &mut table);
                row.push(written);
            }
            table.rows.push(row);
        }
    }
    table
}

/// The verdict's word.
pub fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Valid => "valid",
        Verdict::Invalid => "invalid",
        Verdict::Partial => "partial",
    }
}
