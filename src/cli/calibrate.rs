//! `inferlab calibrate`: how wrong this client is by itself, on this machine.
use std::time::Duration;

use clap::Args;
use serde_json::json;

use super::{CommandResult, Console, ExitCode};
use crate::calibrate::{self, CalibrateError, Level};
use crate::cli::exit::CommandError;
use crate::loadgen::Stop;
use crate::record::{CalibratedLevel, ErrorMs};

/// Arguments of `calibrate`.
#[derive(Debug, Args)]
pub struct CalibrateArgs {
    /// Streams in flight to measure at; give those that your suites use (default: 1 16 64).
    #[arg(long, value_name = "N", num_args = 1.., default_values_t = [1, 16, 64], value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub concurrency: Vec<u32>,
    /// Seconds to measure at each.
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=600))]
    pub time: u64,
}

/// Carries out `calibrate`.
pub fn calibrate(args: &CalibrateArgs, console: &Console) -> CommandResult {
    let time = Duration::from_secs(args.time);
    let mut levels: Vec<Level> = args.concurrency.iter().map(|&concurrency| Level { concurrency, time }).collect();
    levels.sort_by_key(|level| level.concurrency);
    levels.dedup_by_key(|level| level.concurrency);
    if !console.json() {
        console.print(HEAD)?;
    }
    let stop = Stop::default();
    let mut closed = Ok(());
    let found = calibrate::measure(&levels, &stop, |level| {
        if !console.json() && closed.is_ok() {
            closed = console.print(&line(level));
        }
    })
    .map_err(failed)?;
    closed?;
    let path = calibrate::save(&found).map_err(failed)?;
    if console.json() {
        console.print_json(&json!({"calibration": found, "file": path, "exit": ExitCode::Valid.number()}))?;
    } else {
        console.print("ms, absolute; p50 / p99, or the largest (max) where there are fewer than 459 values")?;
        console.note(&format!("kept for runs on this host with this build: {}", path.display()));
    }
    Ok(ExitCode::Valid)
}

fn failed(error: CalibrateError) -> CommandError {
    let code = match &error {
        CalibrateError::Store { .. } | CalibrateError::Cache(_) => ExitCode::Storage,
        CalibrateError::Client(_) => ExitCode::Usage,
        _ => ExitCode::Unreachable,
    };
    CommandError::new(code, error)
}

const HEAD: &str =
    "in flight  requests  failed  sent - scheduled            TTFT           event             gap            TPOT";

fn line(level: &CalibratedLevel) -> String {
    let CalibratedLevel { concurrency, requests, failed, dispatch_ms, ttft_ms, event_ms, gap_ms, tpot_ms } = level;
    let [dispatch, ttft, event, gap, tpot] = [dispatch_ms, ttft_ms, event_ms, gap_ms, tpot_ms].map(say);
    format!(
        "{concurrency:>9}  {requests:>8}  {failed:>6}  {dispatch:>16}  {ttft:>14}  {event:>14}  {gap:>14}  {tpot:>14}"
    )
}

fn say(error: &ErrorMs) -> String {
    let number = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), |ms| format!("{ms:.3}"));
    let largest = if error.p99.is_none() { " max" } else { "" };
    format!("{} / {}{largest}", number(error.p50), number(error.worst()))
}
