//! `inferlab plan`: what a run would do.
use std::path::{Path, PathBuf};

use clap::Args;

use super::exit::OutputError;
use super::{CommandResult, Console, ExitCode};
use crate::experiment::{self, Plan};
use crate::run::{self, RunError};

/// Arguments of `plan`.
#[derive(Debug, Args)]
pub struct PlanArgs {
    /// Experiment file to plan (YAML).
    pub suite: PathBuf,
    /// Override one key of the suite, as `repeats=2`; may be given again (default: none).
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Plan only this arm or workload; may be given again (default: all).
    #[arg(long, value_name = "ARM_OR_WORKLOAD")]
    pub only: Vec<String>,
}

/// Carries out `plan`.
pub fn plan(args: &PlanArgs, console: &Console) -> CommandResult {
    let plan = load(&args.suite, &args.set, &args.only)?;
    show(&plan, console)?;
    Ok(ExitCode::Valid)
}

/// Reads a suite, refuses what this version cannot do, and plans it.
pub(super) fn load(suite: &Path, sets: &[String], only: &[String]) -> Result<Plan, RunError> {
    let experiment = experiment::load(suite, sets)?;
    experiment.check_supported()?;
    let plan = Plan::new(&experiment, only)?;
    run::check_models(&plan)?;
    Ok(plan)
}

/// Prints a plan.
pub(super) fn show(plan: &Plan, console: &Console) -> Result<(), OutputError> {
    if console.json() {
        console.print_json(&experiment::json(plan))
    } else {
        console.print(experiment::text(plan).trim_end())
    }
}
