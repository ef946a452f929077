//! Measures this client's own error on this machine, against a loopback emitter that records when it wrote every event.
mod emitter;
mod measure;
mod store;

use std::path::PathBuf;

use miette::Diagnostic;
use thiserror::Error;

pub use measure::{Level, measure};
pub use store::{load, save};

use crate::pin::PinError;
use crate::target::endpoint::EndpointError;

/// Why there is no calibration.
#[derive(Debug, Error, Diagnostic)]
pub enum CalibrateError {
    /// No listener on loopback, or no runtime.
    #[error("the loopback emitter could not start")]
    #[diagnostic(help("127.0.0.1 must be there and have a free port"))]
    Emitter(#[source] std::io::Error),
    /// The client could not be made, or too many files would be open.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Client(#[from] EndpointError),
    /// Nothing came back.
    #[error("none of {requests} requests at concurrency {concurrency} was answered by the loopback emitter")]
    #[diagnostic(help("a firewall or a proxy on loopback may stand between; try fewer with `--concurrency 1`"))]
    Unanswered {
        /// Asked for.
        concurrency: u32,
        /// Sent.
        requests: usize,
    },
    /// There is no folder for it.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Cache(#[from] PinError),
    /// It could not be kept.
    #[error("the calibration could not be written to {}", path.display())]
    #[diagnostic(help("the cache is $INFERLAB_CACHE, else $XDG_CACHE_HOME/inferlab, else ~/.cache/inferlab"))]
    Store {
        /// Where to.
        path: PathBuf,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
}
