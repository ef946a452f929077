//! The HTTP side: one exchange under its deadlines, from the first byte sent to an outcome.
//!
//! No retries, no redirects, HTTP/1.1 with a pool. Times are taken when a read returns, before anything is parsed.
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use reqwest::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, CONTENT_ENCODING, CONTENT_TYPE, HeaderValue, LOCATION,
};
use reqwest::{Client, RequestBuilder, Response, Url};

use super::address::Addresses;
use super::connection::{Connecting, WatchConnections};
use super::deadlines::Deadlines;
use super::error::EndpointError;
use super::secret::Secret;
use super::settings::Timeouts;
use super::stream::{BodyEnd, ERROR_READ_BYTES, StreamReader, shorten};
use crate::record::Outcome;
use crate::target::Observation;
use crate::target::config::Api;
use crate::units::Clock;

/// Servers on uvicorn and llama.cpp close idle connections after 5 s; ours are dropped before, so that no request meets a
/// connection that is just being closed.
const POOL_IDLE: Duration = Duration::from_secs(4);
/// The version of the Messages interface that is spoken.
const ANTHROPIC_VERSION: &str = "2023-06-01";
/// Header in which llama.cpp's `/metrics` says when the server started.
const START_HEADER: &str = "process-start-time-unix";
/// How long the end of the body is waited for after `[DONE]`, so that the connection can be used again.
const DRAIN: Duration = Duration::from_millis(20);

/// A client for one server; clones share its connections.
#[derive(Debug, Clone)]
pub(super) struct HttpClient {
    client: Client,
    authorization: Option<HeaderValue>,
    /// The key without `Bearer`, for the Messages interface.
    plain_key: Option<HeaderValue>,
    timeouts: Timeouts,
    /// Each stream asks for its connection to be closed.
    one_shot: bool,
}

/// A small document.
#[derive(Debug)]
pub(super) struct Document {
    pub(super) status: u16,
    pub(super) body: Vec<u8>,
    /// A connection was opened for it.
    pub(super) new_connection: bool,
    /// The life of the server in its own words (llama.cpp's header of `/metrics`).
    pub(super) instance: Option<String>,
}

impl HttpClient {
    pub(super) fn new(addresses: &Addresses, key: Option<&Secret>, timeouts: Timeouts) -> Result<Self, EndpointError> {
        // An error means that a provider was installed before, which serves as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let header = |text: String| -> Result<HeaderValue, EndpointError> {
            let mut value = HeaderValue::from_str(&text).map_err(|_| EndpointError::UnusableKey)?;
            value.set_sensitive(true);
            Ok(value)
        };
        let authorization = key.map(|key| header(format!("Bearer {}", key.expose()))).transpose()?;
        let plain_key = key.map(|key| header(key.expose().to_owned())).transpose()?;
        let mut builder = Client::builder()
            .user_agent(concat!("inferlab/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .http1_only()
            .tcp_nodelay(true)
            .pool_max_idle_per_host(usize::MAX)
            .pool_idle_timeout(POOL_IDLE)
            .connect_timeout(timeouts.connect)
            .connector_layer(WatchConnections);
        if addresses.is_loopback() {
            builder = builder.no_proxy();
        }
        let client = builder.build().map_err(|e| EndpointError::Client { cause: causes(&e) })?;
        Ok(Self { client, authorization, plain_key, timeouts, one_shot: false })
    }

    /// Opens a connection for each stream from now on.
    pub(super) fn close_after_each_stream(&mut self) {
        self.one_shot = true;
    }

    /// Asks `url` for a small document, of which at most `limit` bytes are kept.
    pub(super) async fn get(&self, url: &Url, limit: usize, within: Duration) -> Result<Document, String> {
        self.document(self.client.get(url.clone()), limit, within).await
    }

    /// Posts JSON to `url` for a small document.
    pub(super) async fn ask(
        &self,
        url: &Url,
        body: Vec<u8>,
        limit: usize,
        within: Duration,
    ) -> Result<Document, String> {
        let request = self.client.post(url.clone()).header(CONTENT_TYPE, "application/json").body(body);
        self.document(request, limit, within).await
    }

    async fn document(&self, request: RequestBuilder, limit: usize, within: Duration) -> Result<Document, String> {
        let mut request = request.header(ACCEPT, "application/json, text/plain;q=0.9");
        if let Some(key) = &self.authorization {
            request = request.header(AUTHORIZATION, key.clone());
        }
        let connecting = Arc::new(Connecting::default());
        let exchange = Arc::clone(&connecting).watch(async {
            let mut response = request.send().await.map_err(|e| causes(&e))?;
            let mut body = Vec::new();
            while let Some(bytes) = response.chunk().await.map_err(|e| causes(&e))? {
                let room = limit - body.len();
                body.extend_from_slice(&bytes[..bytes.len().min(room)]);
                if bytes.len() > room {
                    break;
                }
            }
            let instance = response.headers().get(START_HEADER).and_then(|v| v.to_str().ok());
            Ok(Document {
                status: response.status().as_u16(),
                body,
                new_connection: connecting.opened(),
                // 0 stands there before the first request.
                instance: instance.filter(|said| *said != "0").map(str::to_owned),
            })
        });
        match tokio::time::timeout(within, exchange).await {
            Ok(answer) => answer,
            Err(_) => Err(format!("no answer within {} ms", within.as_millis())),
        }
    }

    /// Posts `body` and writes everything seen into the flight.
    pub(super) async fn post(&self, url: &Url, body: Vec<u8>, flight: &mut Flight<'_>) {
        let mut request = self
            .client
            .post(url.clone())
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "text/event-stream")
            .header(ACCEPT_ENCODING, "identity")
            .body(body);
        if let Some(key) = &self.authorization {
            request = request.header(AUTHORIZATION, key.clone());
        }
        if flight.api == Api::Messages {
            // Servers that keep to Anthropic's own headers know no bearer.
            request = request.header("anthropic-version", ANTHROPIC_VERSION);
            if let Some(key) = &self.plain_key {
                request = request.header("x-api-key", key.clone());
            }
        }
        if self.one_shot {
            request = request.header(CONNECTION, "close");
        }
        let connecting = Arc::new(Connecting::default());
        let deadlines = Deadlines { sent: flight.start(), timeouts: self.timeouts };

        let response = {
            let mut send = pin!(Arc::clone(&connecting).watch(request.send()));
            loop {
                let due = deadlines.before_first_byte(connecting.stage());
                tokio::select! {
                    biased;
                    answer = &mut send => break answer,
                    () = connecting.changed() => {}
                    () = tokio::time::sleep_until(due.into()) => {
                        // A connection may have come up while we slept.
                        let now = Instant::now();
                        if now >= deadlines.before_first_byte(connecting.stage()) {
                            let (outcome, said) = deadlines.first_byte_missed(now, "headers");
                            return flight.finish(outcome, Some(said), now);
                        }
                    }
                }
            }
        };
        let now = Instant::now();
        let mut response = match response {
            Ok(response) => response,
            Err(error) => {
                if connecting.opened() || !error.is_connect() {
                    flight.seen.record.new_connection = Some(connecting.opened());
                }
                let outcome = match (error.is_connect(), error.is_timeout()) {
                    (true, true) => Outcome::TimeoutConnect,
                    (true, false) => Outcome::ConnectFailed,
                    // The connection stood and broke, or what came over it was not HTTP.
                    (false, _) => Outcome::Reset,
                };
                let mut said = causes(&error);
                if outcome == Outcome::Reset && !connecting.opened() {
                    said += " (on a connection that had been used before)";
                }
                return flight.finish(outcome, Some(said), now);
            }
        };
        let row = &mut flight.seen.record;
        row.headers_ns = Some(flight.clock.at(now));
        row.http_status = Some(u32::from(response.status().as_u16()));
        row.new_connection = Some(connecting.opened());
        let first_byte_due = deadlines.before_first_byte(connecting.stage());
        if !response.status().is_success() {
            let said = self.error_body(&mut response, first_byte_due).await;
            return flight.finish(Outcome::HttpError, Some(said), Instant::now());
        }
        if let Some(coding) = response.headers().get(CONTENT_ENCODING).filter(|c| *c != "identity") {
            let coding = coding.to_str().unwrap_or("unknown");
            let said = format!("the body is compressed ({coding}) although it was asked for as it stands");
            return flight.finish(Outcome::BadPayload, Some(said), now);
        }
        self.stream(&mut response, deadlines, first_byte_due, flight).await;
    }

    async fn stream(
        &self,
        response: &mut Response,
        deadlines: Deadlines,
        first_byte_due: Instant,
        flight: &mut Flight<'_>,
    ) {
        // Only moved when it fires or when the first byte replaces its meaning: a timer per chunk would cost more than parsing it.
        let mut timer = pin!(tokio::time::sleep_until(first_byte_due.into()));
        let mut due = first_byte_due;
        let mut started = false;
        let (end, at) = loop {
            tokio::select! {
                biased;
                read = response.chunk() => {
                    let now = Instant::now();
                    match read {
                        Ok(Some(bytes)) => {
                            let step = flight.reader.push(&bytes, flight.clock.at(now));
                            if step.ended {
                                break (BodyEnd::Closed, now);
                            }
                            if !started && flight.reader.first_byte().is_some() {
                                started = true;
                                due = deadlines.after(now);
                                timer.as_mut().reset(due.into());
                            } else if step.progress {
                                due = deadlines.after(now);
                            }
                        }
                        Ok(None) => break (BodyEnd::Closed, now),
                        Err(error) => break (BodyEnd::Broken(Outcome::Reset, causes(&error)), now),
                    }
                }
                () = &mut timer => {
                    let now = Instant::now();
                    if now < due {
                        timer.as_mut().reset(due.into());
                        continue;
                    }
                    let (outcome, said) = if started {
                        deadlines.idle_missed(now)
                    } else {
                        deadlines.first_byte_missed(now, "a body")
                    };
                    break (BodyEnd::Broken(outcome, said), now);
                }
            }
        };
        let closed = end == BodyEnd::Closed;
        let (outcome, cause) = flight.reader.close(end);
        flight.finish(outcome, cause, at);
        if closed && outcome == Outcome::Ok {
            // The answer is complete; the end of the body only decides whether the connection can be used again.
            let rest = async { while let Ok(Some(_)) = response.chunk().await {} };
            let _ = tokio::time::timeout(DRAIN, rest).await;
        }
    }

    async fn error_body(&self, response: &mut Response, due: Instant) -> String {
        let mut body = Vec::new();
        let until = due.min(Instant::now() + self.timeouts.idle);
        let read = async {
            while let Ok(Some(bytes)) = response.chunk().await {
                let room = ERROR_READ_BYTES - body.len();
                body.extend_from_slice(&bytes[..bytes.len().min(room)]);
                if bytes.len() > room {
                    break;
                }
            }
        };
        let _ = tokio::time::timeout_at(until.into(), read).await;
        let said = String::from_utf8_lossy(&body).trim().to_owned();
        let status = response.status();
        let header = |name| response.headers().get(name).and_then(|v: &HeaderValue| v.to_str().ok());
        if status.is_redirection() {
            let to = header(LOCATION).unwrap_or("an unnamed place");
            return format!(
                "{status}: redirects are not followed, the key would travel along; set the url to {to} if that is meant"
            );
        }
        let wait = header(reqwest::header::RETRY_AFTER).map(|s| format!(" (retry-after: {s})")).unwrap_or_default();
        if said.is_empty() { format!("{status}{wait}") } else { format!("{said}{wait}") }
    }
}

/// A request under way. Dropped before it is finished, it leaves a `cancelled` row with whatever was seen until then.
pub(super) struct Flight<'a> {
    pub(super) seen: &'a mut Observation,
    pub(super) clock: &'a Clock,
    reader: StreamReader,
    key: Option<&'a Secret>,
    api: Api,
    finished: bool,
}

impl<'a> Flight<'a> {
    pub(super) fn new(seen: &'a mut Observation, clock: &'a Clock, key: Option<&'a Secret>, api: Api) -> Self {
        Self { seen, clock, reader: StreamReader::of(api), key, api, finished: false }
    }

    /// The request is handed over now.
    fn start(&mut self) -> Instant {
        let now = Instant::now();
        self.seen.record.sent_ns = Some(self.clock.at(now));
        now
    }

    pub(super) fn finish(&mut self, outcome: Outcome, error: Option<String>, at: Instant) {
        self.finished = true;
        self.reader.fill(self.seen);
        let row = &mut self.seen.record;
        row.outcome = outcome;
        row.error = error.map(|said| match self.key {
            Some(key) => shorten(&key.redact(&said)).to_owned(),
            None => shorten(&said).to_owned(),
        });
        // A clean end is when its last byte came, not when the socket was closed; a failure is when we gave up.
        row.end_ns = match (outcome, self.reader.last_byte()) {
            (Outcome::Ok, Some(last)) => Some(last),
            _ => Some(self.clock.at(at)),
        };
        if let Some(key) = self.key.filter(|key| key.is_distinctive()) {
            let text = &mut self.seen.text;
            let parts = [&mut text.reasoning, &mut text.content].into_iter();
            let calls = text.tool_calls.iter_mut().flat_map(|call| [&mut call.name, &mut call.arguments]);
            for part in parts.chain(calls) {
                if let std::borrow::Cow::Owned(clean) = key.redact(part) {
                    *part = clean;
                }
            }
        }
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        if !self.finished {
            self.finish(Outcome::Cancelled, None, Instant::now());
        }
    }
}

/// An error with everything that caused it, in one line and without its URL, whose query may hold a token.
pub(super) fn causes(error: &reqwest::Error) -> String {
    let mut said = Vec::new();
    let mut next = std::error::Error::source(error);
    while let Some(cause) = next {
        let text = cause.to_string();
        if said.last() != Some(&text) {
            said.push(text);
        }
        next = cause.source();
    }
    if said.is_empty() {
        // The outermost error alone: its own words without the address.
        return error.to_string().split(" for url (").next().unwrap_or_default().to_owned();
    }
    said.join(": ")
}
