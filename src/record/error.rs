//! What can go wrong between a row and the disk, and between the disk and a reader.
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use miette::Diagnostic;
use thiserror::Error;

/// The disk did not do what it was asked (exit code 30).
#[derive(Debug, Clone, Error, Diagnostic)]
pub enum StorageError {
    /// An I/O call failed.
    #[error("{path}: {operation} failed: {cause}")]
    #[diagnostic(help(
        "the folder must exist, be writable and have room; rows that were written are safe, and `inferlab run SUITE --resume RUN` goes on with them"
    ))]
    Io {
        /// The file or folder.
        path: String,
        /// What was asked of it, as `write` or `fsync`.
        operation: &'static str,
        /// The system's words.
        cause: Arc<io::Error>,
    },
    /// Another process writes this run.
    #[error("{path} is in use by another process{holder}")]
    #[diagnostic(help("wait until it ends, or start a run of your own; two writers would mix their rows"))]
    Locked {
        /// The run directory.
        path: String,
        /// ` (pid 123)` where it is known.
        holder: String,
    },
    /// A new run was to be written over an old one.
    #[error("{path} already holds a run")]
    #[diagnostic(help("go on with it by `--resume`, or start a new directory"))]
    Exists {
        /// The run directory.
        path: String,
    },
    /// NaN or infinity, which JSON cannot hold.
    #[error("{place} is NaN or infinite; a log holds numbers or null")]
    #[diagnostic(help("an unknown number is `null`; this is an error of inferlab, please report it"))]
    NotFinite {
        /// Column or member.
        place: String,
    },
    /// A line that no reader would accept.
    #[error("{path}: a line of {bytes} bytes is longer than the {limit} that readers accept")]
    #[diagnostic(help("the answer or the error text of this request is too long to keep; set `text: hash`"))]
    LineTooLong {
        /// The file.
        path: String,
        /// Its length.
        bytes: usize,
        /// The bound.
        limit: usize,
    },
    /// The writer thread is gone.
    #[error("{path}: the log writer has stopped")]
    #[diagnostic(help("this is an error of inferlab, please report it; rows written before are safe"))]
    WriterGone {
        /// The run directory.
        path: String,
    },
}

impl StorageError {
    /// An I/O error with its place.
    pub fn io(path: &Path, operation: &'static str, cause: io::Error) -> Self {
        Self::Io { path: path.display().to_string(), operation, cause: Arc::new(cause) }
    }
}

/// What is wrong with a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// No `crc` at its end, or a wrong one.
    Crc,
    /// `seq` is not the number of the line.
    Seq,
    /// A right crc over something that is no line of this schema.
    Content,
    /// Longer than the bound.
    TooLong,
}

/// A log cannot be read, or must not be resumed.
#[derive(Debug, Clone, Error, Diagnostic)]
pub enum LogError {
    /// The disk.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Storage(#[from] StorageError),
    /// No log there.
    #[error("{} is not a run directory: it has no log.jsonl", dir.display())]
    #[diagnostic(help("give the directory that `inferlab run` printed, as runs/quickstart-20261130T214500Z-3f9a1c"))]
    NotARun {
        /// What was given.
        dir: PathBuf,
    },
    /// The log has no whole line.
    #[error("{} holds no whole line, so nothing is known of its run", path.display())]
    #[diagnostic(help("nothing was measured; start a new run"))]
    Headerless {
        /// The log.
        path: PathBuf,
    },
    /// A line in the middle is bad: this cannot come from a crash.
    #[error("{}: line {line} at byte {offset} is corrupt: {detail}", path.display())]
    #[diagnostic(help(
        "a crash can only tear the last line, so this is a damaged disk or an edited file; restore it from a copy"
    ))]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// Line number, from 1.
        line: u64,
        /// Offset of its first byte.
        offset: u64,
        /// Kind of damage.
        fault: Fault,
        /// Detail in words.
        detail: String,
    },
    /// Written by a later version.
    #[error("{} has schema {found}, written by {program}; this version knows schema {known}", path.display())]
    #[diagnostic(help("read it with the version that wrote it, or a later one"))]
    NewerSchema {
        /// The log.
        path: PathBuf,
        /// Its schema.
        found: u32,
        /// Ours.
        known: u32,
        /// Who wrote it.
        program: String,
    },
    /// The experiment changed since the run began.
    #[error("{} was started as {logged}, the experiment is now {found}: {}", dir.display(), keys.join("; "))]
    #[diagnostic(help("a run holds one experiment: undo the change, or start a new run"))]
    OtherIdentity {
        /// The run directory.
        dir: PathBuf,
        /// Identity in the header.
        logged: String,
        /// Identity now.
        found: String,
        /// The keys that differ, each with both values.
        keys: Vec<String>,
    },
    /// Nothing is left to do.
    #[error("{} is complete: every cell is done", dir.display())]
    #[diagnostic(help("`inferlab report` writes its report again; a new run needs a new directory"))]
    Ended {
        /// The run directory.
        dir: PathBuf,
    },
}

impl LogError {
    /// The storage error behind this one, for the exit code.
    pub fn storage(&self) -> Option<&StorageError> {
        match self {
            Self::Storage(error) => Some(error),
            _ => None,
        }
    }
}
