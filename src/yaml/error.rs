//! What can be wrong with a YAML file before anybody asks what it means.
use miette::{Diagnostic, SourceSpan};
use thiserror::Error;

use super::bounds::{MAX_BYTES, MAX_DEPTH, MAX_LINE, MAX_VALUES};
use super::place::{KeyPath, Part, Place};

/// A file that cannot be read as the type that was asked for: the place, and the way out.
#[derive(Debug, Error, Diagnostic)]
pub enum YamlError {
    /// The file could not be read at all.
    #[error("cannot read `{name}`: {cause}")]
    #[diagnostic(help("give the path of a YAML file, as `suites/quickstart.yaml`"))]
    Read {
        /// The path as given.
        name: String,
        /// What the system said.
        #[source]
        cause: std::io::Error,
    },
    /// Over 1 MiB.
    #[error("`{name}` is larger than {} KiB, the most an experiment file may be", MAX_BYTES / 1024)]
    #[diagnostic(help("is this the right file? Data belongs in files that the experiment names"))]
    TooLarge {
        /// The file.
        name: String,
    },
    /// A line too long to draw.
    #[error("line {line} of `{name}` is longer than {MAX_LINE} bytes")]
    #[diagnostic(help("write a long list one element a line, as `- 128`"))]
    LongLine {
        /// The file.
        name: String,
        /// Number of the line, from 1.
        line: usize,
    },
    /// Bytes that are no UTF-8.
    #[error("the file is not UTF-8")]
    #[diagnostic(help("save it as UTF-8; a byte order mark is allowed"))]
    NotUtf8 {
        /// The first such byte.
        #[source_code]
        #[label("not UTF-8 from here")]
        at: Place,
    },
    /// A control character.
    #[error("the file holds a control character (U+{:04X})", u32::from(*found))]
    #[diagnostic(help("delete it; inside double quotes write it as an escape"))]
    Control {
        /// The character.
        found: char,
        /// Where it stands.
        #[source_code]
        #[label("shown as `?`")]
        at: Place,
    },
    /// More levels of brackets or blocks than any experiment needs.
    #[error("nested deeper than {MAX_DEPTH} levels, or with thousands of brackets")]
    #[diagnostic(help("no key of an experiment needs that; a bracket may be left open"))]
    TooDeep {
        /// The bracket or block that is one too many.
        #[source_code]
        #[label("one too many")]
        at: Place,
    },
    /// More keys and values than any experiment needs, aliases followed.
    #[error("the file holds more than {MAX_VALUES} values, aliases followed")]
    #[diagnostic(help("write the list out, or name a data file"))]
    TooMany {
        /// Where counting stopped.
        #[source_code]
        #[label("counting stopped here")]
        at: Place,
    },
    /// Nothing, or only comments.
    #[error("the file is empty: there is no experiment in it")]
    #[diagnostic(help(
        "start from `suites/quickstart.yaml`; schema, name, question, seed, target and workloads are required"
    ))]
    Empty {
        /// The start of the file.
        #[source_code]
        #[label("nothing here")]
        at: Place,
    },
    /// The document is a list or a scalar.
    #[error("the file holds a list or a single value, not keys")]
    #[diagnostic(help("write `key: value` lines, as in `suites/quickstart.yaml`"))]
    NotAMap {
        /// Where it starts.
        #[source_code]
        #[label("not a key")]
        at: Place,
    },
    /// No YAML.
    #[error("not YAML: {message}")]
    #[diagnostic(help("check indentation, quotes and brackets at the place shown"))]
    Syntax {
        /// What the parser said.
        message: String,
        /// Where it gave up.
        #[source_code]
        #[label("here")]
        at: Place,
    },
    /// More than one document.
    #[error("the file holds more than one document")]
    #[diagnostic(help("one file is one experiment: delete this `---` and what follows, or split the file"))]
    SecondDocument {
        /// The second `---`.
        #[source_code]
        #[label("a second document starts here")]
        at: Place,
    },
    /// A key stands twice in one map.
    #[error("`{path}` stands twice")]
    #[diagnostic(help("YAML readers differ in which one wins; keep one"))]
    DuplicateKey {
        /// Path of the key.
        path: String,
        /// The key.
        key: String,
        /// The second.
        #[source_code]
        #[label("and again here")]
        at: Place,
        /// The first.
        #[label("`{key}` stands here")]
        first: SourceSpan,
    },
    /// `<<`.
    #[error("merge keys (`<<`) are not read")]
    #[diagnostic(help("write the keys out; variants of one target are `arms` with an `override`"))]
    MergeKey {
        /// The key.
        #[source_code]
        #[label("this key")]
        at: Place,
    },
    /// `!tag value`.
    #[error("YAML tags are not read")]
    #[diagnostic(help("write a variant as one key: `load: {{closed: {{concurrency: 1}}}}`"))]
    Tag {
        /// The tagged value.
        #[source_code]
        #[label("this value has a tag")]
        at: Place,
    },
    /// A key without a value, or `null`.
    #[error("`{path}` has no value")]
    #[diagnostic(help("give it a value, or delete the key to get the default"))]
    NoValue {
        /// Path of the key.
        path: String,
        /// The key.
        #[source_code]
        #[label("nothing behind this key")]
        at: Place,
    },
    /// A key that does not exist.
    #[error("unknown key `{path}`")]
    UnknownKey {
        /// Its path.
        path: String,
        /// Nearest spelling and all keys allowed there.
        #[help]
        help: String,
        /// The key.
        #[source_code]
        #[label("no such key")]
        at: Place,
    },
    /// A word outside a closed list.
    #[error("{path}: unknown word `{found}`")]
    UnknownWord {
        /// Path of the value.
        path: String,
        /// The word.
        found: String,
        /// Nearest spelling and all words allowed there.
        #[help]
        help: String,
        /// The word.
        #[source_code]
        #[label("no such word")]
        at: Place,
    },
    /// A required key is absent.
    #[error("`{path}` is missing")]
    #[diagnostic(help("this key is required"))]
    MissingKey {
        /// Path of the key.
        path: String,
        /// The map that lacks it.
        #[source_code]
        #[label("this map lacks it")]
        at: Place,
    },
    /// A value that does not fit its key.
    #[error("{path}: {message}")]
    BadValue {
        /// Path of the value.
        path: String,
        /// What was found and what was wanted.
        message: String,
        /// How to write it.
        #[help]
        help: String,
        /// The value.
        #[source_code]
        #[label("this value")]
        at: Place,
    },
}

impl YamlError {
    /// Where the error points, if it has a place.
    pub fn place(&self) -> Option<&Place> {
        match self {
            Self::Read { .. } | Self::TooLarge { .. } | Self::LongLine { .. } => None,
            Self::NotUtf8 { at }
            | Self::Control { at, .. }
            | Self::TooDeep { at }
            | Self::TooMany { at }
            | Self::Empty { at }
            | Self::NotAMap { at }
            | Self::Syntax { at, .. }
            | Self::SecondDocument { at }
            | Self::DuplicateKey { at, .. }
            | Self::MergeKey { at }
            | Self::Tag { at }
            | Self::NoValue { at, .. }
            | Self::UnknownKey { at, .. }
            | Self::UnknownWord { at, .. }
            | Self::MissingKey { at, .. }
            | Self::BadValue { at, .. } => Some(at),
        }
    }

    /// Path of the key the error is about, where it is about one.
    pub fn path(&self) -> Option<&str> {
        match self {
            Self::DuplicateKey { path, .. }
            | Self::NoValue { path, .. }
            | Self::UnknownKey { path, .. }
            | Self::UnknownWord { path, .. }
            | Self::MissingKey { path, .. }
            | Self::BadValue { path, .. } => Some(path),
            _ => None,
        }
    }

    /// The same error with its place asked anew: for a text that was made from another one.
    #[must_use]
    pub(crate) fn moved(mut self, place: impl FnOnce(&KeyPath, Part) -> Place) -> Self {
        let path = KeyPath::parse(self.path().unwrap_or(""));
        match &mut self {
            Self::UnknownKey { at, .. } => *at = place(&path, Part::Key),
            Self::NoValue { at, .. }
            | Self::MissingKey { at, .. }
            | Self::UnknownWord { at, .. }
            | Self::BadValue { at, .. } => *at = place(&path, Part::Value),
            _ => {}
        }
        self
    }
}
