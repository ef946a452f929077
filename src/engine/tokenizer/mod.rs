//! Text to token ids and back: byte-level BPE from the vocabulary in a GGUF file.
//!
//! Words are split and merged by the `tokenizers` crate. Special tokens are cut out before it, so that one vocabulary
//! serves text in which `<|im_end|>` is a token and text in which it is ten characters.
mod byte_level;
mod error;
mod pre;
mod vocabulary;

use tokenizers::models::bpe::BPE;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence;

pub use error::TokenizerError;
use vocabulary::Vocabulary;

use super::weights::gguf::Header;
use super::weights::shown;

/// Texts of tokens that end an answer in some model family; a file names only one or two of its own by id.
/// The list is llama.cpp's for the families this version runs.
const END_TEXTS: [&str; 10] = [
    "<|endoftext|>",
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "<|end|>",
    "<end_of_turn>",
    "<EOT>",
    "_<EOT>",
    "</s>",
];

/// Text to token ids and back.
pub struct Tokenizer {
    vocabulary: Vocabulary,
    bpe: tokenizers::Tokenizer,
    /// Tokens cut out of the text before words are split, longest first within a first byte.
    specials: Vec<Special>,
    bos: Option<u32>,
    eos: Option<u32>,
    eot: Option<u32>,
    add_bos: bool,
    stop_ids: Vec<u32>,
    pre: &'static str,
}

struct Special {
    text: Box<[u8]>,
    id: u32,
    /// A token the user of the vocabulary defined: found in any text, special parsing or not.
    always: bool,
}

impl Tokenizer {
    /// The vocabulary of a file; `None` when it has none.
    ///
    /// # Errors
    /// When there is one and it cannot be used exactly: another algorithm, an unknown pre-tokenizer, broken lists.
    pub fn from_gguf(header: &Header<'_>) -> Result<Option<Self>, TokenizerError> {
        Self::from_gguf_as(header, None)
    }

    /// The same as if the file named `pre` as its pre-tokenizer, for a file whose name is wrong or missing.
    ///
    /// # Errors
    /// As [`from_gguf`](Self::from_gguf).
    pub fn from_gguf_as(header: &Header<'_>, pre: Option<&str>) -> Result<Option<Self>, TokenizerError> {
        let text = |key: &'static str| match header.value(key) {
            None => Ok(None),
            Some(value) => value.as_text().map(Some).ok_or_else(|| TokenizerError::KeyValue {
                key,
                found: value.to_string(),
                expected: "a string",
            }),
        };
        let Some(model) = text("tokenizer.ggml.model")?.filter(|model| !matches!(*model, "none" | "no_vocab")) else {
            return Ok(None);
        };
        if model != "gpt2" {
            return Err(TokenizerError::Model { found: shown(model.as_bytes()) });
        }
        // llama.cpp, too, takes a missing name as `default`.
        let pre = pre::find(pre.or(text("tokenizer.ggml.pre")?).unwrap_or("default"))?;
        let vocabulary = Vocabulary::read(header)?;
        let bpe = BPE::builder()
            .vocab_and_merges(vocabulary.words(header)?, vocabulary::merges(header)?)
            .ignore_merges(pre.ignore_merges)
            .build()
            .map_err(|error| TokenizerError::Merges { message: shown(error.to_string().as_bytes()) })?;
        let mut steps = pre.splits()?;
        steps.push(ByteLevel::new(false, false, false).into());
        let mut bpe = tokenizers::Tokenizer::new(bpe);
        bpe.with_pre_tokenizer(Some(Sequence::new(steps)));

        let id = |key: &'static str| match header.value(key) {
            None => Ok(None),
            Some(value) => {
                let id = value.as_unsigned().and_then(|id| u32::try_from(id).ok());
                id.filter(|&id| vocabulary.bytes(id).is_some()).map(Some).ok_or_else(|| TokenizerError::KeyValue {
                    key,
                    found: value.to_string(),
                    expected: "the id of a token",
                })
            }
        };
        let (bos, eos) = (id("tokenizer.ggml.bos_token_id")?, id("tokenizer.ggml.eos_token_id")?);
        let (eot, eom) = (id("tokenizer.ggml.eot_token_id")?, id("tokenizer.ggml.eom_token_id")?);
        let add_bos = match header.value("tokenizer.ggml.add_bos_token") {
            None => pre.add_bos,
            Some(value) => value.as_bool().ok_or_else(|| TokenizerError::KeyValue {
                key: "tokenizer.ggml.add_bos_token",
                found: value.to_string(),
                expected: "true or false",
            })?,
        };
        let specials = specials(&vocabulary);
        let by_text =
            specials.iter().filter(|s| END_TEXTS.iter().any(|text| text.as_bytes() == &*s.text)).map(|s| s.id);
        let mut stop_ids: Vec<u32> = by_text.chain(eos).chain(eot).chain(eom).collect();
        stop_ids.sort_unstable();
        stop_ids.dedup();
        Ok(Some(Self { vocabulary, bpe, specials, bos, eos, eot, add_bos, stop_ids, pre: pre.name }))
    }

    /// Ids of a text, nothing added in front or behind.
    ///
    /// `parse_special`: whether control tokens written out in the text become those tokens; when `false` they are
    /// ordinary characters. Characters whose bytes the vocabulary lacks are left out, as in llama.cpp.
    pub fn encode(&self, text: &str, parse_special: bool) -> Vec<u32> {
        let mut ids = Vec::with_capacity(text.len() / 3);
        let (mut plain, mut at) = (0, 0);
        while let Some(step) = self.next_candidate(&text.as_bytes()[at..]) {
            at += step;
            match self.special_at(&text.as_bytes()[at..], parse_special) {
                // A match begins and ends with whole UTF-8 text, so both ends are character boundaries.
                Some(special) => {
                    self.encode_words(&text[plain..at], &mut ids);
                    ids.push(special.id);
                    at += special.text.len();
                    plain = at;
                }
                None => at += 1,
            }
        }
        self.encode_words(&text[plain..], &mut ids);
        ids
    }

    /// Ids of a chat that the template wrote out: special tokens are parsed, none is added, and the text begins with
    /// at most one beginning-of-sequence token.
    pub fn encode_chat(&self, rendered: &str) -> Vec<u32> {
        let mut ids = self.encode(rendered, true);
        if let Some(bos) = self.bos {
            let leading = ids.iter().take_while(|&&id| id == bos).count();
            ids.drain(..leading.saturating_sub(1));
        }
        ids
    }

    /// Ids of a plain text to be continued: special tokens are characters, and beginning-of-sequence comes first
    /// where the vocabulary asks for it.
    pub fn encode_text(&self, text: &str) -> Vec<u32> {
        let mut ids = self.encode(text, false);
        if let Some(bos) = self.bos.filter(|_| self.add_bos) {
            ids.insert(0, bos);
        }
        ids
    }

    /// Text of a sequence. Control tokens and ids without a token are left out; bytes that are no UTF-8 become `U+FFFD`.
    pub fn decode(&self, ids: &[u32]) -> String {
        let mut bytes = Vec::with_capacity(4 * ids.len());
        for &id in ids.iter().filter(|&&id| !self.vocabulary.is_control(id)) {
            bytes.extend_from_slice(self.decode_token_bytes(id).unwrap_or_default());
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Bytes of one token, which may be a part of a character; `None` for an id without a token (a hole in the
    /// vocabulary, or past its end). Control tokens give their name.
    pub fn decode_token_bytes(&self, id: u32) -> Option<&[u8]> {
        self.vocabulary.bytes(id)
    }

    /// Text of a token, with `U+FFFD` for a part of a character.
    pub fn token_text(&self, id: u32) -> Option<String> {
        self.decode_token_bytes(id).map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    }

    /// The token that begins a text.
    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    /// The token that ends a text.
    pub fn eos(&self) -> Option<u32> {
        self.eos
    }

    /// The token that ends a turn of a chat, where the file names one.
    pub fn eot(&self) -> Option<u32> {
        self.eot
    }

    /// Whether a plain text begins with [`bos`](Self::bos).
    pub fn add_bos(&self) -> bool {
        self.add_bos
    }

    /// Ids that end an answer, sorted: those the file names, and control tokens known for it by their text.
    pub fn stop_ids(&self) -> &[u32] {
        &self.stop_ids
    }

    /// Number of ids, which run from 0; some may have no token.
    pub fn vocabulary(&self) -> usize {
        self.vocabulary.len()
    }

    /// Name of the pre-tokenizer, as `smollm`.
    pub fn pre(&self) -> &'static str {
        self.pre
    }

    /// Distance to the next byte that begins some special token.
    fn next_candidate(&self, bytes: &[u8]) -> Option<usize> {
        let first = |byte: &u8| self.specials.binary_search_by(|special| special.text[0].cmp(byte)).is_ok();
        bytes.iter().position(first)
    }

    /// The longest special token that `bytes` begins with.
    fn special_at(&self, bytes: &[u8], parse_special: bool) -> Option<&Special> {
        let begin = self.specials.partition_point(|special| special.text[0] < bytes[0]);
        let same = self.specials[begin..].iter().take_while(|special| special.text[0] == bytes[0]);
        same.filter(|special| special.always || parse_special).find(|special| bytes.starts_with(&special.text))
    }

    fn encode_words(&self, text: &str, ids: &mut Vec<u32>) {
        if text.is_empty() {
            return;
        }
        if let Ok(encoding) = self.bpe.encode_fast(text, false) {
            ids.extend_from_slice(encoding.get_ids());
            return;
        }
        // The regular expressions give up on a million blanks in a row. Halves are tokens all the same, only the pair
        // at the cut may differ.
        let middle = text.floor_char_boundary(text.len() / 2);
        if middle > 0 {
            self.encode_words(&text[..middle], ids);
            self.encode_words(&text[middle..], ids);
        }
    }
}

/// Tokens to cut out of a text, sorted by first byte, then longest first.
fn specials(vocabulary: &Vocabulary) -> Vec<Special> {
    let mut specials: Vec<Special> = vocabulary
        .specials()
        .filter_map(|(id, always)| {
            let text = vocabulary.bytes(id).filter(|text| !text.is_empty())?;
            Some(Special { text: text.into(), id, always })
        })
        .collect();
    specials.sort_unstable_by(|a, b| {
        let lengths = b.text.len().cmp(&a.text.len());
        a.text[0].cmp(&b.text[0]).then(lengths).then_with(|| a.text.cmp(&b.text)).then(a.id.cmp(&b.id))
    });
    specials
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tokenizer[{} tokens, pre {}, {} special]", self.vocabulary(), self.pre, self.specials.len())
    }
}
