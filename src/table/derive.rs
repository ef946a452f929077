//! All tables of a run, from its log.
use std::path::Path;
use std::sync::Arc;

use polars::prelude::{DataFrame, PolarsResult, Schema};

use super::error::TableError;
use super::frame::{events_frame, hardware_frame, logged_frame};
use super::parquet::{whole_rows, write_parquet};
use super::parts::{self, PART_ROWS};
use super::schema::request_schema;
use crate::record::{Disk, LoggedRun, OsDisk};

/// Rows of each table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Derived {
    /// Rows of `requests.parquet`: every row of the log; of a repeat that was run again the highest `attempt` is live.
    pub requests: usize,
    /// Rows of `events.parquet`.
    pub events: usize,
    /// Rows of `hardware.parquet`.
    pub hardware: usize,
}

/// Writes `requests.parquet`, `events.parquet` and `hardware.parquet` of the run in `dir`, and repairs its parts.
pub fn derive(dir: &Path, run: &LoggedRun) -> Result<Derived, TableError> {
    derive_on(&OsDisk, dir, run, true)
}

/// As [`derive`], but a table that reads whole and has the right number of rows is left as it is.
pub fn derive_missing(dir: &Path, run: &LoggedRun) -> Result<Derived, TableError> {
    derive_on(&OsDisk, dir, run, false)
}

/// [`derive`] on a disk of the caller's choice; `rebuild` also writes tables that are whole.
pub fn derive_on(disk: &dyn Disk, dir: &Path, run: &LoggedRun, rebuild: bool) -> Result<Derived, TableError> {
    parts::repair(disk, dir, &run.rows)?;
    let path = dir.join("requests.parquet");
    if rebuild || whole_rows(&path).ok() != Some(run.rows.len()) {
        write_parquet(disk, &path, &Arc::new(request_schema()), run.rows.chunks(PART_ROWS).map(logged_frame))?;
    }
    let small = |name: &str, rows: usize, frame: PolarsResult<DataFrame>| -> Result<(), TableError> {
        let path = dir.join(name);
        if !rebuild && whole_rows(&path).ok() == Some(rows) {
            return Ok(());
        }
        let frame =
            frame.map_err(|e| TableError::Polars { path: path.display().to_string(), message: e.to_string() })?;
        let schema: Arc<Schema> = Arc::clone(frame.schema());
        write_parquet(disk, &path, &schema, std::iter::once(frame)).map(|_| ())
    };
    small("events.parquet", run.events.len(), events_frame(&run.events))?;
    small("hardware.parquet", run.hardware.len(), hardware_frame(&run.hardware))?;
    Ok(Derived { requests: run.rows.len(), events: run.events.len(), hardware: run.hardware.len() })
}
