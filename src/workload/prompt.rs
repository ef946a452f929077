//! Prompts of an exact length. The target counts; this file only searches.
use miette::Diagnostic;
use rand_pcg::Pcg64Mcg;
use thiserror::Error;

use super::seed::below;
use crate::request::{Message, Prompt};

/// Short frequent English words, chosen because common byte-pair vocabularies hold each, with its leading space, as one token.
/// Where a vocabulary does not, the search below still ends at the exact count.
const WORDS: &str = include_str!("common_words.txt");

/// What can close a gap that no whole word fits, cheapest first.
const FILLERS: [&str; 12] = [" a", " I", ".", ",", " x", "!", "?", ";", ":", "x", "0", "\n"];

/// Ids below this are special tokens in every vocabulary that `synthetic` models imitate.
const FIRST_PLAIN_ID: u32 = 3;

/// Ids at the front of a raw prompt that the nonce decides.
const NONCE_IDS: usize = 4;

/// How a target counts prompts.
pub trait PromptFit {
    /// Tokens of a chat as the target would count it, template included; `None` when it cannot say before it is asked.
    fn count(&self, messages: &[Message]) -> Option<u32>;

    /// Size of the vocabulary of a model that takes token ids and has no tokenizer.
    fn raw_vocabulary(&self) -> Option<u32>;

    /// Tokens that the template adds to a text, where only that is known.
    fn overhead_tokens(&self) -> Option<u32>;
}

/// A prompt that cannot be made.
#[derive(Debug, Error, Diagnostic, PartialEq, Eq)]
pub enum WorkloadError {
    /// Template and nonce alone are longer.
    #[error("{cell}: a prompt of {planned} tokens cannot be made: template and nonce alone are {least}")]
    #[diagnostic(help("ask for at least {least} prompt tokens with this target"))]
    TooShort {
        /// The cell.
        cell: String,
        /// Tokens asked for.
        planned: u32,
        /// The least there can be.
        least: u32,
    },
    /// The target's tokenizer skips this length.
    #[error("{cell}: no prompt of exactly {planned} tokens was found; the nearest has {nearest}")]
    #[diagnostic(help("ask for {nearest} prompt tokens"))]
    NotReachable {
        /// The cell.
        cell: String,
        /// Tokens asked for.
        planned: u32,
        /// The nearest length that can be made.
        nearest: u32,
    },
    /// A conversation needs the words of an answer.
    #[error("{cell}: a model without a tokenizer answers no text, so a conversation cannot grow by its answers")]
    #[diagnostic(help("use a model with a tokenizer, or delete `sessions`"))]
    NoText {
        /// The cell.
        cell: String,
    },
    /// No id is left to draw.
    #[error("{cell}: a vocabulary of {vocabulary} tokens leaves none to draw; the first {FIRST_PLAIN_ID} are special")]
    #[diagnostic(help("use a synthetic shape with a larger vocabulary"))]
    Vocabulary {
        /// The cell.
        cell: String,
        /// Size of the vocabulary.
        vocabulary: u32,
    },
}

/// A stretch of a prompt: its generator, and how many words or ids come from it.
pub(super) struct Part {
    pub rng: Pcg64Mcg,
    pub count: u32,
}

impl Part {
    /// Numbers below `bound` from `parts` in their order, `n` of them; the last part gives what the others leave.
    fn draw(parts: &mut [Self], n: u32, bound: u32) -> Vec<u32> {
        let mut drawn = Vec::with_capacity(n as usize);
        let last = parts.len().saturating_sub(1);
        for (index, part) in parts.iter_mut().enumerate() {
            let left = n - u32::try_from(drawn.len()).expect("at most n");
            let count = if index == last { left } else { part.count.min(left) };
            drawn.extend((0..count).map(|_| below(&mut part.rng, bound)));
        }
        drawn
    }
}

/// What stands in front of a prompt so that no earlier run's cache answers it: words of a chat, and what draws the first ids of a raw one.
pub(super) struct Front<'a> {
    pub nonce: &'a str,
    pub rng: Pcg64Mcg,
}

/// A prompt of `planned` tokens, with a nonce in front where one is wanted.
///
/// `parts` draw the text and depend on the request alone.
pub(super) fn prompt(
    cell: &str,
    planned: u32,
    front: Option<Front<'_>>,
    fit: &dyn PromptFit,
    parts: &mut [Part],
) -> Result<Prompt, WorkloadError> {
    match fit.raw_vocabulary() {
        Some(vocabulary) => ids(cell, planned, vocabulary, front, parts).map(Prompt::TokenIds),
        None => {
            let nonce = front.map_or("", |front| front.nonce);
            chat(cell, planned, nonce, fit, parts).map(|message| Prompt::Chat(vec![message]))
        }
    }
}

/// A message of so many words: a later turn of a conversation, whose length nobody knows before the answers are there.
pub(super) fn message(words: u32, rng: Pcg64Mcg) -> Message {
    let list: Vec<&str> = WORDS.split_ascii_whitespace().collect();
    let bound = u32::try_from(list.len()).expect("a few hundred words");
    let drawn = Part::draw(&mut [Part { rng, count: words }], words, bound);
    let words: Vec<&str> = drawn.into_iter().map(|index| list[index as usize]).collect();
    Message { role: "user".to_owned(), content: words.join(" ") }
}

/// Ids drawn evenly from those that are no special token.
fn ids(
    cell: &str,
    planned: u32,
    vocabulary: u32,
    front: Option<Front<'_>>,
    parts: &mut [Part],
) -> Result<Vec<u32>, WorkloadError> {
    let plain = vocabulary.saturating_sub(FIRST_PLAIN_ID);
    if plain == 0 {
        return Err(WorkloadError::Vocabulary { cell: cell.to_owned(), vocabulary });
    }
    let mut ids = Part::draw(parts, planned, plain);
    ids.iter_mut().for_each(|id| *id += FIRST_PLAIN_ID);
    if let Some(Front { mut rng, .. }) = front {
        for id in ids.iter_mut().take(NONCE_IDS) {
            *id = FIRST_PLAIN_ID + below(&mut rng, plain);
        }
    }
    Ok(ids)
}

/// Words drawn evenly, as many as the target needs to count `planned`.
fn chat(
    cell: &str,
    planned: u32,
    nonce: &str,
    fit: &dyn PromptFit,
    parts: &mut [Part],
) -> Result<Message, WorkloadError> {
    let list: Vec<&str> = WORDS.split_ascii_whitespace().collect();
    let bound = u32::try_from(list.len()).expect("a few hundred words");
    // Every word is at least one token, so this many are enough for any length below `planned`.
    let words: Vec<&str> = Part::draw(parts, planned, bound).into_iter().map(|index| list[index as usize]).collect();
    let message = |count: u32, tail: &str| {
        let mut content = nonce.to_owned();
        for word in &words[..count as usize] {
            if !content.is_empty() {
                content.push(' ');
            }
            content.push_str(word);
        }
        content.push_str(tail);
        Message { role: "user".to_owned(), content }
    };
    let count = |count: u32, tail: &str| fit.count(&[message(count, tail)]);

    let Some(least) = count(0, "") else {
        // The target cannot say: a word is taken for a token, and the row's own usage tells afterwards.
        return Ok(message(planned.saturating_sub(fit.overhead_tokens().unwrap_or(0)).max(1).min(planned), ""));
    };
    if least > planned {
        return Err(WorkloadError::TooShort { cell: cell.to_owned(), planned, least });
    }
    // Where every word is one token, the first guess is right.
    let mut n = planned - least;
    if count(n, "") == Some(planned) {
        return Ok(message(n, ""));
    }
    // Else the most words that fit: counts grow with words.
    let (mut low, mut high) = (0, n);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if count(middle, "").is_some_and(|tokens| tokens <= planned) { low = middle } else { high = middle - 1 }
    }
    // And a tail that closes the gap; with one word less where the last one leaves no tail that fits.
    let mut nearest = least;
    for fewer in 0..=2.min(low) {
        n = low - fewer;
        let mut tail = String::new();
        let mut reached = count(n, "").unwrap_or(least);
        loop {
            if reached == planned {
                return Ok(message(n, &tail));
            }
            if planned.abs_diff(reached) < planned.abs_diff(nearest) {
                nearest = reached;
            }
            let letters = FILLERS.iter().map(|filler| (*filler).to_owned());
            let whole = list.iter().map(|word| format!(" {word}"));
            // The smallest step that grows without overshooting; an exact hit at once.
            let mut best: Option<(u32, String)> = None;
            for filler in letters.chain(whole) {
                let longer = format!("{tail}{filler}");
                match count(n, &longer) {
                    Some(tokens) if tokens == planned => return Ok(message(n, &longer)),
                    Some(tokens)
                        if tokens > reached
                            && tokens < planned
                            && best.as_ref().is_none_or(|(least, _)| tokens < *least) =>
                    {
                        best = Some((tokens, longer));
                    }
                    Some(tokens) if tokens > planned && tokens - planned < planned.abs_diff(nearest) => {
                        nearest = tokens
                    }
                    _ => {}
                }
            }
            match best {
                Some((tokens, longer)) => (reached, tail) = (tokens, longer),
                None => break,
            }
        }
    }
    Err(WorkloadError::NotReachable { cell: cell.to_owned(), planned, nearest })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::stream;

    /// Counts a chat as a fixed overhead and something for every character or word.
    struct Counter {
        overhead: u32,
        of: fn(&str) -> u32,
    }

    impl PromptFit for Counter {
        fn count(&self, messages: &[Message]) -> Option<u32> {
            Some(self.overhead + messages.iter().map(|m| (self.of)(&m.content)).sum::<u32>())
        }
        fn raw_vocabulary(&self) -> Option<u32> {
            None
        }
        fn overhead_tokens(&self) -> Option<u32> {
            None
        }
    }

    fn words(text: &str) -> u32 {
        text.split_ascii_whitespace().count() as u32
    }

    fn bytes(text: &str) -> u32 {
        text.len() as u32
    }

    /// Every word costs as many tokens as its letters by three, rounded up: no length of a list of words is exact by itself.
    fn pieces(text: &str) -> u32 {
        text.split_ascii_whitespace().map(|word| word.len().div_ceil(3) as u32).sum()
    }

    fn even(text: &str) -> u32 {
        2 * words(text)
    }

    fn make(planned: u32, fit: &dyn PromptFit) -> Result<Prompt, WorkloadError> {
        let front = Front { nonce: "k7q2", rng: stream(1, "f", &[]) };
        prompt("cell", planned, Some(front), fit, &mut [Part { rng: stream(1, "p", &[]), count: planned }])
    }

    fn text(prompt: Prompt) -> String {
        match prompt {
            Prompt::Chat(messages) => messages.into_iter().map(|m| m.content).collect(),
            Prompt::TokenIds(_) => panic!("a chat was wanted"),
        }
    }

    #[test]
    fn a_prompt_has_exactly_the_tokens_asked_for_under_unlike_tokenizers() {
        for of in [words as fn(&str) -> u32, bytes, pieces] {
            let fit = Counter { overhead: 31, of };
            for planned in [40, 64, 127, 128, 129, 512, 1000] {
                let content = text(make(planned, &fit).expect("reachable"));
                assert_eq!(31 + of(&content), planned);
                assert!(content.starts_with("k7q2"), "{content}");
            }
        }
    }

    #[test]
    fn a_length_that_a_tokenizer_skips_is_refused_with_the_nearest() {
        let error = make(65, &Counter { overhead: 0, of: even }).expect_err("even counts only");
        assert!(matches!(error, WorkloadError::NotReachable { planned: 65, nearest: 64 | 66, .. }), "{error:?}");
        assert_eq!(2 * words(&text(make(66, &Counter { overhead: 0, of: even }).expect("even"))), 66);
    }

    #[test]
    fn a_prompt_shorter_than_the_template_is_refused_with_the_least() {
        let error = make(20, &Counter { overhead: 31, of: words }).expect_err("the template alone is longer");
        assert_eq!(error, WorkloadError::TooShort { cell: "cell".into(), planned: 20, least: 32 });
    }

    /// A target that cannot count.
    struct Blind(Option<u32>);

    impl PromptFit for Blind {
        fn count(&self, _: &[Message]) -> Option<u32> {
            None
        }
        fn raw_vocabulary(&self) -> Option<u32> {
            None
        }
        fn overhead_tokens(&self) -> Option<u32> {
            self.0
        }
    }

    #[test]
    fn without_a_counter_a_word_is_taken_for_a_token() {
        assert_eq!(words(&text(make(100, &Blind(None)).expect("words"))), 1 + 100);
        assert_eq!(words(&text(make(100, &Blind(Some(30))).expect("words"))), 1 + 70);
        assert_eq!(words(&text(make(10, &Blind(Some(30))).expect("words"))), 1 + 1);
    }

    /// A model of token ids.
    struct Raw(u32);

    impl PromptFit for Raw {
        fn count(&self, _: &[Message]) -> Option<u32> {
            None
        }
        fn raw_vocabulary(&self) -> Option<u32> {
            Some(self.0)
        }
        fn overhead_tokens(&self) -> Option<u32> {
            None
        }
    }

    #[test]
    fn raw_ids_are_exact_in_number_and_never_special() {
        for vocabulary in [4, 100, 32_000] {
            let Ok(Prompt::TokenIds(ids)) = make(500, &Raw(vocabulary)) else { panic!("ids were wanted") };
            assert_eq!(ids.len(), 500);
            assert!(ids.iter().all(|&id| (3..vocabulary).contains(&id)));
        }
        assert_eq!(make(5, &Raw(3)), Err(WorkloadError::Vocabulary { cell: "cell".into(), vocabulary: 3 }));
    }

    #[test]
    fn the_list_holds_enough_words_and_none_twice() {
        let list: Vec<&str> = WORDS.split_ascii_whitespace().collect();
        let mut unique = list.clone();
        unique.sort_unstable();
        unique.dedup();
        assert!(list.len() >= 200 && unique.len() == list.len(), "{} words, {} unlike", list.len(), unique.len());
    }
}
