use proptest::prelude::*;

use super::*;
use crate::metric::samples::row;

fn tok_s(rows: &[&RequestRecord], lanes: u32) -> f64 {
    decode_throughput(rows, lanes).expect("a window").tok_s().expect("a rate")
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
fn a_failed_request_in_prefill_closes_the_window_until_it_ends() {
    let a = row(0, 0, &[10; 20]);
    let mut failed = row(50, 60, &[]);
    failed.outcome = crate::record::Outcome::Reset;
    (failed.first_token_ns, failed.last_token_ns) = (None, None);
    failed.end_ns = Some(crate::units::TimestampNs(100_000_000));
    let got = decode_throughput(&[&a, &failed], 1).expect("a window");
    // (0, 50] and (100, 200] ms.
    assert_eq!(got.tokens, 15.0);
    assert!((got.seconds - 0.15).abs() < 1e-12);
}

#[test]
fn four_tokens_a_chunk_give_the_same_rate_as_one() {
    let one = row(0, 0, &[10; 80]);
    let mut four = row(0, 0, &[40; 20]);
    (four.first_chunk_tokens, four.usage_completion_tokens) = (Some(4), Some(84));
    assert!((tok_s(&[&one], 1) - 100.0).abs() < 1e-9);
    assert!((tok_s(&[&four], 1) - 100.0).abs() < 1e-9);
}

#[test]
fn no_window_is_no_rate_and_says_why() {
    let (a, b) = (row(0, 100, &[10; 5]), row(200, 300, &[10; 5]));
    assert_eq!(decode_throughput(&[&a, &b], 2), Err(LANES_NEVER_FULL));
    assert_eq!(decode_throughput(&[], 1), Err(NO_DATA));
    // B25: a flush. Ten of them make 30 ms of "decode" and still no rate.
    let flush: Vec<RequestRecord> = (0..10).map(|i| row(i * 1000, i * 1000 + 900, &[1, 1, 1])).collect();
    assert_eq!(decode_throughput(&flush.iter().collect::<Vec<_>>(), 1), Err(NO_DECODE_WINDOW));
    let mut unknown = row(0, 100, &[10; 20]);
    unknown.usage_completion_tokens = None;
    assert_eq!(decode_throughput(&[&unknown], 1), Err(TOKENS_UNKNOWN));
}

#[test]
fn stamps_a_few_microseconds_apart_lose_no_token_of_the_last_step() {
    // Four lanes step together each 10 ms, 33 tokens each, in turn: lane 0 ends one step earlier than the others would by the stamps,
    // since sequence k of a step is stamped k · 100 µs later. True rate: 4 tokens a step of 10 ms = 400 tok/s.
    let mut rows: Vec<RequestRecord> = (0..4).map(|_| row(0, 100, &[10; 32])).collect();
    for (k, row) in rows.iter_mut().enumerate() {
        for time in [&mut row.first_token_ns, &mut row.last_token_ns, &mut row.end_ns] {
            time.as_mut().expect("set").0 += k as i64 * 100_000;
        }
    }
    let refs: Vec<&RequestRecord> = rows.iter().collect();
    let got = decode_throughput(&refs, 4).expect("a window");
    assert_eq!(got.tokens, 128.0);
    // The window runs from the last first token to the first last token: 320 − 0.3 ms.
    assert!((got.seconds - 0.3197).abs() < 1e-12);
}

#[test]
fn times_at_the_ends_of_the_clock_do_not_overflow() {
    use crate::units::TimestampNs;
    let mut strange = row(0, 100, &[u32::MAX; 4]);
    strange.sent_ns = Some(TimestampNs(i64::MIN));
    strange.first_token_ns = Some(TimestampNs(i64::MIN + 1));
    strange.last_token_ns = Some(TimestampNs(i64::MAX));
    // Its span does not fit an i64, so it decodes nowhere; the other row is as if alone.
    let got = decode_throughput(&[&strange, &row(0, 100, &[10; 5])], 1).expect("a window");
    assert_eq!(got, Throughput { tokens: 5.0, seconds: 0.05 });
}

/// The definition once more, in another shape: each nanosecond-exact elementary interval between any two events is asked whether it
/// counts, and each token is asked in which interval it lies. Quadratic, and shares no code with the sweep.
fn by_definition(rows: &[RequestRecord], lanes: usize) -> (f64, f64) {
    let span = |r: &RequestRecord| {
        let ns = |t: Option<crate::units::TimestampNs>| t.expect("set").0;
        (ns(r.sent_ns), ns(r.first_token_ns), ns(r.last_token_ns))
    };
    let counts = |middle: f64| {
        let decoding = rows.iter().filter(|r| (span(r).1 as f64) < middle && middle < span(r).2 as f64).count();
        let prefilling = rows.iter().any(|r| (span(r).0 as f64) < middle && middle < span(r).1 as f64);
        decoding >= lanes && !prefilling
    };
    let mut cuts: Vec<i64> = rows.iter().flat_map(|r| [span(r).0, span(r).1, span(r).2]).collect();
    cuts.sort_unstable();
    cuts.dedup();
    let (mut tokens, mut seconds) = (0.0, 0.0);
    for pair in cuts.windows(2) {
        let (a, b) = (pair[0], pair[1]);
        if !counts((a as f64 + b as f64) / 2.0) {
            continue;
        }
        seconds += (b - a) as f64 / 1e9;
        for r in rows {
            let mut at = span(r).1;
            for gap in &r.gap_us {
                at += i64::from(*gap) * 1000;
                tokens += f64::from(a < at && at <= b);
            }
        }
    }
    (tokens, seconds)
}

proptest! {
    /// Times on a grid of 10 ms and gaps of 40 ms with first tokens 10 ms before the grid: the moved edge (10 ms) then meets no token,
    /// and the sweep has to agree with the definition to the token.
    #[test]
    fn the_sweep_agrees_with_the_definition(
        spec in prop::collection::vec((0i64..40, 1i64..20, 4usize..30), 1..8), lanes in 1u32..4
    ) {
        let rows: Vec<RequestRecord> = spec.iter().map(|&(s, p, n)| {
            let mut r = row(40 * s + 20, 40 * (s + p), &vec![40; n]);
            r.sent_ns.as_mut().expect("set").0 += 1_000_000;
            r
        }).collect();
        let refs: Vec<&RequestRecord> = rows.iter().collect();
        let (tokens, seconds) = by_definition(&rows, lanes as usize);
        match decode_throughput(&refs, lanes) {
            Ok(got) => {
                prop_assert!((got.seconds - seconds).abs() < 1e-9, "{} s, by definition {seconds}", got.seconds);
                prop_assert!((got.tokens - tokens).abs() < 1e-6, "{} tokens, by definition {tokens}", got.tokens);
            }
            Err(_) => prop_assert!(seconds < 0.02),
        }
    }

    #[test]
    fn one_lane_gives_all_tokens_over_all_spans_whatever_the_gaps(
        spec in prop::collection::vec((1i64..200, prop::collection::vec(0u32..30, 24..40)), 1..6)
    ) {
        let mut at = 0;
        let mut rows = Vec::new();
        for (prefill, gaps) in &spec {
            let r = row(at, at + prefill, gaps);
            at = r.end_ns.expect("set").0 / 1_000_000 + 1;
            rows.push(r);
        }
        let seen: Vec<&RequestRecord> = rows.iter().filter(|r| decode_window_seen(r)).collect();
        let tokens: f64 = seen.iter().map(|r| r.gap_us.len() as f64).sum();
        let seconds: f64 = seen.iter().map(|r| r.gap_us.iter().map(|&g| f64::from(g) / 1e6).sum::<f64>()).sum();
        if let Ok(got) = decode_throughput(&seen, 1) {
            // A gap of 0 µs puts a token on the first instant itself, where no time has passed: it is left out.
            let on_the_edge: usize = seen.iter().map(|r| r.gap_us.iter().take_while(|&&g| g == 0).count()).sum();
            prop_assert!((got.seconds - seconds).abs() < 1e-9);
            prop_assert!((got.tokens - (tokens - on_the_edge as f64)).abs() < 1e-6);
        }
    }

    #[test]
    fn the_aggregate_never_holds_more_tokens_than_were_made_and_order_does_not_matter(
        spec in prop::collection::vec((0i64..500, 1i64..200, prop::collection::vec(1u32..30, 1..30)), 1..8), lanes in 1u32..4
    ) {
        let rows: Vec<RequestRecord> = spec.iter().map(|(s, p, g)| row(*s, s + p, g)).collect();
        let mut refs: Vec<&RequestRecord> = rows.iter().collect();
        let forward = decode_throughput(&refs, lanes);
        refs.reverse();
        prop_assert_eq!(forward.is_ok(), decode_throughput(&refs, lanes).is_ok());
        if let (Ok(f), Ok(b)) = (forward, decode_throughput(&refs, lanes)) {
            prop_assert!((f.tokens - b.tokens).abs() < 1e-6 && (f.seconds - b.seconds).abs() < 1e-9);
            let made: f64 = rows.iter().map(|r| r.gap_us.len() as f64).sum();
            prop_assert!(f.tokens <= made + 1e-6 && f.tokens >= 0.0 && f.seconds > 0.0);
        }
    }
}
