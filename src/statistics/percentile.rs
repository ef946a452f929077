//! Percentiles by linear interpolation, and how many values each needs.

/// The finite values of `values` in rising order.
pub fn sorted(values: &[f64]) -> Vec<f64> {
    let mut v: Vec<f64> = values.iter().copied().filter(|x| x.is_finite()).collect();
    v.sort_by(f64::total_cmp);
    v
}

/// Percentile `p` (0 to 1) of values in rising order: linear interpolation at position `(n − 1) · p`.
///
/// The default of numpy and R (type 7). `None` for no values or a `p` outside.
pub fn percentile_sorted(rising: &[f64], p: f64) -> Option<f64> {
    let last = rising.len().checked_sub(1)?;
    if !(0.0..=1.0).contains(&p) {
        return None;
    }
    let position = last as f64 * p;
    let below = (position.floor() as usize).min(last);
    let above = (below + 1).min(last);
    let share = position - below as f64;
    let (a, b) = (rising[below], rising[above]);
    // In this form the result never leaves [a, b] by rounding.
    Some((a + (b - a) * share).clamp(a, b))
}

/// [`percentile_sorted`] of values in any order; values that are not finite are left out.
pub fn percentile(values: &[f64], p: f64) -> Option<f64> {
    percentile_sorted(&sorted(values), p)
}

/// Median: percentile 0.5.
pub fn median(values: &[f64]) -> Option<f64> {
    percentile(values, 0.5)
}

/// Values a percentile needs: the smallest `n` with `n ≥ ln(0.01) / ln(p)`, so that with 99 % confidence one value lies above it.
///
/// p50 7, p90 44, p95 90, p99 459. Source: MLPerf early stopping (c = 0.99, d = 0). 1 for `p` of 0, none is enough for 1.
pub fn minimum_n(p: f64) -> usize {
    if p <= 0.0 {
        return 1;
    }
    if p >= 1.0 || p.is_nan() {
        return usize::MAX;
    }
    ((0.01_f64.ln() / p.ln()).ceil() as usize).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_between_values_are_interpolated() {
        let v = [10.0, 20.0, 30.0, 40.0, 50.0];
        assert_eq!(percentile(&v, 0.5), Some(30.0));
        assert_eq!(percentile(&v, 0.9), Some(46.0)); // position 3.6
        assert_eq!(percentile(&v, 0.0), Some(10.0));
        assert_eq!(percentile(&v, 1.0), Some(50.0));
        assert_eq!(median(&[4.0, 1.0]), Some(2.5));
    }

    #[test]
    fn nothing_gives_nothing() {
        assert_eq!(percentile(&[], 0.5), None);
        assert_eq!(percentile(&[f64::NAN, f64::INFINITY], 0.5), None);
        assert_eq!(percentile(&[1.0], 1.1), None);
        assert_eq!(percentile(&[1.0], f64::NAN), None);
    }

    #[test]
    fn the_needed_counts_are_those_of_the_contract() {
        assert_eq!([0.5, 0.9, 0.95, 0.99, 0.999].map(minimum_n), [7, 44, 90, 459, 4603]);
        assert_eq!(minimum_n(0.0), 1);
        assert_eq!(minimum_n(1.0), usize::MAX);
    }
}
