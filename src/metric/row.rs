//! One plain function a row metric. A row is what was seen; a number that was not seen is `None`, never 0.
//!
//! Failed rows have times too: callers choose the rows (`Outcome::Ok`, not warm-up) before they aggregate.
use crate::record::{FirstChunkSource, RequestRecord};
use crate::units::TimestampNs;

/// Label of a value whose first chunk could hold more than one token.
pub const FIRST_CHUNK_UNKNOWN: &str = "first chunk unknown";
/// Label of a prefill rate that had to be read from the time to first token.
pub const FROM_TTFT: &str = "from ttft, queue included";
/// The same where the target does not say either whether a cache answered part of the prompt.
pub const FROM_TTFT_CACHE_UNKNOWN: &str = "from ttft, queue included; cached tokens unknown";

/// Shortest span, in ms, that counts as a decode window.
pub const DECODE_WINDOW_MS: f64 = 20.0;
/// Fewest chunks that first and last may lie apart in a decode window.
pub const DECODE_WINDOW_CHUNKS: usize = 3;

/// A number with a label that has to be printed beside it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Labelled {
    /// The number.
    pub value: f64,
    /// How to read it, where it is not the plain definition.
    pub note: Option<&'static str>,
}

/// Tokens and the time they took.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Work {
    /// Tokens.
    pub tokens: f64,
    /// Milliseconds, above 0.
    pub ms: f64,
    /// How to read it, where it is not the plain definition.
    pub note: Option<&'static str>,
}

impl Work {
    /// Tokens a second.
    fn tok_s(self) -> Labelled {
        Labelled { value: self.tokens * 1e3 / self.ms, note: self.note }
    }
}

/// Milliseconds between two times; `None` when either is unknown or the second lies before the first, which no request can do.
fn ms_between(earlier: Option<TimestampNs>, later: Option<TimestampNs>) -> Option<f64> {
    let ns = later?.0.checked_sub(earlier?.0)?;
    (ns >= 0).then_some(ns as f64 / 1e6)
}

/// Time to first token in ms: `(first_token_ns − sent_ns) / 1e6`.
///
/// The first generated token of any kind: reasoning, content or tool call; never a role-only or empty delta. vLLM's bench stops at the
/// first chunk with `choices`, also an empty one.
pub fn ttft_ms(row: &RequestRecord) -> Option<f64> {
    ms_between(row.sent_ns, row.first_token_ns)
}

/// Time to the first token of the answer, after any reasoning, in ms: `(first_answer_ns − sent_ns) / 1e6`.
pub fn ttft_answer_ms(row: &RequestRecord) -> Option<f64> {
    ms_between(row.sent_ns, row.first_answer_ns)
}

/// Time to first token from the schedule in ms: `(first_token_ns − scheduled_ns) / 1e6`; our own lateness is inside.
pub fn ttft_from_schedule_ms(row: &RequestRecord) -> Option<f64> {
    ms_between(row.scheduled_ns, row.first_token_ns)
}

/// Time to the first token of the answer from the schedule in ms: `(first_answer_ns − scheduled_ns) / 1e6`.
pub fn ttft_answer_from_schedule_ms(row: &RequestRecord) -> Option<f64> {
    ms_between(row.scheduled_ns, row.first_answer_ns)
}

/// Time to first byte of the body in ms: `(first_byte_ns − sent_ns) / 1e6`; a role-only delta counts here and only here.
pub fn ttfb_ms(row: &RequestRecord) -> Option<f64> {
    ms_between(row.sent_ns, row.first_byte_ns)
}

/// End-to-end latency in ms: `(end_ns − sent_ns) / 1e6`.
pub fn e2e_latency_ms(row: &RequestRecord) -> Option<f64> {
    ms_between(row.sent_ns, row.end_ns)
}

/// End-to-end latency from the schedule in ms: `(end_ns − scheduled_ns) / 1e6`.
pub fn e2e_latency_from_schedule_ms(row: &RequestRecord) -> Option<f64> {
    ms_between(row.scheduled_ns, row.end_ns)
}

/// Our own lateness in ms: `(sent_ns − scheduled_ns) / 1e6`; below 0 for a request sent early.
pub fn lateness_ms(row: &RequestRecord) -> Option<f64> {
    Some(row.sent_ns?.0.checked_sub(row.scheduled_ns?.0)? as f64 / 1e6)
}

/// Whether two counts of the same tokens differ by more than 2 % and by more than 2 tokens (rule V4).
pub fn counts_disagree(a: u32, b: u32) -> bool {
    let difference = a.abs_diff(b);
    difference > 2 && f64::from(difference) > 0.02 * f64::from(a.max(b))
}

/// Generated tokens `n`: `usage_completion_tokens`, else `counted_completion_tokens`.
///
/// Usage that cannot be true is not used: 0 although a token came, or flagged `usage_mismatch` with a count that disagrees or without
/// any count to check it by.
pub fn completion_tokens(row: &RequestRecord) -> Option<u32> {
    let counted = row.counted_completion_tokens;
    let Some(usage) = row.usage_completion_tokens else { return counted };
    let token_seen = row.first_token_ns.is_some() || row.chunks.is_some_and(|c| c > 0);
    let impossible = if token_seen { usage == 0 } else { usage > 0 && row.chunks == Some(0) };
    let flagged = row.usage_mismatch == Some(true) && counted.is_none_or(|c| counts_disagree(usage, c));
    if impossible || flagged { counted } else { Some(usage) }
}

/// Prompt tokens: `usage_prompt_tokens`, else `counted_prompt_tokens`.
pub fn prompt_tokens(row: &RequestRecord) -> Option<u32> {
    row.usage_prompt_tokens.or(row.counted_prompt_tokens)
}

/// Prompt tokens answered from a cache: `usage_cached_tokens`, else `server_cache_n`.
pub fn cached_tokens(row: &RequestRecord) -> Option<u32> {
    row.usage_cached_tokens.or(row.server_cache_n)
}

/// Tokens after the first chunk and the time from first to last token: `n − n_first` over `(last_token_ns − first_token_ns) / 1e6`.
///
/// Where the tokens of the first chunk are unknown, `n_first` is 1 and the label says so. `None` when `n ≤ n_first`, when either is
/// unknown, or when no time passed.
pub fn decode_work(row: &RequestRecord) -> Option<Work> {
    let known =
        row.first_chunk_tokens.filter(|&n| n > 0 && row.first_chunk_tokens_source != Some(FirstChunkSource::None));
    let tokens = completion_tokens(row)?.checked_sub(known.unwrap_or(1)).filter(|&n| n > 0)?;
    let ms = ms_between(row.first_token_ns, row.last_token_ns).filter(|&ms| ms > 0.0)?;
    Some(Work { tokens: f64::from(tokens), ms, note: known.is_none().then_some(FIRST_CHUNK_UNKNOWN) })
}

/// Time per output token in ms, excluding the first chunk: `(last_token_ns − first_token_ns) / 1e6 / (n − n_first)`.
///
/// `n` = [`completion_tokens`]; `n_first` = `first_chunk_tokens`; where that is unknown, `n − 1` and the label "first chunk unknown".
/// `None` when `n ≤ n_first`. vLLM divides by `n − 1` and stops at the end of the stream; guidellm's TPOT includes TTFT.
pub fn tpot_ms(row: &RequestRecord) -> Option<Labelled> {
    decode_work(row).map(|w| Labelled { value: w.ms / w.tokens, note: w.note })
}

/// Whether a decode window was seen: first and last chunk at least 3 chunks and 20 ms apart.
///
/// A whole answer flushed in one packet shows no decode at all; its rate would be an artefact of the socket.
pub fn decode_window_seen(row: &RequestRecord) -> bool {
    row.gap_us.len() >= DECODE_WINDOW_CHUNKS
        && ms_between(row.first_token_ns, row.last_token_ns).is_some_and(|ms| ms >= DECODE_WINDOW_MS)
}

/// Decode rate of one request in tok/s, by the wall: `1000 / tpot_ms`; `None` unless [`decode_window_seen`].
pub fn decode_tok_s(row: &RequestRecord) -> Option<Labelled> {
    decode_work(row).filter(|_| decode_window_seen(row)).map(Work::tok_s)
}

/// Inter-chunk latencies in ms: `gap_us / 1e3`. A chunk is not a token.
pub fn icl_ms(row: &RequestRecord) -> impl Iterator<Item = f64> + '_ {
    row.gap_us.iter().map(|&gap| f64::from(gap) / 1e3)
}

/// Inter-token latencies in ms: the gaps of [`icl_ms`], only where every chunk carried one token (`n = gaps + 1`); else `None`.
pub fn itl_ms(row: &RequestRecord) -> Option<Vec<f64>> {
    let n = usize::try_from(completion_tokens(row)?).ok()?;
    (n >= 2 && n == row.gap_us.len() + 1).then(|| icl_ms(row).collect())
}

/// Prefill as the target times it: `server_prompt_n` tokens in `server_prompt_ms`. In-process this is the exact phase time.
pub fn prefill_work_of_server(row: &RequestRecord) -> Option<Work> {
    let tokens = row.server_prompt_n.filter(|&n| n > 0)?;
    let ms = row.server_prompt_ms.filter(|ms| *ms > 0.0 && ms.is_finite())?;
    Some(Work { tokens: f64::from(tokens), ms, note: None })
}

/// Prefill as it can be seen from outside: `prompt − cached` tokens in `ttft_ms`, labelled "from ttft, queue included".
///
/// A target that says nothing of its cache is taken as cold, and the label says that too.
pub fn prefill_work_from_ttft(row: &RequestRecord) -> Option<Work> {
    let cached = cached_tokens(row);
    let tokens = prompt_tokens(row)?.checked_sub(cached.unwrap_or(0)).filter(|&n| n > 0)?;
    let ms = ttft_ms(row).filter(|&ms| ms > 0.0)?;
    let note = if cached.is_some() { FROM_TTFT } else { FROM_TTFT_CACHE_UNKNOWN };
    Some(Work { tokens: f64::from(tokens), ms, note: Some(note) })
}

/// Prefill rate of one request in tok/s: `server_prompt_n / server_prompt_ms`, else `(prompt − cached) / ttft` with its label.
pub fn prefill_tok_s(row: &RequestRecord) -> Option<Labelled> {
    prefill_work_of_server(row).or_else(|| prefill_work_from_ttft(row)).map(Work::tok_s)
}

/// Decode as the target times it: `server_predicted_n − 1` tokens in `server_predicted_ms`.
///
/// NInfer counts n − 1 intervals and llama.cpp n tokens over the same span, a bias of 2.9 % at 35 tokens: both become n − 1 here.
pub fn server_decode_work(row: &RequestRecord) -> Option<Work> {
    let tokens = row.server_predicted_n?.checked_sub(1).filter(|&n| n > 0)?;
    let ms = row.server_predicted_ms.filter(|ms| *ms > 0.0 && ms.is_finite())?;
    Some(Work { tokens: f64::from(tokens), ms, note: None })
}

/// Decode rate as the target times it, normalised to n − 1, in tok/s: `(server_predicted_n − 1) · 1000 / server_predicted_ms`.
pub fn server_decode_tok_s(row: &RequestRecord) -> Option<f64> {
    server_decode_work(row).map(|w| w.tok_s().value)
}

/// Speculation counts summed over rows; ratios are ratios of sums, so that long answers weigh as they should.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Speculation {
    /// Rows that reported drafts.
    pub rows: usize,
    /// Σ drafted tokens.
    pub drafted: u64,
    /// Σ accepted tokens.
    pub accepted: u64,
    /// Σ verification rounds, where every such row reported them.
    pub rounds: Option<u64>,
}

impl Speculation {
    /// Share of drafted tokens that were accepted: `Σ accepted / Σ drafted`.
    pub fn acceptance(&self) -> Option<f64> {
        (self.drafted > 0).then(|| self.accepted as f64 / self.drafted as f64)
    }

    /// Tokens a round: `1 + Σ accepted / Σ rounds`.
    pub fn tokens_per_round(&self) -> Option<f64> {
        self.rounds.filter(|&r| r > 0).map(|r| 1.0 + self.accepted as f64 / r as f64)
    }
}

/// Speculation of `rows`, over those that report both drafted and accepted tokens; `None` when none does.
pub fn speculation<'a>(rows: impl IntoIterator<Item = &'a RequestRecord>) -> Option<Speculation> {
    let mut sum = Speculation { rounds: Some(0), ..Speculation::default() };
    for row in rows {
        let (Some(drafted), Some(accepted)) = (row.server_draft_n, row.server_draft_accepted) else { continue };
        sum.rows += 1;
        sum.drafted += u64::from(drafted);
        sum.accepted += u64::from(accepted);
        sum.rounds = sum.rounds.zip(row.server_rounds).map(|(a, b)| a + u64::from(b));
    }
    (sum.rows > 0).then_some(sum)
}

#[cfg(test)]
mod tests;
