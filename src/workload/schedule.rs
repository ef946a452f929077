//! When the requests of an open loop arrive: drawn from the suite seed, so that every arm and every attempt meets the same times.
use rand::Rng;
use rand_pcg::Pcg64Mcg;

use super::Load;
use super::seed::stream;

/// Arrival times in ns from the start of the cell, rising; `None` for a closed loop, which has no times of its own.
///
/// - `constant`: arrival `i` at `i / rate`.
/// - `poisson` with `requests`: sums of independent exponential gaps of mean `1 / rate`. With `duration`: a Poisson process given its
///   expected count, which is that many times drawn evenly over the duration and sorted; so every repeat offers the same number.
/// - `ramp`: arrival `i` where the expected count `a·t + (b − a)·t² / 2T` reaches `i`.
/// - `trace`: as the file says.
pub fn arrivals(load: &Load, suite_seed: u64, cell: u32, repeat: u32) -> Option<Vec<u64>> {
    let offer = load.offer()?;
    let n = offer.arrivals;
    let mut rng = stream(suite_seed, "arrivals", &[&cell.to_le_bytes(), &repeat.to_le_bytes()]);
    let times: Vec<f64> = match load {
        Load::Closed(_) => return None,
        Load::Constant(_) => (0..n).map(|i| f64::from(i) / offer.rate_req_s).collect(),
        Load::Poisson(rate) if rate.duration.is_some() => {
            let length = offer.duration.as_secs_f64();
            let mut times: Vec<f64> = (0..n).map(|_| length * unit(&mut rng)).collect();
            times.sort_by(f64::total_cmp);
            times
        }
        Load::Poisson(_) => {
            let gaps = (0..n).map(|_| -unit(&mut rng).ln() / offer.rate_req_s);
            gaps.scan(0.0, |at, gap| {
                *at += gap;
                Some(*at)
            })
            .collect()
        }
        Load::Ramp(ramp) => {
            let (from, to, length) = (ramp.from_req_s.0, ramp.to_req_s.0, offer.duration.as_secs_f64());
            // The root of the quadratic in the form that stays exact where the rate barely changes.
            let at = |i: f64| 2.0 * i / (from + (from * from + 2.0 * (to - from) * i / length).max(0.0).sqrt());
            (0..n).map(|i| at(f64::from(i))).collect()
        }
        Load::Trace(_) => Vec::new(),
    };
    Some(times.into_iter().map(|seconds| (seconds * 1e9) as u64).collect())
}

/// A number in (0, 1).
pub(super) fn unit(rng: &mut Pcg64Mcg) -> f64 {
    ((rng.next_u64() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Ramp, Rate};
    use crate::yaml::{Axis, Finite, HumanDuration};

    fn rate(rate: f64, duration: Option<u64>, requests: Option<u32>) -> Rate {
        let duration = duration.map(HumanDuration::seconds);
        Rate { rate_req_s: Axis::One(Finite(rate)), duration, requests, max_in_flight: 512 }
    }

    #[test]
    fn constant_arrivals_stand_at_equal_distances() {
        let times = arrivals(&Load::Constant(rate(20.0, Some(30), None)), 1, 0, 0).expect("open");
        assert_eq!(times.len(), 600);
        assert!(times.iter().enumerate().all(|(i, &t)| t.abs_diff(i as u64 * 50_000_000) <= 1));
    }

    #[test]
    fn poisson_gaps_have_the_mean_and_spread_of_an_exponential() {
        // Mean 1/rate and standard deviation 1/rate; at n = 20 000 both are within 4 % far beyond any doubt (5 sigma).
        for load in [rate(50.0, None, Some(20_000)), rate(50.0, Some(400), None)] {
            let times = arrivals(&Load::Poisson(load), 7, 3, 0).expect("open");
            assert_eq!(times.len(), 20_000);
            let gaps: Vec<f64> = times.windows(2).map(|pair| (pair[1] - pair[0]) as f64 / 1e9).collect();
            let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
            let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
            assert!(
                (mean * 50.0 - 1.0).abs() < 0.04 && (variance.sqrt() * 50.0 - 1.0).abs() < 0.04,
                "{mean} {variance}"
            );
        }
    }

    #[test]
    fn a_schedule_depends_on_seed_cell_and_repeat_alone() {
        let load = Load::Poisson(rate(10.0, Some(5), None));
        let at = |seed, cell, repeat| arrivals(&load, seed, cell, repeat).expect("open");
        assert_eq!(at(1, 2, 3), at(1, 2, 3));
        for other in [at(2, 2, 3), at(1, 1, 3), at(1, 2, 4)] {
            assert_ne!(at(1, 2, 3), other);
        }
    }

    #[test]
    fn a_ramp_offers_its_mean_rate_and_ends_at_its_last() {
        let ramp = |from, to, duration: Option<u64>, requests| {
            Load::Ramp(Ramp {
                from_req_s: Finite(from),
                to_req_s: Finite(to),
                duration: duration.map(HumanDuration::seconds),
                requests,
                max_in_flight: 512,
            })
        };
        for load in [ramp(10.0, 30.0, Some(60), None), ramp(10.0, 30.0, None, Some(1200))] {
            let times = arrivals(&load, 1, 0, 0).expect("open");
            assert_eq!(times.len(), 1200);
            // Half of the time: a·t + (b − a)·t²/2T = 10·30 + 20·900/120 = 450.
            assert_eq!(times.iter().filter(|&&t| t < 30_000_000_000).count(), 450);
            let last = (times[1199] - times[1198]) as f64 / 1e9;
            assert!((last * 30.0 - 1.0).abs() < 0.01, "{last}");
        }
        let flat = arrivals(&ramp(20.0, 20.0, Some(10), None), 1, 0, 0).expect("open");
        assert_eq!(flat, arrivals(&Load::Constant(rate(20.0, Some(10), None)), 1, 0, 0).expect("open"));
    }
}
