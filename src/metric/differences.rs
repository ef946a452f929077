//! In what arms differ: the factor that a comparison is about, and those that confound it.
use std::collections::BTreeMap;

use serde_json::Value;

use super::summary::ArmSummary;
use super::validity::plain;
use crate::record::{LoggedRun, PlannedArm, PlannedRun};

/// Settings of an arm by name: members of its target (of `launch` one level deeper), and `thinking`. A setting that is itself a map, as
/// `speculation`, is one factor.
fn settings(arm: &PlannedArm) -> BTreeMap<String, String> {
    let mut settings = BTreeMap::from([("thinking".to_owned(), plain(&arm.thinking))]);
    for (kind, target) in arm.target.as_object().into_iter().flatten() {
        settings.insert("target".into(), kind.clone());
        for (key, value) in target.as_object().into_iter().flatten() {
            match value {
                Value::Object(launch) if key == "launch" => {
                    settings.extend(launch.iter().map(|(name, value)| (format!("launch.{name}"), plain(value))));
                }
                value => {
                    settings.insert(key.clone(), plain(value));
                }
            }
        }
    }
    settings
}

/// Names of the settings in which two arms differ. Another kind of target is one factor, not as many as it has settings.
fn differing(a: &PlannedArm, b: &PlannedArm) -> Vec<String> {
    let (a, b) = (settings(a), settings(b));
    if a.get("target") != b.get("target") {
        return vec!["target".into()];
    }
    let mut names: Vec<String> = a.keys().chain(b.keys()).filter(|k| a.get(*k) != b.get(*k)).cloned().collect();
    names.sort();
    names.dedup();
    names
}

/// Every arm with what answers it and its value of each setting in which any two arms differ.
pub fn arms(run: &LoggedRun, plan: &PlannedRun) -> Vec<ArmSummary> {
    let mut names: Vec<String> =
        plan.arms.iter().flat_map(|a| plan.arms.iter().flat_map(move |b| differing(a, b))).collect();
    names.sort();
    names.dedup();
    let summary = |arm: &PlannedArm| {
        let settings = settings(arm);
        let value = |name: &String| settings.get(name).cloned().unwrap_or_else(|| "–".into());
        let word = |key: &str| facts(run, &arm.name)[key].as_str().unwrap_or_default();
        let target = match (word("name"), word("model")) {
            ("", "") => "–".to_owned(),
            (name, "") => name.to_owned(),
            (name, model) => format!("{name}, {model}"),
        };
        let differs = names.iter().map(|name| (name.clone(), value(name))).collect();
        ArmSummary { name: arm.name.clone(), target, differs }
    };
    plan.arms.iter().map(summary).collect()
}

fn facts<'a>(run: &'a LoggedRun, arm: &str) -> &'a Value {
    const NULL: &Value = &Value::Null;
    run.segments.first().map_or(NULL, |segment| &segment.open.provenance["target"][arm])
}

/// Factors in which two arms differ: settings of the plan, then what their targets say of themselves, where the plan does not explain it.
///
/// More than one factor confounds a comparison: the difference cannot be laid to one of them. Settings that only say which server is meant
/// (`url`, `dialect`, its name and version) are together one factor, `engine`.
pub fn factors(run: &LoggedRun, a: &PlannedArm, b: &PlannedArm) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut add = |name: &str| {
        let name = match name {
            "url" | "dialect" | "api" | "api_key_env" | "name" | "version" => "engine",
            other => other,
        };
        if !found.iter().any(|f| f == name) {
            found.push(name.to_owned());
        }
    };
    let asked = differing(a, b);
    let other_target = asked.iter().any(|name| name == "target");
    asked.iter().for_each(|name| add(name));
    let (left, right) = (facts(run, &a.name), facts(run, &b.name));
    let said = [
        ("name", "name"),
        ("version", "version"),
        ("model", "model"),
        ("effective_kv_dtype", "kv_dtype"),
        ("effective_context", "max_context"),
        ("effective_concurrency", "max_concurrency"),
    ];
    for (fact, factor) in said {
        let (left, right) = (&left[fact], &right[fact]);
        // Another kind of target has another name and version, and calls the same model by another name.
        let explained = other_target && ["name", "version", "model"].contains(&fact);
        if !left.is_null() && !right.is_null() && left != right && !explained {
            add(factor);
        }
    }
    found
}
