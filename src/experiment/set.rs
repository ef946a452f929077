//! `--set KEY=VALUE`: a dotted path into the experiment, arrays by number, and a value written as in the file.
//!
//! The file is read first and must be right by itself. Values are laid over the typed experiment and the whole is read again, so
//! a set key meets the same types, words and rules as a written one.
use serde_json::Value;

use super::origin::{Origin, SetArgument};
use super::{Experiment, ExperimentError};
use crate::yaml::{KeyPath, Part, Source, Step, YamlError, inline};

/// Lays the arguments over `experiment` in their order.
pub(super) fn apply(experiment: Experiment, arguments: &[String]) -> Result<Experiment, ExperimentError> {
    let mut tree = serde_json::to_value(&experiment).expect("an experiment is plain data");
    let mut sets = Vec::new();
    for text in arguments {
        let set = split(text)?;
        let mut value = value(&set)?;
        if keeps_its_face(set.value()) {
            value = Value::String(mark(sets.len()));
        }
        put(&mut tree, &set, set.path.steps(), value)?;
        sets.push(set);
    }
    // Pretty, since a reader of YAML refuses a line without end.
    let mut merged = serde_json::to_string_pretty(&tree).expect("a tree of plain data");
    for (number, set) in sets.iter().enumerate() {
        merged = merged.replace(&Value::String(mark(number)).to_string(), set.value());
    }
    let origin = experiment.origin.with_sets(sets);
    // JSON is YAML: the same reader, so the same errors.
    let merged = Source::new("--set", merged.as_bytes()).map_err(|error| moved(error, &origin))?;
    let mut experiment: Experiment = merged.parse().map_err(|error| moved(error, &origin))?;
    experiment.origin = origin;
    Ok(experiment)
}

/// Stands for value number `number` until the tree is text: no file can hold it, since it is a control character.
fn mark(number: usize) -> String {
    format!("\u{1}{number}\u{1}")
}

/// Whether a value is one plain word that is written into the tree as it stands: as a JSON number 1.10 would be 1.1, and 012 text.
fn keeps_its_face(value: &str) -> bool {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'+' | b'-' | b':' | b'/');
    value.bytes().all(is_plain)
        && value.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '.')
        && !value.ends_with(':')
}

fn moved(error: YamlError, origin: &Origin) -> ExperimentError {
    error.moved(|path, part| origin.place(path, part)).into()
}

fn split(text: &str) -> Result<SetArgument, ExperimentError> {
    let key = text.split_once('=').map_or(text, |(key, _)| key);
    let path = KeyPath::parse(key);
    let set = SetArgument { text: text.to_owned(), path, value_at: (key.len() + 1).min(text.len()) };
    if key.len() == text.len() || set.path.steps().is_empty() || set.value_at == text.len() {
        return Err(ExperimentError::Set {
            message: format!("`{}` is not KEY=VALUE", inline(text)),
            help: "write KEY=VALUE, as in --set repeats=3 or --set target.in_process.kv_dtype=[f32,bf16] or --set workloads.0.prefill_scaling.requests=2".to_owned(),
            at: set.place(Part::Key),
        });
    }
    Ok(set)
}

/// The value, read as YAML under a key of its own so that the checks of a file hold for it.
fn value(set: &SetArgument) -> Result<Value, ExperimentError> {
    #[derive(serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Wrapped {
        value: Value,
    }
    let wrapped = Source::new("--set", format!("value: {}", set.value()).as_bytes())
        .and_then(|source| source.parse::<Wrapped>())
        .map_err(|error| ExperimentError::Set {
            message: format!("the value of `{}`: {error}", set.path),
            help: "write the value as in the file; quote it for the shell".to_owned(),
            at: set.place(Part::Value),
        })?;
    Ok(wrapped.value)
}

fn put(node: &mut Value, set: &SetArgument, steps: &[Step], value: Value) -> Result<(), ExperimentError> {
    let Some((step, rest)) = steps.split_first() else {
        *node = value;
        return Ok(());
    };
    let wrong =
        |message: String, help: &str| ExperimentError::Set { message, help: help.to_owned(), at: set.place(Part::Key) };
    match (node, step) {
        (Value::Array(list), Step::Index(index)) => {
            let length = list.len();
            match list.get_mut(*index) {
                Some(element) => put(element, set, rest, value),
                None => Err(wrong(
                    format!("`{}`: the list has {length} elements, numbered from 0", set.path),
                    "name an element that is there, or set the whole list",
                )),
            }
        }
        (Value::Array(list), Step::Key(key)) => Err(wrong(
            format!("`{}`: `{}` is no number, and a list of {} stands there", set.path, inline(key), list.len()),
            "elements of a list are numbered from 0, as in workloads.0",
        )),
        (Value::Object(map), step) => {
            let key = match step {
                Step::Key(key) => key.clone(),
                Step::Index(number) => number.to_string(),
            };
            put(map.entry(key).or_insert_with(|| Value::Object(serde_json::Map::new())), set, rest, value)
        }
        (_, step) => {
            let step = KeyPath::root().step(step.clone());
            Err(wrong(
                format!("`{}`: a single value stands before `{step}`", set.path),
                "set the whole value: KEY={...}",
            ))
        }
    }
}
