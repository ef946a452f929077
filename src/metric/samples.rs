//! Rows with stated times, for the unit tests of this folder.
use crate::record::{Outcome, RequestRecord};
use crate::request::{Prompt, Request, RequestKey, Sampling};
use crate::units::TimestampNs;

/// An ok row, sent and first token at the stated ms, then one token a gap (ms); one token in the first chunk, usage known.
pub fn row(sent_ms: i64, first_ms: i64, gaps_ms: &[u32]) -> RequestRecord {
    let request = Request {
        key: RequestKey { arm: "a".into(), cell: "decode_scaling/c1".into(), repeat: 0, index: 0, warmup: false },
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
    (row.scheduled_ns, row.sent_ns, row.first_token_ns) = (at(sent_ms), at(sent_ms), at(first_ms));
    (row.last_token_ns, row.end_ns) = (at(last), at(last));
    row.gap_us = gaps_ms.iter().map(|g| g * 1000).collect();
    row.first_chunk_tokens = Some(1);
    row.usage_completion_tokens = Some(u32::try_from(gaps_ms.len()).expect("few gaps") + 1);
    row
}
