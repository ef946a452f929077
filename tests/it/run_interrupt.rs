//! Runs that are stopped, killed, refused or out of disk, and what a resume makes of them.
use std::collections::{BTreeMap, BTreeSet};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use inferlab::experiment::{self, Plan};
use inferlab::request::{Message, Prompt};
use inferlab::workload::{self, PromptFit};
use sha2::{Digest, Sha256};

use crate::run_lab::{Lab, assert_valid_but_for_time, code, permitted, said, stderr, stdout, synthetic, unwrapped};

/// Requests that end one after the other, long enough to be cut between.
fn cuttable() -> Lab {
    Lab::new(&synthetic(
        "",
        2,
        &[
            "decode_scaling: {load: {closed: {concurrency: 1}}, prompt_tokens: 8, completion_tokens: 480, requests_per_lane: 3}",
        ],
    ))
}

fn signal(child: &Child, name: &str) {
    let status = Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status().unwrap();
    assert!(status.success(), "kill -{name}");
}

/// Starts the run of a lab and sends `name` once two requests are in the log.
fn cut(name: &str, more: &[&str]) -> (Lab, Output) {
    for _ in 0..5 {
        let lab = cuttable();
        let mut child = lab.start(&[&["run", "suite.yaml"], more].concat());
        if lab.wait_for(&mut child, r#""kind":"request""#, 2) {
            signal(&child, name);
            let output = child.wait_with_output().unwrap();
            if output.status.code() != Some(0) {
                return (lab, output);
            }
        }
        eprintln!("the run was over before the signal came; once more");
    }
    panic!("no run could be cut");
}

/// A model of token ids, as the synthetic one is.
struct TokenIds;

impl PromptFit for TokenIds {
    fn count(&self, _: &[Message]) -> Option<u32> {
        None
    }
    fn raw_vocabulary(&self) -> Option<u32> {
        Some(4096)
    }
    fn overhead_tokens(&self) -> Option<u32> {
        None
    }
}

/// Prompt digest and seed of every key as an uninterrupted run would have them, worked out from the plan alone.
fn expected(lab: &Lab, nonce: &str) -> BTreeMap<(String, u32, u32, bool), (String, u32)> {
    let plan = Plan::new(&experiment::load(&lab.path().join("suite.yaml"), &[]).unwrap(), &[]).unwrap();
    let mut keys = BTreeMap::new();
    for cell in &plan.cells {
        for repeat in 0..plan.experiment.repeats {
            let requests = workload::requests(&plan, cell, &plan.arms[0], repeat, nonce, &TokenIds).unwrap();
            for request in requests.warmup.into_iter().chain(requests.measured) {
                let request = request.request;
                let Prompt::TokenIds(ids) = &request.prompt else { panic!("ids were wanted") };
                let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
                let digest: String = Sha256::digest(&bytes).iter().take(8).map(|byte| format!("{byte:02x}")).collect();
                let key = (request.key.cell, repeat, request.key.index, request.key.warmup);
                keys.insert(key, (digest, request.seed));
            }
        }
    }
    keys
}

/// Resumes the cut run of a lab and checks that each key is live once and asked what an uninterrupted run asks.
fn resume_and_check(lab: &Lab) {
    let run = lab.run();
    let before = lab.log();
    let output = lab.output(&["run", "suite.yaml", "--no-report", "--resume", run.to_str().unwrap()]);
    assert_valid_but_for_time(&output);
    lab.assert_sound();
    let log = lab.log();
    assert!(log.end.is_some() && log.segments.len() == 2);
    assert_eq!(log.rows[..before.rows.len()], before.rows[..], "what was measured stays");
    let mut live = BTreeMap::new();
    for row in log.live_rows() {
        let key = (row.cell.clone(), row.repeat, row.index, row.warmup);
        let asked = (row.prompt_sha256.clone().unwrap(), row.seed.unwrap());
        assert!(live.insert(key.clone(), asked).is_none(), "{key:?} is live twice");
    }
    assert_eq!(live, expected(lab, &log.header.nonce));
    // Rows that were replaced asked the same as those that replaced them.
    for row in &log.rows {
        let row = &row.record;
        let key = (row.cell.clone(), row.repeat, row.index, row.warmup);
        assert_eq!((row.prompt_sha256.as_ref(), row.seed), (Some(&live[&key].0), Some(live[&key].1)));
    }
    // Nothing is left to do: said without loading a model.
    let output = lab.output(&["run", "suite.yaml", "--resume", run.to_str().unwrap()]);
    assert!(code(&output) == 2 && stderr(&output).contains("complete"), "{}", said(&output));
}

#[test]
fn sigint_leaves_a_partial_report_and_a_run_that_resumes() {
    let (lab, output) = cut("INT", &[]);
    assert_eq!(code(&output), 20, "{}", said(&output));
    assert!(stdout(&output).starts_with("PARTIAL"), "{}", stdout(&output));
    assert!(stdout(&output).contains("go on   inferlab run suite.yaml --resume runs/lab-"), "{}", stdout(&output));
    let name = lab.run().file_name().unwrap().to_owned();
    let report = std::fs::read_to_string(lab.path().join("reports").join(&name).join("report.md")).unwrap();
    assert!(report.to_lowercase().contains("partial"), "{report}");
    assert_eq!(lab.log().segments[0].close.as_deref(), Some("interrupted"));
    lab.assert_sound();

    // Another seed is another experiment: refused, and the key named.
    let run = lab.run();
    let bytes = std::fs::read(run.join("log.jsonl")).unwrap();
    let other = lab.output(&["run", "suite.yaml", "--set", "seed=8", "--resume", run.to_str().unwrap()]);
    assert!(code(&other) == 2 && unwrapped(&other).contains("seed was `7` and is `8`"), "{}", said(&other));
    let more = lab.output(&["run", "suite.yaml", "--set", "repeats=3", "--resume", run.to_str().unwrap()]);
    assert!(code(&more) == 2 && unwrapped(&more).contains("repeats was `2` and is `3`"), "{}", said(&more));
    assert_eq!(std::fs::read(run.join("log.jsonl")).unwrap(), bytes, "a refused resume writes nothing");

    resume_and_check(&lab);
}

/// Whether this process, and so what it starts, ignores a signal.
fn ignored(signal: u32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap_or_default();
    u64::from_str_radix(mask.trim(), 16).is_ok_and(|mask| mask >> (signal - 1) & 1 == 1)
}

#[test]
fn sigterm_and_sighup_do_as_sigint_does() {
    for name in ["TERM", "HUP"] {
        if name == "HUP" && ignored(1) {
            println!("skipped: these tests run under nohup, and a program started there keeps ignoring SIGHUP");
            continue;
        }
        let (lab, output) = cut(name, &["--no-report"]);
        assert_eq!(code(&output), 20, "{name}: {}", said(&output));
        assert_eq!(lab.log().segments[0].close.as_deref(), Some("interrupted"), "{name}");
        lab.assert_sound();
        if name == "TERM" {
            resume_and_check(&lab);
        }
    }
}

#[test]
fn a_killed_run_resumes_and_its_log_is_sound() {
    let (lab, output) = cut("KILL", &["--no-report"]);
    assert_eq!(output.status.code(), None, "it was killed");
    assert_eq!(lab.log().segments[0].close, None);
    lab.assert_sound();
    resume_and_check(&lab);
}

#[test]
fn a_second_process_is_refused_and_a_second_sigint_ends_at_once() {
    // One request that takes many seconds: the first signal lets it go on, so the second always finds it in flight.
    let suite = synthetic(
        "",
        1,
        &[
            "decode_scaling: {load: {closed: {concurrency: 1}}, prompt_tokens: 8, completion_tokens: 30000, requests_per_lane: 4}",
        ],
    );
    let lab = Lab::new(&suite.replace("max_context: 512", "max_context: 32768"));
    let mut child = lab.start(&["run", "suite.yaml"]);
    assert!(lab.wait_for(&mut child, r#""what":"ready""#, 1));
    let second = lab.output(&["run", "suite.yaml", "--resume", lab.run().to_str().unwrap()]);
    assert!(code(&second) == 2 && stderr(&second).contains("is in use by another process"), "{}", said(&second));
    assert!(stderr(&second).contains(&format!("pid {}", child.id())), "{}", stderr(&second));
    signal(&child, "INT");
    // Two in a row before the first was delivered would count as one.
    std::thread::sleep(Duration::from_millis(300));
    assert!(child.try_wait().unwrap().is_none(), "the request in flight is waited for");
    signal(&child, "INT");
    let output = child.wait_with_output().unwrap();
    assert_eq!(code(&output), 20, "{}", said(&output));
    assert_eq!(lab.log().segments[0].close, None, "the second signal waits for nothing");
    lab.assert_sound();
}

#[test]
fn closed_streams_do_not_stop_a_run() {
    let lab = Lab::new(&synthetic(
        "",
        1,
        &["prefill_scaling: {load: {closed: {concurrency: 1}}, prompt_tokens: [8], requests: 3}"],
    ));
    let closed = || {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        writer
    };
    let status = lab.command(&["run", "suite.yaml"]).stdout(closed()).stderr(closed()).status().unwrap();
    // 10 where the machine was too busy to hold the lane.
    assert!([Some(0), Some(10)].contains(&status.code()), "{status}");
    assert!(lab.log().end.is_some());
    lab.assert_sound();
}

#[test]
fn a_place_that_cannot_be_written_exits_30_and_is_named() {
    let lab = cuttable();
    std::fs::write(lab.path().join("file"), "no folder").unwrap();
    let output = lab.output(&["run", "suite.yaml", "--out", "file/runs"]);
    assert!(code(&output) == 30 && stderr(&output).contains("file/runs"), "{}", said(&output));

    // Nobody's permissions bind root, a read-only mount does.
    let wrapper = ["unshare", "-m"];
    if permitted(&wrapper) {
        let script =
            "mkdir sealed && mount -t tmpfs -o ro tmpfs sealed || exit 99; exec \"$0\" run suite.yaml --out sealed";
        let output = in_shell(&lab, script);
        if code(&output) == 99 {
            eprintln!("skipped: no tmpfs can be mounted here: {}", stderr(&output));
            return;
        }
        assert!(code(&output) == 30 && stderr(&output).contains("sealed"), "{}", said(&output));
    }
}

/// Runs a script with a mount table of its own; `$0` is the program.
fn in_shell(lab: &Lab, script: &str) -> Output {
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script, env!("CARGO_BIN_EXE_inferlab")]);
    lab.settle(&mut command);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).output().unwrap()
}

#[test]
fn a_plan_that_the_disk_cannot_hold_is_refused_before_it_starts() {
    if !permitted(&["unshare", "-m"]) {
        return;
    }
    let lab = cuttable();
    let script = "mkdir runs && mount -t tmpfs -o size=1m tmpfs runs || exit 99; \"$0\" run suite.yaml; code=$?; \
                  ls -A runs; exit $code";
    let output = in_shell(&lab, script);
    if code(&output) == 99 {
        eprintln!("skipped: no tmpfs can be mounted here: {}", stderr(&output));
        return;
    }
    assert!(code(&output) == 30 && stderr(&output).contains("runs has "), "{}", said(&output));
    assert_eq!(stdout(&output), "", "nothing was begun");
}

#[test]
fn a_disk_that_fills_up_in_mid_run_exits_30_and_loses_no_row_that_was_written() {
    if !permitted(&["unshare", "-m"]) {
        return;
    }
    let lab = Lab::new(&synthetic(
        "",
        4,
        &["prefill_scaling: {load: {closed: {concurrency: 1}}, prompt_tokens: [8], requests: 60}"],
    ));
    let script = r#"mkdir runs && mount -t tmpfs -o size=8m tmpfs runs || exit 99
        "$0" run suite.yaml --no-report & run=$!
        until grep -q '"kind":"request"' runs/*/log.jsonl; do kill -0 $run || break; sleep 0.01; done
        dd if=/dev/zero of=runs/filler bs=64k
        wait $run; echo "full: $?"
        cp runs/*/log.jsonl full.jsonl
        "$0" verify runs/lab-*; echo "verify: $?"
        rm runs/filler
        "$0" run suite.yaml --no-report --resume runs/lab-*; echo "resume: $?"
        "$0" verify runs/lab-*; echo "verify: $?"
        cp -r runs kept"#;
    let output = in_shell(&lab, &script.replace("log.jsonl; do", "log.jsonl 2>/dev/null; do"));
    if code(&output) == 99 {
        eprintln!("skipped: no tmpfs can be mounted here: {}", stderr(&output));
        return;
    }
    let text = stdout(&output);
    let codes: Vec<&str> = text.lines().filter(|line| line.contains(": ") && line.len() < 12).collect();
    if codes.first() == Some(&"full: 0") {
        eprintln!("skipped: the run was over before its disk was full");
        return;
    }
    // The storage incident may stand in the log; then the run stays invalid (V7) after its end as well.
    let resumed = ["resume: 0", "resume: 10", "resume: 30"].contains(&codes[2]);
    assert!(
        codes[0] == "full: 30" && codes[1] == "verify: 0" && resumed && codes[3] == "verify: 0",
        "{}",
        said(&output)
    );
    assert!(stderr(&output).contains("No space left on device"), "{}", stderr(&output));
    let kept = std::fs::read_dir(lab.path().join("kept")).unwrap().map(|entry| entry.unwrap().path()).next().unwrap();
    let (full, log) =
        (std::fs::read(lab.path().join("full.jsonl")).unwrap(), inferlab::record::read_run(&kept).unwrap());
    assert!(std::fs::read(kept.join("log.jsonl")).unwrap().starts_with(&full), "what was written stays");
    let keys: BTreeSet<_> = log.live_rows().iter().map(|row| (row.repeat, row.index, row.warmup)).collect();
    let measured = keys.iter().filter(|key| !key.2).count();
    assert!(measured == 4 * 60 && keys.len() == log.live_rows().len(), "{measured} keys");
}
