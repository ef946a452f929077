//! The prefill figures: prefill tokens a second, and time to first token, against prompt length.
use super::{Dimension, Figure, Horizontal, LineChart, Vertical};
use crate::metric::summary::{CellSummary, RunSummary};

/// Key of the workload that these figures show.
pub(super) const WORKLOAD: &str = "prefill_scaling";

struct Shape {
    slug: &'static str,
    title: &'static str,
    y_name: &'static str,
    unit: &'static str,
    vertical: Vertical,
    /// Names the metric may go by, best first.
    metrics: &'static [&'static str],
    n_of: &'static str,
}

const SHAPES: [Shape; 2] = [
    Shape {
        slug: "prefill_tok_s",
        title: "Prefill throughput by prompt length",
        y_name: "prefill [tok/s]",
        unit: "tok/s",
        vertical: Vertical::FromZero,
        metrics: &["prefill_tok_s_mean", "prefill_tok_s", "prefill_tok_s_p50"],
        n_of: "repeats",
    },
    Shape {
        slug: "prefill_ttft",
        title: "Time to first token by prompt length",
        y_name: "time to first token [ms]",
        unit: "ms",
        vertical: Vertical::Times,
        metrics: &["ttft_ms_p50", "ttft_ms_mean", "ttft_ms"],
        n_of: "requests",
    },
];

/// Both figures; none without cells.
pub(super) fn figures(run: &RunSummary, cells: &[&CellSummary]) -> Vec<Figure> {
    SHAPES.iter().filter(|_| !cells.is_empty()).map(|shape| figure(run, cells, shape)).collect()
}

fn figure(run: &RunSummary, cells: &[&CellSummary], shape: &Shape) -> Figure {
    let metric = super::metric_of(cells, shape.metrics);
    let series = super::series(cells, Dimension::Prompt, metric);
    let mut subtitle = vec![run.run_id.clone()];
    subtitle.extend(super::constants(cells, Some(Dimension::Prompt)));
    subtitle.push(super::say_n(&series, shape.n_of));
    subtitle.extend(super::say_bars(&series));
    let statistic =
        metric.rsplit_once('_').map_or("", |(_, last)| if matches!(last, "p50" | "mean") { last } else { "" });
    let title = if statistic.is_empty() { shape.title.to_owned() } else { format!("{}, {statistic}", shape.title) };
    let alt = super::say_lines(&title, "prompt tokens", shape.unit, &series);
    let chart = LineChart {
        title: title.clone(),
        subtitle: subtitle.join(" · "),
        marks: super::marks(run),
        x_name: "prompt length [tokens]".to_owned(),
        horizontal: Horizontal::Lengths,
        y_name: shape.y_name.to_owned(),
        vertical: shape.vertical,
        series,
        linear_reference: false,
    };
    Figure { slug: shape.slug.to_owned(), workload: WORKLOAD.to_owned(), title, alt, scene: chart.scene() }
}
