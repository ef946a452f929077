//! Aggregate decode of one repeat: tokens emitted while every lane decodes, by a sweep over the times of its rows.
use super::row::{completion_tokens, decode_window_seen, decode_work};
use crate::record::{OutcomeGroup, RequestRecord};
use crate::statistics::median;

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

/// Why there is no rate, in the words a report prints.
pub type NoRate = &'static str;

/// No row was answered.
pub const NO_DATA: NoRate = "no data";
/// Some ok rows have no token count.
pub const TOKENS_UNKNOWN: NoRate = "completion tokens unknown";
/// Chunks came in one flush, or within 20 ms.
pub const NO_DECODE_WINDOW: NoRate = "no decode window seen: fewer than 3 chunks or 20 ms apart";
/// Lanes never overlapped in decode.
pub const LANES_NEVER_FULL: NoRate = "the lanes never all decoded together for 20 ms";

/// Shortest time, in seconds, that a rate is read from.
const LEAST_WINDOW_S: f64 = 0.02;

/// The decode of one request: instants in ns, and tokens after the first chunk.
struct Decode<'a> {
    first: i64,
    last: i64,
    gap_us: &'a [u32],
    tokens_per_chunk: f64,
}

impl Decode<'_> {
    /// When each chunk after the first arrived: `first + Σ gap`, never past the last token (gaps are whole microseconds).
    fn instants(&self) -> impl Iterator<Item = i64> + '_ {
        self.gap_us.iter().scan(self.first, |at, &gap| {
            *at = at.saturating_add(i64::from(gap) * 1000);
            Some((*at).min(self.last))
        })
    }
}

fn decode_of(row: &RequestRecord) -> Option<Decode<'_>> {
    let work = decode_work(row).filter(|_| row.outcome.group() == OutcomeGroup::Ok && decode_window_seen(row))?;
    let (sent, first, last) = (row.sent_ns?.0, row.first_token_ns?.0, row.last_token_ns?.0);
    let tokens_per_chunk = work.tokens / row.gap_us.len() as f64;
    (sent <= first).then_some(Decode { first, last, gap_us: &row.gap_us, tokens_per_chunk })
}

/// Aggregate decode: tokens emitted while all `lanes` decode and none prefills, and that time.
///
/// A request prefills in `[sent_ns, first_token_ns)` and decodes in `[first_token_ns, last_token_ns]`. Chunk `i` stands at
/// `first_token_ns + Σ gap_us[..i]`; every chunk after the first carries `(n − n_first) / (chunks − 1)` tokens. A sweep over the starts
/// and ends gives the windows `(a, b]` in which at least `lanes` requests decode and none prefills.
///
/// All sequences of one step get their token at the same moment, but their stamps lie some microseconds apart. A window closes at the
/// stamp of the lane that ends first, so a strict count would lose the tokens of that very step for every other lane (2.3 % with four
/// lanes and 32 steps a window). Hence a token counts in `(a + e, b + e]` with `e` a quarter of the median gap: the same length of time,
/// moved off the edge of a step. With one lane the result is `Σ (n − n_first) / Σ (last − first)` exactly.
///
/// `rows` are the measured rows of one (arm, cell, repeat), whose times share one clock. A request that failed, or whose decode window
/// was not seen ([`decode_window_seen`]), decodes in no lane. `Err` is the reason why there is no rate.
pub fn decode_throughput(rows: &[&RequestRecord], lanes: u32) -> Result<Throughput, NoRate> {
    let decodes: Vec<Decode<'_>> = rows.iter().filter_map(|row| decode_of(row)).collect();
    if decodes.is_empty() {
        let ok: Vec<_> = rows.iter().filter(|row| row.outcome.group() == OutcomeGroup::Ok).collect();
        return Err(if ok.is_empty() {
            NO_DATA
        } else if ok.iter().any(|row| completion_tokens(row).is_none()) {
            TOKENS_UNKNOWN
        } else {
            NO_DECODE_WINDOW
        });
    }
    let windows = steady_windows(rows, &decodes, lanes);
    let seconds: f64 = windows.iter().map(|&(a, b)| (b - a) as f64 / 1e9).sum();
    if seconds < LEAST_WINDOW_S {
        return Err(LANES_NEVER_FULL);
    }
    let gaps: Vec<f64> = decodes.iter().flat_map(|d| d.gap_us).map(|&gap| f64::from(gap)).collect();
    let edge = (median(&gaps).unwrap_or(0.0) * 1000.0 / 4.0) as i64;
    let tokens = decodes.iter().map(|decode| tokens_inside(decode, &windows, edge)).sum();
    Ok(Throughput { tokens, seconds })
}

/// Tokens of one request inside `windows`, counted in `(a + edge, b + edge]`. A request whose own decode opens a window has no earlier
/// step to keep out: all its tokens after the first chunk count from `a` on.
fn tokens_inside(decode: &Decode<'_>, windows: &[(i64, i64)], edge: i64) -> f64 {
    let mut next = windows.partition_point(|&(_, b)| b <= decode.first);
    let mut chunks = 0u64;
    for at in decode.instants() {
        while windows.get(next).is_some_and(|&(_, b)| b.saturating_add(edge) < at) {
            next += 1;
        }
        let Some(&(a, _)) = windows.get(next) else { break };
        let opens = if a == decode.first { a } else { a.saturating_add(edge) };
        chunks += u64::from(at > opens);
    }
    chunks as f64 * decode.tokens_per_chunk
}

/// Times, in order and apart, in which at least `lanes` requests decode and none prefills.
fn steady_windows(rows: &[&RequestRecord], decodes: &[Decode<'_>], lanes: u32) -> Vec<(i64, i64)> {
    // (time, change of prefilling, change of decoding)
    let mut events: Vec<(i64, i64, i64)> = Vec::with_capacity(2 * (rows.len() + decodes.len()));
    for row in rows {
        let Some(sent) = row.sent_ns else { continue };
        // A request that never gave a token held its prefill until it ended.
        let end = row.first_token_ns.or(row.end_ns).map_or(sent.0, |end| end.0.max(sent.0));
        events.extend([(sent.0, 1, 0), (end, -1, 0)]);
    }
    for decode in decodes {
        events.extend([(decode.first, 0, 1), (decode.last, 0, -1)]);
    }
    events.sort_unstable_by_key(|event| event.0);
    let (mut prefilling, mut decoding) = (0, 0);
    let mut since = None;
    let mut windows: Vec<(i64, i64)> = Vec::new();
    for moment in events.chunk_by(|x, y| x.0 == y.0) {
        let at = moment[0].0;
        // Every change closes the window, also where the next one opens at once: a window then lies inside each request's decode.
        if let Some(start) = since.take() {
            windows.push((start, at));
        }
        for &(_, prefill, decode) in moment {
            prefilling += prefill;
            decoding += decode;
        }
        if lanes > 0 && prefilling == 0 && decoding >= i64::from(lanes) {
            since = Some(at);
        }
    }
    windows
}

#[cfg(test)]
mod tests;
