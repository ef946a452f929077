//! What a server counted while a cell ran: its pages before, after and meanwhile, kept as they came, and the difference as an event.
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::experiment::plan::Arm;
use crate::record::RunLog;
use crate::target::config::TargetConfig;
use crate::target::endpoint::metrics_page::{Counters, Scrape, Scraper};
use crate::units::{Clock, TimestampNs};

/// Time between two scrapes of a cell, at first.
const EACH: Duration = Duration::from_secs(5);
/// After so many scrapes of a cell the time between them doubles, so that a night's soak keeps hundreds and not ten thousands.
const DOUBLE_AFTER: u32 = 100;
/// Compression of the pages, which repeat themselves.
const LEVEL: i32 = 3;

/// Scrapes of one segment.
pub struct Scrapes {
    folder: PathBuf,
    log: Rc<RunLog>,
    clock: Clock,
    /// What each server had counted when it was last looked at, and in which visit.
    last: RefCell<HashMap<String, (usize, Counters)>>,
    files: Cell<u32>,
}

/// Which cell is watched.
#[derive(Debug, Clone)]
pub struct Place {
    /// Arm.
    pub arm: String,
    /// Cell.
    pub cell: String,
    /// Repeat, from 0.
    pub repeat: u32,
    /// Attempt, from 0.
    pub attempt: u32,
    /// Number of the visit.
    pub visit: usize,
    /// We start this server anew at each visit, so that another life of it is no event.
    pub launched: bool,
}

impl Place {
    /// The place of a cell in its run.
    pub fn of(arm: &Arm, cell: &str, repeat: u32, attempt: u32, visit: usize) -> Self {
        let launched = matches!(&arm.target, TargetConfig::Endpoint(endpoint) if endpoint.launch.is_some());
        Self { arm: arm.name.clone(), cell: cell.to_owned(), repeat, attempt, visit, launched }
    }
}

/// A cell that is being watched; [`CellScrapes::end`] ends it.
pub struct CellScrapes<'a> {
    scrapes: &'a Scrapes,
    watch: Option<(Rc<Watch>, oneshot::Sender<()>, JoinHandle<()>)>,
}

struct Watch {
    scraper: Scraper,
    place: Place,
    log: Rc<RunLog>,
    clock: Clock,
    file: PathBuf,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    /// Counters of the scrape before the cell.
    before: Option<(TimestampNs, Counters)>,
    /// Counters of the scrape after it.
    after: Option<(TimestampNs, Counters)>,
    /// Counters of the newest scrape, also of an earlier cell.
    newest: Option<(TimestampNs, Counters)>,
    /// Highest state of each gauge.
    peaks: BTreeMap<String, f64>,
    scrapes: u32,
    restarts: u32,
    errors: Vec<String>,
    storage: Option<String>,
}

impl Scrapes {
    /// Scrapes go into the folder `scrapes` of a run directory.
    pub fn new(dir: &Path, log: Rc<RunLog>, clock: Clock) -> Self {
        Self { folder: dir.join("scrapes"), log, clock, last: RefCell::new(HashMap::new()), files: Cell::new(0) }
    }

    /// Looks at the server's counters and goes on looking at them until the cell ends. Does nothing for a target without counters.
    pub async fn begin(&self, scraper: Option<Scraper>, place: Place) -> CellScrapes<'_> {
        let Some(scraper) = scraper else { return CellScrapes { scrapes: self, watch: None } };
        let number = self.files.replace(self.files.get() + 1);
        // The folder is made with the first scrape. Names of arms and cells are foreign, so the file has a number and the event tells it.
        let file = self.folder.join(format!("{:03}-{number:06}.prom.zst", self.log.segment()));
        let known = self.last.borrow().get(scraper.address()).cloned();
        let newest = known.filter(|(visit, _)| !place.launched || *visit == place.visit);
        let state = State { newest: newest.map(|(_, counters)| (self.clock.now(), counters)), ..State::default() };
        let (log, clock) = (Rc::clone(&self.log), self.clock);
        let watch = Rc::new(Watch { scraper, place, log, clock, file, state: RefCell::new(state) });
        watch.look("before").await;
        let (stop, mut stopped) = oneshot::channel();
        let meanwhile = Rc::clone(&watch);
        let task = tokio::task::spawn_local(async move {
            let mut each = EACH;
            for n in 1_u32.. {
                tokio::select! {
                    _ = &mut stopped => break,
                    () = tokio::time::sleep(each) => meanwhile.look("during").await,
                }
                if n.is_multiple_of(DOUBLE_AFTER) {
                    each = each.saturating_mul(2);
                }
            }
        });
        CellScrapes { scrapes: self, watch: Some((watch, stop, task)) }
    }
}

impl CellScrapes<'_> {
    /// Looks a last time and writes the event `counters`.
    pub async fn end(self) {
        let Some((watch, stop, task)) = self.watch else { return };
        drop(stop);
        let _ = task.await;
        watch.look("after").await;
        let state = watch.state.take();
        let name = watch.scraper.address().to_owned();
        if let Some((_, newest)) = &state.newest {
            self.scrapes.last.borrow_mut().insert(name, (watch.place.visit, newest.clone()));
        }
        watch.log.event(watch.clock.now(), "counters", watch.event(&state));
        if let Some(cause) = state.storage {
            let message = format!("{}: pages of counters could not be kept: {cause}", watch.place.arm);
            watch.log.event(watch.clock.now(), "warning", json!({ "message": message }));
        }
    }
}

impl Watch {
    async fn look(&self, when: &'static str) {
        let t = self.clock.now();
        let raw = self.scraper.scrape().await;
        // Reading and compressing is no work for the thread that keeps the times of requests.
        let file = self.file.clone();
        let done = tokio::task::spawn_blocking(move || {
            let scrape = raw.read();
            let kept = keep(&file, t, when, &scrape);
            (scrape, kept)
        });
        let Ok((scrape, kept)) = done.await else { return };
        let mut state = self.state.borrow_mut();
        state.scrapes += 1;
        if let Err(error) = kept {
            state.storage.get_or_insert(format!("{}: {error}", self.file.display()));
        }
        for error in scrape.errors {
            if state.errors.len() < 8 && !state.errors.contains(&error) {
                state.errors.push(error);
            }
        }
        for (name, value) in &scrape.counters.gauges {
            let peak = state.peaks.entry(name.clone()).or_insert(*value);
            *peak = peak.max(*value);
        }
        if !scrape.counters.observable() {
            return;
        }
        if let Some((_, earlier)) = &state.newest
            && let Some(seen) = scrape.counters.restarted_since(earlier)
        {
            let fields = json!({
                "arm": self.place.arm, "cell": self.place.cell, "repeat": self.place.repeat, "seen": seen,
            });
            self.log.event(t, "restart", fields);
            let Place { arm, cell, repeat, .. } = &self.place;
            let place = if when == "before" { "before" } else { "during" };
            let message = format!("{arm}: the server started anew {place} {cell}, repeat {repeat}: {seen}");
            self.log.event(t, "warning", json!({ "message": message }));
            // Between cells it costs no delta; inside one it does.
            if when != "before" {
                state.restarts += 1;
            }
        }
        match when {
            "before" => state.before = Some((t, scrape.counters.clone())),
            "after" => state.after = Some((t, scrape.counters.clone())),
            _ => {}
        }
        state.newest = Some((t, scrape.counters));
    }

    fn event(&self, state: &State) -> Value {
        let place = &self.place;
        let mut fields = Map::new();
        let mut put = |name: &str, value: Value| drop(fields.insert(name.to_owned(), value));
        put("arm", json!(place.arm));
        put("cell", json!(place.cell));
        put("repeat", json!(place.repeat));
        put("attempt", json!(place.attempt));
        put("scrapes", json!(state.scrapes));
        put("file", json!(self.file.file_name().map(|name| format!("scrapes/{}", name.to_string_lossy()))));
        put("restarts", json!(state.restarts));
        // After a restart the counters began anew, and their difference says nothing.
        let whole = state.before.as_ref().zip(state.after.as_ref()).filter(|_| state.restarts == 0);
        match whole {
            Some(((from, before), (to, after))) => {
                let delta = after.since(before);
                put("seconds", json!((to.0 - from.0) as f64 / 1e9));
                put("deltas", json!(delta.counters));
                if !delta.accepted_per_position.is_empty() {
                    put("accepted_per_position", json!(delta.accepted_per_position));
                }
            }
            None => put("deltas", Value::Null),
        }
        if !state.peaks.is_empty() {
            put("peaks", json!(state.peaks));
        }
        if !state.errors.is_empty() {
            put("errors", json!(state.errors));
        }
        Value::Object(fields)
    }
}

/// Appends one scrape as a zstd frame of its own: frames in a row are one stream, so a crash costs the last one at most.
fn keep(file: &Path, t: TimestampNs, when: &str, scrape: &Scrape) -> std::io::Result<()> {
    let mut text = format!("# inferlab scrape t_ns={} when={when}\n", t.0);
    for (page, body) in &scrape.pages {
        if body.trim_start().starts_with('{') {
            // Another page than /metrics: a comment, so that the whole stays in the Prometheus format.
            text += &format!("# /{page}: {}\n", body.split_whitespace().collect::<Vec<_>>().join(" "));
        } else {
            text += &format!("# /{page}:\n{body}\n");
        }
    }
    for error in &scrape.errors {
        text += &format!("# {}\n", error.replace(['\n', '\r'], " "));
    }
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let frame = zstd::bulk::compress(text.as_bytes(), LEVEL)?;
    std::fs::OpenOptions::new().create(true).append(true).open(file)?.write_all(&frame)
}
