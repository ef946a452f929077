//! The requests of one cell: the same for every arm, in every attempt, on every machine.
use super::prompt::{self, PromptFit, WorkloadError};
use super::seed::{request_seed, stream};
use crate::experiment::plan::{Arm, Cell, Plan};
use crate::request::{Request, RequestKey};

/// What one cell asks in one repeat.
#[derive(Debug, Clone, PartialEq)]
pub struct CellRequests {
    /// Sent first, recorded, left out of every number.
    pub warmup: Vec<Request>,
    /// Measured.
    pub measured: Vec<Request>,
}

/// Makes the requests of `cell` in `repeat`. Prompt and seed depend on suite seed, cell, repeat and index, never on arm or
/// attempt; warm-up prompts come from a stream of their own, and `nonce` stands in front of every prompt.
///
/// # Errors
/// A prompt length that this target cannot have.
pub fn requests(
    plan: &Plan,
    cell: &Cell,
    arm: &Arm,
    repeat: u32,
    nonce: &str,
    fit: &dyn PromptFit,
) -> Result<CellRequests, WorkloadError> {
    let make = |index: u32, warmup: bool| {
        let seed = request_seed(plan.experiment.seed, plan.packed(cell, repeat, index, warmup));
        let which = seed.to_le_bytes();
        let purpose = if warmup { "warm-up prompt" } else { "prompt" };
        let mut rng = stream(plan.experiment.seed, purpose, &[&which]);
        let mut front = stream(plan.experiment.seed, purpose, &[&which, nonce.as_bytes()]);
        let planned = cell.workload.prompt_tokens();
        Ok(Request {
            key: RequestKey { arm: arm.name.clone(), cell: cell.id.clone(), repeat, index, warmup },
            prompt: prompt::prompt(&cell.id, planned, nonce, fit, &mut rng, &mut front)?,
            prompt_tokens_planned: Some(planned),
            sampling: plan.experiment.sampling,
            max_tokens: cell.workload.completion_tokens(),
            ignore_eos: true,
            seed,
        })
    };
    Ok(CellRequests {
        warmup: (0..cell.workload.warmup()).map(|index| make(index, true)).collect::<Result<_, _>>()?,
        measured: (0..cell.workload.requests()).map(|index| make(index, false)).collect::<Result<_, _>>()?,
    })
}
