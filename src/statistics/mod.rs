//! Intervals, percentiles and ratios: closed forms with their sources.
