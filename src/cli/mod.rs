//! The command line: what can be typed, and which exit code answers it. Bodies of commands live in a file each.
pub mod bench;
pub mod calibrate;
pub mod console;
pub mod doctor;
pub mod exit;
pub mod model;
mod panic;
pub mod plan;
pub mod probe;
pub mod report;
pub mod run;
pub mod signals;
pub mod table;
pub mod verify;

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use serde_json::json;

pub use console::{Color, Console};
pub use exit::{CommandError, CommandResult, Exit, ExitCode};

/// A reproducible benchmark-and-eval laboratory for LLM inference engines.
///
/// One YAML file states a question; `inferlab run` answers it on this machine and leaves a log, tables and a report.
#[derive(Debug, Parser)]
#[command(name = "inferlab", version, long_version = LONG_VERSION, arg_required_else_help = true, help_expected = true)]
#[command(subcommand_required = true, max_term_width = 120)]
#[command(
    after_help = "Exit codes: 0 valid, 2 usage or experiment file, 3 model pin, 4 target unreachable, 10 run invalid, \
    11 failure limit, 12 soak verdict, 20 interrupted, 30 storage, 70 internal error."
)]
pub struct Cli {
    /// Print one JSON object on stdout instead of text (default: text).
    #[arg(long, global = true, display_order = 900)]
    pub json: bool,
    /// Colour messages on stderr; `auto` means on a terminal without NO_COLOR.
    #[arg(long, global = true, display_order = 901, value_enum, value_name = "WHEN", default_value_t = Color::Auto)]
    pub color: Color,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const LONG_VERSION: &str =
    concat!(env!("CARGO_PKG_VERSION"), " (", env!("INFERLAB_GIT_REVISION"), ", ", env!("INFERLAB_PROFILE"), ")");

/// The commands of this version.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Plan an experiment, run it, derive its tables and write its report.
    Run(run::RunArgs),
    /// Show what a run would do, without running anything.
    Plan(plan::PlanArgs),
    /// Measure prefill and decode of a model or server without a file, in a box of time.
    Bench(bench::BenchArgs),
    /// Write reports of finished or partial runs, from their logs only.
    Report(report::ReportArgs),
    /// Check a run's log: every line, checksum and count.
    Verify(verify::VerifyArgs),
    /// Derive the Parquet tables of a run from its log.
    Table(table::TableArgs),
    /// Ask a server what it is, what its answers hold and what it can be measured in.
    Probe(probe::ProbeArgs),
    /// List, fetch, check and describe pinned models.
    #[command(subcommand)]
    Model(model::ModelCommand),
    /// Measure this client's own error on this machine; later runs against servers print it.
    Calibrate(calibrate::CalibrateArgs),
    /// Say what this machine offers and what is missing.
    Doctor(doctor::DoctorArgs),
}

/// Commands of the contract that this version does not have, with what to use meanwhile.
const LATER: &[(&str, &str)] = &[
    ("import", "only runs of this program are read"),
    ("dataset", "the suites of this version need no dataset"),
    ("score", "the workloads of this version are timed, not scored"),
    ("compare", "put both sides into one suite as arms"),
    ("capacity", "`inferlab model inspect` shows sizes"),
    ("serve", "the engine runs inside `inferlab run`"),
    ("watch", "`inferlab run` shows its progress itself"),
];

/// Runs one command line, from parsing to the exit code. Never panics: a panic inside is exit code 70.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    panic::install_hook();
    let cli = match parse(arguments) {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    let console = Console::new(cli.json, cli.color);
    panic::guard(|| match dispatch(&cli.command, &console) {
        Ok(code) => code,
        Err(error) => console.fail(&error),
    })
}

/// Parses, or prints help, version or the usage error and gives the exit code.
fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Cli, ExitCode> {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    // The flag counts also where the rest cannot be read: whoever asked for JSON gets its one object.
    let json = arguments.iter().take_while(|word| *word != "--").any(|word| word == "--json");
    let parsed = Cli::command().try_get_matches_from(arguments).and_then(|matches| Cli::from_arg_matches(&matches));
    parsed.map_err(|error| {
        if let Some((command, instead)) = later(&error) {
            let message = format!("`inferlab {command}` is not in this version");
            return Console::new(json, Color::Auto).fail(&CommandError::message(ExitCode::Usage, message, instead));
        }
        // Help for a reader who closed the pipe is no error.
        error.print().ok();
        if error.exit_code() == 0 {
            return ExitCode::Valid;
        }
        if json {
            let text = error.render().to_string();
            let first = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
            let object = json!({"error": first, "help": "see `inferlab --help`", "exit": ExitCode::Usage.number()});
            Console::new(json, Color::Auto).print_json(&object).ok();
        }
        ExitCode::Usage
    })
}

/// The command of a later version that was typed, if that is what went wrong.
fn later(error: &clap::Error) -> Option<(&'static str, &'static str)> {
    if error.kind() != ErrorKind::InvalidSubcommand {
        return None;
    }
    let Some(ContextValue::String(typed)) = error.get(ContextKind::InvalidSubcommand) else { return None };
    LATER.iter().find(|(name, _)| name == typed).copied()
}

fn dispatch(command: &Command, console: &Console) -> CommandResult {
    match command {
        Command::Run(args) => run::run(args, console),
        Command::Plan(args) => plan::plan(args, console),
        Command::Bench(args) => bench::bench(args, console),
        Command::Report(args) => report::report(args, console),
        Command::Verify(args) => verify::verify(args, console),
        Command::Table(args) => table::table(args, console),
        Command::Probe(args) => probe::probe(args, console),
        Command::Model(command) => model::model(command, console),
        Command::Calibrate(args) => calibrate::calibrate(args, console),
        Command::Doctor(args) => doctor::doctor(args, console),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed_and_every_argument_has_help() {
        Cli::command().debug_assert();
    }

    #[test]
    fn commands_of_later_versions_are_known_by_name_and_others_are_not() {
        let error = |word: &str| Cli::try_parse_from(["inferlab", "--color", "never", word, "x"]).unwrap_err();
        for (name, _) in LATER {
            assert_eq!(later(&error(name)).map(|(found, _)| found), Some(*name));
        }
        assert_eq!(later(&error("rnu")), None);
        assert_eq!(later(&Cli::try_parse_from(["inferlab", "run", "a", "bench"]).unwrap_err()), None);
    }
}
