//! Why a table could not be made or read.
use miette::Diagnostic;
use thiserror::Error;

use crate::record::StorageError;

/// A derived table failed; the log is untouched.
#[derive(Debug, Error, Diagnostic)]
pub enum TableError {
    /// The disk.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Storage(#[from] StorageError),
    /// Polars refused a frame.
    #[error("{path}: {message}")]
    #[diagnostic(help("tables are made from the log and can be made again with `inferlab table RUN --rebuild`"))]
    Polars {
        /// The table.
        path: String,
        /// In Polars' words.
        message: String,
    },
    /// A file that is no whole Parquet file.
    #[error("{path} is no whole Parquet file: {why}")]
    #[diagnostic(help("a crash or a full disk cut it; make it again with `inferlab table RUN --rebuild`"))]
    Broken {
        /// The file.
        path: String,
        /// What is wrong.
        why: String,
    },
    /// What was written reads back with another number of rows.
    #[error("{path} was written with {written} rows and reads back with {found}")]
    #[diagnostic(help("the disk is not to be trusted; the log keeps every row"))]
    Count {
        /// The file.
        path: String,
        /// Rows written.
        written: usize,
        /// Rows read.
        found: usize,
    },
}
