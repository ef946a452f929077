//! From base target, overrides and swept keys to arms.
use serde_json::Value;

use super::plan::Arm;
use super::{Experiment, ExperimentError};
use crate::target::config::{Endpoint, InProcess, TargetConfig, TargetEntry};
use crate::yaml::{Axis, KeyPath};

/// Most arms of a plan.
const MAX_ARMS: usize = 1000;

/// Name of the only arm, where none is written.
const BASE: &str = "base";

/// Every explicit arm at every point of the sweep, then the copy of the first for the noise floor.
pub(super) fn expand(experiment: &Experiment) -> Result<Vec<Arm>, ExperimentError> {
    let entries: Vec<(&str, Option<&TargetEntry>)> = match &experiment.arms {
        Some(arms) => arms.iter().map(|arm| (arm.name.as_str(), arm.over.as_ref())).collect(),
        None => vec![(BASE, None)],
    };
    let too_many = || {
        let path = KeyPath::root().key(if experiment.arms.is_some() { "arms" } else { "target" });
        experiment.origin.rule(
            &path,
            format!("more than {MAX_ARMS} arms"),
            "swept keys multiply: sweep fewer, or shorter lists",
        )
    };
    let mut arms = Vec::new();
    for (entry, (name, over)) in entries.into_iter().enumerate() {
        let points = points(&merge(&experiment.target, over)).ok_or_else(too_many)?;
        for (suffix, target) in points {
            for thinking in experiment.thinking.values() {
                let word = if experiment.thinking.varies() {
                    format!("+thinking={}", spelled(thinking))
                } else {
                    String::new()
                };
                arms.push(Arm {
                    name: format!("{name}{suffix}{word}"),
                    target: target.clone(),
                    thinking: thinking.clone(),
                    copy_of: None,
                    entry: experiment.arms.as_ref().map(|_| entry),
                });
                if arms.len() > MAX_ARMS {
                    return Err(too_many());
                }
            }
        }
    }
    if experiment.noise_floor {
        let first = arms.first().cloned().expect("a plan has at least one arm");
        arms.push(Arm { name: format!("{}+copy", first.name), copy_of: Some(first.name.clone()), ..first });
    }
    Ok(arms)
}

fn merge(base: &TargetEntry, over: Option<&TargetEntry>) -> TargetEntry {
    match (base, over) {
        (TargetEntry::InProcess(base), Some(TargetEntry::InProcess(over))) => TargetEntry::InProcess(over.over(base)),
        (TargetEntry::Endpoint(base), Some(TargetEntry::Endpoint(over))) => TargetEntry::Endpoint(over.over(base)),
        // The rules refuse an override of another kind.
        (base, _) => base.clone(),
    }
}

/// Every point of the sweep with the end of its name; `None` when there are too many.
fn points(target: &TargetEntry) -> Option<Vec<(String, TargetConfig)>> {
    match target {
        TargetEntry::Endpoint(target) => Some(vec![(String::new(), endpoint(target))]),
        TargetEntry::InProcess(target) => {
            let points = Points(vec![(String::new(), target.clone())])
                .split("max_context", |target| &mut target.max_context)?
                .split("max_concurrency", |target| &mut target.max_concurrency)?
                .split("kv_dtype", |target| &mut target.kv_dtype)?
                .split("kv_capacity", |target| &mut target.kv_capacity)?
                .split("prefill_chunk", |target| &mut target.prefill_chunk)?
                .split("scheduler", |target| &mut target.scheduler)?
                .split("cuda_graph", |target| &mut target.cuda_graph)?
                .split("speculation", |target| &mut target.speculation)?
                .split("prefix_cache", |target| &mut target.prefix_cache)?;
            Some(points.0.into_iter().map(|(suffix, target)| (suffix, in_process(&target))).collect())
        }
    }
}

fn in_process(target: &InProcess) -> TargetConfig {
    TargetConfig::InProcess(target.resolve().expect("the rules ask for a model"))
}

fn endpoint(target: &Endpoint) -> TargetConfig {
    TargetConfig::Endpoint(target.resolve().expect("the rules ask for url and model"))
}

struct Points(Vec<(String, InProcess)>);

impl Points {
    /// Multiplies the points by the values of one axis; a list of one value names nothing.
    fn split<T: Clone + serde::Serialize>(
        self,
        key: &str,
        axis: fn(&mut InProcess) -> &mut Option<Axis<T>>,
    ) -> Option<Self> {
        let mut out = Vec::new();
        for (suffix, mut target) in self.0 {
            let Some(values) =
                axis(&mut target).as_ref().filter(|axis| axis.varies()).map(|axis| axis.values().to_vec())
            else {
                out.push((suffix, target));
                continue;
            };
            for value in values {
                let suffix = format!("{suffix}+{key}={}", spelled(&value));
                *axis(&mut target) = Some(Axis::One(value));
                out.push((suffix, target.clone()));
                if out.len() > MAX_ARMS {
                    return None;
                }
            }
        }
        Some(Self(out))
    }
}

/// A value as part of a name: `bf16`, `512`, `off`, `mtp:3`.
fn spelled<T: serde::Serialize>(value: &T) -> String {
    fn flat(value: &Value) -> String {
        match value {
            Value::String(word) => word.clone(),
            Value::Array(list) => list.iter().map(flat).collect::<Vec<_>>().join(","),
            Value::Object(map) => map.values().map(flat).collect::<Vec<_>>().join(","),
            plain => plain.to_string(),
        }
    }
    match serde_json::to_value(value).expect("a swept value is plain data") {
        Value::Object(map) => map.iter().map(|(key, inner)| format!("{key}:{}", flat(inner))).collect(),
        plain => flat(&plain),
    }
}

/// Where a key of an arm's target was written: in its override, else in the base.
pub(super) fn target_path(experiment: &Experiment, arm: &Arm, key: &str) -> KeyPath {
    let root = KeyPath::root();
    let over = arm.entry.and_then(|entry| Some((entry, experiment.arms.as_ref()?.get(entry)?.over.as_ref()?)));
    if let Some((entry, over)) = over
        && let Ok(Value::Object(kinds)) = serde_json::to_value(over)
        && kinds.values().any(|keys| keys.get(key).is_some())
    {
        return root.key("arms").index(entry).key("override").key(over.kind()).key(key);
    }
    root.key("target").key(experiment.target.kind()).key(key)
}
