//! How requests arrive.
use serde::{Deserialize, Serialize};

use crate::yaml::{Axis, Finite, HumanDuration};

/// How requests arrive. This version runs closed loops; the others are read and refused.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Load {
    /// A fixed number of requests in flight: a lane sends its next request when the last one ended.
    Closed(Closed),
    /// Requests at equal distances.
    Constant(Constant),
    /// Requests at exponential distances.
    Poisson(Poisson),
    /// A rate that climbs.
    Ramp(Ramp),
    /// Requests at the times of a file.
    Trace(Trace),
}

impl Load {
    /// The YAML key.
    pub fn key(&self) -> &'static str {
        match self {
            Self::Closed(_) => "closed",
            Self::Constant(_) => "constant",
            Self::Poisson(_) => "poisson",
            Self::Ramp(_) => "ramp",
            Self::Trace(_) => "trace",
        }
    }

    /// A closed loop.
    pub fn closed(concurrency: Axis<u32>) -> Self {
        Self::Closed(Closed { concurrency })
    }

    /// Requests in flight, or nothing for an open loop.
    pub fn concurrencies(&self) -> &[u32] {
        match self {
            Self::Closed(closed) => closed.concurrency.values(),
            _ => &[],
        }
    }
}

/// A fixed number of requests in flight.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Closed {
    /// Requests in flight.
    pub concurrency: Axis<u32>,
}

/// Requests at equal distances.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Constant {
    /// Offered load, req/s.
    pub rate_req_s: Axis<Finite>,
    /// How long.
    pub duration: HumanDuration,
}

/// Requests at exponential distances.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Poisson {
    /// Mean offered load, req/s.
    pub rate_req_s: Axis<Finite>,
    /// How long.
    pub duration: HumanDuration,
}

/// A rate that climbs evenly.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ramp {
    /// Load at the start, req/s.
    pub from_req_s: Finite,
    /// Load at the end, req/s.
    pub to_req_s: Finite,
    /// How long.
    pub duration: HumanDuration,
}

/// Requests at the times of a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trace {
    /// JSONL, one request a line.
    pub file: String,
}
