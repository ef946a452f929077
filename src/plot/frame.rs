//! What every figure has: title, subtitle, marks, axes, legend.
use plotters::style::RGBColor;

use super::font;
use super::palette::{ALARM, AXIS, CAUTION, GRID, INK, MUTED, NOTICE, PAPER, SERIES};
use super::scale::{Scale, tick_label};
use super::scene::{Anchor, At, Lettering, Op, Scene, WIDTH, at};

/// Distance of text from the edge of the canvas.
pub const MARGIN: f64 = 36.0;
const TITLE_EM: f64 = 26.0;
const SUBTITLE_EM: f64 = 16.0;
const LABEL_EM: f64 = 16.0;
/// Size of tick labels and table rows under a figure.
pub const TICK_EM: f64 = 15.0;

/// A warning that belongs to the picture itself, so that it travels where the picture goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// Random weights.
    SpeedOnly,
    /// The run does not support its claim.
    Invalid,
    /// The run was not finished.
    Partial,
}

impl Mark {
    fn words(self) -> (&'static str, RGBColor) {
        match self {
            Self::SpeedOnly => ("SPEED ONLY: random weights", CAUTION),
            Self::Invalid => ("INVALID RUN", ALARM),
            Self::Partial => ("PARTIAL RUN", NOTICE),
        }
    }
}

/// Letters of one size, colour and anchor.
pub const fn lettering(em: f64, color: RGBColor, anchor: Anchor) -> Lettering {
    Lettering { em, bold: false, color, anchor }
}

/// Draws title, subtitle lines and marks; returns the height at which the rest may start.
pub fn header(scene: &mut Scene, title: &str, subtitle: &str, marks: &[Mark]) -> f64 {
    let mut right = WIDTH - MARGIN;
    for mark in marks {
        let (words, color) = mark.words();
        let letters = Lettering { bold: true, ..lettering(14.0, PAPER, Anchor::Middle) };
        // Room for the wider face that a browser without Roboto takes.
        let width = font::width_em(words, true) * 14.0 * 1.1 + 24.0;
        scene.ops.push(Op::Fill { from: at(right - width, 20.0), to: at(right, 48.0), color });
        scene.words(at(right - width / 2.0, 39.0), words, letters);
        right -= width + 10.0;
    }
    let title = font::ellipsis(title, true, (right - MARGIN - 16.0) / TITLE_EM);
    scene.words(at(MARGIN, 44.0), &title, Lettering { bold: true, ..lettering(TITLE_EM, INK, Anchor::Start) });
    let mut baseline = 44.0;
    for line in wrap(subtitle, SUBTITLE_EM, WIDTH - 2.0 * MARGIN, 2) {
        baseline += 25.0;
        scene.words(at(MARGIN, baseline), &line, lettering(SUBTITLE_EM, MUTED, Anchor::Start));
    }
    baseline + 12.0
}

/// `text` in at most `most` lines of `width` pixels, broken at ` · `, each cut where it is still too long.
fn wrap(text: &str, em: f64, width: f64, most: usize) -> Vec<String> {
    let fits = |line: &str, part: &str| font::width_em(&format!("{line} · {part}"), false) * em <= width;
    let mut lines: Vec<String> = vec![];
    for part in text.split(" · ").filter(|part| !part.is_empty()) {
        let full = lines.len() == most;
        match lines.last_mut() {
            Some(line) if full || fits(line, part) => *line = format!("{line} · {part}"),
            _ => lines.push(font::ellipsis(part, false, width / em)),
        }
    }
    lines.into_iter().map(|line| font::ellipsis(&line, false, width / em)).collect()
}

/// The rectangle inside the axes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Plot {
    /// Left edge.
    pub left: f64,
    /// Top edge.
    pub top: f64,
    /// Right edge.
    pub right: f64,
    /// Bottom edge.
    pub bottom: f64,
}

impl Plot {
    /// Horizontal place of `value`.
    pub fn x(&self, scale: &Scale, value: f64) -> f64 {
        self.left + scale.place(value) * (self.right - self.left)
    }

    /// Vertical place of `value`.
    pub fn y(&self, scale: &Scale, value: f64) -> f64 {
        self.bottom - scale.place(value) * (self.bottom - self.top)
    }
}

/// Ticks with their labels.
pub struct Ticks(pub Vec<(f64, String)>);

impl Ticks {
    /// Round values of `scale`, about `wanted`.
    pub fn round(scale: &Scale, wanted: usize) -> Self {
        let step = scale.tick_step(wanted);
        Self(scale.ticks(wanted).into_iter().map(|v| (v, tick_label(v, step))).collect())
    }

    /// The measured values themselves, where they are few; round values otherwise.
    pub fn measured(values: &[f64], scale: &Scale) -> Self {
        let mut values: Vec<f64> = values.to_vec();
        values.sort_by(f64::total_cmp);
        values.dedup();
        if values.is_empty() || values.len() > 14 {
            return Self::round(scale, 8);
        }
        Self(values.into_iter().map(|v| (v, tick_label(v, 0.0))).collect())
    }

    /// Width of the widest label in pixels.
    pub fn width(&self) -> f64 {
        self.0.iter().map(|(_, label)| font::width_em(label, false) * TICK_EM).fold(0.0, f64::max)
    }
}

/// Grid, axis lines, tick labels and axis names. The name of the vertical axis stands above it, where it reads without turning the head.
pub fn axes(scene: &mut Scene, plot: Plot, x: (&Scale, &Ticks, &str), y: (&Scale, &Ticks, &str)) {
    let (y_scale, y_ticks, y_name) = y;
    for (value, label) in &y_ticks.0 {
        let height = plot.y(y_scale, *value).round();
        scene.line(at(plot.left, height), at(plot.right, height), 1.0, GRID);
        scene.words(at(plot.left - 10.0, height + 0.36 * TICK_EM), label, lettering(TICK_EM, MUTED, Anchor::End));
    }
    scene.line(at(plot.left, plot.bottom), at(plot.right, plot.bottom), 1.5, AXIS);
    let (x_scale, x_ticks, x_name) = x;
    let mut free_from = f64::NEG_INFINITY;
    for (value, label) in &x_ticks.0 {
        let place = plot.x(x_scale, *value);
        let half = font::width_em(label, false) * TICK_EM / 2.0;
        scene.line(at(place, plot.bottom), at(place, plot.bottom + 6.0), 1.5, AXIS);
        if place - half >= free_from && place + half <= WIDTH - 4.0 {
            scene.words(at(place, plot.bottom + 24.0), label, lettering(TICK_EM, MUTED, Anchor::Middle));
            free_from = place + half + 10.0;
        }
    }
    let room = (plot.right - plot.left) / LABEL_EM;
    let name = font::ellipsis(x_name, false, room);
    scene.words(
        at((plot.left + plot.right) / 2.0, plot.bottom + 50.0),
        &name,
        lettering(LABEL_EM, INK, Anchor::Middle),
    );
    let name = font::ellipsis(y_name, false, room);
    scene.words(
        at(plot.left - 10.0 - y_ticks.width(), plot.top - 16.0),
        &name,
        lettering(LABEL_EM, INK, Anchor::Start),
    );
}

/// Says in the middle of an empty plot that it is empty.
pub fn no_data(scene: &mut Scene, plot: Plot, n: usize) {
    let corners =
        [at(plot.left, plot.top), at(plot.right, plot.top), at(plot.right, plot.bottom), at(plot.left, plot.bottom)];
    let points = corners.into_iter().chain([corners[0]]).collect();
    scene.ops.push(Op::Stroke { points, width: 1.0, color: GRID });
    let letters = Lettering { bold: true, ..lettering(20.0, MUTED, Anchor::Middle) };
    scene.words(
        at((plot.left + plot.right) / 2.0, (plot.top + plot.bottom) / 2.0 + 7.0),
        &format!("no data (n={n})"),
        letters,
    );
}

/// Colour of the series with this index.
pub fn color(index: usize) -> RGBColor {
    SERIES[index % SERIES.len()]
}

/// The sign of the series with this index: seven shapes, so that a series is known without its colour.
pub fn sign(scene: &mut Scene, center: At, index: usize, radius: f64) {
    // A rim of paper keeps a sign readable on top of lines.
    scene.ops.push(Op::Dot { center, radius: radius + 2.0, color: PAPER });
    let color = color(index);
    let shape = |scene: &mut Scene, corners: &[(f64, f64)]| {
        let points = corners.iter().map(|(x, y)| at(center.x + x * radius, center.y + y * radius)).collect();
        scene.ops.push(Op::Shape { points, color });
    };
    match index % 7 {
        0 => scene.ops.push(Op::Dot { center, radius, color }),
        1 => shape(scene, &[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)]),
        2 => shape(scene, &[(0.0, -1.15), (1.1, 0.85), (-1.1, 0.85)]),
        3 => shape(scene, &[(0.0, -1.25), (1.25, 0.0), (0.0, 1.25), (-1.25, 0.0)]),
        4 => shape(scene, &[(0.0, 1.15), (1.1, -0.85), (-1.1, -0.85)]),
        5 => {
            let a = 0.35;
            shape(
                scene,
                &[
                    (-a, -1.1),
                    (a, -1.1),
                    (a, -a),
                    (1.1, -a),
                    (1.1, a),
                    (a, a),
                    (a, 1.1),
                    (-a, 1.1),
                    (-a, a),
                    (-1.1, a),
                    (-1.1, -a),
                    (-a, -a),
                ],
            );
        }
        _ => {
            scene.ops.push(Op::Dot { center, radius, color });
            scene.ops.push(Op::Dot { center, radius: radius - 2.5, color: PAPER });
        }
    }
}

/// One entry of a legend.
pub enum Entry<'a> {
    /// A series: index and name.
    Series(usize, &'a str),
    /// The dashed reference line.
    Reference(&'a str),
    /// Words without a sign.
    Note(String),
}

/// Draws legend entries in rows from `top`; returns the height below them. Entries that find no room in `rows` are counted in a last one.
pub fn legend(scene: &mut Scene, top: f64, entries: &[Entry], rows: usize) -> f64 {
    const ROW: f64 = 25.0;
    let (mut x, mut baseline) = (MARGIN, top + 16.0);
    let right = WIDTH - MARGIN;
    for (index, entry) in entries.iter().enumerate() {
        let (name, lead) = match entry {
            Entry::Series(_, name) | Entry::Reference(name) => (*name, 42.0),
            Entry::Note(note) => (note.as_str(), 0.0),
        };
        let name = font::ellipsis(&crate::inert::terminal_line(name), false, 330.0 / TICK_EM);
        let width = lead + font::width_em(&name, false) * TICK_EM + 28.0;
        let left_over = entries.len() - index;
        let last_row = baseline + ROW > top + 16.0 + (rows as f64 - 0.5) * ROW;
        let reserve = if last_row && left_over > 1 { 120.0 } else { 0.0 };
        if x + width - 28.0 > right - reserve {
            if last_row {
                scene.words(at(x, baseline), &format!("+ {left_over} more"), lettering(TICK_EM, MUTED, Anchor::Start));
                break;
            }
            (x, baseline) = (MARGIN, baseline + ROW);
        }
        let middle = baseline - 0.36 * TICK_EM;
        match entry {
            Entry::Series(series, _) => {
                scene.line(at(x, middle), at(x + 34.0, middle), 3.0, color(*series));
                sign(scene, at(x + 17.0, middle), *series, 6.0);
            }
            Entry::Reference(_) => scene.dashes(&[at(x, middle), at(x + 34.0, middle)], (6.0, 5.0), 1.5, MUTED),
            Entry::Note(_) => {}
        }
        scene.words(at(x + lead, baseline), &name, lettering(TICK_EM, INK, Anchor::Start));
        x += width;
    }
    baseline + 10.0
}
