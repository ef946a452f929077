//! The API key: readable in one place, `***` everywhere else.
use std::borrow::Cow;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};

use super::error::EndpointError;

/// An API key. It is never serialised, prints as `***`, and can be cut out of foreign text.
#[derive(Clone)]
pub struct Secret {
    value: String,
    /// The key as it may come back from a server: plain, base64, percent-encoded. Longest first.
    forms: Vec<String>,
}

/// Shorter keys are ordinary words (`EMPTY`, `test`) and would punch holes into a model's answer.
const DISTINCTIVE_LEN: usize = 8;

/// No key is longer.
const MAX_FILE_BYTES: u64 = 64 << 10;

impl Secret {
    /// Takes a key.
    pub fn new(value: impl Into<String>) -> Self {
        let value = value.into();
        let percent = value.bytes().map(|b| match b {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(b).to_string(),
            _ => format!("%{b:02X}"),
        });
        // JSON may escape the slash as well as what it must.
        let quoted = serde_json::Value::String(value.clone()).to_string();
        let escaped = quoted[1..quoted.len() - 1].to_owned();
        let mut forms = vec![value.clone(), percent.collect::<String>(), escaped.replace('/', "\\/"), escaped];
        for engine in [&STANDARD, &STANDARD_NO_PAD, &URL_SAFE, &URL_SAFE_NO_PAD] {
            forms.push(engine.encode(&value));
        }
        forms.retain(|form| !form.is_empty());
        forms.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        forms.dedup();
        Self { value, forms }
    }

    /// Reads the key from the environment variable `variable`; blanks around it are dropped.
    pub fn from_env(variable: &str) -> Result<Self, EndpointError> {
        match std::env::var(variable).ok().map(|v| v.trim().to_owned()).filter(|v| !v.is_empty()) {
            Some(value) => Ok(Self::new(value)),
            None => Err(EndpointError::MissingKey { variable: variable.to_owned() }),
        }
    }

    /// Reads the key from a file that holds nothing else; blanks around it are dropped.
    pub fn from_file(path: &str) -> Result<Self, EndpointError> {
        let failed = |cause: String| EndpointError::KeyFile { path: path.to_owned(), cause };
        let mut text = String::new();
        let file = std::fs::File::open(path).map_err(|error| failed(error.to_string()))?;
        std::io::Read::read_to_string(&mut std::io::Read::take(file, MAX_FILE_BYTES), &mut text)
            .map_err(|error| failed(error.to_string()))?;
        match text.trim() {
            "" => Err(failed("it is empty".to_owned())),
            key => Ok(Self::new(key)),
        }
    }

    /// The key itself, for the one header that carries it.
    pub(super) fn expose(&self) -> &str {
        &self.value
    }

    /// `text` without the key in any of its forms.
    pub fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut out = Cow::Borrowed(text);
        for form in &self.forms {
            if out.contains(form.as_str()) {
                out = Cow::Owned(out.replace(form.as_str(), "***"));
            }
        }
        out
    }

    /// Whether the key is long enough to be looked for in a model's answer as well.
    pub(super) fn is_distinctive(&self) -> bool {
        self.value.len() >= DISTINCTIVE_LEN
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_prints_as_stars_in_every_format() {
        let key = Secret::new("sk-made-up/0001=x");
        assert_eq!(format!("{key} {key:?} {:?}", Some(&key)), "*** *** Some(***)");
    }

    #[test]
    fn a_key_is_cut_out_in_plain_base64_and_url_form() {
        let key = Secret::new("sk-made-up/0001=x");
        // Encoded by coreutils `base64` and by hand, not by our own code.
        let said = "a sk-made-up/0001=x b c2stbWFkZS11cC8wMDAxPXg= c sk-made-up%2F0001%3Dx d c2stbWFkZS11cC8wMDAxPXg e";
        assert_eq!(key.redact(said), "a *** b *** c *** d *** e");
        assert_eq!(key.redact(r#"{"you":"sk-made-up\/0001=x"}"#), r#"{"you":"***"}"#);
        assert!(matches!(key.redact("nothing here"), Cow::Borrowed(_)));
    }

    #[test]
    fn a_missing_variable_is_named_in_the_error() {
        let error = Secret::from_env("INFERLAB_TEST_SURELY_UNSET_KEY").unwrap_err();
        assert!(error.to_string().contains("INFERLAB_TEST_SURELY_UNSET_KEY"), "{error}");
    }
}
