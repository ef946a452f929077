//! Whole runs against a server that counts: its pages are kept, differences and restarts are events, tokens are counted here as well.
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use inferlab::metric::row::decode_work;
use inferlab::record::{FirstChunkSource, LoggedEvent, Outcome};
use inferlab::target::endpoint::TokenCounter;
use inferlab::target::endpoint::metrics_page::of_page;
use serde_json::{Value, json};

use crate::run_lab::{Lab, code, said};
use crate::wire::{End, Received, Reply, WireServer};

const KEY: &str = "sk-TESTONLY-0123456789abcdef";
/// Tokens that the template of this server adds.
const TEMPLATE: u64 = 5;
const COMPLETION: u64 = 8;

/// What the server has counted.
#[derive(Default)]
struct Count {
    prompt: AtomicU64,
    completion: AtomicU64,
    chats: AtomicU64,
    scrapes: AtomicU64,
}

fn suite(url: &str, more: &str, repeats: u32) -> String {
    format!(
        "schema: 1\nname: lab\nquestion: Does it count?\nseed: 7\ntarget:\n  endpoint: {{url: \"{url}\", model: \
         lab-model{more}}}\nrepeats: {repeats}\nworkloads:\n  - decode_scaling: {{load: {{closed: {{concurrency: 2}}}}, \
         prompt_tokens: 40, completion_tokens: {COMPLETION}, requests_per_lane: 2, warmup_per_lane: 1}}\n"
    )
}

/// A word is a token; `chunk` words come at a time.
fn chat(body: &Value, chunk: u64, with_usage: bool) -> (Reply, u64, u64) {
    let content = body["messages"][0]["content"].as_str().unwrap();
    let prompt = TEMPLATE + content.split_whitespace().count() as u64;
    let most = body["max_tokens"].as_u64().unwrap();
    let event = |value: Value| format!("data: {value}\n\n").into_bytes();
    let mut reply = Reply::sse(Vec::new());
    reply.parts.clear();
    let mut left = most;
    while left > 0 {
        let n = left.min(chunk);
        left -= n;
        let delta = json!({"choices": [{"index": 0, "delta": {"content": " word".repeat(n as usize)}}]});
        reply.parts.push((event(delta), Duration::from_millis(6)));
    }
    let mut end = event(json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]}));
    if with_usage {
        let usage = json!({"prompt_tokens": prompt, "completion_tokens": most, "total_tokens": prompt + most});
        end.extend(event(json!({"choices": [], "usage": usage})));
    }
    end.extend(b"data: [DONE]\n\n");
    reply.parts.push((end, Duration::ZERO));
    (reply, prompt, most)
}

/// A server that counts as vLLM does, over two engines, and tells `secret` wherever it can.
fn counting_server(count: Arc<Count>, secret: &'static str, restart_at_scrape: Option<u64>) -> WireServer {
    WireServer::start(move |request: &Received| match request.path.as_str() {
        "/v1/chat/completions" => {
            let (reply, prompt, completion) = chat(&request.json(), 1, true);
            count.chats.fetch_add(1, Ordering::SeqCst);
            count.prompt.fetch_add(prompt, Ordering::SeqCst);
            count.completion.fetch_add(completion, Ordering::SeqCst);
            reply
        }
        "/v1/models" => Reply::json(200, r#"{"data":[{"id":"lab-model","owned_by":"vllm"}]}"#),
        "/metrics" => {
            if Some(count.scrapes.fetch_add(1, Ordering::SeqCst)) == restart_at_scrape {
                count.prompt.store(0, Ordering::SeqCst);
                count.completion.store(0, Ordering::SeqCst);
            }
            let (prompt, completion) = (count.prompt.load(Ordering::SeqCst), count.completion.load(Ordering::SeqCst));
            let page = format!(
                "# HELP secret {secret}\n# TYPE vllm:prompt_tokens_total counter\n\
                 vllm:prompt_tokens_total{{engine=\"0\",model_name=\"{secret}\"}} {prompt}\n\
                 vllm:prompt_tokens_total{{engine=\"1\",model_name=\"m\"}} 1000\n\
                 vllm:generation_tokens_total{{engine=\"0\"}} {completion}\nvllm:num_requests_running 1\n"
            );
            Reply::new(200, "text/plain; version=0.0.4", page, End::Keep)
        }
        "/health" => Reply::json(200, "{}"),
        _ => Reply::json(404, "{}"),
    })
}

fn run(lab: &Lab) {
    let output = lab.command(&["run", "suite.yaml", "--json"]).env("LAB_KEY", KEY).output().unwrap();
    let object: Value = serde_json::from_slice(&output.stdout).unwrap();
    let timed = |reason: &Value| ["V2", "V8"].contains(&reason["rule"].as_str().unwrap());
    assert!(object["reasons"].as_array().unwrap().iter().all(timed), "{}", said(&output));
    assert!([0, 10].contains(&code(&output)), "{}", said(&output));
    assert!(!said(&output).contains(KEY), "{}", said(&output));
    lab.assert_sound();
}

fn events(lab: &Lab, what: &str) -> Vec<LoggedEvent> {
    lab.log().events.into_iter().filter(|event| event.what == what).collect()
}

/// Looks into every file of the run and of the reports, unpacked where it is packed; the file that holds the key is the user's.
fn assert_key_nowhere(lab: &Lab) {
    for file in lab.files().iter().filter(|file| !file.ends_with("key.txt")) {
        let bytes = std::fs::read(file).unwrap();
        let packed = file.extension().is_some_and(|end| end == "zst");
        let bytes = if packed { zstd::decode_all(&*bytes).unwrap() } else { bytes };
        assert!(!bytes.windows(KEY.len()).any(|part| part == KEY.as_bytes()), "{}", file.display());
    }
}

/// The pages of one cell, unpacked.
fn pages(lab: &Lab, event: &LoggedEvent) -> String {
    let file = lab.run().join(event.fields["file"].as_str().unwrap());
    String::from_utf8(zstd::decode_all(std::fs::File::open(file).unwrap()).unwrap()).unwrap()
}

#[test]
fn what_a_server_counts_during_a_cell_is_an_event_and_its_pages_are_kept_without_the_key() {
    let count = Arc::new(Count::default());
    let server = counting_server(Arc::clone(&count), KEY, None);
    let lab = Lab::new(&suite(&server.url(), ", api_key_env: LAB_KEY", 2));
    run(&lab);
    let counters = events(&lab, "counters");
    assert_eq!(counters.len(), 2, "one a cell and repeat");
    for event in &counters {
        // Two lanes, one warm-up and two measured requests each; the question of each visit falls outside the cell.
        assert_eq!(
            event.fields["deltas"],
            json!({"completion_tokens": (6 * COMPLETION) as f64, "prompt_tokens": 240.0})
        );
        assert_eq!((&event.fields["restarts"], &event.fields["arm"]), (&json!(0), &json!("base")));
        assert_eq!(event.fields["peaks"], json!({"running": 1.0}));
        let text = pages(&lab, event);
        assert_eq!(text.matches("when=before").count() + text.matches("when=after").count(), 2);
        assert!(text.contains("model_name=\"***\"") && !text.contains(KEY), "{text}");
        // The whole file is a page again: both scrapes are summed.
        let read = of_page(&text);
        assert_eq!(read.reading.bad_lines, 0);
        assert!(read.counters.counters["prompt_tokens"] > 2000.0);
    }
    assert!(events(&lab, "restart").is_empty());
    assert_key_nowhere(&lab);
    // Scrapes never took the connection of a request.
    let received = server.received();
    let chats: Vec<usize> = received.iter().filter(|r| r.method == "POST").map(|r| r.connection).collect();
    let scrapes = received.iter().filter(|r| r.path == "/metrics").map(|r| r.connection);
    assert!(scrapes.skip(2).filter(|connection| chats.contains(connection)).count() <= 1, "{received:?}");
}

#[test]
fn a_server_that_starts_anew_is_a_restart_and_costs_the_difference_of_that_cell() {
    let count = Arc::new(Count::default());
    // Scrapes: the survey before the start, then of each visit the survey, before and after. The fourth is the first "after".
    let server = counting_server(Arc::clone(&count), KEY, Some(3));
    let lab = Lab::new(&suite(&server.url(), ", api_key_file: key.txt", 2));
    std::fs::write(lab.path().join("key.txt"), format!("{KEY}\n")).unwrap();
    run(&lab);
    assert!(server.received().iter().all(|request| request.head.contains(&format!("Bearer {KEY}"))));
    assert_key_nowhere(&lab);
    let restarts = events(&lab, "restart");
    assert_eq!(restarts.len(), 1, "{restarts:?}");
    assert!(restarts[0].fields["seen"].as_str().unwrap().contains("fell from"), "{restarts:?}");
    let warned = events(&lab, "warning")
        .into_iter()
        .filter(|event| event.fields["message"].to_string().contains("started anew during"));
    assert_eq!(warned.count(), 1);
    let counters = events(&lab, "counters");
    assert_eq!((&counters[0].fields["deltas"], &counters[0].fields["restarts"]), (&Value::Null, &json!(1)));
    assert!(counters[1].fields["deltas"].is_object());
}

#[test]
fn a_cell_that_lasts_is_looked_at_meanwhile() {
    let count = Arc::new(Count::default());
    let server = {
        let count = Arc::clone(&count);
        WireServer::start(move |request| match request.path.as_str() {
            "/v1/chat/completions" => {
                let (mut reply, ..) = chat(&request.json(), 1, true);
                // Three requests a lane, one after the other: the cell outlasts the time between two looks.
                if request.json()["max_tokens"] != 1 {
                    reply.parts[0].1 = Duration::from_millis(2200);
                }
                reply
            }
            "/v1/models" => Reply::json(200, r#"{"data":[{"id":"lab-model"}]}"#),
            "/v1/load" => {
                let n = count.scrapes.fetch_add(1, Ordering::SeqCst);
                let counters = json!({"computed_prefill_tokens": 100 * n, "decode_rounds": n});
                let load = json!({"object": "ninfer.load", "uptime_seconds": n, "requests": {"running": 2, "waiting": n % 3}, "counters": counters});
                Reply::json(200, &load.to_string())
            }
            _ => Reply::json(404, "{}"),
        })
    };
    let lab = Lab::new(&suite(&server.url(), "", 1));
    run(&lab);
    let counters = events(&lab, "counters");
    let text = pages(&lab, &counters[0]);
    let during = text.matches("when=during").count();
    assert!(during >= 1, "{text}");
    // Each look counts one further.
    let rounds = counters[0].fields["deltas"]["decode_calls"].as_f64().unwrap();
    assert_eq!(rounds, (during + 1) as f64);
    assert_eq!(counters[0].fields["deltas"]["computed_prompt_tokens"], 100.0 * rounds);
    assert_eq!(counters[0].fields["peaks"]["running"], 2.0);
    assert!(of_page(&text).reading.bad_lines == 0 && text.contains("# /v1/load: {"), "{text}");
}

#[test]
fn a_server_without_counters_has_no_scrapes_and_says_that_restarts_are_not_observable() {
    let server = WireServer::start(|request| match request.path.as_str() {
        "/v1/chat/completions" => chat(&request.json(), 1, true).0,
        "/v1/models" => Reply::json(200, r#"{"data":[{"id":"lab-model"}]}"#),
        _ => Reply::json(404, "{}"),
    });
    let lab = Lab::new(&suite(&server.url(), "", 1));
    run(&lab);
    assert!(events(&lab, "counters").is_empty() && !lab.run().join("scrapes").exists());
    let facts = lab.log().segments[0].open.provenance["target"]["base"]["facts"].clone();
    assert!(facts.as_array().unwrap().contains(&json!(["restarts", "not observable"])), "{facts}");
}

/// Every word is a token of this vocabulary.
const WORDS: &str = r#"{"version":"1.0","truncation":null,"padding":null,"added_tokens":[],"normalizer":null,"pre_tokenizer":{"type":"WhitespaceSplit"},"post_processor":null,"decoder":null,"model":{"type":"WordLevel","vocab":{"word":0,"[UNK]":1},"unk_token":"[UNK]"}}"#;

#[test]
fn tokens_are_counted_here_whatever_a_chunk_holds() {
    for (chunk, with_usage) in [(1, true), (4, true), (4, false)] {
        let server = WireServer::start(move |request| match request.path.as_str() {
            "/v1/chat/completions" => chat(&request.json(), chunk, with_usage).0,
            "/v1/models" => Reply::json(200, r#"{"data":[{"id":"lab-model"}]}"#),
            _ => Reply::json(404, "{}"),
        });
        let lab = Lab::new(&suite(&server.url(), ", tokenizer: words.json", 1));
        std::fs::write(lab.path().join("words.json"), WORDS).unwrap();
        run(&lab);
        for row in lab.log().live_rows() {
            assert_eq!((row.outcome, row.counted_completion_tokens), (Outcome::Ok, Some(8)), "{chunk} a chunk");
            assert_eq!(row.usage_completion_tokens, with_usage.then_some(8));
            assert_eq!(row.usage_mismatch, with_usage.then_some(false));
            assert_eq!(
                (row.first_chunk_tokens, row.first_chunk_tokens_source),
                (Some(chunk as u32), Some(FirstChunkSource::Tokenizer))
            );
            assert_eq!(decode_work(row).map(|work| (work.tokens, work.note)), Some((8.0 - chunk as f64, None)));
            let counted = with_usage.then_some(row.prompt_tokens_planned).flatten();
            assert_eq!((row.counted_prompt_tokens, row.usage_prompt_tokens), (counted, counted));
        }
    }
}

#[test]
fn the_servers_own_tokenizer_counts_where_the_suite_says_so_and_a_usage_that_lies_is_flagged() {
    let server = WireServer::start(|request| match request.path.as_str() {
        "/v1/chat/completions" => {
            let (mut reply, ..) = chat(&request.json(), 2, true);
            for (part, _) in &mut reply.parts {
                *part = String::from_utf8(part.clone())
                    .unwrap()
                    .replace("\"completion_tokens\":8", "\"completion_tokens\":12")
                    .into();
            }
            reply
        }
        "/v1/models" => Reply::json(200, r#"{"data":[{"id":"lab-model"}]}"#),
        "/tokenize" => {
            let words = request.json()["prompt"].as_str().unwrap().split_whitespace().count();
            Reply::json(200, &json!({"count": words}).to_string())
        }
        _ => Reply::json(404, "{}"),
    });
    let lab = Lab::new(&suite(&server.url(), ", tokenizer: server", 1));
    let output = lab.output(&["run", "suite.yaml", "--json"]);
    assert_eq!(code(&output), 10, "{}", said(&output));
    assert!(said(&output).contains("V4"), "{}", said(&output));
    for row in lab.log().live_rows() {
        assert_eq!((row.usage_completion_tokens, row.counted_completion_tokens), (Some(12), Some(8)));
        assert_eq!((row.usage_mismatch, row.first_chunk_tokens), (Some(true), Some(2)));
    }
}

#[test]
fn a_gguf_counts_a_text_as_llama_cpp_does() {
    let Some(path) = crate::real_model::smollm2_path() else { return };
    let counter = TokenCounter::open(path.to_str().unwrap()).unwrap();
    // Written by llama.cpp itself; see the file.
    let golden: Value = serde_json::from_str(include_str!("../fixtures/engine/tokenizer.json")).unwrap();
    let mut compared = 0;
    for row in golden["rows"].as_array().unwrap().iter().filter(|row| row["parse_special"] == false) {
        let ids = row["ids"]["smollm"].as_array().unwrap().len();
        assert_eq!(counter.text(row["text"].as_str().unwrap()), Some(ids as u32), "{}", row["text"]);
        compared += 1;
    }
    assert!(compared >= 7, "{compared} texts");
}

#[test]
fn a_tokenizer_that_is_no_tokenizer_ends_the_run_before_its_start() {
    let server = WireServer::start(|_| Reply::json(200, "{}"));
    let lab = Lab::new(&suite(&server.url(), ", tokenizer: suite.yaml", 1));
    let output = lab.output(&["run", "suite.yaml"]);
    assert_eq!(code(&output), 2, "{}", said(&output));
    assert!(said(&output).contains("suite.yaml cannot be used"), "{}", said(&output));
    assert!(lab.runs().is_empty());
}
