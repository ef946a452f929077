//! Parquet made from the log: one schema, whole files only, the same values.
use std::fs;
use std::path::Path;
use std::sync::Arc;

use inferlab::record::{
    COLUMNS, Cell, Entry, Finish, FirstChunkSource, LogOptions, LoggedHardware, LoggedRow, OsDisk, Outcome,
    RequestRecord, RowObserver, RunLog, read_run,
};
use inferlab::table::{self, PART_ROWS, Parts, TableError, read_parquet, whole_rows};
use inferlab::units::TimestampNs;
use polars::prelude::{AnyValue, DataFrame, DataType};
use proptest::prelude::*;
use serde_json::json;

use crate::log_rows::{Draw, entries, header, open, row, shared, text};

/// The members of a request row, copied from `contracts/record.md`.
const CONTRACT: &str = "arm cell repeat index attempt warmup session turn fixture prompt_sha256 prompt_tokens_planned scheduled_ns sent_ns \
    headers_ns first_byte_ns first_token_ns first_answer_ns last_token_ns end_ns gap_us first_chunk_tokens first_chunk_tokens_source \
    usage_prompt_tokens usage_completion_tokens usage_reasoning_tokens usage_cached_tokens counted_prompt_tokens \
    counted_completion_tokens temperature top_p top_k min_p presence_penalty frequency_penalty max_tokens ignore_eos seed \
    thinking_asked thinking_seen finish outcome http_status error new_connection chunks keepalives bad_chunks bad_text done_seen \
    usage_mismatch server_cache_n server_prompt_n server_prompt_ms server_predicted_n server_predicted_ms server_queue_ms \
    server_draft_n server_draft_accepted server_rounds server_accepted_per_position reuse_path peers_in_flight peers_prefilling";

#[test]
fn every_member_of_the_contract_is_a_column_and_a_member_of_the_row() {
    let members = serde_json::to_value(row("base", 0, 0, 0, false)).expect("JSON");
    let members: Vec<&str> = members.as_object().expect("an object").keys().map(String::as_str).collect();
    let columns: Vec<&str> = COLUMNS.iter().map(|column| column.name).collect();
    assert_eq!(members, columns, "the log line and the table have the same names in the same order");
    let absent: Vec<&str> = CONTRACT.split_whitespace().filter(|name| !columns.contains(name)).collect();
    assert!(absent.is_empty(), "{absent:?}");
    let typed = |name: &str| table::request_schema().get(name).cloned().expect(name);
    for (name, dtype) in [
        ("segment", DataType::UInt32),
        ("sent_ns", DataType::Int64),
        ("gap_us", DataType::List(Box::new(DataType::UInt32))),
        ("usage_prompt_tokens", DataType::UInt32),
        ("server_prompt_ms", DataType::Float64),
        ("outcome", DataType::String),
        ("warmup", DataType::Boolean),
        ("server_accepted_per_position", DataType::List(Box::new(DataType::UInt32))),
    ] {
        assert_eq!(typed(name), dtype, "{name}");
    }
}

#[test]
fn the_schema_document_has_a_line_for_every_column() {
    let document = table::schema_document();
    let lines: Vec<&str> = document.lines().filter(|line| line.starts_with("| ")).collect();
    assert_eq!(lines.len(), COLUMNS.len() + 2, "head, segment, columns");
    for (line, column) in lines[2..].iter().zip(COLUMNS) {
        assert!(line.starts_with(&format!("| {} | ", column.name)), "{line}");
        assert_eq!(line.matches(" | ").count(), 3, "{line}");
    }
    assert!(document.contains("| gap_us | list<u32> | µs | Gaps between chunks"));
    assert!(document.contains("| sent_ns | i64 | ns | "));
}

/// A row of anything: every optional member from the stream of numbers and strings.
fn any_row() -> impl Strategy<Value = RequestRecord> {
    let numbers = proptest::collection::vec(any::<u64>(), 160);
    let texts = proptest::collection::vec(any::<String>(), 8);
    let gaps = proptest::collection::vec(any::<u32>(), 0..12);
    (numbers, texts, gaps).prop_map(|(numbers, texts, gaps)| {
        let (mut numbers, mut texts) = (numbers.into_iter(), texts.into_iter());
        let mut number = move || numbers.next().expect("enough numbers");
        let mut string = move || texts.next().expect("enough texts");
        macro_rules! maybe {
            ($value:expr) => {
                (number() % 3 != 0).then(|| $value)
            };
        }
        macro_rules! count {
            () => {
                maybe!(number() as u32)
            };
        }
        macro_rules! time {
            () => {
                maybe!(TimestampNs(number() as i64))
            };
        }
        macro_rules! flag {
            () => {
                maybe!(number() % 2 == 0)
            };
        }
        macro_rules! real {
            () => {
                maybe!(f64::from_bits(number())).filter(|value| value.is_finite())
            };
        }
        RequestRecord {
            arm: string(),
            cell: string(),
            repeat: number() as u32,
            index: number() as u32,
            attempt: number() as u32,
            warmup: number() % 2 == 0,
            session: count!(),
            turn: count!(),
            fixture: Some(string()),
            prompt_sha256: maybe!(string()),
            prompt_tokens_planned: count!(),
            scheduled_ns: time!(),
            sent_ns: time!(),
            headers_ns: time!(),
            first_byte_ns: time!(),
            first_token_ns: time!(),
            first_answer_ns: time!(),
            last_token_ns: time!(),
            end_ns: time!(),
            gap_us: gaps.clone(),
            first_chunk_tokens: count!(),
            first_chunk_tokens_source: maybe!(FirstChunkSource::ALL[number() as usize % FirstChunkSource::ALL.len()]),
            usage_prompt_tokens: count!(),
            usage_completion_tokens: count!(),
            usage_reasoning_tokens: count!(),
            usage_cached_tokens: count!(),
            counted_prompt_tokens: count!(),
            counted_completion_tokens: count!(),
            temperature: real!(),
            top_p: real!(),
            top_k: count!(),
            min_p: real!(),
            presence_penalty: real!(),
            frequency_penalty: real!(),
            max_tokens: count!(),
            ignore_eos: flag!(),
            seed: count!(),
            thinking_asked: maybe!(string()),
            thinking_seen: flag!(),
            finish: maybe!(Finish::ALL[number() as usize % Finish::ALL.len()]),
            outcome: Outcome::ALL[number() as usize % Outcome::ALL.len()],
            http_status: count!(),
            error: maybe!(string()),
            new_connection: flag!(),
            streamed: flag!(),
            chunks: count!(),
            keepalives: count!(),
            bad_chunks: count!(),
            bad_text: count!(),
            done_seen: flag!(),
            tail_unterminated: flag!(),
            usage_mismatch: flag!(),
            server_cache_n: count!(),
            server_prompt_n: count!(),
            server_prompt_ms: real!(),
            server_predicted_n: count!(),
            server_predicted_ms: real!(),
            server_queue_ms: real!(),
            server_draft_n: count!(),
            server_draft_accepted: count!(),
            server_rounds: count!(),
            server_accepted_per_position: maybe!(gaps.iter().rev().copied().collect()),
            reuse_path: maybe!(string()),
            peers_in_flight: count!(),
            peers_prefilling: count!(),
        }
    })
}

/// Compares one value of a frame with the value of the row it came from.
fn same(found: &AnyValue<'_>, expected: &Cell<'_>) -> bool {
    match (found, expected) {
        (AnyValue::Null, Cell::Null) => true,
        (AnyValue::Boolean(a), Cell::Bool(b)) => a == b,
        (AnyValue::UInt32(a), Cell::U32(b)) => a == b,
        (AnyValue::UInt64(a), Cell::U64(b)) => a == b,
        (AnyValue::Int64(a), Cell::I64(b)) => a == b,
        (AnyValue::Float64(a), Cell::F64(b)) => a.to_bits() == b.to_bits(),
        (AnyValue::String(a), Cell::Utf8(b)) => a == b,
        (AnyValue::StringOwned(a), Cell::Utf8(b)) => a.as_str() == *b,
        (AnyValue::List(a), Cell::ListU32(b)) => a.u32().is_ok_and(|a| a.iter().eq(b.iter().map(|v| Some(*v)))),
        _ => false,
    }
}

fn assert_frame_holds(frame: &DataFrame, rows: &[LoggedRow]) {
    assert_eq!(frame.height(), rows.len());
    assert_eq!(frame.width(), COLUMNS.len() + 1);
    for (n, logged) in rows.iter().enumerate() {
        let segment = frame.column("segment").expect("column").get(n).expect("row");
        assert!(same(&segment, &Cell::U32(logged.segment)));
        for (column, cell) in COLUMNS.iter().zip(logged.record.cells()) {
            let found = frame.column(column.name).expect("column").get(n).expect("row");
            assert!(same(&found, &cell), "row {n}, {}: {found:?} for {cell:?}", column.name);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_row_survives_the_log_and_the_table(rows in proptest::collection::vec(any_row(), 0..8)) {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let log = RunLog::create(dir.path(), &header(), open()).expect("a log");
        rows.iter().for_each(|record| log.row(record.clone(), Some(text(record))));
        log.close("interrupted").expect("closes");
        let run = read_run(dir.path()).expect("reads");
        prop_assert_eq!(run.rows.iter().map(|row| &row.record).collect::<Vec<_>>(), rows.iter().collect::<Vec<_>>());
        // PartialEq calls 0.0 and -0.0 equal; the text of the line does not.
        let again: Vec<String> = run.rows.iter().map(|row| serde_json::to_string(&row.record).expect("JSON")).collect();
        prop_assert_eq!(again, rows.iter().map(|r| serde_json::to_string(r).expect("JSON")).collect::<Vec<_>>());
        table::derive(dir.path(), &run).expect("derives");
        assert_frame_holds(&read_parquet(&dir.path().join("requests.parquet")).expect("reads"), &run.rows);
    }
}

#[test]
fn an_empty_run_has_tables_of_the_same_schema() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    RunLog::create(dir.path(), &header(), open()).expect("a log").close("interrupted").expect("closes");
    let run = read_run(dir.path()).expect("reads");
    let derived = table::derive(dir.path(), &run).expect("derives");
    assert_eq!((derived.requests, derived.events, derived.hardware), (0, 0, 0));
    let frame = read_parquet(&dir.path().join("requests.parquet")).expect("reads");
    assert_eq!(**frame.schema(), table::request_schema());
    assert_eq!(**table::requests_frame(&[]).schema(), **table::requests_frame(&[&row("a", 0, 0, 0, false)]).schema());
}

#[test]
fn events_and_samples_become_tables_and_unknown_fields_are_kept_as_text() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let log = RunLog::create(dir.path(), &header(), open()).expect("a log");
    log.event(TimestampNs(5), "warning", json!({"message": "host load 1.9", "load": [1.9, 2]}));
    log.event(TimestampNs(6), "launch", json!({"arm": "base"}));
    // Numbers that are now whole and now broken, a field that comes late, one that changes its type, one that is null at first.
    log.hardware(&json!({"t_ns": 1, "cpu": 12, "gpu": [{"power_w": null}], "note": 1}));
    log.hardware(&json!({"t_ns": 2, "cpu": 12.5, "gpu": [{"power_w": 450}], "note": "x", "late": true}));
    log.close("done").expect("closes");
    let run = read_run(dir.path()).expect("reads");
    table::derive(dir.path(), &run).expect("derives");
    let events = read_parquet(&dir.path().join("events.parquet")).expect("reads");
    let texts = |frame: &DataFrame, name: &str| -> Vec<Option<String>> {
        frame.column(name).expect(name).str().expect("text").iter().map(|v| v.map(str::to_owned)).collect()
    };
    assert_eq!(texts(&events, "message"), [Some("host load 1.9".to_owned()), None]);
    assert_eq!(texts(&events, "extra"), [Some(r#"{"load":[1.9,2]}"#.to_owned()), Some(r#"{"arm":"base"}"#.to_owned())]);
    let hardware = read_parquet(&dir.path().join("hardware.parquet")).expect("reads");
    let numbers =
        |name: &str| -> Vec<Option<f64>> { hardware.column(name).expect(name).f64().expect("f64").iter().collect() };
    assert_eq!(numbers("cpu"), [Some(12.0), Some(12.5)]);
    assert_eq!(numbers("gpu.0.power_w"), [None, Some(450.0)]);
    assert_eq!(texts(&hardware, "note"), [Some("1".to_owned()), Some("x".to_owned())]);
    assert_eq!(texts(&hardware, "late"), [None, Some("true".to_owned())]);
    let hostile = LoggedHardware {
        segment: 0,
        t_ns: TimestampNs(0),
        fields: json!({"segment": 7, "a.b": 1, "a": {"b": 2}}).as_object().expect("object").clone(),
    };
    assert_eq!(table::hardware_frame(&[hostile]).expect("a frame").height(), 1);
}

#[test]
fn a_cut_or_damaged_table_is_never_taken_for_whole_and_is_made_again() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let log = RunLog::create(dir.path(), &header(), open()).expect("a log");
    (0..40).for_each(|index| log.row(row("base", 0, index, 0, false), None));
    log.close("done").expect("closes");
    let run = read_run(dir.path()).expect("reads");
    table::derive(dir.path(), &run).expect("derives");
    let path = dir.path().join("requests.parquet");
    let whole = fs::read(&path).expect("table");
    assert_eq!(whole_rows(&path).expect("whole"), 40);
    for cut in (0..whole.len()).step_by(97).chain([whole.len() - 1]) {
        fs::write(&path, &whole[..cut]).expect("cut");
        assert!(matches!(whole_rows(&path), Err(TableError::Broken { .. })), "cut at {cut}");
    }
    table::derive_missing(dir.path(), &run).expect("derives");
    assert_eq!(fs::read(&path).expect("table"), whole, "the same rows make the same bytes");
    // Whole tables are left as they are.
    let before = fs::metadata(&path).expect("table").modified().expect("time");
    table::derive_missing(dir.path(), &run).expect("derives");
    assert_eq!(fs::metadata(&path).expect("table").modified().expect("time"), before);
    assert!(!dir.path().join("requests.parquet.tmp").exists());
}

#[test]
fn a_flipped_byte_in_a_table_ends_no_process() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let log = RunLog::create(dir.path(), &header(), open()).expect("a log");
    (0..40).for_each(|index| log.row(row("base", 0, index, 0, false), None));
    log.close("done").expect("closes");
    table::derive(dir.path(), &read_run(dir.path()).expect("reads")).expect("derives");
    let path = dir.path().join("requests.parquet");
    let whole = fs::read(&path).expect("table");
    let mut draw = Draw(85);
    let mut broken = 0;
    for _ in 0..300 {
        let mut bad = whole.clone();
        let at = draw.below(bad.len());
        bad[at] ^= 1 << draw.below(8);
        fs::write(&path, bad).expect("written");
        // Parquet has no checksum of ours: a flip may stay unseen here, which is why the log is the primary data.
        match whole_rows(&path) {
            Ok(_) => {}
            Err(TableError::Broken { .. }) => broken += 1,
            Err(other) => panic!("{other}"),
        }
    }
    assert!(broken > 50, "only {broken} of 300 flips were seen");
}

#[test]
fn the_broken_parquet_files_of_b85_are_recognised() {
    for name in ["cases/B85.parquet", "cases/B85.b.parquet"] {
        let Some(path) = shared(name) else { return };
        let error = whole_rows(&path).expect_err(name);
        assert!(matches!(error, TableError::Broken { .. }), "{error}");
    }
}

/// Rows of a case file as our rows: `f64` members under a name of ours.
fn case_rows(path: &Path, member: &str) -> Vec<RequestRecord> {
    let lines = fs::read_to_string(path).expect("case");
    let mut log = String::new();
    for (n, line) in lines.lines().filter(|line| !line.is_empty()).enumerate() {
        let mut case: serde_json::Map<String, serde_json::Value> = serde_json::from_str(line).expect("JSON");
        let mut ours = serde_json::to_value(row("base", 0, n as u32, 0, false)).expect("JSON");
        ours[member] = case.shift_remove(member).or_else(|| case.shift_remove("ttft_ms")).unwrap_or_default();
        ours["usage_completion_tokens"] = case.shift_remove("completion_tokens").unwrap_or_default();
        if let Some(outcome) = case.shift_remove("outcome") {
            ours["outcome"] = outcome;
        }
        ours.as_object_mut().expect("an object").extend(case);
        log.push_str(&ours.to_string());
        log.push('\n');
    }
    log.lines().map(|line| serde_json::from_str(line).expect("a row")).collect()
}

#[test]
fn whole_and_broken_numbers_late_and_unknown_members_make_one_column_of_reals() {
    // B91: 12 then 12.5, a list of nothing, a member that comes late, one that nobody knows.
    let Some(path) = shared("cases/B91.rows.jsonl") else { return };
    let rows = case_rows(&path, "server_prompt_ms");
    let frame = table::requests_frame(&rows.iter().collect::<Vec<_>>());
    assert_eq!(frame.height(), 4);
    let column = frame.column("server_prompt_ms").expect("column").f64().expect("reals");
    assert_eq!((column.iter().flatten().sum::<f64>(), column.null_count()), (37.5, 1));
}

#[test]
fn each_row_keeps_its_own_numbers_in_any_order() {
    // B57: a failed request in the middle must not hand its neighbours' counts around.
    let Some(path) = shared("cases/B57.rows.jsonl") else { return };
    let rows = case_rows(&path, "server_queue_ms");
    for order in [[0, 1, 2, 3], [3, 1, 0, 2], [1, 2, 3, 0]] {
        let shuffled: Vec<&RequestRecord> = order.iter().map(|n| &rows[*n]).collect();
        let frame = table::requests_frame(&shuffled);
        let tokens = frame.column("usage_completion_tokens").expect("column").u32().expect("counts");
        assert_eq!(tokens.iter().flatten().map(u64::from).sum::<u64>(), 313);
        for (place, n) in order.iter().enumerate() {
            let index = frame.column("index").expect("column").u32().expect("counts").get(place);
            assert_eq!((index, tokens.get(place)), (Some(*n as u32), [Some(11), None, Some(101), Some(201)][*n]));
        }
    }
}

#[test]
fn parts_are_written_during_the_run_and_go_on_after_a_resume() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let mut parts = Parts::sized(dir.path(), Arc::new(OsDisk), 10);
    let rows: Vec<LoggedRow> =
        (0..34).map(|index| LoggedRow { segment: index / 17, record: row("base", 0, index, 0, false) }).collect();
    rows[..17].iter().for_each(|logged| parts.row(logged.segment, &logged.record));
    drop(parts);
    let path = |n: usize| dir.path().join(format!("parts/requests-{n:05}.parquet"));
    assert!(path(0).exists() && !path(1).exists());
    let mut parts = Parts::sized(dir.path(), Arc::new(OsDisk), 10);
    parts.earlier(&rows[..17]);
    rows[17..].iter().for_each(|logged| parts.row(logged.segment, &logged.record));
    drop(parts);
    for n in 0..3 {
        assert_frame_holds(&read_parquet(&path(n)).expect("whole"), &rows[n * 10..(n + 1) * 10]);
    }
    assert!(!path(3).exists());
}

#[test]
fn a_long_run_has_a_part_before_its_end_and_a_broken_part_is_made_again() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let options =
        LogOptions { queue: 80_000, observer: Some(Box::new(Parts::new(dir.path()))), ..LogOptions::default() };
    let log = RunLog::create_with(dir.path(), &header(), open(), options).expect("a log");
    for index in 0..PART_ROWS as u32 + 5 {
        log.row(row("base", 0, index, 0, false), None);
    }
    assert!(log.close("done").expect("closes").ended);
    let part = dir.path().join("parts/requests-00000.parquet");
    assert_eq!(whole_rows(&part).expect("whole"), PART_ROWS);
    let whole = fs::read(&part).expect("part");
    fs::write(&part, &whole[..whole.len() / 2]).expect("cut");
    let run = read_run(dir.path()).expect("reads");
    let derived = table::derive(dir.path(), &run).expect("derives");
    assert_eq!(derived.requests, PART_ROWS + 5);
    assert_eq!(whole_rows(&part).expect("made again"), PART_ROWS);
    let frame = read_parquet(&dir.path().join("requests.parquet")).expect("reads");
    let index = frame.column("index").expect("column").u32().expect("counts");
    assert!(index.iter().eq((0..PART_ROWS as u32 + 5).map(Some)), "the order of the log");
}

#[test]
fn a_line_of_the_log_holds_the_row_member_by_member() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let log = RunLog::create(dir.path(), &header(), open()).expect("a log");
    log.row(row("base", 0, 0, 0, false), None);
    log.close("done").expect("closes");
    let bytes = fs::read(dir.path().join("log.jsonl")).expect("log");
    let line = bytes.split(|b| *b == b'\n').nth(2).expect("a row");
    let value: serde_json::Value = serde_json::from_slice(line).expect("JSON for any reader");
    assert_eq!((&value["seq"], &value["kind"], &value["outcome"]), (&json!(2), &json!("request"), &json!("ok")));
    assert_eq!((&value["gap_us"], &value["usage_cached_tokens"]), (&json!([20_000, 20_001, 19_999]), &json!(null)));
    assert_eq!(value.as_object().expect("object").keys().next_back().map(String::as_str), Some("crc"));
    assert!(matches!(&entries(&bytes).0[2], Entry::Request(_)));
}
