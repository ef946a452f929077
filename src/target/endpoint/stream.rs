//! One response body, from its bytes to an answer and an outcome. Knows nothing of sockets: it is pushed bytes and times.
//!
//! However the bytes are cut, the result is the same but for the times.
use std::borrow::Cow;
use std::ops::ControlFlow;

use super::answer::{Answer, MAX_TEXT_BYTES};
use super::chunk::Chunk;
use super::messages::{Event, Told};
use super::sse::{SseItem, SseParser, SseTail};
use crate::record::Outcome;
use crate::target::Observation;
use crate::target::config::Api;
use crate::units::TimestampNs;

/// Longest line and longest event of a stream. Real chunks stay below a few KiB.
pub const MAX_EVENT_BYTES: usize = 1 << 20;
/// Largest answer that comes as one JSON body.
pub const MAX_BODY_BYTES: usize = 4 << 20;
/// How much of a foreign error text is kept.
pub const MAX_ERROR_BYTES: usize = 2 << 10;
/// How much is read of it, so that a key at the cut is still recognised.
pub(super) const ERROR_READ_BYTES: usize = 8 << 10;

/// What a push led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Output came: text, reasoning, a tool call, a finish reason. Keep-alives are none.
    pub progress: bool,
    /// Nothing more is wanted: `[DONE]` or `message_stop`, an error, or a limit.
    pub ended: bool,
}

/// How the body ended, as the transport saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BodyEnd {
    /// Complete, or closed cleanly, or not waited for because the stream said that it had ended.
    Closed,
    /// Broken off by something else than the stream: the outcome and its cause.
    Broken(Outcome, String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Only blanks so far.
    Unknown,
    Events,
    Json,
}

/// Reads one body.
#[derive(Debug)]
pub struct StreamReader {
    form: Form,
    sse: SseParser,
    state: State,
    /// A JSON body.
    body: Vec<u8>,
    /// The first bytes, kept for the error of a body without one usable event.
    head: Vec<u8>,
    first_byte: Option<TimestampNs>,
    last_byte: Option<TimestampNs>,
    tail_unterminated: bool,
}

#[derive(Debug)]
struct State {
    api: Api,
    answer: Answer,
    keepalives: u32,
    bad_chunks: u32,
    bad_text: u32,
    last_bad: Option<String>,
    done_seen: bool,
    over_limit: Option<String>,
    progress: bool,
}

impl Default for StreamReader {
    fn default() -> Self {
        Self::new()
    }
}

impl StreamReader {
    /// A reader at the start of a body of `/chat/completions` or `/completions`.
    pub fn new() -> Self {
        Self::of(Api::Chat)
    }

    /// A reader at the start of a body of this interface.
    pub fn of(api: Api) -> Self {
        Self {
            form: Form::Unknown,
            sse: SseParser::new(MAX_EVENT_BYTES),
            state: State {
                api,
                answer: Answer::streamed(),
                keepalives: 0,
                bad_chunks: 0,
                bad_text: 0,
                last_bad: None,
                done_seen: false,
                over_limit: None,
                progress: false,
            },
            body: Vec::new(),
            head: Vec::new(),
            first_byte: None,
            last_byte: None,
            tail_unterminated: false,
        }
    }

    /// Bytes reserved for what is not yet an event.
    pub fn capacity(&self) -> usize {
        self.sse.capacity() + self.body.capacity() + self.head.capacity()
    }

    /// When the first byte of the body came.
    pub fn first_byte(&self) -> Option<TimestampNs> {
        self.first_byte
    }

    /// When the last byte came that was looked at.
    pub fn last_byte(&self) -> Option<TimestampNs> {
        self.last_byte
    }

    /// Takes bytes that were read from the socket at `t`. After a step that `ended`, more bytes are ignored.
    pub fn push(&mut self, bytes: &[u8], t: TimestampNs) -> Step {
        if bytes.is_empty() || self.ended() {
            return Step { progress: false, ended: self.ended() };
        }
        self.first_byte.get_or_insert(t);
        self.last_byte = Some(t);
        let before = self.head.len();
        let room = ERROR_READ_BYTES - before.min(ERROR_READ_BYTES);
        self.head.extend_from_slice(&bytes[..bytes.len().min(room)]);
        self.state.progress = false;
        let mut bytes = bytes;
        if self.form == Form::Unknown {
            bytes = self.sniff(bytes);
        }
        match self.form {
            Form::Json => self.push_json(bytes),
            Form::Unknown | Form::Events => {
                // What follows the end in the same read is no part of the stream.
                if let ControlFlow::Break(read) = self.push_events(bytes, t) {
                    self.head.truncate(before + read);
                }
            }
        }
        Step { progress: self.state.progress, ended: self.ended() }
    }

    fn ended(&self) -> bool {
        self.state.done_seen || self.state.over_limit.is_some() || self.state.answer.failed().is_some()
    }

    /// No line of an event stream starts with a brace, so the first byte that is not blank tells what the body is, whatever the
    /// content type says. Gives back the bytes without the blanks before a JSON body.
    fn sniff<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let blank = |b: &u8| matches!(b, b' ' | b'\t' | b'\r' | b'\n' | 0xEF | 0xBB | 0xBF);
        let Some(start) = bytes.iter().position(|b| !blank(b)) else { return bytes };
        if bytes[start] != b'{' {
            self.form = Form::Events;
            return bytes;
        }
        self.form = Form::Json;
        self.state.answer = Answer::whole();
        &bytes[start..]
    }

    fn push_json(&mut self, bytes: &[u8]) {
        if self.body.len() + bytes.len() > MAX_BODY_BYTES {
            self.body = Vec::new();
            self.state.over_limit = Some(format!("a JSON body larger than {MAX_BODY_BYTES} bytes"));
            return;
        }
        self.body.extend_from_slice(bytes);
    }

    fn push_events(&mut self, bytes: &[u8], t: TimestampNs) -> ControlFlow<usize> {
        let state = &mut self.state;
        let pushed = self.sse.push(bytes, |item| {
            match item {
                SseItem::KeepAlive => state.keepalives = state.keepalives.saturating_add(1),
                SseItem::Event { kind, data } => state.event(kind, data, t),
            }
            if state.done_seen || state.over_limit.is_some() || state.answer.failed().is_some() {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        pushed.unwrap_or_else(|too_long| {
            state.over_limit = Some(too_long.to_string());
            ControlFlow::Continue(())
        })
    }

    /// The outcome of a body that ended in `end`, and its cause where it is not `ok`.
    ///
    /// An answer is `ok` when a finish reason came and the stream ended, with or without `[DONE]`.
    pub fn close(&mut self, end: BodyEnd) -> (Outcome, Option<String>) {
        let mut cut = false;
        if end == BodyEnd::Closed && !self.ended() {
            match self.form {
                Form::Json => self.close_json(),
                Form::Events | Form::Unknown => cut = self.close_events(),
            }
        }
        let answer = &self.state.answer;
        if let Some(said) = answer.failed() {
            return (Outcome::ServerErrorStream, Some(said.to_owned()));
        }
        if let Some(limit) = &self.state.over_limit {
            return (Outcome::BadPayload, Some(limit.clone()));
        }
        if let BodyEnd::Broken(outcome, cause) = end {
            return (outcome, Some(cause));
        }
        if !answer.usable() {
            return (Outcome::BadPayload, Some(self.unusable()));
        }
        if answer.finish().is_some() && !cut {
            return (Outcome::Ok, None);
        }
        let chunks = answer.chunks();
        let how = if cut { "in the middle of an event" } else { "without a finish reason" };
        (Outcome::Truncated, Some(format!("the stream ended {how}, after {chunks} chunks with tokens")))
    }

    fn close_json(&mut self) {
        let body = std::mem::take(&mut self.body);
        let text = self.state.decode(&body);
        self.state.read(&text, TimestampNs::default());
    }

    /// Reads the tail of an event stream: whole JSON without its blank line is taken, anything else says that the stream was cut.
    fn close_events(&mut self) -> bool {
        let state = &mut self.state;
        let t = self.last_byte.unwrap_or_default();
        let mut keepalives = 0;
        let tail = match self.sse.finish(|_| keepalives += 1) {
            Ok(tail) => tail,
            Err(too_long) => {
                state.over_limit = Some(too_long.to_string());
                return false;
            }
        };
        let cut = match tail {
            SseTail::Clean => false,
            SseTail::Fragment => true,
            SseTail::Unterminated { kind, data } => {
                let bad_before = state.bad_chunks;
                state.event(kind, data, t);
                state.bad_chunks > bad_before
            }
        };
        self.tail_unterminated = tail != SseTail::Clean;
        state.keepalives = state.keepalives.saturating_add(keepalives);
        cut
    }

    /// Why nothing could be used, with the start of what came instead.
    fn unusable(&self) -> String {
        let said = String::from_utf8_lossy(&self.head);
        let said = said.trim();
        let why = match &self.state.last_bad {
            _ if said.is_empty() => return "an empty body".to_owned(),
            Some(bad) => format!("no usable event: {bad}"),
            None => "no usable event".to_owned(),
        };
        format!("{why}; the body starts: {said}")
    }

    /// Writes what was seen into the row and moves the text out; outcome, error and end are the caller's.
    pub fn fill(&mut self, seen: &mut Observation) {
        let row = &mut seen.record;
        row.first_byte_ns = self.first_byte;
        if self.first_byte.is_some() {
            row.streamed = Some(self.form != Form::Json);
            row.bad_chunks = Some(self.state.bad_chunks);
            row.bad_text = Some(self.state.bad_text);
            if self.form != Form::Json {
                row.keepalives = Some(self.state.keepalives);
                row.done_seen = Some(self.state.done_seen);
                row.tail_unterminated = Some(self.tail_unterminated);
            }
        }
        self.state.answer.fill(seen);
    }
}

impl State {
    fn event(&mut self, kind: &[u8], data: &[u8], t: TimestampNs) {
        let text = self.decode(data);
        match text.trim() {
            "" => self.keepalives = self.keepalives.saturating_add(1),
            "[DONE]" => self.done_seen = true,
            text if kind == b"error" => {
                self.read(text, t);
                self.answer.fail(text.to_owned());
            }
            text => self.read(text, t),
        }
    }

    /// Decodes the data of a whole event; what is not UTF-8 becomes U+FFFD and is counted.
    fn decode<'a>(&mut self, data: &'a [u8]) -> Cow<'a, str> {
        if let Ok(text) = std::str::from_utf8(data) {
            return Cow::Borrowed(text);
        }
        let places = data.utf8_chunks().filter(|chunk| !chunk.invalid().is_empty()).count();
        self.bad_text = self.bad_text.saturating_add(u32::try_from(places).unwrap_or(u32::MAX));
        String::from_utf8_lossy(data)
    }

    fn read(&mut self, json: &str, t: TimestampNs) {
        // A lone surrogate, a number out of range or a cut object costs this chunk, never the stream.
        let bad = match self.api {
            Api::Chat | Api::Completions => match serde_json::from_str::<Chunk<'_>>(json) {
                Ok(chunk) if self.take(&chunk, t) => return,
                Ok(_) => "an object without choices, usage or error".to_owned(),
                Err(error) => error.to_string(),
            },
            Api::Messages => match serde_json::from_str::<Event<'_>>(json).map(Event::told) {
                Ok(Told::Ping) => return self.keepalives = self.keepalives.saturating_add(1),
                Ok(Told::Stop) => return self.done_seen = true,
                Ok(Told::Chunk(chunk)) if self.take(&chunk, t) => return,
                Ok(Told::Chunk(_) | Told::Unknown) => "an object that is no event of the Messages interface".to_owned(),
                Err(error) => error.to_string(),
            },
        };
        self.bad_chunks = self.bad_chunks.saturating_add(1);
        self.last_bad = Some(bad);
    }

    /// Folds a chunk into the answer; `false` when it holds nothing that we know.
    fn take(&mut self, chunk: &Chunk<'_>, t: TimestampNs) -> bool {
        let took = self.answer.take(chunk, t);
        self.progress |= took.progress;
        if self.answer.too_large() {
            self.over_limit = Some(format!("an answer larger than {MAX_TEXT_BYTES} bytes"));
        }
        took.known
    }
}

/// `text` cut to at most [`MAX_ERROR_BYTES`] bytes at a character.
pub(super) fn shorten(text: &str) -> &str {
    let end = text.floor_char_boundary(MAX_ERROR_BYTES);
    &text[..end]
}
