//! What the client's own error was found to be: measured by `inferlab calibrate`, kept per host and build, and written into the log of a
//! run as the event `calibration`, so that a report needs nothing but the log.
use serde::{Deserialize, Serialize};

/// A calibration of this client on one host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// When it was made, RFC 3339 UTC.
    pub utc: String,
    /// One entry for each concurrency, rising.
    pub levels: Vec<CalibratedLevel>,
}

/// The client's error with so many streams in flight. All errors are absolute values in ms.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CalibratedLevel {
    /// Streams in flight that were aimed at.
    pub concurrency: u32,
    /// Answered requests.
    pub requests: usize,
    /// Requests that were not answered or whose events did not match those written.
    pub failed: usize,
    /// Our own lateness: sent − scheduled.
    pub dispatch_ms: ErrorMs,
    /// TTFT as measured − (first event written − request read by the emitter).
    pub ttft_ms: ErrorMs,
    /// Time stamp of an event − the time it was written.
    pub event_ms: ErrorMs,
    /// Gap between two events as measured − as written.
    pub gap_ms: ErrorMs,
    /// TPOT as measured − as written.
    pub tpot_ms: ErrorMs,
}

/// An error's distribution.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct ErrorMs {
    /// Values behind it.
    pub n: usize,
    /// Median.
    pub p50: Option<f64>,
    /// 99th percentile; `None` below 459 values.
    pub p99: Option<f64>,
    /// Largest.
    pub max: Option<f64>,
}

impl ErrorMs {
    /// The 99th percentile, or the largest where n is too small for one: never less than the truth.
    pub fn worst(&self) -> Option<f64> {
        self.p99.or(self.max)
    }
}

impl Calibration {
    /// The level that speaks for `concurrency` requests in flight: the least that has as many, else the highest.
    pub fn level(&self, concurrency: f64) -> Option<&CalibratedLevel> {
        let enough = self.levels.iter().filter(|level| f64::from(level.concurrency) >= concurrency);
        enough
            .min_by_key(|level| level.concurrency)
            .or_else(|| self.levels.iter().max_by_key(|level| level.concurrency))
    }
}
