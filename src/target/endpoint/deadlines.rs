//! When each stage of a request is late, and which word that gets.
use std::time::Instant;

use super::connection::Stage;
use super::settings::Timeouts;
use crate::record::Outcome;

/// When which stage of a request is late.
#[derive(Debug, Clone, Copy)]
pub(super) struct Deadlines {
    /// When the request was handed over.
    pub(super) sent: Instant,
    /// How long each stage may take.
    pub(super) timeouts: Timeouts,
}

impl Deadlines {
    fn total(&self) -> Instant {
        self.sent + self.timeouts.total
    }

    pub(super) fn before_first_byte(&self, stage: Stage) -> Instant {
        let due = match stage {
            // The client's own connect deadline ends this stage.
            Stage::Connecting => self.total(),
            Stage::Pooled => self.sent + self.timeouts.first_byte,
            Stage::Connected(at) => at + self.timeouts.first_byte,
        };
        due.min(self.total())
    }

    pub(super) fn after(&self, output: Instant) -> Instant {
        (output + self.timeouts.idle).min(self.total())
    }

    pub(super) fn first_byte_missed(&self, now: Instant, what: &str) -> (Outcome, String) {
        match self.total_missed(now) {
            Some(missed) => missed,
            None => {
                (Outcome::TimeoutFirstByte, format!("no {what} within {} ms", self.timeouts.first_byte.as_millis()))
            }
        }
    }

    pub(super) fn idle_missed(&self, now: Instant) -> (Outcome, String) {
        match self.total_missed(now) {
            Some(missed) => missed,
            None => (Outcome::TimeoutIdle, format!("no output for {} ms", self.timeouts.idle.as_millis())),
        }
    }

    fn total_missed(&self, now: Instant) -> Option<(Outcome, String)> {
        let limit = self.timeouts.total;
        (now >= self.total()).then(|| (Outcome::TimeoutTotal, format!("not finished within {} ms", limit.as_millis())))
    }
}
