//! How requests arrive.
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::yaml::{Axis, Finite, HumanDuration};

/// Most requests in flight of an open loop, unless the file says otherwise.
const MAX_IN_FLIGHT: u32 = 512;

/// How requests arrive.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Load {
    /// A fixed number of requests in flight: a lane sends its next request when the last one ended.
    Closed(Closed),
    /// Requests at equal distances.
    Constant(Rate),
    /// Requests at exponential distances.
    Poisson(Rate),
    /// A rate that climbs or falls evenly.
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

    /// Requests in flight of a resolved closed loop; 0 for an open loop, which holds none.
    pub fn concurrency(&self) -> u32 {
        self.concurrencies().first().copied().unwrap_or(0)
    }

    /// How many points [`Self::points`] gives.
    pub fn point_count(&self) -> usize {
        match self {
            Self::Closed(closed) => closed.concurrency.values().len(),
            Self::Constant(rate) | Self::Poisson(rate) => rate.rate_req_s.values().len(),
            Self::Ramp(_) | Self::Trace(_) => 1,
        }
    }

    /// Every point of the axis with its name, as `c2` or `r0.5`, and whether the axis varies.
    pub fn points(&self) -> Vec<(String, bool, Self)> {
        let varies = self.point_count() > 1;
        match self {
            Self::Closed(closed) => closed
                .concurrency
                .values()
                .iter()
                .map(|&c| (format!("c{c}"), varies, Self::closed(Axis::One(c))))
                .collect(),
            Self::Constant(rate) => rate.points().map(|(id, at)| (id, varies, Self::Constant(at))).collect(),
            Self::Poisson(rate) => rate.points().map(|(id, at)| (id, varies, Self::Poisson(at))).collect(),
            Self::Ramp(ramp) => vec![(format!("r{}to{}", ramp.from_req_s.0, ramp.to_req_s.0), false, self.clone())],
            Self::Trace(_) => vec![("trace".to_owned(), false, self.clone())],
        }
    }

    /// What an open loop offers; `None` for a closed one.
    pub fn offer(&self) -> Option<Offer> {
        match self {
            Self::Closed(_) => None,
            Self::Constant(rate) | Self::Poisson(rate) => Some(rate.offer()),
            Self::Ramp(ramp) => Some(ramp.offer()),
            Self::Trace(trace) => Some(trace.offer()),
        }
    }
}

/// What an open loop offers in one repeat.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Offer {
    /// Arrivals.
    pub arrivals: u32,
    /// Mean arrivals a second.
    pub rate_req_s: f64,
    /// From the start to the last arrival, about.
    pub duration: Duration,
    /// Requests in flight above which an arrival is shed.
    pub max_in_flight: u32,
}

/// A fixed number of requests in flight.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Closed {
    /// Requests in flight.
    pub concurrency: Axis<u32>,
}

/// Requests at one mean rate. Exactly one of `duration` and `requests` says when arrivals end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rate {
    /// Mean offered load, req/s.
    pub rate_req_s: Axis<Finite>,
    /// How long requests arrive: `round(rate · duration)` of them, at least 1.
    #[serde(default)]
    pub duration: Option<HumanDuration>,
    /// How many arrive.
    #[serde(default)]
    pub requests: Option<u32>,
    /// Requests in flight above which an arrival is recorded as `shed` and not sent; default 512.
    #[serde(default = "max_in_flight")]
    pub max_in_flight: u32,
}

impl Rate {
    fn points(&self) -> impl Iterator<Item = (String, Self)> + '_ {
        let at = |&rate: &Finite| (format!("r{}", rate.0), Self { rate_req_s: Axis::One(rate), ..self.clone() });
        self.rate_req_s.values().iter().map(at)
    }

    fn offer(&self) -> Offer {
        let rate = self.rate_req_s.first().0;
        let arrivals = stop_count(self.requests, self.duration, |seconds| rate * seconds);
        let duration = self.duration.map_or_else(|| seconds(f64::from(arrivals) / rate), |duration| duration.0);
        Offer { arrivals, rate_req_s: rate, duration, max_in_flight: self.max_in_flight }
    }
}

/// A rate that climbs or falls evenly. Exactly one of `duration` and `requests` says when arrivals end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ramp {
    /// Load at the start, req/s.
    pub from_req_s: Finite,
    /// Load at the end, req/s.
    pub to_req_s: Finite,
    /// How long it takes from one to the other.
    #[serde(default)]
    pub duration: Option<HumanDuration>,
    /// How many requests arrive on the way.
    #[serde(default)]
    pub requests: Option<u32>,
    /// Requests in flight above which an arrival is recorded as `shed` and not sent; default 512.
    #[serde(default = "max_in_flight")]
    pub max_in_flight: u32,
}

impl Ramp {
    fn offer(&self) -> Offer {
        let mean = f64::midpoint(self.from_req_s.0, self.to_req_s.0);
        let arrivals = stop_count(self.requests, self.duration, |seconds| mean * seconds);
        let duration = self.duration.map_or_else(|| seconds(f64::from(arrivals) / mean), |duration| duration.0);
        Offer { arrivals, rate_req_s: mean, duration, max_in_flight: self.max_in_flight }
    }
}

/// Requests at the times of a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trace {
    /// JSONL, one request a line.
    pub file: String,
}

impl Trace {
    fn offer(&self) -> Offer {
        Offer { arrivals: 0, rate_req_s: 0.0, duration: Duration::ZERO, max_in_flight: MAX_IN_FLIGHT }
    }
}

fn max_in_flight() -> u32 {
    MAX_IN_FLIGHT
}

/// The longest schedule: a year. Keeps any rate within [`Duration`].
const LONGEST_S: f64 = 366.0 * 86_400.0;

fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds.clamp(0.0, LONGEST_S))
}

/// Arrivals until the stop that was given; `expected` gives them for a time in seconds.
fn stop_count(requests: Option<u32>, duration: Option<HumanDuration>, expected: impl Fn(f64) -> f64) -> u32 {
    let by_time =
        |duration: HumanDuration| expected(duration.0.as_secs_f64()).round().clamp(1.0, f64::from(u32::MAX)) as u32;
    requests.or_else(|| duration.map(by_time)).unwrap_or(1)
}
