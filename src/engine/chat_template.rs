//! How a chat is written as one text: the Jinja template that comes with a model.
//!
//! The environment is that of `transformers`' `apply_chat_template`: blocks are trimmed, Python's string and dict
//! methods work, `raise_exception`, `strftime_now`, `bos_token`, `eos_token`, `tools`, `documents` and
//! `add_generation_prompt` are there, and `tojson` writes like Python's `json.dumps`.
//!
//! A template is a program from an untrusted file: its length, the steps and memory of a render, and the length of
//! its output are bounded. One hole is known: `minijinja` 3.1 turns a list into a string before it charges for it, so
//! a template that nests a list in itself sixty times and then writes `list ~ ""` is not stopped.
use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

use miette::Diagnostic;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Environment, Error, ErrorKind, Value, context};
use thiserror::Error as ThisError;

use super::weights::shown;
use crate::request::Message;

/// Longest template in bytes: the longest published ones are around 20 KiB.
const MOST_TEMPLATE: usize = 64 * 1024;
/// Longest text a render may add to the messages, in bytes.
const MOST_ADDED: usize = 1 << 20;
/// Steps a render may take, each also worth 64 bytes of memory (`minijinja`'s fuel), on top of 4 per byte of the chat.
const STEPS: u64 = 1_000_000;
/// Values `tojson` writes at once.
const MOST_JSON_VALUES: usize = 100_000;
const NAME: &str = "chat";

/// Why a chat template cannot be used.
#[derive(Debug, ThisError, Diagnostic)]
pub enum TemplateError {
    /// No template is that long.
    #[error("the chat template has {bytes} bytes, at most {most} are read")]
    #[diagnostic(help("the file is damaged or was converted wrongly"))]
    TooLong {
        /// Its length.
        bytes: usize,
        /// The bound.
        most: usize,
    },
    /// No Jinja, or Jinja this version cannot read.
    #[error("line {line} of the chat template: {message}")]
    #[diagnostic(help("the template uses something this version does not know, or the file is damaged"))]
    Syntax {
        /// Line, from 1.
        line: usize,
        /// What the parser said.
        message: String,
    },
    /// The template failed on this chat, or refused it.
    #[error("the chat template failed on this chat{}: {message}", line.map(|line| format!(" in line {line}")).unwrap_or_default())]
    #[diagnostic(help(
        "some templates allow only certain roles in a certain order; look at it with `inferlab model inspect`"
    ))]
    Render {
        /// Line, from 1, where it is known.
        line: Option<usize>,
        /// What went wrong, or the template's own words.
        message: String,
    },
    /// More steps, memory or text than a chat can need.
    #[error("the chat template does not come to an end: it exceeds the {what} allowed for this chat")]
    #[diagnostic(help("the template loops or was made to break readers; do not use this file"))]
    Exhausted {
        /// `steps` or `length`.
        what: &'static str,
    },
}

/// A model's own chat template, compiled.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    bos: String,
    eos: String,
}

impl ChatTemplate {
    /// Compiles a template; `bos` and `eos` are the texts it may name as `bos_token` and `eos_token`.
    ///
    /// `strftime_now` gives the day (UTC) on which the template was compiled, so that a run does not change at midnight.
    ///
    /// # Errors
    /// When the template is too long or no Jinja.
    pub fn new(template: &str, bos: Option<&str>, eos: Option<&str>) -> Result<Self, TemplateError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        Self::at(template, bos, eos, now)
    }

    /// The same with `strftime_now` at `now`, in seconds since 1970 (UTC).
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn at(template: &str, bos: Option<&str>, eos: Option<&str>, now: u64) -> Result<Self, TemplateError> {
        if template.len() > MOST_TEMPLATE {
            return Err(TemplateError::TooLong { bytes: template.len(), most: MOST_TEMPLATE });
        }
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.expect("the default delimiters differ from one another"));
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_filter("tojson", tojson);
        environment.add_function("raise_exception", |message: String| -> Result<Value, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, format!("it says: {message}")))
        });
        environment.add_function("strftime_now", move |format: String| strftime(now, &format));
        environment
            .add_template_owned(NAME, template.to_owned())
            .map_err(|error| TemplateError::Syntax { line: error.line().unwrap_or(1), message: message(&error) })?;
        Ok(Self { environment, bos: bos.unwrap_or_default().to_owned(), eos: eos.unwrap_or_default().to_owned() })
    }

    /// Writes a chat as one text; `add_generation_prompt` ends it with the opening of the assistant's turn.
    ///
    /// # Errors
    /// When the template refuses the chat, fails on it, or exceeds its bounds.
    pub fn render(&self, messages: &[Message], add_generation_prompt: bool) -> Result<String, TemplateError> {
        let chat: usize = messages.iter().map(|message| message.role.len() + message.content.len()).sum();
        // Cloning shares the compiled template; only the budget is this render's own.
        let mut environment = self.environment.clone();
        environment.set_fuel(Some(STEPS.saturating_add(4 * chat as u64)));
        let template = environment.get_template(NAME).map_err(|error| failed(&error))?;
        let messages: Vec<Value> = messages
            .iter()
            .map(|message| context! { role => message.role.as_str(), content => message.content.as_str() })
            .collect();
        let context = context! {
            messages => messages,
            add_generation_prompt => add_generation_prompt,
            bos_token => self.bos.as_str(),
            eos_token => self.eos.as_str(),
            tools => (),
            documents => (),
        };
        // A template may repeat a message or two (a summary, a system prompt), not more.
        let mut out = Bounded { text: Vec::new(), left: MOST_ADDED.saturating_add(4 * chat), full: false };
        let done = template.render_captured_to(context, &mut out).map(drop);
        match done {
            _ if out.full => Err(TemplateError::Exhausted { what: "length" }),
            Ok(()) => Ok(String::from_utf8(out.text).expect("a template writes whole strings")),
            Err(error) => Err(failed(&error)),
        }
    }
}

fn failed(error: &Error) -> TemplateError {
    match error.kind() {
        ErrorKind::OutOfFuel => TemplateError::Exhausted { what: "steps" },
        _ => TemplateError::Render { line: error.line(), message: message(error) },
    }
}

/// What the engine said, without the line, which stands beside it.
fn message(error: &Error) -> String {
    match error.detail() {
        Some(detail) => format!("{}: {}", error.kind(), shown(detail.as_bytes())),
        None => error.kind().to_string(),
    }
}

/// Text that grows to a bound.
struct Bounded {
    text: Vec<u8>,
    left: usize,
    full: bool,
}

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.left.checked_sub(bytes.len()) {
            Some(left) => self.left = left,
            None => {
                self.full = true;
                return Err(io::Error::other("the output is too long"));
            }
        }
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Python's `json.dumps(value, ensure_ascii=False, indent=indent)`, which `transformers` puts in Jinja's place.
///
/// `minijinja` writes the same, except that it escapes `<`, `>`, `&` and `'` for HTML.
fn tojson(value: &Value, options: Kwargs) -> Result<Value, Error> {
    options.get::<Option<bool>>("ensure_ascii")?;
    // One list may hold another twice, and that one a third: the text grows as a power of the template's length.
    if count_values(value, 0, MOST_JSON_VALUES).is_none() {
        return Err(Error::new(ErrorKind::OutOfFuel, "a value is too large for tojson"));
    }
    let escaped = minijinja::filters::tojson(value, None, options)?;
    let mut rest = escaped.as_str().unwrap_or_default();
    let mut out = String::with_capacity(rest.len());
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        let (escape, plain) = match rest.get(at..at + 6) {
            Some("\\u003c") => (6, "<"),
            Some("\\u003e") => (6, ">"),
            Some("\\u0026") => (6, "&"),
            Some("\\u0027") => (6, "'"),
            _ => (2, rest.get(at..at + 2).unwrap_or_default()),
        };
        out.push_str(plain);
        rest = rest.get(at + escape..).unwrap_or_default();
    }
    out.push_str(rest);
    Ok(Value::from_safe_string(out))
}

/// Values in a value, itself included; `None` beyond `most` or 64 levels.
fn count_values(value: &Value, depth: usize, most: usize) -> Option<usize> {
    let mut count = 1;
    if matches!(value.kind(), ValueKind::Seq | ValueKind::Map | ValueKind::Iterable) {
        for key in value.try_iter().ok()? {
            let inner = if value.kind() == ValueKind::Map { value.get_item(&key).ok()? } else { key };
            let left = most.checked_sub(count).filter(|_| depth < 64)?;
            count += count_values(&inner, depth + 1, left)?;
        }
    }
    (count <= most).then_some(count)
}

/// The date codes that templates use, of Python's `strftime` in the C locale: `%Y %y %m %d %e %B %b %A %a %H %M %S %j %%`.
/// Others stay as they are.
fn strftime(now: u64, format: &str) -> String {
    const MONTHS: [&str; 12] = [
        "January",
        "February",
        "March",
        "April",
        "May",
        "June",
        "July",
        "August",
        "September",
        "October",
        "November",
        "December",
    ];
    const DAYS: [&str; 7] = ["Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"];
    let (days, second) = (now / 86_400, now % 86_400);
    let (year, month, day) = civil(days);
    let month_name = MONTHS[(month - 1) as usize];
    let day_name = DAYS[(days % 7) as usize]; // 1970 began on a Thursday
    let mut out = String::new();
    let mut characters = format.chars();
    while let Some(character) = characters.next() {
        if character != '%' {
            out.push(character);
            continue;
        }
        match characters.next() {
            Some('Y') => out.push_str(&year.to_string()),
            Some('y') => out.push_str(&format!("{:02}", year % 100)),
            Some('m') => out.push_str(&format!("{month:02}")),
            Some('d') => out.push_str(&format!("{day:02}")),
            Some('e') => out.push_str(&format!("{day:2}")),
            Some('B') => out.push_str(month_name),
            Some('b') => out.push_str(&month_name[..3]),
            Some('A') => out.push_str(day_name),
            Some('a') => out.push_str(&day_name[..3]),
            Some('H') => out.push_str(&format!("{:02}", second / 3600)),
            Some('M') => out.push_str(&format!("{:02}", second / 60 % 60)),
            Some('S') => out.push_str(&format!("{:02}", second % 60)),
            Some('j') => out.push_str(&format!("{:03}", days - days_before_year(year) + 1)),
            Some('%') => out.push('%'),
            Some(other) => out.extend(['%', other]),
            None => out.push('%'),
        }
    }
    out
}

/// Days from 1970-01-01 to the first day of `year`.
fn days_before_year(year: u64) -> u64 {
    let before = year - 1;
    let leap_days = |years: u64| years / 4 - years / 100 + years / 400;
    (year - 1970) * 365 + leap_days(before) - leap_days(1969)
}

/// Year, month and day of a day counted from 1970-01-01 (H. Hinnant, "chrono-compatible low-level date algorithms").
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}
