//! Opening a run again after a crash: check whose it is, heal its tail, read what it holds.
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use super::disk::{Appender, Disk};
use super::entry::Header;
use super::error::{LogError, StorageError};
use super::line::printable;
use super::logged::LoggedRun;
use super::reader::{LogReader, Torn};
use super::texts::TextReader;

/// A log ready for its next segment.
pub(super) struct Healed {
    pub(super) run: LoggedRun,
    pub(super) log: Appender,
    pub(super) texts: Option<Appender>,
    pub(super) seq: u64,
    /// Files whose tail was cut, and how many bytes.
    pub(super) cut: Vec<(&'static str, u64)>,
}

/// Reads the run in `dir` and leaves its files ending with a whole line. Call with the directory locked.
pub(super) fn heal(
    dir: &Path,
    identity: &str,
    parts: &BTreeMap<String, String>,
    disk: &dyn Disk,
) -> Result<Healed, LogError> {
    let log_path = dir.join("log.jsonl");
    let mut reader = LogReader::open(dir)?;
    let run = LoggedRun::read(&mut reader, &log_path)?;
    check_identity(dir, &run.header, identity, parts)?;
    if run.end.is_some() {
        return Err(LogError::Ended { dir: dir.to_owned() });
    }
    let mut texts_read = TextReader::open(dir)?;
    if let Some(texts) = &mut texts_read {
        while texts.next_text()?.is_some() {}
    }
    let mut cut = Vec::new();
    let tail = Tail { whole: reader.whole_bytes(), unterminated: reader.unterminated(), torn: reader.torn() };
    cut.extend(reader.torn().map(|torn| ("log.jsonl", torn.bytes)));
    let log = mend(disk, &log_path, &dir.join("log.torn"), tail)?;
    let texts = match &texts_read {
        None => None,
        Some(texts) => {
            let (whole, unterminated) = texts.tail();
            cut.extend(texts.torn().map(|torn| ("texts.jsonl", torn.bytes)));
            let tail = Tail { whole, unterminated, torn: texts.torn() };
            Some(mend(disk, &dir.join("texts.jsonl"), &dir.join("texts.torn"), tail)?)
        }
    };
    Ok(Healed { seq: reader.lines(), run, log, texts, cut })
}

/// What stands behind the last LF of a file.
struct Tail {
    whole: u64,
    unterminated: bool,
    torn: Option<Torn>,
}

/// Moves a torn tail to `aside` (appended, never overwritten), or ends an unterminated whole line with its LF.
fn mend(disk: &dyn Disk, path: &Path, aside: &Path, tail: Tail) -> Result<Appender, StorageError> {
    let mut file = Appender::open(disk, path, tail.whole)?;
    if let Some(torn) = tail.torn {
        set_aside(disk, path, aside, torn)?;
        file.cut()?;
        file.sync()?;
    } else if tail.unterminated {
        file.append(b"\n")?;
        file.sync()?;
    }
    Ok(file)
}

fn set_aside(disk: &dyn Disk, path: &Path, aside: &Path, torn: Torn) -> Result<(), StorageError> {
    let read = |e| StorageError::io(path, "read", e);
    let mut source = File::open(path).map_err(read)?;
    source.seek(SeekFrom::Start(torn.offset)).map_err(read)?;
    let length = aside.metadata().map_or(0, |metadata| metadata.len());
    let mut target = Appender::open(disk, aside, length)?;
    let mut source = source.take(torn.bytes);
    let mut buffer = vec![0; 1 << 16];
    loop {
        let n = source.read(&mut buffer).map_err(read)?;
        if n == 0 {
            break;
        }
        target.append(&buffer[..n])?;
    }
    target.append(b"\n")?;
    // Safe on its own before it is cut off there.
    target.sync()
}

/// Refuses a run of another experiment and names what differs.
fn check_identity(dir: &Path, header: &Header, hex: &str, parts: &BTreeMap<String, String>) -> Result<(), LogError> {
    let logged = &header.identity_parts;
    let same_parts = logged.is_empty() || parts.is_empty() || logged == parts;
    if header.identity == hex && same_parts {
        return Ok(());
    }
    let names: std::collections::BTreeSet<&String> = logged.keys().chain(parts.keys()).collect();
    let value = |side: &BTreeMap<String, String>, name: &str| {
        side.get(name).map_or_else(|| "absent".to_owned(), |value| format!("`{}`", printable(value)))
    };
    let mut keys: Vec<String> = names
        .into_iter()
        .filter(|name| logged.get(*name) != parts.get(*name))
        .map(|name| format!("{} was {} and is {}", printable(name), value(logged, name), value(parts, name)))
        .collect();
    if keys.is_empty() {
        keys.push("the log does not say which keys".into());
    }
    Err(LogError::OtherIdentity {
        dir: dir.to_owned(),
        logged: printable(&header.identity),
        found: hex.to_owned(),
        keys,
    })
}
