//! Student's t distribution through the regularised incomplete beta function.

/// Iterations of the continued fraction; it needs O(sqrt(max(a, b))), so this covers beyond 10⁶ degrees of freedom.
const FRACTION_STEPS: usize = 20_000;

/// ln Γ(x) for x > 0, by the Lanczos approximation (g = 7, 9 terms), relative error below 1e-13.
///
/// Source: P. Godfrey's coefficients, as in Numerical Recipes 3rd edition §6.1 for the form.
fn ln_gamma(x: f64) -> f64 {
    const COEFFICIENTS: [f64; 9] = [
        0.999_999_999_999_809_9,
        676.520_368_121_885_1,
        -1_259.139_216_722_402_8,
        771.323_428_777_653_1,
        -176.615_029_162_140_6,
        12.507_343_278_686_905,
        -0.138_571_095_265_720_12,
        9.984_369_578_019_572e-6,
        1.505_632_735_149_311_6e-7,
    ];
    if x < 0.5 {
        // Reflection: Γ(x) Γ(1 − x) = π / sin(πx).
        return (std::f64::consts::PI / (std::f64::consts::PI * x).sin()).ln() - ln_gamma(1.0 - x);
    }
    let x = x - 1.0;
    let mut sum = COEFFICIENTS[0];
    for (i, c) in COEFFICIENTS.iter().enumerate().skip(1) {
        sum += c / (x + i as f64);
    }
    let t = x + 7.5;
    0.5 * (2.0 * std::f64::consts::PI).ln() + (x + 0.5) * t.ln() - t + sum.ln()
}

/// Regularised incomplete beta function `I_x(a, b)` for a, b > 0 and 0 ≤ x ≤ 1; `None` outside.
///
/// `I_x(a,b) = x^a (1−x)^b / (a B(a,b)) · 1/(1+ d1/(1+ d2/(1+ …)))`, the continued fraction of DLMF 8.17.22 by Lentz's method, on the
/// side `x < (a+1)/(a+b+2)` where it converges quickly, else by `I_x(a,b) = 1 − I_{1−x}(b,a)`.
pub fn incomplete_beta(a: f64, b: f64, x: f64) -> Option<f64> {
    let inside = a > 0.0 && b > 0.0 && a.is_finite() && b.is_finite() && (0.0..=1.0).contains(&x);
    if !inside {
        return None;
    }
    if x == 0.0 || x == 1.0 {
        return Some(x);
    }
    let front = (a * x.ln() + b * (-x).ln_1p() + ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b)).exp();
    let value = if x < (a + 1.0) / (a + b + 2.0) {
        front * beta_fraction(a, b, x) / a
    } else {
        1.0 - front * beta_fraction(b, a, 1.0 - x) / b
    };
    Some(value.clamp(0.0, 1.0))
}

/// The continued fraction of [`incomplete_beta`].
fn beta_fraction(a: f64, b: f64, x: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let keep = |v: f64| if v.abs() < TINY { TINY } else { v };
    let mut c = 1.0;
    let mut d = 1.0 / keep(1.0 - (a + b) * x / (a + 1.0));
    let mut h = d;
    for step in 1..FRACTION_STEPS {
        let m = step as f64;
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        d = 1.0 / keep(1.0 + even * d);
        c = keep(1.0 + even / c);
        h *= d * c;
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        d = 1.0 / keep(1.0 + odd * d);
        c = keep(1.0 + odd / c);
        h *= d * c;
        if (d * c - 1.0).abs() < 1e-16 {
            break;
        }
    }
    h
}

/// `P(T ≤ t)` for Student's t with `df` degrees of freedom (any real above 0); `None` for other `df` or a NaN.
///
/// `P(T > |t|) = ½ I_x(df/2, ½)` with `x = df / (df + t²)`.
pub fn student_t_cdf(t: f64, df: f64) -> Option<f64> {
    if t.is_nan() || !df.is_finite() || df <= 0.0 {
        return None;
    }
    let tail = 0.5 * upper_tail_twice(t.abs(), df)?;
    Some(if t > 0.0 { 1.0 - tail } else { tail })
}

/// `P(|T| > t)` for t ≥ 0.
fn upper_tail_twice(t: f64, df: f64) -> Option<f64> {
    let square = t * t;
    if square < df {
        // The complement keeps its digits where df/(df+t²) rounds to 1.
        Some(1.0 - incomplete_beta(0.5, 0.5 * df, square / (df + square))?)
    } else {
        incomplete_beta(0.5 * df, 0.5, df / (df + square))
    }
}

/// The `t` with `P(T ≤ t) = p`: quantile of Student's t with `df` degrees of freedom; `None` unless 0 < p < 1 and df > 0.
///
/// Found by bisection of [`student_t_cdf`] on the half-line, which cannot diverge; the last bits are those of the incomplete beta
/// function (relative error below 1e-9, checked against scipy in `tests/it/statistics.rs`).
pub fn student_t_quantile(p: f64, df: f64) -> Option<f64> {
    if !(p > 0.0 && p < 1.0 && df > 0.0 && df.is_finite()) {
        return None;
    }
    if p == 0.5 {
        return Some(0.0);
    }
    let tails = 2.0 * p.min(1.0 - p);
    let (mut low, mut high) = (0.0_f64, 1.0_f64);
    while upper_tail_twice(high, df)? > tails {
        low = high;
        high *= 2.0;
        if !high.is_finite() {
            return None;
        }
    }
    for _ in 0..200 {
        let middle = 0.5 * (low + high);
        if middle <= low || middle >= high {
            break;
        }
        if upper_tail_twice(middle, df)? > tails {
            low = middle;
        } else {
            high = middle;
        }
    }
    let t = 0.5 * (low + high);
    Some(if p < 0.5 { -t } else { t })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: f64, expected: f64, relative: f64) {
        assert!((found - expected).abs() <= relative * expected.abs().max(1e-300), "{found} instead of {expected}");
    }

    #[test]
    fn the_logarithm_of_gamma_is_that_of_the_factorial() {
        let mut factorial = 1.0_f64;
        for n in 1..20 {
            assert!((ln_gamma(f64::from(n)) - factorial.ln()).abs() < 1e-12, "n = {n}");
            factorial *= f64::from(n);
        }
        close(ln_gamma(0.5), std::f64::consts::PI.sqrt().ln(), 1e-13);
    }

    #[test]
    fn one_degree_of_freedom_is_the_cauchy_distribution() {
        for p in [0.55, 0.75, 0.9, 0.975, 0.995, 0.9995_f64] {
            let cauchy = (std::f64::consts::PI * (p - 0.5)).tan();
            close(student_t_quantile(p, 1.0).expect("inside"), cauchy, 1e-10);
            close(student_t_quantile(1.0 - p, 1.0).expect("inside"), -cauchy, 1e-10);
        }
    }

    #[test]
    fn two_degrees_of_freedom_have_a_closed_form() {
        // F(t) = 1/2 + t / (2 sqrt(2 + t²)), so t = (2p − 1) sqrt(2 / (1 − (2p − 1)²)).
        for p in [0.6, 0.9, 0.975, 0.999_f64] {
            let u = 2.0 * p - 1.0;
            close(student_t_quantile(p, 2.0).expect("inside"), u * (2.0 / (1.0 - u * u)).sqrt(), 1e-10);
        }
    }

    #[test]
    fn many_degrees_of_freedom_approach_the_normal_distribution() {
        close(student_t_quantile(0.975, 1e7).expect("inside"), 1.959_963_984_540_054, 1e-6);
    }

    #[test]
    fn what_does_not_exist_is_none() {
        for (p, df) in [(0.0, 3.0), (1.0, 3.0), (f64::NAN, 3.0), (0.5, 0.0), (0.9, -1.0), (0.9, f64::INFINITY)] {
            assert_eq!(student_t_quantile(p, df), None, "p = {p}, df = {df}");
        }
        assert_eq!(incomplete_beta(0.0, 1.0, 0.5), None);
        assert_eq!(incomplete_beta(1.0, 1.0, 1.5), None);
        assert_eq!(student_t_cdf(f64::NAN, 2.0), None);
    }

    #[test]
    fn the_incomplete_beta_function_of_one_and_one_is_the_identity() {
        for x in [0.0, 0.1, 0.5, 0.9, 1.0] {
            close(incomplete_beta(1.0, 1.0, x).expect("inside"), x, 1e-13);
        }
    }
}
