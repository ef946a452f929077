//! A picture as a list of strokes and words, and the two ways plotters paints it: SVG and PNG.
//!
//! Charts are laid out once, in pixels of a 1200 × 700 canvas, and painted at twice that: the SVG through its view box, the PNG
//! by averaging four samples a pixel, since plotters smooths neither thick lines nor polygons.
use std::path::Path;

use ab_glyph::{Font, Glyph, PxScale, point};
use plotters::coord::Shift;
use plotters::prelude::{
    BitMapBackend, Circle, DrawingArea, DrawingBackend, IntoDrawingArea, PathElement, Polygon, RGBColor, Rectangle,
    SVGBackend, ShapeStyle, Text,
};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, FontStyle, IntoFont, TextStyle};

use super::PlotError;
use super::font::{self, Faces};

/// Width of every figure in pixels.
pub const WIDTH: f64 = 1200.0;
/// Height of every figure in pixels.
pub const HEIGHT: f64 = 700.0;
const OVERSAMPLE: u32 = 2;
/// plotters writes `size / 1.24` as the SVG font size.
const SVG_SIZE_PER_EM: f64 = 1.24;

/// A place on the canvas.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct At {
    /// Pixels from the left.
    pub x: f64,
    /// Pixels from the top.
    pub y: f64,
}

/// `At` from its coordinates.
pub const fn at(x: f64, y: f64) -> At {
    At { x, y }
}

/// Which end of a text its place names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Anchor {
    /// The left end.
    Start,
    /// The middle.
    Middle,
    /// The right end.
    End,
}

/// How a text is set.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Lettering {
    /// Size of the em in pixels.
    pub em: f64,
    /// Bold face.
    pub bold: bool,
    /// Ink.
    pub color: RGBColor,
    /// Which end its place names.
    pub anchor: Anchor,
}

/// One thing painted. Later ones cover earlier ones.
#[derive(Debug, Clone, PartialEq)]
pub enum Op {
    /// A filled rectangle.
    Fill {
        /// Upper left corner.
        from: At,
        /// Lower right corner.
        to: At,
        /// Ink.
        color: RGBColor,
    },
    /// A line through points.
    Stroke {
        /// The points.
        points: Vec<At>,
        /// Width in pixels.
        width: f64,
        /// Ink.
        color: RGBColor,
    },
    /// A filled shape.
    Shape {
        /// The corners.
        points: Vec<At>,
        /// Ink.
        color: RGBColor,
    },
    /// A filled circle.
    Dot {
        /// The centre.
        center: At,
        /// Radius in pixels.
        radius: f64,
        /// Ink.
        color: RGBColor,
    },
    /// Words on a baseline.
    Words {
        /// The end that the anchor names, on the baseline.
        baseline: At,
        /// The words, without control characters.
        text: String,
        /// How they are set.
        lettering: Lettering,
    },
}

/// A picture.
#[derive(Debug, Clone, Default)]
pub struct Scene {
    /// What is painted, in order.
    pub ops: Vec<Op>,
}

impl Scene {
    /// Adds a straight line.
    pub fn line(&mut self, from: At, to: At, width: f64, color: RGBColor) {
        self.ops.push(Op::Stroke { points: vec![from, to], width, color });
    }

    /// Adds a line of dashes along `points`.
    pub fn dashes(&mut self, points: &[At], (on, off): (f64, f64), width: f64, color: RGBColor) {
        let mut travelled = 0.0_f64;
        let mut dash: Vec<At> = vec![];
        let mut finish = |dash: &mut Vec<At>| {
            if dash.len() > 1 {
                self.ops.push(Op::Stroke { points: std::mem::take(dash), width, color });
            }
            dash.clear();
        };
        for pair in points.windows(2) {
            let [a, b] = [pair[0], pair[1]];
            let length = (b.x - a.x).hypot(b.y - a.y);
            if !(length > 0.0 && length < 1e5) {
                continue;
            }
            let along = |d: f64| at(a.x + (b.x - a.x) * d / length, a.y + (b.y - a.y) * d / length);
            let mut d = 0.0;
            while d < length {
                let phase = (travelled + d) % (on + off);
                let step = (if phase < on { on - phase } else { on + off - phase }).min(length - d).max(1e-3);
                if phase < on {
                    if dash.is_empty() {
                        dash.push(along(d));
                    }
                    dash.push(along(d + step));
                } else {
                    finish(&mut dash);
                }
                d += step;
            }
            travelled += length;
        }
        finish(&mut dash);
    }

    /// Adds words; foreign text loses its controls here.
    pub fn words(&mut self, baseline: At, text: &str, lettering: Lettering) {
        let text = crate::inert::terminal_line(text).into_owned();
        self.ops.push(Op::Words { baseline, text, lettering });
    }

    /// The box that words cover: left, top, right, bottom; cap height above the baseline, descenders below.
    pub fn words_box(op: &Op) -> Option<[f64; 4]> {
        let Op::Words { baseline, text, lettering } = op else { return None };
        let width = font::width_em(text, lettering.bold) * lettering.em;
        let left = baseline.x
            - match lettering.anchor {
                Anchor::Start => 0.0,
                Anchor::Middle => width / 2.0,
                Anchor::End => width,
            };
        Some([left, baseline.y - 0.74 * lettering.em, left + width, baseline.y + 0.2 * lettering.em])
    }

    /// The picture as an SVG document that runs nothing and loads nothing; `title` and `description` are for screen readers.
    ///
    /// # Errors
    /// When plotters refuses to paint.
    pub fn to_svg(&self, title: &str, description: &str) -> Result<String, PlotError> {
        let (w, h) = (WIDTH as u32, HEIGHT as u32);
        let mut text = String::new();
        let area = SVGBackend::with_string(&mut text, (w * OVERSAMPLE, h * OVERSAMPLE)).into_drawing_area();
        self.paint(&area, |area, baseline, text, lettering| {
            let em = lettering.em * f64::from(OVERSAMPLE);
            let font = (font::FAMILIES, svg_size(em)).into_font();
            let font = if lettering.bold { font.style(FontStyle::Bold) } else { font };
            let h_pos = match lettering.anchor {
                Anchor::Start => HPos::Left,
                Anchor::Middle => HPos::Center,
                Anchor::End => HPos::Right,
            };
            let style = TextStyle::from(font).color(&lettering.color).pos(Pos::new(h_pos, VPos::Top));
            // plotters moves text anchored at its top down by 0.76 em.
            let top = (pixel(baseline.x), pixel(baseline.y - 0.76 * lettering.em));
            area.draw(&Text::new(text.to_owned(), top, style)).map_err(PlotError::paint)
        })?;
        area.present().map_err(PlotError::paint)?;
        drop(area);
        // What every text and shape repeats stands once, on the root, or is the default anyway.
        let body = text.find('>').map_or("", |end| &text[end + 1..]);
        let family = format!("font-family=\"{}\"", font::FAMILIES.replace('\'', "&apos;"));
        let body = body.replace(&format!(" {family}"), "").replace(" opacity=\"1\"", "");
        let (title, description) = (crate::inert::svg(title), crate::inert::svg(description));
        Ok(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{w}\" height=\"{h}\" viewBox=\"0 0 {} {}\" role=\"img\" {family}>\n\
             <title>{title}</title>\n<desc>{description}</desc>{body}",
            w * OVERSAMPLE,
            h * OVERSAMPLE,
        ))
    }

    /// Writes the picture as a PNG file at `path`, which must end in `.png`.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write_png(&self, path: &Path) -> Result<(), PlotError> {
        let (w, h) = (WIDTH as usize, HEIGHT as usize);
        let over = OVERSAMPLE as usize;
        let mut large = vec![0xff; 3 * w * h * over * over];
        let area = BitMapBackend::with_buffer(&mut large, ((w * over) as u32, (h * over) as u32)).into_drawing_area();
        self.paint(&area, paint_glyphs)?;
        area.present().map_err(PlotError::paint)?;
        drop(area);
        let small = halved(&large, w);
        let mut file = BitMapBackend::new(path, (w as u32, h as u32));
        file.blit_bitmap((0, 0), (w as u32, h as u32), &small).map_err(PlotError::draw)?;
        file.present().map_err(PlotError::draw)
    }

    fn paint<DB: DrawingBackend>(
        &self,
        area: &DrawingArea<DB, Shift>,
        words: impl Fn(&DrawingArea<DB, Shift>, At, &str, &Lettering) -> Result<(), PlotError>,
    ) -> Result<(), PlotError> {
        let corners = |points: &[At]| points.iter().map(|p| (pixel(p.x), pixel(p.y))).collect::<Vec<_>>();
        area.fill(&super::palette::PAPER).map_err(PlotError::paint)?;
        for op in &self.ops {
            match op {
                Op::Fill { from, to, color } => {
                    let ends = [(pixel(from.x), pixel(from.y)), (pixel(to.x), pixel(to.y))];
                    area.draw(&Rectangle::new(ends, color.filled())).map_err(PlotError::paint)?;
                }
                Op::Stroke { points, width, color } => {
                    let mut points = corners(points);
                    points.dedup();
                    if points.len() > 1 {
                        let style: ShapeStyle =
                            color.stroke_width((width * f64::from(OVERSAMPLE)).round().max(1.0) as u32);
                        area.draw(&PathElement::new(points, style)).map_err(PlotError::paint)?;
                    }
                }
                Op::Shape { points, color } => {
                    area.draw(&Polygon::new(corners(points), color.filled())).map_err(PlotError::paint)?;
                }
                Op::Dot { center, radius, color } => {
                    let radius = (radius * f64::from(OVERSAMPLE)).round() as i32;
                    area.draw(&Circle::new((pixel(center.x), pixel(center.y)), radius, color.filled()))
                        .map_err(PlotError::paint)?;
                }
                Op::Words { baseline, text, lettering } => words(area, *baseline, text, lettering)?,
            }
        }
        Ok(())
    }
}

/// RGB rows of twice `width` pixels, averaged two by two.
fn halved(large: &[u8], width: usize) -> Vec<u8> {
    let row = 3 * width * OVERSAMPLE as usize;
    let mut small = Vec::with_capacity(large.len() / 4);
    for pair in large.chunks_exact(2 * row) {
        let (upper, lower) = pair.split_at(row);
        for (a, b) in upper.chunks_exact(6).zip(lower.chunks_exact(6)) {
            for channel in 0..3 {
                let sum = u16::from(a[channel])
                    + u16::from(a[channel + 3])
                    + u16::from(b[channel])
                    + u16::from(b[channel + 3]);
                small.push(((sum + 2) / 4) as u8);
            }
        }
    }
    small
}

/// The size for which plotters writes `em` itself and not its neighbour with seventeen digits.
fn svg_size(em: f64) -> f64 {
    let size = em * SVG_SIZE_PER_EM;
    [size, size.next_down(), size.next_up()].into_iter().find(|s| s / SVG_SIZE_PER_EM == em).unwrap_or(size)
}

/// A canvas coordinate in samples. Far outside stays far outside: a chart can ask for any place and the painter stays quick.
fn pixel(v: f64) -> i32 {
    (v.clamp(-2000.0, 4000.0) * f64::from(OVERSAMPLE)).round() as i32
}

/// Paints glyph outlines at their exact place. plotters' own text drops side bearings and rounds every advance, which shows.
fn paint_glyphs<DB: DrawingBackend>(
    area: &DrawingArea<DB, Shift>,
    baseline: At,
    text: &str,
    lettering: &Lettering,
) -> Result<(), PlotError> {
    let over = f64::from(OVERSAMPLE);
    let em = lettering.em * over;
    let (glyphs, width_em) = font::layout(text, lettering.bold, Faces::Installed);
    let start = baseline.x * over
        - match lettering.anchor {
            Anchor::Start => 0.0,
            Anchor::Middle => width_em * em / 2.0,
            Anchor::End => width_em * em,
        };
    for glyph in glyphs {
        // ab_glyph scales by ascent - descent, not by the em.
        let units = glyph.face.units_per_em().unwrap_or(1000.0);
        let scale = PxScale::from((em as f32) * glyph.face.height_unscaled() / units);
        let position = point((start + glyph.at_em * em) as f32, (baseline.y * over).round() as f32);
        let Some(outline) = glyph.face.outline_glyph(Glyph { id: glyph.id, scale, position }) else { continue };
        let bounds = outline.px_bounds();
        let mut failure = None;
        outline.draw(|x, y, coverage| {
            let place = (bounds.min.x as i32 + x as i32, bounds.min.y as i32 + y as i32);
            let ink = lettering.color.mix(f64::from(coverage.clamp(0.0, 1.0)));
            if let Err(error) = area.draw_pixel(place, &ink) {
                failure.get_or_insert(PlotError::paint(error));
            }
        });
        failure.map_or(Ok(()), Err)?;
    }
    Ok(())
}
