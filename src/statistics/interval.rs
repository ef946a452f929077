//! Student t intervals of a mean, of a geometric mean, and of a ratio over paired blocks.
use super::{LEVEL, student_t_quantile};

/// A centre and its 95 % interval. `low` and `high` are `None` together: with one value there is no spread to know.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// Values behind it.
    pub n: usize,
    /// The centre.
    pub centre: f64,
    /// Lower end.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
}

/// Arithmetic mean; `None` for no values or a sum that is not finite.
pub fn mean(values: &[f64]) -> Option<f64> {
    if values.is_empty() {
        return None;
    }
    Some(values.iter().sum::<f64>() / values.len() as f64).filter(|m| m.is_finite())
}

/// Mean and Student t interval: `mean ± t(0.975, n−1) · s / sqrt(n)`, `s² = Σ(x − mean)² / (n − 1)`.
///
/// `None` for no values or non-finite ones; no interval for one value.
pub fn mean_interval(values: &[f64]) -> Option<Interval> {
    let n = values.len();
    let centre = mean(values)?;
    let half = if n >= 2 {
        let squares: f64 = values.iter().map(|x| (x - centre).powi(2)).sum();
        let df = (n - 1) as f64;
        student_t_quantile(0.5 + LEVEL / 2.0, df)
            .map(|t| t * (squares / df / n as f64).sqrt())
            .filter(|h| h.is_finite())
    } else {
        None
    };
    Some(Interval { n, centre, low: half.map(|h| centre - h), high: half.map(|h| centre + h) })
}

/// Geometric mean and Student t interval on the logarithms: `exp` of [`mean_interval`] of `ln x`.
///
/// Rates and times vary by factors, so their logarithms are nearer to normal and the interval cannot reach below 0. `None` for no values
/// or any that is not above 0; an interval too wide for an f64 (its ends would be 0 or infinite) is left out.
pub fn geometric_interval(values: &[f64]) -> Option<Interval> {
    if values.iter().any(|&x| !(x > 0.0 && x.is_finite())) {
        return None;
    }
    let logs: Vec<f64> = values.iter().map(|x| x.ln()).collect();
    exponential(mean_interval(&logs)?)
}

/// Ratio of paired values, first ÷ second, with a t interval on the differences of logarithms: `exp(mean_interval(ln a − ln b))`.
///
/// One pair is one block in which both arms ran, so that what drifts over a day is in both. `None` for no pairs or a value not above 0.
pub fn paired_ratio_interval(pairs: &[(f64, f64)]) -> Option<Interval> {
    if pairs.iter().any(|&(a, b)| !(a > 0.0 && b > 0.0 && a.is_finite() && b.is_finite())) {
        return None;
    }
    let differences: Vec<f64> = pairs.iter().map(|(a, b)| a.ln() - b.ln()).collect();
    exponential(mean_interval(&differences)?)
}

/// `exp` of an interval of logarithms.
fn exponential(logs: Interval) -> Option<Interval> {
    let centre = logs.centre.exp();
    if !(centre > 0.0 && centre.is_finite()) {
        return None;
    }
    let ends = logs.low.zip(logs.high).map(|(l, h)| (l.exp(), h.exp())).filter(|&(l, h)| l > 0.0 && h.is_finite());
    Some(Interval { n: logs.n, centre, low: ends.map(|e| e.0), high: ends.map(|e| e.1) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_value_has_a_centre_and_no_interval() {
        let one = geometric_interval(&[7.0]).expect("one value");
        assert!((one.centre - 7.0).abs() < 1e-12);
        assert_eq!((one.n, one.low, one.high), (1, None, None));
    }

    #[test]
    fn no_value_zero_and_infinity_give_nothing() {
        assert_eq!(geometric_interval(&[]), None);
        assert_eq!(geometric_interval(&[1.0, 0.0]), None);
        assert_eq!(geometric_interval(&[1.0, -2.0]), None);
        assert_eq!(geometric_interval(&[1.0, f64::NAN]), None);
        assert_eq!(mean_interval(&[f64::MAX, f64::MAX]), None);
        assert_eq!(paired_ratio_interval(&[(1.0, 0.0)]), None);
        assert_eq!(paired_ratio_interval(&[]), None);
    }

    #[test]
    fn two_values_follow_the_closed_form_of_two_points() {
        // For n = 2: s/sqrt(2) = |a − b| / 2 and t(0.975, 1) = tan(0.475 π) = 12.7062.
        let t = (0.475 * std::f64::consts::PI).tan();
        let i = mean_interval(&[10.0, 14.0]).expect("two values");
        assert_eq!(i.centre, 12.0);
        assert!((i.high.expect("interval") - (12.0 + 2.0 * t)).abs() < 1e-7);
        assert!((i.low.expect("interval") - (12.0 - 2.0 * t)).abs() < 1e-7);
    }

    #[test]
    fn equal_values_have_an_interval_of_no_width() {
        let i = mean_interval(&[3.0; 5]).expect("values");
        assert_eq!((i.low, i.high), (Some(3.0), Some(3.0)));
    }

    #[test]
    fn a_ratio_and_its_inverse_have_inverse_intervals() {
        let pairs = [(10.0, 8.0), (11.0, 8.5), (9.5, 8.2)];
        let swapped: Vec<_> = pairs.iter().map(|&(a, b)| (b, a)).collect();
        let (r, s) = (paired_ratio_interval(&pairs).expect("r"), paired_ratio_interval(&swapped).expect("s"));
        assert!((r.centre * s.centre - 1.0).abs() < 1e-12);
        assert!((r.low.expect("low") * s.high.expect("high") - 1.0).abs() < 1e-12);
    }

    #[test]
    fn an_interval_beyond_an_f64_is_left_out_and_the_centre_kept() {
        let i = geometric_interval(&[1e-300, 1e300]).expect("centre");
        assert!((i.centre - 1.0).abs() < 1e-9);
        assert_eq!((i.low, i.high), (None, None));
    }
}
