//! `inferlab doctor`: what this machine offers and what is missing.
use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::{CommandResult, Console, ExitCode};
use crate::hardware::{Level, examine};
use crate::pin::Store;

/// Arguments of `doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Folder for runs whose disk is checked.
    #[arg(long, value_name = "DIR", default_value = "runs")]
    pub out: PathBuf,
}

/// Carries out `doctor`.
pub fn doctor(args: &DoctorArgs, console: &Console) -> CommandResult {
    let store = Store::from_environment().ok();
    let cache = store.as_ref().map(|store| store.cache.as_path());
    let pip = store.as_ref().and_then(|store| store.pip.as_deref());
    let checks = examine(&args.out, cache, pip);
    let broken = checks.iter().any(|check| check.level == Level::Broken);
    // What can be broken is the place for runs.
    let code = if broken { ExitCode::Storage } else { ExitCode::Valid };
    if console.json() {
        console.print_json(&json!({"checks": checks, "exit": code.number()}))?;
        return Ok(code);
    }
    let width = checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
    for check in &checks {
        console.print(&format!("{:7}  {:width$}  {}", mark(check.level), check.name, check.seen))?;
        if let Some(help) = &check.help {
            console.print(&format!("{:7}  {:width$}  -> {help}", "", ""))?;
        }
    }
    Ok(code)
}

fn mark(level: Level) -> &'static str {
    match level {
        Level::Ok => "ok",
        Level::Info => "info",
        Level::Warning => "warning",
        Level::Broken => "BROKEN",
    }
}
