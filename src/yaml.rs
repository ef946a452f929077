//! The only user of serde_yaml: bounded parsing with places in errors.
//!
//! A [`Source`] is a text that passed every check that needs no types: at most 1 MiB, UTF-8, shallow, one document, no key
//! twice, no merge keys, no tags, no empty values. [`Source::parse`] then reads it into a type. Any later stage can ask where a
//! key stands ([`Source::key`], [`Source::value`]), so a rule that is checked long after parsing still points at the file.
mod axis;
mod bounds;
mod error;
mod explain;
mod locate;
mod place;
mod value;
mod walk;

use std::fmt;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use miette::NamedSource;
use serde::de::DeserializeOwned;

pub use axis::Axis;
pub use bounds::{MAX_BYTES, MAX_DEPTH, MAX_LINE, MAX_VALUES};
pub use error::YamlError;
pub(crate) use explain::{inline, nearest, printable, quoted};
pub use place::{KeyPath, Part, Place, Step};
pub use value::{AutoOr, Finite, HumanDuration};

/// A checked YAML text with its name.
#[derive(Clone)]
pub struct Source {
    text: Arc<str>,
    shown: Arc<NamedSource<String>>,
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The text may hold what must not reach a log.
        f.debug_struct("Source").field("name", &self.shown.name()).field("bytes", &self.text.len()).finish()
    }
}

impl Source {
    /// Reads at most [`MAX_BYTES`] from `path` and checks them.
    ///
    /// # Errors
    /// Everything of [`Source::new`], and a file that cannot be read.
    pub fn read(path: &Path) -> Result<Self, YamlError> {
        let name = inline(&path.to_string_lossy());
        let failed = |cause: std::io::Error| YamlError::Read { name: name.clone(), cause };
        let file = std::fs::File::open(path).map_err(failed)?;
        let mut bytes = Vec::new();
        file.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
        Self::new(&name, &bytes)
    }

    /// Checks `bytes` in the order of cost: size, encoding, brackets, then one walk over the document.
    ///
    /// # Errors
    /// Names the first thing that is wrong, with its place.
    pub fn new(name: &str, bytes: &[u8]) -> Result<Self, YamlError> {
        if bytes.len() > MAX_BYTES {
            return Err(YamlError::TooLarge { name: inline(name) });
        }
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        if let Some(line) = bounds::too_long(bytes) {
            return Err(YamlError::LongLine { name: inline(name), line });
        }
        let text = match std::str::from_utf8(bytes) {
            Ok(text) => text,
            Err(wrong) => {
                let source = Self::unchecked(name, &String::from_utf8_lossy(bytes));
                return Err(YamlError::NotUtf8 { at: source.at(wrong.valid_up_to(), 1) });
            }
        };
        let source = Self::unchecked(name, text);
        // libyaml refuses them without a place.
        let is_control = |letter: char| letter.is_control() && !matches!(letter, '\t' | '\n' | '\r' | '\u{85}');
        if let Some((offset, found)) = text.char_indices().find(|&(_, letter)| is_control(letter)) {
            return Err(YamlError::Control { found, at: source.at(offset, found.len_utf8()) });
        }
        if let Some(offset) = bounds::too_nested(text) {
            return Err(YamlError::TooDeep { at: source.at(offset, 1) });
        }
        walk::check(&source)?;
        Ok(source)
    }

    /// Reads the text into a type: enums as one key, every error with its path and place.
    ///
    /// # Errors
    /// The first key or value that does not fit `T`.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, YamlError> {
        serde_yaml::with::singleton_map_recursive::deserialize(serde_yaml::Deserializer::from_str(&self.text))
            .map_err(|error| explain::explain(self, &error))
    }

    /// Where the key at `path` stands; the deepest part of the path that exists when it does not.
    pub fn key(&self, path: &KeyPath) -> Place {
        self.locate(path, Part::Key)
    }

    /// Where the value at `path` stands; the deepest part of the path that exists when it does not.
    pub fn value(&self, path: &KeyPath) -> Place {
        self.locate(path, Part::Value)
    }

    /// Key or value, as `part` says.
    pub fn locate(&self, path: &KeyPath, part: Part) -> Place {
        let offset = self.offset(locate::locate(&self.text, path.steps(), part));
        self.at(offset, place::token_length(&self.text, offset))
    }

    /// The text after the byte order mark.
    pub fn text(&self) -> &str {
        &self.text
    }

    fn unchecked(name: &str, text: &str) -> Self {
        Self { text: text.into(), shown: Arc::new(NamedSource::new(name, place::shown(text))) }
    }

    fn at(&self, offset: usize, length: usize) -> Place {
        Place::new(Arc::clone(&self.shown), offset, length)
    }

    /// A mark of the parser counts bytes; at the end of a file it may lie behind the last one.
    fn offset(&self, mark: usize) -> usize {
        self.text.floor_char_boundary(mark)
    }

    fn place_of(&self, error: &serde_yaml::Error) -> Place {
        let offset = self.offset(error.location().map_or(0, |location| location.index()));
        self.at(offset, place::token_length(&self.text, offset))
    }
}

/// Declares a closed list of words as an enum: serde reads and writes the words, `ALL` lists them, `word` gives one back.
macro_rules! words {
    ($(#[$meta:meta])* pub enum $name:ident { $($(#[$attr:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
        pub enum $name { $($(#[$attr])* #[serde(rename = $word)] $variant,)* }

        impl $name {
            /// Every word, in the order of the contract.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The word as it stands in an experiment file.
            pub fn word(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }
        }
    };
}
pub(crate) use words;

#[cfg(test)]
mod tests;
