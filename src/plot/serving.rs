//! The serving figures: time to first token, and requests that met their objectives, against the offered rate.
use super::{Dimension, Figure, Horizontal, LineChart, Series, Vertical};
use crate::metric::summary::{CellSummary, RunSummary};

/// Key of the workload that these figures show.
pub(super) const WORKLOAD: &str = "serving";

/// A line for each arm: what the legend adds to the arm, and the metric.
type Lines = &'static [(&'static str, &'static str)];

struct Shape {
    slug: &'static str,
    title: &'static str,
    y_name: String,
    unit: &'static str,
    vertical: Vertical,
    lines: Lines,
    n_of: &'static str,
}

const TTFT: Lines =
    &[("p50", "ttft_from_schedule_ms_p50"), ("p90", "ttft_from_schedule_ms_p90"), ("p99", "ttft_from_schedule_ms_p99")];
const TTFT_CLOSED: Lines = &[("p50", "ttft_ms_p50"), ("p90", "ttft_ms_p90"), ("p99", "ttft_ms_p99")];
const RATES: Lines = &[("offered", "offered_req_s"), ("answered", "request_rate_req_s"), ("goodput", "goodput_req_s")];

/// Both figures; none without cells. Rates of an open loop are the horizontal axis, else requests in flight.
pub(super) fn figures(run: &RunSummary, cells: &[&CellSummary]) -> Vec<Figure> {
    let open: Vec<&CellSummary> = cells.iter().copied().filter(|cell| cell.rate_req_s.is_some()).collect();
    let closed: Vec<&CellSummary> = cells.iter().copied().filter(|cell| cell.rate_req_s.is_none()).collect();
    let mut figures = Vec::new();
    for (cells, swept, ttft) in [(open, Dimension::Rate, TTFT), (closed, Dimension::Concurrency, TTFT_CLOSED)] {
        if cells.is_empty() {
            continue;
        }
        let by_rate = swept == Dimension::Rate;
        let clock = if by_rate { "from schedule" } else { "from send" };
        let shapes = [
            Shape {
                slug: "ttft",
                title: "Time to first token",
                y_name: format!("time to first token, {clock} [ms]"),
                unit: "ms",
                vertical: Vertical::Times,
                lines: ttft,
                n_of: "requests",
            },
            Shape {
                slug: "requests",
                title: "Requests answered, and within the objectives",
                y_name: "requests [req/s]".to_owned(),
                unit: "req/s",
                vertical: Vertical::FromZero,
                lines: RATES,
                n_of: "repeats",
            },
        ];
        figures.extend(shapes.iter().filter_map(|shape| figure(run, &cells, swept, shape)));
    }
    figures
}

/// One figure; `None` where no cell has any of its metrics.
fn figure(run: &RunSummary, cells: &[&CellSummary], swept: Dimension, shape: &Shape) -> Option<Figure> {
    let mut series: Vec<Series> = vec![];
    for (name, metric) in shape.lines {
        let known = |cell: &&CellSummary| cell.metrics.get(metric).is_some_and(|estimate| estimate.value.is_some());
        if cells.iter().any(known) {
            series.extend(super::series(cells, swept, metric).into_iter().map(|mut line| {
                line.name = format!("{}, {name}", line.name);
                line
            }));
        }
    }
    if series.is_empty() {
        return None;
    }
    let (by, slug, x_name) = match swept {
        Dimension::Rate => ("offered rate", "rate", "offered rate [req/s]"),
        _ => ("concurrency", "concurrency", "concurrency [requests in flight]"),
    };
    let title = format!("{} by {by}", shape.title);
    let mut subtitle = vec![run.run_id.clone()];
    subtitle.extend(super::constants(cells, Some(swept)));
    subtitle.push(super::say_n(&series, shape.n_of));
    subtitle.extend(super::say_bars(&series));
    let alt = super::say_lines(&title, by, shape.unit, &series);
    let chart = LineChart {
        title: title.clone(),
        subtitle: subtitle.join(" · "),
        marks: super::marks(run),
        x_name: x_name.to_owned(),
        horizontal: Horizontal::Counts,
        y_name: shape.y_name.clone(),
        vertical: shape.vertical,
        series,
        linear_reference: false,
    };
    let slug = format!("{WORKLOAD}_{}_{slug}", shape.slug);
    Some(Figure { slug, workload: WORKLOAD.to_owned(), title, alt, scene: chart.scene() })
}
