//! Reading a log line by line, in bounded memory, trusting nothing.
use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Map, Value};

use super::entry::{Entry, Header, LoggedEvent, LoggedHardware, Open, RowCounts, SCHEMA};
use super::error::{Fault, LogError, StorageError};
use super::line::{self, MAX_LINE, printable};
use super::row::RequestRecord;
use crate::units::TimestampNs;

/// Longest event or hardware line: these become trees of JSON values, some 30 times their text in memory.
const MAX_TREE_LINE: usize = 1 << 20;

/// What stands behind the last whole line: what a crash left of the line it cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Torn {
    /// Where it starts.
    pub offset: u64,
    /// Its length.
    pub bytes: u64,
}

/// Where a line stands.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) number: u64,
    pub(super) offset: u64,
}

/// Whole lines of a file whose every line is sealed by a CRC.
#[derive(Debug)]
pub(super) struct SealedLines<R> {
    path: PathBuf,
    reader: R,
    buffer: Vec<u8>,
    /// Lines read.
    pub(super) lines: u64,
    /// Bytes of whole lines read.
    pub(super) whole: u64,
    /// The last line is whole but has no LF.
    pub(super) unterminated: bool,
    pub(super) torn: Option<Torn>,
    ended: bool,
}

impl<R: BufRead> SealedLines<R> {
    pub(super) fn new(reader: R, path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            reader,
            buffer: Vec::new(),
            lines: 0,
            whole: 0,
            unterminated: false,
            torn: None,
            ended: false,
        }
    }

    /// The next whole line without its LF, checked. `None` at the end; then `torn` says what was left over.
    pub(super) fn next(&mut self) -> Result<Option<(Place, &[u8])>, LogError> {
        if self.ended {
            return Ok(None);
        }
        let place = Place { number: self.lines + 1, offset: self.whole };
        let (bytes, terminated) = self.read_raw()?;
        if bytes == 0 {
            self.ended = true;
            return Ok(None);
        }
        let too_long = bytes > MAX_LINE as u64;
        let verdict = if too_long { Err(String::new()) } else { line::check(&self.buffer) };
        match (verdict, terminated) {
            (Ok(()), _) => {
                self.lines += 1;
                self.whole += bytes;
                self.unterminated = !terminated;
                self.ended = !terminated;
                Ok(Some((place, &self.buffer)))
            }
            (Err(_), false) => {
                self.torn = Some(Torn { offset: place.offset, bytes });
                self.ended = true;
                Ok(None)
            }
            (Err(_), true) if too_long => {
                Err(self.corrupt(place, Fault::TooLong, format!("it has {bytes} bytes, more than {MAX_LINE}")))
            }
            (Err(detail), true) => Err(self.corrupt(place, Fault::Crc, detail)),
        }
    }

    /// Fills the buffer up to the next LF. Of a line over the bound only the length is kept.
    fn read_raw(&mut self) -> Result<(u64, bool), LogError> {
        self.buffer.clear();
        let mut bytes = 0;
        loop {
            let chunk = match self.reader.fill_buf() {
                Ok(chunk) => chunk,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(StorageError::io(&self.path, "read", error).into()),
            };
            if chunk.is_empty() {
                return Ok((bytes, false));
            }
            let end = chunk.iter().position(|&byte| byte == b'\n');
            let text = &chunk[..end.unwrap_or(chunk.len())];
            let used = end.map_or(chunk.len(), |at| at + 1);
            if bytes + used as u64 <= MAX_LINE as u64 {
                self.buffer.extend_from_slice(text);
            }
            bytes += used as u64;
            self.reader.consume(used);
            if end.is_some() {
                return Ok((bytes, true));
            }
        }
    }

    pub(super) fn corrupt(&mut self, place: Place, fault: Fault, detail: String) -> LogError {
        self.ended = true;
        LogError::Corrupt { path: self.path.clone(), line: place.number, offset: place.offset, fault, detail }
    }
}

/// The members that say what a line is.
#[derive(Deserialize)]
struct Head<'a> {
    seq: u64,
    #[serde(borrow)]
    kind: Cow<'a, str>,
}

/// Only what must be known before a header of an unknown schema is read.
#[derive(Deserialize)]
struct SchemaOnly {
    schema: u32,
    #[serde(default)]
    program: String,
}

#[derive(Deserialize)]
struct OpenLine {
    segment: u32,
    #[serde(flatten)]
    open: Open,
}

#[derive(Deserialize)]
struct CloseLine {
    reason: String,
}

#[derive(Deserialize)]
struct EndLine {
    rows: RowCounts,
    #[serde(default)]
    issued: Option<u64>,
}

/// A log, entry by entry.
#[derive(Debug)]
pub struct LogReader<R> {
    lines: SealedLines<R>,
    /// Segments opened so far.
    segments: u32,
    header_seen: bool,
}

impl LogReader<BufReader<File>> {
    /// Opens `dir/log.jsonl` for reading only.
    pub fn open(dir: &Path) -> Result<Self, LogError> {
        let path = dir.join("log.jsonl");
        match File::open(&path) {
            Ok(file) => Ok(Self::new(BufReader::with_capacity(1 << 16, file), &path)),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                Err(LogError::NotARun { dir: dir.to_owned() })
            }
            Err(error) => Err(StorageError::io(&path, "open", error).into()),
        }
    }
}

impl<R: BufRead> LogReader<R> {
    /// Reads a log from `reader`; `path` is only its name in errors.
    pub fn new(reader: R, path: &Path) -> Self {
        Self { lines: SealedLines::new(reader, path), segments: 0, header_seen: false }
    }

    /// Lines read so far.
    pub fn lines(&self) -> u64 {
        self.lines.lines
    }

    /// Bytes of whole lines read so far.
    pub fn whole_bytes(&self) -> u64 {
        self.lines.whole
    }

    /// The last line was whole but had no LF.
    pub fn unterminated(&self) -> bool {
        self.lines.unterminated
    }

    /// What a crash left behind the last whole line; known at the end.
    pub fn torn(&self) -> Option<Torn> {
        self.lines.torn
    }

    /// The next entry; `None` at the end of whole lines.
    ///
    /// Errors: a bad line with a line behind it, a gap or a double `seq`, an order that no log has ([`LogError::Corrupt`] with line and
    /// byte), a newer schema, or the disk.
    pub fn next_entry(&mut self) -> Result<Option<Entry>, LogError> {
        let path = self.lines.path.clone();
        let Some((place, line)) = self.lines.next()? else {
            return Ok(None);
        };
        let expected = place.number - 1;
        let parsed = parse(line, expected, self.segments, self.header_seen);
        match parsed {
            Ok(entry) => {
                match &entry {
                    Entry::Header(_) => self.header_seen = true,
                    Entry::Open { .. } => self.segments += 1,
                    _ => {}
                }
                Ok(Some(entry))
            }
            Err(Refused::Corrupt(fault, detail)) => Err(self.lines.corrupt(place, fault, detail)),
            Err(Refused::Newer { found, program }) => {
                Err(LogError::NewerSchema { path, found, known: SCHEMA, program: printable(&program) })
            }
        }
    }
}

enum Refused {
    Corrupt(Fault, String),
    Newer { found: u32, program: String },
}

fn content(kind: &str, detail: impl std::fmt::Display) -> Refused {
    Refused::Corrupt(Fault::Content, format!("{kind}: {}", printable(&detail.to_string())))
}

fn parse(line: &[u8], expected: u64, segments: u32, header_seen: bool) -> Result<Entry, Refused> {
    let head: Head = serde_json::from_slice(line).map_err(|e| content("no line of a log", e))?;
    if head.seq != expected {
        let what = if head.seq < expected { "seen before" } else { "after a gap" };
        return Err(Refused::Corrupt(Fault::Seq, format!("its seq is {} where {expected} belongs: {what}", head.seq)));
    }
    let kind = head.kind.as_ref();
    let order = |wrong: bool, why: &str| if wrong { Err(content(kind, why)) } else { Ok(()) };
    order((kind == "header") != (expected == 0), "the header is the first line and only that")?;
    debug_assert_eq!(header_seen, expected != 0);
    order(segments == 0 && !matches!(kind, "header" | "open"), "stands before the first segment is opened")?;
    let segment = segments.saturating_sub(1);
    Ok(match kind {
        "header" => {
            let SchemaOnly { schema: found, program } = serde_json::from_slice(line).map_err(|e| content(kind, e))?;
            if found > SCHEMA {
                return Err(Refused::Newer { found, program });
            }
            Entry::Header(Box::new(serde_json::from_slice::<Header>(line).map_err(|e| content(kind, e))?))
        }
        "open" => {
            let OpenLine { segment, open } = serde_json::from_slice(line).map_err(|e| content(kind, e))?;
            order(segment != segments, "segments count from 0 without gaps")?;
            Entry::Open { segment, open: Box::new(open) }
        }
        "request" => {
            Entry::Request(Box::new(serde_json::from_slice::<RequestRecord>(line).map_err(|e| content(kind, e))?))
        }
        "event" => {
            let (t_ns, mut fields) = tree(kind, line)?;
            let Some(Value::String(what)) = fields.shift_remove("what") else {
                return Err(content(kind, "`what` is missing"));
            };
            Entry::Event(LoggedEvent { segment, t_ns, what, fields })
        }
        "hardware" => {
            let (t_ns, fields) = tree(kind, line)?;
            Entry::Hardware(LoggedHardware { segment, t_ns, fields })
        }
        "close" => {
            let CloseLine { reason } = serde_json::from_slice(line).map_err(|e| content(kind, e))?;
            Entry::Close { reason }
        }
        "end" => {
            let EndLine { rows, issued } = serde_json::from_slice(line).map_err(|e| content(kind, e))?;
            let sum = [rows.ok, rows.failed, rows.cancelled, rows.shed].iter().try_fold(0u64, |a, b| a.checked_add(*b));
            order(
                sum.is_none() || issued.is_some_and(|n| Some(n) != sum),
                "issued = ok + failed + cancelled + shed does not hold",
            )?;
            Entry::End { rows }
        }
        other => Entry::Unknown { kind: printable(other) },
    })
}

/// The time of an event or a sample, and its members apart from those of every line.
fn tree(kind: &str, line: &[u8]) -> Result<(TimestampNs, Map<String, Value>), Refused> {
    if line.len() > MAX_TREE_LINE {
        return Err(Refused::Corrupt(
            Fault::TooLong,
            format!("{kind}: {} bytes, more than {MAX_TREE_LINE}", line.len()),
        ));
    }
    let mut fields: Map<String, Value> = serde_json::from_slice(line).map_err(|e| content(kind, e))?;
    for member in ["seq", "kind", "crc"] {
        fields.shift_remove(member);
    }
    match fields.shift_remove("t_ns").as_ref().and_then(Value::as_i64) {
        Some(t_ns) => Ok((TimestampNs(t_ns), fields)),
        None => Err(content(kind, "`t_ns` is missing")),
    }
}
