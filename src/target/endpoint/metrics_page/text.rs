//! The Prometheus text format (version 0.0.4; OpenMetrics lines pass as well), read in one bounded pass.
//!
//! A page is foreign text: lines, labels and samples are bounded, and a line that cannot be read costs itself only.
use std::borrow::Cow;

/// More of a page than this is not read.
pub const MAX_PAGE_BYTES: usize = 8 << 20;
/// Longest line; a sample of a real server stays below 2 KiB.
const MAX_LINE_BYTES: usize = 64 << 10;
/// Most labels of a sample.
const MAX_LABELS: usize = 64;
/// Most samples of a page.
const MAX_SAMPLES: usize = 200_000;

/// Name and value of each label, in the order of the line.
pub type Labels<'a> = Vec<(&'a str, Cow<'a, str>)>;

/// One line of a page.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample<'a> {
    /// As `vllm:prompt_tokens_total`.
    pub name: &'a str,
    /// As they stand.
    pub labels: Labels<'a>,
    /// May be NaN or infinite.
    pub value: f64,
}

impl Sample<'_> {
    /// The value of a label.
    pub fn label(&self, name: &str) -> Option<&str> {
        self.labels.iter().find(|(label, _)| *label == name).map(|(_, value)| value.as_ref())
    }
}

/// How a page was read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reading {
    /// Samples handed out.
    pub samples: usize,
    /// Lines that are neither sample nor comment.
    pub bad_lines: usize,
    /// The page is longer, or holds more samples, than is read.
    pub cut: bool,
}

/// Hands every sample of `page` to `on`.
pub fn read<'a>(page: &'a str, mut on: impl FnMut(Sample<'a>)) -> Reading {
    let end = page.floor_char_boundary(MAX_PAGE_BYTES);
    let mut reading = Reading { cut: end < page.len(), ..Reading::default() };
    for line in page[..end].split('\n') {
        let line = line.trim_matches([' ', '\t', '\r']);
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match (line.len() <= MAX_LINE_BYTES).then(|| sample(line)).flatten() {
            None => reading.bad_lines += 1,
            Some(_) if reading.samples == MAX_SAMPLES => {
                reading.cut = true;
                break;
            }
            Some(sample) => {
                reading.samples += 1;
                on(sample);
            }
        }
    }
    reading
}

fn sample(line: &str) -> Option<Sample<'_>> {
    let name_end = line.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':')).unwrap_or(line.len());
    let (name, rest) = line.split_at(name_end);
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let rest = rest.trim_start();
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => labels(rest)?,
        None => (Vec::new(), rest),
    };
    // A timestamp or an exemplar may follow.
    let value = number(rest.split_ascii_whitespace().next()?)?;
    Some(Sample { name, labels, value })
}

/// What follows an opening brace: the labels, and the rest of the line after the closing one.
fn labels(mut rest: &str) -> Option<(Labels<'_>, &str)> {
    let mut labels = Vec::new();
    loop {
        rest = rest.trim_start();
        if let Some(rest) = rest.strip_prefix('}') {
            return Some((labels, rest));
        }
        if labels.len() == MAX_LABELS {
            return None;
        }
        let (name, more) = rest.split_once('=')?;
        let name = name.trim();
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if name.is_empty() || !name.chars().all(plain) {
            return None;
        }
        let (value, more) = quoted(more.trim_start().strip_prefix('"')?)?;
        labels.push((name, value));
        rest = more.trim_start();
        match rest.strip_prefix(',') {
            Some(more) => rest = more,
            None if rest.starts_with('}') => {}
            None => return None,
        }
    }
}

/// A label value up to its closing quote, with `\\`, `\"` and `\n` undone, and what follows the quote.
fn quoted(text: &str) -> Option<(Cow<'_, str>, &str)> {
    let mut clean: Option<String> = None;
    let mut from = 0;
    let bytes = text.as_bytes();
    let mut at = 0;
    loop {
        match bytes.get(at)? {
            b'"' => {
                let value = match clean {
                    None => Cow::Borrowed(&text[..at]),
                    Some(mut clean) => {
                        clean.push_str(&text[from..at]);
                        Cow::Owned(clean)
                    }
                };
                return Some((value, &text[at + 1..]));
            }
            b'\\' => {
                let clean = clean.get_or_insert_default();
                clean.push_str(&text[from..at]);
                match bytes.get(at + 1)? {
                    b'n' => clean.push('\n'),
                    b'"' => clean.push('"'),
                    b'\\' => clean.push('\\'),
                    _ => return None,
                }
                at += 2;
                from = at;
            }
            _ => at += 1,
        }
    }
}

fn number(word: &str) -> Option<f64> {
    match word {
        "NaN" => Some(f64::NAN),
        "+Inf" | "Inf" => Some(f64::INFINITY),
        "-Inf" => Some(f64::NEG_INFINITY),
        _ if word.contains(['n', 'N', 'i', 'I']) => None,
        _ => word.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(page: &str) -> (Vec<Sample<'_>>, Reading) {
        let mut samples = Vec::new();
        let reading = read(page, |sample| samples.push(sample));
        (samples, reading)
    }

    /// The example page of the format's own description (prometheus.io, "Exposition formats").
    #[test]
    fn the_example_of_the_format_is_read_whole() {
        let page = "# HELP http_requests_total The total number of HTTP requests.\n\
            # TYPE http_requests_total counter\n\
            http_requests_total{method=\"post\",code=\"200\"} 1027 1395066363000\n\
            http_requests_total{method=\"post\",code=\"400\"}    3 1395066363000\n\n\
            # Escaping in label values:\n\
            msdos_file_access_time_seconds{path=\"C:\\\\DIR\\\\FILE.TXT\",error=\"Cannot find file:\\n\\\"FILE.TXT\\\"\"} 1.458255915e9\n\n\
            # Minimalistic line:\nmetric_without_timestamp_and_labels 12.47\n\n\
            # A weird metric from before the epoch:\nsomething_weird{problem=\"division by zero\"} +Inf -3982045\n\n\
            http_request_duration_seconds_bucket{le=\"+Inf\"} 144320\n";
        let (samples, reading) = all(page);
        assert_eq!(reading, Reading { samples: 6, bad_lines: 0, cut: false });
        assert_eq!(
            (samples[0].name, samples[0].label("code"), samples[0].value),
            ("http_requests_total", Some("200"), 1027.0)
        );
        assert_eq!(samples[2].label("path"), Some("C:\\DIR\\FILE.TXT"));
        assert_eq!(samples[2].label("error"), Some("Cannot find file:\n\"FILE.TXT\""));
        assert_eq!((samples[3].labels.len(), samples[3].value), (0, 12.47));
        assert_eq!(samples[4].value, f64::INFINITY);
    }

    #[test]
    fn what_is_no_sample_costs_its_own_line_only() {
        for bad in [
            "x",
            "x {",
            "x{a} 1",
            "x{a=b} 1",
            "x{a=\"b} 1",
            "x{a=\"\\q\"} 1",
            "1x 1",
            "x nano",
            "x{a=\"b\"c=\"d\"} 1",
            "{} 1",
            "<html>",
            "x{a=\"b\"}",
            "é 1",
        ] {
            let page = format!("{bad}\na 1\r\n");
            let (samples, reading) = all(&page);
            assert_eq!((samples.len(), reading.bad_lines), (1, 1), "{bad}");
        }
        let nothing = all("\n\n# EOF\n");
        assert_eq!(nothing.1, Reading::default());
        // OpenMetrics: an exemplar behind the value.
        assert_eq!(all("a_bucket{le=\"1\"} 5 # {trace_id=\"x\"} 0.5\n").0[0].value, 5.0);
    }

    #[test]
    fn a_page_without_end_is_cut_and_a_line_without_end_is_no_sample() {
        let long = format!("x{{a=\"{}\"}} 1\na 1\n", "b".repeat(MAX_LINE_BYTES));
        assert_eq!(all(&long).1, Reading { samples: 1, bad_lines: 1, cut: false });
        let many = "a 1\n".repeat(MAX_SAMPLES + 5);
        assert_eq!(all(&many).1, Reading { samples: MAX_SAMPLES, bad_lines: 0, cut: true });
        let labels = format!("x{{{}}} 1\n", "a=\"b\",".repeat(MAX_LABELS + 1));
        assert_eq!(all(&labels).1.bad_lines, 1);
        let huge = "#".repeat(MAX_PAGE_BYTES + 2);
        assert!(all(&huge).1.cut);
    }
}
