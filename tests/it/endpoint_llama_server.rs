//! The endpoint against a real llama.cpp server: INFERLAB_TEST_LLAMA_SERVER (binary) and INFERLAB_TEST_SMOLLM2 (GGUF).
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use inferlab::record::{FirstChunkSource, Outcome};
use inferlab::request::{Message, Prompt, Request};
use inferlab::target::config::Dialect;
use inferlab::target::endpoint::{Endpoint, EndpointError, EndpointSettings};
use inferlab::target::{Observation, Target};
use inferlab::units::Clock;
use serde_json::Value;

use crate::endpoint_stream::{nothing_seen, request};

/// One server at a time: two of them on a small machine only wait for each other.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// A server that does not outlive the test, whatever happens in it.
pub struct LlamaServer {
    child: Child,
    pub port: u16,
    _turn: MutexGuard<'static, ()>,
}

impl Drop for LlamaServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl LlamaServer {
    /// `None`, with the reason printed, where the variables are not set.
    pub fn start(more: &[&str]) -> Option<Self> {
        let variable = |name: &str| {
            let path = std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_file());
            if path.is_none() {
                eprintln!("skipped: {name} names no file");
            }
            path
        };
        let (binary, model) = (variable("INFERLAB_TEST_LLAMA_SERVER")?, variable("INFERLAB_TEST_SMOLLM2")?);
        let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new(&binary);
        command.arg("-m").arg(&model);
        command.args(["-c", "4096", "-np", "2", "-t", "2", "--metrics", "--slots", "--host", "127.0.0.1"]);
        command.args(["--alias", "smollm2-135m", "--port", &port.to_string()]).args(more);
        // Its shared libraries lie beside it.
        command.env("LD_LIBRARY_PATH", binary.parent().unwrap());
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        Some(Self { child, port, _turn: turn })
    }

    fn settings(&self) -> EndpointSettings {
        EndpointSettings {
            concurrency: 2,
            ..EndpointSettings::new(format!("http://127.0.0.1:{}/v1", self.port), "smollm2-135m")
        }
    }

    /// Connects once the model is loaded; until then the server refuses or answers 503, which are errors of their own.
    async fn connect(&mut self, settings: EndpointSettings) -> Endpoint {
        let begun = Instant::now();
        loop {
            match Endpoint::connect(settings.clone()).await {
                Ok(endpoint) => return endpoint,
                Err(EndpointError::Unreachable { .. } | EndpointError::NotReady { .. }) => {
                    assert!(begun.elapsed() < Duration::from_secs(120), "the server does not come up");
                    assert!(self.child.try_wait().unwrap().is_none(), "the server ended");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// A counter of `/metrics`.
    async fn counter(&self, name: &str) -> f64 {
        let text = self.get("/metrics").await;
        let line = text.lines().find(|l| l.starts_with(name)).unwrap_or_else(|| panic!("no {name} in {text}"));
        line.rsplit(' ').next().unwrap().parse().unwrap()
    }

    async fn get(&self, path: &str) -> String {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        client.get(format!("http://127.0.0.1:{}{path}", self.port)).send().await.unwrap().text().await.unwrap()
    }

    /// Tokens of a chat as the server counts them, by its own template and tokenizer.
    async fn count(&self, content: &str) -> usize {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let post = async |path: &str, body: Value| -> Value {
            let url = format!("http://127.0.0.1:{}{path}", self.port);
            let text = client.post(url).body(body.to_string()).send().await.unwrap().text().await.unwrap();
            serde_json::from_str(&text).unwrap()
        };
        let messages = serde_json::json!({"messages": [{"role": "user", "content": content}]});
        let prompt = post("/apply-template", messages).await["prompt"].clone();
        let tokens =
            post("/tokenize", serde_json::json!({"content": prompt, "add_special": true, "parse_special": true})).await;
        tokens["tokens"].as_array().unwrap().len()
    }
}

fn chat(index: u32, content: &str, max_tokens: u32) -> Request {
    let prompt = Prompt::Chat(vec![Message { role: "user".to_owned(), content: content.to_owned() }]);
    Request { prompt, max_tokens, ..request(index) }
}

async fn ask(endpoint: &Endpoint, clock: &Clock, request: &Request) -> Observation {
    let mut seen = nothing_seen();
    endpoint.submit(request, clock, &mut seen).await;
    seen
}

fn block_on<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, future)
}

#[test]
fn a_real_llama_cpp_server_is_known_counted_and_measured() {
    let Some(mut server) = LlamaServer::start(&[]) else { return };
    block_on(async {
        let settings = server.settings();
        let endpoint = server.connect(settings).await;
        let facts = endpoint.facts().clone();
        eprintln!("{facts:#?}");
        assert_eq!(endpoint.dialect(), Dialect::LlamaCpp);
        assert!(facts.name.starts_with("llama.cpp b"), "{}", facts.name);
        assert_eq!((facts.effective_context, facts.effective_concurrency), (Some(2048), Some(2)));
        assert_eq!(endpoint.warnings(), &[] as &[String]);
        // The template's tokens by the server's own tokenizer, counted on another prompt than the calibration's.
        let content = "the the the";
        let overhead = server.count(content).await - 3;
        assert_eq!(endpoint.overhead_tokens(), Some(u32::try_from(overhead).unwrap()));

        let clock = Clock::start();
        let before = server.counter("llamacpp:tokens_predicted_total").await;
        let content = "Name three rivers: 长江, and two more.";
        let mut rows = Vec::new();
        for index in 0..3 {
            rows.push(ask(&endpoint, &clock, &chat(index, content, 24)).await);
        }
        // The server counts a request a moment after its last byte.
        let mut predicted = 0.0;
        for _ in 0..100 {
            predicted = server.counter("llamacpp:tokens_predicted_total").await - before;
            if predicted >= 72.0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(predicted, 72.0, "the server's counter agrees with the lengths asked for");
        let counted = u32::try_from(server.count(content).await).unwrap();
        for seen in &rows {
            let row = &seen.record;
            assert_eq!((row.outcome, row.finish.unwrap().word()), (Outcome::Ok, "length"), "{row:?}");
            assert_eq!((row.usage_prompt_tokens, row.usage_completion_tokens), (Some(counted), Some(24)));
            assert_eq!((row.server_prompt_n, row.server_predicted_n), (Some(counted), Some(24)));
            assert_eq!((row.usage_cached_tokens, row.server_cache_n), (Some(0), Some(0)), "cold although asked thrice");
            assert_eq!((row.done_seen, row.bad_chunks, row.bad_text), (Some(true), Some(0), Some(0)));
            assert_eq!((row.usage_mismatch, row.streamed), (Some(false), Some(true)));
            let times =
                [row.sent_ns, row.headers_ns, row.first_byte_ns, row.first_token_ns, row.last_token_ns, row.end_ns];
            assert!(times.iter().all(Option::is_some) && times.is_sorted(), "{times:?}");
            // Wall times hold the server's own: its prefill lies before our first token, its decode inside the request.
            let ttft = row.first_token_ns.unwrap().ms_since(row.sent_ns.unwrap());
            assert!(ttft >= row.server_prompt_ms.unwrap(), "{ttft} ms");
            let e2e = row.end_ns.unwrap().ms_since(row.sent_ns.unwrap());
            assert!(e2e >= row.server_prompt_ms.unwrap() + row.server_predicted_ms.unwrap() * 0.9, "{e2e} ms: {row:?}");
            assert_eq!(row.first_chunk_tokens_source, Some(FirstChunkSource::None));
            assert_eq!(seen.text, rows[0].text, "greedy, one after another");
        }
        // This server closes its connection after each stream without saying so; the endpoint found that out. The first request
        // still uses the connection of the last question of the probe.
        assert!(rows[1..].iter().all(|seen| seen.record.new_connection == Some(true)));
        for index in 0..20 {
            let row = ask(&endpoint, &clock, &chat(index, "Hi.", 2)).await.record;
            assert_eq!(row.outcome, Outcome::Ok, "{row:?}");
        }
    });
}

#[test]
fn two_at_once_on_a_real_llama_cpp_server_and_a_prompt_that_does_not_fit() {
    let Some(mut server) = LlamaServer::start(&[]) else { return };
    block_on(async {
        let mut settings = server.settings();
        settings.chunk_counts = true;
        settings.prefix = "run 7f3a91".to_owned();
        let endpoint = Rc::new(server.connect(settings).await);
        // With the prefix counted in, a prompt of known words has a known length before it is sent.
        let overhead = endpoint.overhead_tokens().unwrap();
        assert_eq!(overhead as usize + 5, server.count("run 7f3a91 by this with you it").await);
        let clock = Clock::start();
        let mut lanes = tokio::task::JoinSet::new();
        for lane in 0..4_u32 {
            let endpoint = Rc::clone(&endpoint);
            lanes.spawn_local(async move { ask(&endpoint, &clock, &chat(lane, "Count to ten.", 16)).await });
        }
        for seen in lanes.join_all().await {
            let row = seen.record;
            assert_eq!((row.outcome, row.usage_completion_tokens), (Outcome::Ok, Some(16)), "{row:?}");
            assert_eq!(row.first_chunk_tokens_source, Some(FirstChunkSource::Usage));
            assert!(row.first_chunk_tokens.is_some_and(|n| (1..16).contains(&n)), "{row:?}");
        }

        let long = ask(&endpoint, &clock, &chat(9, &"the ".repeat(3000), 4)).await.record;
        assert_eq!((long.outcome, long.http_status), (Outcome::HttpError, Some(400)), "{long:?}");
        assert!(long.error.unwrap().contains("exceeds the available context size"));

        drop(server);
        let gone = ask(&endpoint, &clock, &chat(10, "Anyone?", 4)).await.record;
        assert!(matches!(gone.outcome, Outcome::ConnectFailed | Outcome::Reset), "{gone:?}");
    });
}
