//! `inferlab run`: plan, run, derive, report.
use std::path::{Path, PathBuf};

use clap::Args;

use serde_json::{Value, json};

use super::exit::OutputError;
use super::{CommandError, CommandResult, Console, ExitCode, signals};
use crate::inert;
use crate::loadgen::Stop;
use crate::metric::summary::Verdict;
use crate::run::{self, Options, RunResult};

/// Arguments of `run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Experiment file to run (YAML).
    pub suite: PathBuf,
    /// Folder that gets the run's own folder.
    #[arg(long, value_name = "DIR", default_value = "runs")]
    pub out: PathBuf,
    /// Go on with this interrupted run folder; refused when the experiment differs (default: a new run).
    #[arg(long, value_name = "RUN")]
    pub resume: Option<PathBuf>,
    /// Override one key of the suite, as `repeats=2`; may be given again (default: none).
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Run only this arm or workload; may be given again (default: all).
    #[arg(long, value_name = "ARM_OR_WORKLOAD")]
    pub only: Vec<String>,
    /// Show the plan and stop before anything runs (default: run).
    #[arg(long)]
    pub dry_run: bool,
    /// Leave out the report; the log and tables are still written (default: report).
    #[arg(long)]
    pub no_report: bool,
}

/// Carries out `run`.
pub fn run(args: &RunArgs, console: &Console) -> CommandResult {
    let plan = super::plan::load(&args.suite, &args.set, &args.only)?;
    if args.dry_run {
        super::plan::show(&plan, console)?;
        return Ok(ExitCode::Valid);
    }
    let stop = Stop::default();
    let on_signal = stop.clone();
    let asked = move || {
        on_signal.request();
        run::note(
            "stopping: requests in flight get a few seconds; the log keeps what is done. Once more stops at once.",
        );
    };
    signals::on_stop(asked)
        .map_err(|error| CommandError::message(ExitCode::Internal, format!("signals cannot be caught: {error}"), ""))?;
    let options = Options {
        out: args.out.clone(),
        reports: "reports".into(),
        resume: args.resume.clone(),
        report: !args.no_report,
        quiet: false,
    };
    let result = run::execute(&plan, &options, &stop)?;
    let code = exit_code(&result);
    if console.json() {
        console.print_json(&json(&result, code))?;
    } else {
        tell(&result, args, console)?;
    }
    Ok(code)
}

fn exit_code(result: &RunResult) -> ExitCode {
    let broken = |rule: &str| result.reasons.iter().any(|reason| reason.rule == rule);
    match result.verdict {
        // Lost rows outrank all else: nothing that follows from the others can be trusted.
        Verdict::Invalid if broken("V7") => ExitCode::Storage,
        Verdict::Partial => ExitCode::Interrupted,
        _ if result.interrupted => ExitCode::Interrupted,
        Verdict::Valid => ExitCode::Valid,
        Verdict::Invalid if broken("V1") => ExitCode::Threshold,
        Verdict::Invalid => ExitCode::Invalid,
    }
}

fn json(result: &RunResult, code: ExitCode) -> Value {
    let rows = result.rows;
    json!({
        "run": result.run.to_string_lossy(),
        "verdict": result.verdict,
        "reasons": result.reasons,
        "warnings": result.warnings,
        "rows": {"ok": rows.ok, "failed": rows.failed, "cancelled": rows.cancelled, "shed": rows.shed},
        "reports": result.reports,
        "exit": code.number(),
    })
}

/// The command that goes on with a run: the same suite with the same changes, else the resume would be refused as another experiment.
fn go_on(args: &RunArgs, run: &Path) -> String {
    let mut words = vec!["inferlab".to_owned(), "run".to_owned(), quoted(&args.suite.to_string_lossy())];
    for (flag, values) in [("--set", &args.set), ("--only", &args.only)] {
        words.extend(values.iter().flat_map(|value| [flag.to_owned(), quoted(value)]));
    }
    words.extend(["--resume".to_owned(), quoted(&run.to_string_lossy())]);
    words.join(" ")
}

/// A word as a POSIX shell reads it back.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=+:,@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", inert::terminal_line(word).replace('\'', r"'\''"))
}

fn tell(result: &RunResult, args: &RunArgs, console: &Console) -> Result<(), OutputError> {
    let verdict = match result.verdict {
        Verdict::Valid => "VALID",
        Verdict::Invalid => "INVALID",
        Verdict::Partial => "PARTIAL",
    };
    let rows = result.rows;
    console.print(&format!(
        "{verdict}: {} of {} measured requests answered, {} failed, {} cancelled, {} shed",
        rows.ok, rows.issued, rows.failed, rows.cancelled, rows.shed
    ))?;
    for reason in &result.reasons {
        console.print(&format!("  {} {}", reason.rule, inert::terminal_line(&reason.message)))?;
    }
    for warning in &result.warnings {
        console.print(&format!("  warning: {}", inert::terminal_line(warning)))?;
    }
    console.print(&result.table)?;
    console.print(&format!("run     {}", result.run.display()))?;
    if let Some(reports) = &result.reports {
        for path in [&reports.md, &reports.html, &reports.csv].into_iter().flatten() {
            console.print(&format!("report  {}", path.display()))?;
        }
    }
    if result.interrupted {
        console.print(&format!("go on   {}", go_on(args, &result.run)))?;
    }
    Ok(())
}
