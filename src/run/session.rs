//! One invocation of `inferlab run`: a new run, or the next segment of an interrupted one.
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use serde_json::json;
use sha2::{Digest, Sha256};

use super::counting::Counting;
use super::error::RunError;
use super::launch::{self, Launched, Model};
use super::progress::Progress;
use super::scrapes::{Place, Scrapes};
use super::space;
use crate::experiment::{self, Identity, IdentityInputs, Plan, TextPolicy};
use crate::loadgen::{DRAIN, Issue, Lanes, Schedule, Sink, Stop, closed_loop, open_loop};
use crate::metric::summary::{Reason, RowCounts, Verdict};
use crate::record::{self, Header, LogError, LogOptions, LoggedRun, Open, Outcome, RunLog};
use crate::report::{self, ReportPaths};
use crate::target::{Observation, Target};
use crate::units::Clock;
use crate::workload::Ask;
use crate::{calibrate, hardware, inert, metric, table, workload};

/// How often samples of the hardware go into the log.
const SAMPLE_EACH: Duration = Duration::from_secs(1);

/// What `inferlab run` was asked to do.
#[derive(Debug, Clone)]
pub struct Options {
    /// The folder that holds run directories.
    pub out: PathBuf,
    /// The folder that holds reports.
    pub reports: PathBuf,
    /// An interrupted run to go on with.
    pub resume: Option<PathBuf>,
    /// Write tables and the report at the end.
    pub report: bool,
    /// No progress on stderr.
    pub quiet: bool,
}

/// What a run came to.
#[derive(Debug)]
pub struct RunResult {
    /// The run directory.
    pub run: PathBuf,
    /// Whether it supports its claim.
    pub verdict: Verdict,
    /// Why not.
    pub reasons: Vec<Reason>,
    /// Warnings for the reader.
    pub warnings: Vec<String>,
    /// Rows by outcome.
    pub rows: RowCounts,
    /// The main numbers as a table for a terminal.
    pub table: String,
    /// Report files, unless none were asked for.
    pub reports: Option<ReportPaths>,
    /// The run was stopped; what is there can be resumed.
    pub interrupted: bool,
}

/// Runs `plan` to its end or until `stop`; the log on disk holds every completed request whatever happens.
pub fn execute(plan: &Plan, options: &Options, stop: &Stop) -> Result<RunResult, RunError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(RunError::Runtime)?;
    tokio::task::LocalSet::new().block_on(&runtime, session(plan, options, stop))
}

/// Everything one segment needs.
struct Session<'a> {
    plan: &'a Plan,
    stop: &'a Stop,
    models: Vec<Model>,
    clock: Clock,
    log: Rc<RunLog>,
    nonce: String,
    progress: Rc<Progress>,
    scrapes: Scrapes,
    /// Warnings of targets that stand in the log already: every visit connects anew and would say them again.
    told: RefCell<BTreeSet<String>>,
}

/// Requests of one cell in one repeat, and the attempt they are sent as.
struct Todo {
    visit: usize,
    cell: usize,
    attempt: u32,
}

/// How a segment ended that nothing broke.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    /// Every cell of the plan stands in the log.
    Done,
    /// A signal, a limit of the plan, or a target that would not start again: a resume finds what is missing.
    Early,
}

async fn session(plan: &Plan, options: &Options, stop: &Stop) -> Result<RunResult, RunError> {
    let resumed = options.resume.as_deref().map(record::read_run).transpose()?;
    if let (Some(dir), Some(run)) = (&options.resume, &resumed)
        && run.end.is_some()
    {
        return Err(LogError::Ended { dir: dir.clone() }.into());
    }
    let planned = plan.planned();
    let per_cell: Vec<u64> = planned.cells.iter().map(|c| u64::from(c.requests + c.warmup)).collect();
    let requests = |todo: &[Todo]| todo.iter().map(|todo| per_cell[todo.cell]).sum::<u64>();
    let total: u64 = per_cell.iter().sum::<u64>() * plan.visits.len() as u64;
    // What a resumed run already holds needs no room again.
    let left = resumed.as_ref().map_or(total, |run| requests(&remaining(plan, run)));
    let log_bytes = experiment::disk_bytes(plan) as f64 * left as f64 / total.max(1) as f64;
    space::check(options.resume.as_deref().unwrap_or(&options.out), log_bytes as u64)?;

    let models = plan.arms.iter().map(|arm| launch::locate(&arm.target, stop)).collect::<Result<Vec<_>, _>>()?;
    let nonce = resumed.map_or_else(draw_nonce, |run| run.header.nonce);
    let Preflight { identity, provenance, warnings } = tokio::select! {
        ready = preflight(plan, &models, &nonce) => ready?,
        () = stop.wait() => return Err(RunError::Stopped),
    };
    let clock = Clock::start();
    let (dir, log, earlier) = match &options.resume {
        Some(dir) => {
            let (log, earlier) = RunLog::resume_with(
                dir,
                &identity.hex,
                &identity.parts,
                Open::now(&clock, provenance),
                log_options(dir),
            )?;
            (dir.clone(), log, earlier)
        }
        None => {
            let header = Header::new(&identity.hex, &identity.parts, &nonce, planned);
            let dir = record::create_directory(&options.out, &plan.experiment.name, &identity.hex)?;
            let log = RunLog::create_with(&dir, &header, Open::now(&clock, provenance), log_options(&dir))?;
            let earlier = LoggedRun::new(header);
            (dir, log, earlier)
        }
    };
    let todo = remaining(plan, &earlier);
    let progress = Rc::new(Progress::new(total, options.quiet));
    progress.skip(total - requests(&todo));
    let log = Rc::new(log);
    let said = earlier.events.iter().filter(|event| event.what == "warning");
    let said = said.filter_map(|event| event.fields.get("message")?.as_str().map(str::to_owned));
    let session = Session {
        plan,
        stop,
        models,
        clock,
        log: Rc::clone(&log),
        nonce,
        progress: Rc::clone(&progress),
        scrapes: Scrapes::new(&dir, Rc::clone(&log), clock),
        told: RefCell::new(said.collect()),
    };
    session.warn(&warnings);
    if let Some(calibration) = calibrate::load() {
        log.event(clock.now(), "calibration", json!({ "calibration": calibration }));
    }
    let outcome = session.run_watched(&todo).await;
    progress.finish();
    if let Err(error) = &outcome {
        log.event(clock.now(), "incident", json!({"message": error.to_string()}));
    }
    let log = Rc::into_inner(log).expect("every lane that held the log has ended");
    let closed = log.close(match &outcome {
        Err(RunError::Storage(_)) => "storage",
        Err(_) => "error",
        Ok(Ending::Early) => "interrupted",
        Ok(Ending::Done) => "done",
    });
    let ending = outcome?;
    let health = closed?.health;
    let mut result = conclude(&dir, options, ending == Ending::Early)?;
    if !health.is_sound() {
        // The log says so itself wherever it could still be written to.
        result.verdict = Verdict::Invalid;
        if !result.reasons.iter().any(|reason| reason.rule == "V7") {
            result.reasons.push(Reason { rule: "V7", message: health.reasons().join("; ") });
        }
    }
    Ok(result)
}

/// Parquet parts are written while the run goes on.
fn log_options(dir: &Path) -> LogOptions {
    LogOptions { observer: Some(Box::new(table::Parts::new(dir))), ..LogOptions::default() }
}

/// What is known once every arm was started.
struct Preflight {
    identity: Identity,
    provenance: serde_json::Value,
    warnings: Vec<String>,
}

/// Starts every arm once before anything is measured: what does not fit, or does not answer, is known now and not in hour three.
async fn preflight(plan: &Plan, models: &[Model], nonce: &str) -> Result<Preflight, RunError> {
    let mut target_facts = serde_json::Map::new();
    let mut inputs = IdentityInputs::default();
    let mut warnings = Vec::new();
    for (arm, model) in plan.arms.iter().zip(models) {
        let (target, seconds) = launch::launch(plan, arm, model, nonce).await?;
        let mut facts = target.facts().clone();
        facts.facts.push(("start_up_s".into(), format!("{seconds:.3}")));
        warnings.extend(named_warnings(&arm.name, &target));
        inputs.model_md5.insert(arm.name.clone(), model.md5.clone());
        inputs.target_version.insert(arm.name.clone(), target.stated_version().to_owned());
        target_facts.insert(arm.name.clone(), json!(facts));
    }
    let mut provenance = hardware::provenance();
    provenance["target"] = serde_json::Value::Object(target_facts);
    Ok(Preflight { identity: plan.identity(&inputs), provenance, warnings })
}

fn named_warnings(arm: &str, target: &Launched) -> Vec<String> {
    target.warnings().iter().map(|warning| format!("{arm}: {warning}")).collect()
}

/// Cells that no earlier segment finished, in the order of the plan. A timed repeat that was cut is run again as a whole.
fn remaining(plan: &Plan, earlier: &LoggedRun) -> Vec<Todo> {
    let planned = plan.planned();
    let mut todo = Vec::new();
    for (number, visit) in plan.visits.iter().enumerate() {
        let arm = &plan.arms[visit.arm].name;
        for (index, cell) in planned.cells.iter().enumerate() {
            if !earlier.complete(arm, &cell.id, visit.repeat, cell.requests, cell.warmup) {
                let attempt = earlier.next_attempt(arm, &cell.id, visit.repeat);
                todo.push(Todo { visit: number, cell: index, attempt });
            }
        }
    }
    todo
}

impl Session<'_> {
    /// [`Session::run`], with samples of the hardware going into the log each second and the limit of the plan watched.
    async fn run_watched(self, todo: &[Todo]) -> Result<Ending, RunError> {
        let (clock, log, progress, stop) = (self.clock, Rc::clone(&self.log), Rc::clone(&self.progress), self.stop);
        let sampler = hardware::Sampler::start(clock);
        let samples = async {
            loop {
                tokio::time::sleep(SAMPLE_EACH).await;
                sampler.take().iter().for_each(|sample| log.hardware(sample));
            }
        };
        let max_duration = self.plan.experiment.limits.max_duration;
        let limit = async {
            tokio::time::sleep(max_duration.0).await;
            let message = format!("limits.max_duration ({max_duration}) passed: the run stopped there");
            progress.say(&message);
            log.event(clock.now(), "warning", json!({ "message": message }));
            stop.request();
            std::future::pending::<()>().await;
        };
        let outcome = tokio::select! {
            outcome = self.run(todo) => outcome,
            () = samples => unreachable!("sampling goes on until the run ends"),
            () = limit => unreachable!("the limit asks to stop and then waits"),
        };
        sampler.finish().iter().for_each(|sample| log.hardware(sample));
        outcome
    }

    async fn run(self, todo: &[Todo]) -> Result<Ending, RunError> {
        for visit in todo.chunk_by(|a, b| a.visit == b.visit) {
            let arm_index = self.plan.visits[visit[0].visit].arm;
            let arm = &self.plan.arms[arm_index];
            if self.stop.requested() {
                return Ok(Ending::Early);
            }
            self.log.event(self.clock.now(), "launch", json!({"arm": arm.name}));
            let launched = tokio::select! {
                launched = launch::launch(self.plan, arm, &self.models[arm_index], &self.nonce) => launched,
                () = self.stop.wait() => return Ok(Ending::Early),
            };
            let (target, seconds) = match launched {
                Ok(launched) => launched,
                Err(error) => {
                    // It answered before the start, so this is an event of the run and no fault of the file.
                    let message = format!("{}: could not be started again: {error}", arm.name);
                    let fields = json!({"arm": arm.name, "cause": "launch", "message": message});
                    self.log.event(self.clock.now(), "incident", fields);
                    self.warn(&[message]);
                    return Ok(Ending::Early);
                }
            };
            self.log.event(self.clock.now(), "ready", json!({"arm": arm.name, "start_up_s": seconds}));
            self.warn(&named_warnings(&arm.name, &target));
            for cell in visit {
                if self.stop.requested() || !self.cell(cell, &target).await? {
                    return Ok(Ending::Early);
                }
                if let Some(error) = self.log.health().first_error {
                    return Err(RunError::Storage(error));
                }
            }
        }
        Ok(Ending::Done)
    }

    /// Says a warning on the terminal and in the log, once.
    fn warn(&self, warnings: &[String]) {
        for warning in warnings {
            if self.told.borrow_mut().insert(warning.clone()) {
                self.progress.say(&format!("warning: {}", inert::terminal_line(warning)));
                self.log.event(self.clock.now(), "warning", json!({ "message": warning }));
            }
        }
    }

    /// Runs one cell of one repeat. `false` when a stop kept it from being whole.
    async fn cell(&self, todo: &Todo, target: &Rc<Launched>) -> Result<bool, RunError> {
        let visit = &self.plan.visits[todo.visit];
        let (arm, cell) = (&self.plan.arms[visit.arm], &self.plan.cells[todo.cell]);
        self.progress.cell(visit.repeat, self.plan.experiment.repeats, &arm.name, &cell.id);
        let requests = workload::requests(self.plan, cell, arm, visit.repeat, &self.nonce, &**target)?;
        let load = cell.workload.load();
        // Warm-up requests of an open loop go one after another.
        let lanes = Lanes { concurrency: load.concurrency().max(1), drain: DRAIN };
        let keep_text = self.plan.experiment.text == TextPolicy::Keep;
        let (log, progress) = (Rc::clone(&self.log), Rc::clone(&self.progress));
        let answered = Rc::new(Cell::new(0));
        let counter = Rc::clone(&answered);
        let sink: Sink = Rc::new(RefCell::new(move |seen: Observation| {
            progress.one();
            counter.set(counter.get() + usize::from(seen.record.outcome != Outcome::Cancelled));
            log.row(seen.record, keep_text.then_some(seen.text));
        }));
        let asks = || requests.warmup.iter().chain(&requests.measured).map(|ask| &ask.request);
        let counting = Counting::begin(target, asks(), sink).await;
        let sink = counting.sink();
        let place = Place::of(arm, &cell.id, visit.repeat, todo.attempt, todo.visit);
        let scraper = target.endpoint().and_then(|endpoint| endpoint.scraper());
        let scrapes = self.scrapes.begin(scraper, place).await;
        let asked = (cell.workload.warmup() + cell.workload.requests()) as usize;
        let issues = |asks: Vec<Ask>| asks.into_iter().map(|ask| Issue::new(ask, todo.attempt)).collect::<Vec<_>>();
        let warmup = issues(requests.warmup);
        closed_loop(Rc::clone(target), self.clock, lanes, warmup, self.stop, Rc::clone(&sink)).await;
        let (target, measured) = (Rc::clone(target), issues(requests.measured));
        match (requests.arrivals, load.offer()) {
            (Some(arrivals_ns), Some(offer)) => {
                let schedule = Schedule { arrivals_ns, max_in_flight: offer.max_in_flight, drain: DRAIN };
                open_loop(target, self.clock, schedule, measured, self.stop, sink).await
            }
            _ => closed_loop(target, self.clock, lanes, measured, self.stop, sink).await,
        };
        counting.end().await;
        scrapes.end().await;
        Ok(answered.get() == asked)
    }
}

/// Four letters and digits, drawn once a run and kept in its header: put in front of timed prompts so that no cache flatters them.
fn draw_nonce() -> String {
    let mut hash = Sha256::new();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    hash.update(now.as_nanos().to_le_bytes());
    hash.update(std::process::id().to_le_bytes());
    let letters = b"abcdefghijkmnpqrstuvwxyz23456789";
    hash.finalize().iter().take(6).map(|byte| char::from(letters[usize::from(byte % 32)])).collect()
}

/// Reads the log back and derives everything from it: the same path that `inferlab report` takes.
fn conclude(dir: &Path, options: &Options, interrupted: bool) -> Result<RunResult, RunError> {
    let run = record::read_run(dir)?;
    let run_id = record::run_name(dir);
    table::derive(dir, &run)?;
    let summary = metric::summarise(&run_id, &run);
    let reports = if options.report {
        let formats = run.header.plan.report.formats.clone();
        Some(report::write(std::slice::from_ref(&summary), &options.reports.join(&run_id), &formats)?)
    } else {
        None
    };
    Ok(RunResult {
        run: dir.to_path_buf(),
        table: report::brief(&summary),
        verdict: summary.verdict,
        reasons: summary.reasons,
        warnings: summary.warnings,
        rows: summary.rows,
        reports,
        interrupted,
    })
}
