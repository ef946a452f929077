//! From an error of serde_yaml to one that names key, place and way out.
use super::place::{KeyPath, is_direction, is_secret_key};
use super::{Source, YamlError};

/// An error of the first walk, which asks for no type: what the parser itself could not read.
pub(super) fn syntax(source: &Source, error: &serde_yaml::Error) -> YamlError {
    let text = error.to_string();
    // serde_yaml repeats the place at the end, and once more for what it was reading.
    let message = text.split(" at line ").next().unwrap_or(&text);
    let message = message.split(" at position ").next().unwrap_or(message);
    let message = message.split_once(": ").filter(|(path, _)| is_path(path)).map_or(message, |(_, message)| message);
    YamlError::Syntax { message: inline(message), at: source.place_of(error) }
}

/// Reads serde's fixed phrases; whatever is not one of them keeps its own words.
pub(super) fn explain(source: &Source, error: &serde_yaml::Error) -> YamlError {
    let at = source.place_of(error);
    let text = error.to_string();
    let text = match error.location() {
        Some(place) => {
            text.strip_suffix(&format!(" at line {} column {}", place.line(), place.column())).unwrap_or(&text)
        }
        None => &text,
    };
    let (path, message) = match text.split_once(": ") {
        Some((path, message)) if is_path(path) => (KeyPath::parse(path), message),
        _ => (KeyPath::root(), text),
    };
    if let Some((found, expected)) = phrase(message, "unknown field `") {
        return YamlError::UnknownKey {
            path: path.key(found).to_string(),
            help: unknown_help(found, &allowed(expected), "key"),
            at,
        };
    }
    if let Some((found, expected)) = phrase(message, "unknown variant `") {
        let help = unknown_help(found, &allowed(expected), "word");
        return YamlError::UnknownWord { path: path_or_file(&path), found: inline(found), help, at };
    }
    if let Some(key) = message.strip_prefix("missing field `").and_then(|rest| rest.strip_suffix('`')) {
        return YamlError::MissingKey { path: path.key(key).to_string(), at };
    }
    let written = at.marked().to_owned();
    let help = value_help(&written, message);
    let message = if let Some(rest) = message.strip_prefix("invalid type: unit variant, expected ") {
        format!("`{}` stands alone here, expected {rest}", inline(&written))
    } else {
        inline(message)
    };
    YamlError::BadValue { path: path_or_file(&path), message, help, at }
}

fn path_or_file(path: &KeyPath) -> String {
    let path = path.to_string();
    if path.is_empty() { "the file".to_owned() } else { path }
}

/// Paths that serde_yaml writes in front of a message hold no spaces; its messages always do.
fn is_path(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b'[' | b']' | b'?' | b'\\'))
}

/// Splits "START FOUND`, expected REST"; `FOUND` may hold anything, also quotes.
fn phrase<'m>(message: &'m str, start: &str) -> Option<(&'m str, &'m str)> {
    let rest = message.strip_prefix(start)?;
    rest.rsplit_once("`, expected ").or_else(|| rest.rsplit_once("`, there are no ").map(|(found, _)| (found, "")))
}

/// The names between backticks.
fn allowed(expected: &str) -> Vec<&str> {
    expected.split('`').skip(1).step_by(2).collect()
}

fn unknown_help(found: &str, allowed: &[&str], what: &str) -> String {
    let hint = if what == "key" && is_secret_key(found) {
        "a key is never written in the file: `api_key_env` names the environment variable that holds it. ".to_owned()
    } else {
        nearest(found, allowed).map_or(String::new(), |near| format!("did you mean `{near}`? "))
    };
    match allowed {
        [] => format!("{hint}no {what} is allowed here"),
        _ => format!("{hint}allowed here: {}", quoted(allowed)),
    }
}

/// The allowed spelling nearest to `found`, if any is near.
pub(crate) fn nearest<'a>(found: &str, allowed: &[&'a str]) -> Option<&'a str> {
    // The distance is quadratic in the length, and a name of a thousand letters is near to nothing.
    let short: String = found.chars().take(64).collect::<String>().to_lowercase().replace('-', "_");
    let distance = |word: &str| strsim::osa_distance(&short, &word.to_lowercase().replace('-', "_"));
    let near = allowed.iter().min_by_key(|word| distance(word))?;
    let limit = (near.chars().count().max(short.chars().count()) / 3).clamp(1, 4);
    (distance(near) <= limit).then_some(*near)
}

/// `a`, `b`, `c`.
pub(crate) fn quoted(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{}`", inline(name))).collect::<Vec<_>>().join(", ")
}

/// Text of a file as a message may print it: [`printable`], at most 120 characters.
pub(crate) fn inline(text: &str) -> String {
    match text.char_indices().nth(120) {
        Some((end, _)) => printable(&text[..end]) + "…",
        None => printable(text),
    }
}

/// One line without control and direction characters.
pub(crate) fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter.is_control() || is_direction(letter) {
            out.extend(letter.escape_default());
        } else {
            out.push(letter);
        }
    }
    out
}

/// How a value of the wrong kind should have been written, judged by how it stands in the file.
fn value_help(written: &str, message: &str) -> String {
    let expected = message.rsplit_once("expected ").map_or("", |(_, expected)| expected);
    let wants_whole = matches!(expected, "u8" | "u16" | "u32" | "u64" | "usize")
        || expected.contains("whole number")
        || expected.contains("a count");
    let wants_number = wants_whole || matches!(expected, "f64" | "f32") || expected.contains("number");
    let bare = written.trim_matches(['"', '\'']);
    let is_quoted = written.starts_with(['"', '\'']);
    if is_quoted && expected.contains("bool") && matches!(bare, "true" | "false") {
        return format!("remove the quotes: {bare}");
    }
    if expected.contains("bool") {
        return "write true or false".to_owned();
    }
    if wants_number && is_quoted && bare.parse::<f64>().is_ok() {
        return format!("remove the quotes: {bare}");
    }
    if wants_number && bare.contains('_') && bare.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'_' | b'.')) {
        return format!("numbers are written without `_`: {}", bare.replace('_', ""));
    }
    if wants_number && bare.len() > 1 && bare.starts_with('0') && bare.bytes().all(|b| b.is_ascii_digit()) {
        let plain = bare.trim_start_matches('0');
        let plain = if plain.is_empty() { "0" } else { plain };
        return format!(
            "a leading 0 means octal to some readers and decimal to others: write {plain}, or 0o{plain} for octal"
        );
    }
    if wants_number && bare.contains(':') {
        return "some readers take this for base 60; write a plain number".to_owned();
    }
    if wants_whole
        && bare.bytes().any(|b| !b.is_ascii_digit())
        && let Ok(number) = bare.parse::<f64>()
    {
        return match number {
            n if n.fract() == 0.0 && (0.0..9e15).contains(&n) => format!("write it as a whole number: {n:.0}"),
            n if n < 0.0 => "it must not be negative".to_owned(),
            _ => "write a whole number".to_owned(),
        };
    }
    let most = match expected {
        "u8" => Some(u64::from(u8::MAX)),
        "u16" => Some(u64::from(u16::MAX)),
        "u32" => Some(u64::from(u32::MAX)),
        "u64" | "usize" => Some(u64::MAX),
        _ => None,
    };
    if let Some(most) = most.filter(|_| !bare.is_empty() && bare.bytes().all(|b| b.is_ascii_digit())) {
        return format!("write a whole number of at most {most}");
    }
    if message.starts_with("invalid type: unit variant") {
        return format!("write it as one key with its settings: `{}: {{...}}`", inline(bare));
    }
    if message.starts_with("invalid length") || message.ends_with("map with a single key") {
        return "exactly one key is allowed here".to_owned();
    }
    match expected {
        "" => "delete or correct it".to_owned(),
        _ if wants_number && !expected.contains(' ') => "write a plain number".to_owned(),
        _ => format!("write {}", inline(expected)),
    }
}
