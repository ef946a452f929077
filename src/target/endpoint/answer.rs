//! Folds chunks into one answer: text, tool calls, counts, and the times at which tokens came.
use super::chunk::{self, Choice, Chunk, Message, MetaInfo, ToolPiece, Usage};
use super::figures::ServerFigures;
use super::lenient::{Count, List, Object};
use crate::record::{Finish, FirstChunk, FirstChunkSource, RequestRecord, ResponseText, ToolCall};
use crate::target::Observation;
use crate::units::TimestampNs;

/// More text than this is no answer of a language model but a fault, and ends the stream.
pub const MAX_TEXT_BYTES: usize = 16 << 20;
/// More calls than this in one answer are not kept.
const MAX_TOOL_CALLS: usize = 256;

/// What one chunk brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Took {
    /// Text, reasoning, a tool call or a finish reason: what the idle deadline waits for.
    pub progress: bool,
    /// The chunk had a member that we know; without one it could not be read.
    pub known: bool,
}

/// An answer so far.
#[derive(Debug, Default)]
pub struct Answer {
    text: ResponseText,
    /// `index` of each call in `text.tool_calls`.
    tool_index: Vec<u32>,
    last_tool: usize,
    bytes: usize,
    /// A delta carried output, so accumulated messages are repeats.
    by_delta: bool,
    /// Times are kept; off for an answer that came as one JSON body.
    timed: bool,

    first_token: Option<TimestampNs>,
    first_answer: Option<TimestampNs>,
    last_token: Option<TimestampNs>,
    gap_us: Vec<u32>,
    chunks: u32,
    first_chunk_tokens: Option<u32>,

    finish: Option<Finish>,
    failed: Option<String>,
    usable: bool,

    usage: Option<Counts>,
    bad_usage: bool,
    server: ServerFigures,
}

#[derive(Debug, Default, Clone, Copy)]
struct Counts {
    prompt: Option<u32>,
    completion: Option<u32>,
    total: Option<u32>,
    reasoning: Option<u32>,
    cached: Option<u32>,
}

/// What a piece of an answer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Output {
    reasoning: bool,
    answer: bool,
}

impl Output {
    fn any(self) -> bool {
        self.reasoning || self.answer
    }
}

impl Answer {
    /// An answer that comes as a stream, whose chunks have times.
    pub fn streamed() -> Self {
        Self { timed: true, ..Self::default() }
    }

    /// An answer that comes whole: no token has a time of its own.
    pub fn whole() -> Self {
        Self::default()
    }

    /// The finish reason, once one came.
    pub fn finish(&self) -> Option<Finish> {
        self.finish
    }

    /// An error the server put into the stream.
    pub fn failed(&self) -> Option<&str> {
        self.failed.as_deref()
    }

    /// At least one chunk could be used.
    pub fn usable(&self) -> bool {
        self.usable
    }

    /// Chunks that carried tokens.
    pub fn chunks(&self) -> u32 {
        self.chunks
    }

    /// The text is larger than [`MAX_TEXT_BYTES`].
    pub fn too_large(&self) -> bool {
        self.bytes > MAX_TEXT_BYTES
    }

    /// Notes an error that came outside a chunk.
    pub fn fail(&mut self, said: String) {
        self.failed.get_or_insert(said);
    }

    /// Takes one chunk that arrived at `t`.
    pub fn take(&mut self, chunk: &Chunk<'_>, t: TimestampNs) -> Took {
        if let Some(said) = &chunk.error.0 {
            self.fail(said.clone());
            return Took { progress: true, known: true };
        }
        if chunk.object.some() == Some("error") {
            self.fail(chunk.message.some().unwrap_or("an error without a message").to_owned());
            return Took { progress: true, known: true };
        }
        let known = chunk.choices.is_array || chunk.usage != Object::Missing || chunk.timings != Object::Missing;
        self.usable |= known;

        // Counts first: a guard on `choices` before them would lose those of the last chunk, whose `choices` are empty.
        self.count(&chunk.usage);
        if let Some(timings) = chunk.timings.good() {
            self.server.take_timings(timings);
        }
        self.account(&chunk.meta_info);
        let Some(choice) = chunk.choices.value.as_ref().and_then(Object::good) else {
            return Took { progress: false, known };
        };
        self.account(&choice.meta_info);
        let output = self.output(choice);
        if output.any() {
            self.stamp(output, t, chunk);
        }
        let finished = choice.finish_reason.some();
        if let Some(word) = finished {
            let (finish, failed) = chunk::finish(word);
            self.finish = Some(finish);
            if failed {
                self.fail(format!("finish reason `{word}`"));
            }
        }
        Took { progress: output.any() || finished.is_some(), known }
    }

    fn output(&mut self, choice: &Choice<'_>) -> Output {
        let mut output = Output::default();
        if let Some(delta) = choice.delta.good() {
            output = self.append(delta);
        }
        if let Some(text) = choice.text.some().filter(|_| !self.too_large()) {
            self.bytes += text.len();
            self.text.content.push_str(text);
            output.answer = true;
        }
        self.by_delta |= output.any();
        match choice.message.good() {
            Some(message) if !self.by_delta => self.replace(message),
            _ => output,
        }
    }

    /// Adds a delta.
    fn append(&mut self, delta: &Message<'_>) -> Output {
        let mut output = Output::default();
        // Once the limit is passed nothing more is kept; the reader ends the stream.
        if self.too_large() {
            return output;
        }
        if let Some(reasoning) = delta.reasoning() {
            self.bytes += reasoning.len();
            self.text.reasoning.push_str(reasoning);
            output.reasoning = true;
        }
        if let Some(content) = delta.answer() {
            self.bytes += content.len();
            self.text.content.push_str(content);
            output.answer = true;
        }
        for piece in delta.tool_calls.0.iter().filter_map(Object::good) {
            output.answer |= self.tool_piece(piece, piece.index);
        }
        output
    }

    /// Takes the accumulated text of a server that repeats it in each chunk, or the text of a whole answer.
    fn replace(&mut self, message: &Message<'_>) -> Output {
        let (reasoning, content) = (message.reasoning().unwrap_or(""), message.answer().unwrap_or(""));
        let calls_before = std::mem::take(&mut self.text.tool_calls);
        self.tool_index.clear();
        self.last_tool = 0;
        let List(pieces) = &message.tool_calls;
        for (n, piece) in pieces.iter().filter_map(Object::good).enumerate() {
            // In a whole message each element is a call of its own, and its place is its index.
            self.tool_piece(piece, Count::Good(u32::try_from(n).unwrap_or(u32::MAX)));
        }
        let output = Output {
            reasoning: reasoning.len() > self.text.reasoning.len(),
            answer: content.len() > self.text.content.len() || self.text.tool_calls != calls_before,
        };
        if output.any() {
            let calls: usize = self.text.tool_calls.iter().map(|c| c.name.len() + c.arguments.len()).sum();
            self.bytes = reasoning.len() + content.len() + calls;
            self.text.reasoning.replace_range(.., reasoning);
            self.text.content.replace_range(.., content);
        } else {
            self.text.tool_calls = calls_before;
        }
        output
    }

    fn tool_piece(&mut self, piece: &ToolPiece<'_>, index: Count) -> bool {
        let Some(function) = piece.function.good() else { return false };
        let name = function.name.some().unwrap_or("");
        let arguments = function.arguments.0.as_deref().unwrap_or("");
        if name.is_empty() && arguments.is_empty() {
            return false;
        }
        let place = match index {
            Count::Good(index) => self.tool_index.iter().position(|&i| i == index).unwrap_or_else(|| {
                self.tool_index.push(index);
                self.tool_index.len() - 1
            }),
            // A piece without an index goes on with the last call.
            Count::Missing | Count::Bad => self.last_tool,
        };
        if place >= MAX_TOOL_CALLS {
            self.tool_index.truncate(MAX_TOOL_CALLS);
            return true;
        }
        while self.text.tool_calls.len() <= place {
            self.text.tool_calls.push(ToolCall::default());
        }
        if self.tool_index.len() <= place {
            self.tool_index.push(u32::try_from(place).unwrap_or(u32::MAX));
        }
        self.last_tool = place;
        self.bytes += name.len() + arguments.len();
        let call = &mut self.text.tool_calls[place];
        // Some servers repeat the name in every piece.
        if call.name.is_empty() {
            call.name.push_str(name);
        }
        call.arguments.push_str(arguments);
        true
    }

    fn stamp(&mut self, output: Output, t: TimestampNs, chunk: &Chunk<'_>) {
        if !self.timed {
            return;
        }
        if self.first_token.is_none() {
            self.first_token = Some(t);
            self.text.first_chunk =
                Some(FirstChunk { reasoning_bytes: self.text.reasoning.len(), content_bytes: self.text.content.len() });
            // Counts of this very chunk say how many tokens came until now.
            let usage = chunk.usage.good().and_then(|u| u.completion_tokens.good());
            let timings = chunk.timings.good().and_then(|t| t.predicted_n.good());
            self.first_chunk_tokens = usage.or(timings).filter(|&n| n > 0);
        }
        if output.answer && self.first_answer.is_none() {
            self.first_answer = Some(t);
        }
        if let Some(last) = self.last_token {
            self.gap_us.push(u32::try_from((t.0 - last.0).max(0) / 1000).unwrap_or(u32::MAX));
        }
        self.last_token = Some(t);
        self.chunks = self.chunks.saturating_add(1);
    }

    fn count(&mut self, usage: &Object<Usage>) {
        let usage = match usage {
            Object::Missing => return,
            Object::Bad => {
                self.bad_usage = true;
                return;
            }
            Object::Good(usage) => usage,
        };
        let counts = self.usage.get_or_insert_default();
        let bad = &mut self.bad_usage;
        let mut set = |slot: &mut Option<u32>, count: Count| match count {
            Count::Missing => {}
            Count::Good(n) => *slot = Some(n),
            Count::Bad => {
                *slot = None;
                *bad = true;
            }
        };
        set(&mut counts.prompt, usage.prompt_tokens);
        set(&mut counts.completion, usage.completion_tokens);
        set(&mut counts.total, usage.total_tokens);
        set(&mut counts.reasoning, usage.reasoning_tokens);
        if let Some(details) = usage.completion_tokens_details.good() {
            set(&mut counts.reasoning, details.reasoning_tokens);
        }
        if let Some(details) = usage.prompt_tokens_details.good() {
            set(&mut counts.cached, details.cached_tokens);
        }
    }

    /// Takes what SGLang says beside the usage; where both speak, the usage is heard.
    fn account(&mut self, meta: &Object<MetaInfo>) {
        let Some(meta) = meta.good() else { return };
        let counts = self.usage.get_or_insert_default();
        counts.cached = counts.cached.or(meta.cached_tokens.good());
        counts.reasoning = counts.reasoning.or(meta.reasoning_tokens.good());
        self.server.take_meta(meta);
    }

    /// Whether the counts cannot be true; `None` where there are none.
    fn mismatch(&self) -> Option<bool> {
        if self.bad_usage {
            return Some(true);
        }
        let Counts { prompt, completion, total, reasoning, cached } = self.usage?;
        let more = |part: Option<u32>, whole: Option<u32>| matches!((part, whole), (Some(p), Some(w)) if p > w);
        let text = !self.text.content.is_empty() || !self.text.reasoning.is_empty() || !self.text.tool_calls.is_empty();
        let sum = prompt.zip(completion).map(|(p, c)| p.saturating_add(c));
        Some(
            completion == Some(0) && text
                // One token without text is an end of sequence right at the start.
                || completion.is_some_and(|n| n > 1) && !text
                || more(cached, prompt)
                || more(reasoning, completion)
                || more(sum, total),
        )
    }

    /// Writes what was seen into the row and moves the text out.
    pub fn fill(&mut self, seen: &mut Observation) {
        let row: &mut RequestRecord = &mut seen.record;
        row.usage_mismatch = self.mismatch();
        if let Some(counts) = self.usage {
            row.usage_prompt_tokens = counts.prompt;
            row.usage_completion_tokens = counts.completion;
            row.usage_reasoning_tokens = counts.reasoning;
            row.usage_cached_tokens = counts.cached;
        }
        if self.timed && self.usable {
            row.first_token_ns = self.first_token;
            row.first_answer_ns = self.first_answer;
            row.last_token_ns = self.last_token;
            row.gap_us = std::mem::take(&mut self.gap_us);
            row.chunks = Some(self.chunks);
            if self.chunks > 0 {
                row.first_chunk_tokens = self.first_chunk_tokens;
                row.first_chunk_tokens_source = Some(match self.first_chunk_tokens {
                    Some(_) => FirstChunkSource::Usage,
                    None => FirstChunkSource::None,
                });
            }
        }
        if self.usable {
            row.finish = Some(self.finish.unwrap_or(Finish::None));
            row.thinking_seen = Some(!self.text.reasoning.is_empty());
        }
        self.server.fill(row);
        seen.text = std::mem::take(&mut self.text);
    }
}
