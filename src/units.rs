//! Time on the monotonic clock of a segment, in nanoseconds, and the conversions the reports use.
use std::time::Instant;

use serde::{Deserialize, Serialize};

/// Nanoseconds since the anchor of a log segment, on the monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TimestampNs(pub i64);

impl TimestampNs {
    /// Milliseconds from `earlier` to `self`; negative when `earlier` is later.
    pub fn ms_since(self, earlier: Self) -> f64 {
        (self.0 - earlier.0) as f64 / 1e6
    }
}

/// The monotonic clock of one segment: every time of a run is read from it.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    anchor: Instant,
}

impl Clock {
    /// A clock whose zero is now.
    pub fn start() -> Self {
        Self { anchor: Instant::now() }
    }

    /// Now, in nanoseconds since the anchor.
    pub fn now(&self) -> TimestampNs {
        self.at(Instant::now())
    }

    /// `instant` on this clock; 0 for instants before the anchor.
    pub fn at(&self, instant: Instant) -> TimestampNs {
        TimestampNs(i64::try_from(instant.saturating_duration_since(self.anchor).as_nanos()).unwrap_or(i64::MAX))
    }

    /// The instant at which this clock reads `t`, for sleeping until a schedule.
    pub fn instant(&self, t: TimestampNs) -> Instant {
        self.anchor + std::time::Duration::from_nanos(u64::try_from(t.0).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_before_the_anchor_reads_zero_and_never_negative() {
        let early = Instant::now();
        let clock = Clock::start();
        assert_eq!(clock.at(early), TimestampNs(0));
        let t = clock.now();
        assert_eq!(clock.at(clock.instant(t)), t);
    }
}
