//! One arrival carried out: a request, or a conversation turn by turn.
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use super::Stop;
use crate::record::{Outcome, RequestRecord, ResponseText};
use crate::request::{Message, Prompt, Request};
use crate::target::{Observation, PromptCount, Target};
use crate::units::{Clock, TimestampNs};
use crate::workload::{Ask, Turn};

/// How long requests in flight may go on after a stop was asked for; then they are cancelled.
pub const DRAIN: Duration = Duration::from_secs(8);

/// Takes every observation as it ends.
pub type Sink = Rc<RefCell<dyn FnMut(Observation)>>;

/// One arrival, with its attempt.
#[derive(Debug, Clone)]
pub struct Issue {
    /// What is sent.
    pub ask: Ask,
    /// 0 at first, higher when a resume reruns the repeat.
    pub attempt: u32,
    /// Digest of the first prompt, made beforehand: a long one takes time that belongs to no request.
    prompt_sha256: String,
}

impl Issue {
    /// An arrival ready to be sent.
    pub fn new(ask: Ask, attempt: u32) -> Self {
        let prompt_sha256 = ask.request.prompt.sha256();
        Self { ask, attempt, prompt_sha256 }
    }

    /// The rows of this arrival as never sent, and why.
    pub(super) fn shed(self, scheduled: TimestampNs, why: &str, sink: &Sink) {
        let Self { ask, attempt, prompt_sha256 } = self;
        let mut first = row(&ask.request, attempt, ask.session, 0, prompt_sha256);
        first.scheduled_ns = Some(scheduled);
        shed(first, why, sink);
        shed_turns(&ask.turns, attempt, ask.session, 1, why, sink);
    }
}

/// What every arrival of a loop shares.
pub(super) struct Loop<T> {
    pub target: Rc<T>,
    pub clock: Clock,
    pub stop: Stop,
    pub drain: Duration,
    pub sink: Sink,
}

impl<T> Clone for Loop<T> {
    fn clone(&self) -> Self {
        Self {
            target: Rc::clone(&self.target),
            clock: self.clock,
            stop: self.stop.clone(),
            drain: self.drain,
            sink: Rc::clone(&self.sink),
        }
    }
}

impl<T: Target> Loop<T> {
    /// Carries out one arrival that was due at `scheduled`. Turns after a failed one are recorded as shed, since their prompt would hold an
    /// answer that never came; after a stop they are left out, so that a resume finds them missing.
    pub async fn carry_out(&self, issue: Issue, scheduled: TimestampNs) {
        let Issue { ask: Ask { request, session, turns }, attempt, prompt_sha256 } = issue;
        let mut seen =
            Observation { record: row(&request, attempt, session, 0, prompt_sha256), text: ResponseText::default() };
        seen.record.scheduled_ns = Some(scheduled);
        self.one(&request, &mut seen).await;
        if turns.is_empty() {
            return self.keep(seen);
        }
        let mut before = request;
        for (number, turn) in (1..).zip(&turns) {
            let answer = (seen.record.outcome == Outcome::Ok).then(|| seen.text.content.clone());
            let ended = seen.record.end_ns;
            self.keep(seen);
            let Some(answer) = answer else {
                if !self.stop.requested() {
                    let rest = &turns[number as usize - 1..];
                    shed_turns(
                        rest,
                        attempt,
                        session,
                        number,
                        "an earlier turn of the conversation failed",
                        &self.sink,
                    );
                }
                return;
            };
            if !turn.think_time.is_zero() {
                tokio::select! {
                    () = tokio::time::sleep(turn.think_time) => {}
                    () = self.stop.wait() => {}
                }
            }
            if self.stop.requested() {
                return;
            }
            before = self.grow(&before, answer, turn);
            let mut record = row(&before, attempt, session, number, before.prompt.sha256());
            let due =
                ended.map(|end| end.0.saturating_add(i64::try_from(turn.think_time.as_nanos()).unwrap_or(i64::MAX)));
            record.scheduled_ns = due.map(TimestampNs).or_else(|| Some(self.clock.now()));
            seen = Observation { record, text: ResponseText::default() };
            self.one(&before, &mut seen).await;
        }
        self.keep(seen);
    }

    /// The next request of a conversation: what was asked before, the answer to it, and the new message.
    fn grow(&self, before: &Request, answer: String, turn: &Turn) -> Request {
        let mut messages = chat(&before.prompt);
        messages.push(Message { role: "assistant".to_owned(), content: answer });
        messages.extend(chat(&turn.request.prompt));
        let prompt_tokens_planned = match self.target.count_prompt(&messages) {
            PromptCount::Exact(n) => Some(n),
            PromptCount::Unknown => None,
        };
        Request { prompt: Prompt::Chat(messages), prompt_tokens_planned, ..turn.request.clone() }
    }

    async fn one(&self, request: &Request, seen: &mut Observation) {
        let finished = tokio::select! {
            biased;
            () = self.target.submit(request, &self.clock, seen) => true,
            () = async { self.stop.wait().await; tokio::time::sleep(self.drain).await } => false,
        };
        if !finished {
            seen.record.outcome = Outcome::Cancelled;
            seen.record.end_ns = Some(self.clock.now());
            seen.record.error = Some("the run was stopped while this request was in flight".into());
        }
    }

    fn keep(&self, seen: Observation) {
        (self.sink.borrow_mut())(seen);
    }
}

fn chat(prompt: &Prompt) -> Vec<Message> {
    match prompt {
        Prompt::Chat(messages) => messages.clone(),
        Prompt::TokenIds(_) => Vec::new(),
    }
}

fn row(request: &Request, attempt: u32, session: Option<u32>, turn: u32, prompt_sha256: String) -> RequestRecord {
    let mut record = RequestRecord::planned(request, attempt);
    record.prompt_sha256 = Some(prompt_sha256);
    record.fixture = Some(request.prompt.source().to_owned());
    record.session = session;
    record.turn = session.map(|_| turn);
    record
}

fn shed(mut record: RequestRecord, why: &str, sink: &Sink) {
    record.outcome = Outcome::Shed;
    record.error = Some(why.to_owned());
    (sink.borrow_mut())(Observation { record, text: ResponseText::default() });
}

fn shed_turns(turns: &[Turn], attempt: u32, session: Option<u32>, first: u32, why: &str, sink: &Sink) {
    for (number, turn) in (first..).zip(turns) {
        shed(row(&turn.request, attempt, session, number, turn.request.prompt.sha256()), why, sink);
    }
}
