//! Foreign text made inert for terminal, Markdown, HTML, SVG and CSV.
