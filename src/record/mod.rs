//! The primary data of a run: what was observed, one row a request, and the log that keeps it.
//!
//! Rates, percentiles and verdicts are never stored here; `metric` computes them from rows.
//!
//! A log is written by [`RunLog`], read by [`read_run`] and checked by [`verify_run`]. Every line is sealed by a CRC and numbered, so a
//! crash can only cut the last one, and any other damage is seen and named.
mod calibration;
mod columns;
mod directory;
pub(crate) mod disk;
mod entry;
mod error;
mod line;
mod log;
mod logged;
mod planned;
mod reader;
mod resume;
mod row;
mod texts;
mod verify;
mod writer;

pub use calibration::{CalibratedLevel, Calibration, ErrorMs};
pub use columns::{Cell, Column, Dtype};
pub use directory::{create_directory, directory_name, free_bytes, run_name, slug};
pub use disk::{Disk, DiskFile, OsDisk};
pub use entry::{Entry, Header, LoggedEvent, LoggedHardware, Open, RowCounts, SCHEMA, now_utc};
pub use error::{Fault, LogError, StorageError};
pub use line::MAX_LINE;
pub use log::{Closed, LogHealth, LogOptions, RowObserver, RunLog};
pub use logged::{LoggedRow, LoggedRun, Segment, read_run};
pub use planned::{
    PlannedArm, PlannedCell, PlannedLimits, PlannedOffer, PlannedReport, PlannedRun, PlannedSlo, PlannedVisit,
};
pub use reader::{LogReader, Torn};
pub use row::{
    COLUMNS, Finish, FirstChunk, FirstChunkSource, Outcome, OutcomeGroup, RequestRecord, ResponseText, ToolCall,
};
pub use texts::{LoggedText, TextReader};
pub use verify::{VerifyReport, verify_run};
