//! Intervals, percentiles and ratios: closed forms with their sources. Plain functions over slices; nothing here knows a row.
//!
//! Every function answers `None` where its number does not exist (empty input, a logarithm of zero, one value and a spread wanted), so
//! that NaN and infinity never reach a report. All intervals are 95 % and two-sided.
mod interval;
mod noise;
mod percentile;
mod proportion;
mod student_t;

pub use interval::{Interval, geometric_interval, mean, mean_interval, paired_ratio_interval};
pub use noise::{PooledSpread, noise_floor, pooled_log_spread};
pub use percentile::{median, minimum_n, percentile, percentile_sorted, sorted};
pub use proportion::wilson;
pub use student_t::{incomplete_beta, student_t_cdf, student_t_quantile};

/// The share of the distribution that every interval covers.
pub const LEVEL: f64 = 0.95;
