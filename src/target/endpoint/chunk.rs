//! One JSON object of an OpenAI stream (chat or completions), borrowed from the event that carried it.
//!
//! Facts about the members: `facts/engines.md` §13. Everything is optional; members of a wrong type are left out or flagged, so
//! that a bad count never costs the text. Nesting is bounded by serde_json (127), size by the event limit of the parser.
use serde::Deserialize;

use super::lenient::{Count, ErrorText, First, JsonText, List, Number, Object, Text};
use crate::record::Finish;

/// A chunk, or a whole answer where no stream came.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Chunk<'a> {
    /// The answers; only one was asked for.
    #[serde(borrow)]
    pub choices: First<Object<Choice<'a>>>,
    /// Token counts; with an empty `choices` at the end, or in every chunk.
    pub usage: Object<Usage>,
    /// llama.cpp's own clock; at the end, or in every chunk.
    pub timings: Object<Timings>,
    /// SGLang's own account, where it gives one.
    pub meta_info: Object<MetaInfo>,
    /// An error inside a 200 stream.
    pub error: ErrorText,
    /// `error` in the form older vLLM servers use, with the message beside it.
    #[serde(borrow)]
    pub object: Text<'a>,
    /// See `object`.
    #[serde(borrow)]
    pub message: Text<'a>,
}

/// One answer.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Choice<'a> {
    /// What is new.
    #[serde(borrow)]
    pub delta: Object<Message<'a>>,
    /// The whole answer so far: without a stream, and in the streams of a few servers.
    #[serde(borrow)]
    pub message: Object<Message<'a>>,
    /// What is new in a completion without a chat.
    #[serde(borrow)]
    pub text: Text<'a>,
    /// Why it ended.
    #[serde(borrow)]
    pub finish_reason: Text<'a>,
    /// See [`Chunk::meta_info`].
    pub meta_info: Object<MetaInfo>,
}

/// Text of an answer or of its next piece.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Message<'a> {
    /// The answer.
    #[serde(borrow)]
    pub content: Text<'a>,
    /// Reasoning, as llama.cpp, SGLang, NInfer and older vLLM name it.
    #[serde(borrow)]
    pub reasoning_content: Text<'a>,
    /// Reasoning, as vLLM names it now.
    #[serde(borrow)]
    pub reasoning: Text<'a>,
    /// A refusal, which is an answer too.
    #[serde(borrow)]
    pub refusal: Text<'a>,
    /// Pieces of tool calls.
    #[serde(borrow)]
    pub tool_calls: List<Object<ToolPiece<'a>>>,
}

impl Message<'_> {
    /// Reasoning in either member; servers that fill both fill them alike.
    pub fn reasoning(&self) -> Option<&str> {
        self.reasoning_content.some().or_else(|| self.reasoning.some())
    }

    /// Answer or refusal.
    pub fn answer(&self) -> Option<&str> {
        self.content.some().or_else(|| self.refusal.some())
    }
}

/// A piece of a tool call.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ToolPiece<'a> {
    /// Which call it belongs to; missing means the last one.
    pub index: Count,
    /// Name and arguments.
    #[serde(borrow)]
    pub function: Object<Function<'a>>,
}

/// Name and arguments of a call.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Function<'a> {
    /// Name; in the first piece only.
    #[serde(borrow)]
    pub name: Text<'a>,
    /// A piece of the arguments; some servers send an object instead of its text.
    #[serde(borrow)]
    pub arguments: JsonText<'a>,
}

/// Token counts as the server has them.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// Prompt, template included.
    pub prompt_tokens: Count,
    /// Generated.
    pub completion_tokens: Count,
    /// Both.
    pub total_tokens: Count,
    /// Reasoning, where SGLang puts it.
    pub reasoning_tokens: Count,
    /// Cached prompt tokens.
    pub prompt_tokens_details: Object<PromptDetails>,
    /// Reasoning tokens.
    pub completion_tokens_details: Object<CompletionDetails>,
}

/// Details of the prompt.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct PromptDetails {
    /// Answered from a cache.
    pub cached_tokens: Count,
}

/// Details of the completion.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct CompletionDetails {
    /// Spent on reasoning.
    pub reasoning_tokens: Count,
}

/// llama.cpp's `timings`.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Timings {
    /// Prompt tokens from its cache.
    pub cache_n: Count,
    /// Prompt tokens computed.
    pub prompt_n: Count,
    /// Time in prefill, ms.
    pub prompt_ms: Number,
    /// Tokens generated.
    pub predicted_n: Count,
    /// Time in decode, ms.
    pub predicted_ms: Number,
    /// Tokens drafted.
    pub draft_n: Count,
    /// Drafted tokens accepted.
    pub draft_n_accepted: Count,
}

/// SGLang's `meta_info`. Names changed over its versions, so most have two (`facts/engines.md` §13).
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct MetaInfo {
    /// Prompt tokens from its cache.
    pub cached_tokens: Count,
    /// Reasoning tokens.
    pub reasoning_tokens: Count,
    /// Seconds before prefill.
    pub queue_time: Number,
    /// Verification rounds.
    pub spec_verify_ct: Count,
    /// Drafted tokens accepted.
    pub spec_num_correct_drafts: Count,
    /// The same under another name.
    pub spec_accepted_drafts: Count,
    /// Tokens drafted.
    pub spec_num_proposed_drafts: Count,
    /// The same under another name.
    pub spec_proposed_drafts: Count,
}

/// A finish reason in our words, and whether it reports a failure of the server.
pub fn finish(word: &str) -> (Finish, bool) {
    match word {
        "stop" | "eos" | "eos_token" | "stop_sequence" | "end_turn" => (Finish::Stop, false),
        "length" | "max_tokens" | "model_context_window_exceeded" => (Finish::Length, false),
        "tool_calls" | "function_call" | "tool_use" => (Finish::ToolCalls, false),
        "content_filter" | "refusal" => (Finish::ContentFilter, false),
        "abort" | "error" => (Finish::Other, true),
        _ => (Finish::Other, false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(json: &str) -> Chunk<'_> {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn text_is_borrowed_from_the_event_unless_it_holds_an_escape() {
        let content = |json: &'static str| {
            let chunk = chunk(json);
            chunk.choices.value.unwrap().good().unwrap().delta.good().unwrap().content.0.clone().unwrap()
        };
        use std::borrow::Cow;
        assert!(matches!(content(r#"{"choices":[{"delta":{"content":"ab"}}]}"#), Cow::Borrowed("ab")));
        assert!(matches!(content(r#"{"choices":[{"delta":{"content":"a\nb"}}]}"#), Cow::Owned(s) if s == "a\nb"));
    }

    #[test]
    fn members_of_a_wrong_type_never_lose_the_text_beside_them() {
        for odd in ["null", "true", "-1", "0.5", "\"x\"", "[1,[2]]", "{\"a\":{\"b\":1}}"] {
            for member in ["usage", "timings", "meta_info", "object", "message"] {
                let json = format!(
                    r#"{{"{member}":{odd},"choices":[{{"delta":{{"content":"t","tool_calls":{odd},"reasoning":{odd}}}}}]}}"#
                );
                let chunk: Chunk<'_> = serde_json::from_str(&json).unwrap_or_else(|e| panic!("{json}: {e}"));
                let choice = chunk.choices.value.unwrap();
                assert_eq!(choice.good().unwrap().delta.good().unwrap().content.some(), Some("t"), "{json}");
            }
        }
    }

    #[test]
    fn only_unsigned_integers_are_counts() {
        for (json, want) in [
            ("7", Count::Good(7)),
            ("null", Count::Missing),
            ("-1", Count::Bad),
            ("3.0", Count::Bad),
            ("\"3\"", Count::Bad),
            ("4294967296", Count::Bad),
            ("99999999999999999999", Count::Bad),
            ("[]", Count::Bad),
        ] {
            assert_eq!(serde_json::from_str::<Count>(json).unwrap(), want, "{json}");
        }
    }

    #[test]
    fn an_error_member_is_said_in_one_line_and_null_is_no_error() {
        let said = |json: &str| serde_json::from_str::<ErrorText>(json).unwrap().0;
        assert_eq!(said(r#"{"message":"no","type":"t","code":5}"#).as_deref(), Some("no (t, 5)"));
        assert_eq!(said(r#"{"code":400,"reason":"x"}"#).as_deref(), Some(r#"{"code":400,"reason":"x"}"#));
        assert_eq!(said("\"gone\"").as_deref(), Some("gone"));
        for none in ["null", "false", "\"\"", "{}"] {
            assert_eq!(said(none), None, "{none}");
        }
    }

    #[test]
    fn nesting_beyond_the_limit_is_an_error_and_no_stack_overflow() {
        let deep = |n: usize| format!(r#"{{"error":{}{},"choices":[]}}"#, "[".repeat(n), "]".repeat(n));
        assert!(serde_json::from_str::<Chunk<'_>>(&deep(100)).is_ok());
        assert!(serde_json::from_str::<Chunk<'_>>(&deep(400_000)).is_err());
        let ignored = format!(r#"{{"x":{}{},"choices":[]}}"#, "[".repeat(400_000), "]".repeat(400_000));
        let _ = serde_json::from_str::<Chunk<'_>>(&ignored);
    }
}
