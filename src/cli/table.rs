//! `inferlab table`: the Parquet tables of a run.
use std::path::PathBuf;

use clap::Args;

use super::{CommandResult, Console, ExitCode};
use crate::{record, table};

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
    let run = record::read_run(&args.run)?;
    let derived = if args.rebuild { table::derive(&args.run, &run) } else { table::derive_missing(&args.run, &run) }?;
    let files = [
        ("requests.parquet", derived.requests),
        ("events.parquet", derived.events),
        ("hardware.parquet", derived.hardware),
    ];
    if console.json() {
        let tables: serde_json::Map<String, serde_json::Value> =
            files.iter().map(|&(name, rows)| (name.to_owned(), rows.into())).collect();
        console.print_json(&serde_json::json!({"run": args.run.to_string_lossy(), "rows": tables, "exit": 0}))?;
        return Ok(ExitCode::Valid);
    }
    for (name, rows) in files {
        console.print(&format!("{:>8} rows  {}", rows, args.run.join(name).display()))?;
    }
    Ok(ExitCode::Valid)
}
