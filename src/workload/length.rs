//! How many tokens: a number, or a distribution that each request draws from.
use std::fmt;

use rand_pcg::Pcg64Mcg;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde::{Deserialize, Serialize};

use super::schedule::unit;
use super::seed::below;
use crate::yaml::Finite;

/// A length in tokens.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(untagged)] // writing only: reading goes through the visitor below, which keeps places
pub enum Length {
    /// The same for every request.
    Exactly(u32),
    /// Drawn for each.
    Drawn(Distribution),
}

/// What a length is drawn from; every draw is rounded and held within `min` and `max`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Distribution {
    /// Every whole number alike.
    Uniform(Uniform),
    /// The logarithm is normal: many short, few long, as in recorded traffic.
    Lognormal(Lognormal),
}

/// Every whole number from `min` to `max`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Uniform {
    /// Least tokens.
    pub min: u32,
    /// Most tokens.
    pub max: u32,
}

/// `median · exp(sigma · z)`, `z` standard normal.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lognormal {
    /// Half of the draws are shorter.
    pub median: u32,
    /// Standard deviation of the logarithm.
    pub sigma: Finite,
    /// Least tokens.
    pub min: u32,
    /// Most tokens.
    pub max: u32,
}

impl Length {
    /// Tokens of one request.
    pub(super) fn draw(self, rng: &mut Pcg64Mcg) -> u32 {
        match self {
            Self::Exactly(tokens) => tokens,
            Self::Drawn(Distribution::Uniform(Uniform { min, max })) => {
                min + below(rng, max.saturating_sub(min).saturating_add(1))
            }
            Self::Drawn(Distribution::Lognormal(law)) => {
                // Box and Muller.
                let z = (-2.0 * unit(rng).ln()).sqrt() * (2.0 * std::f64::consts::PI * unit(rng)).cos();
                let drawn = f64::from(law.median) * (law.sigma.0 * z).exp();
                drawn.round().clamp(f64::from(law.min), f64::from(law.max)) as u32
            }
        }
    }

    /// Mean tokens, rounded; of a log-normal law before it is held within its bounds, `median · exp(sigma² / 2)`.
    pub fn mean(self) -> u32 {
        match self {
            Self::Exactly(tokens) => tokens,
            Self::Drawn(Distribution::Uniform(law)) => u32::midpoint(law.min, law.max),
            Self::Drawn(Distribution::Lognormal(law)) => {
                let mean = f64::from(law.median) * (law.sigma.0 * law.sigma.0 / 2.0).exp();
                mean.round().clamp(f64::from(law.min), f64::from(law.max)) as u32
            }
        }
    }

    /// Most and least tokens.
    pub fn bounds(self) -> (u32, u32) {
        match self {
            Self::Exactly(tokens) => (tokens, tokens),
            Self::Drawn(Distribution::Uniform(law)) => (law.min, law.max),
            Self::Drawn(Distribution::Lognormal(law)) => (law.min, law.max),
        }
    }
}

/// As it stands in the id of a cell: `512` or `128to1024`.
impl fmt::Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self, self.bounds()) {
            (Self::Exactly(tokens), _) => write!(f, "{tokens}"),
            (Self::Drawn(_), (min, max)) => write!(f, "{min}to{max}"),
        }
    }
}

impl<'de> Deserialize<'de> for Length {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Tokens;
        impl<'de> Visitor<'de> for Tokens {
            type Value = Length;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of tokens, or a distribution as {uniform: {min: 128, max: 1024}}")
            }
            fn visit_u64<E: Error>(self, tokens: u64) -> Result<Length, E> {
                let unexpected = |_| E::invalid_value(serde::de::Unexpected::Unsigned(tokens), &self);
                u32::try_from(tokens).map(Length::Exactly).map_err(unexpected)
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Length, A::Error> {
                Distribution::deserialize(MapAccessDeserializer::new(map)).map(Length::Drawn)
            }
        }
        deserializer.deserialize_any(Tokens)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::stream;

    #[test]
    fn draws_stay_inside_their_bounds_and_reach_both() {
        let mut rng = stream(3, "test", &[]);
        let uniform = Length::Drawn(Distribution::Uniform(Uniform { min: 3, max: 6 }));
        let drawn: Vec<u32> = (0..500).map(|_| uniform.draw(&mut rng)).collect();
        assert_eq!((drawn.iter().min(), drawn.iter().max()), (Some(&3), Some(&6)));
        let law = Lognormal { median: 100, sigma: Finite(1.0), min: 20, max: 400 };
        let drawn: Vec<u32> = (0..2000).map(|_| Length::Drawn(Distribution::Lognormal(law)).draw(&mut rng)).collect();
        let below = drawn.iter().filter(|&&n| n < 100).count();
        assert!(drawn.iter().all(|n| (20..=400).contains(n)) && (900..1100).contains(&below), "{below} of 2000");
    }
}
