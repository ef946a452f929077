//! R4: every cut and every flipped bit of a small log; and a fuzzed reader.
use std::fs;
use std::path::Path;

use inferlab::record::{Entry, RunLog, read_run, verify_run};
use inferlab::units::TimestampNs;
use serde_json::json;

use crate::log_rows::{Draw, entries, header, memory_directory, open, parts, row};

/// A log of about `bytes` bytes with lines of every kind.
fn log_of(bytes: usize) -> Vec<u8> {
    let dir = memory_directory();
    let log = RunLog::create(dir.path(), &header(), open()).expect("a log");
    log.event(TimestampNs(1), "launch", json!({"arm": "世界"}));
    log.hardware(&json!({"t_ns": 2, "rss": 1.5e9}));
    let rows = bytes.saturating_sub(1200) / 1900;
    (0..rows.max(1)).for_each(|index| log.row(row("base", 0, index as u32, 0, false), None));
    log.close("done").expect("closes");
    fs::read(dir.path().join("log.jsonl")).expect("log")
}

fn write(dir: &Path, bytes: &[u8]) {
    fs::write(dir.join("log.jsonl"), bytes).expect("written");
}

#[test]
fn every_prefix_opens_and_gives_exactly_the_whole_records() {
    let log = log_of(12_000);
    let (all, end) = entries(&log);
    assert_eq!(end.expect("whole"), None);
    let ends: Vec<usize> = log.iter().enumerate().filter(|(_, b)| **b == b'\n').map(|(at, _)| at).collect();
    assert_eq!(all.len(), ends.len());
    for cut in 0..=log.len() {
        let (read, end) = entries(&log[..cut]);
        // A line is whole when all of it but its line feed is there.
        let whole = ends.iter().filter(|end| **end <= cut).count();
        assert_eq!(read, all[..whole], "cut at {cut}");
        let torn = end.expect("a cut log opens").map(|torn| (torn.offset, torn.bytes));
        let rest = whole.checked_sub(1).map_or(0, |last| ends[last] + 1);
        assert_eq!(torn, (cut > rest).then(|| (rest as u64, (cut - rest) as u64)), "cut at {cut}");
    }
}

#[test]
fn every_flipped_bit_is_seen() {
    let log = log_of(4096);
    let (all, _) = entries(&log);
    let mut bad = log.clone();
    for bit in 0..log.len() * 8 {
        bad[bit / 8] ^= 1 << (bit % 8);
        let (read, end) = entries(&bad);
        // In the last line feed a flip looks like a cut and is reported as one; anywhere else it is corruption.
        let last = bit / 8 == log.len() - 1;
        match end {
            Err(_) => assert!(!last, "bit {bit}"),
            Ok(torn) => assert!(last && torn.is_some(), "bit {bit} of byte {} was not seen", bit / 8),
        }
        assert_eq!(read, all[..read.len()], "bit {bit}: rows read before it are unchanged");
        bad[bit / 8] ^= 1 << (bit % 8);
    }
}

#[test]
fn a_run_cut_anywhere_resumes_and_loses_only_the_cut_line() {
    let log = log_of(6_000);
    let (all, _) = entries(&log);
    let first = log.iter().position(|b| *b == b'\n').expect("a header");
    let last = log[..log.len() - 1].iter().rposition(|b| *b == b'\n').expect("an end line");
    let mut draw = Draw(83);
    for _ in 0..40 {
        let dir = memory_directory();
        let cut = first + draw.below(last + 1 - first);
        write(dir.path(), &log[..cut]);
        let (before, end) = entries(&log[..cut]);
        let (resumed, run) = RunLog::resume(dir.path(), "3f9a1c", &parts(), open()).expect("resumes");
        let rows = before.iter().filter(|entry| matches!(entry, Entry::Request(_))).count();
        assert_eq!(run.rows.len(), rows, "cut at {cut}");
        resumed.row(row("base", 1, 0, 0, false), None);
        resumed.close("interrupted").expect("closes");
        let after = fs::read(dir.path().join("log.jsonl")).expect("log");
        let (read, _) = entries(&after);
        assert_eq!(read[..before.len()], all[..before.len()], "cut at {cut}");
        assert_eq!(read_run(dir.path()).expect("reads").rows.len(), rows + 1);
        let torn = end.expect("opens").map(|torn| torn.offset as usize);
        let aside = fs::read(dir.path().join("log.torn")).ok();
        assert_eq!(aside, torn.map(|at| [&log[at..cut], b"\n"].concat()), "cut at {cut}");
        assert_eq!(verify_run(dir.path()).expect("verifies").torn_bytes, 0);
    }
}

#[test]
fn twenty_thousand_mutated_logs_neither_panic_nor_show_a_changed_row() {
    let log = log_of(5_000);
    let (all, _) = entries(&log);
    let mut draw = Draw(20_000);
    for n in 0..20_000 {
        let mut bad = log.clone();
        for _ in 0..=draw.below(3) {
            let (at, to) = (draw.below(bad.len()), draw.below(bad.len()));
            let (at, to) = (at.min(to), at.max(to));
            match draw.below(6) {
                0 => bad[at] = draw.next() as u8,
                1 => bad.truncate(to),
                2 => drop(bad.drain(at..to)),
                3 => {
                    let piece = bad[at..to].to_vec();
                    bad.extend(piece);
                }
                4 => bad.insert(at, b"\n{}\"\\\xff\0"[draw.below(7)]),
                _ => bad[at..to].fill(0),
            }
            if bad.is_empty() {
                bad.push(b'\n');
            }
        }
        let (read, end) = entries(&bad);
        let kept = read.len().min(all.len());
        assert_eq!(read[..kept], all[..kept], "mutation {n}");
        // More lines than were written cannot be right: they would be numbered twice.
        assert!(read.len() <= all.len(), "mutation {n}");
        if bad.len() > log.len() {
            assert!(!matches!(end, Ok(None)), "mutation {n} added bytes unseen");
        }
    }
}
