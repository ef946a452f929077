//! Where an experiment was read from, so that a rule that fails later still points at the words a person wrote.
use super::ExperimentError;
use crate::yaml::{KeyPath, Part, Place, Source};

/// The file and the `--set` arguments laid over it.
#[derive(Debug, Clone, Default)]
pub struct Origin {
    file: Option<Source>,
    sets: Vec<SetArgument>,
}

/// One `--set KEY=VALUE`.
#[derive(Debug, Clone)]
pub(super) struct SetArgument {
    /// The argument as given.
    pub text: String,
    /// Its KEY.
    pub path: KeyPath,
    /// Offset of its VALUE.
    pub value_at: usize,
}

impl SetArgument {
    /// Its VALUE.
    pub fn value(&self) -> &str {
        &self.text[self.value_at..]
    }

    /// A place in the argument: its key or its value.
    pub fn place(&self, part: Part) -> Place {
        let (offset, length) = match part {
            Part::Key => (0, self.text.find('=').unwrap_or(self.text.len())),
            Part::Value => (self.value_at, self.text.len() - self.value_at),
        };
        Place::in_argument("--set", &self.text, offset, length)
    }
}

impl Origin {
    pub(super) fn of(file: Source) -> Self {
        Self { file: Some(file), sets: Vec::new() }
    }

    pub(super) fn with_sets(self, sets: Vec<SetArgument>) -> Self {
        Self { sets, ..self }
    }

    /// Where the key or value at `path` was written.
    pub(super) fn place(&self, path: &KeyPath, part: Part) -> Place {
        // The last argument wins, as it did when they were laid over the file.
        if let Some(set) = self.sets.iter().rev().find(|set| path.starts_with(&set.path)) {
            let is_key = part == Part::Key && *path == set.path;
            return set.place(if is_key { Part::Key } else { Part::Value });
        }
        if part == Part::Key
            && let Some(set) = self.sets.iter().rev().find(|set| set.path.starts_with(path))
            && self.file.as_ref().is_none_or(|file| !has(file, path))
        {
            return set.place(Part::Key);
        }
        self.file.as_ref().map_or_else(|| Place::in_argument("experiment", "", 0, 0), |file| file.locate(path, part))
    }

    pub(super) fn rule(&self, path: &KeyPath, message: impl Into<String>, help: impl Into<String>) -> ExperimentError {
        ExperimentError::Rule {
            path: path.to_string(),
            message: message.into(),
            help: help.into(),
            at: self.place(path, Part::Value),
        }
    }
}

/// Whether the file holds the key: then its place is marked with the key's own name.
fn has(file: &Source, path: &KeyPath) -> bool {
    match path.steps().last() {
        Some(crate::yaml::Step::Key(key)) => file.key(path).marked().trim_matches(['"', '\'']) == key,
        _ => false,
    }
}
