//! Whole runs over the completions and the Messages interface, and with thinking, against a server that answers as those do.
use std::time::Duration;

use inferlab::record::{Finish, FirstChunkSource, Outcome};
use serde_json::{Value, json};

use crate::run_lab::{Lab, code, said};
use crate::wire::{Received, Reply, WireServer};

const COMPLETION: u64 = 6;

fn suite(url: &str, endpoint: &str, top: &str) -> String {
    format!(
        "schema: 1\nname: lab\nquestion: Does a run work?\nseed: 7\n{top}target:\n  endpoint: {{url: \"{url}\", model: \
         lab-model, {endpoint}}}\nrepeats: 1\nworkloads:\n  - decode_scaling: {{load: {{closed: {{concurrency: 2}}}}, \
         prompt_tokens: 40, completion_tokens: {COMPLETION}, requests_per_lane: 2}}\n"
    )
}

fn paced(events: Vec<String>) -> Reply {
    let mut reply = Reply::sse(Vec::new());
    reply.parts = events.into_iter().map(|event| (event.into_bytes(), Duration::from_millis(8))).collect();
    reply
}

fn words(text: &str) -> usize {
    text.split_whitespace().count()
}

/// `/v1/completions` with counts in every chunk, as vLLM sends them.
fn completion(body: &Value) -> Reply {
    let prompt = words(body["prompt"].as_str().unwrap());
    let most = body["max_tokens"].as_u64().unwrap();
    let event = |text: &str, finish: Value, n: u64| {
        let usage = json!({"prompt_tokens": prompt, "completion_tokens": n, "total_tokens": prompt as u64 + n});
        let choices = json!([{"index": 0, "text": text, "finish_reason": finish}]);
        format!("data: {}\n\n", json!({"object": "text_completion", "choices": choices, "usage": usage}))
    };
    let mut events: Vec<String> = (1..=most).map(|n| event(" word", Value::Null, n)).collect();
    events.push(event("", json!("length"), most) + "data: [DONE]\n\n");
    paced(events)
}

/// `/v1/messages` as NInfer sends it: first thinking where it is asked for, then the answer.
fn messages(body: &Value) -> Reply {
    let prompt = words(body["messages"][0]["content"].as_str().unwrap()) + 5;
    let most = body["max_tokens"].as_u64().unwrap();
    let thinks = matches!(body["thinking"]["type"].as_str(), Some("enabled" | "adaptive"));
    let event = |value: Value| format!("event: {}\ndata: {value}\n\n", value["type"].as_str().unwrap());
    let usage = json!({"input_tokens": prompt, "cache_read_input_tokens": 0, "output_tokens": 1});
    let mut events = vec![event(json!({"type": "message_start", "message": {"usage": usage}}))];
    for n in 0..most {
        let (index, delta) = if thinks && n < 2 {
            (0, json!({"type": "thinking_delta", "thinking": " hm"}))
        } else {
            (1, json!({"type": "text_delta", "text": " word"}))
        };
        events.push(event(json!({"type": "content_block_delta", "index": index, "delta": delta})));
    }
    let end = event(json!({"type": "ping"}))
        + &event(
            json!({"type": "message_delta", "delta": {"stop_reason": "max_tokens"}, "usage": {"output_tokens": most}}),
        )
        + &event(json!({"type": "message_stop"}));
    events.push(end);
    paced(events)
}

fn answer(request: &Received) -> Reply {
    match request.path.as_str() {
        "/v1/completions" => completion(&request.json()),
        "/v1/messages" => messages(&request.json()),
        "/v1/models" => Reply::json(200, r#"{"data":[{"id":"lab-model"}]}"#),
        _ => Reply::json(404, "{}"),
    }
}

/// Runs the suite; only reasons of a busy machine may make it invalid.
fn run(lab: &Lab) {
    let output = lab.output(&["run", "suite.yaml", "--json"]);
    let object: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", said(&output)));
    let timed = |reason: &Value| ["V2", "V8"].contains(&reason["rule"].as_str().unwrap());
    assert!(object["reasons"].as_array().unwrap().iter().all(timed), "{}", said(&output));
    assert!([0, 10].contains(&code(&output)), "{}", said(&output));
    lab.assert_sound();
}

#[test]
fn a_run_over_the_completions_interface_measures_as_one_over_chat() {
    let server = WireServer::start(answer);
    let lab = Lab::new(&suite(&server.url(), "api: completions, dialect: vllm", ""));
    run(&lab);
    for row in lab.log().live_rows() {
        assert_eq!((row.outcome, row.finish), (Outcome::Ok, Some(Finish::Length)));
        assert_eq!((row.usage_completion_tokens, row.chunks, row.done_seen), (Some(6), Some(6), Some(true)));
        assert_eq!(
            (row.first_chunk_tokens, row.first_chunk_tokens_source),
            (Some(1), Some(FirstChunkSource::Usage)),
            "the server counts in every chunk"
        );
        assert_eq!(row.usage_prompt_tokens, row.prompt_tokens_planned);
    }
    let posts: Vec<Received> = server.received().into_iter().filter(|r| r.method == "POST").collect();
    assert!(posts.iter().all(|r| r.path == "/v1/completions"));
    assert_eq!(posts[0].json()["stream_options"]["continuous_usage_stats"], true);
}

#[test]
fn a_run_over_the_messages_interface_thinks_as_it_is_asked_and_its_row_says_so() {
    for (thinking, member, seen) in [
        ("default", Value::Null, false),
        ("off", json!({"type": "disabled"}), false),
        ("on", json!({"type": "adaptive"}), true),
    ] {
        let server = WireServer::start(answer);
        let top = format!("thinking: {thinking}\n");
        let lab = Lab::new(&suite(&server.url(), "api: messages, dialect: ninfer", &top));
        run(&lab);
        let log = lab.log();
        for row in log.live_rows() {
            assert_eq!((row.outcome, row.finish, row.done_seen), (Outcome::Ok, Some(Finish::Length), Some(true)));
            assert_eq!(
                (row.usage_completion_tokens, row.usage_cached_tokens, row.keepalives),
                (Some(6), Some(0), Some(1))
            );
            assert_eq!(row.usage_prompt_tokens, row.prompt_tokens_planned, "the template is allowed for");
            let asked = (thinking != "default").then(|| thinking.to_owned());
            assert_eq!((&row.thinking_asked, row.thinking_seen), (&asked, Some(seen)));
            assert_eq!(
                row.first_token_ns < row.first_answer_ns,
                seen,
                "thinking is the first token, not the first answer"
            );
        }
        let posts: Vec<Received> = server.received().into_iter().filter(|r| r.method == "POST").collect();
        assert!(posts.iter().all(|r| r.path == "/v1/messages" && r.json()["thinking"] == member));
    }
}

#[test]
fn thinking_that_the_server_found_cannot_be_asked_for_ends_the_run_before_its_start() {
    let server = WireServer::start(answer);
    let lab = Lab::new(&suite(&server.url(), "dialect: auto", "thinking: off\n"));
    let output = lab.output(&["run", "suite.yaml"]);
    assert_eq!(code(&output), 2, "{}", said(&output));
    assert!(said(&output).contains("no member that switches thinking") && lab.runs().is_empty(), "{}", said(&output));
    assert!(server.received().iter().all(|r| r.method == "GET"), "no token was asked for");
}
