//! Reports from runs: Markdown, HTML, CSV.
