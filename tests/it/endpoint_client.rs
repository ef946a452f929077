//! The endpoint over real sockets: outcomes, deadlines, connections, keys.
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use inferlab::record::Outcome;
use inferlab::request::Prompt;
use inferlab::target::endpoint::{Endpoint, EndpointSettings, Secret, Timeouts};
use inferlab::target::{Observation, Target};
use inferlab::units::Clock;
use serde_json::Value;

use crate::endpoint_stream::{api_of, check, nothing_seen, request};
use crate::wire::{End, Received, Reply, WireServer, fixtures, shared_cases};

pub const MS: fn(u64) -> Duration = Duration::from_millis;

pub fn block_on<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, future)
}

/// Deadlines that no test reaches unless it is about them.
pub fn patient(url: &str) -> EndpointSettings {
    let s = Duration::from_secs;
    let timeouts = Timeouts { connect: s(60), first_byte: s(60), idle: s(60), total: s(120) };
    EndpointSettings { timeouts, ..EndpointSettings::new(url, "lab-model") }
}

fn with(url: &str, change: impl FnOnce(&mut Timeouts)) -> EndpointSettings {
    let mut settings = patient(url);
    change(&mut settings.timeouts);
    settings
}

pub async fn ask(endpoint: &Endpoint) -> Observation {
    let mut seen = nothing_seen();
    endpoint.submit(&request(0), &Clock::start(), &mut seen).await;
    seen
}

pub fn ask_once(settings: EndpointSettings) -> Observation {
    let endpoint = Endpoint::attach(settings).unwrap();
    block_on(ask(&endpoint))
}

fn replay(reply: Reply) -> (Observation, usize) {
    let server = WireServer::replay(reply);
    let seen = ask_once(patient(&server.url()));
    (seen, server.received().len())
}

pub fn plain() -> Vec<u8> {
    std::fs::read(fixtures().join("plain.sse")).unwrap()
}

fn wire(name: &str) -> Reply {
    Reply::load(&fixtures().join(name))
}

#[test]
fn every_stream_case_gives_its_stated_outcome_over_a_socket() {
    let text = std::fs::read_to_string(fixtures().join("expect.jsonl")).unwrap();
    block_on(async {
        for line in text.lines() {
            let expect: Value = serde_json::from_str(line).unwrap();
            let file = expect["file"].as_str().unwrap();
            let mut reply = wire(file);
            reply.end = End::Keep;
            let server = WireServer::replay(reply);
            let settings = EndpointSettings { api: api_of(&expect), ..patient(&server.url()) };
            let seen = ask(&Endpoint::attach(settings).unwrap()).await;
            check(file, &expect, &seen);
            assert_eq!((seen.record.http_status, seen.record.new_connection), (Some(200), Some(true)), "{file}");
        }
    });
}

#[test]
fn every_wire_case_from_public_reports_gives_its_stated_outcome_over_a_socket() {
    let Some(folder) = shared_cases() else { return };
    let mut ran = 0;
    for line in std::fs::read_to_string(folder.join("EXPECT.jsonl")).unwrap().lines() {
        let mut expect: Value = serde_json::from_str(line).unwrap();
        for file in expect["files"].as_array().unwrap().clone() {
            let file = file.as_str().unwrap();
            if !file.ends_with(".wire.json") {
                continue;
            }
            let reply = Reply::load(&folder.join(file));
            // Short where silence is the case, long where the answer must not depend on it.
            let settings = |url: &str| match reply.end {
                End::Hang if expect["outcome"] == "ok" => patient(url),
                End::Hang | End::HangBeforeHeaders => with(url, |t| {
                    t.first_byte = MS(300);
                    t.idle = MS(500);
                }),
                _ => patient(url),
            };
            let server = WireServer::replay(reply.clone());
            let seen = ask_once(settings(&server.url()));
            let attempts = expect.as_object_mut().unwrap().remove("attempts");
            if let Some(attempts) = attempts {
                assert_eq!(server.received().len() as u64, attempts.as_u64().unwrap(), "{file}: attempts");
            }
            if let Some(least) = expect["ttft_ms_min"].as_i64() {
                let row = &seen.record;
                let ttft = (row.first_token_ns.unwrap().0 - row.sent_ns.unwrap().0) / 1_000_000;
                assert!(ttft >= least, "{file}: {ttft} ms");
                assert!(row.first_byte_ns < row.first_token_ns, "{file}");
            }
            check(file, &expect, &seen);
            ran += 1;
        }
    }
    assert!(ran >= 10, "only {ran} wire cases found");
}

#[test]
fn each_deadline_has_its_own_word() {
    let short = MS(150);
    let cases = [
        ("silence.wire.json", "timeout_first_byte"),
        ("headers_then_silence.wire.json", "timeout_first_byte"),
        ("stall_after_two.wire.json", "timeout_idle"),
        ("keepalives_for_ever.wire.json", "timeout_idle"),
        ("drip.wire.json", "timeout_total"),
    ];
    for (file, word) in cases {
        let server = WireServer::replay(wire(file));
        let seen = ask_once(with(&server.url(), |t| match word {
            "timeout_first_byte" => t.first_byte = short,
            "timeout_idle" => t.idle = short,
            _ => t.total = 3 * short,
        }));
        let row = &seen.record;
        assert_eq!(row.outcome.word(), word, "{file}: {row:?}");
        assert!(row.error.is_some() && row.end_ns > row.sent_ns, "{file}: {row:?}");
        let waited = (row.end_ns.unwrap().0 - row.sent_ns.unwrap().0) / 1_000_000;
        assert!(waited >= 150, "{file}: gave up after {waited} ms");
    }
}

#[test]
fn a_total_deadline_before_the_first_byte_is_called_total() {
    let server = WireServer::replay(wire("silence.wire.json"));
    let seen = ask_once(with(&server.url(), |t| t.total = MS(100)));
    assert_eq!(seen.record.outcome, Outcome::TimeoutTotal);
}

#[test]
fn a_slow_drip_of_tokens_is_not_idle() {
    let mut reply = wire("drip.wire.json");
    reply.parts.truncate(12);
    let rest = plain();
    reply.parts.push((rest, MS(60)));
    reply.end = End::Eof;
    let server = WireServer::replay(reply);
    // 13 × 60 ms in all, far more than the idle deadline.
    let seen = ask_once(with(&server.url(), |t| t.idle = MS(700)));
    assert_eq!((seen.record.outcome, seen.record.chunks), (Outcome::Ok, Some(15)));
}

#[test]
fn tokens_before_a_stall_stay_in_the_row() {
    let server = WireServer::replay(wire("stall_after_two.wire.json"));
    let seen = ask_once(with(&server.url(), |t| t.idle = MS(100)));
    assert_eq!((seen.text.content.as_str(), seen.record.chunks), ("One fine ", Some(2)));
    assert_eq!(seen.record.usage_completion_tokens, None);
}

#[test]
fn a_reset_a_cut_below_http_and_a_clean_close_are_told_apart() {
    let two = || {
        let mut reply = wire("reset_after_two.wire.json");
        reply.parts.truncate(1);
        reply
    };
    let outcome = |reply: Reply| replay(reply).0.record.outcome;
    assert_eq!(outcome(wire("reset_after_two.wire.json")), Outcome::Reset);
    assert_eq!(outcome(Reply { end: End::CutChunked, ..two() }), Outcome::Reset);
    assert_eq!(outcome(Reply { end: End::CutHeaders, ..two() }), Outcome::Reset);
    assert_eq!(outcome(Reply { end: End::Eof, ..two() }), Outcome::Truncated);
    assert_eq!(outcome(Reply { end: End::Keep, ..two() }), Outcome::Truncated);
}

#[test]
fn a_stream_cut_at_any_of_twenty_places_is_truncated_or_reset_and_keeps_its_text() {
    let body = plain();
    let finish_at = body.windows(4).position(|w| w == b"stop").unwrap();
    block_on(async {
        for n in 1..=20 {
            let cut = finish_at * n / 21;
            for (end, want) in [(End::Rst, Outcome::Reset), (End::Eof, Outcome::Truncated)] {
                let mut reply = Reply::new(200, "text/event-stream", &body[..cut], end);
                // The bytes before a reset are only sure to arrive if they have time to.
                reply.parts.push((Vec::new(), MS(30)));
                let server = WireServer::replay(reply);
                let seen = ask(&Endpoint::attach(patient(&server.url())).unwrap()).await;
                // A cut before one whole event leaves no usable one.
                let want = match (want, seen.record.chunks) {
                    (Outcome::Truncated, None) => Outcome::BadPayload,
                    _ => want,
                };
                assert_eq!(seen.record.outcome, want, "cut at {cut} by {end:?}: {:?}", seen.record.error);
                assert!("One fine día ☀".starts_with(seen.text.content.as_str()), "{}", seen.text.content);
                assert_eq!(server.received().len(), 1, "a request was sent twice");
            }
        }
    });
}

#[test]
fn the_answer_is_complete_at_done_although_the_socket_stays_open() {
    let (seen, _) = replay(wire("done_then_silence.wire.json"));
    let row = &seen.record;
    assert_eq!((row.outcome, row.done_seen), (Outcome::Ok, Some(true)));
    assert_eq!(row.end_ns, row.last_token_ns, "all came in one read, so the end is the time of that read");
}

#[test]
fn a_status_outside_2xx_is_an_http_error_with_its_body_and_one_attempt() {
    for (file, status, said) in [
        ("busy_503.wire.json", 503, "busy"),
        ("busy_503.wire.json", 503, "retry-after: 2"),
        ("gateway_502.wire.json", 502, "Bad Gateway"),
        ("limit_429.wire.json", 429, "429"),
        ("moved_307.wire.json", 307, "redirects are not followed"),
    ] {
        let (seen, attempts) = replay(wire(file));
        let row = &seen.record;
        assert_eq!((row.outcome, row.http_status, attempts), (Outcome::HttpError, Some(status), 1), "{file}");
        assert!(row.error.as_ref().unwrap().contains(said), "{file}: {:?}", row.error);
        assert_eq!((row.first_token_ns, row.chunks, row.finish), (None, None, None), "{file}");
    }
}

#[test]
fn an_error_body_is_kept_to_2_kib_at_a_whole_character() {
    let (seen, _) = replay(Reply::new(500, "text/plain", "世".repeat(40_000), End::Eof));
    let said = seen.record.error.unwrap();
    assert!((2046..=2048).contains(&said.len()), "{}", said.len());
    assert!(said.chars().all(|c| c == '世'));
}

#[test]
fn a_stalled_error_body_is_still_an_http_error() {
    let server = WireServer::replay(Reply::new(500, "text/plain", "broken", End::Hang));
    let seen = ask_once(with(&server.url(), |t| t.idle = MS(100)));
    assert_eq!((seen.record.outcome, seen.record.error.as_deref()), (Outcome::HttpError, Some("broken")));
}

#[test]
fn a_body_that_cannot_be_an_answer_is_a_bad_payload() {
    let outcome = |reply: Reply| replay(reply).0.record.outcome;
    assert_eq!(outcome(wire("gzip.wire.json")), Outcome::BadPayload);
    assert_eq!(outcome(Reply::new(200, "text/html", "<html>sign in</html>", End::Keep)), Outcome::BadPayload);
    assert_eq!(outcome(Reply::new(204, "text/event-stream", "", End::Eof)), Outcome::BadPayload);
    let line = format!("data: {}", "a".repeat(10 << 20));
    assert_eq!(outcome(Reply::new(200, "text/event-stream", line, End::Hang)), Outcome::BadPayload);
}

#[test]
fn an_address_where_nobody_listens_is_connect_failed() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    for url in [format!("http://127.0.0.1:{port}/v1"), "http://no-such-host.invalid/v1".to_owned()] {
        let seen = ask_once(patient(&url));
        assert_eq!(seen.record.outcome, Outcome::ConnectFailed, "{url}: {:?}", seen.record.error);
        assert!(seen.record.error.as_ref().is_some_and(|e| !e.is_empty()));
        assert_eq!((seen.record.http_status, seen.record.headers_ns, seen.record.new_connection), (None, None, None));
    }
}

#[test]
fn tls_to_a_plain_port_is_connect_failed() {
    let server = WireServer::replay(Reply::sse(plain()));
    let seen = ask_once(patient(&server.url().replace("http:", "https:")));
    assert_eq!(seen.record.outcome, Outcome::ConnectFailed, "{:?}", seen.record.error);
}

#[test]
fn a_server_whose_queue_is_full_is_a_connect_timeout() {
    block_on(async {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(1).unwrap();
        let address = listener.local_addr().unwrap();
        // Nobody accepts: once the queue is full, the kernel drops every further SYN.
        let mut waiting = Vec::new();
        while let Ok(connection) = tokio::time::timeout(MS(300), tokio::net::TcpStream::connect(address)).await {
            waiting.push(connection.unwrap());
            assert!(waiting.len() < 64, "the queue never fills on this system");
        }
        let endpoint = Endpoint::attach(with(&format!("http://{address}/v1"), |t| t.connect = MS(200))).unwrap();
        let seen = ask(&endpoint).await;
        assert_eq!(seen.record.outcome, Outcome::TimeoutConnect, "{:?}", seen.record.error);
    });
}

#[test]
fn the_first_byte_deadline_does_not_run_while_the_connection_is_being_opened() {
    block_on(async {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(1).unwrap();
        let address = listener.local_addr().unwrap();
        let mut waiting = Vec::new();
        while let Ok(connection) = tokio::time::timeout(MS(300), tokio::net::TcpStream::connect(address)).await {
            waiting.push(connection.unwrap());
            assert!(waiting.len() < 64, "the queue never fills on this system");
        }
        let endpoint = Endpoint::attach(with(&format!("http://{address}/v1"), |t| {
            t.connect = MS(400);
            t.first_byte = MS(50);
        }));
        assert_eq!(ask(&endpoint.unwrap()).await.record.outcome, Outcome::TimeoutConnect);
    });
}

#[test]
fn a_connection_is_used_again_and_the_row_says_so() {
    let server = WireServer::replay(Reply::sse(plain()));
    let endpoint = Endpoint::attach(patient(&server.url())).unwrap();
    let new: Vec<Option<bool>> = block_on(async {
        let mut new = Vec::new();
        for _ in 0..4 {
            new.push(ask(&endpoint).await.record.new_connection);
        }
        new
    });
    assert_eq!(new, [Some(true), Some(false), Some(false), Some(false)]);
    let used: Vec<usize> = server.received().iter().map(|r| r.connection).collect();
    assert_eq!(used, [0, 0, 0, 0]);
}

#[test]
fn a_request_dropped_on_the_way_leaves_a_cancelled_row_with_what_was_seen() {
    let server = WireServer::replay(wire("stall_after_two.wire.json"));
    let endpoint = Endpoint::attach(patient(&server.url())).unwrap();
    let mut seen = nothing_seen();
    block_on(async {
        let clock = Clock::start();
        let request = request(0);
        let submit = endpoint.submit(&request, &clock, &mut seen);
        assert!(tokio::time::timeout(MS(400), submit).await.is_err());
    });
    assert_eq!((seen.record.outcome, seen.text.content.as_str()), (Outcome::Cancelled, "One fine "));
    assert!(seen.record.sent_ns.is_some() && seen.record.end_ns.is_some());
}

#[test]
fn token_ids_are_never_sent_to_a_chat_endpoint() {
    let server = WireServer::replay(Reply::sse(plain()));
    let endpoint = Endpoint::attach(patient(&server.url())).unwrap();
    let mut seen = nothing_seen();
    let request = inferlab::request::Request { prompt: Prompt::TokenIds(vec![1, 2]), ..request(0) };
    block_on(endpoint.submit(&request, &Clock::start(), &mut seen));
    assert_eq!((seen.record.outcome, seen.record.sent_ns), (Outcome::Shed, None));
    assert!(server.received().is_empty());
}

#[test]
fn times_stand_in_their_order() {
    let (seen, _) = replay(wire("role_early.wire.json"));
    let row = seen.record;
    let times = [row.sent_ns, row.headers_ns, row.first_byte_ns, row.first_token_ns, row.last_token_ns, row.end_ns];
    assert!(times.iter().all(Option::is_some), "{times:?}");
    assert!(times.is_sorted(), "{times:?}");
    // The role alone came 300 ms earlier and is no token.
    assert!(row.first_token_ns.unwrap().ms_since(row.first_byte_ns.unwrap()) > 200.0);
    assert_eq!((row.first_answer_ns, row.gap_us.len()), (row.first_token_ns, 2));
}

#[test]
fn the_request_carries_the_whole_sampler_the_key_and_nothing_twice() {
    let server = WireServer::replay(Reply::sse(plain()));
    let mut settings = patient(&server.url());
    settings.api_key = Some(Secret::new("sk-made-up-4711"));
    assert_eq!(ask_once(settings).record.outcome, Outcome::Ok);
    let [Received { method, path, head, body, .. }] = &server.received()[..] else { panic!("one request") };
    assert_eq!((method.as_str(), path.as_str()), ("POST", "/v1/chat/completions"));
    let head = head.to_ascii_lowercase();
    assert_eq!(head.matches("authorization: bearer sk-made-up-4711").count(), 1);
    assert!(head.contains("accept-encoding: identity") && head.contains("content-type: application/json"), "{head}");
    let body: Value = serde_json::from_slice(body).unwrap();
    for member in [
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "presence_penalty",
        "frequency_penalty",
        "seed",
        "max_tokens",
        "ignore_eos",
    ] {
        assert!(body.get(member).is_some_and(|v| !v.is_null()), "{member} is missing in {body}");
    }
    assert_eq!(body["stream_options"]["include_usage"], true);
}

#[test]
fn a_redirect_is_not_followed_so_the_key_stays_here() {
    let other = WireServer::replay(Reply::sse(plain()));
    let mut moved = wire("moved_307.wire.json");
    moved.headers = vec![("location".to_owned(), format!("{}/chat/completions", other.url()))];
    let server = WireServer::replay(moved);
    let mut settings = patient(&server.url());
    settings.api_key = Some(Secret::new("sk-made-up-4711"));
    assert_eq!(ask_once(settings).record.outcome, Outcome::HttpError);
    assert!(other.received().is_empty());
}

#[test]
fn sixty_four_requests_in_flight_each_get_their_own_outcome() {
    // One server, one answer for each seed; all at once, twice, so that pooled connections are met as well.
    let kinds = [
        "ok",
        "truncated",
        "reset",
        "server_error_stream",
        "http_error",
        "bad_payload",
        "timeout_first_byte",
        "timeout_idle",
    ];
    let server = WireServer::start(move |request| {
        match kinds[request.json()["seed"].as_u64().unwrap() as usize % kinds.len()] {
            "ok" => Reply::sse(plain()),
            "truncated" => wire("cut_between_events.sse"),
            "reset" => wire("reset_after_two.wire.json"),
            "server_error_stream" => wire("error_later.sse"),
            "http_error" => wire("busy_503.wire.json"),
            "bad_payload" => wire("html.sse"),
            "timeout_first_byte" => wire("silence.wire.json"),
            _ => wire("stall_after_two.wire.json"),
        }
    });
    let settings = with(&server.url(), |t| {
        t.first_byte = Duration::from_secs(4);
        t.idle = Duration::from_secs(4);
    });
    let endpoint = Rc::new(Endpoint::attach(settings).unwrap());
    let outcomes = block_on(async {
        let mut lanes = tokio::task::JoinSet::new();
        for lane in 0..64_u32 {
            let endpoint = Rc::clone(&endpoint);
            lanes.spawn_local(async move {
                let mut words = Vec::new();
                for _ in 0..2 {
                    let mut seen = nothing_seen();
                    let request = inferlab::request::Request { seed: lane, ..request(lane) };
                    endpoint.submit(&request, &Clock::start(), &mut seen).await;
                    words.push(seen.record.outcome.word());
                }
                (lane, words)
            });
        }
        lanes.join_all().await
    });
    assert_eq!(outcomes.len(), 64);
    for (lane, words) in outcomes {
        let want = kinds[lane as usize % kinds.len()];
        assert_eq!(words, [want, want], "lane {lane}");
    }
}
