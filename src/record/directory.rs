//! Names of run directories, and the lock that keeps a second process out.
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use sha2::{Digest, Sha256};

use super::error::StorageError;

/// Longest part of an id that is kept in a file name.
const SLUG: usize = 80;

/// A file name for an id from outside: letters, digits, `.`, `_` and `-` only, never hidden, never an option, never a device.
///
/// An id that is such a name already stays as it is; any other gets `-` and 8 hex digits of its SHA-256 behind at most 80 characters,
/// so that two ids never share a folder, also where a file system ignores case.
pub fn slug(id: &str) -> String {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let plain = |c: char| allowed(c) && !c.is_ascii_uppercase();
    let stem = id.split('.').next().unwrap_or_default().to_ascii_uppercase();
    let device = matches!(stem.as_str(), "CON" | "PRN" | "AUX" | "NUL")
        || stem.len() == 4 && (stem.starts_with("COM") || stem.starts_with("LPT"));
    let edge = |c: char| c == '.' || c == '-';
    // A name that looks as if it had a hash could be the slug of another id.
    let hashed = id.len() > 9 && {
        let tail = &id.as_bytes()[id.len() - 9..];
        tail[0] == b'-' && tail[1..].iter().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(b))
    };
    if !id.is_empty()
        && id.len() <= SLUG
        && id.chars().all(plain)
        && !id.starts_with(edge)
        && !id.ends_with(edge)
        && !device
        && !hashed
    {
        return id.to_owned();
    }
    let digest = Sha256::digest(id.as_bytes());
    let hash: String = digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    let kept: String = id.chars().map(|c| if allowed(c) { c } else { '_' }).take(SLUG).collect();
    let kept = kept.trim_start_matches(edge).trim_end_matches(edge);
    let front = if kept.is_empty() || device { "x" } else { "" };
    format!("{front}{kept}-{hash}")
}

/// Name of a run: the last part of its directory, also for `.` and paths that end in a slash.
pub fn run_name(dir: &Path) -> String {
    let whole = std::fs::canonicalize(dir).unwrap_or_else(|_| dir.to_path_buf());
    whole.file_name().map_or_else(|| "run".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// `<slug of name>-<UTC start>-<6 hex of identity>`, as `quickstart-20261130T214500Z-3f9a1c`.
pub fn directory_name(name: &str, start: SystemTime, identity: &str) -> String {
    let utc = humantime::format_rfc3339_seconds(start).to_string().replace(['-', ':'], "");
    let identity: String = identity.chars().filter(char::is_ascii_hexdigit).take(6).collect();
    format!("{}-{utc}-{}", slug(name), identity.to_ascii_lowercase())
}

/// Makes a new directory for a run under `runs`. A second run within the same second gets `-2` behind its name.
pub fn create_directory(runs: &Path, name: &str, identity: &str) -> Result<PathBuf, StorageError> {
    fs::create_dir_all(runs).map_err(|e| StorageError::io(runs, "mkdir", e))?;
    let name = directory_name(name, SystemTime::now(), identity);
    let mut n = 1;
    loop {
        let dir = if n == 1 { runs.join(&name) } else { runs.join(format!("{name}-{n}")) };
        match fs::create_dir(&dir) {
            Ok(()) => return Ok(dir),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && n < 1000 => n += 1,
            Err(error) => return Err(StorageError::io(&dir, "mkdir", error)),
        }
    }
}

/// Bytes that an ordinary user may still write to the file system of `path`, for the check before a run.
pub fn free_bytes(path: &Path) -> Result<u64, StorageError> {
    let stat = rustix::fs::statvfs(path).map_err(|e| StorageError::io(path, "statvfs", e.into()))?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// How long a held lock is asked for again before it is taken as another writer's.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);

/// The lock on a run directory: held as long as this lives, and let go by the system when the process dies, however it dies.
#[derive(Debug)]
pub(super) struct DirectoryLock {
    _file: File,
}

impl DirectoryLock {
    pub(super) fn take(dir: &Path) -> Result<Self, StorageError> {
        let path = dir.join("lock");
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(&path)
            .map_err(|e| StorageError::io(&path, "open", e))?;
        // A process that was just killed, or a child that is between fork and exec with our files still open, holds the lock for a moment.
        let patience = Instant::now() + LOCK_PATIENCE;
        let locked = loop {
            match file.try_lock() {
                Err(TryLockError::WouldBlock) if Instant::now() < patience => {
                    std::thread::sleep(Duration::from_millis(20))
                }
                other => break other,
            }
        };
        match locked {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut pid = String::new();
                let _ = Read::by_ref(&mut file).take(20).read_to_string(&mut pid);
                let holder = pid.trim().parse::<u32>().map(|pid| format!(" (pid {pid})")).unwrap_or_default();
                return Err(StorageError::Locked { path: dir.display().to_string(), holder });
            }
            Err(TryLockError::Error(error)) => return Err(StorageError::io(&path, "lock", error)),
        }
        // The pid only helps whoever is refused; on a full disk the lock holds without it.
        let _ = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| writeln!(file, "{}", std::process::id()));
        Ok(Self { _file: file })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_directory_is_named_by_name_start_and_identity() {
        // 2026-11-30T21:45:00Z is 1 796 075 100 s after the epoch (`date -u -d 2026-11-30T21:45:00Z +%s`).
        let start = SystemTime::UNIX_EPOCH + Duration::from_secs(1_796_075_100);
        assert_eq!(directory_name("quickstart", start, "3f9a1c77aa"), "quickstart-20261130T214500Z-3f9a1c");
    }

    #[test]
    fn hostile_names_become_distinct_plain_file_names() {
        let mut ids: Vec<String> = [
            "..",
            ".",
            "",
            "/",
            "/etc/passwd",
            "../../x",
            "a/b",
            "a\\b",
            "a:b",
            "a_b",
            "a b",
            "-rf",
            ".hidden",
            "dot.",
            "CON",
            "con",
            "nul.txt",
            "com1",
            "模型/一",
            "模型/二",
            "x\0y",
            "x\ny",
            "x_y",
            "Model",
            "model",
            "MODEL",
            "\u{202e}abc",
            "a_b-0123abcd",
            "$(id)",
            "`id`",
            "a;b",
            "a*",
        ]
        .map(String::from)
        .to_vec();
        ids.push("x".repeat(300));
        ids.push("x".repeat(301));
        ids.push(slug("a:b"));
        ids.push(slug("Model"));
        ids.extend((0..200).map(|n| format!("../{}{n}\u{0}", "é/".repeat(n))));
        let mut seen = HashSet::new();
        for id in &ids {
            let name = slug(id);
            assert!(name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b)), "{id:?} → {name}");
            assert!(
                !name.is_empty() && name.len() <= 90 && !name.starts_with(['.', '-']) && !name.ends_with('.'),
                "{id:?} → {name}"
            );
            let device = name.split('.').next().unwrap_or_default().to_ascii_uppercase();
            assert!(!["CON", "PRN", "AUX", "NUL", "COM1"].contains(&device.as_str()), "{id:?} → {name}");
            assert!(seen.insert(name.to_ascii_lowercase()), "{id:?} shares {name}");
        }
    }

    #[test]
    fn two_runs_of_one_second_do_not_share_a_directory() {
        let runs = tempfile::tempdir().expect("a temporary folder");
        let a = create_directory(&runs.path().join("deep/runs"), "../x", "3f9a1c").expect("first");
        let b = create_directory(&runs.path().join("deep/runs"), "../x", "3f9a1c").expect("second");
        assert_ne!(a, b);
        assert!(a.starts_with(runs.path().join("deep/runs")) && b.starts_with(runs.path().join("deep/runs")));
    }
}
