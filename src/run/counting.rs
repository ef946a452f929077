//! Counts the tokens of answers with our own vocabulary, after each stream has ended and away from the thread that keeps times.
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::launch::Launched;
use crate::loadgen::Sink;
use crate::metric::row::counts_disagree;
use crate::record::{FirstChunkSource, ResponseText};
use crate::request::{Prompt, Request, RequestKey};
use crate::target::endpoint::{AnswerCount, Endpoint};
use crate::target::{Observation, PromptCount, Target};

/// Answers that may wait to be counted; more than that are written uncounted, so that memory stays bounded.
const MOST_WAITING: usize = 4096;

/// The counting of one cell. What is not to be counted goes through untouched.
pub struct Counting {
    sink: Sink,
    worker: Option<(Rc<Queue>, JoinHandle<()>)>,
}

struct Queue {
    sender: RefCell<Option<mpsc::UnboundedSender<Observation>>>,
    waiting: Rc<Cell<usize>>,
}

impl Counting {
    /// Counts the prompts now and the answers as they come; `sink` gets every observation, counted.
    pub async fn begin(target: &Rc<Launched>, requests: impl Iterator<Item = &Request>, sink: Sink) -> Self {
        let counts = |endpoint: &Endpoint| endpoint.counter().is_some() || endpoint.counts_by_server();
        let Some(endpoint) = target.endpoint().filter(|endpoint| counts(endpoint)) else {
            return Self { sink, worker: None };
        };
        let mut prompts = HashMap::new();
        for request in requests {
            let Prompt::Chat(messages) = &request.prompt else { continue };
            let count = match endpoint.count_prompt(messages) {
                PromptCount::Exact(n) => Some(n),
                PromptCount::Unknown if endpoint.counts_by_server() => endpoint.tokenize_prompt(messages).await,
                PromptCount::Unknown => None,
            };
            prompts.extend(count.map(|n| (request.key.clone(), n)));
        }
        let (sender, receiver) = mpsc::unbounded_channel();
        let waiting = Rc::new(Cell::new(0));
        let queue = Rc::new(Queue { sender: RefCell::new(Some(sender)), waiting: Rc::clone(&waiting) });
        let work = count_all(Rc::clone(target), receiver, waiting, prompts, Rc::clone(&sink));
        Self { sink, worker: Some((queue, tokio::task::spawn_local(work))) }
    }

    /// Where observations go.
    pub fn sink(&self) -> Sink {
        let Some((queue, _)) = &self.worker else { return Rc::clone(&self.sink) };
        let (queue, direct) = (Rc::clone(queue), Rc::clone(&self.sink));
        Rc::new(RefCell::new(move |seen: Observation| {
            let sender = queue.sender.borrow();
            match sender.as_ref().filter(|_| queue.waiting.get() < MOST_WAITING) {
                Some(sender) => {
                    queue.waiting.set(queue.waiting.get() + 1);
                    if let Err(mpsc::error::SendError(seen)) = sender.send(seen) {
                        (direct.borrow_mut())(seen);
                    }
                }
                None => (direct.borrow_mut())(seen),
            }
        }))
    }

    /// Waits until every observation has gone through.
    pub async fn end(self) {
        let Some((queue, worker)) = self.worker else { return };
        drop(queue.sender.take());
        if let Err(error) = worker.await
            && error.is_panic()
        {
            std::panic::resume_unwind(error.into_panic());
        }
    }
}

async fn count_all(
    target: Rc<Launched>,
    mut receiver: mpsc::UnboundedReceiver<Observation>,
    waiting: Rc<Cell<usize>>,
    prompts: HashMap<RequestKey, u32>,
    sink: Sink,
) {
    while let Some(mut seen) = receiver.recv().await {
        waiting.set(waiting.get().saturating_sub(1));
        seen.record.counted_prompt_tokens = prompts.get(&seen.record.key()).copied();
        if let Some(endpoint) = target.endpoint() {
            seen = count(endpoint, seen).await;
        }
        (sink.borrow_mut())(seen);
    }
}

async fn count(endpoint: &Endpoint, mut seen: Observation) -> Observation {
    // Only what came whole can be set against the server's word.
    if seen.record.first_token_ns.is_none() && seen.record.finish.is_none() {
        return seen;
    }
    let counted = match endpoint.counter().cloned() {
        Some(counter) => {
            let text = std::mem::take(&mut seen.text);
            let done = tokio::task::spawn_blocking(move || (counter.answer(&text), text)).await;
            let Ok((counted, text)) = done else { return seen };
            seen.text = text;
            counted
        }
        None => by_server(endpoint, &seen.text, seen.record.first_chunk_tokens.is_none()).await,
    };
    if let Some(counted) = counted {
        fill(&mut seen, counted);
    }
    seen
}

async fn by_server(endpoint: &Endpoint, text: &ResponseText, first_too: bool) -> Option<AnswerCount> {
    if !text.tool_calls.is_empty() {
        return None;
    }
    let completion = endpoint.tokenize(&text.reasoning).await?.checked_add(endpoint.tokenize(&text.content).await?)?;
    let mut first_chunk = None;
    if let Some(first) = text.first_chunk.filter(|_| first_too) {
        let (reasoning, content) =
            (text.reasoning.get(..first.reasoning_bytes)?, text.content.get(..first.content_bytes)?);
        let both = endpoint.tokenize(reasoning).await?.checked_add(endpoint.tokenize(content).await?)?;
        first_chunk = Some(both).filter(|&n| n > 0);
    }
    Some(AnswerCount { completion, first_chunk })
}

/// Writes the counts into the row. `usage_mismatch` by rule V4: more than 2 % and more than 2 tokens apart.
fn fill(seen: &mut Observation, counted: AnswerCount) {
    let row = &mut seen.record;
    row.counted_completion_tokens = Some(counted.completion);
    if let Some(usage) = row.usage_completion_tokens {
        row.usage_mismatch = Some(row.usage_mismatch == Some(true) || counts_disagree(usage, counted.completion));
    }
    let unknown = row.first_chunk_tokens.is_none() && row.chunks.is_some_and(|chunks| chunks > 0);
    if let Some(first) = counted.first_chunk.filter(|_| unknown) {
        row.first_chunk_tokens = Some(first);
        row.first_chunk_tokens_source = Some(FirstChunkSource::Tokenizer);
    }
}
