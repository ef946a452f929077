//! Starts what an arm names: our engine or a connection to a server.
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use crate::engine::weights::ModelFile;
use crate::engine::{Engine, EngineConfig, SchedulerPolicy};
use crate::experiment::Plan;
use crate::experiment::plan::Arm;
use crate::loadgen::Stop;
use crate::pin;
use crate::request::{Message, Request};
use crate::run::RunError;
use crate::target::config::{self, InProcessConfig, ModelRef, TargetConfig};
use crate::target::endpoint::{Endpoint, EndpointSettings};
use crate::target::in_process::InProcess;
use crate::target::{Observation, PromptCount, Target, TargetFacts};
use crate::units::Clock;
use crate::workload::PromptFit;
use crate::yaml::AutoOr;

/// A target of either kind, ready to answer.
pub enum Launched {
    /// Our own engine.
    InProcess(Box<InProcess>),
    /// A server.
    Endpoint(Box<Endpoint>),
}

/// What identifies the model of an arm, and where it lies.
#[derive(Debug, Clone)]
pub struct Model {
    /// md5 of the file, or the words that define a synthetic model.
    pub md5: String,
    /// How to open it.
    source: Source,
}

#[derive(Debug, Clone)]
enum Source {
    File(std::path::PathBuf),
    Synthetic { shape: String, seed: u64 },
    Remote,
}

/// Finds (and, where it is pinned and missing, fetches) the model of an arm. A stop ends the fetch; what came is kept and gone on from.
pub fn locate(target: &TargetConfig, stop: &Stop) -> Result<Model, RunError> {
    match target {
        TargetConfig::Endpoint(endpoint) => {
            Ok(Model { md5: format!("remote:{}", endpoint.model), source: Source::Remote })
        }
        TargetConfig::InProcess(config) => match &config.model {
            ModelRef::Synthetic(synthetic) => Ok(Model {
                md5: format!("synthetic:{}:{}", synthetic.shape, synthetic.seed),
                source: Source::Synthetic { shape: synthetic.shape.clone(), seed: synthetic.seed },
            }),
            ModelRef::Named(name) => {
                let stopped = || stop.requested();
                let located =
                    pin::with_progress(name, &stopped, |watch| pin::locate(name, pin::Fetch::Watched(watch)))?;
                Ok(Model { md5: located.md5, source: Source::File(located.path) })
            }
        },
    }
}

/// Starts the arm. Returns the target and the seconds from call to ready.
pub async fn launch(plan: &Plan, arm: &Arm, model: &Model, nonce: &str) -> Result<(Rc<Launched>, f64), RunError> {
    let started = Instant::now();
    let launched = match &arm.target {
        TargetConfig::InProcess(config) => Launched::InProcess(Box::new(start_engine(config, model)?)),
        TargetConfig::Endpoint(config) => {
            let most = plan.cells.iter().map(|cell| cell.workload.concurrency()).max().unwrap_or(1);
            let mut settings = EndpointSettings::from_config(config, most, nonce)?;
            // One cold cell keeps the cache off for all: a number that a cache flatters is worse than one it does not help.
            settings.cold = plan.cells.iter().any(|cell| cell.workload.cold());
            settings.thinking = (&arm.thinking).into();
            Launched::Endpoint(Box::new(Endpoint::connect(settings).await?))
        }
    };
    Ok((Rc::new(launched), started.elapsed().as_secs_f64()))
}

fn start_engine(config: &InProcessConfig, model: &Model) -> Result<InProcess, RunError> {
    let file = match &model.source {
        Source::File(path) => ModelFile::open(path)?,
        Source::Synthetic { shape, seed } => ModelFile::synthetic(shape, *seed)?,
        Source::Remote => unreachable!("an in-process arm has a file or a synthetic model"),
    };
    let file = Arc::new(file);
    let engine = Engine::start(Arc::clone(&file), engine_config(config)?)?;
    let capacity = engine.capacity();
    let facts = TargetFacts {
        name: "in-process cpu".into(),
        model: file.name.clone(),
        synthetic: file.synthetic,
        version: format!("inferlab {}", env!("CARGO_PKG_VERSION")),
        effective_kv_dtype: Some(capacity.kv_dtype.word().to_owned()),
        effective_context: Some(capacity.max_context),
        effective_concurrency: Some(capacity.max_concurrency),
        facts: capacity.account(),
    };
    Ok(InProcess::new(engine, file, facts))
}

fn engine_config(config: &InProcessConfig) -> Result<EngineConfig, RunError> {
    let auto = |value: AutoOr<u32>| match value {
        AutoOr::Auto => None,
        AutoOr::Value(n) => Some(n),
    };
    Ok(EngineConfig {
        threads: auto(config.threads).map(|n| n as usize),
        max_context: config.max_context,
        max_concurrency: config.max_concurrency,
        kv_dtype: config.kv_dtype.word().parse().map_err(RunError::KvDtype)?,
        kv_capacity_tokens: auto(config.kv_capacity),
        prefill_chunk: config.prefill_chunk,
        scheduler: match config.scheduler {
            config::SchedulerPolicy::Serial => SchedulerPolicy::Serial,
            config::SchedulerPolicy::Mixed => SchedulerPolicy::Mixed,
        },
        pending_timeout: config.pending_timeout.0,
    })
}

impl Launched {
    /// What the target states as its version, which is part of the identity; our own build is provenance instead.
    pub fn stated_version(&self) -> &str {
        match self {
            Self::InProcess(_) => "",
            Self::Endpoint(target) => &target.facts().version,
        }
    }

    /// The server, where the target is one.
    pub fn endpoint(&self) -> Option<&Endpoint> {
        match self {
            Self::InProcess(_) => None,
            Self::Endpoint(target) => Some(target),
        }
    }

    /// What the reader of a report should know of this target.
    pub fn warnings(&self) -> &[String] {
        match self {
            Self::InProcess(_) => &[],
            Self::Endpoint(target) => target.warnings(),
        }
    }
}

impl Target for Launched {
    fn facts(&self) -> &TargetFacts {
        match self {
            Self::InProcess(target) => target.facts(),
            Self::Endpoint(target) => target.facts(),
        }
    }

    fn count_prompt(&self, messages: &[Message]) -> PromptCount {
        match self {
            Self::InProcess(target) => target.count_prompt(messages),
            Self::Endpoint(target) => target.count_prompt(messages),
        }
    }

    fn raw_vocabulary(&self) -> Option<u32> {
        match self {
            Self::InProcess(target) => target.raw_vocabulary(),
            Self::Endpoint(target) => target.raw_vocabulary(),
        }
    }

    async fn submit(&self, request: &Request, clock: &Clock, seen: &mut Observation) {
        match self {
            Self::InProcess(target) => target.submit(request, clock, seen).await,
            Self::Endpoint(target) => target.submit(request, clock, seen).await,
        }
    }
}

impl PromptFit for Launched {
    fn count(&self, messages: &[Message]) -> Option<u32> {
        match self.count_prompt(messages) {
            PromptCount::Exact(n) => Some(n),
            PromptCount::Unknown => None,
        }
    }

    fn raw_vocabulary(&self) -> Option<u32> {
        Target::raw_vocabulary(self)
    }

    fn overhead_tokens(&self) -> Option<u32> {
        match self {
            Self::InProcess(_) => None,
            Self::Endpoint(target) => target.overhead_tokens(),
        }
    }
}
