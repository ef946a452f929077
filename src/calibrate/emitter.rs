//! A loopback server that answers every POST with a stream of events and remembers when it wrote each.
//!
//! Just enough HTTP/1.1 for one client that is our own: a request with `Content-Length`, an answer in chunks, connections kept open.
use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

/// Tokens of every answer.
pub(super) const TOKENS: u32 = 16;
/// From the request to the first token.
pub(super) const FIRST: Duration = Duration::from_millis(10);
/// Between two tokens.
pub(super) const GAP: Duration = Duration::from_millis(10);
/// Largest request that is read.
const MOST_BYTES: usize = 64 << 10;

/// When one answer was written.
#[derive(Debug, Clone)]
pub(super) struct Written {
    /// The whole request had been read.
    pub read: Instant,
    /// Just before each token's event was handed to the socket.
    pub tokens: Vec<Instant>,
}

/// Answers by the seed of their request.
type Log = Arc<Mutex<BTreeMap<u64, Written>>>;

/// A running emitter; it ends when dropped.
pub(super) struct Emitter {
    pub address: SocketAddr,
    log: Log,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Emitter {
    /// Listens on a free port of 127.0.0.1, on a thread of its own.
    pub fn start() -> io::Result<Self> {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let log = Log::default();
        let kept = Arc::clone(&log);
        let thread = std::thread::Builder::new().name("emitter".into()).spawn(move || {
            tokio::task::LocalSet::new().block_on(&runtime, async {
                tokio::select! {
                    _ = serve(listener, kept) => {}
                    _ = stopped => {}
                }
            });
        })?;
        Ok(Self { address, log, stop: Some(stop), thread: Some(thread) })
    }

    /// What was written for the request with this seed.
    pub fn written(&self, seed: u64) -> Option<Written> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).get(&seed).cloned()
    }
}

impl Drop for Emitter {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

async fn serve(listener: std::net::TcpListener, log: Log) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let log = Arc::clone(&log);
        // A client that goes away ends its connection and nothing else.
        tokio::task::spawn_local(async move { connection(stream, &log).await.ok() });
    }
}

async fn connection(mut stream: TcpStream, log: &Log) -> io::Result<()> {
    let mut bytes = Vec::new();
    while let Some(body) = request(&mut stream, &mut bytes).await? {
        let read = Instant::now();
        let seed = serde_json::from_slice::<serde_json::Value>(&body).ok().and_then(|json| json["seed"].as_u64());
        let mut written = Written { read, tokens: Vec::with_capacity(TOKENS as usize) };
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
        stream.write_all(head.as_bytes()).await?;
        for token in 0..TOKENS {
            // Distances from the request: what is late once does not push the rest back.
            tokio::time::sleep_until((read + FIRST + GAP * token).into()).await;
            written.tokens.push(Instant::now());
            event(&mut stream, r#"{"choices":[{"index":0,"delta":{"content":"a "},"finish_reason":null}]}"#).await?;
        }
        if let Some(seed) = seed {
            log.lock().unwrap_or_else(PoisonError::into_inner).insert(seed, written);
        }
        let usage = format!(
            r#"{{"choices":[{{"index":0,"delta":{{}},"finish_reason":"length"}}],"usage":{{"prompt_tokens":1,"completion_tokens":{TOKENS}}}}}"#
        );
        event(&mut stream, &usage).await?;
        event(&mut stream, "[DONE]").await?;
        stream.write_all(b"0\r\n\r\n").await?;
    }
    Ok(())
}

/// One event in one chunk by one write.
async fn event(stream: &mut TcpStream, data: &str) -> io::Result<()> {
    let event = format!("data: {data}\n\n");
    stream.write_all(format!("{:x}\r\n{event}\r\n", event.len()).as_bytes()).await
}

/// The body of the next request; `None` when the client closed the connection. What follows it stays in `bytes`.
async fn request(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> io::Result<Option<Vec<u8>>> {
    loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
            let length: usize = length.and_then(|text| text.trim().parse().ok()).unwrap_or(0);
            let whole = (end + 4).saturating_add(length);
            if bytes.len() >= whole {
                let body = bytes[end + 4..whole].to_vec();
                bytes.drain(..whole);
                return Ok(Some(body));
            }
            if whole > MOST_BYTES {
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
        if bytes.len() > MOST_BYTES {
            return Err(io::ErrorKind::InvalidData.into());
        }
        if stream.read_buf(bytes).await? == 0 {
            return Ok(None);
        }
    }
}
