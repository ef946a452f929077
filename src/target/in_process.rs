//! Our own engine as a target: the prompt is rendered and tokenised here, the engine stamps every token.
use std::sync::Arc;
use std::time::Instant;

use crate::engine::weights::ModelFile;
use crate::engine::{Engine, EngineFinish, Generate, Generation};
use crate::record::{Finish, FirstChunkSource, Outcome, RequestRecord};
use crate::request::{Message, Prompt, Request};
use crate::target::{Observation, PromptCount, Target, TargetFacts};
use crate::units::{Clock, TimestampNs};

/// A started engine with its model.
pub struct InProcess {
    engine: Engine,
    model: Arc<ModelFile>,
    facts: TargetFacts,
}

impl InProcess {
    /// Wraps a started engine; `facts` say what runs.
    pub fn new(engine: Engine, model: Arc<ModelFile>, facts: TargetFacts) -> Self {
        Self { engine, model, facts }
    }

    /// Token ids of a prompt: the model's own template, then its tokenizer without adding specials (the template writes them).
    fn tokens(&self, prompt: &Prompt) -> Result<Vec<u32>, String> {
        match prompt {
            Prompt::TokenIds(ids) => Ok(ids.clone()),
            Prompt::Chat(messages) => self.chat_tokens(messages),
        }
    }

    fn chat_tokens(&self, messages: &[Message]) -> Result<Vec<u32>, String> {
        let tokenizer = self.model.tokenizer.as_ref().ok_or("this model has no tokenizer")?;
        let Some(template) = &self.model.chat_template else {
            // A base model continues plain text: messages in a row, one BOS if the model wants one.
            let text: Vec<&str> = messages.iter().map(|m| m.content.as_str()).collect();
            return Ok(tokenizer.encode_text(&text.join("\n")));
        };
        let text = template.render(messages, true).map_err(|error| error.to_string())?;
        Ok(tokenizer.encode_chat(&text))
    }
}

impl Target for InProcess {
    fn facts(&self) -> &TargetFacts {
        &self.facts
    }

    fn count_prompt(&self, messages: &[Message]) -> PromptCount {
        match self.chat_tokens(messages).ok().and_then(|ids| u32::try_from(ids.len()).ok()) {
            Some(n) => PromptCount::Exact(n),
            None => PromptCount::Unknown,
        }
    }

    fn raw_vocabulary(&self) -> Option<u32> {
        self.model.tokenizer.is_none().then(|| u32::try_from(self.model.shape.vocabulary).unwrap_or(u32::MAX))
    }

    async fn submit(&self, request: &Request, clock: &Clock, seen: &mut Observation) {
        // Sent before the template and the tokenizer run, as a server's time to first token includes its own.
        seen.record.sent_ns = Some(clock.now());
        let prompt = match self.tokens(&request.prompt) {
            Ok(prompt) => prompt,
            Err(error) => {
                seen.record.outcome = Outcome::HttpError;
                seen.record.error = Some(error);
                seen.record.end_ns = Some(clock.now());
                return;
            }
        };
        let stop_ids = self.model.tokenizer.as_ref().map(|t| t.stop_ids().to_vec()).unwrap_or_default();
        let receiver = self.engine.submit(Generate {
            prompt,
            sampling: request.sampling,
            max_tokens: request.max_tokens,
            ignore_eos: request.ignore_eos,
            stop_ids: stop_ids.clone(),
            seed: request.seed,
        });
        match receiver.await {
            Ok(generation) => {
                observe(&mut seen.record, &generation, clock);
                if let Some(tokenizer) = &self.model.tokenizer {
                    let shown: Vec<u32> = generation.tokens.iter().copied().filter(|t| !stop_ids.contains(t)).collect();
                    seen.text.content = tokenizer.decode(&shown);
                }
            }
            Err(_) => {
                seen.record.outcome = Outcome::Reset;
                seen.record.error = Some("the engine's thread ended before this request did".into());
                seen.record.end_ns = Some(clock.now());
            }
        }
    }
}

/// Fills a row from what the engine stamped. One token is one chunk here.
fn observe(record: &mut RequestRecord, generation: &Generation, clock: &Clock) {
    let at = |instant: Instant| clock.at(instant);
    let ms = |from: Instant, to: Instant| to.saturating_duration_since(from).as_secs_f64() * 1e3;
    let n = u32::try_from(generation.tokens.len()).unwrap_or(u32::MAX);
    record.end_ns = Some(at(generation.ended_at));
    record.usage_prompt_tokens = Some(generation.prompt_tokens);
    record.usage_completion_tokens = Some(n);
    record.usage_reasoning_tokens = Some(0);
    record.usage_cached_tokens = Some(0);
    record.streamed = Some(true);
    record.chunks = Some(n);
    record.thinking_seen = Some(false);
    record.peers_in_flight = Some(generation.peers_in_flight);
    record.peers_prefilling = Some(generation.peers_prefilling);
    if let (Some(&first), Some(&last)) = (generation.token_at.first(), generation.token_at.last()) {
        record.first_token_ns = Some(at(first));
        record.first_answer_ns = Some(at(first));
        record.last_token_ns = Some(at(last));
        record.first_chunk_tokens = Some(1);
        record.first_chunk_tokens_source = Some(FirstChunkSource::Usage);
        record.gap_us = gaps_us(&generation.token_at, clock);
        record.server_predicted_n = Some(n);
        // n − 1 intervals: the first token comes out of prefill.
        record.server_predicted_ms = Some(ms(first, last));
    }
    if let (Some(started), Some(ended)) = (generation.prefill_started_at, generation.prefill_ended_at) {
        record.server_cache_n = Some(0);
        record.server_prompt_n = Some(generation.prompt_tokens);
        record.server_prompt_ms = Some(ms(started, ended));
        if let Some(TimestampNs(sent)) = record.sent_ns {
            record.server_queue_ms = Some((at(started).0 - sent).max(0) as f64 / 1e6);
        }
    }
    let refuse = |why: &str| (Outcome::HttpError, Finish::None, Some(why.to_owned()));
    let (outcome, finish, error) = match generation.finish {
        EngineFinish::Stop => (Outcome::Ok, Finish::Stop, None),
        EngineFinish::Length => (Outcome::Ok, Finish::Length, None),
        EngineFinish::ContextLengthExceeded => {
            refuse("context_length_exceeded: prompt and completion do not fit max_context")
        }
        EngineFinish::InvalidRequest => {
            refuse("invalid_request: an empty prompt, no tokens asked for or an unknown token id")
        }
        EngineFinish::PendingTimeout => refuse("request queue timeout: pending_timeout passed before it was admitted"),
        EngineFinish::Cancelled => (Outcome::Cancelled, Finish::None, Some("cancelled".into())),
        EngineFinish::Failed => (Outcome::Reset, Finish::None, Some("the engine failed".into())),
    };
    record.outcome = outcome;
    record.finish = Some(finish);
    record.error = error;
}

/// Gaps in whole microseconds whose running sum never drifts from the stamps by more than half a microsecond.
fn gaps_us(token_at: &[Instant], clock: &Clock) -> Vec<u32> {
    let Some((&first, rest)) = token_at.split_first() else { return Vec::new() };
    let start = clock.at(first).0;
    let mut told_us = 0i64;
    rest.iter()
        .map(|&instant| {
            let since_us = (clock.at(instant).0 - start + 500) / 1000;
            let gap = u32::try_from((since_us - told_us).max(0)).unwrap_or(u32::MAX);
            told_us += i64::from(gap);
            gap
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn gaps_add_up_to_the_span_within_half_a_microsecond() {
        let clock = Clock::start();
        let start = Instant::now();
        let at: Vec<Instant> = (0..1000u64).map(|i| start + Duration::from_nanos(i * 1_333_333)).collect();
        let sum: i64 = gaps_us(&at, &clock).iter().map(|&g| i64::from(g)).sum();
        let span_ns = clock.at(at[999]).0 - clock.at(at[0]).0;
        assert!((sum * 1000 - span_ns).abs() <= 500, "{sum} us for {span_ns} ns");
    }
}
