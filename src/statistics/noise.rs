//! The noise floor: how far two equal arms would seem to differ.
use super::{LEVEL, student_t_quantile};

/// Spread of logarithms inside arms, pooled over them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PooledSpread {
    /// Standard deviation of `ln x` around the mean of its own arm.
    pub sd: f64,
    /// Degrees of freedom: Σ (nᵢ − 1).
    pub df: usize,
}

/// Pooled within-arm spread: `s² = Σᵢ Σⱼ (ln xᵢⱼ − meanᵢ)² / Σᵢ (nᵢ − 1)`.
///
/// Arms with fewer than two values say nothing of their spread; `None` when no arm has two, or a value is not above 0.
pub fn pooled_log_spread(arms: &[Vec<f64>]) -> Option<PooledSpread> {
    let (mut squares, mut df) = (0.0, 0);
    for values in arms.iter().filter(|v| v.len() >= 2) {
        if values.iter().any(|&x| !(x > 0.0 && x.is_finite())) {
            return None;
        }
        let logs: Vec<f64> = values.iter().map(|x| x.ln()).collect();
        let centre = super::mean(&logs)?;
        squares += logs.iter().map(|l| (l - centre).powi(2)).sum::<f64>();
        df += logs.len() - 1;
    }
    (df > 0).then(|| PooledSpread { sd: (squares / df as f64).sqrt(), df })
}

/// Half-width of the noise floor as a ratio minus 1: what two arms without any difference, `blocks` values each, stay within in 95 % of
/// runs: `exp(t(0.975, df) · s · sqrt(2 / blocks)) − 1`.
///
/// `None` without blocks or where it would not be finite.
pub fn noise_floor(spread: PooledSpread, blocks: usize) -> Option<f64> {
    if blocks == 0 {
        return None;
    }
    let t = student_t_quantile(0.5 + LEVEL / 2.0, spread.df as f64)?;
    Some((t * spread.sd * (2.0 / blocks as f64).sqrt()).exp_m1()).filter(|x| x.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spread_of_two_arms_is_that_of_their_residuals() {
        let e = std::f64::consts::E;
        // ln: {0, 2} around 1 and {5, 5, 5}: squares 2 + 0, degrees of freedom 1 + 2.
        let s = pooled_log_spread(&[vec![1.0, e * e], vec![e.powi(5); 3], vec![9.0]]).expect("spread");
        assert_eq!(s.df, 3);
        assert!((s.sd - (2.0_f64 / 3.0).sqrt()).abs() < 1e-12);
    }

    #[test]
    fn single_values_have_no_spread() {
        assert_eq!(pooled_log_spread(&[vec![1.0], vec![2.0]]), None);
        assert_eq!(pooled_log_spread(&[]), None);
        assert_eq!(pooled_log_spread(&[vec![1.0, 0.0]]), None);
    }

    #[test]
    fn the_floor_of_two_degrees_of_freedom_has_a_closed_form() {
        // t(0.975, 2) = 0.95 sqrt(2 / (1 − 0.95²)) = 4.302653.
        let t = 0.95 * (2.0 / (1.0 - 0.95_f64.powi(2))).sqrt();
        let floor = noise_floor(PooledSpread { sd: 0.01, df: 2 }, 2).expect("floor");
        assert!((floor - ((t * 0.01).exp() - 1.0)).abs() < 1e-10);
        assert_eq!(noise_floor(PooledSpread { sd: 0.01, df: 2 }, 0), None);
        assert_eq!(noise_floor(PooledSpread { sd: 1e6, df: 1 }, 1), None);
    }
}
