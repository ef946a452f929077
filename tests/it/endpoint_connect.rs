//! Connecting to a server: what is learnt from it, what refuses it, and where its key may not go.
use std::cell::RefCell;

use base64::Engine as _;
use inferlab::record::Outcome;
use inferlab::target::config::Dialect;
use inferlab::target::endpoint::{Endpoint, EndpointError, EndpointSettings, Secret, endpoint_url};
use inferlab::target::{Observation, PromptCount, Target};
use serde_json::Value;

use crate::endpoint_client::{ask, ask_once, block_on, patient, plain};
use crate::wire::{End, Received, Reply, WireServer, shared_cases};

#[test]
fn a_server_that_closes_after_each_stream_without_a_word_is_asked_on_new_connections() {
    let server = WireServer::start(|request| match request.method.as_str() {
        "GET" => Reply::json(200, "{}"),
        _ => Reply { end: End::KeepThenClose, ..Reply::sse(plain()) },
    });
    block_on(async {
        let endpoint = Endpoint::connect(patient(&server.url())).await.unwrap();
        assert!(endpoint.facts().facts.iter().any(|(name, _)| name == "connection"));
        for n in 0..50 {
            let row = ask(&endpoint).await.record;
            // The first uses the connection of the last question of the probe.
            assert_eq!((row.outcome, row.new_connection), (Outcome::Ok, Some(n > 0)), "{:?}", row.error);
        }
    });
    let last = server.received().pop().unwrap();
    assert!(last.head.to_ascii_lowercase().contains("connection: close"), "{}", last.head);
}

#[test]
fn a_server_that_keeps_its_connections_is_asked_on_one() {
    let server = WireServer::start(|request| match request.method.as_str() {
        "GET" => Reply::json(200, "{}"),
        _ => Reply::sse(plain()),
    });
    block_on(async {
        let endpoint = Endpoint::connect(patient(&server.url())).await.unwrap();
        for _ in 0..5 {
            assert_eq!(ask(&endpoint).await.record.new_connection, Some(false));
        }
    });
    assert!(server.received().iter().all(|request| request.connection == 0));
}

/// A llama.cpp server as far as the probe asks, with answers that repeat the Authorization header wherever they can.
fn llama_cpp(echo: &'static str) -> WireServer {
    WireServer::start(move |request| match request.path.as_str() {
        "/v1/models" => Reply::json(
            200,
            &format!(
                r#"{{"data":[{{"id":"lab-model","aliases":["{echo}"],"meta":{{"n_ctx_train":8192,"n_vocab":49152}}}}]}}"#
            ),
        ),
        "/health" => Reply::json(200, r#"{"status":"ok"}"#),
        "/props" => Reply::json(
            200,
            &format!(
                r#"{{"build_info":"b7 {echo}","total_slots":2,"model_path":"/srv/{echo}.gguf","default_generation_settings":{{"n_ctx":2048}},"chat_template":"x"}}"#
            ),
        ),
        _ if request.json()["max_tokens"] == 1 => Reply::sse(concat!(
            "data: {\"choices\":[{\"delta\":{\"content\":\"a\"},\"finish_reason\":\"length\"}],",
            "\"usage\":{\"prompt_tokens\":46,\"completion_tokens\":1}}\n\ndata: [DONE]\n\n"
        )),
        _ => Reply::sse(format!(
            "data: {{\"choices\":[{{\"delta\":{{\"content\":\"I am {}\",\"reasoning\":\"{echo}\",\"tool_calls\":[{{\"function\":{{\"name\":\"f\",\"arguments\":\"{echo}\"}}}}]}}}}]}}\n\ndata: {{\"error\":\"{echo}\"}}\n\n",
            &echo
        )),
    })
}

#[test]
fn connecting_tells_what_a_llama_cpp_server_is() {
    let server = llama_cpp("x");
    let mut settings = patient(&server.url());
    settings.concurrency = 4;
    let endpoint = block_on(Endpoint::connect(settings)).unwrap();
    let facts = endpoint.facts();
    assert_eq!(
        (facts.name.as_str(), facts.version.as_str(), facts.model.as_str()),
        ("llama.cpp b7 x", "b7 x", "lab-model")
    );
    assert_eq!((facts.effective_context, facts.effective_concurrency), (Some(2048), Some(2)));
    assert_eq!((endpoint.dialect(), endpoint.overhead_tokens()), (Dialect::LlamaCpp, Some(30)));
    let fact = |name: &str| facts.facts.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str());
    assert_eq!(
        (fact("template_and_prefix_tokens"), fact("trained_context"), fact("model_file")),
        (Some("30"), Some("8192"), Some("x.gguf"))
    );
    assert!(endpoint.warnings().iter().any(|w| w.contains("decodes 2 sequences")), "{:?}", endpoint.warnings());
    assert_eq!(endpoint.count_prompt(&[]), PromptCount::Unknown);
    // One chat request and no more; it does not use the cache.
    let chats: Vec<Received> = server.received().into_iter().filter(|r| r.method == "POST").collect();
    assert_eq!(chats.len(), 1);
    assert_eq!(chats[0].json()["cache_prompt"], false);
}

#[test]
fn a_model_that_is_not_listed_is_a_warning_and_a_plain_server_needs_no_props() {
    let server = WireServer::start(|request| match request.path.as_str() {
        "/v1/models" => Reply::json(200, r#"{"data":[{"id":"other","max_model_len":512}]}"#),
        "/v1/chat/completions" => Reply::sse(plain()),
        _ => Reply::json(404, "{}"),
    });
    let endpoint = block_on(Endpoint::connect(patient(&server.url()))).unwrap();
    assert!(
        endpoint.warnings().iter().any(|w| w.contains("lab-model") && w.contains("other")),
        "{:?}",
        endpoint.warnings()
    );
    assert_eq!((endpoint.dialect(), endpoint.facts().effective_context), (Dialect::Openai, Some(512)));
    // This one counts 11 prompt tokens for 16 words: no overhead can be told from that.
    assert_eq!(endpoint.overhead_tokens(), None);
}

#[test]
fn a_target_that_cannot_be_used_is_an_error_before_the_start() {
    let connect = |url: &str| block_on(Endpoint::connect(patient(url))).unwrap_err();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    assert!(matches!(connect(&format!("http://127.0.0.1:{port}/v1")), EndpointError::Unreachable { .. }));

    let loading = WireServer::replay(Reply::json(503, r#"{"error":{"message":"Loading model"}}"#));
    assert!(matches!(connect(&loading.url()), EndpointError::NotReady { said, .. } if said.contains("Loading model")));

    let locked = WireServer::replay(Reply::json(401, r#"{"error":"who are you"}"#));
    assert!(matches!(connect(&locked.url()), EndpointError::Refused { status: 401, .. }));

    let elsewhere = WireServer::replay(Reply::json(404, "not here"));
    assert!(
        matches!(connect(&elsewhere.url()), EndpointError::Refused { status: 404, said, .. } if said == "not here")
    );

    let empty = WireServer::replay(Reply::sse(""));
    assert!(matches!(connect(&empty.url()), EndpointError::NoAnswer { outcome: "bad_payload", .. }));

    let mut settings = patient("http://127.0.0.1:1/v1");
    settings.concurrency = u32::MAX;
    assert!(matches!(block_on(Endpoint::connect(settings)), Err(EndpointError::FileLimit { .. })));
    assert!(matches!(Endpoint::attach(patient("127.0.0.1:1/v1")), Err(EndpointError::Url(_))));
}

#[test]
fn no_byte_of_the_key_leaves_the_endpoint() {
    const KEY: &str = "sk-TESTONLY-0123456789/abcdef";
    let said = RefCell::new(String::new());
    let keep = |text: String| said.borrow_mut().push_str(&(text + "\n"));
    let settings = |url: &str| {
        let mut settings = patient(url);
        settings.api_key = Some(Secret::new(KEY));
        settings
    };
    let observe = |seen: &Observation| {
        keep(serde_json::to_string(&seen.record).unwrap());
        keep(serde_json::to_string(&seen.text).unwrap());
        keep(format!("{seen:?}"));
    };

    let server = llama_cpp(KEY);
    block_on(async {
        let endpoint = Endpoint::connect(settings(&server.url())).await.unwrap();
        keep(serde_json::to_string(endpoint.facts()).unwrap());
        keep(format!("{endpoint:?} {:?}", endpoint.warnings()));
        let seen = ask(&endpoint).await;
        assert_eq!((seen.record.outcome, seen.text.content.as_str()), (Outcome::ServerErrorStream, "I am ***"));
        observe(&seen);
    });
    assert!(server.received().iter().all(|r| r.head.contains(KEY)), "the key was sent");

    // Error bodies that show the key in every form, also across the cut at 2 KiB.
    let base64 = base64::engine::general_purpose::STANDARD.encode(KEY);
    let url_form = KEY.replace('/', "%2F");
    let escaped = KEY.replace('/', "\\/");
    let body = format!("{KEY} {base64} {url_form} {escaped} {}{KEY}", "x".repeat(1900));
    for reply in [
        Reply::new(401, "text/plain", body.clone(), End::Keep),
        Reply::new(503, "text/plain", body.clone(), End::Keep),
        Reply::new(200, "text/plain", body.clone(), End::Keep),
    ] {
        let server = WireServer::replay(reply);
        observe(&ask_once(settings(&server.url())));
        let error = block_on(Endpoint::connect(settings(&server.url()))).unwrap_err();
        keep(format!("{error} {error:?} {:?}", miette::Report::new(error_again(&server, settings(&server.url())))));
    }
    keep(format!("{:?}", settings("http://h/v1")));
    let unusable =
        Endpoint::attach(EndpointSettings { api_key: Some(Secret::new(format!("{KEY}\n"))), ..patient("http://h/v1") });
    keep(format!("{:?}", unusable.unwrap_err()));

    let said = said.borrow();
    for form in [KEY, base64.trim_end_matches('='), &url_form, &escaped, "sk-TESTONLY", "0123456789"] {
        assert!(!said.contains(form), "`{form}` is in the output");
    }
    assert!(said.contains("***"));
}

fn error_again(server: &WireServer, settings: EndpointSettings) -> EndpointError {
    assert!(!server.received().is_empty());
    block_on(Endpoint::connect(settings)).unwrap_err()
}

#[test]
fn the_url_table_from_public_reports_holds() {
    let Some(folder) = shared_cases() else { return };
    let table = std::fs::read_to_string(folder.join("B47.urls.jsonl")).unwrap();
    for line in table.lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let got = endpoint_url(case["base"].as_str().unwrap()).map(|url| url.to_string());
        match case["url"].as_str() {
            Some(want) => assert_eq!(got.as_deref(), Ok(want), "{line}"),
            None => assert!(got.is_err(), "{line}: {got:?}"),
        }
    }
    assert!(table.lines().count() >= 5);
}
