//! `inferlab table`: the Parquet tables of a run.
use std::path::PathBuf;

use clap::Args;

use super::{CommandError, CommandResult, Console, ExitCode};

/// Arguments of `table`.
#[derive(Debug, Args)]
pub struct TableArgs {
    /// Run folder whose tables are derived.
    pub run: PathBuf,
    /// Write the tables again although they are there (default: keep them).
    #[arg(long)]
    pub rebuild: bool,
}

/// Carries out `table`.
pub fn table(args: &TableArgs, console: &Console) -> CommandResult {
    console.note(&format!("run {}", args.run.display()));
    Err(CommandError::message(ExitCode::Internal, "`table` is not wired yet", "this is a development snapshot"))
}
