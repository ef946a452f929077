//! The cache of models on this machine: where a model lies, whether it is whole.
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::catalog::{Catalog, HUB, ModelPin, PinnedModel};
use super::digest::{Digests, hash_file, stamped_md5};
use super::error::PinError;
use super::progress::with_progress;
use super::{Fetch, Located};

/// The pins and the cache that a command works on.
#[derive(Debug, Clone)]
pub struct Store {
    /// Root of the cache.
    pub cache: PathBuf,
    /// The pins.
    pub catalog: Catalog,
    /// Root URL of the hub, without a slash at its end.
    pub hub: String,
    /// The command that is pip, where INFERLAB_PIP names one.
    pub pip: Option<String>,
}

/// What the cache holds of a pin, judged without reading the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CacheState {
    /// A file of the right size.
    Present,
    /// A file of another size.
    WrongSize,
    /// A download that was interrupted.
    Partial,
    /// Nothing.
    Absent,
}

/// A file that was read in full and matches its pin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// The file.
    pub path: PathBuf,
    /// What was found, equal to the pin.
    pub digests: Digests,
}

impl Store {
    /// Cache from INFERLAB_CACHE, else `$XDG_CACHE_HOME/inferlab`, else `~/.cache/inferlab`; hub from HF_ENDPOINT; pip from INFERLAB_PIP.
    pub fn from_environment() -> Result<Self, PinError> {
        let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let cache = variable("INFERLAB_CACHE")
            .map(PathBuf::from)
            // The XDG base directory specification has relative values ignored.
            .or_else(|| {
                variable("XDG_CACHE_HOME").map(PathBuf::from).filter(|p| p.is_absolute()).map(|p| p.join("inferlab"))
            })
            .or_else(|| variable("HOME").map(|home| PathBuf::from(home).join(".cache/inferlab")))
            .ok_or(PinError::NoCacheFolder)?;
        let hub = std::env::var("HF_ENDPOINT").ok().filter(|url| !url.is_empty()).unwrap_or_else(|| HUB.to_owned());
        let pip = std::env::var("INFERLAB_PIP").ok().filter(|command| !command.trim().is_empty());
        Ok(Self { cache, catalog: Catalog::from_environment(), hub: hub.trim_end_matches('/').to_owned(), pip })
    }

    /// Where the cache keeps the file of a pin: `<cache>/models/<name>/<file>`.
    pub fn path_of(&self, pin: &ModelPin) -> PathBuf {
        self.folder_of(pin).join(&pin.file)
    }

    pub(super) fn folder_of(&self, pin: &ModelPin) -> PathBuf {
        self.cache.join("models").join(&pin.name)
    }

    /// The pin of that name.
    pub fn pin(&self, name: &str) -> Result<PinnedModel, PinError> {
        self.catalog.find(name)?.ok_or_else(|| self.catalog.unknown(name))
    }

    /// Every pin, by name.
    pub fn pins(&self) -> Result<Vec<PinnedModel>, PinError> {
        self.catalog.names().iter().map(|name| self.pin(name)).collect()
    }

    /// What is there of a pin, and where; judged by size, nothing is read.
    pub fn state(&self, pin: &ModelPin) -> (CacheState, PathBuf) {
        let path = self.present(pin).unwrap_or_else(|| self.path_of(pin));
        let state = match path.metadata() {
            Ok(metadata) if metadata.len() == pin.bytes => CacheState::Present,
            Ok(_) => CacheState::WrongSize,
            Err(_) if part_of(&path).is_file() => CacheState::Partial,
            Err(_) => CacheState::Absent,
        };
        (state, path)
    }

    /// The file of a pin: in the cache, else where a `path` source points; existence is all that is looked at.
    pub(super) fn present(&self, pin: &ModelPin) -> Option<PathBuf> {
        let cached = self.path_of(pin);
        std::iter::once(cached.as_path()).chain(pin.local_paths()).find(|path| path.is_file()).map(Path::to_owned)
    }

    /// Finds a model by the name of its pin or by path.
    ///
    /// Errors: unknown name, missing file (with [`Fetch::Never`]), bytes that do not match the pin, and whatever a fetch can meet.
    pub fn locate(&self, name_or_path: &str, fetch: Fetch<'_>) -> Result<Located, PinError> {
        let Some(PinnedModel { pin, .. }) = self.catalog.find(name_or_path)? else {
            return self.locate_path(name_or_path);
        };
        let Some(path) = self.present(&pin) else {
            let verified = match fetch {
                Fetch::Never => return Err(PinError::Missing { name: pin.name.clone(), path: self.path_of(&pin) }),
                Fetch::IfMissing => with_progress(&pin.name, &|| false, |watch| self.fetch(&pin, watch))?,
                Fetch::Watched(watch) => self.fetch(&pin, watch)?,
            };
            return Ok(Located { path: verified.path, md5: verified.digests.md5, pin: Some(pin) });
        };
        self.check_size(&pin, &path)?;
        let md5 = stamped_md5(&self.cache, &path).map_err(PinError::io("read", &path))?;
        if md5 != pin.md5 {
            return Err(mismatch(&pin, "md5", &path, &pin.md5, &md5));
        }
        Ok(Located { path, md5, pin: Some(pin) })
    }

    /// Whether a name is that of a pin, or a path that of a file; no byte of a model is read.
    ///
    /// Errors: neither; a pin file that is no pin.
    pub fn expect(&self, name_or_path: &str) -> Result<(), PinError> {
        match self.catalog.find(name_or_path)? {
            Some(_) => Ok(()),
            None => self.path_given(name_or_path).map(drop),
        }
    }

    fn locate_path(&self, given: &str) -> Result<Located, PinError> {
        let path = self.path_given(given)?;
        let md5 = stamped_md5(&self.cache, &path).map_err(PinError::io("read", &path))?;
        Ok(Located { path, md5, pin: None })
    }

    /// The file that a path names, `~` being the home folder.
    fn path_given(&self, given: &str) -> Result<PathBuf, PinError> {
        let home = std::env::var_os("HOME").map(PathBuf::from);
        let path = match (given.strip_prefix("~/"), home) {
            (Some(rest), Some(home)) => home.join(rest),
            _ => PathBuf::from(given),
        };
        if path.is_file() {
            return Ok(path);
        }
        let looks_like_path = given.contains(['/', '\\']) || given.starts_with('.') || given.ends_with(".gguf");
        Err(if looks_like_path { PinError::NotAFile { path } } else { self.catalog.unknown(given) })
    }

    /// Reads the whole file of a pin and compares every digest; no stamp is believed.
    ///
    /// `progress` is told the bytes read so far.
    pub fn verify(&self, pin: &ModelPin, progress: &dyn Fn(u64)) -> Result<Verified, PinError> {
        let Some(path) = self.present(pin) else {
            return Err(PinError::Missing { name: pin.name.clone(), path: self.path_of(pin) });
        };
        self.check_size(pin, &path)?;
        let digests = verify_file(pin, &path, progress)?;
        Ok(Verified { path, digests })
    }

    fn check_size(&self, pin: &ModelPin, path: &Path) -> Result<(), PinError> {
        let found = path.metadata().map_err(PinError::io("look at", path))?.len();
        if found == pin.bytes {
            return Ok(());
        }
        let cause =
            format!("{}; `inferlab model fetch {}` replaces the file in the cache", likely_cause(path), pin.name);
        let origin = path.display().to_string();
        Err(PinError::Size { name: pin.name.clone(), origin, expected: pin.bytes, found, cause })
    }
}

/// Name under which an unfinished download is kept.
pub(super) fn part_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".part");
    PathBuf::from(name)
}

/// Hashes a file and compares it with the pin.
pub(super) fn verify_file(pin: &ModelPin, path: &Path, progress: &dyn Fn(u64)) -> Result<Digests, PinError> {
    let digests = hash_file(path, pin.sha256.is_some(), progress).map_err(PinError::io("read", path))?;
    if digests.md5 != pin.md5 {
        return Err(mismatch(pin, "md5", path, &pin.md5, &digests.md5));
    }
    if let (Some(expected), Some(found)) = (&pin.sha256, &digests.sha256)
        && expected != found
    {
        return Err(mismatch(pin, "sha256", path, expected, found));
    }
    Ok(digests)
}

fn mismatch(pin: &ModelPin, kind: &'static str, path: &Path, expected: &str, found: &str) -> PinError {
    PinError::Digest {
        name: pin.name.clone(),
        kind,
        path: path.to_owned(),
        expected: expected.to_owned(),
        found: found.to_owned(),
        cause: likely_cause(path),
    }
}

/// What most often makes a file differ from its pin, judged by its first bytes.
pub(super) fn likely_cause(path: &Path) -> String {
    use std::io::Read;
    let mut head = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(64).read_to_end(&mut head));
    match read {
        Ok(_) => cause_of_head(&head).to_owned(),
        Err(error) => format!("the file cannot be read ({error})"),
    }
}

pub(super) fn cause_of_head(head: &[u8]) -> &'static str {
    let text = String::from_utf8_lossy(head).trim_start().to_ascii_lowercase();
    if head.is_empty() {
        "the file is empty"
    } else if text.starts_with("<!doctype") || text.starts_with("<html") {
        "an HTML page came instead of the file, as from a login page or a proxy"
    } else if text.starts_with("version https://git-lfs") {
        "this is a Git LFS pointer and not the file"
    } else {
        "another revision of the file, or a damaged or unfinished download"
    }
}
