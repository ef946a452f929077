//! The thread that owns the files of a run and appends to them.
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::disk::{Appender, Disk, sync_parent};
use super::entry::{RowCounts, flat_body};
use super::error::StorageError;
use super::line::{bounded, numbered};
use super::log::{Closed, LogHealth, RowObserver};
use super::row::{RequestRecord, ResponseText};
use super::texts::text_line;
use crate::units::{Clock, TimestampNs};

/// What the writer is asked.
pub(super) enum Message {
    Row {
        record: Box<RequestRecord>,
        text: Option<Box<ResponseText>>,
        reply: Option<SyncSender<Result<u64, StorageError>>>,
    },
    Event {
        t_ns: TimestampNs,
        what: String,
        fields: Value,
    },
    Hardware {
        sample: Value,
    },
    Close {
        reason: String,
        reply: SyncSender<Result<Closed, StorageError>>,
    },
}

/// What the load generator and the writer both see.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// Rows handed in.
    pub(super) handed: AtomicU64,
    /// Rows whose append returned.
    pub(super) appended: AtomicU64,
    /// Rows that found the queue full.
    pub(super) rows_refused: AtomicU64,
    /// Events and samples that found the queue full.
    pub(super) lines_refused: AtomicU64,
    health: Mutex<LogHealth>,
}

impl Shared {
    /// The state now.
    pub(super) fn health(&self) -> LogHealth {
        let mut health = self.health.lock().unwrap_or_else(PoisonError::into_inner).clone();
        health.rows_lost += self.rows_refused.load(Ordering::Relaxed);
        health.lines_lost += self.lines_refused.load(Ordering::Relaxed);
        health
    }

    fn note(&self, change: impl FnOnce(&mut LogHealth)) {
        change(&mut self.health.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Rows of one (arm, cell, repeat) in its highest attempt.
struct Group {
    arm: String,
    cell: String,
    repeat: u32,
    attempt: u32,
    rows: RowCounts,
    warmup: u64,
}

/// Measured live rows, counted as they are written: small also after millions of rows.
#[derive(Default)]
pub(super) struct Tally {
    groups: Vec<Group>,
}

impl Tally {
    pub(super) fn count(&mut self, record: &RequestRecord) {
        let same = |g: &&mut Group| g.repeat == record.repeat && g.cell == record.cell && g.arm == record.arm;
        // The group at hand is nearly always the last one.
        let group = match self.groups.iter_mut().rev().find(same) {
            Some(group) => group,
            None => {
                self.groups.push(Group {
                    arm: record.arm.clone(),
                    cell: record.cell.clone(),
                    repeat: record.repeat,
                    attempt: record.attempt,
                    rows: RowCounts::default(),
                    warmup: 0,
                });
                self.groups.last_mut().expect("a group was just pushed")
            }
        };
        if record.attempt > group.attempt {
            (group.attempt, group.rows, group.warmup) = (record.attempt, RowCounts::default(), 0);
        }
        if record.attempt < group.attempt {
            return;
        }
        if record.warmup {
            group.warmup += 1;
        } else {
            group.rows.count(record.outcome);
        }
    }

    /// Live rows, warm-up included.
    pub(super) fn live(&self) -> u64 {
        self.groups.iter().map(|group| group.rows.issued() + group.warmup).sum()
    }

    pub(super) fn total(&self) -> RowCounts {
        let mut total = RowCounts::default();
        self.groups.iter().for_each(|group| total.add(group.rows));
        total
    }
}

/// How often the writer makes rows last.
#[derive(Debug, Clone, Copy)]
pub(super) struct SyncPolicy {
    pub(super) lines: usize,
    pub(super) interval: Duration,
}

pub(super) struct Writer {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) log: Appender,
    pub(super) log_path: PathBuf,
    pub(super) texts: Option<Appender>,
    pub(super) texts_path: PathBuf,
    pub(super) seq: u64,
    pub(super) segment: u32,
    pub(super) clock: Clock,
    pub(super) shared: Arc<Shared>,
    pub(super) policy: SyncPolicy,
    pub(super) observer: Option<Box<dyn RowObserver>>,
    pub(super) tally: Tally,
    /// Lines since the last sync, and when the first of them was written.
    pub(super) unsynced: usize,
    pub(super) since: Instant,
    /// The last health that stands in the log as an event.
    pub(super) told: LogHealth,
}

impl Writer {
    /// Takes messages until the log is closed or its owner is gone.
    pub(super) fn run(mut self, messages: Receiver<Message>) {
        let mut tick = Instant::now();
        loop {
            let message = match messages.recv_timeout(self.policy.interval) {
                Ok(Message::Close { reason, reply }) => {
                    let _ = reply.send(self.close(&reason));
                    return;
                }
                Ok(message) => Some(message),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => {
                    self.tell_incidents();
                    self.sync();
                    return;
                }
            };
            if let Some(message) = message {
                self.take(message);
            }
            if self.unsynced >= self.policy.lines || self.unsynced > 0 && self.since.elapsed() >= self.policy.interval {
                self.sync();
            }
            // Once a second, so that a full disk is not asked in a busy loop.
            if tick.elapsed() >= self.policy.interval {
                self.tell_incidents();
                tick = Instant::now();
            }
        }
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Row { record, text, reply } => {
                let result = self.row(&record, text);
                match &result {
                    Ok(_) => {
                        self.shared.appended.fetch_add(1, Ordering::Release);
                        self.tally.count(&record);
                    }
                    Err(error) => self.shared.note(|health| health.row_failed(error)),
                }
                let written = result.is_ok();
                if let Some(reply) = reply {
                    let _ = reply.send(result);
                }
                if written && let Some(observer) = &mut self.observer {
                    observer.row(self.segment, &record);
                }
            }
            Message::Event { t_ns, what, fields } => {
                self.line_or_note("event", &flat_body(Some(t_ns), Some(&what), fields))
            }
            Message::Hardware { mut sample } => {
                if sample.get("t_ns").and_then(Value::as_i64).is_none() {
                    if !sample.is_object() {
                        sample = json!({ "value": sample });
                    }
                    sample["t_ns"] = self.clock.now().0.into();
                }
                self.line_or_note("hardware", &flat_body(None, None, sample));
            }
            Message::Close { .. } => {} // taken by `run`
        }
    }

    /// Appends the text, then the row: a row never stands without its text.
    fn row(&mut self, record: &RequestRecord, text: Option<Box<ResponseText>>) -> Result<u64, StorageError> {
        if let Some(column) = record.non_finite_column() {
            return Err(StorageError::NotFinite { place: format!("{} of a request row", column) });
        }
        // A row has no map with keys that are no strings: it always has a JSON form.
        let body = serde_json::to_vec(record).expect("a row is writable");
        let line = numbered(self.seq, "request", &body);
        bounded(&self.log_path, &line)?;
        if let Some(text) = text {
            let line = text_line(record, *text);
            bounded(&self.texts_path, &line)?;
            self.texts()?.append(&line)?;
        }
        self.append(&line)
    }

    fn texts(&mut self) -> Result<&mut Appender, StorageError> {
        if self.texts.is_none() {
            let opened = Appender::open(&*self.disk, &self.texts_path, 0)?;
            sync_parent(&*self.disk, &self.texts_path)?;
            self.texts = Some(opened);
        }
        Ok(self.texts.as_mut().expect("it was opened above"))
    }

    /// One numbered line; its number is used up only when it stands in the file.
    fn append(&mut self, line: &[u8]) -> Result<u64, StorageError> {
        self.log.append(line)?;
        if self.unsynced == 0 {
            self.since = Instant::now();
        }
        self.unsynced += 1;
        self.seq += 1;
        Ok(self.seq - 1)
    }

    fn line(&mut self, kind: &str, body: &[u8]) -> Result<u64, StorageError> {
        let line = numbered(self.seq, kind, body);
        bounded(&self.log_path, &line)?;
        self.append(&line)
    }

    fn line_or_note(&mut self, kind: &str, body: &[u8]) {
        if let Err(error) = self.line(kind, body) {
            self.shared.note(|health| health.line_failed(&error));
        }
    }

    /// `fdatasync`, texts before rows.
    fn sync(&mut self) {
        let texts = self.texts.as_mut().map_or(Ok(()), Appender::sync);
        if let Err(error) = texts.and_then(|()| self.log.sync()) {
            // The kernel reports a lost write once and then calls the page clean, so a later success does not heal this.
            self.shared.note(|health| health.sync_failed(&error));
        }
        self.unsynced = 0;
    }

    /// Puts what went wrong since last time into the log itself. Where that fails too, the next tick tries again.
    fn tell_incidents(&mut self) {
        let health = self.shared.health();
        if health.is_sound() || health == self.told {
            return;
        }
        let fields = json!({
            "cause": "storage",
            "message": health.reasons().join("; "),
            "rows_lost": health.rows_lost,
            "lines_lost": health.lines_lost,
            "write_failures": health.write_failures,
            "sync_failures": health.sync_failures,
        });
        let body = flat_body(Some(self.clock.now()), Some("incident"), fields);
        if self.line("event", &body).is_ok() {
            self.told = health;
        }
    }

    /// Ends the segment; after `done` and nothing lost, the run.
    fn close(&mut self, reason: &str) -> Result<Closed, StorageError> {
        self.tell_incidents();
        let close = json!({ "reason": reason }).to_string();
        let mut result = self.line("close", close.as_bytes());
        let rows = self.tally.total();
        // Everything that was handed in stands in the log, or the run has no end.
        let whole = self.shared.handed.load(Ordering::Acquire) == self.shared.appended.load(Ordering::Acquire);
        let ended = reason == "done" && whole && self.shared.health().is_sound() && result.is_ok();
        if ended {
            let end = json!({ "rows": rows, "issued": rows.issued() }).to_string();
            result = self.line("end", end.as_bytes());
        }
        if let Err(error) = result {
            self.shared.note(|health| health.line_failed(&error));
        }
        self.sync();
        self.observer = None;
        let health = self.shared.health();
        match &health.first_error {
            Some(error) => Err(error.clone()),
            None => Ok(Closed { rows, ended, health }),
        }
    }
}
