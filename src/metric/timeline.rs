//! The time of a whole repeat: its window, its rates, and how many requests were in flight.
use super::decode_window::{NO_DATA, NoRate, TOKENS_UNKNOWN, Throughput};
use super::row::completion_tokens;
use crate::record::{OutcomeGroup, RequestRecord};

/// Label of a repeat whose rows hold no two times.
const NO_TIME: NoRate = "no time passed, or none was seen";

fn seconds(start: i64, end: i64) -> f64 {
    (i128::from(end) - i128::from(start)) as f64 / 1e9
}

/// The window of a repeat in ns: from the first request sent to the last that ended, failed ones too.
fn window(rows: &[&RequestRecord]) -> Option<(i64, i64)> {
    let start = rows.iter().filter_map(|row| row.sent_ns).min()?.0;
    let end = rows.iter().filter(|row| row.sent_ns.is_some()).filter_map(|row| row.end_ns).max()?.0;
    (end > start).then_some((start, end))
}

/// Length of the window of a repeat in seconds: from the first request sent to the last that ended.
pub fn window_s(rows: &[&RequestRecord]) -> Option<f64> {
    window(rows).map(|(start, end)| seconds(start, end))
}

fn ok<'a>(rows: &'a [&'a RequestRecord]) -> impl Iterator<Item = &'a RequestRecord> {
    rows.iter().copied().filter(|row| row.outcome.group() == OutcomeGroup::Ok)
}

/// The whole repeat: completion tokens of ok rows over its window, prefill and failed requests' time included.
///
/// `Err` when a row's tokens are unknown, none was answered or no time passed.
pub fn run_throughput(rows: &[&RequestRecord]) -> Result<Throughput, NoRate> {
    if ok(rows).next().is_none() {
        return Err(NO_DATA);
    }
    let tokens: Option<f64> = ok(rows).map(|row| completion_tokens(row).map(f64::from)).sum();
    let tokens = tokens.ok_or(TOKENS_UNKNOWN)?;
    Ok(Throughput { tokens, seconds: window_s(rows).ok_or(NO_TIME)? })
}

/// Answered requests a second over the window of the repeat.
pub fn request_rate(rows: &[&RequestRecord]) -> Result<f64, NoRate> {
    match ok(rows).count() {
        0 => Err(NO_DATA),
        n => Ok(n as f64 / window_s(rows).ok_or(NO_TIME)?),
    }
}

/// Requests in flight over a stretch of time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct InFlight {
    /// Requests · seconds.
    pub request_s: f64,
    /// Length in seconds.
    pub seconds: f64,
    /// Most at once.
    pub peak: usize,
}

impl InFlight {
    /// Mean in flight, weighted by time.
    pub fn mean(&self) -> f64 {
        self.request_s / self.seconds
    }
}

/// Requests in flight, `[sent_ns, end_ns]` each, over the window of the repeat; `None` without one.
pub fn in_flight(rows: &[&RequestRecord]) -> Option<InFlight> {
    let (start, end) = window(rows)?;
    let mut area = InFlight { request_s: 0.0, seconds: seconds(start, end), peak: 0 };
    for (from, to, flying) in levels(rows) {
        area.request_s += seconds(from, to) * flying as f64;
        area.peak = area.peak.max(flying);
    }
    Some(area)
}

/// Stretches of constant requests in flight: start, end, how many. Only stretches that last.
fn levels(rows: &[&RequestRecord]) -> Vec<(i64, i64, usize)> {
    let mut events: Vec<(i64, i64)> = Vec::with_capacity(rows.len() * 2);
    for row in rows {
        if let (Some(sent), Some(end)) = (row.sent_ns, row.end_ns)
            && end > sent
        {
            events.extend([(sent.0, 1), (end.0, -1)]);
        }
    }
    events.sort_unstable();
    let mut levels = Vec::with_capacity(events.len());
    let mut flying = 0i64;
    for pair in events.windows(2) {
        flying += pair[0].1;
        if pair[1].0 > pair[0].0 {
            levels.push((pair[0].0, pair[1].0, usize::try_from(flying).unwrap_or(0)));
        }
    }
    levels
}

/// Seconds in which `lanes` requests were in flight, and the seconds in which they had to be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Held {
    /// With at least `lanes` in flight.
    pub held_s: f64,
    /// The whole window.
    pub window_s: f64,
}

/// How long the asked concurrency was held.
///
/// The window runs from the first `sent_ns` to the last; where the lanes send no second request, to the first `end_ns` instead, so that
/// a single wave is judged too: 512 wanted and 100 connected must not pass for want of a window. `None` when no request has both times.
pub fn concurrency_held(rows: &[&RequestRecord], lanes: u32) -> Option<Held> {
    let sent = || rows.iter().filter(|row| row.end_ns.is_some()).filter_map(|row| row.sent_ns);
    let start = sent().min()?.0;
    let first_end = rows.iter().filter(|row| row.sent_ns.is_some()).filter_map(|row| row.end_ns).min()?.0;
    let end = sent().max()?.0.max(first_end);
    if end <= start {
        return None;
    }
    let lanes = usize::try_from(lanes).unwrap_or(usize::MAX);
    let held_s = levels(rows)
        .into_iter()
        .filter(|&(_, _, flying)| flying >= lanes)
        .map(|(from, to, _)| (from.max(start), to.min(end)))
        .filter(|(from, to)| to > from)
        .map(|(from, to)| seconds(from, to))
        .sum();
    Some(Held { held_s, window_s: seconds(start, end) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::samples::row;

    #[test]
    fn a_lane_that_idles_is_seen_as_concurrency_not_held() {
        // Two lanes, four requests; the second lane waits 100 ms before its second request.
        let rows = [row(0, 10, &[10; 9]), row(0, 10, &[10; 9]), row(100, 110, &[10; 9]), row(200, 210, &[10; 9])];
        let rows: Vec<&RequestRecord> = rows.iter().collect();
        let held = concurrency_held(&rows, 2).expect("a window");
        assert!((held.held_s - 0.1).abs() < 1e-9 && (held.window_s - 0.2).abs() < 1e-9, "{held:?}");
    }

    #[test]
    fn a_single_wave_is_held_until_its_first_end() {
        let rows = [row(0, 10, &[10; 9]), row(1, 10, &[10; 19])];
        let rows: Vec<&RequestRecord> = rows.iter().collect();
        let held = concurrency_held(&rows, 2).expect("a window");
        // From 0 to 100 ms; the second request is there from 1 ms on.
        assert!((held.held_s - 0.099).abs() < 1e-9 && (held.window_s - 0.1).abs() < 1e-9, "{held:?}");
    }

    #[test]
    fn a_hidden_cap_on_connections_is_not_taken_for_the_asked_concurrency() {
        // B63: 512 asked, 100 at once, a second each.
        let rows: Vec<RequestRecord> = (0..512).map(|i| row(i / 100 * 1000, i / 100 * 1000 + 1000, &[])).collect();
        let rows: Vec<&RequestRecord> = rows.iter().collect();
        let held = concurrency_held(&rows, 512).expect("a window");
        assert_eq!(held.held_s, 0.0);
        assert_eq!(in_flight(&rows).expect("a window").peak, 100);
    }

    #[test]
    fn mean_and_peak_in_flight_follow_the_schedule() {
        // 0..100 one, 50..150 another: 1, 2, 1 over 50 ms each.
        let rows = [row(0, 100, &[]), row(50, 150, &[])];
        let load = in_flight(&rows.iter().collect::<Vec<_>>()).expect("a window");
        assert!((load.mean() - 200.0 / 150.0).abs() < 1e-12);
        assert_eq!(load.peak, 2);
    }

    #[test]
    fn the_whole_run_counts_answered_tokens_over_all_of_its_time() {
        let ok = row(0, 100, &[10; 9]);
        let mut failed = row(0, 100, &[10; 9]);
        failed.outcome = crate::record::Outcome::Reset;
        failed.end_ns = Some(crate::units::TimestampNs(500_000_000));
        let got = run_throughput(&[&ok, &failed]).expect("a rate");
        assert_eq!(got, Throughput { tokens: 10.0, seconds: 0.5 });
        assert_eq!(request_rate(&[&ok, &failed]), Ok(2.0));
        assert_eq!(run_throughput(&[&failed]), Err(NO_DATA));
        let mut unknown = ok.clone();
        unknown.usage_completion_tokens = None;
        assert_eq!(run_throughput(&[&ok, &unknown]), Err(TOKENS_UNKNOWN));
    }
}
