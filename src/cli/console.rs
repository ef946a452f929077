//! Where words go: data to stdout, messages to stderr. A reader who closes the pipe ends the printing, not the command.
use std::cell::Cell;
use std::io::{ErrorKind, IsTerminal, Write};

use clap::ValueEnum;
use miette::{GraphicalReportHandler, GraphicalTheme};
use serde_json::{Value, json};

use super::exit::{CommandError, ExitCode, OutputError};

/// When messages are coloured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal without NO_COLOR.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// How this command line talks to its reader.
#[derive(Debug)]
pub struct Console {
    json: bool,
    rich: bool,
    stdout_closed: Cell<bool>,
}

impl Console {
    /// Settings of a command line; looks at NO_COLOR and at whether stderr is a terminal.
    pub fn new(json: bool, color: Color) -> Self {
        // https://no-color.org: any value but the empty one.
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let rich = match color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => !no_color && std::io::stderr().is_terminal(),
        };
        Self { json, rich, stdout_closed: Cell::new(false) }
    }

    /// Whether stdout carries one JSON object instead of text.
    pub fn json(&self) -> bool {
        self.json
    }

    /// Whether stderr may be drawn on: colours, box characters.
    pub fn rich(&self) -> bool {
        self.rich
    }

    /// Writes to stdout and ends the line.
    ///
    /// A closed pipe is remembered and no error; a full disk is one.
    pub fn print(&self, text: &str) -> Result<(), OutputError> {
        if self.stdout_closed.get() {
            return Ok(());
        }
        let mut stdout = std::io::stdout().lock();
        match writeln!(stdout, "{text}").and_then(|()| stdout.flush()) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                self.stdout_closed.set(true);
                Ok(())
            }
            other => Ok(other?),
        }
    }

    /// Writes the one JSON object of `--json` to stdout.
    pub fn print_json(&self, value: &Value) -> Result<(), OutputError> {
        self.print(&format!("{value:#}"))
    }

    /// Writes a line of progress or warning to stderr; a stderr that is gone is nobody to tell.
    pub fn note(&self, text: &str) {
        writeln!(std::io::stderr().lock(), "{text}").ok();
    }

    /// Tells of a failed command on stderr, and in JSON on stdout where that was asked for; gives its exit code.
    pub fn fail(&self, error: &CommandError) -> ExitCode {
        self.note(self.render(error).trim_end());
        if self.json {
            let help = error.report.help().map(|help| help.to_string());
            let object = json!({"error": error.report.to_string(), "help": help, "exit": error.code.number()});
            self.print_json(&object).ok();
        }
        error.code
    }

    /// The message as a person reads it: drawn on a terminal, plain ASCII frames without colour elsewhere.
    fn render(&self, error: &CommandError) -> String {
        let theme = if self.rich { GraphicalTheme::unicode() } else { GraphicalTheme::none() };
        let handler = GraphicalReportHandler::new_themed(theme).with_links(false).with_width(120).with_context_lines(1);
        let mut text = String::new();
        match handler.render_report(&mut text, error.report.as_ref()) {
            Ok(()) => text,
            Err(_) => error.report.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(color: Color) -> String {
        let report = CommandError::message(ExitCode::Usage, "no such suite", "look into suites/");
        Console::new(false, color).render(&report)
    }

    #[test]
    fn a_plain_message_is_ascii_without_escapes() {
        let text = rendered(Color::Never);
        assert!(text.is_ascii() && !text.contains('\u{1b}'), "{text:?}");
        assert!(text.contains("no such suite") && text.contains("look into suites/"), "{text}");
    }

    #[test]
    fn a_message_on_a_terminal_is_coloured() {
        assert!(rendered(Color::Always).contains('\u{1b}'));
    }
}
