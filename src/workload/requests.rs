//! The requests of one cell: the same for every arm, in every attempt, on every machine.
use std::time::Duration;

use super::Workload;
use super::prompt::{self, Front, Part, PromptFit, WorkloadError};
use super::schedule::arrivals;
use super::seed::{request_seed, stream};
use super::serving::{Lengths, Prefix, Sessions};
use crate::experiment::plan::{Arm, Cell, Plan};
use crate::request::{Message, Prompt, Request, RequestKey};

/// What one cell asks in one repeat.
#[derive(Debug, Clone, PartialEq)]
pub struct CellRequests {
    /// Sent first, recorded, left out of every number.
    pub warmup: Vec<Ask>,
    /// Measured.
    pub measured: Vec<Ask>,
    /// When each of the measured arrives, in ns from the start of the cell; `None` for a closed loop.
    pub arrivals: Option<Vec<u64>>,
}

/// One arrival: a request, or the first turn of a conversation.
#[derive(Debug, Clone, PartialEq)]
pub struct Ask {
    /// What is sent first.
    pub request: Request,
    /// Number of the conversation, where it is one.
    pub session: Option<u32>,
    /// The turns after the first.
    pub turns: Vec<Turn>,
}

/// A later turn: everything so far, the model's own answers in it, and one more message.
#[derive(Debug, Clone, PartialEq)]
pub struct Turn {
    /// All but the messages so far: its prompt is the new message alone.
    pub request: Request,
    /// From the end of the last answer to this message.
    pub think_time: Duration,
}

/// Makes the requests of `cell` in `repeat`. Prompt and seed depend on suite seed, cell, repeat and index, never on arm or
/// attempt; warm-up prompts come from a stream of their own, and `nonce` stands in front of every prompt that must be cold.
///
/// # Errors
/// A prompt length that this target cannot have, or a conversation with a model that has no text.
pub fn requests(
    plan: &Plan,
    cell: &Cell,
    arm: &Arm,
    repeat: u32,
    nonce: &str,
    fit: &dyn PromptFit,
) -> Result<CellRequests, WorkloadError> {
    let maker = Maker { plan, cell, arm, repeat, nonce, fit };
    let suite_seed = plan.experiment.seed;
    Ok(CellRequests {
        warmup: maker.asks(cell.workload.warmup(), true)?,
        measured: maker.asks(cell.workload.requests(), false)?,
        arrivals: arrivals(cell.workload.load(), suite_seed, cell.number, repeat),
    })
}

/// All that the requests of a cell in one repeat have in common.
struct Maker<'a> {
    plan: &'a Plan,
    cell: &'a Cell,
    arm: &'a Arm,
    repeat: u32,
    nonce: &'a str,
    fit: &'a dyn PromptFit,
}

impl Maker<'_> {
    fn asks(&self, requests: u32, warmup: bool) -> Result<Vec<Ask>, WorkloadError> {
        let Workload::Serving(serving) = &self.cell.workload else {
            let lengths = Lengths {
                prompt_tokens: self.cell.workload.prompt_tokens(),
                completion_tokens: self.cell.workload.completion_tokens(),
            };
            return (0..requests).map(|index| self.single(index, warmup, lengths, None)).collect();
        };
        let turns = serving.turns();
        let purpose: &[u8] = if warmup { b"warm-up" } else { b"measured" };
        let place = [&self.cell.number.to_le_bytes()[..], &self.repeat.to_le_bytes()[..], purpose];
        let lengths = serving.lengths(self.plan.experiment.seed, &place, requests / turns);
        let asks = (0..).zip(lengths).map(|(number, lengths)| {
            let ask = self.single(number * turns, warmup, lengths, serving.prefix)?;
            match serving.sessions {
                Some(sessions) => self.conversation(ask, number, sessions),
                None => Ok(ask),
            }
        });
        asks.collect()
    }

    /// Request number `index` of the cell.
    fn single(&self, index: u32, warmup: bool, lengths: Lengths, prefix: Option<Prefix>) -> Result<Ask, WorkloadError> {
        let suite_seed = self.plan.experiment.seed;
        let seed = request_seed(suite_seed, self.plan.packed(self.cell, self.repeat, index, warmup));
        let which = seed.to_le_bytes();
        let purpose = if warmup { "warm-up prompt" } else { "prompt" };
        let planned = lengths.prompt_tokens;
        let own = Part { rng: stream(suite_seed, purpose, &[&which]), count: planned };
        let mut parts = match prefix {
            // Shared by the group in every repeat and by no other cell; warm-up requests warm it, as a server in use is warm.
            Some(Prefix { share, groups }) => {
                let group = (index % groups).to_le_bytes();
                let rng = stream(suite_seed, "prefix", &[&self.cell.number.to_le_bytes(), &group]);
                vec![Part { rng, count: (share.0 * f64::from(planned)).round() as u32 }, own]
            }
            None => vec![own],
        };
        let front = self
            .cell
            .workload
            .cold()
            .then(|| Front { nonce: self.nonce, rng: stream(suite_seed, purpose, &[&which, self.nonce.as_bytes()]) });
        let prompt = prompt::prompt(&self.cell.id, planned, front, self.fit, &mut parts)?;
        let request = Request {
            key: self.key(index, warmup),
            prompt,
            prompt_tokens_planned: Some(planned),
            sampling: self.plan.experiment.sampling,
            max_tokens: lengths.completion_tokens,
            ignore_eos: true,
            seed,
        };
        Ok(Ask { request, session: None, turns: Vec::new() })
    }

    /// Makes `first` the first turn of conversation `number`.
    fn conversation(&self, first: Ask, number: u32, sessions: Sessions) -> Result<Ask, WorkloadError> {
        if matches!(first.request.prompt, Prompt::TokenIds(_)) {
            return Err(WorkloadError::NoText { cell: self.cell.id.clone() });
        }
        let warmup = first.request.key.warmup;
        let turn = |turn: u32| {
            let index = first.request.key.index + turn;
            let seed = request_seed(self.plan.experiment.seed, self.plan.packed(self.cell, self.repeat, index, warmup));
            let rng = stream(self.plan.experiment.seed, "turn", &[&seed.to_le_bytes()]);
            let message: Message = prompt::message(sessions.turn_tokens, rng);
            let request = Request {
                key: self.key(index, warmup),
                prompt: Prompt::Chat(vec![message]),
                prompt_tokens_planned: None,
                seed,
                ..first.request.clone()
            };
            Turn { request, think_time: sessions.think_time.map_or(Duration::ZERO, |time| time.0) }
        };
        let turns = (1..sessions.turns).map(turn).collect();
        Ok(Ask { session: Some(number), turns, ..first })
    }

    fn key(&self, index: u32, warmup: bool) -> RequestKey {
        let (arm, cell) = (self.arm.name.clone(), self.cell.id.clone());
        RequestKey { arm, cell, repeat: self.repeat, index, warmup }
    }
}
