//! Whole runs against a server on loopback: verdicts, refusals, secrets and hostile text.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::run_lab::{Lab, code, said, stderr, stdout};
use crate::wire::{Received, Reply, WireServer, shared_cases};

const KEY: &str = "sk-TESTONLY-0123456789abcdef";
/// Tokens that the template of this server adds.
const TEMPLATE: usize = 5;

fn suite(url: &str, more: &str, repeats: u32) -> String {
    format!(
        "schema: 1\nname: lab\nquestion: Does a run work?\nseed: 7\ntarget:\n  endpoint: {{url: \"{url}\", model: \
         lab-model{more}}}\nrepeats: {repeats}\nworkloads:\n  - decode_scaling: {{load: {{closed: {{concurrency: 2}}}}, \
         prompt_tokens: 40, completion_tokens: 8, requests_per_lane: 1}}\n  - prefill_scaling: {{load: {{closed: \
         {{concurrency: 1}}}}, prompt_tokens: [48], requests: 2}}\n"
    )
}

/// A well-behaved server: a word is a token, and as many chunks as were asked for.
fn answer(request: &Received) -> Reply {
    match request.path.as_str() {
        "/v1/chat/completions" => chat(&request.json()),
        "/v1/models" => Reply::json(200, r#"{"object":"list","data":[{"id":"lab-model"}]}"#),
        "/health" => Reply::json(200, "{}"),
        _ => Reply::json(404, "{}"),
    }
}

fn chat(body: &Value) -> Reply {
    let content = body["messages"][0]["content"].as_str().unwrap();
    let prompt = TEMPLATE + content.split_whitespace().count();
    let most = ["max_tokens", "max_completion_tokens"].iter().find_map(|key| body[*key].as_u64()).unwrap();
    let event = |choices: Value, usage: Value| {
        let chunk = json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "lab-model",
            "choices": choices, "usage": usage});
        format!("data: {chunk}\n\n").into_bytes()
    };
    let delta = |delta: Value, finish: Value| json!([{"index": 0, "delta": delta, "finish_reason": finish}]);
    let mut reply = Reply::sse(Vec::new());
    reply.parts.clear();
    for n in 0..most {
        // Time enough for prefill that our own lateness is small beside it.
        let wait = Duration::from_millis(if n == 0 { 60 } else { 5 });
        reply.parts.push((event(delta(json!({"content": " word"}), Value::Null), Value::Null), wait));
    }
    let usage = json!({"prompt_tokens": prompt, "completion_tokens": most, "total_tokens": prompt as u64 + most});
    let mut end = event(delta(json!({}), json!("length")), Value::Null);
    end.extend(event(json!([]), usage));
    end.extend(b"data: [DONE]\n\n");
    reply.parts.push((end, Duration::ZERO));
    reply
}

/// Looks for `needle` in every file but the suite, and in what was printed.
fn assert_nowhere(lab: &Lab, printed: &str, needle: &str) {
    assert!(!printed.contains(needle), "printed: {printed}");
    let mut looked = 0;
    for file in lab.files() {
        let bytes = std::fs::read(&file).unwrap();
        assert!(!bytes.windows(needle.len()).any(|part| part == needle.as_bytes()), "{needle} in {}", file.display());
        looked += 1;
    }
    assert!(looked > 0);
}

/// No byte that a terminal would act on.
fn assert_inert(text: &str) {
    let hostile = |c: char| c.is_control() && c != '\n' || ('\u{202a}'..='\u{202e}').contains(&c);
    assert!(!text.contains(hostile), "{text:?}");
}

#[test]
fn both_workloads_run_against_a_server_and_the_key_is_kept_nowhere() {
    // A server that checks the key, and repeats it where it can.
    let server = WireServer::start(|request| {
        if !request.head.contains(&format!("Bearer {KEY}")) {
            return Reply::json(401, r#"{"error":{"message":"no key"}}"#);
        }
        match request.path.as_str() {
            "/v1/models" => {
                let list = json!({"data": [{"id": "lab-model"}, {"id": format!("echo {KEY}")}]});
                Reply::json(200, &list.to_string())
            }
            _ => answer(request),
        }
    });
    let lab = Lab::new(&suite(&server.url(), ", api_key_env: LAB_KEY", 2));
    let output = lab.command(&["run", "suite.yaml", "--json"]).env("LAB_KEY", KEY).output().unwrap();
    let object: Value = serde_json::from_slice(&output.stdout).unwrap();
    // On a machine that does other things as well, lateness and lanes may be out of bounds, and then it must say so.
    let timed = |reason: &Value| ["V2", "V8"].contains(&reason["rule"].as_str().unwrap());
    let reasons = object["reasons"].as_array().unwrap();
    assert!(reasons.iter().all(timed), "{}", said(&output));
    assert_eq!(code(&output), if reasons.is_empty() { 0 } else { 10 }, "{}", said(&output));
    assert_eq!(object["rows"], json!({"ok": 8, "failed": 0, "cancelled": 0, "shed": 0}));
    lab.assert_sound();
    for row in lab.log().live_rows() {
        assert_eq!(row.usage_prompt_tokens, row.prompt_tokens_planned, "{}: the template is allowed for", row.cell);
    }
    assert_nowhere(&lab, &said(&output), KEY);
}

#[test]
fn a_key_on_the_command_line_is_refused_and_not_repeated() {
    let lab = Lab::new(&suite("http://127.0.0.1:1/v1", "", 1));
    let output = lab.output(&["run", "suite.yaml", "--set", &format!("target.endpoint.api_key={KEY}")]);
    assert_eq!(code(&output), 2, "{}", said(&output));
    assert_nowhere(&lab, &said(&output).replace("suite.yaml", ""), KEY);
}

#[test]
fn what_cannot_start_exits_4_or_2_and_makes_no_run() {
    // A port that was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let lab = Lab::new(&suite(&format!("http://127.0.0.1:{port}/v1"), "", 1));
    let output = lab.output(&["run", "suite.yaml"]);
    assert_eq!(code(&output), 4, "{}", said(&output));
    assert!(stderr(&output).contains(&format!("127.0.0.1:{port}")), "{}", stderr(&output));

    let lab_2 = Lab::new(&suite(&format!("http://127.0.0.1:{port}/v1"), ", api_key_env: LAB_SURELY_UNSET", 1));
    let output = lab_2.output(&["run", "suite.yaml"]);
    assert!(code(&output) == 2 && stderr(&output).contains("LAB_SURELY_UNSET"), "{}", said(&output));
    assert!(lab.runs().is_empty() && lab_2.runs().is_empty());
}

#[test]
fn failures_above_the_limit_exit_11_and_hostile_words_of_a_server_stay_inert() {
    let chats = AtomicUsize::new(0);
    let server = WireServer::start(move |request| {
        // The first chat is the one that asks whether the model answers at all.
        if request.path == "/v1/chat/completions" && chats.fetch_add(1, Ordering::SeqCst) > 0 {
            return Reply::json(
                500,
                "{\"error\":{\"message\":\"a\\u001b[2J\\u001b]0;t\\u0007 <script>x</script> \\u202eb\"}}",
            );
        }
        answer(request)
    });
    // Each visit asks once more before it measures: one repeat after the preflight leaves only failing ones.
    let lab = Lab::new(&suite(&server.url(), "", 1));
    let output = lab.output(&["run", "suite.yaml"]);
    // The second connect of the run already meets the failing server: an event, and a run that can be gone on with.
    assert_eq!(code(&output), 20, "{}", said(&output));
    assert_inert(&said(&output));
    drop(server);

    let chats = AtomicUsize::new(0);
    let server = WireServer::start(move |request| {
        if request.path == "/v1/chat/completions" && chats.fetch_add(1, Ordering::SeqCst) > 1 {
            return Reply::json(
                500,
                "{\"error\":{\"message\":\"a\\u001b[2J\\u001b]0;t\\u0007 <script>x</script> \\u202eb\"}}",
            );
        }
        answer(request)
    });
    let lab = Lab::new(&suite(&server.url(), "", 1));
    let output = lab.output(&["run", "suite.yaml"]);
    assert_eq!(code(&output), 11, "{}", said(&output));
    assert!(stdout(&output).contains("4 of 4 requests failed"), "{}", stdout(&output));
    assert_inert(&said(&output));
    lab.assert_sound();
    for file in lab.files().iter().filter(|file| file.extension().is_some_and(|e| e == "md" || e == "html")) {
        let text = std::fs::read_to_string(file).unwrap();
        let is_page = file.extension().is_some_and(|e| e == "html");
        // Markdown holds such words in a code span, where they are text.
        assert!(!text.contains('\u{1b}'), "{}", file.display());
        assert!(!is_page || !text.contains("<script>x"), "{}", file.display());
    }
}

#[test]
fn what_a_model_says_reaches_no_terminal() {
    let Some(cases) = shared_cases() else { return };
    let hostile = Reply::load(&cases.join("B137.sse"));
    let server = WireServer::start(move |request| match request.path.as_str() {
        "/v1/chat/completions" => hostile.clone(),
        "/v1/models" => Reply::json(200, &json!({"data": [{"id": "other\u{1b}[2J\u{9b}31m"}]}).to_string()),
        _ => answer(request),
    });
    let lab = Lab::new(&suite(&server.url(), "", 1));
    let output = lab.output(&["run", "suite.yaml"]);
    assert!([0, 10].contains(&code(&output)), "{}", said(&output));
    assert!(stderr(&output).contains("warning: base: the server does not list the model"), "{}", stderr(&output));
    assert_inert(&said(&output));
    let json = lab.output(&["run", "suite.yaml", "--json"]);
    assert!(serde_json::from_slice::<Value>(&json.stdout).is_ok());
    assert_inert(&said(&json));
    // The words themselves are kept as they came.
    let texts = std::fs::read_to_string(lab.runs()[0].join("texts.jsonl")).unwrap();
    assert!(texts.contains("FAKE") && texts.contains("\\u001b[2J"), "{texts}");
}

#[test]
fn a_server_that_goes_away_between_visits_is_an_event_and_the_run_goes_on_later() {
    let away = Arc::new(AtomicBool::new(false));
    let asked = Arc::new(AtomicUsize::new(0));
    let (gone, models) = (Arc::clone(&away), Arc::clone(&asked));
    let server = WireServer::start(move |request| {
        // Asked once before the start and once at each visit: the third time is the second repeat.
        if request.path == "/v1/models" && models.fetch_add(1, Ordering::SeqCst) == 2 {
            gone.store(true, Ordering::SeqCst);
        }
        if gone.load(Ordering::SeqCst) {
            Reply::json(503, r#"{"error":{"message":"loading"}}"#)
        } else {
            answer(request)
        }
    });
    let lab = Lab::new(&suite(&server.url(), "", 2));
    let output = lab.output(&["run", "suite.yaml"]);
    assert_eq!(code(&output), 20, "{}", said(&output));
    assert!(stdout(&output).contains("could not be started again"), "{}", stdout(&output));
    let log = lab.log();
    let incident = log.events.iter().find(|event| event.what == "incident").unwrap();
    assert_eq!((&incident.fields["cause"], &incident.fields["arm"]), (&Value::from("launch"), &Value::from("base")));
    lab.assert_sound();
    away.store(false, Ordering::SeqCst);
    let output = lab.output(&["run", "suite.yaml", "--resume", lab.run().to_str().unwrap()]);
    assert!([0, 10].contains(&code(&output)), "{}", said(&output));
    lab.assert_sound();
    let log = lab.log();
    assert!(log.end.is_some() && log.superseded() == 0, "the whole first repeat was kept");
    assert_eq!(log.row_counts().ok, 8);
}

#[test]
fn a_warning_about_the_server_is_said_once_and_kept() {
    let server = WireServer::start(|request| match request.path.as_str() {
        "/v1/models" => Reply::json(200, r#"{"data":[{"id":"another-model"}]}"#),
        _ => answer(request),
    });
    let lab = Lab::new(&suite(&server.url(), "", 2));
    let output = lab.output(&["run", "suite.yaml"]);
    let words = "does not list the model `lab-model`";
    assert_eq!(stderr(&output).matches(words).count(), 1, "{}", stderr(&output));
    assert_eq!(stdout(&output).matches(words).count(), 1, "{}", stdout(&output));
    let warnings = lab.log().events.iter().filter(|event| event.what == "warning").count();
    assert_eq!(warnings, 1);
}
