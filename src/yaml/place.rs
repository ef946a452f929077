//! Where something stands: a path of keys, and a span of a named text that miette can draw.
use std::fmt;
use std::sync::Arc;

use miette::{MietteError, NamedSource, SourceCode, SourceSpan, SpanContents};

use super::bounds::{end_of_double_quoted, end_of_single_quoted};

/// One step from the root of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Into the value of this key.
    Key(String),
    /// Into the element with this number, from 0.
    Index(usize),
}

/// Key or value of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The last key of the path.
    Key,
    /// What stands behind it.
    Value,
}

/// A path of keys, printed as `target.in_process.kv_dtype[1]`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyPath(Vec<Step>);

impl KeyPath {
    /// The root of the document.
    pub fn root() -> Self {
        Self::default()
    }

    /// Reads `a.b[1].c`; a step of digits alone, as in `a.b.1.c`, is a number too.
    pub fn parse(text: &str) -> Self {
        let mut steps = Vec::new();
        for part in text.split('.') {
            let (key, indices) = part.split_once('[').map_or((part, ""), |(key, rest)| (key, rest));
            if !key.is_empty() {
                steps.push(key.parse().map_or_else(|_| Step::Key(key.to_owned()), Step::Index));
            }
            for index in indices.split('[').filter(|index| !index.is_empty()) {
                let digits = index.strip_suffix(']').unwrap_or(index);
                steps.push(digits.parse().map_or_else(|_| Step::Key(digits.to_owned()), Step::Index));
            }
        }
        Self(steps)
    }

    /// This path and then `key`.
    #[must_use]
    pub fn key(&self, key: &str) -> Self {
        self.step(Step::Key(key.to_owned()))
    }

    /// This path and then element `index`.
    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        self.step(Step::Index(index))
    }

    /// This path and then `step`.
    #[must_use]
    pub fn step(&self, step: Step) -> Self {
        Self(self.0.iter().cloned().chain([step]).collect())
    }

    /// The steps from the root.
    pub fn steps(&self) -> &[Step] {
        &self.0
    }

    /// Whether `self` is `other` or lies inside it.
    pub fn starts_with(&self, other: &Self) -> bool {
        self.0.starts_with(&other.0)
    }
}

impl fmt::Display for KeyPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, step) in self.0.iter().enumerate() {
            match step {
                Step::Key(key) if number > 0 => write!(f, ".{}", super::inline(key))?,
                Step::Key(key) => f.write_str(&super::inline(key))?,
                Step::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

/// Most bytes of an argument that an error shows.
const MAX_ARGUMENT: usize = 1000;

/// A span of a named text. Cheap to clone; serves miette as source and as label.
#[derive(Clone)]
pub struct Place {
    file: Arc<NamedSource<String>>,
    span: SourceSpan,
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (line, column) = self.line_column();
        write!(f, "{}:{line}:{column}", self.file.name())
    }
}

impl Place {
    pub(super) fn new(file: Arc<NamedSource<String>>, offset: usize, length: usize) -> Self {
        Self { file, span: (offset, length).into() }
    }

    /// A place in a text that is no file: an argument of the command line, of which the first line is shown.
    pub fn in_argument(name: &str, text: &str, offset: usize, length: usize) -> Self {
        let line = text.lines().next().unwrap_or("");
        let line = &line[..line.floor_char_boundary(MAX_ARGUMENT)];
        let offset = offset.min(line.len());
        Self::new(Arc::new(NamedSource::new(name, shown(line))), offset, length.min(line.len() - offset))
    }

    /// Name of the file.
    pub fn file(&self) -> &str {
        self.file.name()
    }

    /// Line and column, both from 1, the column in characters.
    pub fn line_column(&self) -> (usize, usize) {
        let text = self.file.inner();
        let before = text.get(..self.span.offset()).unwrap_or(text);
        let line = before.matches('\n').count() + 1;
        (line, before.rsplit('\n').next().map_or(0, |last| last.chars().count()) + 1)
    }

    /// What the label marks, as shown.
    pub fn marked(&self) -> &str {
        self.file.inner().get(self.span.offset()..self.span.offset() + self.span.len()).unwrap_or("")
    }
}

impl From<Place> for SourceSpan {
    fn from(place: Place) -> Self {
        place.span
    }
}

impl SourceCode for Place {
    fn read_span<'a>(
        &'a self,
        span: &SourceSpan,
        lines_before: usize,
        lines_after: usize,
    ) -> Result<Box<dyn SpanContents<'a> + 'a>, MietteError> {
        self.file.read_span(span, lines_before, lines_after)
    }
}

/// Bytes of the scalar at `offset`: a quoted one whole, a plain one to the end of its line, a bracket alone.
pub(super) fn token_length(text: &str, offset: usize) -> usize {
    let Some(rest) = text.get(offset..).filter(|rest| !rest.is_empty()) else { return 0 };
    let line = &rest[..rest.find(['\n', '\r']).unwrap_or(rest.len())];
    let bytes = line.as_bytes();
    match bytes.first() {
        None => 0,
        Some(b'"') => (end_of_double_quoted(bytes, 0) + 1).min(line.len()),
        Some(b'\'') => (end_of_single_quoted(bytes, 0) + 1).min(line.len()),
        Some(b'[' | b'{') => 1,
        Some(_) => {
            let ends = |at: usize| match bytes[at] {
                b',' | b']' | b'}' => true,
                b':' => bytes.get(at + 1).is_none_or(u8::is_ascii_whitespace),
                b'#' => bytes[at - 1].is_ascii_whitespace(),
                _ => false,
            };
            let end = (1..bytes.len()).find(|&at| ends(at)).unwrap_or(bytes.len());
            line[..end].trim_end().len()
        }
    }
}

/// Keys whose value is never printed, wherever the label of an error points.
const SECRET_KEYS: [&str; 8] =
    ["api_key", "apikey", "api-key", "password", "passwd", "secret", "token", "authorization"];

/// Whether a key names something that must not be printed.
pub(super) fn is_secret_key(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    SECRET_KEYS
        .iter()
        .any(|secret| key == *secret || key.ends_with(&format!("_{secret}")) || key.ends_with(&format!("-{secret}")))
}

/// The text as errors print it: same length in bytes, control and direction characters as `?`, what looks like a credential
/// as `*`. A file that keeps a key where it should name a variable must not spread it through an error message.
pub(super) fn shown(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let mut secret_until = None;
        let mut column = 0;
        let line_start = out.len();
        while column < line.len() {
            let rest = &line[column..];
            let letter = rest.chars().next().expect("column is inside the line");
            let word_starts = column == 0 || !is_word_byte(line.as_bytes()[column - 1]);
            if word_starts && secret_until.is_none() {
                secret_until = credential(rest).map(|(from, to)| (column + from, column + to));
            }
            let hidden = secret_until.is_some_and(|(from, to)| column >= from && column < to);
            if secret_until.is_some_and(|(_, to)| column + letter.len_utf8() >= to) {
                secret_until = None;
            }
            let unsafe_letter = (letter.is_control() && !matches!(letter, '\n' | '\r' | '\t')) || is_direction(letter);
            match (hidden, unsafe_letter) {
                (true, _) => out.extend(std::iter::repeat_n('*', letter.len_utf8())),
                (false, true) => out.extend(std::iter::repeat_n('?', letter.len_utf8())),
                (false, false) => out.push(letter),
            }
            column += letter.len_utf8();
        }
        debug_assert_eq!(out.len() - line_start, line.len());
    }
    out
}

fn is_word_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
}

/// Marks that turn the direction of text and zero-width ones that hide it.
pub(super) fn is_direction(letter: char) -> bool {
    matches!(letter, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}' | '\u{2028}' | '\u{2029}')
}

/// Range inside `rest` (which starts a word) that looks like a credential.
fn credential(rest: &str) -> Option<(usize, usize)> {
    let word = rest.bytes().take_while(|&byte| is_word_byte(byte)).count();
    let name = &rest[..word];
    if word > 8 && ["sk-", "hf_", "ghp_", "xoxb-"].iter().any(|prefix| name.starts_with(prefix)) {
        return Some((0, word));
    }
    // No key is longer, and every word is looked at once.
    if !(1..=40).contains(&word) {
        return None;
    }
    // http://user:password@host
    if let Some(url) = rest[word..].strip_prefix("://") {
        let authority = url.split(['/', ' ', '"', '\'', '\n', ',', '}']).next().unwrap_or("");
        return authority.rfind('@').map(|user| (word + 3, word + 3 + user));
    }
    let key = name.to_ascii_lowercase();
    if !is_secret_key(&key) && !key.starts_with("api_key") {
        return None;
    }
    let after = rest[word..].trim_start_matches(['"', '\'', ' ']);
    let after = after.strip_prefix([':', '='])?.trim_start_matches(['"', '\'', ' ']);
    let from = rest.len() - after.len();
    let value = after.split([',', '}', ']', '\n', '\r', '"', '\'']).next().unwrap_or("").trim_end();
    // What `api_key_env` should hold: the name of a variable.
    let is_variable = value.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_');
    (is_secret_key(&key) || !is_variable).then_some((from, from + value.len()))
}
