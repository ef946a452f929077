//! `inferlab bench`: a suite made on the spot.
use serde_json::Value;

use crate::run_lab::{Lab, code, said, stdout};

const QUICK: [&str; 10] = [
    "bench",
    "synthetic:tiny-llama",
    "--prompt",
    "16,32",
    "--concurrency",
    "1,2",
    "--completion",
    "32",
    "--repeats",
    "2",
];

/// 0, or 10 for nothing but what a busy machine does to lanes (V2) and sends (V8).
fn assert_ended_well(output: &std::process::Output) {
    let reasons: Vec<String> =
        stdout(output).lines().filter_map(|l| l.strip_prefix("INVALID ")).map(str::to_owned).collect();
    assert!(reasons.iter().all(|r| r.starts_with("V2 ") || r.starts_with("V8 ")), "{}", said(output));
    assert_eq!(code(output), if reasons.is_empty() { 0 } else { 10 }, "{}", said(output));
}

#[test]
fn a_model_is_measured_without_a_file() {
    let lab = Lab::new("");
    let output = lab.output(&QUICK);
    assert_ended_well(&output);
    let text = stdout(&output);
    for test in ["pp16", "pp32", "tg32 @ 16", "tg32 @ 16 x2", "tg32 @ 32", "tg32 @ 32 x2"] {
        let line = text.lines().find(|line| line.starts_with(&format!("{test}  "))).unwrap_or_else(|| panic!("{text}"));
        // A rate, its interval and the number of repeats behind it. A decode of 20 ms may have no window in which all lanes decode where
        // the machine is busy: then there is no rate, and n says so.
        let words: Vec<&str> = line[test.len()..].split_whitespace().collect();
        let rate = words[0].replace(',', "").parse::<f64>().ok();
        let n: u32 = words[2].parse().unwrap();
        assert!(rate.is_none_or(|rate| rate > 0.0) && n <= 2 && rate.is_some() == (n > 0), "{line}");
        assert!(test.starts_with("tg") || n == 2, "{line}");
    }
    assert!(text.contains("speed only: random weights"), "{text}");
    // The same run as that of a suite: log, tables, plan.
    assert!(lab.run().join("requests.parquet").is_file());
    lab.assert_sound();
}

#[test]
fn what_the_box_leaves_out_is_listed() {
    let lab = Lab::new("");
    let output = lab.output(&[
        "bench",
        "synthetic:smollm2-135m",
        "--prompt",
        "16,4000",
        "--concurrency",
        "1",
        "--completion",
        "4",
        "--time",
        "1s",
        "--json",
    ]);
    assert_eq!(code(&output), 0, "{}", said(&output));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let left_out: Vec<&str> = found["left_out"].as_array().unwrap().iter().map(|t| t.as_str().unwrap()).collect();
    assert!(left_out.contains(&"tg4 @ 4000"), "{found}");
    for test in found["tests"].as_array().unwrap() {
        let is_out = left_out.contains(&test["test"].as_str().unwrap());
        assert_eq!((test["tok_s"].is_null(), test["n"] == 0), (is_out, is_out), "{test}");
    }
}

#[test]
fn the_suite_can_be_had_as_a_file_and_says_the_same() {
    let lab = Lab::new("");
    let suite = lab.output(&[&QUICK[..], &["--dry-run"]].concat());
    assert_eq!(code(&suite), 0, "{}", said(&suite));
    std::fs::write(lab.path().join("kept.yaml"), &suite.stdout).unwrap();
    let plan = lab.output(&["plan", "kept.yaml", "--json"]);
    let plan: Value = serde_json::from_slice(&plan.stdout).unwrap();
    assert_eq!(plan["cells"].as_array().unwrap().len(), 6);
    assert!(lab.runs().is_empty(), "nothing ran");
}

#[test]
fn what_cannot_be_measured_is_said_before_anything_runs() {
    let lab = Lab::new("");
    let fails = |arguments: &[&str], exit: i32, words: &str| {
        let output = lab.output(arguments);
        assert_eq!(code(&output), exit, "{}", said(&output));
        assert!(said(&output).contains(words), "{}", said(&output));
    };
    fails(&["bench", "smolm2-135m"], 3, "did you mean");
    fails(&["bench", "synthetic:tiny-lama"], 2, "there is no shape");
    fails(&["bench", "smollm2-135m", "--time", "soon"], 2, "--time is no duration");
    fails(&["bench", "smollm2-135m", "--model", "m"], 2, "for a server");
    // Port 9 of the loopback: nobody listens.
    fails(&["bench", "http://127.0.0.1:9/v1"], 4, "127.0.0.1:9");
    assert!(lab.runs().is_empty());
}
