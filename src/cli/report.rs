//! `inferlab report`: reports of runs, from their logs only.
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{CommandError, CommandResult, Console, ExitCode};

/// Forms a report can take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ReportFormat {
    /// Markdown, to paste.
    Md,
    /// One HTML file that needs nothing else.
    Html,
    /// Numbers only.
    Csv,
}

impl ReportFormat {
    /// The word of the experiment file and of `--format`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Md => "md",
            Self::Html => "html",
            Self::Csv => "csv",
        }
    }
}

/// Arguments of `report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Run folders to report on, together.
    #[arg(required = true, value_name = "RUN")]
    pub runs: Vec<PathBuf>,
    /// Folder that gets the report's own folder.
    #[arg(long, value_name = "DIR", default_value = "reports")]
    pub out: PathBuf,
    /// Formats to write, separated by commas.
    #[arg(long, value_name = "FORMATS", value_enum, value_delimiter = ',', default_value = "md,html,csv")]
    pub format: Vec<ReportFormat>,
}

/// Carries out `report`.
pub fn report(args: &ReportArgs, console: &Console) -> CommandResult {
    console.note(&format!("runs {}", args.runs.len()));
    Err(CommandError::message(ExitCode::Internal, "`report` is not wired yet", "this is a development snapshot"))
}
