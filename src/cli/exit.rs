//! Exit codes, and the one place where an error becomes one.
use miette::{Diagnostic, Report};
use thiserror::Error;

use crate::engine::weights::ModelError;
use crate::experiment::ExperimentError;
use crate::pin::PinError;
use crate::record::{LogError, StorageError};
use crate::report::ReportError;
use crate::run::RunError;
use crate::table::TableError;
use crate::target::endpoint::EndpointError;
use crate::workload::WorkloadError;

/// How the program ends (`contracts/cli.md`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum ExitCode {
    /// Done; a run is valid.
    Valid = 0,
    /// Command line or experiment file.
    Usage = 2,
    /// Model or dataset pin.
    Pin = 3,
    /// Target unreachable before the start.
    Unreachable = 4,
    /// The run is invalid.
    Invalid = 10,
    /// A threshold was broken: failure limit or SLO gate.
    Threshold = 11,
    /// The soak verdict is not ok.
    Soak = 12,
    /// Interrupted; what was measured is kept.
    Interrupted = 20,
    /// Storage: no space, or input and output errors.
    Storage = 30,
    /// A bug of this program.
    Internal = 70,
}

impl ExitCode {
    /// The number.
    pub fn number(self) -> u8 {
        self as u8
    }
}

impl From<ExitCode> for std::process::ExitCode {
    fn from(code: ExitCode) -> Self {
        Self::from(code.number())
    }
}

/// An error type that knows its exit code. Every implementation stands in this file, so that the mapping can be read in one place.
pub trait Exit {
    /// The code of this error.
    fn exit_code(&self) -> ExitCode;
}

impl Exit for PinError {
    fn exit_code(&self) -> ExitCode {
        match self {
            Self::Stopped { .. } => ExitCode::Interrupted,
            error if error.is_storage() => ExitCode::Storage,
            _ => ExitCode::Pin,
        }
    }
}

impl Exit for ExperimentError {
    fn exit_code(&self) -> ExitCode {
        ExitCode::Usage
    }
}

impl Exit for WorkloadError {
    fn exit_code(&self) -> ExitCode {
        ExitCode::Usage
    }
}

impl Exit for ModelError {
    fn exit_code(&self) -> ExitCode {
        ExitCode::Pin
    }
}

impl Exit for EndpointError {
    fn exit_code(&self) -> ExitCode {
        match self {
            Self::Url(_) | Self::MissingKey { .. } | Self::UnusableKey { .. } | Self::KeyFile { .. } => ExitCode::Usage,
            Self::Thinking { .. } | Self::Tokenizer { .. } => ExitCode::Usage,
            _ => ExitCode::Unreachable,
        }
    }
}

impl Exit for StorageError {
    fn exit_code(&self) -> ExitCode {
        match self {
            // Another process holds the run, or the name is taken: nothing is wrong with the disk.
            Self::Locked { .. } | Self::Exists { .. } => ExitCode::Usage,
            Self::NotFinite { .. } | Self::WriterGone { .. } => ExitCode::Internal,
            Self::Io { .. } | Self::LineTooLong { .. } => ExitCode::Storage,
        }
    }
}

impl Exit for LogError {
    fn exit_code(&self) -> ExitCode {
        match self {
            Self::Storage(error) => error.exit_code(),
            Self::Corrupt { .. } | Self::Headerless { .. } => ExitCode::Invalid,
            _ => ExitCode::Usage,
        }
    }
}

impl Exit for TableError {
    fn exit_code(&self) -> ExitCode {
        ExitCode::Storage
    }
}

impl Exit for ReportError {
    fn exit_code(&self) -> ExitCode {
        match self {
            Self::NoRuns | Self::Format { .. } => ExitCode::Usage,
            Self::Template { .. } => ExitCode::Internal,
            _ => ExitCode::Storage,
        }
    }
}

impl Exit for RunError {
    fn exit_code(&self) -> ExitCode {
        match self {
            Self::Experiment(error) => error.exit_code(),
            Self::Workload(error) => error.exit_code(),
            Self::Pin(error) => error.exit_code(),
            Self::NoModel { .. } => ExitCode::Pin,
            Self::Model(error) => error.exit_code(),
            // What does not fit this machine is for the experiment file to change.
            Self::Engine(_) | Self::KvDtype(_) => ExitCode::Usage,
            Self::Endpoint(error) => error.exit_code(),
            Self::Storage(error) => error.exit_code(),
            Self::Log(error) => error.exit_code(),
            Self::Table(error) => error.exit_code(),
            Self::Report(error) => error.exit_code(),
            Self::Runtime(_) => ExitCode::Internal,
            Self::Stopped => ExitCode::Interrupted,
            Self::Space { .. } => ExitCode::Storage,
        }
    }
}

impl Exit for OutputError {
    fn exit_code(&self) -> ExitCode {
        ExitCode::Storage
    }
}

/// stdout could not be written, for another reason than its reader having gone.
#[derive(Debug, Error, Diagnostic)]
#[error("could not write to stdout: {0}")]
pub struct OutputError(#[from] pub std::io::Error);

/// A command that failed: its exit code and what to tell a person.
#[derive(Debug)]
pub struct CommandError {
    /// The exit code.
    pub code: ExitCode,
    /// The message, with place and way out.
    pub report: Report,
}

impl CommandError {
    /// From any diagnostic, with a code chosen by the caller.
    pub fn new(code: ExitCode, report: impl Into<Report>) -> Self {
        Self { code, report: report.into() }
    }

    /// From plain words.
    pub fn message(code: ExitCode, message: impl Into<String>, help: impl Into<String>) -> Self {
        let diagnostic = miette::MietteDiagnostic::new(message).with_help(help);
        Self { code, report: diagnostic.into() }
    }
}

impl<E: Diagnostic + Exit + Send + Sync + 'static> From<E> for CommandError {
    fn from(error: E) -> Self {
        Self { code: error.exit_code(), report: error.into() }
    }
}

/// What a command comes to: an exit code when it did its work, else an error.
pub type CommandResult = Result<ExitCode, CommandError>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pin_errors_exit_3_but_a_full_disk_30_and_an_interrupt_20() {
        let full = PinError::DiskSpace { path: "/x".into(), need: 2, free: 1 };
        let write = |code: i32| PinError::Io {
            doing: "write",
            path: "/x".into(),
            source: std::io::Error::from_raw_os_error(code),
        };
        assert_eq!(full.exit_code().number(), 30);
        assert_eq!(write(28).exit_code().number(), 30, "ENOSPC");
        assert_eq!(write(5).exit_code().number(), 30, "EIO");
        assert_eq!(write(13).exit_code().number(), 3, "EACCES");
        assert_eq!(PinError::Stopped { name: "m".to_owned() }.exit_code().number(), 20);
        assert_eq!(PinError::NoCacheFolder.exit_code().number(), 3);
        let nested = PinError::Sources { name: "m".to_owned(), attempts: vec![PinError::NoCacheFolder, full] };
        assert_eq!(nested.exit_code().number(), 30);
    }
}
