//! The Messages stream of Anthropic, as NInfer, llama.cpp and others serve it, told in the members of an OpenAI chunk.
//!
//! `message_start` (usage of the prompt), then for each block `content_block_start`, `content_block_delta`s and
//! `content_block_stop`, then `message_delta` (stop reason, usage of the answer) and `message_stop`. `ping` may come anywhere.
//! An answer without a stream is one object of the type `message`. Source: Anthropic, "Streaming Messages".
use std::borrow::Cow;

use serde::Deserialize;

use super::chunk::{Choice, Chunk, Function, Message, PromptDetails, ToolPiece, Usage};
use super::lenient::{Count, ErrorText, First, JsonText, List, Object, Text};

/// One event, or a whole answer.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Event<'a> {
    /// Which event it is.
    #[serde(borrow, rename = "type")]
    kind: Text<'a>,
    /// In `message_start`: the answer as far as it is known.
    message: Object<Start>,
    /// Which block; a tool call keeps it for its pieces.
    index: Count,
    /// In `content_block_start`.
    #[serde(borrow)]
    content_block: Object<Block<'a>>,
    /// In `content_block_delta` and `message_delta`.
    #[serde(borrow)]
    delta: Object<Delta<'a>>,
    /// In `message_delta`, and in a whole answer.
    usage: Object<MessagesUsage>,
    /// Blocks of a whole answer.
    #[serde(borrow)]
    content: List<Object<Block<'a>>>,
    /// Of a whole answer.
    #[serde(borrow)]
    stop_reason: Text<'a>,
    /// In `error`.
    error: ErrorText,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Start {
    usage: Object<MessagesUsage>,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Block<'a> {
    #[serde(borrow)]
    text: Text<'a>,
    #[serde(borrow)]
    thinking: Text<'a>,
    /// Of a tool call.
    #[serde(borrow)]
    name: Text<'a>,
    /// Of a tool call in a whole answer; a stream starts with `{}` and sends pieces.
    #[serde(borrow)]
    input: JsonText<'a>,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Delta<'a> {
    #[serde(borrow)]
    text: Text<'a>,
    #[serde(borrow)]
    thinking: Text<'a>,
    #[serde(borrow)]
    partial_json: Text<'a>,
    #[serde(borrow)]
    stop_reason: Text<'a>,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct MessagesUsage {
    /// Prompt tokens that no cache answered.
    input_tokens: Count,
    /// Generated so far.
    output_tokens: Count,
    /// Prompt tokens from a cache.
    cache_read_input_tokens: Count,
    /// Prompt tokens computed and put into a cache.
    cache_creation_input_tokens: Count,
}

/// What an event is for the reader of the stream.
#[derive(Debug, PartialEq)]
pub enum Told<'a> {
    /// Something for the answer.
    Chunk(Box<Chunk<'a>>),
    /// A keep-alive.
    Ping,
    /// Nothing more comes.
    Stop,
    /// No event of this protocol.
    Unknown,
}

impl<'a> Event<'a> {
    /// The event in the members of an OpenAI chunk.
    pub fn told(self) -> Told<'a> {
        let kind = self.kind.0.as_deref().unwrap_or("").to_owned();
        let mut chunk = Chunk { choices: First { is_array: true, value: None }, ..Chunk::default() };
        match kind.as_str() {
            "ping" => return Told::Ping,
            "message_stop" => return Told::Stop,
            "message_start" => {
                // Its count of output is a placeholder; the true one comes in `message_delta`.
                if let Object::Good(Start { usage: Object::Good(usage) }) = self.message {
                    chunk.usage = Object::Good(Usage { completion_tokens: Count::Missing, ..usage.openai() });
                }
            }
            "content_block_start" => {
                if let Object::Good(block) = self.content_block {
                    let input = None;
                    chunk.choices.value = Some(choice(block.message(self.index, input)));
                }
            }
            "content_block_delta" => {
                if let Object::Good(delta) = self.delta {
                    let message = match delta.partial_json.0 {
                        Some(piece) => tool(self.index, Text(None), Some(piece)),
                        None => text_of(delta.text, delta.thinking),
                    };
                    chunk.choices.value = Some(choice(message));
                }
            }
            "content_block_stop" => {}
            "message_delta" => {
                if let Object::Good(usage) = self.usage {
                    chunk.usage = Object::Good(usage.openai());
                }
                if let Object::Good(delta) = self.delta {
                    let end = Choice { finish_reason: delta.stop_reason, ..Choice::default() };
                    chunk.choices.value = Some(Object::Good(end));
                }
            }
            "message" => return Told::Chunk(Box::new(self.whole())),
            _ if self.error.0.is_some() => {}
            _ => return Told::Unknown,
        }
        chunk.error = self.error;
        Told::Chunk(Box::new(chunk))
    }

    /// An answer without a stream: its blocks in one message.
    fn whole(self) -> Chunk<'a> {
        let (mut content, mut reasoning, mut calls) = (String::new(), String::new(), Vec::new());
        for block in self.content.0 {
            let Object::Good(mut block) = block else { continue };
            content.push_str(block.text.some().unwrap_or(""));
            reasoning.push_str(block.thinking.some().unwrap_or(""));
            if block.name.some().is_some() {
                let input = block.input.0.take();
                calls.extend(block.message(Count::Missing, input).tool_calls.0);
            }
        }
        let message = Message {
            content: Text(Some(Cow::Owned(content))),
            reasoning_content: Text(Some(Cow::Owned(reasoning))),
            tool_calls: List(calls),
            ..Message::default()
        };
        let choice = Choice { message: Object::Good(message), finish_reason: self.stop_reason, ..Choice::default() };
        let usage = match self.usage {
            Object::Good(usage) => Object::Good(usage.openai()),
            Object::Missing => Object::Missing,
            Object::Bad => Object::Bad,
        };
        Chunk {
            choices: First { is_array: true, value: Some(Object::Good(choice)) },
            usage,
            error: self.error,
            ..Chunk::default()
        }
    }
}

fn choice(delta: Message<'_>) -> Object<Choice<'_>> {
    Object::Good(Choice { delta: Object::Good(delta), ..Choice::default() })
}

fn text_of<'a>(content: Text<'a>, reasoning_content: Text<'a>) -> Message<'a> {
    Message { content, reasoning_content, ..Message::default() }
}

fn tool<'a>(index: Count, name: Text<'a>, arguments: Option<Cow<'a, str>>) -> Message<'a> {
    let function = Function { name, arguments: JsonText(arguments) };
    let piece = ToolPiece { index, function: Object::Good(function) };
    Message { tool_calls: List(vec![Object::Good(piece)]), ..Message::default() }
}

impl<'a> Block<'a> {
    fn message(self, index: Count, input: Option<Cow<'a, str>>) -> Message<'a> {
        if self.name.some().is_some() { tool(index, self.name, input) } else { text_of(self.text, self.thinking) }
    }
}

impl MessagesUsage {
    /// The counts as OpenAI has them: there the prompt holds the cached tokens, here it does not.
    fn openai(&self) -> Usage {
        let parts = [self.input_tokens, self.cache_read_input_tokens, self.cache_creation_input_tokens];
        let sum = parts.iter().try_fold(0_u32, |sum, part| match part {
            Count::Missing => Some(sum),
            Count::Good(n) => sum.checked_add(*n),
            Count::Bad => None,
        });
        let prompt_tokens = match (self.input_tokens, sum) {
            (Count::Missing, Some(_)) => Count::Missing,
            (_, Some(sum)) => Count::Good(sum),
            (_, None) => Count::Bad,
        };
        Usage {
            prompt_tokens,
            completion_tokens: self.output_tokens,
            prompt_tokens_details: match self.cache_read_input_tokens {
                Count::Missing => Object::Missing,
                cached_tokens => Object::Good(PromptDetails { cached_tokens }),
            },
            ..Usage::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(json: &str) -> Told<'_> {
        serde_json::from_str::<Event<'_>>(json).unwrap().told()
    }

    fn usage(json: &str) -> Usage {
        let Told::Chunk(chunk) = told(json) else { panic!("{json}") };
        let Object::Good(usage) = chunk.usage else { panic!("no usage in {json}") };
        usage
    }

    #[test]
    fn the_prompt_is_what_was_computed_and_what_was_cached() {
        let start = usage(
            r#"{"type":"message_start","message":{"usage":{"input_tokens":30,"cache_read_input_tokens":12,"cache_creation_input_tokens":4,"output_tokens":1}}}"#,
        );
        assert_eq!((start.prompt_tokens, start.completion_tokens), (Count::Good(46), Count::Missing));
        assert_eq!(start.prompt_tokens_details.good().unwrap().cached_tokens, Count::Good(12));
        let bad = usage(r#"{"type":"message_delta","usage":{"input_tokens":"3","output_tokens":-1}}"#);
        assert_eq!((bad.prompt_tokens, bad.completion_tokens), (Count::Bad, Count::Bad));
    }

    #[test]
    fn events_without_output_are_known_and_other_protocols_are_not() {
        assert_eq!(told(r#"{"type":"ping"}"#), Told::Ping);
        assert_eq!(told(r#"{"type":"message_stop"}"#), Told::Stop);
        assert!(matches!(told(r#"{"type":"content_block_stop","index":0}"#), Told::Chunk(_)));
        assert_eq!(told(r#"{"choices":[{"delta":{"content":"x"}}]}"#), Told::Unknown);
        assert_eq!(told(r#"{"type":["message_stop"]}"#), Told::Unknown);
    }
}
