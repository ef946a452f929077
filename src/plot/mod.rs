//! Figures by plotters, as SVG and PNG.
//!
//! A figure is data first ([`LineChart`], [`DistributionChart`]), then a [`Scene`] of strokes and words, then a file. Any data gives a
//! picture: where nothing was measured it says "no data (n=0)".
mod decode_scaling;
mod distribution;
pub mod font;
mod frame;
mod latency;
mod lines;
pub mod palette;
mod prefill_scaling;
pub mod scale;
pub mod scene;
mod serving;

use miette::Diagnostic;
use thiserror::Error;

pub use distribution::{Curve, DistributionChart, MOST_CURVES, Panel};
pub use frame::Mark;
pub use lines::{Horizontal, LineChart, Point, Series, Vertical};
pub use scene::Scene;

use crate::metric::summary::{CellSummary, RunSummary, Verdict};

/// Why a figure could not be painted.
#[derive(Debug, Error, Diagnostic)]
pub enum PlotError {
    /// The painter or its file failed.
    #[error("a figure could not be painted: {message}")]
    #[diagnostic(help("the report's folder must be writable and have room"))]
    Paint {
        /// What plotters said.
        message: String,
    },
}

impl PlotError {
    fn paint(error: impl std::fmt::Display) -> Self {
        Self::Paint { message: error.to_string() }
    }

    fn draw(error: impl std::fmt::Display) -> Self {
        Self::paint(error)
    }
}

/// A figure of a run, ready to be painted.
pub struct Figure {
    /// File name without ending, unique in the run.
    pub slug: String,
    /// The workload it shows.
    pub workload: String,
    /// Its title.
    pub title: String,
    /// The same in words, for those who do not see it.
    pub alt: String,
    /// The picture.
    pub scene: Scene,
}

/// Every figure that the run's cells call for, in the order of its workloads.
pub fn figures(run: &RunSummary) -> Vec<Figure> {
    let mut workloads: Vec<&str> = vec![];
    for cell in &run.cells {
        if !workloads.contains(&cell.workload.as_str()) {
            workloads.push(&cell.workload);
        }
    }
    let mut figures = vec![];
    for workload in workloads {
        let cells: Vec<&CellSummary> = run.cells.iter().filter(|cell| cell.workload == workload).collect();
        match workload {
            decode_scaling::WORKLOAD => figures.extend(decode_scaling::figure(run, &cells)),
            prefill_scaling::WORKLOAD => figures.extend(prefill_scaling::figures(run, &cells)),
            serving::WORKLOAD => figures.extend(serving::figures(run, &cells)),
            _ => {}
        }
        figures.extend(latency::figures(run, workload, &cells));
    }
    figures
}

fn marks(run: &RunSummary) -> Vec<Mark> {
    let verdict = match run.verdict {
        Verdict::Valid => None,
        Verdict::Invalid => Some(Mark::Invalid),
        Verdict::Partial => Some(Mark::Partial),
    };
    verdict.into_iter().chain(run.synthetic.then_some(Mark::SpeedOnly)).collect()
}

/// A length that a workload sweeps or holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dimension {
    Concurrency,
    Prompt,
    Completion,
    /// Arrivals a second.
    Rate,
}

const DIMENSIONS: [Dimension; 4] = [Dimension::Concurrency, Dimension::Rate, Dimension::Prompt, Dimension::Completion];

impl Dimension {
    fn of(self, cell: &CellSummary) -> f64 {
        match self {
            Self::Concurrency => f64::from(cell.concurrency),
            Self::Rate => cell.rate_req_s.unwrap_or(0.0),
            Self::Prompt => f64::from(cell.prompt_tokens),
            Self::Completion => f64::from(cell.completion_tokens),
        }
    }

    /// What the cell has of it in words; nothing for the rate of a closed loop and the concurrency of an open one.
    fn say(self, cell: &CellSummary) -> Option<String> {
        Some(match self {
            Self::Concurrency if cell.concurrency == 0 => return None,
            Self::Concurrency => format!("concurrency {}", cell.concurrency),
            Self::Rate => format!("{} req/s", scale::tick_label(cell.rate_req_s?, 0.0)),
            Self::Prompt => format!("prompt {}", tokens(cell.prompt_tokens)),
            Self::Completion => format!("completion {}", tokens(cell.completion_tokens)),
        })
    }

    fn varies(self, cells: &[&CellSummary]) -> bool {
        cells.windows(2).any(|pair| self.of(pair[0]) != self.of(pair[1]))
    }
}

fn tokens(count: u32) -> String {
    format!("{} {}", scale::thousands(&count.to_string()), if count == 1 { "token" } else { "tokens" })
}

/// What every cell has in common, for the subtitle.
fn constants(cells: &[&CellSummary], swept: Option<Dimension>) -> Vec<String> {
    let held = DIMENSIONS.into_iter().filter(|d| Some(*d) != swept && !d.varies(cells));
    held.filter_map(|d| cells.first().and_then(|cell| d.say(cell))).collect()
}

/// One series an arm, or more where a second length varies; a point for each cell.
fn series(cells: &[&CellSummary], swept: Dimension, metric: &str) -> Vec<Series> {
    let others: Vec<Dimension> = DIMENSIONS.into_iter().filter(|d| *d != swept && d.varies(cells)).collect();
    let mut series: Vec<Series> = vec![];
    for cell in cells {
        let mut name = cell.arm.clone();
        others.iter().filter_map(|d| d.say(cell)).for_each(|said| name.push_str(&format!(", {said}")));
        let estimate = cell.metrics.get(metric).cloned().unwrap_or_default();
        let point =
            Point { x: swept.of(cell), y: estimate.value, low: estimate.low, high: estimate.high, n: estimate.n };
        match series.iter_mut().find(|s| s.name == name) {
            Some(line) => line.points.push(point),
            None => series.push(Series { name, points: vec![point] }),
        }
    }
    series
}

/// The first of `wanted` that any cell has, else any metric of the same family; where there is none, the first name, so that the
/// figure can say "no data".
fn metric_of(cells: &[&CellSummary], wanted: &[&'static str]) -> &'static str {
    let names = || cells.iter().flat_map(|cell| cell.metrics.keys().copied());
    let exact = wanted.iter().copied().find(|wanted| names().any(|name| name == *wanted));
    let related = || wanted.iter().find_map(|wanted| names().find(|name| name.starts_with(wanted)));
    exact.or_else(related).or(wanted.first().copied()).unwrap_or_default()
}

/// `n = 3 repeats a point`, or the span of n where it differs.
fn say_n(series: &[Series], of: &str) -> String {
    let counts = || series.iter().flat_map(|s| &s.points).map(|p| p.n);
    match (counts().min(), counts().max()) {
        (Some(least), Some(most)) if least == most => format!("n = {most} {of} a point"),
        (Some(least), Some(most)) => format!("n = {least} to {most} {of} a point"),
        _ => format!("n = 0 {of}"),
    }
}

fn say_bars(series: &[Series]) -> Option<String> {
    series.iter().flat_map(|s| &s.points).any(|p| p.low.is_some()).then(|| "bars: 95 % interval".to_owned())
}

/// The lines in words: `arm a: 41.2 at 1, 78.0 at 2`.
fn say_lines(title: &str, x_name: &str, unit: &str, series: &[Series]) -> String {
    let lines: Vec<String> = series
        .iter()
        .take(8)
        .map(|line| {
            let points: Vec<String> = line
                .points
                .iter()
                .take(16)
                .map(|p| {
                    let value = scale::drawable(p.y)
                        .map_or("no value".to_owned(), |y| format!("{} {unit}", scale::tick_label(y, 0.0)));
                    format!("{value} at {}", scale::tick_label(p.x, 1.0))
                })
                .collect();
            format!("{}: {}", crate::inert::clip(&line.name, 80), points.join(", "))
        })
        .collect();
    format!("{title}, by {x_name}. {}", lines.join("; "))
}
