//! Writing a run: one log, one writer, and a load generator that never waits for the disk.
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::Value;

use super::directory::DirectoryLock;
use super::disk::{Appender, Disk, OsDisk, replace};
use super::entry::{Header, Open, RowCounts};
use super::error::{LogError, StorageError};
use super::line::numbered;
use super::logged::{LoggedRow, LoggedRun};
use super::resume::{self, Healed};
use super::row::{RequestRecord, ResponseText};
use super::writer::{Message, Shared, SyncPolicy, Tally, Writer};
use crate::units::{Clock, TimestampNs};

/// Sees every row after it was written, on the writer's thread; must be quick.
pub trait RowObserver: Send {
    /// The rows that a resumed run already holds.
    fn earlier(&mut self, rows: &[LoggedRow]);
    /// A row was appended.
    fn row(&mut self, segment: u32, record: &RequestRecord);
}

/// How a log is written. The defaults are those of the contract.
pub struct LogOptions {
    /// Lines that may wait for the disk (8192).
    pub queue: usize,
    /// `fdatasync` after so many lines (256).
    pub sync_lines: usize,
    /// `fdatasync` at least so long after a line (1 s).
    pub sync_interval: Duration,
    /// The disk.
    pub disk: Arc<dyn Disk>,
    /// Sees the rows, for Parquet parts.
    pub observer: Option<Box<dyn RowObserver>>,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self {
            queue: 8192,
            sync_lines: 256,
            sync_interval: Duration::from_secs(1),
            disk: Arc::new(OsDisk),
            observer: None,
        }
    }
}

impl fmt::Debug for LogOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogOptions")
            .field("queue", &self.queue)
            .field("sync_lines", &self.sync_lines)
            .finish_non_exhaustive()
    }
}

/// What was lost, if anything.
#[derive(Debug, Clone, Default)]
pub struct LogHealth {
    /// Rows that do not stand in the log.
    pub rows_lost: u64,
    /// Events and samples that do not.
    pub lines_lost: u64,
    /// Failed writes.
    pub write_failures: u64,
    /// Failed `fdatasync`s: rows may be gone after a power cut.
    pub sync_failures: u64,
    /// The first failure of the disk: stop sending, exit code 30.
    pub first_error: Option<StorageError>,
    /// The first row that was refused for another reason, as a NaN.
    pub first_refusal: Option<String>,
}

impl PartialEq for LogHealth {
    /// Errors are told apart by the counters beside them.
    fn eq(&self, other: &Self) -> bool {
        let counts = |h: &Self| (h.rows_lost, h.lines_lost, h.write_failures, h.sync_failures);
        counts(self) == counts(other)
    }
}

impl LogHealth {
    /// Nothing was lost; anything else makes the run invalid (V7).
    pub fn is_sound(&self) -> bool {
        *self == Self::default()
    }

    /// What happened, one sentence each.
    pub fn reasons(&self) -> Vec<String> {
        let mut reasons = Vec::new();
        let mut say = |n: u64, text: &str| {
            if n > 0 {
                reasons.push(format!("{n} {text}"));
            }
        };
        say(self.rows_lost, "rows could not be written");
        say(self.lines_lost, "events or samples could not be written");
        say(self.write_failures, "writes failed");
        say(self.sync_failures, "fdatasyncs failed");
        reasons.extend(self.first_error.as_ref().map(|error| format!("first: {error}")));
        reasons.extend(self.first_refusal.clone());
        reasons
    }

    pub(super) fn row_failed(&mut self, error: &StorageError) {
        self.rows_lost += 1;
        self.disk_failed(error);
    }

    pub(super) fn line_failed(&mut self, error: &StorageError) {
        self.lines_lost += 1;
        self.disk_failed(error);
    }

    fn disk_failed(&mut self, error: &StorageError) {
        match error {
            StorageError::NotFinite { .. } | StorageError::LineTooLong { .. } => {
                self.first_refusal.get_or_insert_with(|| error.to_string());
            }
            _ => {
                self.write_failures += 1;
                self.first_error.get_or_insert_with(|| error.clone());
            }
        }
    }

    pub(super) fn sync_failed(&mut self, error: &StorageError) {
        self.sync_failures += 1;
        self.first_error.get_or_insert_with(|| error.clone());
    }
}

/// A closed log.
#[derive(Debug, Clone)]
pub struct Closed {
    /// Measured live rows of the whole run by outcome.
    pub rows: RowCounts,
    /// The log has its `end` line.
    pub ended: bool,
    /// What was lost.
    pub health: LogHealth,
}

/// A log being written. Dropped without [`RunLog::close`] its segment has no close line, as after a crash; its rows are safe.
#[derive(Debug)]
pub struct RunLog {
    dir: PathBuf,
    segment: u32,
    sender: Option<SyncSender<Message>>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    _lock: DirectoryLock,
}

impl RunLog {
    /// Starts the log of a new run in `dir`, which is made where it is absent.
    ///
    /// Header and first segment appear together (temporary file, rename), so a log without a header does not exist.
    pub fn create(dir: &Path, header: &Header, open: Open) -> Result<Self, StorageError> {
        Self::create_with(dir, header, open, LogOptions::default())
    }

    /// [`RunLog::create`] with options.
    pub fn create_with(dir: &Path, header: &Header, open: Open, options: LogOptions) -> Result<Self, StorageError> {
        std::fs::create_dir_all(dir).map_err(|e| StorageError::io(dir, "mkdir", e))?;
        let lock = DirectoryLock::take(dir)?;
        let path = dir.join("log.jsonl");
        if path.symlink_metadata().is_ok() {
            return Err(StorageError::Exists { path: dir.display().to_string() });
        }
        let body = serde_json::to_vec(header).expect("a header is writable");
        // JSON has no NaN: serde_json writes null for it, which no number can be read from.
        if serde_json::from_slice::<Header>(&body).ok().as_ref() != Some(header) {
            return Err(StorageError::NotFinite { place: "a number of the plan".into() });
        }
        let mut first = numbered(0, "header", &body);
        first.extend(open_line(1, 0, &open));
        let plan = serde_json::to_vec_pretty(&header.plan).expect("a plan is writable");
        replace(&*options.disk, &dir.join("plan.json"), &plan)?;
        replace(&*options.disk, &path, &first)?;
        let log = Appender::open(&*options.disk, &path, first.len() as u64)?;
        Self::start(dir, lock, Begin { log, texts: None, seq: 2, segment: 0, tally: Tally::default() }, options)
    }

    /// Opens an interrupted run for a new segment: heals its tail and reads what it holds.
    ///
    /// Errors: another experiment ([`LogError::OtherIdentity`], naming the keys that differ), a complete run, a corrupt or newer log,
    /// a directory in use.
    pub fn resume(
        dir: &Path,
        identity: &str,
        parts: &BTreeMap<String, String>,
        open: Open,
    ) -> Result<(Self, LoggedRun), LogError> {
        Self::resume_with(dir, identity, parts, open, LogOptions::default())
    }

    /// [`RunLog::resume`] with options.
    pub fn resume_with(
        dir: &Path,
        identity: &str,
        parts: &BTreeMap<String, String>,
        open: Open,
        mut options: LogOptions,
    ) -> Result<(Self, LoggedRun), LogError> {
        if !dir.join("log.jsonl").is_file() {
            return Err(LogError::NotARun { dir: dir.to_owned() });
        }
        let lock = DirectoryLock::take(dir)?;
        let Healed { run, mut log, texts, seq, cut } = resume::heal(dir, identity, parts, &*options.disk)?;
        let segment = run.segments.last().map_or(0, |segment| segment.number + 1);
        log.append(&open_line(seq, segment, &open))?;
        log.sync()?;
        if let Some(observer) = &mut options.observer {
            observer.earlier(&run.rows);
        }
        let mut tally = Tally::default();
        run.rows.iter().for_each(|row| tally.count(&row.record));
        let started = Self::start(dir, lock, Begin { log, texts, seq: seq + 1, segment, tally }, options)?;
        for (file, bytes) in cut {
            let message =
                format!("a crash had cut the last line of {file}: {bytes} bytes were moved to its .torn file");
            started.event(TimestampNs(0), "warning", serde_json::json!({ "message": message }));
        }
        Ok((started, run))
    }

    fn start(dir: &Path, lock: DirectoryLock, begin: Begin, options: LogOptions) -> Result<Self, StorageError> {
        let shared = Arc::new(Shared::default());
        let segment = begin.segment;
        let writer = Writer {
            disk: options.disk,
            log: begin.log,
            log_path: dir.join("log.jsonl"),
            texts: begin.texts,
            texts_path: dir.join("texts.jsonl"),
            seq: begin.seq,
            segment,
            clock: Clock::start(),
            shared: Arc::clone(&shared),
            policy: SyncPolicy {
                lines: options.sync_lines.max(1),
                interval: options.sync_interval.max(Duration::from_millis(1)),
            },
            observer: options.observer,
            tally: begin.tally,
            unsynced: 0,
            since: Instant::now(),
            told: LogHealth::default(),
        };
        let (sender, receiver) = sync_channel(options.queue.max(1));
        let thread = std::thread::Builder::new()
            .name("log-writer".into())
            .spawn(move || writer.run(receiver))
            .map_err(|e| StorageError::io(dir, "start of the writer thread", e))?;
        Ok(Self { dir: dir.to_owned(), segment, sender: Some(sender), shared, thread: Some(thread), _lock: lock })
    }

    /// The run directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The number of this segment.
    pub fn segment(&self) -> u32 {
        self.segment
    }

    /// Hands a row, and its text where text is kept, to the writer. Never waits: a row that finds the queue full is lost, which
    /// [`RunLog::health`] and an event in the log say.
    pub fn row(&self, record: RequestRecord, text: Option<ResponseText>) {
        self.shared.handed.fetch_add(1, Ordering::AcqRel);
        let message = Message::Row { record: Box::new(record), text: text.map(Box::new), reply: None };
        if !self.offer(message) {
            self.shared.rows_refused.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Hands in a row and waits until its append returned: from then on `kill -9` does not lose it. Answers its `seq`.
    pub fn row_acked(&self, record: RequestRecord, text: Option<ResponseText>) -> Result<u64, StorageError> {
        self.shared.handed.fetch_add(1, Ordering::AcqRel);
        let (reply, answer) = sync_channel(1);
        self.ask(Message::Row { record: Box::new(record), text: text.map(Box::new), reply: Some(reply) })?;
        answer.recv().unwrap_or_else(|_| Err(self.gone()))
    }

    /// Notes something beside rows: launch, ready, exit, restart, incident, xid, clock_step, counters, warning. Never waits.
    pub fn event(&self, t_ns: TimestampNs, what: &str, fields: Value) {
        self.line(Message::Event { t_ns, what: what.to_owned(), fields });
    }

    /// Notes a sample of the hardware, an object with `t_ns`; without one it gets the time of its writing. Never waits.
    pub fn hardware<S: Serialize + ?Sized>(&self, sample: &S) {
        match serde_json::to_value(sample) {
            Ok(sample) => self.line(Message::Hardware { sample }),
            Err(_) => _ = self.shared.lines_refused.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// Rows of this segment whose append returned.
    pub fn rows_appended(&self) -> u64 {
        self.shared.appended.load(Ordering::Acquire)
    }

    /// What was lost so far. Look at `first_error` between cells: with one, stop sending and close with the reason `storage`.
    pub fn health(&self) -> LogHealth {
        self.shared.health()
    }

    /// Ends the segment with `reason`: done, interrupted, storage or error. Waits until everything is on the disk.
    ///
    /// `done` says that every cell is done: unless something was lost the log gets its `end`, for which every row handed in must
    /// stand in the log. Errors: the first failure of the disk in this segment.
    pub fn close(mut self, reason: &str) -> Result<Closed, StorageError> {
        let (reply, answer) = sync_channel(1);
        self.ask(Message::Close { reason: reason.to_owned(), reply })?;
        let closed = answer.recv().unwrap_or_else(|_| Err(self.gone()));
        self.finish();
        closed
    }

    fn line(&self, message: Message) {
        if !self.offer(message) {
            self.shared.lines_refused.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// `false` when the queue is full or the writer gone.
    fn offer(&self, message: Message) -> bool {
        match self.sender.as_ref().map(|sender| sender.try_send(message)) {
            Some(Ok(())) => true,
            Some(Err(TrySendError::Full(_) | TrySendError::Disconnected(_))) | None => false,
        }
    }

    fn ask(&self, message: Message) -> Result<(), StorageError> {
        let sent = self.sender.as_ref().and_then(|sender| sender.send(message).ok());
        sent.ok_or_else(|| self.gone())
    }

    fn gone(&self) -> StorageError {
        StorageError::WriterGone { path: self.dir.display().to_string() }
    }

    fn finish(&mut self) {
        self.sender = None;
        if let Some(thread) = self.thread.take() {
            // A writer that panicked has said so on stderr; the log shows it by the missing close line.
            let _ = thread.join();
        }
    }
}

impl Drop for RunLog {
    fn drop(&mut self) {
        self.finish();
    }
}

/// Where a segment starts.
struct Begin {
    log: Appender,
    texts: Option<Appender>,
    seq: u64,
    segment: u32,
    tally: Tally,
}

#[derive(Serialize)]
struct OpenBody<'a> {
    segment: u32,
    #[serde(flatten)]
    open: &'a Open,
}

fn open_line(seq: u64, segment: u32, open: &Open) -> Vec<u8> {
    let body = serde_json::to_vec(&OpenBody { segment, open }).expect("an open line is writable");
    numbered(seq, "open", &body)
}
