//! What a person sees while a run goes on: one bar on stderr, nothing when stderr is no terminal.
use std::io::{IsTerminal, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::inert;

/// Progress over all requests of a run, warm-up included.
pub struct Progress {
    bar: ProgressBar,
    plain: bool,
}

impl Progress {
    /// A bar over `requests`; `quiet` shows nothing at all.
    pub fn new(requests: u64, quiet: bool) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let target =
            if quiet || !terminal { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr_with_hz(8) };
        let bar = ProgressBar::with_draw_target(Some(requests), target);
        let style =
            ProgressStyle::with_template("{bar:28} {pos}/{len} requests  {elapsed} elapsed, about {eta} left  {msg}")
                .expect("the template above is well formed");
        bar.set_style(style);
        bar.enable_steady_tick(Duration::from_millis(500));
        Self { bar, plain: !quiet && !terminal }
    }

    /// A cell begins.
    pub fn cell(&self, repeat: u32, repeats: u32, arm: &str, cell: &str) {
        let text =
            format!("repeat {}/{repeats}  {}  {}", repeat + 1, inert::terminal_line(arm), inert::terminal_line(cell));
        if self.plain {
            note(&text);
        }
        self.bar.set_message(text);
    }

    /// A line above the bar.
    pub fn say(&self, text: &str) {
        if self.plain {
            note(text);
        } else {
            self.bar.println(text);
        }
    }

    /// One request ended.
    pub fn one(&self) {
        self.bar.inc(1);
    }

    /// `n` requests need not be run: an earlier segment has them.
    pub fn skip(&self, n: u64) {
        self.bar.inc(n);
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// A line on stderr. A stderr that is gone is nobody to tell, and no reason to end a measurement.
pub fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
