//! Foreign text made inert for terminal, Markdown, HTML, SVG, CSV and file names.
//!
//! Foreign is whatever this program did not write: model text, model ids, error bodies, GPU names, arm names, the question.
//! The raw text stays in the log; what is printed is for a reader and cannot act.
use std::borrow::Cow;
use std::fmt::Write as _;

use sha2::{Digest, Sha256};

/// Characters that act instead of being read: C0, DEL, C1, bidi controls, invisible format characters, line separators.
///
/// Joiners (U+200C, U+200D) stay: scripts and emoji are built with them and they move nothing.
pub fn is_control(c: char) -> bool {
    matches!(c,
        '\u{0}'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}' | '\u{200e}' | '\u{200f}'
        | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{fffe}' | '\u{ffff}'
        | '\u{e0000}'..='\u{e007f}')
}

fn push_visible(out: &mut String, c: char) {
    let written = match c {
        '\n' => write!(out, "\\n"),
        '\t' => write!(out, "\\t"),
        c if (c as u32) < 0x100 => write!(out, "\\x{:02x}", c as u32),
        c => write!(out, "\\u{{{:x}}}", c as u32),
    };
    written.expect("writing to a String cannot fail");
}

fn map_controls(text: &str, acts: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.chars().any(&acts) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if acts(c) { push_visible(&mut out, c) } else { out.push(c) }
    }
    Cow::Owned(out)
}

/// Text for a terminal, several lines allowed: every control but LF and TAB is shown, ESC as `\x1b`, U+202E as `\u{202e}`.
pub fn terminal(text: &str) -> Cow<'_, str> {
    map_controls(text, |c| is_control(c) && c != '\n' && c != '\t')
}

/// Text for one line of a terminal, a table cell or a label: as [`terminal`], with LF shown as `\n` and TAB as `\t`.
pub fn terminal_line(text: &str) -> Cow<'_, str> {
    map_controls(text, is_control)
}

/// At most `limit` characters; what was cut is counted: `abc… (+997 characters)`.
pub fn clip(text: &str, limit: usize) -> Cow<'_, str> {
    match text.char_indices().nth(limit) {
        None => Cow::Borrowed(text),
        Some((end, _)) => Cow::Owned(format!("{}… (+{} characters)", &text[..end], text[end..].chars().count())),
    }
}

/// Text for HTML, as content or inside a quoted attribute.
pub fn html(text: &str) -> Cow<'_, str> {
    let line = terminal(text);
    if !line.contains(['&', '<', '>', '"', '\'']) {
        return line;
    }
    let mut out = String::with_capacity(line.len() + 16);
    for c in line.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// Text for SVG or other XML. What XML forbids (C0, U+FFFE, U+FFFF) is shown as an escape, so the file always parses.
pub fn svg(text: &str) -> Cow<'_, str> {
    html(terminal_line(text).as_ref()).into_owned().into()
}

/// A text cell of a CSV file: no control, and no spreadsheet takes it for a formula.
///
/// `'` goes before text whose first character, spaces aside, is `= + - @`, one of their full-width forms, TAB or CR. Numbers are
/// not text: never pass a numeric column through here.
pub fn csv_text(text: &str) -> Cow<'_, str> {
    let formula = text.starts_with(['\t', '\r'])
        || text.trim_start().starts_with(['=', '+', '-', '@', '\u{ff1d}', '\u{ff0b}', '\u{ff0d}', '\u{ff20}']);
    let line = terminal_line(text);
    if formula { Cow::Owned(format!("'{line}")) } else { line }
}

/// A Markdown table cell: as [`markdown_text`], and `–` for text that is empty.
pub fn markdown_cell(text: &str) -> Cow<'_, str> {
    if text.trim().is_empty() { Cow::Borrowed("–") } else { Cow::Owned(inline(text)) }
}

/// One line of Markdown in which no foreign character has a meaning: no markup, link, image, autolink, mention or tag.
///
/// Plain words stay prose. Renderers link `http://…`, `www.…`, `a.b`, `@name` and `#12` even where the punctuation is escaped
/// (remark and GitHub work on the text after unescaping), and only a code span stops them all; so everything from the first to
/// the last such word stands in one code span.
pub fn markdown_text(text: &str) -> Cow<'_, str> {
    let line = inline(text);
    // A line that opens with these is a list item or underlines a heading.
    let digits = line.chars().take_while(char::is_ascii_digit).count();
    Cow::Owned(if line.starts_with(['-', '+', '=']) {
        format!("\\{line}")
    } else if digits > 0 && line[digits..].starts_with(['.', ')']) {
        format!("{}\\{}", &line[..digits], &line[digits..])
    } else {
        line
    })
}

fn inline(text: &str) -> String {
    let line = terminal_line(text);
    let words: Vec<&str> = line.split_whitespace().collect();
    let prose = |words: &[&str]| words.join(" ").replace('_', "\\_");
    let (Some(first), Some(last)) = (words.iter().position(|w| !is_prose(w)), words.iter().rposition(|w| !is_prose(w)))
    else {
        return prose(&words);
    };
    let mut parts = Vec::with_capacity(3);
    parts.extend((first > 0).then(|| prose(&words[..first])));
    parts.push(markdown_code(&words[first..=last].join(" ")));
    parts.extend((last + 1 < words.len()).then(|| prose(&words[last + 1..])));
    parts.join(" ")
}

/// A code span fenced by more backticks than the text holds; `|` is shown as `\x7c`, since table rows are split before spans
/// are read; `–` for text that is empty.
pub fn markdown_code(text: &str) -> String {
    if text.trim().is_empty() {
        return "–".to_owned();
    }
    let line = terminal_line(text).replace('|', "\\x7c");
    let fence = "`".repeat(longest_run(&line, '`') + 1);
    let pad = if line.starts_with(['`', ' ']) || line.ends_with(['`', ' ']) { " " } else { "" };
    format!("{fence}{pad}{line}{pad}{fence}")
}

/// A fenced block of foreign lines; the fence is longer than any run of backticks in it.
pub fn markdown_block(text: &str) -> String {
    let text = terminal(text);
    let fence = "`".repeat((longest_run(&text, '`') + 1).max(3));
    format!("{fence}text\n{}\n{fence}\n", text.trim_end_matches('\n'))
}

fn longest_run(text: &str, of: char) -> usize {
    text.split(|c| c != of).map(|run| run.chars().count()).max().unwrap_or(0)
}

/// A word that no renderer gives a meaning to, once `_` is escaped.
fn is_prose(word: &str) -> bool {
    let calm = |c: char| c.is_alphanumeric() || "-_.,;:()/+%=°·×–—−…≥≤≈±÷²³?!'\"，。、：；？！（）".contains(c);
    if !word.chars().all(calm) || word.contains("//") {
        return false;
    }
    // `a.b` is a host to renderers that link bare domains; `scheme:x` and `:smile:` are a link and an emoji.
    let pairs = || word.chars().zip(word.chars().skip(1));
    let host = word.char_indices().any(|(at, c)| {
        c == '.'
            && word[..at].ends_with(|c: char| c.is_alphanumeric())
            && word[at + 1..].starts_with(|c: char| c.is_alphabetic())
    });
    let scheme = pairs().any(|(a, b)| a == ':' && !b.is_ascii_digit());
    let revision = word.len() >= 7 && word.chars().all(|c| c.is_ascii_hexdigit());
    let issue = word.to_ascii_lowercase().starts_with("gh-");
    !(host || scheme || revision || issue)
}

/// A file name for any id: `[A-Za-z0-9._-]`, at most 80 characters of the id, then `-` and 8 hex digits of its SHA-256.
///
/// The hash keeps ids apart that differ only in what was replaced, in case, or past the cut. No leading dot or dash, and no name
/// that Windows keeps for a device.
pub fn file_slug(id: &str) -> String {
    let mut slug: String =
        id.chars().take(80).map(|c| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' }).collect();
    let stem = slug.split('.').next().unwrap_or_default().to_ascii_uppercase();
    let device = matches!(stem.as_str(), "CON" | "PRN" | "AUX" | "NUL")
        || (stem.len() == 4
            && (stem.starts_with("COM") || stem.starts_with("LPT"))
            && stem.as_bytes()[3].is_ascii_digit());
    if device || slug.starts_with(['.', '-']) || slug.is_empty() {
        slug.insert(0, '_');
        slug.truncate(80);
    }
    let hash = Sha256::digest(id.as_bytes());
    let hex: String = hash.iter().take(4).map(|b| format!("{b:02x}")).collect();
    format!("{slug}-{hex}")
}
