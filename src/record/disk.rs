//! The few calls by which a run reaches the disk, behind a trait, so that a test can fail the n-th of them.
use std::fmt::Debug;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use super::error::StorageError;

/// A file being written.
pub trait DiskFile: Send + Debug {
    /// One `write(2)`; may write less than it was given.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize>;
    /// `fdatasync(2)`.
    fn sync(&mut self) -> io::Result<()>;
    /// Cuts the file to `length` bytes.
    fn set_len(&mut self, length: u64) -> io::Result<()>;
}

/// Where files are made.
pub trait Disk: Send + Sync + Debug {
    /// Opens `path` for appending (`O_APPEND`), making it where it is absent.
    fn append(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;
    /// `rename(2)`.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// `fsync(2)` of a folder, which makes renames and new files in it last.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
}

/// The disk of this machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct OsDisk;

#[derive(Debug)]
struct OsFile(File);

impl DiskFile for OsFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }
    fn sync(&mut self) -> io::Result<()> {
        self.0.sync_data()
    }
    fn set_len(&mut self, length: u64) -> io::Result<()> {
        self.0.set_len(length)
    }
}

impl Disk for OsDisk {
    fn append(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(OsFile(OpenOptions::new().create(true).append(true).open(path)?)))
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }
}

/// Writes all of `bytes`: goes on after `EINTR` and after a short write. Answers how many bytes reached the file, and the error.
fn write_all(file: &mut dyn DiskFile, bytes: &[u8]) -> (usize, io::Result<()>) {
    let mut done = 0;
    while done < bytes.len() {
        match file.write(&bytes[done..]) {
            Ok(0) => return (done, Err(io::ErrorKind::WriteZero.into())),
            Ok(n) => done += n.min(bytes.len() - done),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (done, Err(error)),
        }
    }
    (done, Ok(()))
}

/// Repeats a call that a signal interrupted.
fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// A file to which whole lines are appended. After a failed write the file ends with its last whole line again, or the next
/// append fails as well: a line is never glued to a fragment.
#[derive(Debug)]
pub(super) struct Appender {
    path: std::path::PathBuf,
    file: Box<dyn DiskFile>,
    /// Bytes of whole lines.
    length: u64,
    /// A fragment stands behind them and could not be cut off yet.
    fragment: bool,
}

impl Appender {
    /// Opens `path`, which holds `length` bytes of whole lines.
    pub(super) fn open(disk: &dyn Disk, path: &Path, length: u64) -> Result<Self, StorageError> {
        let file = uninterrupted(|| disk.append(path)).map_err(|e| StorageError::io(path, "open", e))?;
        Ok(Self { path: path.to_owned(), file, length, fragment: false })
    }

    /// Appends one line with one `write`.
    pub(super) fn append(&mut self, line: &[u8]) -> Result<(), StorageError> {
        if self.fragment {
            self.cut()?;
        }
        let (done, result) = write_all(&mut *self.file, line);
        match result {
            Ok(()) => {
                self.length += line.len() as u64;
                Ok(())
            }
            Err(error) => {
                self.fragment = done > 0;
                if self.fragment {
                    // A full disk can still shorten a file. Where even that fails, the next append tries again first.
                    let _ = self.cut();
                }
                Err(StorageError::io(&self.path, "write", error))
            }
        }
    }

    /// Makes everything appended last.
    pub(super) fn sync(&mut self) -> Result<(), StorageError> {
        let file = &mut self.file;
        uninterrupted(|| file.sync()).map_err(|e| StorageError::io(&self.path, "fdatasync", e))
    }

    /// Cuts the file to its whole lines.
    pub(super) fn cut(&mut self) -> Result<(), StorageError> {
        let (file, length) = (&mut self.file, self.length);
        uninterrupted(|| file.set_len(length)).map_err(|e| StorageError::io(&self.path, "truncate", e))?;
        self.fragment = false;
        Ok(())
    }
}

/// `rename`, then `fsync` of the folder.
pub(crate) fn rename_synced(disk: &dyn Disk, from: &Path, to: &Path) -> Result<(), StorageError> {
    uninterrupted(|| disk.rename(from, to)).map_err(|e| StorageError::io(to, "rename", e))?;
    sync_parent(disk, to)
}

/// `fsync` of the folder that holds `path`.
pub(crate) fn sync_parent(disk: &dyn Disk, path: &Path) -> Result<(), StorageError> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    uninterrupted(|| disk.sync_dir(dir)).map_err(|e| StorageError::io(dir, "fsync", e))
}

/// A temporary file beside `path`, to be renamed over it: what stands under the real name is always whole.
#[derive(Debug)]
pub(crate) struct Replacement<'a> {
    disk: &'a dyn Disk,
    to: &'a Path,
    /// Its name until then.
    pub(crate) temporary: std::path::PathBuf,
    file: Box<dyn DiskFile>,
    /// The first error, since Parquet's writer wraps it beyond recognition.
    failed: Option<StorageError>,
}

impl<'a> Replacement<'a> {
    pub(crate) fn begin(disk: &'a dyn Disk, to: &'a Path) -> Result<Self, StorageError> {
        let mut name = to.file_name().unwrap_or_default().to_owned();
        name.push(".tmp");
        let temporary = to.with_file_name(name);
        let mut file =
            uninterrupted(|| disk.append(&temporary)).map_err(|e| StorageError::io(&temporary, "open", e))?;
        // What a crash left there is not continued.
        uninterrupted(|| file.set_len(0)).map_err(|e| StorageError::io(&temporary, "truncate", e))?;
        Ok(Self { disk, to, temporary, file, failed: None })
    }

    /// The storage error that made a write fail, if one did.
    pub(crate) fn failure(&mut self) -> Option<StorageError> {
        self.failed.take()
    }

    pub(crate) fn sync(&mut self) -> Result<(), StorageError> {
        let file = &mut self.file;
        uninterrupted(|| file.sync()).map_err(|e| StorageError::io(&self.temporary, "fsync", e))
    }

    /// Renames it over the real name. Call [`Self::sync`] before.
    pub(crate) fn finish(self) -> Result<Box<dyn DiskFile>, StorageError> {
        rename_synced(self.disk, &self.temporary, self.to)?;
        Ok(self.file)
    }
}

impl Write for Replacement<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes).inspect_err(|error| {
            if error.kind() != io::ErrorKind::Interrupted {
                let cause = error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error);
                self.failed = Some(StorageError::io(&self.temporary, "write", cause));
            }
        })
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Puts `bytes` under `path` so that a reader sees the old file or the new one, never a part.
pub(crate) fn replace(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> Result<Box<dyn DiskFile>, StorageError> {
    let mut file = Replacement::begin(disk, path)?;
    if let Err(error) = file.write_all(bytes) {
        return Err(file.failure().unwrap_or_else(|| StorageError::io(path, "write", error)));
    }
    file.sync()?;
    file.finish()
}
