//! The engine's thread and the handle to it.
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::Instant;

use tokio::sync::oneshot;

use super::capacity::Capacity;
use super::model::{Batch, Llama, LlamaSize, Logits, Span};
use super::sampler::{Sampler, SamplerScratch};
use super::scheduler::{Next, Scheduler};
use super::weights::ModelFile;
use super::{EngineConfig, EngineError, EngineFinish, Generate, Generation};

/// A running engine. Dropping it ends its thread; requests still waiting end as cancelled.
pub struct Engine {
    capacity: Capacity,
    submissions: Option<Sender<Submission>>,
    thread: Option<JoinHandle<()>>,
}

struct Submission {
    generate: Generate,
    at: Instant,
    reply: oneshot::Sender<Generation>,
}

impl Engine {
    /// Plans the memory and starts the thread, which takes it.
    ///
    /// # Errors
    /// When a size is zero or does not fit the model or the memory that is free now.
    pub fn start(model: Arc<ModelFile>, config: EngineConfig) -> Result<Self, EngineError> {
        let (capacity, size) = Capacity::plan(&model, &config)?;
        let (submissions, inbox) = channel();
        let thread = std::thread::Builder::new()
            .name("engine".into())
            .spawn(move || {
                let mut engine = Loop::new(model, config, size, inbox);
                let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| engine.run()));
                if ran.is_err() {
                    engine.fail();
                }
            })
            .map_err(EngineError::Thread)?;
        Ok(Self { capacity, submissions: Some(submissions), thread: Some(thread) })
    }

    /// The account of its memory.
    pub fn capacity(&self) -> &Capacity {
        &self.capacity
    }

    /// Queues a request. The generation arrives once, at its end; dropping the receiver cancels it at the next step.
    pub fn submit(&self, generate: Generate) -> oneshot::Receiver<Generation> {
        let (reply, receiver) = oneshot::channel();
        if let Some(submissions) = &self.submissions {
            // A dead thread drops the submission, and the receiver says so.
            let _ = submissions.send(Submission { generate, at: Instant::now(), reply });
        }
        receiver
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.submissions = None;
        if let Some(thread) = self.thread.take() {
            // Its panic was caught and told to every waiting request.
            let _ = thread.join();
        }
    }
}

struct Sequence {
    generate: Generate,
    reply: oneshot::Sender<Generation>,
    table: Vec<u32>,
    sampler: Sampler,
    /// Prompt tokens whose keys and values are stored.
    prefilled: usize,
    seen: Generation,
}

struct Loop {
    llama: Llama,
    vocabulary: usize,
    scratch: SamplerScratch,
    config: EngineConfig,
    scheduler: Scheduler,
    inbox: Receiver<Submission>,
    open: bool,
    pending: VecDeque<Submission>,
    prefilling: VecDeque<Sequence>,
    decoding: Vec<Sequence>,
}

fn nothing(prompt: &[u32], finish: EngineFinish) -> Generation {
    Generation {
        tokens: Vec::new(),
        token_at: Vec::new(),
        admitted_at: None,
        prefill_started_at: None,
        prefill_ended_at: None,
        ended_at: Instant::now(),
        prompt_tokens: u32::try_from(prompt.len()).unwrap_or(u32::MAX),
        finish,
        peers_in_flight: 0,
        peers_prefilling: 0,
    }
}

/// The sequences of a decode step: the last token of each is new.
struct Decoding<'a>(&'a [Sequence]);

impl Batch for Decoding<'_> {
    fn sequences(&self) -> usize {
        self.0.len()
    }

    fn span(&self, sequence: usize) -> Span<'_> {
        let Sequence { generate, table, seen, .. } = &self.0[sequence];
        // A sequence decodes after prefill gave it its first token.
        let at = seen.tokens.len().saturating_sub(1);
        Span { tokens: &seen.tokens[at..], first: generate.prompt.len() + at, table }
    }
}

impl Loop {
    fn new(model: Arc<ModelFile>, config: EngineConfig, size: LlamaSize, inbox: Receiver<Submission>) -> Self {
        let vocabulary = model.shape.vocabulary;
        Self {
            llama: Llama::new(model, size),
            vocabulary,
            scratch: SamplerScratch::new(vocabulary),
            scheduler: Scheduler::new(config.scheduler),
            inbox,
            open: true,
            pending: VecDeque::new(),
            prefilling: VecDeque::with_capacity(config.max_concurrency as usize),
            decoding: Vec::with_capacity(config.max_concurrency as usize),
            config,
        }
    }

    fn run(&mut self) {
        loop {
            self.receive();
            if !self.open {
                return self.end_all(EngineFinish::Cancelled);
            }
            self.drop_cancelled();
            self.admit();
            match self.scheduler.next(self.prefilling.len(), self.decoding.len()) {
                Next::Prefill => self.prefill_chunk(),
                Next::Decode => self.decode_step(),
                Next::Idle => {}
            }
        }
    }

    /// Takes what was submitted; sleeps until something is when there is nothing to do.
    fn receive(&mut self) {
        // An empty engine admits whatever was not refused, so nothing is pending when it goes idle.
        if self.prefilling.is_empty() && self.decoding.is_empty() && self.pending.is_empty() {
            match self.inbox.recv() {
                Ok(submission) => self.accept(submission),
                Err(_) => self.open = false,
            }
        }
        loop {
            match self.inbox.try_recv() {
                Ok(submission) => self.accept(submission),
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => {
                    self.open = false;
                    return;
                }
            }
        }
    }

    fn accept(&mut self, submission: Submission) {
        let g = &submission.generate;
        let needed = g.prompt.len() as u64 + u64::from(g.max_tokens);
        let known = |&token: &u32| (token as usize) < self.vocabulary;
        let refused = if g.prompt.is_empty() || g.max_tokens == 0 || !g.prompt.iter().all(known) {
            EngineFinish::InvalidRequest
        } else if needed > u64::from(self.config.max_context) {
            EngineFinish::ContextLengthExceeded
        } else {
            self.pending.push_back(submission);
            return;
        };
        // The receiver may be gone; then nobody wants to know.
        let _ = submission.reply.send(nothing(&g.prompt, refused));
    }

    fn drop_cancelled(&mut self) {
        self.pending.retain(|waiting| !waiting.reply.is_closed());
        let now = Instant::now();
        let timeout = self.config.pending_timeout;
        // First in, first out: the oldest is in front.
        while self.pending.front().is_some_and(|waiting| now.duration_since(waiting.at) > timeout) {
            if let Some(late) = self.pending.pop_front() {
                let _ = late.reply.send(nothing(&late.generate.prompt, EngineFinish::PendingTimeout));
            }
        }
        for index in (0..self.prefilling.len()).rev() {
            if self.prefilling[index].reply.is_closed()
                && let Some(gone) = self.prefilling.remove(index)
            {
                self.llama.kv().release(gone.table);
            }
        }
        for index in (0..self.decoding.len()).rev() {
            if self.decoding[index].reply.is_closed() {
                let gone = self.decoding.remove(index);
                self.llama.kv().release(gone.table);
            }
        }
    }

    /// First in, first out, while there are lanes and pages for the whole sequence.
    fn admit(&mut self) {
        while self.prefilling.len() + self.decoding.len() < self.config.max_concurrency as usize {
            let Some(waiting) = self.pending.front() else { return };
            let tokens = waiting.generate.prompt.len() + waiting.generate.max_tokens as usize;
            let Some(table) = self.llama.kv().reserve(tokens) else { return };
            let Some(Submission { generate, reply, .. }) = self.pending.pop_front() else { return };
            let mut seen = nothing(&generate.prompt, EngineFinish::Length);
            seen.admitted_at = Some(Instant::now());
            seen.tokens.reserve_exact(generate.max_tokens as usize);
            seen.token_at.reserve_exact(generate.max_tokens as usize);
            let sampler = Sampler::new(generate.sampling, generate.seed, generate.max_tokens as usize);
            self.prefilling.push_back(Sequence { generate, reply, table, sampler, prefilled: 0, seen });
        }
    }

    fn prefill_chunk(&mut self) {
        let Some(sequence) = self.prefilling.front_mut() else { return };
        let started = Instant::now();
        sequence.seen.prefill_started_at.get_or_insert(started);
        let prompt = &sequence.generate.prompt;
        let first = sequence.prefilled;
        let end = (first + self.config.prefill_chunk as usize).min(prompt.len());
        let last = end == prompt.len();
        let span = Span { tokens: &prompt[first..end], first, table: &sequence.table };
        let logits = self.llama.prefill(span, if last { Logits::Last } else { Logits::None });
        sequence.prefilled = end;
        if last {
            let token = sequence.sampler.sample(logits, &mut self.scratch);
            let now = Instant::now();
            sequence.seen.prefill_ended_at = Some(now);
            sequence.seen.tokens.push(token);
            sequence.seen.token_at.push(now);
            if let Some(sequence) = self.prefilling.pop_front() {
                self.decoding.push(sequence);
            }
            self.note_peers();
            self.finish_ended();
        } else {
            self.note_peers();
        }
        self.scheduler.prefilled(started.elapsed(), self.decoding.len());
    }

    fn decode_step(&mut self) {
        let started = Instant::now();
        let logits = self.llama.decode(&Decoding(&self.decoding));
        for (sequence, logits) in self.decoding.iter_mut().zip(logits.chunks_exact(self.vocabulary)) {
            let token = sequence.sampler.sample(logits, &mut self.scratch);
            sequence.seen.tokens.push(token);
            sequence.seen.token_at.push(Instant::now());
        }
        self.note_peers();
        self.finish_ended();
        self.scheduler.decoded(started.elapsed());
    }

    fn note_peers(&mut self) {
        let prefilling = u32::try_from(self.prefilling.len()).unwrap_or(u32::MAX);
        let others = u32::try_from(self.decoding.len().saturating_sub(1)).unwrap_or(u32::MAX);
        for sequence in &mut self.decoding {
            sequence.seen.peers_prefilling = sequence.seen.peers_prefilling.max(prefilling);
            sequence.seen.peers_in_flight = sequence.seen.peers_in_flight.max(others + prefilling);
        }
    }

    fn finish_ended(&mut self) {
        let mut index = 0;
        while index < self.decoding.len() {
            let Sequence { generate, seen, .. } = &self.decoding[index];
            let stopped = !generate.ignore_eos && seen.tokens.last().is_some_and(|t| generate.stop_ids.contains(t));
            if stopped || seen.tokens.len() >= generate.max_tokens as usize {
                let mut ended = self.decoding.remove(index);
                ended.seen.finish = if stopped { EngineFinish::Stop } else { EngineFinish::Length };
                ended.seen.ended_at = Instant::now();
                self.llama.kv().release(ended.table);
                let _ = ended.reply.send(ended.seen);
            } else {
                index += 1;
            }
        }
    }

    fn end_all(&mut self, finish: EngineFinish) {
        for waiting in self.pending.drain(..) {
            let _ = waiting.reply.send(nothing(&waiting.generate.prompt, finish));
        }
        for mut sequence in self.prefilling.drain(..).chain(self.decoding.drain(..)) {
            sequence.seen.finish = finish;
            sequence.seen.ended_at = Instant::now();
            let _ = sequence.reply.send(sequence.seen);
        }
    }

    /// After a panic: every request that waits is told, and those that still come find the channel closed.
    fn fail(&mut self) {
        while let Ok(submission) = self.inbox.try_recv() {
            self.pending.push_back(submission);
        }
        self.end_all(EngineFinish::Failed);
    }
}
