//! The log against its contract: the sample that others wrote, the lock, the segments, what a resume does and refuses.
use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};

use inferlab::record::{
    Disk, DiskFile, Fault, LogError, LogOptions, LoggedRun, OsDisk, Outcome, RowCounts, RunLog, StorageError,
    TextReader, read_run, verify_run,
};
use inferlab::units::TimestampNs;
use serde_json::json;

use crate::log_rows::{Draw, entries, header, open, parts, row, shared, text};

const SAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/contracts/log.sample.jsonl");

fn run_directory() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

fn resume(dir: &Path) -> (RunLog, LoggedRun) {
    RunLog::resume(dir, "3f9a1c", &parts(), open()).expect("the run resumes")
}

#[test]
fn the_sample_of_the_contract_reads_with_every_crc_right() {
    let dir = run_directory();
    fs::copy(SAMPLE, dir.path().join("log.jsonl")).expect("copied");
    let run = read_run(dir.path()).expect("the sample reads");
    assert_eq!((run.header.identity.as_str(), run.header.nonce.as_str(), run.header.schema), ("3f9a1c", "k7q2", 1));
    assert_eq!(run.header.plan.name, "sample");
    assert_eq!(run.segments.len(), 1);
    assert_eq!(run.segments[0].open.utc, "2026-11-30T21:45:00Z");
    assert_eq!(run.segments[0].open.provenance, json!({"cpu": "2 x example"}));
    assert_eq!(run.segments[0].close.as_deref(), Some("done"));
    // `text_note` is a member that no version knows; the row reads all the same.
    let record = &run.rows[0].record;
    assert_eq!((record.gap_us.as_slice(), record.usage_cached_tokens), ([20_000; 3].as_slice(), None));
    assert_eq!(record.end_ns, Some(TimestampNs(1_312_400_000)));
    assert_eq!(run.events[0].fields["message"], "host load 1.9");
    assert_eq!(run.end, Some(RowCounts { ok: 1, ..RowCounts::default() }));
    assert!(!run.torn);
    let report = verify_run(dir.path()).expect("it verifies");
    assert!(report.is_sound() && report.crc_ok && report.seq_ok && report.ended, "{report:?}");
    assert_eq!((report.lines, report.rows), (6, 1));
}

#[test]
fn the_copy_of_the_sample_is_the_one_of_the_contract() {
    let Some(path) = shared("contracts/log.sample.jsonl") else { return };
    assert_eq!(fs::read(path).expect("contract"), fs::read(SAMPLE).expect("copy"));
}

#[test]
fn what_is_written_reads_back_with_text_events_and_samples() {
    let dir = run_directory();
    let log = RunLog::create(dir.path(), &header(), open()).expect("a log");
    log.event(TimestampNs(5), "warning", json!({"message": "m\u{7}", "seq": 99, "crc": "x", "what": "w"}));
    log.hardware(&json!({"t_ns": 6, "gpu": [{"power_w": 450.5}]}));
    let rows: Vec<_> = (0..3).map(|index| row("base", 0, index, 0, index == 0)).collect();
    rows.iter().for_each(|r| log.row(r.clone(), Some(text(r))));
    let closed = log.close("done").expect("closes");
    assert!(closed.ended && closed.health.is_sound());
    assert_eq!(closed.rows, RowCounts { ok: 2, ..RowCounts::default() });
    let run = read_run(dir.path()).expect("reads");
    assert_eq!(run.header, header());
    assert_eq!(run.rows.iter().map(|r| r.record.clone()).collect::<Vec<_>>(), rows);
    assert_eq!(run.end, Some(closed.rows));
    assert_eq!(run.row_counts(), closed.rows);
    let event = &run.events[0];
    assert_eq!((event.t_ns, event.what.as_str()), (TimestampNs(5), "warning"));
    // Members that every line has keep their meaning; a field of that name stands beside them.
    assert_eq!(json!(event.fields), json!({"message": "m\u{7}", "seq_": 99, "crc_": "x", "what_": "w"}));
    assert_eq!((run.hardware[0].t_ns, &run.hardware[0].fields["gpu"][0]["power_w"]), (TimestampNs(6), &json!(450.5)));
    let mut texts = TextReader::open(dir.path()).expect("opens").expect("texts were kept");
    for record in &rows {
        let logged = texts.next_text().expect("reads").expect("one more");
        assert_eq!((logged.key, logged.attempt, logged.text), (record.key(), 0, text(record)));
    }
    assert_eq!(texts.next_text().expect("reads"), None);
    let report = verify_run(dir.path()).expect("verifies");
    assert!(report.is_sound(), "{report:?}");
    assert_eq!((report.lines, report.rows, report.texts, report.texts_matched), (9, 3, 3, 3));
    // The plan stands beside it for people.
    let plan: serde_json::Value =
        serde_json::from_slice(&fs::read(dir.path().join("plan.json")).expect("plan")).expect("JSON");
    assert_eq!(plan["name"], "small");
}

#[test]
fn a_second_writer_is_refused_and_a_finished_run_is_not_resumed() {
    let dir = run_directory();
    let log = RunLog::create(dir.path(), &header(), open()).expect("a log");
    let refused = RunLog::resume(dir.path(), "3f9a1c", &parts(), open()).expect_err("in use");
    assert!(matches!(refused, LogError::Storage(StorageError::Locked { .. })), "{refused}");
    assert!(refused.to_string().contains(&format!("pid {}", std::process::id())), "{refused}");
    let refused = RunLog::create(dir.path(), &header(), open()).expect_err("in use");
    assert!(matches!(refused, StorageError::Locked { .. }), "{refused}");
    // A reader needs no lock.
    assert_eq!(read_run(dir.path()).expect("reads").rows.len(), 0);
    log.close("done").expect("closes");
    assert!(matches!(RunLog::create(dir.path(), &header(), open()), Err(StorageError::Exists { .. })));
    assert!(matches!(RunLog::resume(dir.path(), "3f9a1c", &parts(), open()), Err(LogError::Ended { .. })));
    let elsewhere = RunLog::resume(&dir.path().join("nowhere"), "3f9a1c", &parts(), open());
    assert!(matches!(elsewhere, Err(LogError::NotARun { .. })));
}

#[test]
fn a_resume_of_another_experiment_names_the_keys_that_differ() {
    let dir = run_directory();
    RunLog::create(dir.path(), &header(), open()).expect("a log").close("interrupted").expect("closes");
    let before = fs::read(dir.path().join("log.jsonl")).expect("log");
    let mut other = parts();
    other.insert("seed".into(), "8".into());
    other.insert("arm.base.kv_dtype".into(), "bf16".into());
    let refused = RunLog::resume(dir.path(), "aaaaaa", &other, open()).expect_err("another identity");
    let message = refused.to_string();
    for part in ["3f9a1c", "aaaaaa", "seed was `7` and is `8`", "arm.base.kv_dtype was absent and is `bf16`"] {
        assert!(message.contains(part), "{message}");
    }
    assert!(!message.contains("model_md5"), "{message}");
    assert_eq!(fs::read(dir.path().join("log.jsonl")).expect("log"), before);
}

#[test]
fn an_interrupted_repeat_is_run_again_whole_and_each_key_is_live_once() {
    let dir = run_directory();
    let cell = "decode_scaling/c1";
    let log = RunLog::create(dir.path(), &header(), open()).expect("a log");
    for index in 0..3 {
        log.row(row("base", 0, index, 0, false), None);
    }
    for index in 0..2 {
        log.row(row("base", 1, index, 0, false), None);
    }
    drop(log); // as a crash: no close line
    let (log, run) = resume(dir.path());
    assert_eq!(log.segment(), 1);
    assert_eq!(run.segments[0].close, None);
    assert!(run.complete("base", cell, 0, 3, 0));
    assert!(!run.complete("base", cell, 0, 3, 1), "its warm-up is missing");
    assert!(!run.complete("base", cell, 1, 3, 0) && !run.complete("other", cell, 0, 3, 0));
    assert_eq!(run.next_attempt("base", cell, 1), 1);
    assert_eq!(run.next_attempt("other", cell, 1), 0);
    // The rerun is cut in turn: of the three attempts only the highest counts, even while it is short.
    log.row(row("base", 1, 0, 1, false), None);
    log.close("interrupted").expect("closes");
    let (log, run) = resume(dir.path());
    assert_eq!(run.live_rows().len(), 4);
    assert_eq!(run.superseded(), 2);
    assert_eq!(run.next_attempt("base", cell, 1), 2);
    for index in 0..3 {
        log.row(row("base", 1, index, 2, false), None);
    }
    let closed = log.close("done").expect("closes");
    assert_eq!(closed.rows, RowCounts { ok: 6, ..RowCounts::default() });
    let run = read_run(dir.path()).expect("reads");
    assert!(run.complete("base", cell, 1, 3, 0));
    let mut live = HashMap::new();
    for record in run.live_rows() {
        assert_eq!(live.insert(record.key(), record.attempt), None, "{:?} is live twice", record.key());
    }
    assert_eq!(live.len(), 6);
    assert_eq!((run.superseded(), run.segments.len()), (3, 3));
    assert_eq!(run.rows.last().map(|r| r.segment), Some(2));
    let report = verify_run(dir.path()).expect("verifies");
    assert_eq!((report.superseded, report.row_counts), (3, closed.rows));
    let mut sound = report;
    // The plan keeps texts and this run wrote none, which is all that is to be found.
    assert_eq!(sound.problems.pop().as_deref(), Some("9 answered rows have no text in texts.jsonl"));
    assert!(sound.is_sound(), "{sound:?}");
}

#[test]
fn a_repeat_with_a_cancelled_row_is_not_complete() {
    let dir = run_directory();
    let log = RunLog::create(dir.path(), &header(), open()).expect("a log");
    log.row(row("base", 0, 0, 0, false), None);
    let mut cancelled = row("base", 0, 1, 0, false);
    cancelled.outcome = Outcome::Cancelled;
    log.row(cancelled, None);
    log.close("interrupted").expect("closes");
    let (_log, run) = resume(dir.path());
    assert!(!run.complete("base", "decode_scaling/c1", 0, 2, 0));
}

#[test]
fn a_torn_tail_is_set_aside_and_never_glued_to_the_next_row() {
    // B83: two whole rows and half of a third.
    let dir = run_directory();
    let log = RunLog::create(dir.path(), &header(), open()).expect("a log");
    (0..3).for_each(|index| log.row(row("base", 0, index, 0, false), Some(text(&row("base", 0, index, 0, false)))));
    drop(log);
    let path = dir.path().join("log.jsonl");
    let whole = fs::read(&path).expect("log");
    let cut = whole.len() - 100;
    fs::write(&path, &whole[..cut]).expect("cut");
    let kept = whole[..cut].iter().rposition(|&b| b == b'\n').expect("a line") + 1;
    let run = read_run(dir.path()).expect("reads");
    assert!(run.torn);
    assert_eq!(run.rows.iter().map(|r| r.record.index).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(fs::read(&path).expect("log").len(), cut, "reading changes nothing");
    for again in 1..=2 {
        let (log, run) = resume(dir.path());
        assert_eq!(run.rows.len(), 2);
        assert!(!run.complete("base", "decode_scaling/c1", 0, 3, 0), "the cut request is rerun");
        log.close("interrupted").expect("closes");
        let run = read_run(dir.path()).expect("reads");
        assert!(!run.torn);
        let told =
            run.events.iter().filter(|e| e.what == "warning" && e.fields["message"].to_string().contains("log.jsonl"));
        assert_eq!(told.count(), again);
        assert_eq!(&fs::read(&path).expect("log")[..kept], &whole[..kept], "earlier rows are untouched");
        let mut aside = [&whole[kept..cut], b"\n"].concat().repeat(again - 1);
        aside.extend_from_slice(&[&whole[kept..cut], b"\n"].concat());
        assert_eq!(fs::read(dir.path().join("log.torn")).expect("set aside"), aside, "appended, never overwritten");
        // Tear it again in the same way, behind what the resume wrote.
        let mut torn = fs::read(&path).expect("log");
        torn.extend_from_slice(&whole[kept..cut]);
        fs::write(&path, torn).expect("torn again");
    }
}

#[test]
fn a_whole_last_line_without_its_line_feed_is_kept() {
    let dir = run_directory();
    let log = RunLog::create(dir.path(), &header(), open()).expect("a log");
    log.row(row("base", 0, 0, 0, false), Some(text(&row("base", 0, 0, 0, false))));
    drop(log);
    for file in ["log.jsonl", "texts.jsonl"] {
        let path = dir.path().join(file);
        let mut bytes = fs::read(&path).expect("file");
        assert_eq!(bytes.pop(), Some(b'\n'));
        fs::write(&path, bytes).expect("cut");
    }
    let (log, run) = resume(dir.path());
    assert_eq!((run.rows.len(), run.torn), (1, false));
    log.row(row("base", 1, 0, 0, false), Some(text(&row("base", 1, 0, 0, false))));
    log.close("done").expect("closes");
    let report = verify_run(dir.path()).expect("verifies");
    assert!(report.is_sound(), "{report:?}");
    assert_eq!((report.rows, report.texts_matched, report.torn_bytes), (2, 2, 0));
    assert!(!dir.path().join("log.torn").exists());
}

#[test]
fn the_log_of_b83_is_no_log_of_ours_and_its_first_line_is_named() {
    let Some(path) = shared("cases/B83.log.jsonl") else { return };
    let (read, end) = entries(&fs::read(path).expect("case"));
    assert!(read.is_empty());
    assert!(matches!(end, Err(LogError::Corrupt { line: 1, offset: 0, fault: Fault::Crc, .. })), "{end:?}");
}

/// A sealed line; the CRC is computed bit by bit here, so that it does not come from the code under test.
fn sealed(body: &str) -> String {
    let body = body.strip_suffix('}').expect("an object");
    let mut crc = u32::MAX;
    for byte in body.bytes() {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 };
        }
    }
    format!("{body},\"crc\":\"{:08x}\"}}\n", !crc)
}

fn small_log(lines: &[&str]) -> Vec<u8> {
    let first = r#"{"seq":0,"kind":"header","schema":1,"identity":"3f9a1c","nonce":"k7q2","program":"inferlab 0.1.0","plan":{"name":"sample"}}"#;
    let second = r#"{"seq":1,"kind":"open","segment":0,"utc":"2026-11-30T21:45:00Z"}"#;
    [first, second].iter().chain(lines).map(|line| sealed(line)).collect::<String>().into_bytes()
}

#[test]
fn damage_in_the_middle_is_named_with_its_line_and_byte() {
    let close = r#"{"seq":3,"kind":"close","reason":"done"}"#;
    let at = small_log(&[]).len() as u64;
    for (bad, fault, word) in [
        (r#"{"seq":3,"kind":"close","reason":"x"}"#, Fault::Seq, "after a gap"),
        (r#"{"seq":1,"kind":"close","reason":"x"}"#, Fault::Seq, "seen before"),
        (r#"{"seq":2,"kind":"header","schema":1}"#, Fault::Content, "first line"),
        (r#"{"seq":2,"kind":"open","segment":2,"utc":"x"}"#, Fault::Content, "without gaps"),
        (r#"{"seq":2,"kind":"event","what":"warning"}"#, Fault::Content, "t_ns"),
        (r#"{"seq":2,"kind":"event","t_ns":1}"#, Fault::Content, "what"),
        (r#"{"seq":2,"kind":"request","arm":"a\u001b[31m"}"#, Fault::Content, "missing field"),
        (
            r#"{"seq":2,"kind":"end","rows":{"ok":1,"failed":0,"cancelled":0,"shed":0},"issued":2}"#,
            Fault::Content,
            "issued",
        ),
        (
            r#"{"seq":2,"kind":"end","rows":{"ok":18446744073709551615,"failed":1,"cancelled":0,"shed":0}}"#,
            Fault::Content,
            "issued",
        ),
        (r#"{"kind":"close"}"#, Fault::Content, "seq"),
        ("[}", Fault::Content, "no line of a log"),
    ] {
        let (read, end) = entries(&small_log(&[bad, close]));
        assert_eq!(read.len(), 2, "{bad}");
        let Err(LogError::Corrupt { line, offset, fault: found, detail, .. }) = end else { panic!("{bad}: {end:?}") };
        assert_eq!((line, offset, found), (3, at, fault), "{bad}: {detail}");
        assert!(detail.contains(word) && !detail.contains('\u{1b}'), "{bad}: {detail}");
    }
    // The first segment must be opened before anything is said in it.
    let orphan = r#"{"seq":1,"kind":"close","reason":"x"}"#;
    let header = String::from_utf8(small_log(&[])).expect("text").lines().next().expect("a line").to_owned();
    let (_, end) = entries(format!("{header}\n{}", sealed(orphan)).as_bytes());
    assert!(matches!(end, Err(LogError::Corrupt { line: 2, fault: Fault::Content, .. })), "{end:?}");
}

#[test]
fn an_unknown_kind_becomes_a_warning_and_a_newer_schema_is_refused_by_name() {
    let dir = run_directory();
    let path = dir.path().join("log.jsonl");
    let lines = [r#"{"seq":2,"kind":"vote\u001b","x":1}"#, r#"{"seq":3,"kind":"close","reason":"done"}"#];
    fs::write(&path, small_log(&lines)).expect("written");
    let run = read_run(dir.path()).expect("reads");
    assert_eq!(run.segments[0].close.as_deref(), Some("done"));
    assert_eq!(run.events.len(), 1);
    let message = run.events[0].fields["message"].as_str().expect("text");
    assert!(run.events[0].what == "warning" && message.contains("line 3") && message.contains("vote"), "{message}");
    assert!(!message.contains('\u{1b}'));

    let newer = r#"{"seq":0,"kind":"header","schema":2,"program":"inferlab 9.0.0","plan":[]}"#;
    fs::write(&path, sealed(newer)).expect("written");
    let refused = read_run(dir.path()).expect_err("newer").to_string();
    for word in ["schema 2", "inferlab 9.0.0", "schema 1"] {
        assert!(refused.contains(word), "{refused}");
    }
    let refused = RunLog::resume(dir.path(), "3f9a1c", &parts(), open()).expect_err("newer");
    assert!(matches!(refused, LogError::NewerSchema { found: 2, known: 1, .. }));
}

#[test]
fn an_endless_line_takes_no_endless_memory() {
    /// One line of 40 MiB.
    struct Endless(u64);
    impl std::io::Read for Endless {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            if self.0 > 40 << 20 {
                buffer[0] = b'\n';
                return Ok(1);
            }
            buffer.fill(b'x');
            self.0 += buffer.len() as u64;
            Ok(buffer.len())
        }
    }
    let mut reader = inferlab::record::LogReader::new(std::io::BufReader::new(Endless(0)), "log.jsonl".as_ref());
    let refused = reader.next_entry().expect_err("too long");
    assert!(matches!(refused, LogError::Corrupt { line: 1, fault: Fault::TooLong, .. }), "{refused}");
}

#[test]
fn a_number_that_is_none_is_refused_and_said() {
    // B59: serde_json would write null for NaN in silence.
    let dir = run_directory();
    let log = RunLog::create(dir.path(), &header(), open()).expect("a log");
    let mut bad = row("base", 0, 0, 0, false);
    bad.server_prompt_ms = Some(f64::NAN);
    let refused = log.row_acked(bad.clone(), None).expect_err("refused");
    assert!(refused.to_string().contains("server_prompt_ms"), "{refused}");
    bad.server_prompt_ms = None;
    bad.temperature = Some(f64::INFINITY);
    log.row(bad, None);
    let closed = log.close("done").expect("the disk is well");
    assert_eq!((closed.health.rows_lost, closed.ended), (2, false));
    let run = read_run(dir.path()).expect("reads");
    assert_eq!((run.rows.len(), run.end), (0, None));
    assert!(run.storage_incidents().any(|event| event.fields["message"].to_string().contains("server_prompt_ms")));
    let mut header = header();
    header.plan.limits.max_failure_rate = f64::NAN;
    let other = run_directory();
    assert!(matches!(RunLog::create(other.path(), &header, open()), Err(StorageError::NotFinite { .. })));
}

/// A disk that stands still until it is let go.
#[derive(Debug, Clone, Default)]
struct StandingDisk(Arc<(Mutex<bool>, Condvar)>);

#[derive(Debug)]
struct StandingFile(Box<dyn DiskFile>, StandingDisk);

impl StandingDisk {
    fn set(&self, stands: bool) {
        *self.0.0.lock().expect("lock") = stands;
        self.0.1.notify_all();
    }
    fn pass(&self) {
        let guard = self.0.0.lock().expect("lock");
        drop(self.0.1.wait_while(guard, |stands| *stands).expect("lock"));
    }
}

impl Disk for StandingDisk {
    fn append(&self, path: &Path) -> std::io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(StandingFile(OsDisk.append(path)?, self.clone())))
    }
    fn rename(&self, from: &Path, to: &Path) -> std::io::Result<()> {
        OsDisk.rename(from, to)
    }
    fn sync_dir(&self, dir: &Path) -> std::io::Result<()> {
        OsDisk.sync_dir(dir)
    }
}

impl DiskFile for StandingFile {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.1.pass();
        self.0.write(bytes)
    }
    fn sync(&mut self) -> std::io::Result<()> {
        self.1.pass();
        self.0.sync()
    }
    fn set_len(&mut self, length: u64) -> std::io::Result<()> {
        self.0.set_len(length)
    }
}

#[test]
fn a_standing_disk_never_holds_up_the_load_and_the_lost_rows_are_counted() {
    let dir = run_directory();
    let disk = StandingDisk::default();
    let options = LogOptions { queue: 4, disk: Arc::new(disk.clone()), ..LogOptions::default() };
    let log = RunLog::create_with(dir.path(), &header(), open(), options).expect("a log");
    disk.set(true);
    // Were `row` to wait for the disk, this loop would never end.
    for index in 0..100 {
        log.row(row("base", 0, index, 0, false), None);
    }
    let lost = log.health().rows_lost;
    // Four wait in the queue, and one may be in the writer's hand.
    assert!((95..=96).contains(&lost), "{lost}");
    disk.set(false);
    let closed = log.close("done").expect("the disk is well again");
    assert!(!closed.ended && closed.health.rows_lost == lost);
    let run = read_run(dir.path()).expect("reads");
    assert_eq!(run.rows.len() as u64 + lost, 100);
    let incident = run.storage_incidents().next().expect("the log says it");
    assert_eq!(incident.fields["rows_lost"], json!(lost));
    assert_eq!(run.end, None, "a run that lost rows has no end");
}

#[test]
fn rows_from_many_threads_are_numbered_without_gaps() {
    let dir = run_directory();
    let log = RunLog::create(dir.path(), &header(), open()).expect("a log");
    std::thread::scope(|scope| {
        for arm in ["a", "b", "c", "d"] {
            let log = &log;
            scope.spawn(move || {
                let mut draw = Draw(arm.len() as u64);
                for index in 0..250 {
                    let record = row(arm, 0, index, 0, false);
                    if draw.below(2) == 0 {
                        log.row_acked(record.clone(), Some(text(&record))).expect("appended");
                    } else {
                        log.row(record.clone(), Some(text(&record)));
                    }
                }
            });
        }
    });
    assert_eq!(log.close("done").expect("closes").rows.issued(), 1000);
    let report = verify_run(dir.path()).expect("verifies");
    assert!(report.is_sound(), "{report:?}");
    assert_eq!((report.lines, report.texts_matched), (1004, 1000));
}

#[test]
fn the_names_of_b133_share_no_folder() {
    let Some(path) = shared("cases/B133.names.jsonl") else { return };
    let mut seen = std::collections::HashSet::new();
    for line in fs::read_to_string(path).expect("case").lines() {
        let case: serde_json::Value = serde_json::from_str(line).expect("JSON");
        let id = case["id"].as_str().expect("an id");
        let name = inferlab::record::slug(id);
        assert!(name.len() <= 90 && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b)), "{name}");
        assert!(seen.insert(name.clone()), "{id} shares {name}");
    }
    assert!(seen.len() >= 10);
}

/// Prints how many rows a second the writer appends; a figure for the closing note, no assertion.
#[test]
#[ignore = "measures; run with --ignored --nocapture"]
fn append_rate() {
    for (label, gaps, keep) in [
        ("row of 64 tokens, text of 300 bytes", 63, true),
        ("row of 64 tokens", 63, false),
        ("row of 3 gaps", 3, false),
    ] {
        let dir = run_directory();
        let options = LogOptions { queue: 300_000, ..LogOptions::default() };
        let log = RunLog::create_with(dir.path(), &header(), open(), options).expect("a log");
        let mut record = row("base", 0, 0, 0, false);
        record.gap_us = vec![20_000; gaps];
        let mut said = text(&record);
        said.content = "word ".repeat(60);
        let n = 100_000;
        let started = std::time::Instant::now();
        for index in 0..n {
            record.index = index;
            log.row(record.clone(), keep.then(|| said.clone()));
        }
        let handed = started.elapsed();
        let closed = log.close("done").expect("closes");
        let seconds = started.elapsed().as_secs_f64();
        assert!(closed.ended);
        let bytes = fs::metadata(dir.path().join("log.jsonl")).expect("log").len();
        println!(
            "{label}: {:.0} rows/s appended and synced, {:.0} bytes a row, {:.2} us of the caller a row",
            f64::from(n) / seconds,
            bytes as f64 / f64::from(n),
            handed.as_secs_f64() * 1e6 / f64::from(n)
        );
        let started = std::time::Instant::now();
        let run = read_run(dir.path()).expect("reads");
        println!("  read back: {:.0} rows/s", f64::from(n) / started.elapsed().as_secs_f64());
        let started = std::time::Instant::now();
        inferlab::table::derive(dir.path(), &run).expect("derives");
        println!("  Parquet: {:.0} rows/s", f64::from(n) / started.elapsed().as_secs_f64());
    }
}
