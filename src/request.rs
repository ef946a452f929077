//! What is sent to a target: a prompt, a sampler and a length. A workload makes it; a target carries it out.
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Which row this request is: unique in a run together with its attempt.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RequestKey {
    /// Name of the arm.
    pub arm: String,
    /// Id of the cell: workload and the point of its sweep, as `decode_scaling/c2`.
    pub cell: String,
    /// Which repeat (block), from 0.
    pub repeat: u32,
    /// Number of the request inside cell and repeat, from 0; warm-up requests count on from 0 in a stream of their own.
    pub index: u32,
    /// Sent before the measured requests and left out of every number.
    pub warmup: bool,
}

/// One message of a chat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// `system`, `user` or `assistant`.
    pub role: String,
    /// The text.
    pub content: String,
}

/// What the model is asked to continue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Prompt {
    /// A chat, rendered by the target's own template.
    Chat(Vec<Message>),
    /// Token ids as they stand, for models without a tokenizer (`synthetic`).
    TokenIds(Vec<u32>),
}

impl Prompt {
    /// First 16 hex digits of the SHA-256 of the prompt.
    pub fn sha256(&self) -> String {
        let mut hash = Sha256::new();
        match self {
            Self::Chat(messages) => {
                for message in messages {
                    // Lengths first, so that no two message lists hash the same bytes.
                    for part in [&message.role, &message.content] {
                        hash.update((part.len() as u64).to_le_bytes());
                        hash.update(part.as_bytes());
                    }
                }
            }
            Self::TokenIds(ids) => ids.iter().for_each(|id| hash.update(id.to_le_bytes())),
        }
        hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }

    /// Name of what it is made of.
    pub fn source(&self) -> &'static str {
        match self {
            Self::Chat(_) => "common words",
            Self::TokenIds(_) => "random token ids",
        }
    }
}

/// How tokens are drawn. Every field is always sent, so that no server default hides in a result.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Sampling {
    /// 0 is greedy.
    pub temperature: f64,
    /// Nucleus: smallest set of tokens whose probability reaches it; 1 is off.
    pub top_p: f64,
    /// Number of most likely tokens kept; 0 is off.
    pub top_k: u32,
    /// Tokens below this share of the most likely one are dropped; 0 is off.
    pub min_p: f64,
    /// Subtracted from the logit of every token that occurred.
    pub presence_penalty: f64,
    /// Subtracted from the logit once per occurrence.
    pub frequency_penalty: f64,
}

impl Default for Sampling {
    fn default() -> Self {
        Self { temperature: 0.0, top_p: 1.0, top_k: 0, min_p: 0.0, presence_penalty: 0.0, frequency_penalty: 0.0 }
    }
}

/// One request, complete: the same for every arm that asks it.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// Which row it becomes.
    pub key: RequestKey,
    /// What is asked.
    pub prompt: Prompt,
    /// Prompt length the plan asked for, in tokens as the target counts them.
    pub prompt_tokens_planned: Option<u32>,
    /// How tokens are drawn.
    pub sampling: Sampling,
    /// Most tokens generated.
    pub max_tokens: u32,
    /// Go on past end-of-sequence so that exactly `max_tokens` come out.
    pub ignore_eos: bool,
    /// Seed of the sampler: 31 bits, the same for every arm.
    pub seed: u32,
}
