//! The plan: arms, cells and the order of visits, fully resolved before anything runs.
use super::{Experiment, ExperimentError, Thinking, arms, order};
use crate::record::{
    PlannedArm, PlannedCell, PlannedLimits, PlannedOffer, PlannedReport, PlannedRun, PlannedSlo, PlannedVisit,
};
use crate::target::config::{InProcessConfig, TargetConfig};
use crate::workload::{MAX_REQUESTS, Workload};
use crate::yaml::{AutoOr, KeyPath, Part, Place, inline, nearest, quoted};

/// Most cells of a plan.
const MAX_CELLS: usize = 10_000;
/// Most visits of a plan.
const MAX_VISITS: u64 = 1_000_000;

/// What a run does, in which order.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The file it was made from.
    pub experiment: Experiment,
    /// Every arm; with a noise floor, the copy of the first is the last.
    pub arms: Vec<Arm>,
    /// Every cell; all arms run all of them.
    pub cells: Vec<Cell>,
    /// In each repeat every arm once.
    pub visits: Vec<Visit>,
    /// Most requests of any cell in one repeat, `--only` or not.
    slots: u32,
}

/// One configuration under test.
#[derive(Debug, Clone, PartialEq)]
pub struct Arm {
    /// As `base+kv_dtype=bf16`; unique.
    pub name: String,
    /// What it runs on.
    pub target: TargetConfig,
    /// Thinking asked for.
    pub thinking: Thinking,
    /// The arm it repeats, for the noise floor.
    pub copy_of: Option<String>,
    /// Number of its entry under `arms`.
    pub(super) entry: Option<usize>,
}

/// One workload at one point of its axes.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// As `decode_scaling/c2` or `prefill_scaling/p512`; unique, and the same whatever `--only` leaves out.
    pub id: String,
    /// The workload with one value on every axis.
    pub workload: Workload,
    /// Its number in the whole plan, `--only` or not: request seeds derive from it.
    pub number: u32,
    /// Number of its entry under `workloads`.
    pub(super) entry: usize,
}

/// One arm in one repeat: the target is started, all cells run, the target ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Visit {
    /// Which repeat, from 0.
    pub repeat: u32,
    /// Which arm, by its number in the plan.
    pub arm: usize,
}

impl Plan {
    /// Resolves an experiment. `only` keeps the arms, workloads and cells that it names; of arms or cells it does not name, all.
    ///
    /// # Errors
    /// A key that this version does not support, a cell that does not fit an arm, too many of anything, an unknown `only`.
    pub fn new(experiment: &Experiment, only: &[String]) -> Result<Self, ExperimentError> {
        experiment.check_supported()?;
        let mut arms = arms::expand(experiment)?;
        let mut cells = cells(experiment)?;
        let slots = cells
            .iter()
            .map(|cell| u64::from(cell.workload.requests()) + u64::from(cell.workload.warmup()))
            .max()
            .unwrap_or(0);
        let requests = slots.saturating_mul(cells.len() as u64).saturating_mul(u64::from(experiment.repeats));
        if requests > MAX_REQUESTS {
            let path = KeyPath::root().key("workloads");
            let message = format!("{requests} requests an arm; at most {MAX_REQUESTS}");
            return Err(experiment.origin.rule(&path, message, "ask for fewer requests, cells or repeats"));
        }
        select(&mut arms, &mut cells, only)?;
        for arm in &arms {
            if let TargetConfig::InProcess(target) = &arm.target {
                cells.iter().try_for_each(|cell| fits(experiment, arm, target, cell))?;
            }
        }
        if arms.len() as u64 * u64::from(experiment.repeats) > MAX_VISITS {
            let message = format!(
                "{} arms in {} repeats are too many; at most {MAX_VISITS} visits",
                arms.len(),
                experiment.repeats
            );
            return Err(experiment.origin.rule(
                &KeyPath::root().key("repeats"),
                message,
                "ask for fewer repeats or arms",
            ));
        }
        let visits = order::visits(experiment.order, arms.len(), experiment.repeats, experiment.seed);
        let slots = u32::try_from(slots).expect("within the 31 bits just checked");
        Ok(Self { experiment: experiment.clone(), arms, cells, visits, slots })
    }

    /// Number of a request in the whole plan, below 2³¹; warm-up follows the measured ones.
    pub(crate) fn packed(&self, cell: &Cell, repeat: u32, index: u32, warmup: bool) -> u32 {
        let slot = if warmup { cell.workload.requests() + index } else { index };
        (cell.number * self.experiment.repeats + repeat) * self.slots + slot
    }

    /// Where the model of an arm was written.
    pub fn model_place(&self, arm: &Arm) -> Place {
        self.experiment.origin.place(&arms::target_path(&self.experiment, arm, "model"), Part::Value)
    }

    /// An error about the model of an arm, at its place.
    pub fn model_error(&self, arm: &Arm, message: impl Into<String>, help: impl Into<String>) -> ExperimentError {
        self.experiment.origin.rule(&arms::target_path(&self.experiment, arm, "model"), message, help)
    }

    /// The plan as the log keeps it.
    pub fn planned(&self) -> PlannedRun {
        let experiment = &self.experiment;
        PlannedRun {
            name: experiment.name.clone(),
            question: experiment.question.clone(),
            seed: experiment.seed,
            repeats: experiment.repeats,
            order: experiment.order.word().to_owned(),
            arms: self
                .arms
                .iter()
                .map(|arm| PlannedArm {
                    name: arm.name.clone(),
                    target: to_json(&arm.target),
                    thinking: to_json(&arm.thinking),
                    copy_of: arm.copy_of.clone(),
                })
                .collect(),
            cells: self.cells.iter().map(Cell::planned).collect(),
            visits: self
                .visits
                .iter()
                .map(|visit| PlannedVisit { repeat: visit.repeat, arm: self.arms[visit.arm].name.clone() })
                .collect(),
            limits: PlannedLimits {
                max_failure_rate: experiment.limits.max_failure_rate.0,
                max_duration_s: Some(experiment.limits.max_duration.0.as_secs_f64()),
            },
            slo: experiment.slo.as_ref().map(|slo| PlannedSlo {
                ttft_ms: slo.ttft_ms.map(|limit| limit.0),
                tpot_ms: slo.tpot_ms.map(|limit| limit.0),
            }),
            text: experiment.text.word().to_owned(),
            sampling: experiment.sampling,
            report: PlannedReport {
                formats: experiment.report.formats.iter().map(|format| format.word().to_owned()).collect(),
                language: experiment.report.language.word().to_owned(),
            },
        }
    }
}

impl Cell {
    fn planned(&self) -> PlannedCell {
        PlannedCell {
            id: self.id.clone(),
            workload: self.workload.key().to_owned(),
            concurrency: self.workload.concurrency(),
            prompt_tokens: self.workload.prompt_tokens(),
            completion_tokens: self.workload.completion_tokens(),
            requests: self.workload.requests(),
            warmup: self.workload.warmup(),
            cold: self.workload.cold(),
            offer: self.workload.load().offer().map(|offer| PlannedOffer {
                load: self.workload.load().key().to_owned(),
                rate_req_s: offer.rate_req_s,
                duration_s: offer.duration.as_secs_f64(),
                max_in_flight: offer.max_in_flight,
            }),
        }
    }
}

/// Every point of every workload. A second workload of one kind is `decode_scaling-2`.
fn cells(experiment: &Experiment) -> Result<Vec<Cell>, ExperimentError> {
    let mut cells: Vec<Cell> = Vec::new();
    for (entry, workload) in experiment.workloads.iter().enumerate() {
        if cells.len() + workload.point_count() > MAX_CELLS {
            let path = KeyPath::root().key("workloads").index(entry);
            return Err(experiment.origin.rule(
                &path,
                format!("more than {MAX_CELLS} cells"),
                "axes multiply: sweep fewer, or shorter lists",
            ));
        }
        let earlier = experiment.workloads[..entry].iter().filter(|other| other.key() == workload.key()).count();
        let name = if earlier == 0 { workload.key().to_owned() } else { format!("{}-{}", workload.key(), earlier + 1) };
        for (point, workload) in workload.points() {
            let number = u32::try_from(cells.len()).expect("at most MAX_CELLS cells");
            cells.push(Cell { id: format!("{name}/{point}"), workload, number, entry });
        }
    }
    Ok(cells)
}

/// Whether an arm of our own engine can hold a cell; what cannot is refused now and not by its thousandth request.
fn fits(experiment: &Experiment, arm: &Arm, target: &InProcessConfig, cell: &Cell) -> Result<(), ExperimentError> {
    let workload = &experiment.workloads[cell.entry];
    let path = KeyPath::root().key("workloads").index(cell.entry).key(workload.key());
    let (concurrency, prompt, completion) =
        (cell.workload.concurrency(), cell.workload.prompt_tokens(), cell.workload.completion_tokens());
    let length = cell.workload.longest();
    let on = |key: &str| arms::target_path(experiment, arm, key);
    if length > u64::from(target.max_context) {
        let axis = match workload {
            Workload::DecodeScaling(workload) => &workload.prompt_tokens,
            Workload::PrefillScaling(workload) => &workload.prompt_tokens,
            Workload::Serving(_) => {
                let message = format!(
                    "a request may hold {length} tokens and arm `{}` has {} tokens of context",
                    arm.name, target.max_context
                );
                let help = format!("ask for less, or set `{}` to {length} or more", on("max_context"));
                return Err(experiment.origin.rule(&path, message, help));
            }
        };
        let path = path.key("prompt_tokens");
        let path = axis
            .values()
            .iter()
            .position(|&value| value == prompt)
            .filter(|_| axis.is_list())
            .map_or(path.clone(), |n| path.index(n));
        let message = format!(
            "{prompt} prompt and {completion} completion tokens do not fit the {} tokens of context of arm `{}`",
            target.max_context, arm.name
        );
        return Err(experiment.origin.rule(
            &path,
            message,
            format!("ask for less, or set `{}` to {length} or more", on("max_context")),
        ));
    }
    // Under `serving` a request may wait for its turn: how long is what is asked.
    if matches!(workload, Workload::Serving(_)) {
        return Ok(());
    }
    let path = path.key("load").key("closed").key("concurrency");
    let lanes = workload.load().concurrencies();
    let path = lanes
        .iter()
        .position(|&lane| lane == concurrency)
        .filter(|_| lanes.len() > 1)
        .map_or(path.clone(), |n| path.index(n));
    if concurrency > target.max_concurrency {
        let message = format!(
            "{concurrency} requests in flight, and arm `{}` decodes {} together: the rest would wait and the run be invalid (V2)",
            arm.name, target.max_concurrency
        );
        return Err(experiment.origin.rule(
            &path,
            message,
            format!("ask for fewer, or set `{}` to {concurrency} or more", on("max_concurrency")),
        ));
    }
    if let AutoOr::Value(capacity) = target.kv_capacity
        && u64::from(concurrency) * length > u64::from(capacity)
    {
        let message = format!(
            "{concurrency} requests of {length} tokens do not fit the {capacity} tokens of KV cache of arm `{}`: some would wait and the run be invalid (V2)",
            arm.name
        );
        return Err(experiment.origin.rule(
            &path,
            message,
            format!("ask for fewer, or set `{}` to more or `auto`", on("kv_capacity")),
        ));
    }
    Ok(())
}

/// Keeps what `only` names.
fn select(arms: &mut Vec<Arm>, cells: &mut Vec<Cell>, only: &[String]) -> Result<(), ExperimentError> {
    let names_arm = |word: &str, arm: &Arm| {
        let is = |name: &str| name == word || name.strip_prefix(word).is_some_and(|rest| rest.starts_with('+'));
        is(&arm.name) || arm.copy_of.as_deref().is_some_and(is)
    };
    let names_cell = |word: &str, cell: &Cell| {
        cell.id == word || cell.id.strip_prefix(word).is_some_and(|rest| rest.starts_with('/'))
    };
    let (mut arm_words, mut cell_words) = (Vec::new(), Vec::new());
    for word in only {
        let is_arm = arms.iter().any(|arm| names_arm(word, arm));
        let is_cell = cells.iter().any(|cell| names_cell(word, cell));
        if !is_arm && !is_cell {
            let kinds = cells.iter().filter_map(|cell| cell.id.split('/').next());
            let mut names: Vec<&str> = arms
                .iter()
                .map(|arm| arm.name.as_str())
                .chain(kinds)
                .chain(cells.iter().map(|c| c.id.as_str()))
                .collect();
            names.sort_unstable();
            names.dedup();
            let near = nearest(word, &names).map_or(String::new(), |near| format!("did you mean `{near}`? "));
            names.truncate(40);
            return Err(ExperimentError::Only {
                word: inline(word),
                help: format!("{near}there are: {}", quoted(&names)),
            });
        }
        if is_arm {
            arm_words.push(word);
        }
        if is_cell {
            cell_words.push(word);
        }
    }
    if !arm_words.is_empty() {
        arms.retain(|arm| arm_words.iter().any(|word| names_arm(word, arm)));
    }
    if !cell_words.is_empty() {
        cells.retain(|cell| cell_words.iter().any(|word| names_cell(word, cell)));
    }
    Ok(())
}

/// Plain data as JSON.
pub(super) fn to_json<T: serde::Serialize>(data: &T) -> serde_json::Value {
    serde_json::to_value(data).expect("plain data has no map keys but text")
}
