//! What can go wrong between a model's name and its bytes.
use std::io;
use std::path::{Path, PathBuf};

use miette::Diagnostic;
use thiserror::Error;

use crate::yaml::YamlError;

/// Why a model could not be had.
#[derive(Debug, Error, Diagnostic)]
pub enum PinError {
    /// Neither a pin nor a file.
    #[error("there is no model `{name}`: neither a pin nor a file{}", nearest.as_ref().map(|n| format!("; did you mean `{n}`?")).unwrap_or_default())]
    #[diagnostic(help("pinned models: {}. A file is given by its path, as ./model.gguf", known.join(", ")))]
    Unknown {
        /// What was asked for.
        name: String,
        /// Names that exist.
        known: Vec<String>,
        /// The nearest of them.
        nearest: Option<String>,
    },
    /// A path that holds no file.
    #[error("{} is not a file", path.display())]
    #[diagnostic(help("give the path of a GGUF file, or the name of a pin (see `inferlab model list`)"))]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// A pin that is no YAML of a pin.
    #[error("{pin}: {cause}")]
    #[diagnostic(forward(cause))]
    Yaml {
        /// Where the pin stands.
        pin: String,
        /// What is wrong, and where.
        cause: YamlError,
    },
    /// A pin with a value that cannot be right.
    #[error("{pin}: `{field}` {message}")]
    #[diagnostic(help("models/smollm2-135m/pin.yaml shows a correct pin"))]
    Invalid {
        /// Where the pin stands.
        pin: String,
        /// The key.
        field: &'static str,
        /// What is wrong with its value.
        message: String,
    },
    /// Pinned but not on this machine.
    #[error("model `{name}` is not on this machine: {} does not exist", path.display())]
    #[diagnostic(help("`inferlab model fetch {name}` downloads it"))]
    Missing {
        /// Name of the pin.
        name: String,
        /// Where it would be.
        path: PathBuf,
    },
    /// Bytes with another digest than the pin's.
    #[error("model `{name}` does not match its pin: expected {kind} {expected}, found {found} in {}", path.display())]
    #[diagnostic(help("likely cause: {cause}. `inferlab model fetch {name}` replaces the file in the cache"))]
    Digest {
        /// Name of the pin.
        name: String,
        /// `md5` or `sha256`.
        kind: &'static str,
        /// The file.
        path: PathBuf,
        /// The pin's digest.
        expected: String,
        /// The file's digest.
        found: String,
        /// What most often makes this.
        cause: String,
    },
    /// Another number of bytes than the pin's.
    #[error("model `{name}` does not match its pin: expected {expected} bytes, {origin} has {found}")]
    #[diagnostic(help("likely cause: {cause}"))]
    Size {
        /// Name of the pin.
        name: String,
        /// Where the bytes come from.
        origin: String,
        /// The pin's size.
        expected: u64,
        /// The size found.
        found: u64,
        /// What most often makes this.
        cause: String,
    },
    /// The server answered with something else than the file.
    #[error("{url} answered with HTTP status {status}")]
    #[diagnostic(help(
        "401 and 403: the file needs a login there; 404: repository, revision or file name changed; HF_ENDPOINT chooses a mirror"
    ))]
    Http {
        /// What was asked.
        url: String,
        /// The status.
        status: u16,
    },
    /// The connection failed, more than once.
    #[error("could not download {url}: {message}")]
    #[diagnostic(help(
        "check the network and its proxy settings (HTTPS_PROXY), or choose a mirror with HF_ENDPOINT; what arrived is kept, and the next fetch goes on from there"
    ))]
    Network {
        /// What was asked.
        url: String,
        /// The cause, in the words of the client.
        message: String,
    },
    /// No pip to download a wheel with.
    #[error("no pip found (tried {})", tried.join(", "))]
    #[diagnostic(help(
        "this source is a PyPI wheel: install Python 3 with pip, or name the command in INFERLAB_PIP, as \"/path/to/python -m pip\""
    ))]
    NoPip {
        /// Commands tried.
        tried: Vec<String>,
    },
    /// pip could not download the wheel.
    #[error("`{command}` failed: {message}")]
    #[diagnostic(help("pip uses its own network and index settings (`pip config list`)"))]
    Pip {
        /// The command.
        command: String,
        /// The end of what it said.
        message: String,
    },
    /// The wheel does not hold what the pin says.
    #[error("could not take `{member}` out of {}: {message}", wheel.display())]
    #[diagnostic(help("the package may have changed; its version is part of the pin"))]
    Wheel {
        /// The wheel.
        wheel: PathBuf,
        /// The file in it.
        member: String,
        /// The cause.
        message: String,
    },
    /// Too little room.
    #[error("{} has {free} bytes free, the download needs {need}", path.display())]
    #[diagnostic(help("make room, or move the cache with INFERLAB_CACHE"))]
    DiskSpace {
        /// The folder.
        path: PathBuf,
        /// Bytes needed.
        need: u64,
        /// Bytes free.
        free: u64,
    },
    /// The operating system refused.
    #[error("could not {doing} {}: {source}", path.display())]
    #[diagnostic(help("the cache is $INFERLAB_CACHE, else $XDG_CACHE_HOME/inferlab, else ~/.cache/inferlab"))]
    Io {
        /// What was tried, as `write`.
        doing: &'static str,
        /// On what.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Stopped by a signal.
    #[error("the fetch of `{name}` was interrupted")]
    #[diagnostic(help("what arrived is kept; the next fetch goes on from there"))]
    Stopped {
        /// Name of the pin.
        name: String,
    },
    /// Every source failed.
    #[error("no source of model `{name}` worked")]
    Sources {
        /// Name of the pin.
        name: String,
        /// One error a source, in order.
        #[related]
        attempts: Vec<PinError>,
    },
    /// No place for a cache.
    #[error("no cache folder: neither INFERLAB_CACHE nor XDG_CACHE_HOME nor HOME is set")]
    #[diagnostic(help("set INFERLAB_CACHE to a folder with room for models"))]
    NoCacheFolder,
}

impl PinError {
    /// Whether the disk is to blame (full, failing, over quota) and not the model.
    pub fn is_storage(&self) -> bool {
        match self {
            Self::DiskSpace { .. } => true,
            Self::Io { source, .. } => {
                matches!(
                    source.kind(),
                    io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::ReadOnlyFilesystem
                ) || source.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error())
            }
            Self::Sources { attempts, .. } => attempts.iter().any(Self::is_storage),
            _ => false,
        }
    }

    /// An `Io` error, for `map_err`.
    pub(super) fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { doing, path: path.to_owned(), source }
    }
}
