//! Figures by plotters, as SVG and PNG.
