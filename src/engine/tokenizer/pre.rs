//! How a text is split into words before merging, by the name a GGUF file gives it.
//!
//! The regular expressions are those of llama.cpp's `llm_tokenizer_bpe`, applied one after the other to the pieces
//! that the one before left; what an expression does not match is a piece, too.
use tokenizers::SplitDelimiterBehavior;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};

use super::error::TokenizerError;
use crate::engine::weights::{nearest, shown};

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)";
const LLAMA3: &str = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2: &str = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// One way of splitting, with the two habits that llama.cpp ties to the name.
pub(super) struct Pre {
    pub(super) name: &'static str,
    expressions: &'static [&'static str],
    /// A word that is itself a token is taken whole, whatever the merges say.
    pub(super) ignore_merges: bool,
    /// Whether beginning-of-sequence is added where the file does not say.
    pub(super) add_bos: bool,
}

static KNOWN: [Pre; 5] = [
    Pre { name: "smollm", expressions: &[r"\p{N}", GPT2], ignore_merges: false, add_bos: false },
    Pre { name: "gpt-2", expressions: &[GPT2], ignore_merges: false, add_bos: false },
    Pre {
        name: "default",
        expressions: &[r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"],
        ignore_merges: false,
        add_bos: false,
    },
    Pre { name: "llama-bpe", expressions: &[LLAMA3], ignore_merges: true, add_bos: true },
    Pre { name: "qwen2", expressions: &[QWEN2], ignore_merges: false, add_bos: false },
];

/// The pre-tokenizer of that name.
pub(super) fn find(name: &str) -> Result<&'static Pre, TokenizerError> {
    let known = match name {
        "llama3" | "llama-v3" => "llama-bpe",
        other => other,
    };
    KNOWN.iter().find(|pre| pre.name == known).ok_or_else(|| {
        let names: Vec<&str> = KNOWN.iter().map(|pre| pre.name).collect();
        TokenizerError::Pre { found: shown(name.as_bytes()), nearest: nearest(name, &names), known: names.join(", ") }
    })
}

impl Pre {
    /// The splits, in order.
    pub(super) fn splits(&self) -> Result<Vec<PreTokenizerWrapper>, TokenizerError> {
        let split = |expression: &&str| {
            let pattern = SplitPattern::Regex((*expression).to_owned());
            Split::new(pattern, SplitDelimiterBehavior::Isolated, false)
                .map(PreTokenizerWrapper::from)
                .map_err(|error| TokenizerError::Merges { message: error.to_string() })
        };
        self.expressions.iter().map(split).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_name_compiles_and_an_unknown_one_gets_the_nearest() {
        for name in ["smollm", "gpt-2", "default", "llama-bpe", "llama3", "llama-v3", "qwen2"] {
            assert!(find(name).and_then(Pre::splits).is_ok(), "{name}");
        }
        let Err(TokenizerError::Pre { found, nearest, .. }) = find("smollm2") else { panic!("smollm2 is no name") };
        assert_eq!((found.as_str(), nearest.as_deref()), ("smollm2", Some("smollm")));
    }
}
