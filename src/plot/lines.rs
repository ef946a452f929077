//! A figure of lines through points with error bars: a rate or a time against a swept length.
use super::font;
use super::frame::{self, Entry, MARGIN, Mark, Plot, TICK_EM, Ticks, lettering};
use super::palette::{INK, MUTED, PAPER};
use super::scale::{Scale, Spread, drawable, tick_label};
use super::scene::{Anchor, At, HEIGHT, Op, Scene, WIDTH, at};

/// One measured point.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Point {
    /// Where it was measured.
    pub x: f64,
    /// What was measured.
    pub y: Option<f64>,
    /// Lower end of the 95 % interval.
    pub low: Option<f64>,
    /// Upper end of the 95 % interval.
    pub high: Option<f64>,
    /// Values behind it.
    pub n: usize,
}

/// One line.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Its points, in any order.
    pub points: Vec<Point>,
}

/// How the horizontal axis is spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Horizontal {
    /// Counts: linear up to 16, powers of two beyond.
    Counts,
    /// Lengths: powers of two.
    Lengths,
}

/// How the vertical axis is spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Vertical {
    /// From zero, for rates whose heights are compared.
    FromZero,
    /// Powers of ten where values span a factor of 30, else from zero.
    Times,
}

/// The figure as data.
#[derive(Debug, Clone)]
pub struct LineChart {
    /// What it shows.
    pub title: String,
    /// Run, constants and n, parted by ` · `.
    pub subtitle: String,
    /// Warnings burnt into the picture.
    pub marks: Vec<Mark>,
    /// Name and unit of the horizontal axis.
    pub x_name: String,
    /// Spread of the horizontal axis.
    pub horizontal: Horizontal,
    /// Name and unit of the vertical axis.
    pub y_name: String,
    /// Spread of the vertical axis.
    pub vertical: Vertical,
    /// The lines.
    pub series: Vec<Series>,
    /// Draw `y = y₀·x/x₀` through the first point of each line.
    pub linear_reference: bool,
}

/// More lines than this cannot be told apart; the rest are counted in the legend.
const MOST_SERIES: usize = 14;
/// More points than this on two lines get no printed values.
const MOST_LABELLED: usize = 9;

struct Drawn {
    index: usize,
    points: Vec<Measured>,
}

/// A point that can be drawn: place, value, interval.
type Measured = (f64, f64, Option<(f64, f64)>);

impl LineChart {
    /// Lays the figure out.
    pub fn scene(&self) -> Scene {
        let mut scene = Scene::default();
        let shown = &self.series[..self.series.len().min(MOST_SERIES)];
        let lines: Vec<Drawn> =
            shown.iter().enumerate().map(|(index, series)| Drawn { index, points: drawn(series) }).collect();
        let below = frame::header(&mut scene, &self.title, &self.subtitle, &self.marks);
        let below = frame::legend(&mut scene, below, &self.entries(shown, &lines), 3);

        let points = || lines.iter().flat_map(|line| &line.points);
        let xs: Vec<f64> = points().map(|p| p.0).collect();
        let ys: Vec<f64> = points()
            .flat_map(|p| [p.1].into_iter().chain(p.2.into_iter().flat_map(|(low, high)| [low, high])))
            .collect();
        let (top, bottom) = (below + 42.0, HEIGHT - 74.0);
        if xs.is_empty() {
            let n = self.series.iter().flat_map(|s| &s.points).map(|p| p.n).sum();
            frame::no_data(
                &mut scene,
                Plot { left: MARGIN, top: below + 10.0, right: WIDTH - MARGIN, bottom: HEIGHT - MARGIN },
                n,
            );
            return scene;
        }
        let y_scale = self.vertical_scale(&ys);
        let x_scale = self.horizontal_scale(&xs);
        let y_ticks = Ticks::round(&y_scale, 6);
        let plot =
            Plot { left: MARGIN + (y_ticks.width() + 10.0).max(30.0), top, right: WIDTH - MARGIN - 14.0, bottom };
        let log = |scale: &Scale| if scale.spread == Spread::Linear { "" } else { " (log scale)" };
        let x_name = format!("{}{}", self.x_name, log(&x_scale));
        let y_name = format!("{}{}", self.y_name, log(&y_scale));
        frame::axes(
            &mut scene,
            plot,
            (&x_scale, &Ticks::measured(&xs, &x_scale), &x_name),
            (&y_scale, &y_ticks, &y_name),
        );
        if self.linear_reference {
            for line in lines.iter().filter(|line| line.points.len() > 1).take(3) {
                reference(&mut scene, plot, &x_scale, &y_scale, line);
            }
        }
        for line in &lines {
            draw_line(&mut scene, plot, &x_scale, &y_scale, line, lines.len());
        }
        if lines.len() <= 2 && lines.iter().all(|line| line.points.len() <= MOST_LABELLED) {
            values(&mut scene, plot, &x_scale, &y_scale, &lines);
        }
        scene
    }

    fn entries<'a>(&self, shown: &'a [Series], lines: &[Drawn]) -> Vec<Entry<'a>> {
        let mut entries = vec![];
        for (line, series) in lines.iter().zip(shown) {
            entries.push(Entry::Series(line.index, &series.name));
            if line.points.is_empty() {
                let n: usize = series.points.iter().map(|p| p.n).sum();
                entries.push(Entry::Note(format!("– no data (n={n})")));
            }
        }
        if self.linear_reference && lines.iter().any(|line| line.points.len() > 1) {
            entries.push(Entry::Reference("linear scaling from the first point"));
        }
        if self.series.len() > MOST_SERIES {
            let hidden = self.series.len() - MOST_SERIES;
            entries.insert(
                0,
                Entry::Note(format!("first {MOST_SERIES} of {} lines; {hidden} only in the table", self.series.len())),
            );
        }
        entries
    }

    fn vertical_scale(&self, ys: &[f64]) -> Scale {
        let least = ys.iter().copied().fold(f64::INFINITY, f64::min);
        let most = ys.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        match self.vertical {
            Vertical::Times if least > 0.0 && most / least > 30.0 => Scale::log(ys.iter().copied(), 10),
            _ => Scale::from_zero(ys.iter().copied()),
        }
    }

    fn horizontal_scale(&self, xs: &[f64]) -> Scale {
        let least = xs.iter().copied().fold(f64::INFINITY, f64::min);
        let most = xs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let log = match self.horizontal {
            Horizontal::Counts => most > 16.0,
            Horizontal::Lengths => true,
        };
        if log && least > 0.0 { Scale::log(xs.iter().copied(), 2) } else { Scale::around(xs.iter().copied()) }
    }
}

/// The points that can be drawn, from left to right.
fn drawn(series: &Series) -> Vec<Measured> {
    let mut points: Vec<_> = series
        .points
        .iter()
        .filter_map(|p| Some((drawable(Some(p.x))?, drawable(p.y)?, drawable(p.low).zip(drawable(p.high)))))
        .collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points
}

/// `y = y₀·x/x₀`, as far as it stays inside the plot.
fn reference(scene: &mut Scene, plot: Plot, x_scale: &Scale, y_scale: &Scale, line: &Drawn) {
    let ((x0, y0, _), (x1, ..)) = (line.points[0], line.points[line.points.len() - 1]);
    if !(x0 > 0.0 && y0 > 0.0) {
        return;
    }
    const PIECES: u32 = 96;
    let path: Vec<At> = (0..=PIECES)
        .map(|k| x0 * (x1 / x0).powf(f64::from(k) / f64::from(PIECES)))
        .map(|x| at(plot.x(x_scale, x), plot.y(y_scale, y0 * (x / x0))))
        .take_while(|p| p.y >= plot.top)
        .collect();
    scene.dashes(&path, (6.0, 5.0), 1.5, frame::color(line.index));
}

fn draw_line(scene: &mut Scene, plot: Plot, x_scale: &Scale, y_scale: &Scale, line: &Drawn, lines: usize) {
    // Lines that share their places stand a little apart, so that no error bar hides another.
    let aside = if (2..=6).contains(&lines) { (line.index as f64 - (lines as f64 - 1.0) / 2.0) * 6.0 } else { 0.0 };
    let color = frame::color(line.index);
    let place = |x: f64, y: f64| at(plot.x(x_scale, x) + aside, plot.y(y_scale, y).clamp(plot.top, plot.bottom));
    let path: Vec<At> = line.points.iter().map(|p| place(p.0, p.1)).collect();
    if line.index < 7 {
        scene.ops.push(Op::Stroke { points: path.clone(), width: 2.5, color });
    } else {
        scene.dashes(&path, (12.0, 4.0), 2.5, color);
    }
    for point in path {
        frame::sign(scene, point, line.index, 6.0);
    }
    // Over the marks and in ink: most intervals are shorter than a mark is high, and would be hidden by it.
    for (x, _, interval) in &line.points {
        let Some((low, high)) = interval else { continue };
        let (low, high) = (place(*x, *low), place(*x, *high));
        scene.line(low, high, 2.0, INK);
        for end in [low, high] {
            scene.line(at(end.x - 6.0, end.y), at(end.x + 6.0, end.y), 2.0, INK);
        }
    }
}

/// Prints each value beside its point: above the upper of two lines, below the lower.
fn values(scene: &mut Scene, plot: Plot, x_scale: &Scale, y_scale: &Scale, lines: &[Drawn]) {
    let mut taken: Vec<[f64; 4]> = vec![];
    for line in lines {
        let other = lines.iter().find(|other| other.index != line.index);
        for (x, y, interval) in &line.points {
            let rival = other.and_then(|o| o.points.iter().find(|p| p.0 == *x)).map(|p| p.1);
            let upper = rival.is_none_or(|rival| *y > rival || (*y == rival && line.index == 0));
            let aside = if lines.len() > 1 { (line.index as f64 - 0.5) * 6.0 } else { 0.0 };
            let edge = |end: f64| plot.y(y_scale, end).clamp(plot.top, plot.bottom);
            let (low, high) = interval.unwrap_or((*y, *y));
            let height = if upper { edge(high.max(*y)) - 13.0 } else { edge(low.min(*y)) + 13.0 + 0.72 * TICK_EM };
            let text = tick_label(*y, 0.0);
            let half = font::width_em(&text, false) * TICK_EM / 2.0;
            // A rising line passes right above its point and left below it; the label steps aside.
            let rises = line.points.iter().find(|p| p.0 > *x).is_some_and(|next| next.1 > *y);
            let lean = if rises { half * if upper { -0.7 } else { 0.7 } } else { 0.0 };
            let place = (plot.x(x_scale, *x) + aside + lean).clamp(plot.left + half, WIDTH - 8.0 - half);
            let room = [place - half - 3.0, height - TICK_EM, place + half + 3.0, height + 4.0];
            let hit =
                |other: &[f64; 4]| room[0] < other[2] && other[0] < room[2] && room[1] < other[3] && other[1] < room[3];
            if height > plot.bottom - 4.0 || height - TICK_EM < plot.top - 10.0 || taken.iter().any(hit) {
                continue;
            }
            taken.push(room);
            let (from, to) = (at(room[0] + 1.0, height - 0.78 * TICK_EM), at(room[2] - 1.0, height + 2.0));
            scene.ops.push(Op::Fill { from, to, color: PAPER });
            let ink = if lines.len() > 1 { INK } else { MUTED };
            scene.words(at(place, height), &text, lettering(TICK_EM, ink, Anchor::Middle));
        }
    }
}
