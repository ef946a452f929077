//! Intervals of a proportion.

/// 0.975 quantile of the standard normal distribution.
const Z: f64 = 1.959_963_984_540_054;

/// Wilson score interval (95 %) of `successes` out of `n`, as shares from 0 to 1; `None` for n = 0 or more successes than n.
///
/// `(p + z²/2n ± z sqrt(p(1−p)/n + z²/4n²)) / (1 + z²/n)`. Source: E. B. Wilson, JASA 22 (1927) 209.
pub fn wilson(successes: u64, n: u64) -> Option<(f64, f64)> {
    if n == 0 || successes > n {
        return None;
    }
    let total = n as f64;
    let p = successes as f64 / total;
    let z2 = Z * Z;
    let centre = p + z2 / (2.0 * total);
    let half = Z * (p * (1.0 - p) / total + z2 / (4.0 * total * total)).sqrt();
    let scale = 1.0 + z2 / total;
    // At the ends the closed form is exactly 0 or 1, which rounding would miss by an ulp.
    let low = if successes == 0 { 0.0 } else { ((centre - half) / scale).max(0.0) };
    let high = if successes == n { 1.0 } else { ((centre + half) / scale).min(1.0) };
    Some((low, high))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_of_none_out_of_n_has_a_closed_form() {
        // p = 0: high = z² / (n + z²).
        let (low, high) = wilson(0, 10).expect("interval");
        assert_eq!(low, 0.0);
        assert!((high - Z * Z / (10.0 + Z * Z)).abs() < 1e-12);
    }

    #[test]
    fn successes_and_failures_mirror_each_other() {
        let (a, b) = (wilson(3, 17).expect("a"), wilson(14, 17).expect("b"));
        assert!((a.0 - (1.0 - b.1)).abs() < 1e-12 && (a.1 - (1.0 - b.0)).abs() < 1e-12);
    }

    #[test]
    fn no_trials_have_no_proportion() {
        assert_eq!(wilson(0, 0), None);
        assert_eq!(wilson(2, 1), None);
    }
}
