//! What can be wrong with an experiment.
use miette::Diagnostic;
use thiserror::Error;

use crate::yaml::{Place, YamlError};

/// An experiment that cannot run: the place in the file or the argument, and the way out.
#[derive(Debug, Error, Diagnostic)]
pub enum ExperimentError {
    /// The file does not say what an experiment is.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Yaml(#[from] YamlError),
    /// A value that is well written and cannot be meant.
    #[error("{path}: {message}")]
    Rule {
        /// Path of the value.
        path: String,
        /// What is wrong.
        message: String,
        /// The way out.
        #[help]
        help: String,
        /// The value.
        #[source_code]
        #[label("this value")]
        at: Place,
    },
    /// A key whose feature comes in a later version.
    #[error("{path}: {what} is not in this version")]
    Unsupported {
        /// Path of the key.
        path: String,
        /// The feature.
        what: String,
        /// What to write instead.
        #[help]
        help: String,
        /// The key or value.
        #[source_code]
        #[label("not in this version")]
        at: Place,
    },
    /// `--set` that is no KEY=VALUE or leads nowhere.
    #[error("--set: {message}")]
    Set {
        /// What is wrong.
        message: String,
        /// The way out.
        #[help]
        help: String,
        /// Where in the argument.
        #[source_code]
        #[label("here")]
        at: Place,
    },
    /// `--only` that names nothing of the plan.
    #[error("--only: there is no arm, workload or cell `{word}`")]
    Only {
        /// The word.
        word: String,
        /// Nearest name and all names.
        #[help]
        help: String,
    },
}

impl ExperimentError {
    /// Where the error points, if it has a place.
    pub fn place(&self) -> Option<&Place> {
        match self {
            Self::Yaml(error) => error.place(),
            Self::Rule { at, .. } | Self::Unsupported { at, .. } | Self::Set { at, .. } => Some(at),
            Self::Only { .. } => None,
        }
    }

    /// Path of the key the error is about, where it is about one.
    pub fn path(&self) -> Option<&str> {
        match self {
            Self::Yaml(error) => error.path(),
            Self::Rule { path, .. } | Self::Unsupported { path, .. } => Some(path),
            Self::Set { .. } | Self::Only { .. } => None,
        }
    }
}
