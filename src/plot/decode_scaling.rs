//! The decode-scaling figure: tokens a second of all lanes together against the number of requests in flight.
use super::{Dimension, Figure, Horizontal, LineChart, Vertical};
use crate::metric::summary::{CellSummary, RunSummary};

/// Key of the workload that this figure shows.
pub(super) const WORKLOAD: &str = "decode_scaling";

/// Names the aggregate rate may go by, best first.
const METRICS: [&str; 4] = ["decode_tok_s_aggregate", "decode_aggregate_tok_s", "decode_tok_s", "decode_tok_s_mean"];

/// The figure; `None` without cells.
pub(super) fn figure(run: &RunSummary, cells: &[&CellSummary]) -> Option<Figure> {
    let metric = super::metric_of(cells, &METRICS);
    let series = super::series(cells, Dimension::Concurrency, metric);
    let title = "Decode throughput by concurrency".to_owned();
    let mut subtitle = vec![run.run_id.clone()];
    subtitle.extend(super::constants(cells, Some(Dimension::Concurrency)));
    subtitle.push(super::say_n(&series, "repeats"));
    subtitle.extend(super::say_bars(&series));
    let alt = super::say_lines(&title, "requests in flight", "tok/s", &series);
    let chart = LineChart {
        title: title.clone(),
        subtitle: subtitle.join(" · "),
        marks: super::marks(run),
        x_name: "concurrency [requests in flight]".to_owned(),
        horizontal: Horizontal::Counts,
        y_name: "decode, all lanes together [tok/s]".to_owned(),
        vertical: Vertical::FromZero,
        series,
        linear_reference: true,
    };
    (!cells.is_empty()).then(|| Figure {
        slug: WORKLOAD.to_owned(),
        workload: WORKLOAD.to_owned(),
        title,
        alt,
        scene: chart.scene(),
    })
}
