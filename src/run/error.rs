//! Why a run could not start or go on. Failures of single requests are rows, never errors.
use miette::Diagnostic;
use thiserror::Error;

use crate::engine::EngineError;
use crate::engine::weights::ModelError;
use crate::experiment::ExperimentError;
use crate::pin::PinError;
use crate::record::{LogError, StorageError};
use crate::report::ReportError;
use crate::table::TableError;
use crate::target::endpoint::EndpointError;
use crate::workload::WorkloadError;
use crate::yaml::Place;

/// Why a run ended early, by the part that says so.
#[derive(Debug, Error, Diagnostic)]
pub enum RunError {
    /// The experiment file.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Experiment(#[from] ExperimentError),
    /// The prompts of a cell.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Workload(#[from] WorkloadError),
    /// A pinned model.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Pin(#[from] PinError),
    /// A name in the experiment file that is neither a pin nor a file.
    #[error("{message}")]
    NoModel {
        /// What is wrong.
        message: String,
        /// Which models there are.
        #[help]
        help: String,
        /// The name.
        #[source_code]
        #[label("this model")]
        at: Place,
    },
    /// A model file.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Model(#[from] ModelError),
    /// Our engine: what does not fit is refused at start-up.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Engine(#[from] EngineError),
    /// A server that cannot be reached or used.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Endpoint(#[from] EndpointError),
    /// Writing the log.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Storage(#[from] StorageError),
    /// Reading a log.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Log(#[from] LogError),
    /// Deriving tables.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Table(#[from] TableError),
    /// Writing the report.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Report(#[from] ReportError),
    /// A KV dtype that the engine of this version has not.
    #[error("{0}")]
    KvDtype(String),
    /// The client's runtime.
    #[error("the client runtime could not start: {0}")]
    Runtime(std::io::Error),
    /// A signal came before the first request.
    #[error("stopped before anything was measured")]
    #[diagnostic(help("no run directory was made; start again when you like"))]
    Stopped,
    /// Too little room on disk.
    #[error("{path} has {free_mib} MiB free, the plan needs about {needed_mib} MiB")]
    #[diagnostic(help("free some space, or write elsewhere with --out DIR"))]
    Space {
        /// Where runs are written.
        path: String,
        /// Free MiB.
        free_mib: u64,
        /// Estimate in MiB.
        needed_mib: u64,
    },
}
