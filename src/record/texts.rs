//! `texts.jsonl`: what the model said, one line a request, each sealed like a line of the log.
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::error::{Fault, LogError, StorageError};
use super::line::{self, printable};
use super::reader::{SealedLines, Torn};
use super::row::{RequestRecord, ResponseText};
use crate::request::RequestKey;

/// Text of one request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoggedText {
    /// Which row it belongs to.
    pub key: RequestKey,
    /// Which attempt.
    pub attempt: u32,
    /// What the model said.
    #[serde(flatten)]
    pub text: ResponseText,
}

/// The sealed line of `text`, which belongs to `record`.
pub(super) fn text_line(record: &RequestRecord, text: ResponseText) -> Vec<u8> {
    let logged = LoggedText { key: record.key(), attempt: record.attempt, text };
    // Strings and counts always have a JSON form.
    let mut line = serde_json::to_vec(&logged).expect("text is writable");
    line::seal(&mut line);
    line
}

/// The texts of a run, one by one.
#[derive(Debug)]
pub struct TextReader<R> {
    lines: SealedLines<R>,
}

impl TextReader<BufReader<File>> {
    /// Opens `dir/texts.jsonl`; `None` where no text was kept.
    pub fn open(dir: &Path) -> Result<Option<Self>, LogError> {
        let path = dir.join("texts.jsonl");
        match File::open(&path) {
            Ok(file) => Ok(Some(Self::new(BufReader::with_capacity(1 << 16, file), &path))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(StorageError::io(&path, "open", error).into()),
        }
    }
}

impl<R: BufRead> TextReader<R> {
    /// Reads texts from `reader`; `path` is only its name in errors.
    pub fn new(reader: R, path: &Path) -> Self {
        Self { lines: SealedLines::new(reader, path) }
    }

    /// The next text; `None` at the end.
    pub fn next_text(&mut self) -> Result<Option<LoggedText>, LogError> {
        let Some((place, line)) = self.lines.next()? else {
            return Ok(None);
        };
        match serde_json::from_slice(line) {
            Ok(text) => Ok(Some(text)),
            Err(error) => {
                let detail = printable(&error.to_string());
                Err(self.lines.corrupt(place, Fault::Content, detail))
            }
        }
    }

    /// What a crash left behind the last whole line; known at the end.
    pub fn torn(&self) -> Option<Torn> {
        self.lines.torn
    }

    pub(super) fn tail(&self) -> (u64, bool) {
        (self.lines.whole, self.lines.unterminated)
    }
}
