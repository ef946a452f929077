//! Draws one token from logits.
//!
//! Order: penalties → temperature → top-k → top-p → min-p → draw, each on what the one before left. This is the order of Hugging Face and,
//! but for min-p before top-k, of vLLM; llama.cpp's default chain applies temperature last, so its nucleus is that of temperature 1.
//!
//! The draw at position `n` of a completion is the `n`-th output of a PCG-64 seeded by the request alone: never of the batch.
use std::collections::HashMap;

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;

use super::op::elementwise::exponentials;
use crate::request::Sampling;

/// The sampler of one sequence.
#[derive(Debug, Clone)]
pub struct Sampler {
    sampling: Sampling,
    rng: Pcg64,
    counts: HashMap<u32, u32>,
}

/// Buffers of a draw, one for all sequences of an engine.
#[derive(Debug, Default)]
pub struct SamplerScratch {
    /// Logits after penalties, then weights `e^((logit - max) / temperature)`.
    weights: Vec<f32>,
    /// Tokens that are left.
    kept: Vec<u32>,
}

impl SamplerScratch {
    /// Room for `vocabulary` tokens, so that no draw allocates.
    pub fn new(vocabulary: usize) -> Self {
        Self { weights: Vec::with_capacity(vocabulary), kept: Vec::with_capacity(vocabulary) }
    }

    /// Bytes held.
    pub fn bytes(vocabulary: usize) -> usize {
        vocabulary * (size_of::<f32>() + size_of::<u32>())
    }
}

impl Sampler {
    /// A sampler for one request of at most `max_tokens`. Penalties count the tokens it has generated, not the prompt (the OpenAI API's
    /// definition).
    pub fn new(sampling: Sampling, seed: u32, max_tokens: usize) -> Self {
        let penalised = sampling.presence_penalty != 0.0 || sampling.frequency_penalty != 0.0;
        let counts = HashMap::with_capacity(if penalised { max_tokens } else { 0 });
        Self { sampling, rng: Pcg64::seed_from_u64(u64::from(seed)), counts }
    }

    /// The next token. Greedy at temperature 0, the lowest id on a tie; a NaN is never chosen unless all are.
    pub fn sample(&mut self, logits: &[f32], scratch: &mut SamplerScratch) -> u32 {
        let penalised = self.sampling.presence_penalty != 0.0 || self.sampling.frequency_penalty != 0.0;
        let uniform = (self.rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        let token = if self.sampling.temperature <= 0.0 && !penalised {
            argmax(logits)
        } else {
            scratch.weights.clear();
            scratch.weights.extend_from_slice(logits);
            for (&token, &count) in &self.counts {
                let s = self.sampling;
                scratch.weights[token as usize] -= (s.presence_penalty + s.frequency_penalty * f64::from(count)) as f32;
            }
            if self.sampling.temperature <= 0.0 {
                argmax(&scratch.weights)
            } else {
                draw(self.sampling, uniform, scratch)
            }
        };
        if penalised {
            *self.counts.entry(token).or_default() += 1;
        }
        token
    }
}

/// Draws from the penalised logits in `scratch.weights`.
fn draw(s: Sampling, uniform: f64, scratch: &mut SamplerScratch) -> u32 {
    let SamplerScratch { weights, kept } = scratch;
    let top = argmax(weights);
    let max = weights[top as usize];
    if !max.is_finite() {
        return top;
    }
    // A NaN weighs nothing: `max` takes the other of its two.
    weights.iter_mut().for_each(|w| *w = w.max(f32::NEG_INFINITY));
    // Below this the quotient of two logits would leave f32; such a draw is greedy in all but name.
    exponentials(weights, max, (1.0 / s.temperature.max(1e-30)) as f32);
    if s.top_k == 0 && s.top_p >= 1.0 && s.min_p <= 0.0 {
        let total: f64 = weights.iter().map(|&w| f64::from(w)).sum();
        return walk((0u32..).zip(weights.iter().copied()), uniform * total).unwrap_or(top);
    }
    keep(s, weights, kept);
    let total: f64 = kept.iter().map(|&token| f64::from(weights[token as usize])).sum();
    walk(kept.iter().map(|&token| (token, weights[token as usize])), uniform * total).unwrap_or(top)
}

/// What `e^x` is clamped to far below the maximum, and so no weight at all.
const NOTHING: f32 = 1e-37;

/// The first token at which the running sum passes `target`; the last one with weight when rounding keeps it below.
fn walk(weighted: impl Iterator<Item = (u32, f32)>, target: f64) -> Option<u32> {
    let (mut sum, mut last) = (0.0, None);
    for (token, weight) in weighted {
        if weight > NOTHING {
            sum += f64::from(weight);
            last = Some(token);
            if sum > target {
                break;
            }
        }
    }
    last
}

/// Fills `kept` with the tokens that top-k, then top-p of what that left, then min-p leave, the heaviest first and the lower id on a tie;
/// at least one.
fn keep(s: Sampling, weights: &[f32], kept: &mut Vec<u32>) {
    let order = |a: &u32, b: &u32| weights[*b as usize].total_cmp(&weights[*a as usize]).then(a.cmp(b));
    kept.clear();
    // The heaviest token weighs 1, so min_p is the line itself. What lies below it weighs in top-p's total all the same.
    let tokens = u32::try_from(weights.len()).unwrap_or(u32::MAX);
    let top_k = s.top_k as usize;
    if s.top_p >= 1.0 && top_k == 0 {
        kept.extend((0..tokens).filter(|&token| f64::from(weights[token as usize]) >= s.min_p.min(1.0)));
        kept.sort_unstable_by(order);
        return;
    }
    kept.extend(0..tokens);
    if top_k > 0 && top_k < kept.len() {
        kept.select_nth_unstable_by(top_k - 1, order);
        kept.truncate(top_k);
    }
    if s.top_p < 1.0 {
        let total: f64 = kept.iter().map(|&token| f64::from(weights[token as usize])).sum();
        nucleus(s.top_p * total, weights, kept, order);
    } else {
        kept.sort_unstable_by(order);
    }
    if s.min_p > 0.0 {
        let above = kept.iter().take_while(|&&token| f64::from(weights[token as usize]) >= s.min_p).count();
        kept.truncate(above.max(1));
    }
}

/// Sorts as many of the heaviest tokens to the front as reach `enough`, and drops the rest.
///
/// Sorting blocks that double in size costs little when a few tokens of a large vocabulary suffice, as they mostly do.
fn nucleus(enough: f64, weights: &[f32], kept: &mut Vec<u32>, order: impl Fn(&u32, &u32) -> std::cmp::Ordering + Copy) {
    let (mut sum, mut sorted, mut block) = (0.0, 0, 64);
    while sorted < kept.len() {
        let rest = &mut kept[sorted..];
        let n = block.min(rest.len());
        if n < rest.len() {
            rest.select_nth_unstable_by(n - 1, order);
        }
        rest[..n].sort_unstable_by(order);
        for (i, &token) in rest[..n].iter().enumerate() {
            sum += f64::from(weights[token as usize]);
            if sum >= enough {
                kept.truncate(sorted + i + 1);
                return;
            }
        }
        sorted += n;
        block *= 2;
    }
}

/// The lowest id of the largest logit; 0 when all are NaN or minus infinity.
fn argmax(logits: &[f32]) -> u32 {
    let max = super::op::elementwise::maximum(logits);
    logits.iter().position(|&logit| logit == max).and_then(|at| u32::try_from(at).ok()).unwrap_or(0)
}

#[cfg(test)]
#[path = "sampler_tests.rs"]
mod tests;
