//! Rows, plans and logs that the tests of log and tables share.
use std::collections::BTreeMap;
use std::path::PathBuf;

use inferlab::record::{
    Entry, Finish, FirstChunkSource, Header, LogError, LogReader, Open, Outcome, PlannedRun, RequestRecord,
    ResponseText, Torn,
};
use inferlab::request::{Prompt, Request, RequestKey, Sampling};
use inferlab::units::{Clock, TimestampNs};
use serde_json::json;

/// The given cases and contracts, or `None` with a printed reason.
pub fn shared(path: &str) -> Option<PathBuf> {
    let root = std::env::var_os("INFERLAB_SHARED")
        .map_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared")), PathBuf::from);
    let path = root.join(path);
    if path.exists() {
        return Some(path);
    }
    eprintln!("skipped: {} is not here", path.display());
    None
}

/// A folder in memory where the system has one: tests that sync thousands of times would else wait for the disk. What a `kill -9` or a
/// simulated fault leaves behind is the same.
pub fn memory_directory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a temporary folder")
}

pub fn parts() -> BTreeMap<String, String> {
    BTreeMap::from([("seed".into(), "7".into()), ("arm.base.model_md5".into(), "0123".into())])
}

pub fn plan() -> PlannedRun {
    serde_json::from_value(json!({"name": "small", "question": "does the log hold?", "text": "keep"})).expect("a plan")
}

pub fn header() -> Header {
    Header::new("3f9a1c", &parts(), "k7q2", plan())
}

pub fn open() -> Open {
    Open::now(&Clock::start(), json!({"host": {"cpu": "example"}}))
}

/// A row whose every number follows from its key, so that a changed row is seen.
pub fn row(arm: &str, repeat: u32, index: u32, attempt: u32, warmup: bool) -> RequestRecord {
    let request = Request {
        key: RequestKey { arm: arm.into(), cell: "decode_scaling/c1".into(), repeat, index, warmup },
        prompt: Prompt::TokenIds(vec![1]),
        prompt_tokens_planned: Some(512),
        sampling: Sampling::default(),
        max_tokens: 64,
        ignore_eos: true,
        seed: repeat * 1000 + index,
    };
    let start = i64::from(index) * 1_000_000 + i64::from(attempt);
    RequestRecord {
        scheduled_ns: Some(TimestampNs(start)),
        sent_ns: Some(TimestampNs(start + 12_000)),
        first_token_ns: Some(TimestampNs(start + 52_000_000)),
        end_ns: Some(TimestampNs(start + 1_312_400_000)),
        gap_us: vec![20_000 + index, 20_001, 19_999],
        first_chunk_tokens: Some(1),
        first_chunk_tokens_source: Some(FirstChunkSource::Usage),
        usage_prompt_tokens: Some(512),
        usage_completion_tokens: Some(64),
        server_prompt_ms: Some(40.1 + f64::from(index)),
        finish: Some(Finish::Length),
        outcome: Outcome::Ok,
        ..RequestRecord::planned(&request, attempt)
    }
}

pub fn text(record: &RequestRecord) -> ResponseText {
    let content = format!("世界 {} {} {}\n\u{0}\u{202e}", record.repeat, record.index, record.attempt);
    ResponseText { content, ..ResponseText::default() }
}

/// Whole entries of a log in memory, and how it ended.
pub fn entries(bytes: &[u8]) -> (Vec<Entry>, Result<Option<Torn>, LogError>) {
    let mut reader = LogReader::new(bytes, "log.jsonl".as_ref());
    let mut entries = Vec::new();
    loop {
        match reader.next_entry() {
            Ok(Some(entry)) => entries.push(entry),
            Ok(None) => return (entries, Ok(reader.torn())),
            Err(error) => return (entries, Err(error)),
        }
    }
}

/// Small numbers from a seed (SplitMix64), so that a failure can be repeated.
pub struct Draw(pub u64);

impl Draw {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    /// Uniform on a logarithmic scale.
    pub fn log_uniform(&mut self, low: f64, high: f64) -> f64 {
        let unit = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        low * (high / low).powf(unit)
    }
}
