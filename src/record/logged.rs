//! A log in memory: what metrics, tables and a resume read.
use std::collections::{BTreeMap, HashMap};
use std::io::BufRead;
use std::path::Path;

use serde_json::{Map, Value};

use super::entry::{Entry, Header, LoggedEvent, LoggedHardware, Open, RowCounts};
use super::error::LogError;
use super::reader::LogReader;
use super::row::{Outcome, RequestRecord};
use crate::units::TimestampNs;

/// One process of a run: its clock, its machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Segment {
    /// Its number, from 0.
    pub number: u32,
    /// When and where.
    pub open: Open,
    /// How it ended; `None` after a crash, or while it is still being written.
    pub close: Option<String>,
}

/// A row and the segment on whose clock its times are.
#[derive(Debug, Clone, PartialEq)]
pub struct LoggedRow {
    /// Which segment.
    pub segment: u32,
    /// The row.
    pub record: RequestRecord,
}

/// A whole log.
#[derive(Debug, Clone, PartialEq)]
pub struct LoggedRun {
    /// The first line.
    pub header: Header,
    /// Every process that wrote to it.
    pub segments: Vec<Segment>,
    /// Every row, in the order of the file; see [`LoggedRun::live_rows`].
    pub rows: Vec<LoggedRow>,
    /// Every event; unknown kinds of line stand here as warnings.
    pub events: Vec<LoggedEvent>,
    /// Every sample of the hardware.
    pub hardware: Vec<LoggedHardware>,
    /// Measured live rows by outcome, once every cell is done.
    pub end: Option<RowCounts>,
    /// A crash cut the last line; the rest is whole.
    pub torn: bool,
}

/// Rows that are rerun together: arm, cell, repeat.
type Repeat<'a> = (&'a str, &'a str, u32);

/// Reads the log of a run directory. Nothing is changed there: a torn tail is only reported.
pub fn read_run(dir: &Path) -> Result<LoggedRun, LogError> {
    LoggedRun::read(&mut LogReader::open(dir)?, &dir.join("log.jsonl"))
}

impl LoggedRun {
    /// A run of which nothing is known but its header.
    pub fn new(header: Header) -> Self {
        Self {
            header,
            segments: Vec::new(),
            rows: Vec::new(),
            events: Vec::new(),
            hardware: Vec::new(),
            end: None,
            torn: false,
        }
    }

    /// Everything that `reader` still gives; `path` is its name in errors.
    pub fn read<R: BufRead>(reader: &mut LogReader<R>, path: &Path) -> Result<Self, LogError> {
        let mut run = match reader.next_entry()? {
            Some(Entry::Header(header)) => Self::new(*header),
            _ => return Err(LogError::Headerless { path: path.to_owned() }),
        };
        while let Some(entry) = reader.next_entry()? {
            let line = reader.lines();
            run.take(entry, line);
        }
        run.torn = reader.torn().is_some();
        Ok(run)
    }

    fn take(&mut self, entry: Entry, line: u64) {
        let segment = self.segments.last().map_or(0, |segment| segment.number);
        match entry {
            Entry::Header(_) => {} // the reader refuses a second one
            Entry::Open { segment, open } => self.segments.push(Segment { number: segment, open: *open, close: None }),
            Entry::Request(record) => self.rows.push(LoggedRow { segment, record: *record }),
            Entry::Hardware(sample) => self.hardware.push(sample),
            Entry::Event(event) => self.events.push(event),
            Entry::Close { reason } => {
                if let Some(segment) = self.segments.last_mut() {
                    segment.close = Some(reason);
                }
            }
            Entry::End { rows } => self.end = Some(rows),
            Entry::Unknown { kind } => {
                let message = format!("line {line} has the unknown kind `{kind}` and was left out");
                let t_ns = self.events.last().map_or(TimestampNs(0), |event| event.t_ns);
                let fields = Map::from_iter([("message".to_owned(), Value::from(message))]);
                self.events.push(LoggedEvent { segment, t_ns, what: "warning".into(), fields });
            }
        }
    }

    /// The rows that count, warm-up included, in the order of the file: of each (arm, cell, repeat) those of the highest attempt,
    /// and each key once (the last, should a log hold a key twice in one attempt).
    pub fn live_rows(&self) -> Vec<&RequestRecord> {
        let attempts = self.attempts();
        let mut place: HashMap<(Repeat<'_>, u32, bool), usize> = HashMap::new();
        let mut live: Vec<Option<&RequestRecord>> = Vec::new();
        for LoggedRow { record, .. } in &self.rows {
            let repeat = repeat_of(record);
            if attempts[&repeat] != record.attempt {
                continue;
            }
            if let Some(earlier) = place.insert((repeat, record.index, record.warmup), live.len()) {
                live[earlier] = None;
            }
            live.push(Some(record));
        }
        live.into_iter().flatten().collect()
    }

    /// Rows that a later attempt replaced.
    pub fn superseded(&self) -> usize {
        self.rows.len() - self.live_rows().len()
    }

    /// Measured live rows by outcome group.
    pub fn row_counts(&self) -> RowCounts {
        let mut counts = RowCounts::default();
        self.live_rows().iter().filter(|row| !row.warmup).for_each(|row| counts.count(row.outcome));
        counts
    }

    /// Whether (arm, cell, repeat) needs no rerun: its highest attempt holds all `requests` and `warmup` indices, and none of
    /// them was stopped by us.
    pub fn complete(&self, arm: &str, cell: &str, repeat: u32, requests: u32, warmup: u32) -> bool {
        let Some(attempt) = self.next_attempt(arm, cell, repeat).checked_sub(1) else {
            return requests == 0 && warmup == 0;
        };
        let mut seen: [std::collections::BTreeSet<u32>; 2] = Default::default();
        for record in self.rows_of(arm, cell, repeat).filter(|record| record.attempt == attempt) {
            if record.outcome == Outcome::Cancelled {
                return false;
            }
            seen[usize::from(record.warmup)].insert(record.index);
        }
        let all = |seen: &std::collections::BTreeSet<u32>, n: u32| seen.range(..n).count() == n as usize;
        all(&seen[0], requests) && all(&seen[1], warmup)
    }

    /// The attempt of a rerun of (arm, cell, repeat): one above the highest in the log, 0 where there is none.
    pub fn next_attempt(&self, arm: &str, cell: &str, repeat: u32) -> u32 {
        self.rows_of(arm, cell, repeat).map(|record| record.attempt.saturating_add(1)).max().unwrap_or(0)
    }

    /// Events that say that rows were lost or are not safe on the disk: one of them makes the run invalid (V7).
    pub fn storage_incidents(&self) -> impl Iterator<Item = &LoggedEvent> {
        self.events.iter().filter(|event| {
            event.what == "incident" && event.fields.get("cause").is_some_and(|cause| cause == "storage")
        })
    }

    fn rows_of<'a>(&'a self, arm: &'a str, cell: &'a str, repeat: u32) -> impl Iterator<Item = &'a RequestRecord> {
        let wanted = (repeat, cell, arm);
        self.rows.iter().map(|row| &row.record).filter(move |r| (r.repeat, r.cell.as_str(), r.arm.as_str()) == wanted)
    }

    fn attempts(&self) -> BTreeMap<Repeat<'_>, u32> {
        let mut attempts = BTreeMap::new();
        for LoggedRow { record, .. } in &self.rows {
            let highest = attempts.entry(repeat_of(record)).or_insert(record.attempt);
            *highest = record.attempt.max(*highest);
        }
        attempts
    }
}

fn repeat_of(record: &RequestRecord) -> Repeat<'_> {
    (&record.arm, &record.cell, record.repeat)
}
