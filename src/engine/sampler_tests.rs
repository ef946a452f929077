use proptest::prelude::*;

use super::*;

fn sampling(temperature: f64) -> Sampling {
    Sampling { temperature, ..Sampling::default() }
}

fn once(s: Sampling, seed: u32, logits: &[f32]) -> u32 {
    Sampler::new(s, seed, 1).sample(logits, &mut SamplerScratch::default())
}

fn many<const N: usize>(s: Sampling, logits: &[f32]) -> [u32; N] {
    let (mut sampler, mut scratch) = (Sampler::new(s, 0, N), SamplerScratch::new(logits.len()));
    [0; N].map(|_| sampler.sample(logits, &mut scratch))
}

/// Closed form of a softmax in f64.
fn probabilities(logits: &[f32], temperature: f64) -> Vec<f64> {
    let weights: Vec<f64> = logits.iter().map(|&l| (f64::from(l) / temperature).exp()).collect();
    let total: f64 = weights.iter().sum();
    weights.iter().map(|w| w / total).collect()
}

fn kept_of(s: Sampling, logits: &[f32]) -> Vec<u32> {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut weights = logits.to_vec();
    exponentials(&mut weights, max, (1.0 / s.temperature) as f32);
    let mut kept = Vec::new();
    keep(s, &weights, &mut kept);
    kept
}

#[test]
fn greedy_takes_the_lowest_id_on_a_tie_and_never_a_nan() {
    assert_eq!(once(sampling(0.0), 1, &[0.5, 2.0, 2.0, -1.0]), 1);
    assert_eq!(once(sampling(0.0), 1, &[f32::NAN, 1.0]), 1);
    assert_eq!(once(sampling(0.0), 1, &[f32::NAN, f32::NAN]), 0);
    for seed in 0..200 {
        assert_eq!(once(sampling(1.0), seed, &[f32::NAN, 1.0, f32::NEG_INFINITY]), 1);
    }
}

#[test]
fn drawn_frequencies_meet_softmax_by_chi_square() {
    let logits = [1.0f32, 0.0, -0.5, 2.0, 0.3];
    let filters = [sampling(1.0), Sampling { top_k: 5, top_p: 0.9999, min_p: 1e-6, ..sampling(1.0) }];
    for (filter, temperature) in filters.iter().flat_map(|f| [0.7, 1.0, 1.6].map(|t| (*f, t))) {
        let p = probabilities(&logits, temperature);
        let n = 20_000u32;
        // Once over seeds at the first position, once over positions of one seed.
        let over_seeds: Vec<u32> = (0..n).map(|seed| once(Sampling { temperature, ..filter }, seed, &logits)).collect();
        let (mut sampler, mut scratch) =
            (Sampler::new(Sampling { temperature, ..filter }, 7, 1), SamplerScratch::new(5));
        let over_positions: Vec<u32> = (0..n).map(|_| sampler.sample(&logits, &mut scratch)).collect();
        for drawn in [over_seeds, over_positions] {
            let mut counts = [0u32; 5];
            drawn.iter().for_each(|&token| counts[token as usize] += 1);
            let squares = counts.iter().zip(&p).map(|(&c, p)| {
                let expected = f64::from(n) * p;
                (f64::from(c) - expected).powi(2) / expected
            });
            let chi: f64 = squares.sum();
            // 0.01 % point of chi-square with 4 degrees of freedom; the seeds are fixed, so this never flakes.
            assert!(chi < 23.51, "temperature {temperature}: chi-square {chi}");
        }
    }
}

#[test]
fn penalties_move_a_greedy_choice_by_their_amount() {
    let logits = [1.0f32, 0.8, 0.3];
    // 1.0, then 0.85 still leads, then 0.70 < 0.8, then 0.70 > 0.65.
    assert_eq!(many(Sampling { frequency_penalty: 0.15, ..sampling(0.0) }, &logits), [0, 0, 1, 0]);
    // 0.75 < 0.8, then both are penalised, and presence counts once.
    assert_eq!(many(Sampling { presence_penalty: 0.25, ..sampling(0.0) }, &logits), [0, 1, 0, 0]);
}

#[test]
fn the_nucleus_is_taken_at_the_temperature_asked_for() {
    // At temperature 1 the top token has 0.665, at 3 it has 0.45: then 0.6 needs two.
    let logits = [2.0f32, 1.0, 0.0];
    assert_eq!(kept_of(Sampling { top_p: 0.6, ..sampling(1.0) }, &logits), [0]);
    assert_eq!(kept_of(Sampling { top_p: 0.6, ..sampling(3.0) }, &logits), [0, 1]);
}

#[test]
fn a_tiny_temperature_is_greedy() {
    for seed in 0..50 {
        assert_eq!(once(sampling(1e-12), seed, &[0.1, 0.2, 0.15]), 1);
    }
}

proptest! {
    #[test]
    fn the_nucleus_is_the_smallest_set_that_reaches_top_p(
        logits in prop::collection::vec(-6.0f32..6.0, 2..300), top_p in 0.05f64..0.99, temperature in 0.3f64..3.0
    ) {
        let kept = kept_of(Sampling { top_p, ..sampling(temperature) }, &logits);
        let p = probabilities(&logits, temperature);
        let mass = |set: &[u32]| set.iter().map(|&t| p[t as usize]).sum::<f64>();
        prop_assert!(mass(&kept) >= top_p - 1e-5);
        prop_assert!(kept.len() == 1 || mass(&kept[..kept.len() - 1]) < top_p + 1e-5);
        let lightest = kept.iter().map(|&t| p[t as usize]).fold(1.0, f64::min);
        let left_out = (0u32..).zip(&p).filter(|(t, _)| !kept.contains(t)).map(|(_, &p)| p).fold(0.0, f64::max);
        prop_assert!(left_out <= lightest + 1e-6);
    }

    #[test]
    fn min_p_keeps_exactly_what_reaches_its_share_of_the_likeliest(
        logits in prop::collection::vec(-6.0f32..6.0, 1..60), min_p in 0.001f64..1.0, temperature in 0.3f64..3.0
    ) {
        let kept = kept_of(Sampling { min_p, ..sampling(temperature) }, &logits);
        let p = probabilities(&logits, temperature);
        let line = min_p * p.iter().copied().fold(0.0, f64::max);
        for (token, p) in (0u32..).zip(p) {
            // Values on the line itself may fall either way by f32 rounding.
            if (p - line).abs() > 1e-6 * line {
                prop_assert_eq!(kept.contains(&token), p > line, "token {}", token);
            }
        }
    }

    #[test]
    fn top_k_keeps_exactly_the_k_likeliest_with_the_lower_ids_on_a_tie(
        logits in prop::collection::vec((-3i8..3).prop_map(f32::from), 2..60), k in 1u32..20
    ) {
        let mut want: Vec<u32> = (0u32..).zip(&logits).map(|(t, _)| t).collect();
        want.sort_by(|a, b| logits[*b as usize].total_cmp(&logits[*a as usize]).then(a.cmp(b)));
        want.truncate(k as usize);
        prop_assert_eq!(kept_of(Sampling { top_k: k, ..sampling(1.0) }, &logits), want);
    }

    #[test]
    fn penalties_are_those_of_the_formula(
        logits in prop::collection::vec(-4.0f32..4.0, 2..20), presence in 0.0f64..2.0, frequency in 0.0f64..2.0
    ) {
        // logit - presence * [count > 0] - frequency * count, replayed in f64 (OpenAI API reference).
        let s = Sampling { presence_penalty: presence, frequency_penalty: frequency, ..sampling(0.0) };
        let (mut sampler, mut scratch) = (Sampler::new(s, 0, 12), SamplerScratch::new(logits.len()));
        let mut counts = vec![0u32; logits.len()];
        for _ in 0..12 {
            let token = sampler.sample(&logits, &mut scratch) as usize;
            let value = |t: usize| {
                f64::from(logits[t]) - presence * f64::from(counts[t].min(1)) - frequency * f64::from(counts[t])
            };
            let best = (0..logits.len()).map(value).fold(f64::NEG_INFINITY, f64::max);
            prop_assert!(value(token) >= best - 1e-5, "{} against {}", value(token), best);
            counts[token] += 1;
        }
    }
}
