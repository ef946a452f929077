//! `inferlab run`: plan, run, derive, report.
use std::path::PathBuf;

use clap::Args;

use super::{CommandError, CommandResult, Console, ExitCode};

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
    console.note(&format!("suite {}", args.suite.display()));
    Err(CommandError::message(ExitCode::Internal, "`run` is not wired yet", "this is a development snapshot"))
}
