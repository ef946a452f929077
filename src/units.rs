//! Time on the monotonic clock of a segment, in nanoseconds, and the conversions the reports use.
use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};
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

    /// The anchor on CLOCK_MONOTONIC in ns, which other programs of this boot can read too: a trace of a server, a second inferlab.
    pub fn anchor_ns(&self) -> i64 {
        // std promises no clock for `Instant`, so both are read and the difference is taken. A pause between the two readings makes it
        // too small, so the largest of three is the nearest.
        let once = |_| {
            let now = clock_gettime(ClockId::Monotonic);
            now.tv_sec * 1_000_000_000 + now.tv_nsec - self.now().0
        };
        (0..3).map(once).max().expect("three readings")
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

    #[test]
    fn the_anchor_is_a_moment_of_the_clock_that_the_kernel_keeps() {
        let kernel = || {
            let now = clock_gettime(ClockId::Monotonic);
            now.tv_sec * 1_000_000_000 + now.tv_nsec
        };
        let before = kernel();
        let clock = Clock::start();
        let after = kernel();
        std::thread::sleep(std::time::Duration::from_millis(5));
        // A busy machine may pause between the two readings of each try.
        let anchor = clock.anchor_ns();
        assert!(anchor <= after && anchor > before - 1_000_000_000, "{before} {anchor} {after}");
    }
}
