//! Serving under a load: requests of stated shapes, arriving as a closed loop, at a rate, on a ramp or as a trace tells.
use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Serialize};

use super::length::Length;
use super::seed::{permutation, stream};
use super::{Load, point_id};
use crate::yaml::{Axis, Finite, HumanDuration};

const PROMPT_TOKENS: u32 = 512;
const COMPLETION_TOKENS: u32 = 128;

/// The YAML of `serving`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Serving {
    /// How requests arrive; any load.
    pub load: Load,
    /// Prompt length in tokens as the target counts them: a number, a list that is swept, or a distribution; default 512.
    #[serde(default)]
    pub prompt_tokens: Option<Axis<Length>>,
    /// Tokens a request generates, likewise; `ignore_eos` is sent so that all of them come. Default 128.
    #[serde(default)]
    pub completion_tokens: Option<Axis<Length>>,
    /// Shapes that arrive together, instead of the two lengths above: as many of each as its share says, in a drawn order.
    #[serde(default)]
    pub mix: Option<Vec<Shape>>,
    /// A start of the prompt that several requests share; then no nonce stands in front, and a cache may answer.
    #[serde(default)]
    pub prefix: Option<Prefix>,
    /// Conversations that grow by the model's own answers, instead of single requests; no nonce either.
    #[serde(default)]
    pub sessions: Option<Sessions>,
    /// Of a closed loop: measured requests (sessions) of each lane in one repeat; default 4.
    #[serde(default = "four")]
    pub requests_per_lane: u32,
    /// Requests (sessions) of each lane before them, recorded as warm-up and left out of every number; an open loop has one lane of
    /// them. Default 1.
    #[serde(default = "one")]
    pub warmup_per_lane: u32,
}

/// One kind of request in a mix.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shape {
    /// Prompt length in tokens.
    pub prompt_tokens: Length,
    /// Tokens it generates.
    pub completion_tokens: Length,
    /// Its part of all requests, relative to the other shapes; default 1.
    #[serde(default = "whole")]
    pub share: Finite,
}

/// A start of the prompt that a group of requests shares.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prefix {
    /// Part of the prompt that is common to the group, from 0 to 1.
    pub share: Finite,
    /// How many groups there are; request `i` belongs to group `i mod groups`. Default 1.
    #[serde(default = "one")]
    pub groups: u32,
}

/// Conversations. Turn 0 asks a prompt of `prompt_tokens`; each later turn sends everything so far, the model's own answers in it, and a
/// new message.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sessions {
    /// Requests of a conversation, one after another.
    pub turns: u32,
    /// Words of each new message after the first, about a token each; default 64.
    #[serde(default = "sixty_four")]
    pub turn_tokens: u32,
    /// From the end of an answer to the next message; default none.
    #[serde(default)]
    pub think_time: Option<HumanDuration>,
}

fn one() -> u32 {
    1
}

fn four() -> u32 {
    4
}

fn sixty_four() -> u32 {
    64
}

fn whole() -> Finite {
    Finite(1.0)
}

/// Lengths of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lengths {
    /// Prompt length in tokens as the target counts them.
    pub prompt_tokens: u32,
    /// Tokens it generates.
    pub completion_tokens: u32,
}

impl Serving {
    /// The swept prompt lengths.
    pub fn prompts(&self) -> Axis<Length> {
        self.prompt_tokens.clone().unwrap_or(Axis::One(Length::Exactly(PROMPT_TOKENS)))
    }

    /// The swept completion lengths.
    pub fn completions(&self) -> Axis<Length> {
        self.completion_tokens.clone().unwrap_or(Axis::One(Length::Exactly(COMPLETION_TOKENS)))
    }

    /// The shapes of a resolved cell.
    pub fn shapes(&self) -> Vec<Shape> {
        self.mix.clone().unwrap_or_else(|| {
            vec![Shape {
                prompt_tokens: self.prompts().first(),
                completion_tokens: self.completions().first(),
                share: whole(),
            }]
        })
    }

    /// Requests of one conversation; 1 without conversations.
    pub fn turns(&self) -> u32 {
        self.sessions.map_or(1, |sessions| sessions.turns)
    }

    /// Measured requests in one repeat.
    pub(super) fn requests(&self) -> u32 {
        let issues = match self.load.offer() {
            Some(offer) => offer.arrivals,
            None => self.requests_per_lane.saturating_mul(self.load.concurrency()),
        };
        issues.saturating_mul(self.turns())
    }

    /// Warm-up requests before them.
    pub(super) fn warmup(&self) -> u32 {
        self.warmup_per_lane.saturating_mul(self.load.concurrency().max(1)).saturating_mul(self.turns())
    }

    /// Mean of a length over the shapes by their shares.
    pub(super) fn mean(&self, of: impl Fn(&Shape) -> Length) -> u32 {
        let shapes = self.shapes();
        let total: f64 = shapes.iter().map(|shape| shape.share.0).sum();
        let sum: f64 = shapes.iter().map(|shape| shape.share.0 * f64::from(of(shape).mean())).sum();
        (sum / total).round() as u32
    }

    /// Lengths of `n` requests in order: each shape as often as its share says, rounded, in an order drawn from the suite seed.
    pub(super) fn lengths(&self, suite_seed: u64, place: &[&[u8]], n: u32) -> Vec<Lengths> {
        let shapes = self.shapes();
        let total: f64 = shapes.iter().map(|shape| shape.share.0).sum();
        let mut rng: Pcg64Mcg = stream(suite_seed, "lengths", place);
        let mut upto = 0.0;
        let mut which = Vec::with_capacity(n as usize);
        for (index, shape) in shapes.iter().enumerate() {
            upto += shape.share.0 / total;
            let end = if index + 1 == shapes.len() { n } else { (upto * f64::from(n)).round() as u32 };
            which.resize(which.len().max(end as usize), index);
        }
        let order = permutation(&mut rng, which.len());
        order
            .into_iter()
            .map(|at| {
                let shape = shapes[which[at]];
                let prompt_tokens = shape.prompt_tokens.draw(&mut rng);
                Lengths { prompt_tokens, completion_tokens: shape.completion_tokens.draw(&mut rng) }
            })
            .collect()
    }

    pub(super) fn point_count(&self) -> usize {
        let lengths = self.prompts().values().len().saturating_mul(self.completions().values().len());
        self.load.point_count().saturating_mul(lengths)
    }

    pub(super) fn points(&self) -> Vec<(String, Self)> {
        let (prompts, completions) = (self.prompts(), self.completions());
        let mut points = Vec::new();
        for (name, varies, load) in self.load.points() {
            for &p in prompts.values() {
                for &n in completions.values() {
                    let named = varies || (!prompts.varies() && !completions.varies());
                    let id = point_id(&[
                        (name.clone(), named),
                        (format!("p{p}"), prompts.varies()),
                        (format!("n{n}"), completions.varies()),
                    ]);
                    let axis = |length, given: &Option<Axis<Length>>| given.as_ref().map(|_| Axis::One(length));
                    let at = Self {
                        load: load.clone(),
                        prompt_tokens: axis(p, &self.prompt_tokens),
                        completion_tokens: axis(n, &self.completion_tokens),
                        ..self.clone()
                    };
                    points.push((id, at));
                }
            }
        }
        points
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mix_holds_each_shape_as_often_as_its_share_says() {
        let shape = |prompt, share| Shape {
            prompt_tokens: Length::Exactly(prompt),
            completion_tokens: Length::Exactly(8),
            share: Finite(share),
        };
        let serving = Serving {
            load: Load::closed(Axis::One(2)),
            prompt_tokens: None,
            completion_tokens: None,
            mix: Some(vec![shape(64, 3.0), shape(1024, 1.0)]),
            prefix: None,
            sessions: None,
            requests_per_lane: 10,
            warmup_per_lane: 1,
        };
        let lengths = serving.lengths(5, &[], 20);
        let long = |lengths: &[Lengths]| lengths.iter().filter(|l| l.prompt_tokens == 1024).count();
        assert_eq!((lengths.len(), long(&lengths)), (20, 5));
        assert_eq!(lengths, serving.lengths(5, &[], 20));
        assert_eq!(serving.mean(|shape| shape.prompt_tokens), 304);
    }
}
