//! The identity of a plan: equal identities ask the same of the same, so that a run may be resumed or compared.
use std::collections::BTreeMap;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::SCHEMA;
use super::plan::{Arm, Plan, to_json};

/// What the plan alone does not know, by name of the arm.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IdentityInputs {
    /// md5 of the weight file; absent for random weights and endpoints, which are named instead.
    pub model_md5: BTreeMap<String, String>,
    /// What the target states as its version.
    pub target_version: BTreeMap<String, String>,
}

/// Hash of all that decides what is asked of what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// First 6 hex digits of the hash; part of the run directory's name.
    pub hex: String,
    /// The whole hash: SHA-256 of `parts` as one JSON object with sorted keys.
    pub sha256: String,
    /// Every key and its value as JSON, so that a refused resume can name what differs.
    pub parts: BTreeMap<String, String>,
}

/// Keys of a target that change where and how long, not what: paths, timeouts, names of secrets.
const LEFT_OUT: [&str; 5] = ["pending_timeout", "timeouts", "api_key_env", "api_key_file", "launch"];

impl Plan {
    /// Hash of schema, seed, resolved arms and workloads, loads, sampling, model md5s and target versions; of order and repeats too,
    /// since they decide which request is which. Not of name, question, report, paths, timeouts and limits.
    pub fn identity(&self, inputs: &IdentityInputs) -> Identity {
        let mut parts = BTreeMap::new();
        let experiment = &self.experiment;
        let root = json!({
            "schema": SCHEMA,
            "seed": experiment.seed,
            "repeats": experiment.repeats,
            "order": experiment.order.word(),
            "sampling": to_json(&experiment.sampling),
        });
        flatten("", &root, &mut parts);
        for arm in &self.arms {
            flatten(&format!("arms.{}", arm.name), &arm_json(arm, inputs), &mut parts);
        }
        for cell in &self.cells {
            // The number decides the seeds of its requests.
            flatten(
                &format!("workloads.{}", cell.id),
                &json!({"number": cell.number, cell.workload.key(): workload_json(cell)}),
                &mut parts,
            );
        }
        let canonical = serde_json::to_string(&parts).expect("a map of text");
        let sha256: String = Sha256::digest(canonical.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
        Identity { hex: sha256[..6].to_owned(), sha256, parts }
    }
}

fn workload_json(cell: &super::plan::Cell) -> Value {
    match to_json(&cell.workload) {
        Value::Object(map) => map.into_iter().next().map_or(Value::Null, |(_, inner)| inner),
        other => other,
    }
}

fn arm_json(arm: &Arm, inputs: &IdentityInputs) -> Value {
    let mut json = to_json(&arm.target);
    if let Some(kinds) = json.as_object_mut() {
        for target in kinds.values_mut().filter_map(Value::as_object_mut) {
            for key in LEFT_OUT {
                target.shift_remove(key);
            }
            if let Some(md5) = inputs.model_md5.get(&arm.name) {
                target.insert("model".to_owned(), json!({ "md5": md5 }));
            }
        }
        kinds.insert("thinking".to_owned(), to_json(&arm.thinking));
        if let Some(copy_of) = &arm.copy_of {
            kinds.insert("copy_of".to_owned(), json!(copy_of));
        }
        if let Some(version) = inputs.target_version.get(&arm.name) {
            kinds.insert("version".to_owned(), json!(version));
        }
    }
    json
}

fn flatten(path: &str, value: &Value, parts: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (key, value) in map {
                flatten(&if path.is_empty() { key.clone() } else { format!("{path}.{key}") }, value, parts);
            }
        }
        // An absent option and an unknown key say the same.
        Value::Null => {}
        leaf => {
            parts.insert(path.to_owned(), leaf.to_string());
        }
    }
}
