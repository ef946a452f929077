//! Parquet parts written while a run goes on: `parts/requests-00000.parquet` holds the first 65 536 rows of the log, and so on. They
//! let other tools look at a long run before its end; the log stays the primary data.
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use super::error::TableError;
use super::frame::{RequestColumns, logged_frame};
use super::parquet::{whole_rows, write_parquet};
use super::schema::request_schema;
use crate::record::{Disk, LoggedRow, OsDisk, RequestRecord, RowObserver, StorageError};

/// Rows of a part.
pub const PART_ROWS: usize = 65_536;

/// Collects rows and writes a part whenever one is full, on a thread of its own. A part that fails is made again by
/// [`super::derive`].
pub struct Parts {
    dir: PathBuf,
    disk: Arc<dyn Disk>,
    part_rows: usize,
    number: usize,
    columns: RequestColumns,
    writing: Option<JoinHandle<()>>,
}

impl Parts {
    /// Parts of the run in `dir`; hand it to the log as its observer.
    pub fn new(dir: &Path) -> Self {
        Self::sized(dir, Arc::new(OsDisk), PART_ROWS)
    }

    /// Parts of another size, for tests.
    pub fn sized(dir: &Path, disk: Arc<dyn Disk>, part_rows: usize) -> Self {
        let columns = RequestColumns::with_segment();
        Self { dir: dir.to_owned(), disk, part_rows: part_rows.max(1), number: 0, columns, writing: None }
    }

    fn write(&mut self) {
        let columns = std::mem::replace(&mut self.columns, RequestColumns::with_segment());
        let (path, disk) = (part_path(&self.dir, self.number), Arc::clone(&self.disk));
        self.number += 1;
        self.wait();
        let work = move || {
            // Derived data: the log has the rows, and `derive` makes a missing part.
            let _ = write_part(&*disk, &path, columns);
        };
        self.writing = std::thread::Builder::new().name("parquet-part".into()).spawn(work).ok();
    }

    fn wait(&mut self) {
        if let Some(thread) = self.writing.take() {
            let _ = thread.join();
        }
    }
}

impl RowObserver for Parts {
    fn earlier(&mut self, rows: &[LoggedRow]) {
        let whole = rows.len() / self.part_rows;
        self.number = whole;
        for row in &rows[whole * self.part_rows..] {
            self.columns.push(row.segment, &row.record);
        }
    }

    fn row(&mut self, segment: u32, record: &RequestRecord) {
        self.columns.push(segment, record);
        if self.columns.rows() >= self.part_rows {
            self.write();
        }
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        self.wait();
    }
}

fn part_path(dir: &Path, number: usize) -> PathBuf {
    dir.join("parts").join(format!("requests-{number:05}.parquet"))
}

fn write_part(disk: &dyn Disk, path: &Path, columns: RequestColumns) -> Result<(), TableError> {
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder).map_err(|e| StorageError::io(folder, "mkdir", e))?;
    write_parquet(disk, path, &Arc::new(request_schema()), std::iter::once(columns.finish())).map(|_| ())
}

/// Makes every full part that is missing or not whole.
pub(super) fn repair(disk: &dyn Disk, dir: &Path, rows: &[LoggedRow]) -> Result<(), TableError> {
    for (number, rows) in rows.chunks_exact(PART_ROWS).enumerate() {
        let path = part_path(dir, number);
        if whole_rows(&path).ok() == Some(PART_ROWS) {
            continue;
        }
        let folder = dir.join("parts");
        std::fs::create_dir_all(&folder).map_err(|e| StorageError::io(&folder, "mkdir", e))?;
        write_parquet(disk, &path, &Arc::new(request_schema()), std::iter::once(logged_frame(rows)))?;
    }
    Ok(())
}
