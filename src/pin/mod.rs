//! Pinned models: which exact bytes a name means, where to get them, and the proof that the file on disk is them.
//!
//! A pin is `models/<name>/pin.yaml`: size, md5, licence and sources. `locate` turns a name or a path into a checked file.
mod catalog;
mod digest;
mod error;
mod fetch;
mod http;
mod progress;
mod store;
mod wheel;

use std::path::PathBuf;

pub use catalog::{Catalog, ModelPin, PinOrigin, PinnedModel, Source, parse};
pub use digest::{Digests, hash_file, stamped_md5};
pub use error::PinError;
pub use fetch::{FetchEvent, Watch};
pub use progress::with_progress;
pub use store::{CacheState, Store, Verified};
pub(crate) use wheel::pip_version;

/// A model file whose md5 is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located {
    /// The file.
    pub path: PathBuf,
    /// Its md5 in lower-case hex; equal to the pin's where there is a pin.
    pub md5: String,
    /// The pin, unless a bare path was asked for.
    pub pin: Option<ModelPin>,
}

/// Whether a missing model may be downloaded.
#[derive(Clone, Copy)]
pub enum Fetch<'a> {
    /// A missing model is an error.
    Never,
    /// A missing model is fetched, with its progress on stderr.
    IfMissing,
    /// A missing model is fetched, reporting to the watch, which may stop it.
    Watched(&'a Watch<'a>),
}

/// Finds a model by the name of its pin or by path, in the folders and the cache that the environment names.
///
/// The md5 is checked against the pin; a file whose size, time and inode did not change since the last check is not read again.
pub fn locate(name_or_path: &str, fetch: Fetch<'_>) -> Result<Located, PinError> {
    Store::from_environment()?.locate(name_or_path, fetch)
}
