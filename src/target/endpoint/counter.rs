//! Our own count of tokens, for servers whose word is missing or is to be checked.
//!
//! Text is counted as it came: end-of-sequence and the marks around reasoning are tokens for a server and no text here, so counts of
//! sound servers differ by one to four. Nothing is counted while a stream is read.
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};

use super::error::EndpointError;
use crate::engine::tokenizer::Tokenizer;
use crate::engine::weights::ModelFile;
use crate::record::ResponseText;

/// Largest tokenizer.json that is read; the largest published ones are below 40 MiB.
const MAX_FILE_BYTES: u64 = 256 << 20;

/// A vocabulary that turns text into tokens.
#[derive(Clone)]
pub struct TokenCounter {
    vocabulary: Arc<Vocabulary>,
}

enum Vocabulary {
    Gguf(Box<Tokenizer>),
    Json(Box<tokenizers::Tokenizer>),
}

/// Counts of one answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnswerCount {
    /// All of its text.
    pub completion: u32,
    /// Text of the first chunk that carried any.
    pub first_chunk: Option<u32>,
}

impl TokenCounter {
    /// Reads a tokenizer.json, or the vocabulary of a GGUF.
    ///
    /// # Errors
    /// When the file is neither, or cannot be used exactly.
    pub fn open(path: &str) -> Result<Self, EndpointError> {
        let failed = |cause: String| EndpointError::Tokenizer { path: path.to_owned(), cause };
        let gguf = Path::new(path).extension().is_some_and(|end| end.eq_ignore_ascii_case("gguf"));
        let vocabulary = if gguf {
            let file = ModelFile::open(path).map_err(|error| failed(error.to_string()))?;
            let tokenizer = file.tokenizer.ok_or_else(|| failed("it holds no vocabulary".to_owned()))?;
            Vocabulary::Gguf(Box::new(tokenizer))
        } else {
            let bytes = std::fs::metadata(path).map_err(|error| failed(error.to_string()))?.len();
            if bytes > MAX_FILE_BYTES {
                return Err(failed(format!("it has {bytes} bytes, a tokenizer.json has at most {MAX_FILE_BYTES}")));
            }
            let tokenizer = tokenizers::Tokenizer::from_file(path).map_err(|error| failed(error.to_string()))?;
            Vocabulary::Json(Box::new(tokenizer))
        };
        Ok(Self { vocabulary: Arc::new(vocabulary) })
    }

    /// Tokens of a text, nothing added in front or behind; `None` where the vocabulary has no token for some of it.
    pub fn text(&self, text: &str) -> Option<u32> {
        if text.is_empty() {
            return Some(0);
        }
        match &*self.vocabulary {
            Vocabulary::Gguf(tokenizer) => u32::try_from(tokenizer.encode(text, false).len()).ok(),
            Vocabulary::Json(tokenizer) => {
                let encoding = tokenizer.encode_fast(text, false).ok()?;
                u32::try_from(encoding.len()).ok()
            }
        }
    }

    /// Tokens of an answer. `None` for one with tool calls: how a model writes those is not seen.
    pub fn answer(&self, text: &ResponseText) -> Option<AnswerCount> {
        if !text.tool_calls.is_empty() {
            return None;
        }
        let completion = self.text(&text.reasoning)?.checked_add(self.text(&text.content)?)?;
        let first_chunk = text.first_chunk.and_then(|first| {
            let reasoning = text.reasoning.get(..first.reasoning_bytes)?;
            let content = text.content.get(..first.content_bytes)?;
            self.text(reasoning)?.checked_add(self.text(content)?).filter(|&n| n > 0)
        });
        Some(AnswerCount { completion, first_chunk })
    }
}

impl std::fmt::Debug for TokenCounter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match &*self.vocabulary {
            Vocabulary::Gguf(_) => "TokenCounter[gguf]",
            Vocabulary::Json(_) => "TokenCounter[tokenizer.json]",
        })
    }
}

/// The body of a request to `/tokenize`: llama.cpp reads `content`, vLLM and SGLang `model` and `prompt`.
pub(super) fn tokenize_body(model: &str, text: &str) -> Vec<u8> {
    let body = json!({
        "model": model, "prompt": text, "content": text, "add_special": false, "add_special_tokens": false,
    });
    body.to_string().into_bytes()
}

/// The number of tokens that `/tokenize` answers with: `count`, else the length of `tokens`.
pub(super) fn tokenize_count(answer: &[u8]) -> Option<u32> {
    let answer: Value = serde_json::from_slice(answer).ok()?;
    let count = answer.get("count").and_then(Value::as_u64);
    let tokens = || answer.get("tokens").and_then(Value::as_array).map(|tokens| tokens.len() as u64);
    u32::try_from(count.or_else(tokens)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::FirstChunk;

    /// Word level with a hole in its ids, in the form of `tokenizers`.
    fn words() -> (tempfile::TempDir, TokenCounter) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokenizer.json");
        let json = r#"{"version":"1.0","truncation":null,"padding":null,"added_tokens":[],"normalizer":null,"pre_tokenizer":{"type":"Whitespace"},"post_processor":null,"decoder":null,"model":{"type":"WordLevel","vocab":{"a":0,"b":1,"[UNK]":2,"c":7},"unk_token":"[UNK]"}}"#;
        std::fs::write(&path, json).unwrap();
        let counter = TokenCounter::open(path.to_str().unwrap()).unwrap();
        (folder, counter)
    }

    #[test]
    fn an_answer_is_counted_whole_and_by_its_first_chunk() {
        let (_folder, counter) = words();
        let mut text = ResponseText { reasoning: "a b".into(), content: "c c z a".into(), ..ResponseText::default() };
        text.first_chunk = Some(FirstChunk { reasoning_bytes: 1, content_bytes: 0 });
        assert_eq!(counter.answer(&text), Some(AnswerCount { completion: 6, first_chunk: Some(1) }));
        text.first_chunk = None;
        assert_eq!(counter.answer(&text).unwrap().first_chunk, None);
        // A cut inside a character, which no stream makes, is no panic.
        text.content = "é".into();
        text.first_chunk = Some(FirstChunk { reasoning_bytes: 0, content_bytes: 1 });
        assert_eq!(counter.answer(&text).unwrap().first_chunk, None);
    }

    #[test]
    fn a_file_that_is_no_tokenizer_is_named() {
        for path in ["/surely/not/there.json", "/surely/not/there.gguf"] {
            let error = TokenCounter::open(path).unwrap_err();
            assert!(error.to_string().contains(path), "{error}");
        }
    }

    #[test]
    fn answers_of_tokenize_are_read_as_each_server_writes_them() {
        for (answer, count) in [
            (r#"{"tokens":[1,2,3]}"#, Some(3)),
            (r#"{"count":4,"max_model_len":9,"tokens":[1,2,3,4]}"#, Some(4)),
            (r#"{"tokens":[{"id":1,"piece":"a"}]}"#, Some(1)),
            (r#"{"error":"no"}"#, None),
            ("<html>", None),
        ] {
            assert_eq!(tokenize_count(answer.as_bytes()), count, "{answer}");
        }
    }
}
