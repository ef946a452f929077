//! `inferlab verify`: every line, every number, every text of a run, read from its start to its end in bounded memory.
use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::path::Path;

use serde::Serialize;

use super::entry::{Entry, RowCounts};
use super::error::{Fault, LogError};
use super::reader::LogReader;
use super::row::Outcome;
use super::texts::TextReader;
use super::writer::Tally;
use crate::request::RequestKey;

/// What verification found.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct VerifyReport {
    /// Whole lines of the log.
    pub lines: u64,
    /// Request rows among them.
    pub rows: u64,
    /// Rows that a later attempt replaced.
    pub superseded: u64,
    /// Segments.
    pub segments: u32,
    /// Every line but a torn last one has a right crc.
    pub crc_ok: bool,
    /// Lines are numbered without gaps.
    pub seq_ok: bool,
    /// Lines of texts.jsonl.
    pub texts: u64,
    /// Texts whose row is there.
    pub texts_matched: u64,
    /// Texts without a row of their own: a crash fell between the two, and the rerun wrote both again.
    pub texts_without_row: u64,
    /// Answered rows without a text in a run that keeps texts.
    pub rows_without_text: u64,
    /// Bytes behind the last whole line.
    pub torn_bytes: u64,
    /// The log has its end: every cell is done.
    pub ended: bool,
    /// Measured live rows by outcome.
    pub row_counts: RowCounts,
    /// What is wrong; empty for a sound log. A torn tail is not wrong.
    pub problems: Vec<String>,
}

impl VerifyReport {
    /// Nothing is wrong.
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty()
    }
}

/// Verifies the log and the texts in `dir`. What is wrong there stands in the report; `Err` is for what cannot be read at all.
pub fn verify_run(dir: &Path) -> Result<VerifyReport, LogError> {
    let mut report = VerifyReport { crc_ok: true, seq_ok: true, ..VerifyReport::default() };
    // 64-bit hashes stand for keys: two million of them collide with a chance of one in ten million.
    let hasher = RandomState::new();
    let hash = |key: &RequestKey, attempt: u32| hasher.hash_one((key, attempt));
    let mut texts = HashSet::new();
    if let Some(mut reader) = TextReader::open(dir)? {
        loop {
            match reader.next_text() {
                Ok(Some(text)) => {
                    report.texts += 1;
                    // A crash between a text and its row leaves a text that the rerun writes again; the later one counts.
                    texts.insert(hash(&text.key, text.attempt));
                }
                Ok(None) => break,
                Err(error @ LogError::Corrupt { .. }) => {
                    report.damaged(error);
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        report.torn_bytes += reader.torn().map_or(0, |torn| torn.bytes);
    }
    let mut log = LogReader::open(dir)?;
    let (mut rows, mut tally, mut end, mut keeps_text) = (HashSet::new(), Tally::default(), None, false);
    loop {
        match log.next_entry() {
            Ok(Some(Entry::Header(header))) => keeps_text = header.plan.text == "keep",
            Ok(Some(Entry::Open { segment, .. })) => report.segments = segment + 1,
            Ok(Some(Entry::Request(record))) => {
                report.rows += 1;
                tally.count(&record);
                let key = record.key();
                let id = hash(&key, record.attempt);
                if !rows.insert(id) {
                    report.problems.push(format!("{} stands twice in attempt {}", name(&key), record.attempt));
                } else if texts.contains(&id) {
                    report.texts_matched += 1;
                } else if keeps_text && record.outcome == Outcome::Ok {
                    report.rows_without_text += 1;
                }
            }
            Ok(Some(Entry::End { rows })) => end = Some(rows),
            Ok(Some(_)) => {}
            Ok(None) => break,
            Err(error @ LogError::Corrupt { .. }) => {
                report.damaged(error);
                break;
            }
            Err(error) => return Err(error),
        }
    }
    report.lines = log.lines();
    report.torn_bytes += log.torn().map_or(0, |torn| torn.bytes);
    report.texts_without_row = report.texts - report.texts_matched.min(report.texts);
    report.row_counts = tally.total();
    report.superseded = report.rows - tally.live().min(report.rows);
    report.ended = end.is_some();
    if report.lines == 0 {
        report.problems.push("log.jsonl holds no whole line".into());
    }
    if report.rows_without_text > 0 {
        report.problems.push(format!("{} answered rows have no text in texts.jsonl", report.rows_without_text));
    }
    if let Some(end) = end.filter(|end| *end != report.row_counts) {
        report.problems.push(format!("end counts {end:?}, the rows give {:?}", report.row_counts));
    }
    report.problems.truncate(100);
    Ok(report)
}

impl VerifyReport {
    fn damaged(&mut self, error: LogError) {
        if let LogError::Corrupt { fault, .. } = &error {
            self.crc_ok &= !matches!(fault, Fault::Crc | Fault::TooLong);
            self.seq_ok &= *fault != Fault::Seq;
        }
        self.problems.push(error.to_string());
    }
}

fn name(key: &RequestKey) -> String {
    let kind = if key.warmup { "warm-up" } else { "request" };
    super::line::printable(&format!("{} / {} / repeat {} / {kind} {}", key.arm, key.cell, key.repeat, key.index))
}
