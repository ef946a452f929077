//! `inferlab plan`: what a run would do.
use std::path::PathBuf;

use clap::Args;

use super::{CommandError, CommandResult, Console, ExitCode};

/// Arguments of `plan`.
#[derive(Debug, Args)]
pub struct PlanArgs {
    /// Experiment file to plan (YAML).
    pub suite: PathBuf,
    /// Override one key of the suite, as `repeats=2`; may be given again (default: none).
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
}

/// Carries out `plan`.
pub fn plan(args: &PlanArgs, console: &Console) -> CommandResult {
    console.note(&format!("suite {}", args.suite.display()));
    Err(CommandError::message(ExitCode::Internal, "`plan` is not wired yet", "this is a development snapshot"))
}
