//! A figure of latency distributions: for each cell the share of requests that took at most so long, with p50 and p90 marked.
use plotters::style::RGBColor;

use super::font;
use super::frame::{self, MARGIN, Mark, Plot, TICK_EM, Ticks, lettering};
use super::palette::{AXIS, INK, MUTED};
use super::scale::{Scale, Spread, drawable, tick_label};
use super::scene::{Anchor, At, HEIGHT, Lettering, Op, Scene, WIDTH, at};

/// One curve.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Curve {
    /// Arm and cell.
    pub name: String,
    /// Samples in any order.
    pub samples: Vec<f64>,
    /// Median, where there are enough samples for one.
    pub p50: Option<f64>,
    /// 90th percentile, where there are enough samples for one.
    pub p90: Option<f64>,
}

/// One of the panels that stand side by side.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Panel {
    /// What is distributed, as `Time to first token`.
    pub heading: String,
    /// Name and unit of the horizontal axis.
    pub x_name: String,
    /// Of what the vertical axis is a share: `requests`, `gaps`.
    pub of: &'static str,
    /// The curves; the same cells in the same order in every panel.
    pub curves: Vec<Curve>,
}

/// The figure as data.
#[derive(Debug, Clone)]
pub struct DistributionChart {
    /// What it shows.
    pub title: String,
    /// Run and constants, parted by ` · `.
    pub subtitle: String,
    /// Warnings burnt into the picture.
    pub marks: Vec<Mark>,
    /// One or two panels.
    pub panels: Vec<Panel>,
}

/// Curves a figure takes: its table must fit below, and more lines cannot be told apart.
pub const MOST_CURVES: usize = 8;
const ROW: f64 = 22.0;
/// Ratio of the largest to the smallest sample beyond which the axis is logarithmic.
const LOG_FROM: f64 = 20.0;

impl DistributionChart {
    /// Lays the figure out.
    pub fn scene(&self) -> Scene {
        let mut scene = Scene::default();
        let below = frame::header(&mut scene, &self.title, &self.subtitle, &self.marks);
        let panels = &self.panels[..self.panels.len().min(2)];
        let gap = 56.0;
        let width = (WIDTH - 2.0 * MARGIN - gap * (panels.len().max(1) - 1) as f64) / panels.len().max(1) as f64;
        for (index, panel) in panels.iter().enumerate() {
            let left = MARGIN + index as f64 * (width + gap);
            panel.draw(&mut scene, left, left + width, below);
        }
        if panels.is_empty() {
            frame::no_data(
                &mut scene,
                Plot { left: MARGIN, top: below, right: WIDTH - MARGIN, bottom: HEIGHT - MARGIN },
                0,
            );
        }
        scene
    }
}

impl Panel {
    fn draw(&self, scene: &mut Scene, left: f64, right: f64, top: f64) {
        let curves = &self.curves[..self.curves.len().min(MOST_CURVES)];
        let heading = font::ellipsis(&self.heading, true, (right - left) / 18.0);
        scene.words(at(left, top + 28.0), &heading, Lettering { bold: true, ..lettering(18.0, INK, Anchor::Start) });
        let samples: Vec<Vec<f64>> = curves.iter().map(Curve::sorted).collect();
        let table_top = HEIGHT - 20.0 - ROW * (curves.len() + 1) as f64;
        let plot = Plot { left: left + 52.0, top: top + 74.0, right: right - 8.0, bottom: table_top - 62.0 };
        if samples.iter().all(Vec::is_empty) {
            frame::no_data(scene, Plot { left, top: top + 44.0, right, bottom: table_top - 12.0 }, 0);
        } else {
            let scale = horizontal_scale(&samples);
            let share = Scale { spread: Spread::Linear, low: 0.0, high: 1.0 };
            let shares = [0.0, 0.25, 0.5, 0.75, 0.9, 1.0];
            let y_ticks = Ticks(shares.iter().map(|s| (*s, format!("{:.0} %", s * 100.0))).collect());
            let zeros = samples.iter().flatten().any(|v| *v <= 0.0);
            let log = match (scale.spread, zeros) {
                (Spread::Linear, _) => "",
                (_, false) => " (log scale)",
                (_, true) => " (log scale; 0 at the left edge)",
            };
            let (x_name, y_name) = (format!("{}{log}", self.x_name), format!("share of {} at or below", self.of));
            frame::axes(scene, plot, (&scale, &Ticks::round(&scale, 6), &x_name), (&share, &y_ticks, &y_name));
            for guide in [0.5, 0.9] {
                let height = plot.y(&share, guide);
                scene.line(at(plot.left, height), at(plot.right, height), 1.0, AXIS);
            }
            for (index, sorted) in samples.iter().enumerate() {
                let path = staircase(sorted, |v| plot.x(&scale, v), |s| plot.y(&share, s), (plot.left, plot.right));
                if index < 7 {
                    scene.ops.push(Op::Stroke { points: path, width: 2.5, color: frame::color(index) });
                } else {
                    scene.dashes(&path, (10.0, 4.0), 2.5, frame::color(index));
                }
            }
            for (index, curve) in curves.iter().enumerate() {
                for (value, level) in [(curve.p50, 0.5), (curve.p90, 0.9)] {
                    if let Some(value) = drawable(value) {
                        let x = plot.x(&scale, value).clamp(plot.left, plot.right);
                        frame::sign(scene, at(x, plot.y(&share, level)), index, 6.0);
                    }
                }
            }
        }
        table(scene, left, right, table_top, curves, &samples);
    }
}

impl Curve {
    fn sorted(&self) -> Vec<f64> {
        let mut sorted: Vec<f64> = self.samples.iter().filter_map(|v| drawable(Some(*v))).collect();
        sorted.sort_by(f64::total_cmp);
        sorted
    }
}

fn horizontal_scale(samples: &[Vec<f64>]) -> Scale {
    let all = || samples.iter().flatten().copied();
    let most = all().fold(f64::NEG_INFINITY, f64::max);
    let least = all().filter(|v| *v > 0.0).fold(f64::INFINITY, f64::min);
    let negative = all().any(|v| v < 0.0);
    if !negative && least.is_finite() && most / least > LOG_FROM {
        Scale::log(all(), 10)
    } else if !negative && least < 0.5 * most {
        Scale::from_zero(all())
    } else {
        Scale::around(all())
    }
}

/// The empirical distribution as a path: at most two corners for each pixel column, however many samples there are.
fn staircase(sorted: &[f64], x: impl Fn(f64) -> f64, y: impl Fn(f64) -> f64, (left, right): (f64, f64)) -> Vec<At> {
    let mut path: Vec<At> = vec![];
    let n = sorted.len() as f64;
    let mut last_share = 0.0;
    for (index, value) in sorted.iter().enumerate() {
        let column = x(*value).clamp(left, right).round();
        let share = (index + 1) as f64 / n;
        match path.last_mut() {
            Some(last) if path_is_at(last, column) => last.y = y(share),
            _ => path.extend([at(column, y(last_share)), at(column, y(share))]),
        }
        last_share = share;
    }
    path
}

fn path_is_at(last: &At, column: f64) -> bool {
    (last.x - column).abs() < 0.5
}

/// The legend as a table: sign, name, n, p50, p90.
fn table(scene: &mut Scene, left: f64, right: f64, top: f64, curves: &[Curve], samples: &[Vec<f64>]) {
    let columns = [right - 178.0, right - 92.0, right - 8.0];
    let small = |color: RGBColor, anchor| lettering(TICK_EM, color, anchor);
    let mut baseline = top + 0.7 * ROW;
    for (column, head) in columns.iter().zip(["n", "p50 [ms]", "p90 [ms]"]) {
        scene.words(at(*column, baseline), head, small(MUTED, Anchor::End));
    }
    for (index, curve) in curves.iter().enumerate() {
        scene.line(at(left, baseline + 0.3 * ROW), at(right - 8.0, baseline + 0.3 * ROW), 1.0, super::palette::GRID);
        baseline += ROW;
        let middle = baseline - 0.36 * TICK_EM;
        if index < 7 {
            scene.line(at(left, middle), at(left + 34.0, middle), 3.0, frame::color(index));
        } else {
            scene.dashes(&[at(left, middle), at(left + 34.0, middle)], (10.0, 4.0), 3.0, frame::color(index));
        }
        frame::sign(scene, at(left + 17.0, middle), index, 5.5);
        let name =
            font::ellipsis(&crate::inert::terminal_line(&curve.name), false, (columns[0] - left - 100.0) / TICK_EM);
        scene.words(at(left + 44.0, baseline), &name, small(INK, Anchor::Start));
        let value = |v: Option<f64>| drawable(v).map_or("–".to_owned(), |v| tick_label(v, 0.0));
        let cells = [tick_label(samples[index].len() as f64, 1.0), value(curve.p50), value(curve.p90)];
        for (column, text) in columns.iter().zip(cells) {
            scene.words(at(*column, baseline), &text, small(INK, Anchor::End));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_staircase_rises_from_zero_to_one_and_stays_short_for_a_million_samples() {
        let sorted: Vec<f64> = (0..1_000_000).map(|i| f64::from(i) / 1000.0).collect();
        let path = staircase(&sorted, |v| v * 0.5, |s| 100.0 - 100.0 * s, (0.0, 500.0));
        assert!(path.len() < 1100, "{}", path.len());
        assert_eq!((path[0].y, path[path.len() - 1].y), (100.0, 0.0));
        assert!(path.windows(2).all(|w| w[0].x <= w[1].x && w[0].y >= w[1].y));
    }

    #[test]
    fn each_sample_of_three_is_a_third_of_the_height() {
        let path = staircase(&[10.0, 20.0, 30.0], |v| v, |s| 90.0 - 90.0 * s, (0.0, 40.0));
        let corners: Vec<(f64, f64)> = path.iter().map(|p| (p.x, p.y.round())).collect();
        assert_eq!(corners, [(10.0, 90.0), (10.0, 60.0), (20.0, 60.0), (20.0, 30.0), (30.0, 30.0), (30.0, 0.0)]);
    }
}
