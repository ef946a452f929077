//! Rates over the requests of one repeat, by a sweep over their times.
use super::row::{completion_tokens, decode_work};
use crate::record::RequestRecord;

/// Tokens and the seconds they took.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Throughput {
    /// Tokens.
    pub tokens: f64,
    /// Seconds.
    pub seconds: f64,
}

impl Throughput {
    /// Tokens per second; `None` when no time passed.
    pub fn tok_s(self) -> Option<f64> {
        (self.seconds > 0.0).then(|| self.tokens / self.seconds).filter(|rate| rate.is_finite())
    }
}

/// Shortest steady window, in seconds, that a rate is read from.
const LEAST_WINDOW_S: f64 = 0.02;

/// Aggregate decode: tokens emitted while all `lanes` decode and none prefills, and that time.
///
/// A request prefills from `sent_ns` to `first_token_ns` and decodes from there to `last_token_ns`. Its tokens fall on its chunks:
/// chunk `i` stands at `first_token_ns + Σ gap_us[..i]`, and every chunk after the first carries `(n − n_first) / (chunks − 1)` tokens. A
/// token counts when its instant lies in a window `(start, end]`. `None` when all lanes never decoded together for 20 ms, or a row that
/// did is of unknown length.
///
/// `rows` are the measured rows of one (arm, cell, repeat): their times share one clock.
pub fn decode_throughput(rows: &[&RequestRecord], lanes: u32) -> Option<Throughput> {
    let windows = steady_windows(rows, lanes);
    let seconds: f64 = windows.iter().map(|(start, end)| (end - start) as f64 / 1e9).sum();
    if seconds < LEAST_WINDOW_S {
        return None;
    }
    let mut tokens = 0.0;
    for row in rows {
        let (Some(first), Some(last)) = (row.first_token_ns, row.last_token_ns) else { continue };
        if !windows.iter().any(|&(start, end)| first.0 < end && last.0 > start) {
            continue;
        }
        let per_chunk = decode_work(row)?.tokens / row.gap_us.len() as f64;
        let mut at = first.0;
        let mut window = windows.partition_point(|&(_, end)| end <= at);
        for &gap in &row.gap_us {
            at += i64::from(gap) * 1000;
            while windows.get(window).is_some_and(|&(_, end)| end < at) {
                window += 1;
            }
            if windows.get(window).is_some_and(|&(start, _)| start < at) {
                tokens += per_chunk;
            }
        }
    }
    Some(Throughput { tokens, seconds })
}

/// Times, in order and apart, in which exactly `lanes` requests decode and none prefills.
fn steady_windows(rows: &[&RequestRecord], lanes: u32) -> Vec<(i64, i64)> {
    // (time, change of prefilling, change of decoding)
    let mut events: Vec<(i64, i32, i32)> = Vec::with_capacity(rows.len() * 3);
    for row in rows {
        let Some(sent) = row.sent_ns else { continue };
        match (row.first_token_ns, row.last_token_ns) {
            (Some(first), Some(last)) => {
                // Gaps are whole microseconds: the last chunk may stand half of one beside its stamp.
                let told = first.0 + row.gap_us.iter().map(|&g| i64::from(g) * 1000).sum::<i64>();
                events.extend([(sent.0, 1, 0), (first.0, -1, 1), (last.0.max(told), 0, -1)]);
            }
            _ => {
                let end = row.end_ns.map_or(sent.0, |end| end.0.max(sent.0));
                events.extend([(sent.0, 1, 0), (end, -1, 0)]);
            }
        }
    }
    events.sort_unstable();
    let (mut prefilling, mut decoding) = (0, 0);
    let mut since = None;
    let mut windows: Vec<(i64, i64)> = Vec::new();
    let mut index = 0;
    while index < events.len() {
        let at = events[index].0;
        while index < events.len() && events[index].0 == at {
            prefilling += events[index].1;
            decoding += events[index].2;
            index += 1;
        }
        let steady = prefilling == 0 && decoding == i32::try_from(lanes).unwrap_or(i32::MAX) && lanes > 0;
        match (since, steady) {
            (None, true) => since = Some(at),
            (Some(start), false) => {
                since = None;
                if at > start {
                    windows.push((start, at));
                }
            }
            _ => {}
        }
    }
    windows
}

/// The whole repeat: completion tokens of ok rows over the time from the first request sent to the last that ended, prefill included.
///
/// `None` when a row's tokens are unknown or no time passed.
pub fn run_throughput(rows: &[&RequestRecord]) -> Option<Throughput> {
    let start = rows.iter().filter_map(|row| row.sent_ns).min()?;
    let end = rows.iter().filter_map(|row| row.end_ns).max()?;
    let tokens: Option<f64> = rows.iter().map(|row| completion_tokens(row).map(f64::from)).sum();
    let seconds = (end.0 - start.0) as f64 / 1e9;
    Some(Throughput { tokens: tokens?, seconds }).filter(|t| t.seconds > 0.0)
}

/// Share of the time in which requests were still being sent that `lanes` of them were in flight, and that time in seconds.
///
/// In flight: from `sent_ns` to `end_ns`. The window runs from the moment the lanes are first full, or should be (`lanes` requests sent),
/// to the last `sent_ns`. `None` when no more than `lanes` requests were sent: then nothing had to be held.
pub fn concurrency_held(rows: &[&RequestRecord], lanes: u32) -> Option<(f64, f64)> {
    let mut sent: Vec<i64> = rows.iter().filter_map(|row| row.sent_ns).map(|t| t.0).collect();
    sent.sort_unstable();
    let lanes_count = lanes as usize;
    if sent.len() <= lanes_count || lanes == 0 {
        return None;
    }
    let (start, end) = (sent[lanes_count - 1], sent[sent.len() - 1]);
    let mut events: Vec<(i64, i32)> = Vec::new();
    for row in rows {
        if let (Some(sent), Some(ended)) = (row.sent_ns, row.end_ns) {
            events.extend([(sent.0, 1), (ended.0, -1)]);
        }
    }
    events.sort_unstable();
    let (mut in_flight, mut held, mut last) = (0i64, 0i64, start);
    for (at, change) in events {
        let clipped = at.clamp(start, end);
        if in_flight >= i64::from(lanes) {
            held += clipped - last;
        }
        last = clipped;
        in_flight += i64::from(change);
    }
    let total = end - start;
    (total > 0).then(|| (held as f64 / total as f64, total as f64 / 1e9))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::record::Outcome;
    use crate::request::{Prompt, Request, RequestKey, Sampling};
    use crate::units::TimestampNs;

    fn row(sent_ms: i64, first_ms: i64, gaps_ms: &[u32]) -> RequestRecord {
        let request = Request {
            key: RequestKey { arm: "a".into(), cell: "c".into(), repeat: 0, index: 0, warmup: false },
            prompt: Prompt::TokenIds(vec![1]),
            prompt_tokens_planned: None,
            sampling: Sampling::default(),
            max_tokens: 9,
            ignore_eos: true,
            seed: 1,
        };
        let mut row = RequestRecord::planned(&request, 0);
        row.outcome = Outcome::Ok;
        let at = |ms: i64| Some(TimestampNs(ms * 1_000_000));
        let last = first_ms + gaps_ms.iter().map(|&g| i64::from(g)).sum::<i64>();
        (row.sent_ns, row.first_token_ns, row.last_token_ns, row.end_ns) =
            (at(sent_ms), at(first_ms), at(last), at(last));
        row.gap_us = gaps_ms.iter().map(|g| g * 1000).collect();
        row.first_chunk_tokens = Some(1);
        row.usage_completion_tokens = Some(gaps_ms.len() as u32 + 1);
        row
    }

    #[test]
    fn one_lane_counts_every_token_after_the_first_over_its_span() {
        let (a, b) = (row(0, 100, &[10; 20]), row(301, 400, &[20; 10]));
        let got = decode_throughput(&[&a, &b], 1).expect("a window");
        assert_eq!(got.tokens, 30.0);
        assert!((got.seconds - 0.4).abs() < 1e-12);
    }

    #[test]
    fn two_lanes_count_only_while_both_decode_and_none_prefills() {
        // Lane one decodes 100..300, lane two 150..250 ms: the window is 150..250, with 10 tokens of the first and 5 of the second.
        let (a, b) = (row(0, 100, &[10; 20]), row(0, 150, &[20; 5]));
        let got = decode_throughput(&[&a, &b], 2).expect("a window");
        assert!((got.seconds - 0.1).abs() < 1e-12);
        assert_eq!(got.tokens, 15.0);
        // A third request in prefill from 200 ms on closes the window there: (150, 200] holds 5 and 2 tokens.
        let c = row(200, 400, &[10; 3]);
        let got = decode_throughput(&[&a, &b, &c], 2).expect("a window");
        assert!((got.seconds - 0.05).abs() < 1e-12);
        assert_eq!(got.tokens, 7.0);
    }

    #[test]
    fn four_tokens_a_chunk_give_the_same_rate_as_one() {
        let one = row(0, 0, &[10; 80]);
        let mut four = row(0, 0, &[40; 20]);
        (four.first_chunk_tokens, four.usage_completion_tokens) = (Some(4), Some(84));
        let rate = |r: &RequestRecord| decode_throughput(&[r], 1).and_then(Throughput::tok_s).expect("a rate");
        assert!((rate(&one) - 100.0).abs() < 1e-9 && (rate(&four) - 100.0).abs() < 1e-9);
    }

    #[test]
    fn no_window_is_no_rate() {
        let (a, b) = (row(0, 100, &[10; 5]), row(200, 300, &[10; 5]));
        assert_eq!(decode_throughput(&[&a, &b], 2), None);
        assert_eq!(decode_throughput(&[], 1), None);
    }

    #[test]
    fn a_lane_that_idles_is_seen_as_concurrency_not_held() {
        // Two lanes, four requests; the second lane waits 100 ms before its second request.
        let rows = [row(0, 10, &[10; 9]), row(0, 10, &[10; 9]), row(100, 110, &[10; 9]), row(200, 210, &[10; 9])];
        let rows: Vec<&RequestRecord> = rows.iter().collect();
        let (share, seconds) = concurrency_held(&rows, 2).expect("a window");
        assert!((share - 0.5).abs() < 1e-9 && (seconds - 0.2).abs() < 1e-9, "{share} of {seconds} s");
        assert_eq!(concurrency_held(&rows[..2], 2), None);
    }

    proptest! {
        #[test]
        fn the_aggregate_never_holds_more_tokens_than_were_made_and_order_does_not_matter(
            spec in prop::collection::vec((0i64..500, 1i64..200, prop::collection::vec(1u32..30, 1..30)), 1..8), lanes in 1u32..4
        ) {
            let rows: Vec<RequestRecord> = spec.iter().map(|(s, p, g)| row(*s, s + p, g)).collect();
            let mut refs: Vec<&RequestRecord> = rows.iter().collect();
            let forward = decode_throughput(&refs, lanes);
            refs.reverse();
            let backward = decode_throughput(&refs, lanes);
            prop_assert_eq!(forward.is_some(), backward.is_some());
            if let (Some(f), Some(b)) = (forward, backward) {
                prop_assert!((f.tokens - b.tokens).abs() < 1e-6 && (f.seconds - b.seconds).abs() < 1e-9);
                let made: f64 = rows.iter().map(|r| r.gap_us.len() as f64).sum();
                prop_assert!(f.tokens <= made + 1e-6 && f.tokens >= 0.0 && f.seconds > 0.0);
            }
        }
    }
}
