//! A whole run on random weights, through the program: files, numbers, labels, and everything derived once more.
use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use inferlab::record::RequestRecord;
use serde_json::Value;

use crate::run_lab::{Lab, code, permitted, said, stderr, stdout, synthetic};

/// One run of two arms that several tests look at, and what it said.
struct Finished {
    lab: Lab,
    stdout: String,
    stderr: String,
}

const WORKLOADS: [&str; 2] = [
    "decode_scaling: {load: {closed: {concurrency: 2}}, prompt_tokens: 8, completion_tokens: 4, requests_per_lane: 1}",
    "prefill_scaling: {load: {closed: {concurrency: 1}}, prompt_tokens: [12], requests: 2}",
];

fn finished() -> &'static Finished {
    static RUN: OnceLock<Finished> = OnceLock::new();
    RUN.get_or_init(|| {
        let lab = Lab::new(&synthetic(", kv_dtype: [f32, bf16]", 2, &WORKLOADS));
        let output = lab.output(&["run", "suite.yaml"]);
        assert_eq!(code(&output), 0, "{}", said(&output));
        Finished { lab, stdout: stdout(&output), stderr: stderr(&output) }
    })
}

fn rows() -> Vec<RequestRecord> {
    finished().lab.log().live_rows().into_iter().cloned().collect()
}

#[test]
fn a_run_leaves_its_files_and_prints_where() {
    let Finished { lab, stdout, stderr } = finished();
    let run = lab.run();
    let name = run.file_name().unwrap().to_str().unwrap();
    for file in ["log.jsonl", "texts.jsonl", "plan.json", "requests.parquet", "events.parquet", "hardware.parquet"] {
        assert!(std::fs::metadata(run.join(file)).unwrap().len() > 0, "{file} is empty");
    }
    let report = lab.path().join("reports").join(name);
    let printed = |path: &str| stdout.contains(&format!("reports/{name}/{path}"));
    for file in ["report.md", "report.html", "tables.csv"] {
        assert!(report.join(file).is_file() && printed(file), "{file}: {stdout}");
    }
    for figure in ["decode_scaling", "prefill_tok_s", "prefill_ttft"] {
        for kind in ["svg", "png"] {
            assert!(report.join(format!("figures/{figure}.{kind}")).is_file(), "{figure}.{kind}");
        }
    }
    assert!(stdout.contains(&format!("runs/{name}")) && stdout.starts_with("VALID: 16 of 16 "), "{stdout}");
    // Progress goes to stderr, one line a cell where that is no terminal.
    assert!(stderr.contains("repeat 2/2") && stderr.contains("decode_scaling/c2"), "{stderr}");
    lab.assert_sound();
    assert!(!lab.files().iter().any(|file| file.extension().is_some_and(|e| e == "tmp")), "no temporary file stays");
}

#[test]
fn tables_and_report_come_out_of_the_log_again_byte_for_byte() {
    let Finished { lab, .. } = finished();
    let run = lab.run();
    let run = run.to_str().unwrap();
    // A copy, since other tests read the files meanwhile.
    let copy = Lab::new("");
    let name = lab.run().file_name().unwrap().to_owned();
    let target = copy.path().join("runs").join(&name);
    std::fs::create_dir_all(&target).unwrap();
    for file in ["log.jsonl", "texts.jsonl"] {
        std::fs::copy(lab.run().join(file), target.join(file)).unwrap();
    }
    let there = target.to_str().unwrap();
    for arguments in [&["table", there, "--rebuild"][..], &["report", there]] {
        let output = copy.output(arguments);
        assert_eq!(code(&output), 0, "{}", said(&output));
    }
    let mut compared = 0;
    for file in copy.files() {
        let relative = file.strip_prefix(copy.path()).unwrap();
        let original = lab.path().join(relative);
        if relative.starts_with("suite.yaml") {
            continue;
        }
        let (again, first) = (std::fs::read(&file).unwrap(), std::fs::read(&original).unwrap_or_default());
        assert!(again == first, "{} differs from {run}", relative.display());
        compared += 1;
    }
    assert!(compared >= 5 + 3 + 6, "{compared} files");
}

#[test]
fn every_prompt_has_exactly_the_tokens_of_the_plan() {
    for row in rows() {
        let planned = if row.cell.starts_with("decode") { 8 } else { 12 };
        assert_eq!(row.prompt_tokens_planned, Some(planned), "{}", row.cell);
        assert_eq!(row.usage_prompt_tokens, Some(planned), "{}", row.cell);
        let completion = if row.cell.starts_with("decode") { 4 } else { 1 };
        assert_eq!(row.usage_completion_tokens, Some(completion), "{}", row.cell);
    }
}

#[test]
fn warm_up_prompts_are_measured_by_none_and_no_prompt_is_sent_twice_to_an_arm() {
    let rows = rows();
    let hashes = |warmup: bool| -> BTreeSet<&String> {
        rows.iter().filter(|row| row.warmup == warmup).map(|row| row.prompt_sha256.as_ref().unwrap()).collect()
    };
    assert!(!hashes(true).is_empty() && hashes(true).is_disjoint(&hashes(false)));
    for arm in ["base+kv_dtype=f32", "base+kv_dtype=bf16"] {
        let of_arm: Vec<_> = rows.iter().filter(|row| row.arm == arm).map(|row| &row.prompt_sha256).collect();
        assert_eq!(of_arm.iter().collect::<BTreeSet<_>>().len(), of_arm.len(), "{arm}");
    }
}

#[test]
fn arms_are_asked_the_same_with_the_same_seeds() {
    type Asked = (Option<String>, Option<u32>);
    let mut by_key: BTreeMap<(String, u32, u32, bool), BTreeMap<String, Asked>> = BTreeMap::new();
    for row in rows() {
        let key = (row.cell, row.repeat, row.index, row.warmup);
        by_key.entry(key).or_default().insert(row.arm, (row.prompt_sha256, row.seed));
    }
    for (key, arms) in by_key {
        let asked: Vec<_> = arms.values().collect();
        assert!(asked.len() == 2 && asked[0] == asked[1], "{key:?}: {arms:?}");
    }
}

#[test]
fn two_arms_run_in_abba_order() {
    let log = finished().lab.log();
    let launches: Vec<_> = log.events.iter().filter(|e| e.what == "launch").map(|e| e.fields["arm"].clone()).collect();
    assert_eq!(launches, ["base+kv_dtype=f32", "base+kv_dtype=bf16", "base+kv_dtype=bf16", "base+kv_dtype=f32"]);
    let mut arms: Vec<_> = log.rows.iter().map(|row| (row.record.repeat, row.record.arm.as_str())).collect();
    arms.dedup();
    let (f32_, bf16) = ("base+kv_dtype=f32", "base+kv_dtype=bf16");
    assert_eq!(arms, [(0, f32_), (0, bf16), (1, bf16), (1, f32_)]);
}

#[test]
fn random_weights_are_labelled_wherever_numbers_stand() {
    let Finished { lab, stdout, .. } = finished();
    assert!(stdout.contains("speed only"), "{stdout}");
    let name = lab.run().file_name().unwrap().to_owned();
    for file in ["report.md", "report.html", "tables.csv"] {
        let text = std::fs::read_to_string(lab.path().join("reports").join(&name).join(file)).unwrap();
        assert!(text.contains("speed only"), "{file}");
    }
}

#[test]
fn warm_up_rows_are_in_the_log_and_in_no_count() {
    let rows = rows();
    // 4 visits × (2 lanes × 1 + 2) measured.
    assert_eq!(rows.iter().filter(|row| !row.warmup).count(), 16);
    assert!(rows.iter().filter(|row| row.warmup).count() >= 4);
    assert!(finished().stdout.contains("16 of 16 measured requests answered"), "{}", finished().stdout);
}

#[test]
fn json_is_one_object_and_only_and_set_narrow_the_run() {
    let lab = Lab::new(&synthetic(", kv_dtype: [f32, bf16]", 2, &WORKLOADS));
    let arguments = ["run", "suite.yaml", "--json", "--set", "repeats=1", "--only", "prefill_scaling", "--no-report"];
    let output = lab.output(&[&arguments[..], &["--only", "base+kv_dtype=f32"]].concat());
    assert_eq!(code(&output), 0, "{}", said(&output));
    // One object and nothing behind it, or this does not parse.
    let object: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&object["verdict"], &object["exit"]), (&Value::from("valid"), &Value::from(0)));
    assert_eq!(object["rows"], serde_json::json!({"ok": 2, "failed": 0, "cancelled": 0, "shed": 0}));
    assert_eq!(object["reasons"], serde_json::json!([]));
    assert!(object["reports"].is_null() && !lab.path().join("reports").exists(), "no report was asked for");
    let run = lab.path().join(object["run"].as_str().unwrap());
    assert!(run.join("requests.parquet").is_file(), "tables are written all the same");
    let log = lab.log();
    assert!(log.rows.iter().all(|row| row.record.arm == "base+kv_dtype=f32" && row.record.repeat == 0));
    assert!(log.rows.iter().all(|row| row.record.cell == "prefill_scaling/p12"));
}

#[test]
fn a_dry_run_shows_the_plan_and_writes_nothing() {
    let lab = Lab::new(&synthetic("", 2, &WORKLOADS));
    let output = lab.output(&["run", "suite.yaml", "--dry-run"]);
    assert_eq!(code(&output), 0, "{}", said(&output));
    assert!(stdout(&output).contains("prefill_scaling/p12") && stdout(&output).contains("launches  2"));
    let files: Vec<_> = lab.files();
    assert!(files.len() == 1 && files[0].ends_with("suite.yaml"), "{files:?}");
}

#[test]
fn a_run_needs_no_network_at_all() {
    let wrapper = ["unshare", "-n"];
    if !permitted(&wrapper) {
        return;
    }
    let lab = Lab::new(&synthetic("", 1, &WORKLOADS[1..]));
    let output = lab.command_under(&wrapper, &["run", "suite.yaml", "--no-report"]).output().unwrap();
    assert_eq!(code(&output), 0, "{}", said(&output));
    lab.assert_sound();
}

#[test]
fn a_limit_of_time_ends_a_run_that_can_be_gone_on_with() {
    let suite =
        synthetic("", 1, &["prefill_scaling: {load: {closed: {concurrency: 1}}, prompt_tokens: [400], requests: 200}"]);
    let lab = Lab::new(&format!("{suite}limits: {{max_duration: 100ms}}\n"));
    let output = lab.output(&["run", "suite.yaml", "--no-report"]);
    assert_eq!(code(&output), 20, "{}", said(&output));
    assert!(stdout(&output).contains("limits.max_duration (100ms) passed"), "{}", stdout(&output));
    assert!(stdout(&output).contains("--resume"), "{}", stdout(&output));
    lab.assert_sound();
    // A limit beyond what a clock can hold is no limit.
    let lab = Lab::new(&format!("{}limits: {{max_duration: 900000y}}\n", synthetic("", 1, &WORKLOADS[1..])));
    let output = lab.output(&["run", "suite.yaml", "--no-report"]);
    assert_eq!(code(&output), 0, "{}", said(&output));
}
