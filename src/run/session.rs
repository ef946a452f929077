//! One invocation of `inferlab run`: a new run, or the next segment of an interrupted one.
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Instant;

use serde_json::json;
use sha2::{Digest, Sha256};

use super::error::RunError;
use super::launch::{self, Launched, Model};
use super::progress::Progress;
use crate::experiment::{Identity, IdentityInputs, Plan};
use crate::hardware;
use crate::loadgen::{Issue, Lanes, Stop, closed_loop};
use crate::metric::summary::{Reason, RowCounts, Verdict};
use crate::record::{self, Header, LogOptions, LoggedRun, Open, RunLog};
use crate::report::{self, ReportPaths};
use crate::request::{Prompt, Request};
use crate::target::{Observation, Target};
use crate::units::Clock;
use crate::{metric, table, workload};

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
    deadline: Option<Instant>,
}

/// Requests of one cell in one repeat, and the attempt they are sent as.
struct Todo {
    visit: usize,
    cell: usize,
    attempt: u32,
}

async fn session(plan: &Plan, options: &Options, stop: &Stop) -> Result<RunResult, RunError> {
    let models = plan.arms.iter().map(|arm| launch::locate(&arm.target)).collect::<Result<Vec<_>, _>>()?;
    let nonce = match &options.resume {
        Some(dir) => record::read_run(dir)?.header.nonce,
        None => draw_nonce(),
    };
    let (identity, provenance) = preflight(plan, &models, &nonce).await?;
    let clock = Clock::start();
    let (dir, log, earlier) = match &options.resume {
        Some(dir) => {
            let (log, earlier) =
                RunLog::resume_with(dir, &identity.hex, &identity.parts, Open::now(provenance), log_options(dir))?;
            (dir.clone(), log, earlier)
        }
        None => {
            let header = Header::new(&identity.hex, &identity.parts, &nonce, plan.planned());
            let dir = record::create_directory(&options.out, &plan.experiment.name, &identity.hex)?;
            let log = RunLog::create_with(&dir, &header, Open::now(provenance), log_options(&dir))?;
            let earlier = LoggedRun::new(header);
            (dir, log, earlier)
        }
    };
    let todo = remaining(plan, &earlier);
    let planned = plan.planned();
    let per_cell: Vec<u64> = planned.cells.iter().map(|c| u64::from(c.requests + c.warmup)).collect();
    let total: u64 = per_cell.iter().sum::<u64>() * plan.visits.len() as u64;
    let progress = Rc::new(Progress::new(total, options.quiet));
    progress.skip(total - todo.iter().map(|t| per_cell[t.cell]).sum::<u64>());
    let session = Session {
        plan,
        stop,
        models,
        clock,
        log: Rc::new(log),
        nonce,
        progress: Rc::clone(&progress),
        deadline: Some(Instant::now() + plan.experiment.limits.max_duration.0),
    };
    let log = Rc::clone(&session.log);
    let sampler = hardware::Sampler::start(clock);
    let outcome = session.run(&todo, &sampler).await;
    progress.finish();
    for sample in sampler.finish() {
        log.hardware(&sample);
    }
    let interrupted = stop.requested() || matches!(outcome, Ok(false));
    if let Err(error) = &outcome {
        log.event(clock.now(), "incident", json!({"message": error.to_string()}));
    }
    let log = Rc::into_inner(log).expect("every lane that held the log has ended");
    log.close(if outcome.is_err() {
        "error"
    } else if interrupted {
        "interrupted"
    } else {
        "done"
    })?;
    outcome?;
    conclude(&dir, options, interrupted)
}

/// Parquet parts are written while the run goes on.
fn log_options(dir: &Path) -> LogOptions {
    LogOptions { observer: Some(Box::new(table::Parts::new(dir))), ..LogOptions::default() }
}

/// Starts every arm once before anything is measured: what does not fit, or does not answer, is known now and not in hour three.
async fn preflight(plan: &Plan, models: &[Model], nonce: &str) -> Result<(Identity, serde_json::Value), RunError> {
    let mut target_facts = serde_json::Map::new();
    let mut inputs = IdentityInputs::default();
    for (arm, model) in plan.arms.iter().zip(models) {
        let (target, seconds) = launch::launch(plan, arm, model, nonce).await?;
        let mut facts = target.facts().clone();
        facts.facts.push(("start_up_s".into(), format!("{seconds:.3}")));
        inputs.model_md5.insert(arm.name.clone(), model.md5.clone());
        inputs.target_version.insert(arm.name.clone(), target.stated_version().to_owned());
        target_facts.insert(arm.name.clone(), json!(facts));
    }
    let mut provenance = hardware::provenance();
    provenance["target"] = serde_json::Value::Object(target_facts);
    Ok((plan.identity(&inputs), provenance))
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
    /// `Ok(false)` when a limit of the plan ended it early.
    async fn run(self, todo: &[Todo], sampler: &hardware::Sampler) -> Result<bool, RunError> {
        for visit in todo.chunk_by(|a, b| a.visit == b.visit) {
            let arm_index = self.plan.visits[visit[0].visit].arm;
            let arm = &self.plan.arms[arm_index];
            if self.stop.requested() {
                return Ok(true);
            }
            self.log.event(self.clock.now(), "launch", json!({"arm": arm.name}));
            let (target, seconds) = launch::launch(self.plan, arm, &self.models[arm_index], &self.nonce).await?;
            self.log.event(self.clock.now(), "ready", json!({"arm": arm.name, "start_up_s": seconds}));
            for cell in visit {
                if self.stop.requested() {
                    return Ok(true);
                }
                if self.deadline.is_some_and(|deadline| Instant::now() > deadline) {
                    let message = "limits.max_duration passed; the run stops here and can be resumed";
                    self.progress.say(message);
                    self.log.event(self.clock.now(), "warning", json!({"message": message}));
                    return Ok(false);
                }
                self.cell(cell, &target).await?;
                if let Some(error) = self.log.health().first_error {
                    return Err(RunError::Storage(error));
                }
                for sample in sampler.take() {
                    self.log.hardware(&sample);
                }
            }
        }
        Ok(true)
    }

    async fn cell(&self, todo: &Todo, target: &Rc<Launched>) -> Result<(), RunError> {
        let visit = &self.plan.visits[todo.visit];
        let (arm, cell) = (&self.plan.arms[visit.arm], &self.plan.cells[todo.cell]);
        self.progress.cell(visit.repeat, self.plan.experiment.repeats, &arm.name, &cell.id);
        let requests = workload::requests(self.plan, cell, arm, visit.repeat, &self.nonce, &**target)?;
        let lanes = Lanes { concurrency: cell.workload.concurrency() };
        let keep_text = self.plan.experiment.text == crate::experiment::TextPolicy::Keep;
        let (log, progress) = (Rc::clone(&self.log), Rc::clone(&self.progress));
        let sink: Rc<RefCell<dyn FnMut(Observation)>> = Rc::new(RefCell::new(move |seen: Observation| {
            progress.one();
            log.row(seen.record, keep_text.then_some(seen.text));
        }));
        for batch in [requests.warmup, requests.measured] {
            let issues = batch.into_iter().map(|request| issue(request, todo.attempt)).collect();
            closed_loop(Rc::clone(target), self.clock, lanes, issues, self.stop, Rc::clone(&sink)).await;
        }
        Ok(())
    }
}

fn issue(request: Request, attempt: u32) -> Issue {
    let mut hash = Sha256::new();
    match &request.prompt {
        Prompt::Chat(messages) => {
            for message in messages {
                // Lengths first, so that no two message lists hash the same bytes.
                for part in [&message.role, &message.content] {
                    hash.update((part.len() as u64).to_le_bytes());
                    hash.update(part.as_bytes());
                }
            }
        }
        Prompt::TokenIds(ids) => ids.iter().for_each(|id| hash.update(id.to_le_bytes())),
    }
    let prompt_sha256 = hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let fixture = match &request.prompt {
        Prompt::Chat(_) => "common words",
        Prompt::TokenIds(_) => "random token ids",
    };
    Issue { request, attempt, prompt_sha256, fixture }
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
