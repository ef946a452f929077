//! The tokens of a GGUF file: bytes and kind by id.
use tokenizers::models::bpe::{Merges, Vocab};

use super::byte_level::Letters;
use super::error::TokenizerError;
use crate::engine::weights::gguf::{Array, Header, Value};
use crate::engine::weights::shown;

const TOKENS: &str = "tokenizer.ggml.tokens";
const KINDS: &str = "tokenizer.ggml.token_type";
const MERGES: &str = "tokenizer.ggml.merges";

/// What `tokenizer.ggml.token_type` says of a token (`enum llama_token_type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Normal,
    Unknown,
    Control,
    UserDefined,
    Unused,
    Byte,
}

/// Bytes of every token, one after the other.
pub(super) struct Vocabulary {
    bytes: Vec<u8>,
    /// Where each token's bytes end.
    ends: Vec<usize>,
    kinds: Vec<Kind>,
}

impl Vocabulary {
    pub(super) fn read(header: &Header<'_>) -> Result<Self, TokenizerError> {
        let kinds = match header.value(KINDS) {
            None => None,
            Some(value) => Some(kinds(&value)?),
        };
        let tokens = strings(header, TOKENS)?;
        let letters = Letters::new();
        let (mut bytes, mut ends) = (Vec::new(), Vec::new());
        for (id, token) in tokens.strings().enumerate() {
            let token = text(TOKENS, id, token)?;
            match kinds.as_ref().and_then(|kinds| kinds.get(id)) {
                None | Some(Kind::Normal | Kind::Byte) => letters.decode(token, &mut bytes),
                Some(_) => bytes.extend_from_slice(token.as_bytes()),
            }
            ends.push(bytes.len());
        }
        let kinds = kinds.unwrap_or_else(|| vec![Kind::Normal; ends.len()]);
        if kinds.len() != ends.len() {
            let found = format!("a list of {} for {} tokens", kinds.len(), ends.len());
            return Err(TokenizerError::KeyValue { key: KINDS, found, expected: "one entry per token" });
        }
        Ok(Self { bytes, ends, kinds })
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Bytes of a token; `None` for unused and empty entries and past the end.
    pub(super) fn bytes(&self, id: u32) -> Option<&[u8]> {
        let id = usize::try_from(id).ok()?;
        let end = *self.ends.get(id)?;
        let begin = id.checked_sub(1).map_or(0, |before| self.ends[before]);
        (self.kinds[id] != Kind::Unused && begin < end).then(|| &self.bytes[begin..end])
    }

    pub(super) fn is_control(&self, id: u32) -> bool {
        usize::try_from(id).ok().and_then(|id| self.kinds.get(id)) == Some(&Kind::Control)
    }

    /// Tokens that are cut out of a text whole, and whether from any text.
    pub(super) fn specials(&self) -> impl Iterator<Item = (u32, bool)> {
        (0..).zip(&self.kinds).filter_map(|(id, kind)| match kind {
            Kind::Control | Kind::Unknown => Some((id, false)),
            Kind::UserDefined => Some((id, true)),
            Kind::Normal | Kind::Unused | Kind::Byte => None,
        })
    }

    /// Id of every word, as the `tokenizers` crate wants it: in byte letters, special tokens included because a merge
    /// may lead to one. Unused entries are left out.
    pub(super) fn words(&self, header: &Header<'_>) -> Result<Vocab, TokenizerError> {
        let mut words = Vocab::default();
        words.reserve(self.len());
        let tokens = strings(header, TOKENS)?;
        for ((id, token), kind) in (0..).zip(tokens.strings()).zip(&self.kinds) {
            if *kind == Kind::Unused || token.is_empty() {
                continue;
            }
            let token = text(TOKENS, id as usize, token)?;
            if let Some(first) = words.insert(token.to_owned(), id) {
                return Err(TokenizerError::Duplicate { token: shown(token.as_bytes()), first, second: id });
            }
        }
        Ok(words)
    }
}

/// The pairs that are merged, first pair first: `left right`, one blank between.
pub(super) fn merges(header: &Header<'_>) -> Result<Merges, TokenizerError> {
    let pairs = strings(header, MERGES)?;
    let pair = |(index, pair): (usize, &[u8])| {
        let pair = text(MERGES, index, pair)?;
        let expected = "two words with a blank between";
        let (left, right) = pair
            .split_once(' ')
            .filter(|(left, right)| !left.is_empty() && !right.is_empty())
            .ok_or_else(|| TokenizerError::Entry { key: MERGES, index, entry: shown(pair.as_bytes()), expected })?;
        Ok((left.to_owned(), right.to_owned()))
    };
    pairs.strings().enumerate().map(pair).collect()
}

fn strings<'a>(header: &Header<'a>, key: &'static str) -> Result<Array<'a>, TokenizerError> {
    match header.value(key) {
        None => Err(TokenizerError::MissingKey { key }),
        Some(Value::Array(array)) if array.element == crate::engine::weights::gguf::ValueType::String => Ok(array),
        Some(value) => Err(TokenizerError::KeyValue { key, found: value.to_string(), expected: "a list of strings" }),
    }
}

fn text<'a>(key: &'static str, index: usize, bytes: &'a [u8]) -> Result<&'a str, TokenizerError> {
    std::str::from_utf8(bytes).map_err(|_| TokenizerError::Entry {
        key,
        index,
        entry: shown(bytes),
        expected: "UTF-8 text",
    })
}

fn kinds(value: &Value<'_>) -> Result<Vec<Kind>, TokenizerError> {
    let wrong = |found: String| TokenizerError::KeyValue { key: KINDS, found, expected: "a list of kinds from 1 to 6" };
    let Value::Array(array) = value else { return Err(wrong(value.to_string())) };
    let kind = |kind| match kind {
        1 => Ok(Kind::Normal),
        2 => Ok(Kind::Unknown),
        3 => Ok(Kind::Control),
        4 => Ok(Kind::UserDefined),
        5 => Ok(Kind::Unused),
        6 => Ok(Kind::Byte),
        other => Err(wrong(format!("a list with {other}"))),
    };
    let kinds: Vec<Kind> = array.unsigned().map(kind).collect::<Result<_, _>>()?;
    if kinds.len() as u64 != array.count {
        return Err(wrong(value.to_string()));
    }
    Ok(kinds)
}
