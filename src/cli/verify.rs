//! `inferlab verify`: is a run's log whole?
use std::path::PathBuf;

use clap::Args;

use super::{CommandResult, Console, ExitCode};
use crate::{inert, record};

/// Arguments of `verify`.
#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// Run folder to check.
    pub run: PathBuf,
}

/// Carries out `verify`: exit 0 for a sound log, 10 for a damaged one.
pub fn verify(args: &VerifyArgs, console: &Console) -> CommandResult {
    let report = record::verify_run(&args.run)?;
    let code = if report.is_sound() { ExitCode::Valid } else { ExitCode::Invalid };
    if console.json() {
        let mut value = serde_json::to_value(&report).unwrap_or_default();
        value["exit"] = code.number().into();
        console.print_json(&value)?;
        return Ok(code);
    }
    let counts = report.row_counts;
    let lines = [
        (if report.is_sound() { "sound" } else { "DAMAGED" }).to_owned(),
        format!("  lines      {} (checksums {}, numbers {})", report.lines, yes(report.crc_ok), yes(report.seq_ok)),
        format!(
            "  rows       {} in {} segments, {} superseded by a later attempt",
            report.rows, report.segments, report.superseded
        ),
        format!(
            "  measured   {} ok, {} failed, {} cancelled, {} shed",
            counts.ok, counts.failed, counts.cancelled, counts.shed
        ),
        format!("  texts      {} of {} belong to a row", report.texts_matched, report.texts),
        format!(
            "  finished   {}",
            match (report.is_sound(), report.ended) {
                (false, _) => "unknown: the figures above cover what lies before the damage",
                (true, true) => "yes",
                (true, false) => "no: go on with `inferlab run SUITE --resume RUN`",
            }
        ),
    ];
    for line in lines {
        console.print(&line)?;
    }
    if report.torn_bytes > 0 {
        console.print(&format!(
            "  torn       {} bytes behind the last whole line; a resume cuts them off",
            report.torn_bytes
        ))?;
    }
    for problem in &report.problems {
        console.print(&format!("  problem    {}", inert::terminal_line(problem)))?;
    }
    Ok(code)
}

fn yes(right: bool) -> &'static str {
    if right { "right" } else { "WRONG" }
}
