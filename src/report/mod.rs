//! Reports from runs: Markdown to paste in a forum, one HTML file that loads nothing, CSV, figures.
//!
//! A report is a [`document::Document`] built from summaries and written twice. The same summaries give the same bytes: the time of
//! writing stands nowhere.
mod brief;
mod build;
pub mod document;
mod html;
mod markdown;
pub mod names;
pub mod number;
mod results;
mod table_csv;

pub use brief::brief;

use std::io::Write as _;
use std::path::{Path, PathBuf};

use miette::Diagnostic;
use serde::Serialize;
use thiserror::Error;

use crate::metric::summary::RunSummary;
use crate::plot;

/// What can be written.
const FORMATS: [&str; 3] = ["md", "html", "csv"];

/// The files of a report.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ReportPaths {
    /// `report.md`, where asked for.
    #[serde(serialize_with = "lossy")]
    pub md: Option<PathBuf>,
    /// `report.html`, where asked for.
    #[serde(serialize_with = "lossy")]
    pub html: Option<PathBuf>,
    /// `tables.csv`, where asked for.
    #[serde(serialize_with = "lossy")]
    pub csv: Option<PathBuf>,
    /// Each figure as SVG and as PNG, where Markdown or HTML was asked for.
    #[serde(serialize_with = "lossy_all")]
    pub figures: Vec<PathBuf>,
}

/// Paths as JSON text: a file name need not be UTF-8, and that is no reason to fail.
fn lossy<S: serde::Serializer>(path: &Option<PathBuf>, serializer: S) -> Result<S::Ok, S::Error> {
    path.as_deref().map(Path::to_string_lossy).serialize(serializer)
}

fn lossy_all<S: serde::Serializer>(paths: &[PathBuf], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(paths.iter().map(|path| path.to_string_lossy()))
}

/// Why there is no report.
#[derive(Debug, Error, Diagnostic)]
pub enum ReportError {
    /// Nothing to report on.
    #[error("no run was given to report on")]
    #[diagnostic(help("name at least one run directory"))]
    NoRuns,
    /// A format nobody writes.
    #[error("unknown report format `{format}`, expected `md`, `html` or `csv`")]
    #[diagnostic(help("{}", nearest.map_or("leave --format out for all three".to_owned(), |word| format!("did you mean `{word}`?"))))]
    Format {
        /// What was asked for.
        format: String,
        /// The nearest format.
        nearest: Option<&'static str>,
    },
    /// A file could not be written.
    #[error("{} could not be written: {source}", path.display())]
    #[diagnostic(help(
        "the report's folder must be writable and have room; the run itself is untouched, so `inferlab report` can be called again"
    ))]
    Io {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A figure could not be painted.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Plot(#[from] plot::PlotError),
    /// A row of the CSV could not be written.
    #[error("tables.csv could not be written: {message}")]
    #[diagnostic(help("this is a bug of the report; the Markdown and HTML formats do not depend on it"))]
    Csv {
        /// What the writer said.
        message: String,
    },
    /// The HTML template does not fit the document.
    #[error("report.html could not be written: {message}")]
    #[diagnostic(help("this is a bug of the report; the Markdown format does not depend on it"))]
    Template {
        /// What the template engine said.
        message: String,
    },
}

impl ReportError {
    fn csv(error: impl std::fmt::Display) -> Self {
        Self::Csv { message: error.to_string() }
    }

    fn template(error: minijinja::Error) -> Self {
        Self::Template { message: format!("{error:#}") }
    }
}

/// Writes a report on `summaries` into `out_dir`: `report.md`, `report.html`, `tables.csv` as asked for by `formats` (none means all),
/// and `figures/`. Each file is written beside its place and moved there, so a reader never sees half of one.
///
/// # Errors
/// [`ReportError`] says which file failed and why.
pub fn write(summaries: &[RunSummary], out_dir: &Path, formats: &[String]) -> Result<ReportPaths, ReportError> {
    if summaries.is_empty() {
        return Err(ReportError::NoRuns);
    }
    if let Some(format) = formats.iter().find(|format| !FORMATS.contains(&format.as_str())) {
        let nearest = FORMATS
            .into_iter()
            .min_by_key(|word| strsim::damerau_levenshtein(format, word))
            .filter(|word| strsim::damerau_levenshtein(format, word) <= 2);
        return Err(ReportError::Format { format: format.clone(), nearest });
    }
    let asked = |format: &str| formats.is_empty() || formats.iter().any(|f| f == format);
    make_dir(out_dir)?;
    let mut paths = ReportPaths::default();
    if asked("csv") {
        paths.csv = Some(write_file(&out_dir.join("tables.csv"), &table_csv::csv(summaries)?)?);
    }
    if !(asked("md") || asked("html")) {
        return Ok(paths);
    }
    let dir = out_dir.join("figures");
    make_dir(&dir)?;
    let mut pictures = vec![];
    for (index, run) in summaries.iter().enumerate() {
        let prefix = if summaries.len() == 1 { String::new() } else { format!("run{}-", index + 1) };
        let mut of_run = vec![];
        for figure in plot::figures(run) {
            let file = file_name(&format!("{prefix}{}", figure.slug));
            let svg = figure.scene.to_svg(&figure.title, &figure.alt)?;
            paths.figures.push(write_file(&dir.join(format!("{file}.svg")), svg.as_bytes())?);
            paths.figures.push(write_with(&dir.join(format!("{file}.png")), |temporary| {
                Ok(figure.scene.write_png(temporary)?)
            })?);
            let data = html::data_uri(&svg);
            of_run.push(document::Picture {
                number: 0,
                workload: figure.workload,
                title: figure.title,
                alt: figure.alt,
                file,
                data,
            });
        }
        pictures.push(of_run);
    }
    let document = build::document(summaries, pictures);
    if asked("md") {
        paths.md = Some(write_file(&out_dir.join("report.md"), markdown::markdown(&document).as_bytes())?);
    }
    if asked("html") {
        paths.html = Some(write_file(&out_dir.join("report.html"), html::html(&document)?.as_bytes())?);
    }
    Ok(paths)
}

/// A slug as it stands where it is a plain file name; made one otherwise.
fn file_name(slug: &str) -> String {
    let plain = (1..=80).contains(&slug.len()) && slug.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c));
    if plain { slug.to_owned() } else { crate::inert::file_slug(slug) }
}

fn make_dir(path: &Path) -> Result<(), ReportError> {
    std::fs::create_dir_all(path).map_err(|source| ReportError::Io { path: path.to_owned(), source })
}

fn write_file(path: &Path, bytes: &[u8]) -> Result<PathBuf, ReportError> {
    write_with(path, |temporary| {
        std::fs::File::create(temporary)
            .and_then(|mut file| file.write_all(bytes))
            .map_err(|source| ReportError::Io { path: path.to_owned(), source })
    })
}

/// Lets `fill` write a file beside `path` and moves it into place.
fn write_with(path: &Path, fill: impl FnOnce(&Path) -> Result<(), ReportError>) -> Result<PathBuf, ReportError> {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    // The ending stays: the PNG encoder is chosen by it.
    let temporary = path.with_file_name(format!(".{}-{name}", std::process::id()));
    // No fsync: a report can always be written again from the log, and waiting for the disk was two thirds of the time it takes.
    let moved = fill(&temporary).and_then(|()| {
        std::fs::rename(&temporary, path).map_err(|source| ReportError::Io { path: path.to_owned(), source })
    });
    if moved.is_err() {
        // What remains of a failed write is of no use; failing to remove it changes nothing.
        let _ = std::fs::remove_file(&temporary);
    }
    moved.map(|()| path.to_owned())
}
