//! `inferlab verify`: is a run's log whole?
use std::path::PathBuf;

use clap::Args;

use super::{CommandError, CommandResult, Console, ExitCode};

/// Arguments of `verify`.
#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// Run folder to check.
    pub run: PathBuf,
}

/// Carries out `verify`.
pub fn verify(args: &VerifyArgs, console: &Console) -> CommandResult {
    console.note(&format!("run {}", args.run.display()));
    Err(CommandError::message(ExitCode::Internal, "`verify` is not wired yet", "this is a development snapshot"))
}
