//! How numbers are written: as many digits as their interval supports, `–` for what is unknown.
use crate::metric::summary::Estimate;
use crate::plot::scale::thousands;

/// Where nothing was measured.
pub const NOTHING: &str = "–";

/// A number and its interval, rounded alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// The number, as `41.2`.
    pub value: String,
    /// Its interval without brackets, as `40.8–41.7`.
    pub interval: Option<String>,
}

/// Writes an estimate; `None` where it has no finite value.
pub fn write(estimate: &Estimate) -> Option<Written> {
    let finite = |v: Option<f64>| v.filter(|v| v.is_finite());
    let value = finite(estimate.value)?;
    let interval = finite(estimate.low).zip(finite(estimate.high));
    let decimals = match interval {
        Some((low, high)) if high > low => decimals_of_width(high - low, value.abs().max(low.abs()).max(high.abs())),
        _ => decimals_of_size(value),
    };
    let one = |v: f64| write_with(v, decimals, value);
    Some(Written { value: one(value), interval: interval.map(|(low, high)| format!("{}–{}", one(low), one(high))) })
}

/// Writes a number with four significant digits.
pub fn plain(value: f64) -> String {
    if value.is_finite() { write_with(value, decimals_of_size(value), value) } else { NOTHING.to_owned() }
}

/// Two digits of the interval's width, and no more than six significant ones in all.
fn decimals_of_width(width: f64, size: f64) -> i32 {
    let digit = |v: f64| v.log10().floor() as i32;
    let wanted = 1 - digit(width * 2.0);
    wanted.min(5 - digit(size)).max(0)
}

fn decimals_of_size(value: f64) -> i32 {
    if value == 0.0 { 0 } else { (3 - value.abs().log10().floor() as i32).max(0) }
}

fn write_with(value: f64, decimals: i32, leading: f64) -> String {
    // Too large or too small to be read in full: powers of ten, for the interval as for its value.
    let size = leading.abs();
    if size != 0.0 && !(1e-4..1e9).contains(&size) {
        return format!("{value:.2e}");
    }
    let text = format!("{value:.*}", decimals.clamp(0, 9) as usize);
    // A rounded -0.0 reads as a loss.
    let text = if text.trim_start_matches(['-', '0', '.']).is_empty() {
        text.trim_start_matches('-').to_owned()
    } else {
        text
    };
    thousands(&text)
}

/// A count with its thousands set apart.
pub fn count(value: usize) -> String {
    thousands(&value.to_string())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(value: f64, low: f64, high: f64) -> String {
        let estimate = Estimate { n: 4, value: Some(value), low: Some(low), high: Some(high), note: None };
        let written = write(&estimate).expect("finite");
        format!("{} ({})", written.value, written.interval.expect("given"))
    }

    #[test]
    fn digits_follow_the_width_of_the_interval() {
        assert_eq!(written(41.234, 40.79, 41.68), "41.2 (40.8–41.7)");
        assert_eq!(written(1234.56, 1200.1, 1269.4), "1,235 (1,200–1,269)");
        assert_eq!(written(0.9871, 0.9842, 0.9904), "0.987 (0.984–0.990)");
        assert_eq!(written(5.0, 5.0, 5.0), "5.000 (5.000–5.000)");
    }

    #[test]
    fn a_number_without_interval_has_four_digits_and_far_ones_are_powers() {
        assert_eq!(
            [plain(41.2), plain(1234.0), plain(0.5), plain(0.0), plain(1e-9), plain(2.5e12)],
            ["41.20", "1,234", "0.5000", "0", "1.00e-9", "2.50e12"]
        );
    }

    #[test]
    fn what_is_not_finite_is_not_written() {
        for value in [None, Some(f64::NAN), Some(f64::INFINITY)] {
            assert_eq!(write(&Estimate { n: 3, value, ..Estimate::default() }), None);
        }
    }

    proptest! {
        #[test]
        fn a_written_number_reads_back_to_within_its_last_digit(value in -1e8f64..1e8, half in 1e-3f64..1e6) {
            let estimate = Estimate { n: 4, value: Some(value), low: Some(value - half), high: Some(value + half), note: None };
            let read: f64 = write(&estimate).expect("finite").value.replace(',', "").parse().expect("a number");
            prop_assert!((read - value).abs() <= half.max(value.abs() * 1e-5), "{value} ± {half} read as {read}");
        }
    }
}
