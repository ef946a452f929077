//! What a browser, a Markdown renderer, a spreadsheet and a terminal would act on, found by reading the files from outside.

/// Controls that move text or act on a terminal, LF apart: C0, DEL, C1, bidi.
pub fn controls(text: &str) -> String {
    let acts = |c: &char| {
        let code = *c as u32;
        (code < 0x20 && code != 0x0a)
            || (0x7f..0xa0).contains(&code)
            || (0x202a..=0x202e).contains(&code)
            || (0x2066..=0x2069).contains(&code)
            || [0x200e, 0x200f, 0x061c, 0x2028, 0x2029].contains(&code)
    };
    text.chars().filter(acts).flat_map(char::escape_unicode).collect()
}

/// A tag of an HTML or XML text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tag {
    /// `p`, `/p`, `!doctype`.
    pub name: String,
    /// Attributes in order.
    pub attributes: Vec<(String, String)>,
}

/// Every tag, as an HTML tokenizer would see it. The bodies of `style` and `script` are skipped: they end at their closing tag.
pub fn tags(text: &str) -> Vec<Tag> {
    let chars: Vec<char> = text.chars().collect();
    let (mut tags, mut i): (Vec<Tag>, usize) = (vec![], 0);
    while i < chars.len() {
        let opens = chars[i] == '<' && chars.get(i + 1).is_some_and(|c| c.is_ascii_alphabetic() || "/!?".contains(*c));
        if !opens {
            i += 1;
            continue;
        }
        let start = i + 1;
        i = start + 1;
        while i < chars.len() && !chars[i].is_whitespace() && chars[i] != '>' && (chars[i] != '/' || i == start) {
            i += 1;
        }
        let name = chars[start..i].iter().collect::<String>().to_lowercase();
        let mut attributes = vec![];
        while i < chars.len() && chars[i] != '>' {
            if chars[i].is_whitespace() || chars[i] == '/' || chars[i] == '?' {
                i += 1;
                continue;
            }
            let from = i;
            while i < chars.len() && !chars[i].is_whitespace() && !"=>".contains(chars[i]) {
                i += 1;
            }
            let key = chars[from..i].iter().collect::<String>().to_lowercase();
            let mut value = String::new();
            if chars.get(i) == Some(&'=') {
                i += 1;
                match chars.get(i) {
                    Some(&quote) if quote == '"' || quote == '\'' => {
                        i += 1;
                        while i < chars.len() && chars[i] != quote {
                            value.push(chars[i]);
                            i += 1;
                        }
                        i += 1;
                    }
                    _ => {
                        while i < chars.len() && !chars[i].is_whitespace() && chars[i] != '>' {
                            value.push(chars[i]);
                            i += 1;
                        }
                    }
                }
            }
            attributes.push((key, value));
        }
        i += 1;
        if name == "style" || name == "script" {
            let end: Vec<char> = format!("</{name}").chars().collect();
            while i < chars.len() && !chars[i..].starts_with(&end) {
                i += 1;
            }
        }
        tags.push(Tag { name, attributes });
    }
    tags
}

/// What is left of a Markdown line that a renderer reads as markup: code spans and escaped characters are blanked out.
///
/// GFM splits a table row at every `|` that has no `\` before it, and only then looks for code spans, so a span ends at its cell.
fn live(line: &str) -> Vec<String> {
    let mut cells = vec![String::new()];
    let mut escaped = false;
    for c in line.chars() {
        if c == '|' && !escaped && line.starts_with('|') {
            cells.push(String::new());
        } else {
            cells.last_mut().expect("never empty").push(c);
        }
        escaped = c == '\\' && !escaped;
    }
    cells.iter().map(|cell| without_code(cell)).collect()
}

fn without_code(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let (mut out, mut i) = (String::new(), 0);
    while i < chars.len() {
        if chars[i] == '\\' && chars.get(i + 1).is_some_and(char::is_ascii_punctuation) {
            out.push_str("  ");
            i += 2;
        } else if chars[i] == '`' {
            let run = chars[i..].iter().take_while(|c| **c == '`').count();
            let mut j = i + run;
            let close = loop {
                if j >= chars.len() {
                    break None;
                }
                let next = chars[j..].iter().take_while(|c| **c == '`').count();
                if next == run {
                    break Some(j + run);
                }
                j += next.max(1);
            };
            match close {
                Some(end) => {
                    out.push(' ');
                    i = end;
                }
                None => {
                    out.push('`');
                    i += run;
                }
            }
        } else {
            out.push(chars[i]);
            i += 1;
        }
    }
    out
}

/// The shape of a Markdown text: one word a line, with the number of cells of a table row.
pub fn shape(text: &str) -> Vec<String> {
    let mut fence: Option<usize> = None;
    text.lines()
        .map(|line| {
            let ticks = line.chars().take_while(|c| *c == '`').count();
            if let Some(open) = fence {
                if ticks >= open && line.trim_end().len() == ticks {
                    fence = None;
                    return "fence ends".to_owned();
                }
                return "code".to_owned();
            }
            if ticks >= 3 && !line[ticks..].contains('`') {
                fence = Some(ticks);
                return "fence".to_owned();
            }
            match line {
                "" => "blank".to_owned(),
                _ if line.starts_with('|') => format!("row of {}", live(line).len()),
                _ if line.starts_with('#') => format!("heading {}", line.chars().take_while(|c| *c == '#').count()),
                _ if line.starts_with("- ") => "item".to_owned(),
                _ if line.starts_with("> ") => "quote".to_owned(),
                _ if line.starts_with("![") => "image".to_owned(),
                _ => "text".to_owned(),
            }
        })
        .collect()
}

/// Everything in a Markdown text that could act: links, images but our own, tags, autolinks, mentions, entities, unmatched code.
pub fn markdown_dangers(text: &str) -> Vec<String> {
    let mut dangers = vec![];
    for (line, kind) in text.lines().zip(shape(text)) {
        if kind == "code" || kind.starts_with("fence") {
            continue;
        }
        // Our own figures and verdicts; nothing foreign stands in their address.
        let own = kind == "image" && line.ends_with(".png)") && line.contains("](figures/");
        let line = if own { line.replacen("![", "", 1).replacen("](figures/", "", 1) } else { line.to_owned() };
        for cell in live(&line) {
            let lower = cell.to_lowercase();
            let mut found = |what: &str| dangers.push(format!("{what}: {line}"));
            for mark in ["](", "][", "]:", "![", "://", "www.", "@", "`", "&#", "&l", "&g", "&q", "~~", "$"] {
                if lower.contains(mark) {
                    found(mark);
                }
            }
            if cell
                .chars()
                .zip(cell.chars().skip(1))
                .any(|(a, b)| a == '<' && (b.is_ascii_alphabetic() || "/!?".contains(b)))
            {
                found("tag");
            }
            // Units stand in brackets in table heads; any other bracket is foreign.
            let units =
                ["[in flight]", "[requests]", "[tokens]", "[tok/s]", "[ms]", "[ratio]", "[± %]", "[req/s]", "[%]"];
            let rest = units.iter().fold(cell.clone(), |rest, unit| rest.replace(unit, ""));
            if rest.contains(['[', ']']) {
                found("bracket");
            }
        }
    }
    dangers
}
