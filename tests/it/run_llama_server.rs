//! The suite `suites/llama-server.yaml`, whole, against a real llama.cpp server; see `endpoint_llama_server` for the variables.
use std::time::{Duration, Instant};

use inferlab::record::Outcome;
use serde_json::Value;

use crate::endpoint_llama_server::LlamaServer;
use crate::run_lab::{Lab, code, said};

#[test]
fn the_llama_server_suite_measures_a_real_server() {
    let Some(server) = LlamaServer::start(&[]) else { return };
    let lab = Lab::new(include_str!("../../suites/llama-server.yaml"));
    let url = format!("target.endpoint.url=http://127.0.0.1:{}/v1", server.port);
    let sets = [
        url.as_str(),
        "repeats=2",
        "workloads.0.decode_scaling.load.closed.concurrency=[1,2]",
        "workloads.0.decode_scaling.prompt_tokens=40",
        "workloads.0.decode_scaling.completion_tokens=8",
        "workloads.1.prefill_scaling.prompt_tokens=[64]",
        "workloads.1.prefill_scaling.requests=2",
    ];
    let arguments: Vec<&str> =
        ["run", "suite.yaml", "--json"].into_iter().chain(sets.iter().flat_map(|set| ["--set", set])).collect();
    let begun = Instant::now();
    let output = loop {
        let output = lab.output(&arguments);
        // 4: it still loads its model.
        if code(&output) != 4 {
            break output;
        }
        assert!(begun.elapsed() < Duration::from_secs(120), "the server does not come up: {}", said(&output));
        std::thread::sleep(Duration::from_millis(200));
    };
    let object: Value = serde_json::from_slice(&output.stdout).unwrap();
    // A busy machine may fail to hold the lanes, and then says so; lengths, counts and caches must be right on any.
    let reasons = object["reasons"].as_array().unwrap();
    assert!(reasons.iter().all(|reason| ["V2", "V8"].contains(&reason["rule"].as_str().unwrap())), "{}", said(&output));
    assert_eq!(code(&output), if reasons.is_empty() { 0 } else { 10 }, "{}", said(&output));
    lab.assert_sound();
    for row in lab.log().live_rows() {
        assert_eq!(row.outcome, Outcome::Ok);
        let completion = if row.cell.starts_with("decode") { 8 } else { 1 };
        assert_eq!(row.usage_completion_tokens, Some(completion), "{}", row.cell);
        let (planned, got) = (row.prompt_tokens_planned.unwrap(), row.usage_prompt_tokens.unwrap());
        assert!(planned.abs_diff(got) <= 2, "{}: {got} prompt tokens for {planned}", row.cell);
        assert_eq!(row.server_prompt_n, row.usage_prompt_tokens, "{}: all of it was computed", row.cell);
        assert!(row.server_prompt_ms.is_some_and(|ms| ms > 0.0));
    }
}
