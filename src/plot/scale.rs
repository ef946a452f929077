//! From a value to a place on an axis, and the ticks between. No input makes a NaN: what cannot be placed is dropped before.
use std::fmt::Write as _;

/// Beyond this a difference of two values may overflow.
const LARGEST: f64 = 1e300;

/// How values are spread over an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spread {
    /// Equal steps.
    Linear,
    /// Equal ratios; `2` for lengths and counts, `10` for times.
    Log {
        /// Base of the ticks.
        base: u32,
    },
}

/// An axis: the values at its two ends.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scale {
    /// How values are spread.
    pub spread: Spread,
    /// Value at the low end.
    pub low: f64,
    /// Value at the high end; always above `low`.
    pub high: f64,
}

/// `value` where it can be drawn: finite, no larger than 1e300, and 0 where it is smaller than 1e-300.
pub fn drawable(value: Option<f64>) -> Option<f64> {
    let flushed = |v: f64| if v.abs() < 1.0 / LARGEST { 0.0 } else { v.clamp(-LARGEST, LARGEST) };
    value.filter(|v| v.is_finite()).map(flushed)
}

fn ends(values: impl IntoIterator<Item = f64>) -> Option<(f64, f64)> {
    values.into_iter().fold(None, |ends, v| match ends {
        None => Some((v, v)),
        Some((low, high)) => Some((f64::min(low, v), f64::max(high, v))),
    })
}

impl Scale {
    /// A linear axis from 0 (or from the lowest value, where that is negative) to a round number above the highest.
    ///
    /// For quantities whose height is compared: an axis that starts elsewhere makes small differences look large.
    pub fn from_zero(values: impl IntoIterator<Item = f64>) -> Self {
        let (low, high) = ends(values).unwrap_or((0.0, 1.0));
        let (low, high) = (low.min(0.0), high.max(0.0));
        let room = (high - low) * 1.06;
        let step = step(room / 6.0);
        if step <= 0.0 {
            return Self { spread: Spread::Linear, low: 0.0, high: 1.0 };
        }
        let high = if high > 0.0 { ((high + 0.06 * (high - low)) / step).ceil() * step } else { 0.0 };
        Self { spread: Spread::Linear, low: (low / step).floor() * step, high }.opened()
    }

    /// A linear axis around the values, for a place rather than a height.
    pub fn around(values: impl IntoIterator<Item = f64>) -> Self {
        let (low, high) = ends(values).unwrap_or((0.0, 1.0));
        let pad = (high - low) * 0.06;
        let pad = if pad > 0.0 { pad } else { high.abs() * 0.5 };
        Self { spread: Spread::Linear, low: low - pad, high: high + pad }.opened()
    }

    /// A logarithmic axis around the positive values.
    pub fn log(values: impl IntoIterator<Item = f64>, base: u32) -> Self {
        let positive = values.into_iter().filter(|v| *v > 0.0).map(|v| v.clamp(1.0 / LARGEST, LARGEST));
        let (low, high) = ends(positive).unwrap_or((1.0, f64::from(base)));
        let pad = (0.06 * (high.ln() - low.ln())).exp().clamp(1.05, 10.0);
        let pad = if high > low { pad } else { f64::from(base).sqrt() };
        Self { spread: Spread::Log { base }, low: low / pad, high: high * pad }.opened()
    }

    /// Never empty, whatever rounding did.
    fn opened(self) -> Self {
        match self {
            Self { low, high, .. } if low.is_finite() && high.is_finite() && (high - low) > 0.0 => self,
            Self { spread: Spread::Linear, low, .. } if low.is_finite() && low.abs() < 1e15 => {
                Self { low, high: low + 1.0, ..self }
            }
            Self { spread, .. } => Self { spread, low: 1.0, high: 10.0 },
        }
    }

    /// Where `value` lies: 0 at the low end, 1 at the high end, and no further out than 10 lengths.
    pub fn place(&self, value: f64) -> f64 {
        let share = match self.spread {
            Spread::Linear => (value - self.low) / (self.high - self.low),
            Spread::Log { .. } if value <= 0.0 => return 0.0,
            // Differences of logarithms: a ratio of far values overflows.
            Spread::Log { .. } => (value.ln() - self.low.ln()) / (self.high.ln() - self.low.ln()),
        };
        if share.is_nan() { 0.0 } else { share.clamp(-10.0, 10.0) }
    }

    /// Tick values inside the axis, about `wanted` of them, in rising order.
    pub fn ticks(&self, wanted: usize) -> Vec<f64> {
        let candidates: Vec<f64> = match self.spread {
            Spread::Linear => {
                let step = step((self.high - self.low) / wanted.max(1) as f64);
                if step <= 0.0 {
                    return vec![];
                }
                let first = (self.low / step).ceil();
                (0..=4 * wanted).map(|k| (first + k as f64) * step).collect()
            }
            Spread::Log { base } => {
                let base = f64::from(base);
                let exponents = (self.low.ln() / base.ln()).floor()..=(self.high.ln() / base.ln()).ceil();
                let decades = (exponents.end() - exponents.start()).max(1.0);
                let every = (decades / wanted.max(1) as f64).ceil().max(1.0);
                let between: &[f64] = match decades {
                    d if base == 10.0 && d <= 2.0 => &[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0],
                    d if base == 10.0 && d <= 4.0 => &[1.0, 2.0, 5.0],
                    _ => &[1.0],
                };
                let first = (exponents.start() / every).floor() * every;
                (0..=2 * wanted)
                    .map(|k| base.powf(first + k as f64 * every))
                    .flat_map(|power| between.iter().map(move |b| b * power))
                    .collect()
            }
        };
        let inside = |v: &f64| {
            v.is_finite()
                && (-1e-9..=1.0 + 1e-9).contains(&self.place(*v))
                && (*v > 0.0 || self.spread == Spread::Linear)
        };
        candidates.into_iter().filter(inside).collect()
    }

    /// Distance between neighbouring ticks, from which labels take their decimals; 0 where ticks are not even.
    pub fn tick_step(&self, wanted: usize) -> f64 {
        match self.spread {
            Spread::Linear => step((self.high - self.low) / wanted.max(1) as f64),
            Spread::Log { .. } => 0.0,
        }
    }
}

/// The 1, 2 or 5 × 10^k at or above `least`; 0 where there is none.
fn step(least: f64) -> f64 {
    if !(least.is_finite() && least > 1e-300) {
        return 0.0;
    }
    let power = 10f64.powf(least.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|m| m * power)
        .find(|s| *s >= least * (1.0 - 1e-9))
        .unwrap_or(10.0 * power);
    if step.is_finite() { step } else { 0.0 }
}

/// A tick label: as few digits as tell it from its neighbours, thousands set apart, powers of ten beyond 10⁻⁴ and 10⁷.
pub fn tick_label(value: f64, step: f64) -> String {
    let size = value.abs().max(step);
    if value == 0.0 {
        return "0".to_owned();
    }
    if !(1e-4..1e7).contains(&size) {
        let text = format!("{value:.2e}");
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        return format!("{}e{exponent}", trim_zeros(mantissa));
    }
    let decimals =
        if step > 0.0 { (-step.log10().floor()).clamp(0.0, 8.0) } else { (2.0 - size.log10().floor()).clamp(0.0, 8.0) };
    let text = format!("{value:.*}", decimals as usize);
    thousands(trim_zeros(&text))
}

fn trim_zeros(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

/// `12345.6` as `12,345.6`.
pub fn thousands(text: &str) -> String {
    let (sign, digits) = text.strip_prefix('-').map_or(("", text), |rest| ("-", rest));
    let (whole, fraction) = digits.split_once('.').map_or((digits, None), |(w, f)| (w, Some(f)));
    let mut out = String::from(sign);
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    if let Some(fraction) = fraction {
        write!(out, ".{fraction}").expect("writing to a String cannot fail");
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn round_ticks_cover_the_data_and_start_at_zero() {
        let scale = Scale::from_zero([41.2, 97.0]);
        assert_eq!((scale.low, scale.high), (0.0, 120.0));
        assert_eq!(scale.ticks(6), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0, 120.0]);
        let lengths = Scale::log([128.0, 2048.0], 2);
        assert_eq!(lengths.ticks(8), [128.0, 256.0, 512.0, 1024.0, 2048.0]);
    }

    #[test]
    fn labels_have_no_more_digits_than_they_need() {
        assert_eq!(tick_label(12000.0, 2000.0), "12,000");
        assert_eq!(tick_label(0.25, 0.05), "0.25");
        assert_eq!(tick_label(1e12, 2e11), "1e12");
        assert_eq!(tick_label(1e-9, 0.0), "1e-9");
        assert_eq!(tick_label(1.5, 0.0), "1.5");
        assert_eq!(thousands("-1234567.25"), "-1,234,567.25");
    }

    proptest! {
        #[test]
        fn every_scale_places_every_number_and_its_ticks_lie_inside(values in prop::collection::vec(any::<f64>(), 0..6), base in prop::sample::select(vec![2u32, 10])) {
            let values: Vec<f64> = values.into_iter().filter_map(|v| drawable(Some(v))).collect();
            for scale in [Scale::from_zero(values.clone()), Scale::around(values.clone()), Scale::log(values.clone(), base)] {
                prop_assert!(scale.low < scale.high, "{scale:?}");
                for v in &values {
                    prop_assert!(scale.place(*v).is_finite());
                }
                let ticks = scale.ticks(6);
                prop_assert!(ticks.len() <= 120 && ticks.windows(2).all(|w| w[0] < w[1]), "{ticks:?}");
                prop_assert!(ticks.iter().all(|t| (-0.001..=1.001).contains(&scale.place(*t))));
            }
        }
    }
}
