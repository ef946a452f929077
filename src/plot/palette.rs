//! Ink. Series colours are Okabe and Ito's set, told apart by people with any of the common colour deficiencies; its yellow is left
//! out, as it vanishes on white.
use plotters::style::RGBColor;

/// The background.
pub const PAPER: RGBColor = RGBColor(255, 255, 255);
/// Titles and numbers.
pub const INK: RGBColor = RGBColor(27, 31, 36);
/// Axis labels and notes.
pub const MUTED: RGBColor = RGBColor(87, 96, 106);
/// The axis line.
pub const AXIS: RGBColor = RGBColor(140, 149, 159);
/// Grid lines.
pub const GRID: RGBColor = RGBColor(229, 232, 235);
/// The INVALID mark.
pub const ALARM: RGBColor = RGBColor(180, 35, 24);
/// The "speed only" mark.
pub const CAUTION: RGBColor = RGBColor(138, 90, 0);
/// The PARTIAL mark.
pub const NOTICE: RGBColor = RGBColor(9, 84, 148);

/// Series colours, in order of use.
pub const SERIES: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(60, 60, 60),
];
