use super::*;
use crate::metric::samples::row;

fn ns(ms: f64) -> Option<TimestampNs> {
    Some(TimestampNs((ms * 1e6) as i64))
}

/// A row of which nothing is known but its key.
fn blank() -> RequestRecord {
    let mut r = row(0, 0, &[]);
    (r.scheduled_ns, r.sent_ns, r.first_token_ns, r.last_token_ns, r.end_ns) = (None, None, None, None, None);
    (r.usage_completion_tokens, r.first_chunk_tokens) = (None, None);
    r
}

#[test]
fn null_in_is_null_out_for_every_metric() {
    let r = blank();
    let plain: [fn(&RequestRecord) -> Option<f64>; 9] = [
        ttft_ms,
        ttft_answer_ms,
        ttft_from_schedule_ms,
        ttft_answer_from_schedule_ms,
        ttfb_ms,
        e2e_latency_ms,
        e2e_latency_from_schedule_ms,
        lateness_ms,
        server_decode_tok_s,
    ];
    assert!(plain.iter().all(|metric| metric(&r).is_none()));
    assert_eq!((tpot_ms(&r), decode_tok_s(&r), prefill_tok_s(&r)), (None, None, None));
    assert_eq!((itl_ms(&r), icl_ms(&r).count()), (None, 0));
    assert_eq!((completion_tokens(&r), prompt_tokens(&r), cached_tokens(&r)), (None, None, None));
    assert_eq!(speculation([&r]), None);
}

#[test]
fn times_are_differences_in_ms() {
    let mut r = row(12, 52, &[20; 3]);
    (r.scheduled_ns, r.first_byte_ns, r.first_answer_ns, r.end_ns) = (ns(10.0), ns(13.5), ns(72.0), ns(112.4));
    assert_eq!(ttft_ms(&r), Some(40.0));
    assert_eq!(ttft_answer_ms(&r), Some(60.0));
    assert_eq!(ttft_from_schedule_ms(&r), Some(42.0));
    assert_eq!(ttft_answer_from_schedule_ms(&r), Some(62.0));
    assert_eq!(ttfb_ms(&r), Some(1.5));
    assert_eq!(e2e_latency_ms(&r), Some(100.4));
    assert_eq!(e2e_latency_from_schedule_ms(&r), Some(102.4));
    assert_eq!(lateness_ms(&r), Some(2.0));
    assert_eq!(icl_ms(&r).collect::<Vec<f64>>(), [20.0; 3]);
}

#[test]
fn a_first_token_before_the_request_is_no_negative_time() {
    let mut r = row(100, 50, &[10; 4]);
    assert_eq!(ttft_ms(&r), None);
    (r.sent_ns, r.first_token_ns) = (Some(TimestampNs(i64::MIN)), Some(TimestampNs(i64::MAX)));
    assert_eq!(ttft_ms(&r), None);
}

#[test]
fn tpot_leaves_out_the_tokens_of_the_first_chunk() {
    // 13 tokens, 4 of them in the first chunk, 90 ms: 90 / 9.
    let mut r = row(0, 100, &[30; 3]);
    (r.first_chunk_tokens, r.usage_completion_tokens) = (Some(4), Some(13));
    assert_eq!(tpot_ms(&r), Some(Labelled { value: 10.0, note: None }));
    assert_eq!(decode_tok_s(&r), Some(Labelled { value: 100.0, note: None }));
}

#[test]
fn tpot_with_an_unknown_first_chunk_divides_by_n_minus_1_and_says_so() {
    let mut r = row(0, 100, &[30; 3]);
    r.usage_completion_tokens = Some(10);
    for (tokens, source) in [(None, None), (Some(4), Some(FirstChunkSource::None)), (Some(0), None)] {
        (r.first_chunk_tokens, r.first_chunk_tokens_source) = (tokens, source);
        assert_eq!(tpot_ms(&r), Some(Labelled { value: 10.0, note: Some(FIRST_CHUNK_UNKNOWN) }));
    }
}

#[test]
fn tpot_is_absent_when_the_first_chunk_holds_every_token() {
    assert_eq!(tpot_ms(&row(0, 100, &[])), None);
    let mut r = row(0, 100, &[30]);
    (r.first_chunk_tokens, r.usage_completion_tokens) = (Some(4), Some(4));
    assert_eq!(tpot_ms(&r), None);
    r.usage_completion_tokens = Some(3);
    assert_eq!(tpot_ms(&r), None);
}

#[test]
fn a_flush_after_a_long_silence_has_no_decode_rate() {
    // B25: two seconds of silence, then six deltas in one packet.
    let mut r = row(0, 2000, &[0; 5]);
    r.last_token_ns = ns(2000.4);
    assert_eq!(decode_tok_s(&r), None);
    // Enough time and too few chunks; enough chunks and too little time; just enough of both.
    assert!(!decode_window_seen(&row(0, 100, &[30, 30])));
    assert!(!decode_window_seen(&row(0, 100, &[5, 5, 5])));
    assert!(decode_window_seen(&row(0, 100, &[5, 5, 10])));
}

#[test]
fn usage_that_cannot_be_true_gives_way_to_the_count() {
    let with = |usage: Option<u32>, counted: Option<u32>, mismatch: Option<bool>| {
        let mut r = row(0, 100, &[10; 3]);
        (r.usage_completion_tokens, r.counted_completion_tokens, r.usage_mismatch) = (usage, counted, mismatch);
        completion_tokens(&r)
    };
    // B21: usage wins where both are there, and where it is absent the count stands.
    assert_eq!(with(Some(3), Some(4), None), Some(3));
    assert_eq!(with(None, Some(4), None), Some(4));
    // B23: 0 although text came; a flagged number without a count; a flagged one that the count contradicts or supports.
    assert_eq!(with(Some(0), Some(4), Some(true)), Some(4));
    assert_eq!(with(Some(0), None, None), None);
    assert_eq!(with(Some(64), None, Some(true)), None);
    assert_eq!(with(Some(64), Some(4), Some(true)), Some(4));
    assert_eq!(with(Some(5), Some(4), Some(true)), Some(5));
    // B23 the other way: tokens claimed and none seen.
    let mut r = blank();
    (r.chunks, r.usage_completion_tokens) = (Some(0), Some(64));
    assert_eq!(completion_tokens(&r), None);
}

#[test]
fn counts_disagree_beyond_two_per_cent_and_two_tokens() {
    assert!(!counts_disagree(10, 12), "20 %, and only two tokens");
    assert!(counts_disagree(10, 13));
    assert!(!counts_disagree(1000, 1020), "20 tokens, and not above 2 % of the larger");
    assert!(counts_disagree(1000, 1021));
}

#[test]
fn prefill_is_the_servers_own_phase_where_it_tells_it() {
    let mut r = row(0, 500, &[]);
    (r.usage_prompt_tokens, r.usage_cached_tokens) = (Some(512), Some(12));
    assert_eq!(prefill_tok_s(&r), Some(Labelled { value: 1000.0, note: Some(FROM_TTFT) }));
    r.usage_cached_tokens = None;
    assert_eq!(prefill_tok_s(&r), Some(Labelled { value: 1024.0, note: Some(FROM_TTFT_CACHE_UNKNOWN) }));
    (r.server_prompt_n, r.server_prompt_ms) = (Some(500), Some(250.0));
    assert_eq!(prefill_tok_s(&r), Some(Labelled { value: 2000.0, note: None }));
    // A phase of no time or no tokens is no phase.
    r.server_prompt_ms = Some(0.0);
    assert_eq!(prefill_tok_s(&r).and_then(|l| l.note), Some(FROM_TTFT_CACHE_UNKNOWN));
    (r.usage_prompt_tokens, r.usage_cached_tokens) = (Some(512), Some(512));
    assert_eq!(prefill_tok_s(&r), None);
}

#[test]
fn server_rates_are_normalised_to_n_minus_1() {
    // NInfer's sample: 129 tokens in 1140 ms are 112.28 tok/s; llama.cpp's: 35 tokens in 661.064 ms, which it prints as 52.945.
    let mut r = blank();
    (r.server_predicted_n, r.server_predicted_ms) = (Some(129), Some(1140.0));
    assert!((server_decode_tok_s(&r).expect("rate") - 112.28).abs() < 0.005);
    (r.server_predicted_n, r.server_predicted_ms) = (Some(35), Some(661.064));
    assert!((server_decode_tok_s(&r).expect("rate") - 52.945 * 34.0 / 35.0).abs() < 0.001);
    r.server_predicted_n = Some(1);
    assert_eq!(server_decode_tok_s(&r), None);
    (r.server_predicted_n, r.server_predicted_ms) = (Some(35), Some(f64::NAN));
    assert_eq!(server_decode_tok_s(&r), None);
}

#[test]
fn acceptance_is_a_ratio_of_sums() {
    let draft = |drafted, accepted, rounds| {
        let mut r = blank();
        (r.server_draft_n, r.server_draft_accepted, r.server_rounds) = (drafted, accepted, rounds);
        r
    };
    let rows = [draft(Some(10), Some(9), Some(5)), draft(Some(90), Some(31), Some(45)), draft(None, None, None)];
    let s = speculation(&rows).expect("drafts");
    assert_eq!((s.rows, s.drafted, s.accepted, s.rounds), (2, 100, 40, Some(50)));
    assert_eq!((s.acceptance(), s.tokens_per_round()), (Some(0.4), Some(1.8)));
    // One row without rounds leaves their sum unknown; no draft at all leaves no ratio.
    let rows = [draft(Some(10), Some(9), Some(5)), draft(Some(90), Some(31), None)];
    assert_eq!(speculation(&rows).and_then(|s| s.tokens_per_round()), None);
    assert_eq!(speculation(&[draft(Some(0), Some(0), Some(3))]).and_then(|s| s.acceptance()), None);
}

#[test]
fn a_gap_is_a_tokens_only_where_each_chunk_held_one() {
    let mut r = row(0, 100, &[10, 12]);
    assert_eq!(itl_ms(&r), Some(vec![10.0, 12.0]));
    r.usage_completion_tokens = Some(9);
    assert_eq!(itl_ms(&r), None);
}
