//! A loopback server that replays captured bytes, and the cases it replays.
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// How a reply ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Clean close; the body is delimited by it.
    Eof,
    /// Reset.
    Rst,
    /// Silence with an open socket.
    Hang,
    /// Not even headers.
    HangBeforeHeaders,
    /// Chunked, complete; the connection takes the next request.
    Keep,
    /// Chunked, complete, and closed right after it although the headers promised more.
    KeepThenClose,
    /// Chunked, closed without the last chunk: cut below HTTP.
    CutChunked,
    /// Closed in the middle of the headers.
    CutHeaders,
}

/// One reply.
#[derive(Debug, Clone)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    /// Bytes and how long to wait before them.
    pub parts: Vec<(Vec<u8>, Duration)>,
    pub end: End,
}

impl Reply {
    pub fn new(status: u16, content_type: &str, body: impl Into<Vec<u8>>, end: End) -> Self {
        let headers = vec![("content-type".to_owned(), content_type.to_owned())];
        Self { status, headers, parts: vec![(body.into(), Duration::ZERO)], end }
    }

    pub fn sse(body: impl Into<Vec<u8>>) -> Self {
        Self::new(200, "text/event-stream", body, End::Keep)
    }

    pub fn json(status: u16, body: &str) -> Self {
        Self::new(status, "application/json", body, End::Keep)
    }

    /// Reads a `.sse` or `.wire.json` file.
    pub fn load(path: &Path) -> Self {
        let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        if path.extension().is_some_and(|e| e == "sse") {
            return Self::new(200, "text/event-stream", bytes, End::Eof);
        }
        let wire: Value = serde_json::from_slice(&bytes).unwrap();
        let headers = wire["headers"].as_object().unwrap();
        let part =
            |c: &Value| (unhex(c["hex"].as_str().unwrap()), Duration::from_millis(c["sleep_ms"].as_u64().unwrap()));
        Self {
            status: u16::try_from(wire["status"].as_u64().unwrap()).unwrap(),
            headers: headers.iter().map(|(k, v)| (k.clone(), v.as_str().unwrap().to_owned())).collect(),
            parts: wire["chunks"].as_array().unwrap().iter().map(part).collect(),
            end: match wire["end"].as_str().unwrap() {
                "eof" => End::Eof,
                "rst" => End::Rst,
                "hang" => End::Hang,
                "hang_before_headers" => End::HangBeforeHeaders,
                other => panic!("unknown end {other}"),
            },
        }
    }

    /// The whole body.
    pub fn body(&self) -> Vec<u8> {
        self.parts.iter().flat_map(|(bytes, _)| bytes.iter().copied()).collect()
    }
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
}

/// Our own cases.
pub fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/wire")
}

/// The cases beside the repository, where they are present.
pub fn shared_cases() -> Option<PathBuf> {
    let shared = std::env::var_os("INFERLAB_SHARED")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared"), PathBuf::from);
    let cases = shared.join("cases");
    if !cases.join("EXPECT.jsonl").is_file() {
        eprintln!("skipped: no EXPECT.jsonl in {}; set INFERLAB_SHARED", cases.display());
        return None;
    }
    Some(cases)
}

/// A request as the server read it.
#[derive(Debug, Clone)]
pub struct Received {
    /// Number of the connection, from 0.
    pub connection: usize,
    pub method: String,
    pub path: String,
    /// Request line and headers.
    pub head: String,
    pub body: Vec<u8>,
}

impl Received {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

type Answer = dyn Fn(&Received) -> Reply + Send + Sync;

/// The server, on a thread and runtime of its own; it ends when dropped.
pub struct WireServer {
    pub address: SocketAddr,
    log: Arc<Mutex<Vec<Received>>>,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl WireServer {
    pub fn start(answer: impl Fn(&Received) -> Reply + Send + Sync + 'static) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let log = Arc::new(Mutex::new(Vec::new()));
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let (answer, seen): (Arc<Answer>, _) = (Arc::new(answer), Arc::clone(&log));
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let listener = TcpListener::from_std(listener).unwrap();
                let accept = async {
                    for connection in 0.. {
                        let Ok((socket, _)) = listener.accept().await else { return };
                        tokio::spawn(serve(socket, connection, Arc::clone(&answer), Arc::clone(&seen)));
                    }
                };
                tokio::select! { () = accept => {}, _ = stopped => {} }
            });
        });
        Self { address, log, stop: Some(stop), thread: Some(thread) }
    }

    /// Answers every request with `reply`.
    pub fn replay(reply: Reply) -> Self {
        Self::start(move |_| reply.clone())
    }

    /// Base address for an endpoint.
    pub fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Requests so far.
    pub fn received(&self) -> Vec<Received> {
        self.log.lock().unwrap().clone()
    }
}

impl Drop for WireServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn serve(mut socket: TcpStream, connection: usize, answer: Arc<Answer>, log: Arc<Mutex<Vec<Received>>>) {
    let _ = socket.set_nodelay(true);
    while let Some(request) = receive(&mut socket, connection).await {
        log.lock().unwrap().push(request.clone());
        if reply(&mut socket, &answer(&request)).await.is_none() {
            return;
        }
    }
}

async fn receive(socket: &mut TcpStream, connection: usize) -> Option<Received> {
    let mut bytes = Vec::new();
    let head_end = loop {
        if let Some(at) = bytes.windows(4).position(|w| w == b"\r\n\r\n") {
            break at + 4;
        }
        if socket.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
        // A TLS hello on a plain port: servers answer that it is no HTTP.
        if bytes[0] == 0x16 {
            let _ = socket.write_all(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n").await;
            return None;
        }
    };
    let head = String::from_utf8_lossy(&bytes[..head_end]).into_owned();
    let length = head
        .lines()
        .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length:").map(|v| v.trim().parse::<usize>()))
        .map_or(0, Result::unwrap);
    while bytes.len() < head_end + length {
        if socket.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
    let mut words = head.split(' ').map(str::to_owned);
    let (method, path) = (words.next()?, words.next()?);
    Some(Received { connection, method, path, body: bytes[head_end..head_end + length].to_vec(), head })
}

/// `None` when the connection is over.
async fn reply(socket: &mut TcpStream, reply: &Reply) -> Option<()> {
    if reply.end == End::HangBeforeHeaders {
        return hang(socket).await;
    }
    let chunked = matches!(reply.end, End::Keep | End::KeepThenClose | End::CutChunked);
    let mut head = format!("HTTP/1.1 {} Replayed\r\n", reply.status);
    for (name, value) in &reply.headers {
        head += &format!("{name}: {value}\r\n");
    }
    head += if chunked { "transfer-encoding: chunked\r\n\r\n" } else { "connection: close\r\n\r\n" };
    if reply.end == End::CutHeaders {
        socket.write_all(&head.as_bytes()[..20]).await.ok()?;
        return None;
    }
    socket.write_all(head.as_bytes()).await.ok()?;
    for (bytes, wait) in &reply.parts {
        if !wait.is_zero() {
            tokio::time::sleep(*wait).await;
        }
        if bytes.is_empty() {
            continue;
        }
        if chunked {
            socket.write_all(format!("{:x}\r\n", bytes.len()).as_bytes()).await.ok()?;
            socket.write_all(bytes).await.ok()?;
            socket.write_all(b"\r\n").await.ok()?;
        } else {
            socket.write_all(bytes).await.ok()?;
        }
    }
    match reply.end {
        End::KeepThenClose => {
            let _ = socket.write_all(b"0\r\n\r\n").await;
            None
        }
        End::Keep => socket.write_all(b"0\r\n\r\n").await.ok(),
        End::Hang => hang(socket).await,
        End::Rst => {
            socket.set_zero_linger().ok()?;
            None
        }
        End::Eof | End::CutChunked | End::CutHeaders | End::HangBeforeHeaders => {
            let _ = socket.shutdown().await;
            None
        }
    }
}

/// Holds the socket until the other side goes away.
async fn hang(socket: &mut TcpStream) -> Option<()> {
    let mut nothing = [0; 64];
    while socket.read(&mut nothing).await.is_ok_and(|n| n > 0) {}
    None
}
