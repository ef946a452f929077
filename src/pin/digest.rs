//! Digests of files, and stamps that spare reading an unchanged file again.
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use md5::Md5;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// A file modified this recently could change again without its time changing, so it is not stamped.
const SETTLED: Duration = Duration::from_secs(2);
/// A stamp is a few hundred bytes.
const STAMP_LIMIT: u64 = 64 << 10;

/// Size and digests of a file; digests in lower-case hex.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Digests {
    /// Size in bytes.
    pub bytes: u64,
    /// md5.
    pub md5: String,
    /// sha256, where it was asked for.
    pub sha256: Option<String>,
}

/// Reads the whole file and hashes it.
///
/// `progress` is told the bytes read so far.
pub fn hash_file(path: &Path, with_sha256: bool, progress: &dyn Fn(u64)) -> io::Result<Digests> {
    let mut file = File::open(path)?;
    let (mut md5, mut sha256) = (Md5::new(), with_sha256.then(Sha256::new));
    let mut buffer = vec![0; 1 << 20];
    let mut bytes = 0;
    loop {
        let read = match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        md5.update(&buffer[..read]);
        if let Some(sha256) = &mut sha256 {
            sha256.update(&buffer[..read]);
        }
        bytes += read as u64;
        progress(bytes);
    }
    Ok(Digests { bytes, md5: hex(&md5.finalize()), sha256: sha256.map(|s| hex(&s.finalize())) })
}

/// What identifies an unchanged file without reading it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Stamp {
    path: PathBuf,
    bytes: u64,
    modified_ns: u128,
    changed_ns: i128,
    inode: u64,
    md5: String,
}

/// md5 of a file in lower-case hex; taken from the stamp under `cache` when size, times and inode are those of the last reading.
///
/// A stamp that cannot be written is no error: the file is read again next time.
pub fn stamped_md5(cache: &Path, path: &Path) -> io::Result<String> {
    let path = path.canonicalize()?;
    let folder = cache.join("stamps");
    let stamp_path = folder.join(format!("{}.json", hex(&Md5::digest(path.as_os_str().as_encoded_bytes()))));
    let now = Stamp::of(&path, String::new())?;
    if let Some(stamp) = read_stamp(&stamp_path)
        && now == (Stamp { md5: String::new(), ..stamp.clone() })
        && is_hex(&stamp.md5, 32)
    {
        return Ok(stamp.md5);
    }
    let digests = hash_file(&path, false, &|_| {})?;
    let after = Stamp::of(&path, String::new())?;
    if after == now && now.settled() {
        let stamp = Stamp { md5: digests.md5.clone(), ..now };
        write_stamp(&folder, &stamp_path, &stamp).ok();
    }
    Ok(digests.md5)
}

impl Stamp {
    fn of(path: &Path, md5: String) -> io::Result<Self> {
        let metadata = path.metadata()?;
        let modified = metadata.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(Self {
            path: path.to_owned(),
            bytes: metadata.len(),
            modified_ns: modified.as_nanos(),
            changed_ns: i128::from(metadata.ctime()) * 1_000_000_000 + i128::from(metadata.ctime_nsec()),
            inode: metadata.ino(),
            md5,
        })
    }

    fn settled(&self) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let touched = self.modified_ns.max(u128::try_from(self.changed_ns).unwrap_or(0));
        now.saturating_sub(touched) > SETTLED.as_nanos()
    }
}

fn read_stamp(path: &Path) -> Option<Stamp> {
    let mut text = String::new();
    File::open(path).ok()?.take(STAMP_LIMIT).read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

fn write_stamp(folder: &Path, path: &Path, stamp: &Stamp) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let temporary = path.with_extension(format!("{}.tmp", std::process::id()));
    std::fs::write(&temporary, serde_json::to_vec(stamp)?)?;
    std::fs::rename(&temporary, path)
}

/// Bytes in lower-case hex.
pub(super) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a String takes every write");
        text
    })
}

/// Whether `text` is `digits` lower-case hex digits.
pub(super) fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_those_of_rfc_1321_and_fips_180() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("abc");
        std::fs::write(&path, "abc").unwrap();
        let digests = hash_file(&path, true, &|_| {}).unwrap();
        assert_eq!(digests.md5, "900150983cd24fb0d6963f7d28e17f72");
        assert_eq!(digests.sha256.as_deref(), Some("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"));
        assert_eq!(digests.bytes, 3);
    }

    #[test]
    fn a_stamp_is_believed_only_while_the_file_keeps_size_times_and_inode() {
        let folder = tempfile::tempdir().unwrap();
        let (cache, path) = (folder.path().join("cache"), folder.path().join("abc"));
        std::fs::write(&path, "abc").unwrap();
        // A fresh file is read each time: no stamp may be left behind.
        assert_eq!(stamped_md5(&cache, &path).unwrap(), "900150983cd24fb0d6963f7d28e17f72");
        assert!(!cache.join("stamps").exists());

        // A stamp with the file's own marks is believed: the made-up md5 in it shows that the file was not read.
        let path = path.canonicalize().unwrap();
        let stamps = cache.join("stamps");
        let stamp_path = stamps.join(format!("{}.json", hex(&Md5::digest(path.as_os_str().as_encoded_bytes()))));
        let made_up = "0".repeat(32);
        write_stamp(&stamps, &stamp_path, &Stamp::of(&path, made_up.clone()).unwrap()).unwrap();
        assert_eq!(stamped_md5(&cache, &path).unwrap(), made_up);

        std::fs::write(&path, "abd").unwrap();
        File::options().write(true).open(&path).unwrap().set_modified(SystemTime::now() - SETTLED * 9).unwrap();
        assert_eq!(stamped_md5(&cache, &path).unwrap(), "4911e516e5aa21d327512e0c8b197616", "printf abd | md5sum");
    }

    #[test]
    fn a_damaged_stamp_is_no_stamp() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stamp.json");
        std::fs::write(&path, b"{\"path\":\xff").unwrap();
        assert_eq!(read_stamp(&path), None);
        assert_eq!(read_stamp(&folder.path().join("absent")), None);
    }
}
