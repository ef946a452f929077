//! `inferlab report`: reports of runs, from their logs only.
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{CommandResult, Console, ExitCode};
use crate::{inert, metric, record};

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

/// Carries out `report`: one run into a folder of its name, several into one folder named after all of them.
pub fn report(args: &ReportArgs, console: &Console) -> CommandResult {
    let mut summaries = Vec::with_capacity(args.runs.len());
    for dir in &args.runs {
        summaries.push(metric::summarise(&record::run_name(dir), &record::read_run(dir)?));
    }
    let names: Vec<&str> = summaries.iter().map(|summary| summary.run_id.as_str()).collect();
    let folder = if let [one] = names[..] { one.to_owned() } else { inert::file_slug(&names.join("+")) };
    let formats: Vec<String> = args.format.iter().map(|format| format.word().to_owned()).collect();
    let paths = crate::report::write(&summaries, &args.out.join(folder), &formats)?;
    if console.json() {
        console.print_json(&serde_json::json!({"runs": args.runs.iter().map(|run| run.to_string_lossy()).collect::<Vec<_>>(), "reports": paths, "exit": 0}))?;
    } else {
        for path in [&paths.md, &paths.html, &paths.csv].into_iter().flatten() {
            console.print(&path.display().to_string())?;
        }
    }
    Ok(ExitCode::Valid)
}
