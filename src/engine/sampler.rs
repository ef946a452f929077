//! Draws one token from logits.
//!
//! Order, as in llama.cpp's default chain: penalties → top-k → top-p → min-p → temperature → draw. top-p and min-p therefore see the
//! distribution at temperature 1 (vLLM applies temperature first: with other settings equal its nucleus differs).
use std::collections::HashMap;

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::request::Sampling;

/// The sampler of one sequence. The draw at a position depends on the seed and the position alone, never on the batch.
#[derive(Debug, Clone)]
pub struct Sampler {
    sampling: Sampling,
    seed: u32,
    counts: HashMap<u32, u32>,
    drawn: u64,
    candidates: Vec<(f32, u32)>,
}

impl Sampler {
    /// A sampler for one request. Penalties count the tokens it has generated, not the prompt (the OpenAI API's definition).
    pub fn new(sampling: Sampling, seed: u32) -> Self {
        Self { sampling, seed, counts: HashMap::new(), drawn: 0, candidates: Vec::new() }
    }

    /// The next token. Greedy at temperature 0, the lowest id on a tie.
    pub fn sample(&mut self, logits: &[f32]) -> u32 {
        let s = self.sampling;
        let penalised = s.presence_penalty != 0.0 || s.frequency_penalty != 0.0;
        let token = if s.temperature <= 0.0 {
            if penalised { self.greedy_penalised(logits) } else { argmax(logits.iter().copied()) }
        } else {
            self.draw(logits)
        };
        if penalised {
            *self.counts.entry(token).or_default() += 1;
        }
        self.drawn += 1;
        token
    }

    fn penalty(&self, token: u32) -> f32 {
        self.counts.get(&token).map_or(0.0, |&count| {
            (self.sampling.presence_penalty + self.sampling.frequency_penalty * f64::from(count)) as f32
        })
    }

    fn greedy_penalised(&self, logits: &[f32]) -> u32 {
        argmax((0u32..).zip(logits).map(|(token, &logit)| logit - self.penalty(token)))
    }

    fn draw(&mut self, logits: &[f32]) -> u32 {
        let s = self.sampling;
        let mut candidates = std::mem::take(&mut self.candidates);
        candidates.clear();
        candidates.extend((0u32..).zip(logits).map(|(token, &logit)| (logit - self.penalty(token), token)));
        // Most likely first, the lower id on a tie; NaN cannot come first.
        let order = |a: &(f32, u32), b: &(f32, u32)| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1));
        let top_k = s.top_k as usize;
        if top_k > 0 && top_k < candidates.len() {
            candidates.select_nth_unstable_by(top_k - 1, order);
            candidates.truncate(top_k);
        }
        candidates.sort_unstable_by(order);
        keep(&mut candidates, s);
        let top = f64::from(candidates[0].0);
        let weight = |logit: f32| ((f64::from(logit) - top) / s.temperature).exp();
        let total: f64 = candidates.iter().map(|&(logit, _)| weight(logit)).sum();
        let mut left = self.uniform() * total;
        let mut chosen = candidates[0].1;
        for &(logit, token) in &candidates {
            chosen = token;
            left -= weight(logit);
            if left < 0.0 {
                break;
            }
        }
        self.candidates = candidates;
        chosen
    }

    /// Uniform in [0, 1), a function of seed and position.
    fn uniform(&self) -> f64 {
        let state = (u128::from(self.seed) << 64) | u128::from(self.drawn);
        let mut rng =
            Pcg64Mcg::seed_from_u64((state >> 64) as u64 ^ (state as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Cuts sorted candidates to the nucleus and above the min-p line; at least one stays.
fn keep(candidates: &mut Vec<(f32, u32)>, s: Sampling) {
    let top = f64::from(candidates[0].0);
    let weight = |logit: f32| (f64::from(logit) - top).exp();
    if s.top_p < 1.0 {
        let total: f64 = candidates.iter().map(|&(logit, _)| weight(logit)).sum();
        let mut sum = 0.0;
        let enough = candidates.iter().position(|&(logit, _)| {
            sum += weight(logit);
            sum >= s.top_p * total
        });
        candidates.truncate(enough.map_or(candidates.len(), |last| last + 1));
    }
    if s.min_p > 0.0 {
        // The top candidate has weight 1, so min_p is the line itself.
        let above = candidates.iter().take_while(|&&(logit, _)| weight(logit) >= s.min_p).count();
        candidates.truncate(above.max(1));
    }
}

fn argmax(logits: impl Iterator<Item = f32>) -> u32 {
    let mut best = (f32::NEG_INFINITY, 0u32);
    for (token, logit) in (0u32..).zip(logits) {
        if logit > best.0 {
            best = (logit, token);
        }
    }
    best.1
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sampling(temperature: f64) -> Sampling {
        Sampling { temperature, ..Sampling::default() }
    }

    #[test]
    fn greedy_takes_the_lowest_id_on_a_tie() {
        assert_eq!(Sampler::new(sampling(0.0), 1).sample(&[0.5, 2.0, 2.0, -1.0]), 1);
        assert_eq!(Sampler::new(sampling(0.0), 1).sample(&[f32::NAN, 1.0]), 1);
    }

    #[test]
    fn drawn_frequencies_meet_softmax_by_chi_square() {
        let logits = [1.0f32, 0.0, -0.5, 2.0, 0.3];
        for temperature in [0.7, 1.0, 1.6] {
            let weights: Vec<f64> = logits.iter().map(|&l| (f64::from(l) / temperature).exp()).collect();
            let total: f64 = weights.iter().sum();
            let n = 20_000u32;
            let mut counts = [0u32; 5];
            for seed in 0..n {
                counts[Sampler::new(sampling(temperature), seed).sample(&logits) as usize] += 1;
            }
            let chi: f64 = counts
                .iter()
                .zip(&weights)
                .map(|(&c, w)| {
                    let expected = f64::from(n) * w / total;
                    (f64::from(c) - expected).powi(2) / expected
                })
                .sum();
            // 0.1 % point of chi-square with 4 degrees of freedom.
            assert!(chi < 18.47, "temperature {temperature}: chi-square {chi}");
        }
    }

    #[test]
    fn penalties_move_a_greedy_choice_by_their_amount() {
        let logits = [1.0f32, 0.8, 0.3];
        let s = Sampling { frequency_penalty: 0.15, ..sampling(0.0) };
        let mut sampler = Sampler::new(s, 0);
        // 1.0, then 0.85 still leads, then 0.70 < 0.8.
        assert_eq!([0; 4].map(|_| sampler.sample(&logits)), [0, 0, 1, 0]);
        let s = Sampling { presence_penalty: 0.25, ..sampling(0.0) };
        let mut sampler = Sampler::new(s, 0);
        assert_eq!([0; 4].map(|_| sampler.sample(&logits)), [0, 1, 0, 0]);
    }

    proptest! {
        #[test]
        fn the_nucleus_is_the_smallest_set_that_reaches_top_p(
            logits in prop::collection::vec(-6.0f32..6.0, 2..40), top_p in 0.05f64..0.99
        ) {
            let mut sorted: Vec<(f32, u32)> = (0u32..).zip(&logits).map(|(t, &l)| (l, t)).collect();
            sorted.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
            let mut kept = sorted.clone();
            keep(&mut kept, Sampling { top_p, ..sampling(1.0) });
            let p = |set: &[(f32, u32)]| set.iter().map(|c| f64::from(c.0).exp()).sum::<f64>();
            let total = p(&sorted);
            prop_assert!(p(&kept) / total >= top_p - 1e-9);
            prop_assert!(kept.len() == 1 || p(&kept[..kept.len() - 1]) / total < top_p + 1e-9);
            prop_assert_eq!(&sorted[..kept.len()], &kept[..]);
        }

        #[test]
        fn min_p_keeps_exactly_what_reaches_the_line(
            logits in prop::collection::vec(-6.0f32..6.0, 1..40), min_p in 0.001f64..1.0
        ) {
            let mut kept: Vec<(f32, u32)> = (0u32..).zip(&logits).map(|(t, &l)| (l, t)).collect();
            kept.sort_by(|a, b| b.0.total_cmp(&a.0));
            let top = f64::from(kept[0].0);
            let want = kept.iter().filter(|c| (f64::from(c.0) - top).exp() >= min_p).count().max(1);
            keep(&mut kept, Sampling { min_p, ..sampling(1.0) });
            prop_assert_eq!(kept.len(), want);
        }

        #[test]
        fn top_k_never_draws_outside_the_k_most_likely(
            logits in prop::collection::vec(-6.0f32..6.0, 2..40), k in 1u32..8, seed: u32
        ) {
            let token = Sampler::new(Sampling { top_k: k, ..sampling(1.3) }, seed).sample(&logits);
            let better = logits.iter().filter(|&&l| l > logits[token as usize]).count();
            prop_assert!(better < k as usize);
        }
    }
}
