//! What a server says of its own work beside the usage: times, drafts, rounds.
use super::chunk::{MetaInfo, Timings};
use crate::record::RequestRecord;

/// Figures of one answer; `None` where the server does not tell.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct ServerFigures {
    cache_n: Option<u32>,
    prompt_n: Option<u32>,
    prompt_ms: Option<f64>,
    predicted_n: Option<u32>,
    predicted_ms: Option<f64>,
    queue_ms: Option<f64>,
    draft_n: Option<u32>,
    draft_accepted: Option<u32>,
    rounds: Option<u32>,
}

impl ServerFigures {
    /// llama.cpp's and NInfer's clock; the newest stands, and counts everything until then.
    pub(super) fn take_timings(&mut self, timings: &Timings) {
        *self = Self {
            cache_n: timings.cache_n.good(),
            prompt_n: timings.prompt_n.good(),
            prompt_ms: timings.prompt_ms.0,
            predicted_n: timings.predicted_n.good(),
            predicted_ms: timings.predicted_ms.0,
            draft_n: timings.draft_n.good(),
            draft_accepted: timings.draft_n_accepted.good(),
            ..*self
        };
    }

    /// SGLang's account.
    pub(super) fn take_meta(&mut self, meta: &MetaInfo) {
        self.queue_ms = meta.queue_time.0.map(|seconds| seconds * 1e3).or(self.queue_ms);
        self.rounds = meta.spec_verify_ct.good().or(self.rounds);
        let accepted = meta.spec_num_correct_drafts.good().or(meta.spec_accepted_drafts.good());
        let drafted = meta.spec_num_proposed_drafts.good().or(meta.spec_proposed_drafts.good());
        (self.draft_accepted, self.draft_n) = (accepted.or(self.draft_accepted), drafted.or(self.draft_n));
    }

    /// Writes them into the row as the server counts; rates are normalised by the metrics.
    pub(super) fn fill(&self, row: &mut RequestRecord) {
        row.server_cache_n = self.cache_n;
        row.server_prompt_n = self.prompt_n;
        row.server_prompt_ms = self.prompt_ms;
        row.server_predicted_n = self.predicted_n;
        row.server_predicted_ms = self.predicted_ms;
        row.server_queue_ms = self.queue_ms;
        row.server_rounds = self.rounds;
        row.server_draft_n = self.draft_n;
        row.server_draft_accepted = self.draft_accepted;
    }
}
