//! Progress of a fetch on stderr: a bar on a terminal, a line now and then elsewhere.
use std::io::Write;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::error::PinError;
use super::fetch::{FetchEvent, Watch};

/// Runs a fetch with its progress on stderr; `stopped` is asked several times a second whether to end it.
pub fn with_progress<T>(
    name: &str,
    stopped: &(dyn Fn() -> bool + Sync),
    fetch: impl FnOnce(&Watch<'_>) -> Result<T, PinError>,
) -> Result<T, PinError> {
    let bar = fetch_bar(name);
    let event = |event: FetchEvent<'_>| match event {
        FetchEvent::Source(source) => say(&bar, &format!("{name}: fetching from {source}")),
        FetchEvent::Note(note) => say(&bar, &format!("{name}: {note}")),
        FetchEvent::Downloaded { done, total } => show(&bar, name, done, total),
        FetchEvent::Checked { done, total } => show(&bar, &format!("{name} (checking)"), done, Some(total)),
    };
    let result = fetch(&Watch { event: &event, stopped });
    bar.finish_and_clear();
    result
}

/// Hidden where stderr is no terminal.
fn fetch_bar(name: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10));
    bar.set_style(style("{msg} {decimal_bytes} {decimal_bytes_per_sec}"));
    bar.set_message(name.to_owned());
    bar
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the template is well formed").progress_chars("##-")
}

fn show(bar: &ProgressBar, message: &str, done: u64, total: Option<u64>) {
    if bar.message() != message || bar.length() != total {
        bar.set_message(message.to_owned());
        if let Some(total) = total {
            bar.set_length(total);
            bar.set_style(style(
                "{msg} [{bar:30}] {decimal_bytes} of {decimal_total_bytes}, {decimal_bytes_per_sec}, {eta} left",
            ));
        }
        bar.reset_eta();
    }
    bar.set_position(done);
}

/// A line above the bar, on a terminal or not. A stderr that is gone is nobody to tell.
fn say(bar: &ProgressBar, line: &str) {
    bar.suspend(|| writeln!(std::io::stderr().lock(), "{line}").ok());
}
