//! Servers as they show themselves, and `inferlab probe`, which tells it.
use inferlab::target::Target;
use inferlab::target::config::{Api, Dialect, Thinking};
use inferlab::target::endpoint::{Endpoint, EndpointError, EndpointSettings};
use serde_json::{Value, json};

use crate::endpoint_client::{block_on, patient};
use crate::run_lab::{Lab, code, said, stdout};
use crate::wire::{Received, Reply, WireServer};

/// A chat stream of one token with these members in its last chunk.
fn one_token(first: Value, last: Value) -> Reply {
    let mut first = first;
    first["choices"] = json!([{"index": 0, "delta": {"content": " the"}, "finish_reason": null}]);
    let mut last = last;
    last["choices"] = json!([]);
    let end = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]});
    Reply::sse(format!("data: {first}\n\ndata: {end}\n\ndata: {last}\n\ndata: [DONE]\n\n"))
}

fn usage(prompt: u32, completion: u32) -> Value {
    json!({"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion})
}

/// Answers like one of the servers, as `facts/engines.md` §3.3 and §13 describe their pages.
pub fn like(dialect: Dialect) -> impl Fn(&Received) -> Reply + Send + Sync + 'static {
    move |request| {
        let page = |value: Value| Reply::json(200, &value.to_string());
        let text = |text: &str| Reply::new(200, "text/plain; version=0.0.4", text, crate::wire::End::Keep);
        match (dialect, request.path.as_str()) {
            (_, "/health") => page(json!({"status": "ok"})),
            (Dialect::Vllm, "/v1/models") => {
                page(json!({"data": [{"id": "lab-model", "owned_by": "vllm", "max_model_len": 4096}]}))
            }
            (Dialect::Vllm, "/version") => page(json!({"version": "0.11.0"})),
            (Dialect::Vllm, "/metrics") => text(
                "vllm:cache_config_info{block_size=\"16\",cache_dtype=\"fp8\"} 1.0\nvllm:num_requests_running{engine=\"0\"} 0.0\nvllm:prompt_tokens_total{engine=\"0\"} 5.0\n",
            ),
            (Dialect::Vllm, "/v1/chat/completions") => {
                one_token(json!({"usage": usage(20, 1)}), json!({"usage": usage(20, 1)}))
            }
            (Dialect::Sglang, "/v1/models") => page(json!({"data": [{"id": "lab-model", "owned_by": "sglang"}]})),
            (Dialect::Sglang, "/get_server_info") => page(json!({
                "internal_states": [{}], "version": "0.5.6", "context_length": 2048, "max_running_requests": 3,
                "kv_cache_dtype": "auto", "api_key": "sk-servers-own"
            })),
            (Dialect::Sglang, "/v1/chat/completions") => one_token(json!({}), json!({"usage": usage(20, 1)})),
            (Dialect::Ninfer, "/v1/models") => page(json!({"data": [{"id": "lab-model", "max_model_len": 65536}]})),
            (Dialect::Ninfer, "/v1/load") => page(json!({
                "object": "ninfer.load", "uptime_seconds": 8.5, "capacity": {"max_concurrency": 4, "max_context": 65536},
                "counters": {"computed_prefill_tokens": 100, "committed_decode_tokens": 50}
            })),
            (Dialect::Ninfer, "/v1/chat/completions") => {
                one_token(json!({}), json!({"usage": usage(20, 1), "timings": {"prompt_n": 20, "prompt_ms": 2.0}}))
            }
            (Dialect::Openai, "/v1/models") => page(json!({"data": [{"id": "lab-model"}]})),
            (Dialect::Openai, "/v1/chat/completions") => one_token(json!({}), json!({})),
            _ => Reply::json(404, "{}"),
        }
    }
}

#[test]
fn each_server_is_known_by_its_pages_and_spoken_to_in_its_own_way() {
    for (dialect, version, context, slots, kv_dtype) in [
        (Dialect::Vllm, "0.11.0", Some(4096), None, Some("fp8")),
        (Dialect::Sglang, "0.5.6", Some(2048), Some(3), Some("auto")),
        (Dialect::Ninfer, "not stated", Some(65536), Some(4), None),
        (Dialect::Openai, "not stated", None, None, None),
    ] {
        let server = WireServer::start(like(dialect));
        let settings = EndpointSettings { chunk_counts: true, ..patient(&server.url()) };
        let endpoint = block_on(Endpoint::connect(settings)).unwrap();
        let facts = endpoint.facts();
        assert_eq!((endpoint.dialect(), facts.version.as_str()), (dialect, version));
        assert_eq!((facts.effective_context, facts.effective_concurrency), (context, slots), "{dialect:?}");
        assert_eq!(facts.effective_kv_dtype.as_deref(), kv_dtype);
        let fact = |name: &str| facts.facts.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str());
        let counted = matches!(dialect, Dialect::Vllm | Dialect::Ninfer);
        assert_eq!(fact("restarts"), Some(if counted { "observable" } else { "not observable" }), "{dialect:?}");
        assert_eq!(endpoint.scraper().is_some(), counted);
        assert_eq!(fact("dialect_seen").is_some(), dialect != Dialect::Openai);
        assert!(!format!("{facts:?}").contains("sk-servers-own"), "{facts:?}");
        let asked: Vec<Value> = server.received().iter().filter(|r| r.method == "POST").map(Received::json).collect();
        let continuous = asked[0]["stream_options"].get("continuous_usage_stats").is_some();
        assert_eq!(continuous, matches!(dialect, Dialect::Vllm | Dialect::Sglang));
    }
}

#[test]
fn a_named_dialect_is_kept_and_a_server_that_shows_another_is_a_warning() {
    let server = WireServer::start(like(Dialect::Vllm));
    let connect =
        |dialect| block_on(Endpoint::connect(EndpointSettings { dialect, ..patient(&server.url()) })).unwrap();
    let named = connect(Dialect::Sglang);
    assert_eq!(named.dialect(), Dialect::Sglang);
    assert!(named.warnings().iter().any(|w| w.contains("sglang") && w.contains("vllm")), "{:?}", named.warnings());
    assert!(connect(Dialect::Vllm).warnings().is_empty());
    let plain = WireServer::start(like(Dialect::Openai));
    let settings = EndpointSettings { dialect: Dialect::Ninfer, ..patient(&plain.url()) };
    let unseen = block_on(Endpoint::connect(settings)).unwrap();
    assert!(unseen.warnings().iter().any(|w| w.contains("none of its pages")), "{:?}", unseen.warnings());
}

#[test]
fn thinking_is_asked_in_the_dialect_that_was_found_or_refused_before_a_token_is_asked() {
    let server = WireServer::start(like(Dialect::Ninfer));
    let settings = EndpointSettings { thinking: Thinking::Off, ..patient(&server.url()) };
    block_on(Endpoint::connect(settings)).unwrap();
    let posted = |server: &WireServer| server.received().into_iter().filter(|r| r.method == "POST").collect::<Vec<_>>();
    assert_eq!(posted(&server)[0].json()["enable_thinking"], false);

    // A budget may be dropped in silence, and then the reader must know.
    let sglang = WireServer::start(like(Dialect::Sglang));
    let settings = EndpointSettings { thinking: Thinking::Budget(300), ..patient(&sglang.url()) };
    let endpoint = block_on(Endpoint::connect(settings)).unwrap();
    assert!(endpoint.warnings().iter().any(|w| w.contains("--enable-strict-thinking")), "{:?}", endpoint.warnings());
    assert_eq!(posted(&sglang)[0].json()["custom_params"]["thinking_budget"], 300);

    let plain = WireServer::start(like(Dialect::Openai));
    let settings = EndpointSettings { thinking: Thinking::Off, ..patient(&plain.url()) };
    let error = block_on(Endpoint::connect(settings)).unwrap_err();
    assert!(matches!(&error, EndpointError::Thinking { dialect: "openai", .. }), "{error}");
    assert!(posted(&plain).is_empty());
}

#[test]
fn the_cache_is_emptied_where_the_server_has_a_way() {
    let reset = |dialect: Dialect, status: u16| {
        let pages = like(dialect);
        let server = WireServer::start(move |request| match request.path.as_str() {
            "/flush_cache" | "/reset_prefix_cache" => Reply::json(status, r#"{"error":"busy"}"#),
            _ => pages(request),
        });
        block_on(async {
            let endpoint = Endpoint::connect(patient(&server.url())).await.unwrap();
            endpoint.reset_cache().await
        })
    };
    assert_eq!(reset(Dialect::Sglang, 200), Some(Ok(())));
    assert!(reset(Dialect::Vllm, 400).unwrap().unwrap_err().contains("busy"));
    assert_eq!(reset(Dialect::Ninfer, 200), None);
}

#[test]
fn a_key_goes_along_as_each_interface_wants_it() {
    let server = WireServer::start(like(Dialect::Openai));
    let mut settings = EndpointSettings { api: Api::Messages, ..patient(&server.url()) };
    settings.api_key = Some(inferlab::target::endpoint::Secret::new("sk-made-up-4711"));
    // This server has no such interface.
    assert!(matches!(block_on(Endpoint::connect(settings)), Err(EndpointError::Refused { status: 404, .. })));
    let posted = server.received().into_iter().find(|r| r.method == "POST").unwrap();
    assert_eq!(posted.path, "/v1/messages");
    let head = posted.head.to_ascii_lowercase();
    for header in ["authorization: bearer sk-made-up-4711", "x-api-key: sk-made-up-4711", "anthropic-version: "] {
        assert!(head.contains(header), "{head}");
    }
}

#[test]
fn probe_tells_what_a_server_is_and_what_it_can_be_measured_in() {
    let lab = Lab::new("");
    let server = WireServer::start(like(Dialect::Vllm));
    let output = lab.output(&["probe", &server.url()]);
    assert_eq!(code(&output), 0, "{}", said(&output));
    let text = stdout(&output);
    for words in [
        "vllm (/metrics: counters vllm:…; /v1/models: owned_by vllm)",
        "0.11.0",
        "4096 tokens a sequence",
        "usage yes, usage in every chunk yes, timings no",
        "workload   yes  decode_scaling",
        "load       NO   trace  not in this version",
        "thinking   yes  budget",
        "figure     NO   cache hits",
    ] {
        assert!(text.contains(words), "{words}\n{text}");
    }
    let output = lab.output(&["probe", &server.url(), "--json"]);
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&found["survey"]["dialect"], &found["model"], &found["exit"]),
        (&json!("vllm"), &json!("lab-model"), &json!(0))
    );
    assert_eq!(found["answer"]["fields"]["usage_per_chunk"], true);
}

#[test]
fn probe_of_a_server_that_is_away_or_gives_no_token_exits_4() {
    let lab = Lab::new("");
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let output = lab.output(&["probe", &format!("http://127.0.0.1:{port}/v1")]);
    assert_eq!(code(&output), 4, "{}", said(&output));
    let server = WireServer::start(|request| match request.method.as_str() {
        "GET" => Reply::json(404, "{}"),
        _ => Reply::json(500, r#"{"error":{"message":"no model"}}"#),
    });
    let output = lab.output(&["probe", &server.url(), "--model", "m"]);
    assert_eq!(code(&output), 4, "{}", said(&output));
    assert!(
        stdout(&output).contains("http_error (status 500): {\"error\":{\"message\":\"no model\"}}"),
        "{}",
        said(&output)
    );
    assert_eq!(code(&lab.output(&["probe", "127.0.0.1:1"])), 2);
}

#[test]
fn no_proxy_stands_between_us_and_this_machine() {
    let proxy = WireServer::replay(Reply::json(502, "{}"));
    let server = WireServer::start(like(Dialect::Openai));
    let lab = Lab::new("");
    let mut command = lab.command(&["probe", &server.url()]);
    for variable in ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"] {
        command.env(variable, format!("http://{}", proxy.address));
    }
    let output = command.output().unwrap();
    assert_eq!(code(&output), 0, "{}", said(&output));
    assert!(proxy.received().is_empty());
}

#[test]
fn hostile_words_of_a_probed_server_are_inert() {
    const HOSTILE: &str = "a\u{1b}[2J\u{1b}]0;t\u{7}\u{9b}31m\u{202e}b";
    let server = WireServer::start(|request| {
        let page = |value: Value| Reply::json(200, &value.to_string());
        match request.path.as_str() {
            "/v1/models" => page(json!({"data": [{"id": HOSTILE, "max_model_len": 9}]})),
            "/props" => page(json!({"build_info": HOSTILE, "model_path": HOSTILE})),
            "/v1/chat/completions" => Reply::json(400, &json!({"error": {"message": HOSTILE}}).to_string()),
            _ => Reply::json(404, HOSTILE),
        }
    });
    let lab = Lab::new("");
    for arguments in [vec!["probe"], vec!["probe", "--json"]] {
        let url = server.url();
        let output = lab.output(&[arguments.as_slice(), &[url.as_str()]].concat());
        let hostile = |c: char| c.is_control() && c != '\n' || ('\u{202a}'..='\u{202e}').contains(&c);
        assert!(!said(&output).contains(hostile), "{:?}", said(&output));
        assert_eq!(code(&output), 4);
    }
}
