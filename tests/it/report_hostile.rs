//! R17: 200 hostile strings in every field that comes from outside, through a whole report.
use std::collections::HashMap;

use inferlab::inert;
use inferlab::metric::summary::{Reason, RunSummary, Verdict};
use inferlab::report;

use crate::report_check::{controls, markdown_dangers, shape, tags};
use crate::report_summary::{invalid_synthetic_run, missing};

/// Payloads of public bug reports and of the usual lists.
const SEEDS: [&str; 50] = [
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "</style><img src=x onerror=alert(1)>",
    "\"><img src=x onerror=alert(1)>",
    "' onmouseover='alert(1)",
    "<svg/onload=alert(1)>",
    "</svg><script>alert(1)</script>",
    "]]><script>alert(1)</script>",
    "<!-- ",
    "--><b>x</b>",
    "<a href=\"javascript:alert(1)\">x</a>",
    "<iframe src=//example.com>",
    "<meta http-equiv=refresh content=0>",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "{{ 7*7 }}{% raw %}",
    "[x](javascript:alert(1))",
    "![p](http://198.51.100.1/p.png)",
    "[x]: http://example.com",
    "[x][y] ![z][y]",
    "<http://example.com>",
    "see http://example.com/a?b=c&d for more",
    "https://example.com",
    "www.example.com",
    "mail me@example.com now",
    "@everyone look, #12 and GH-12",
    "ftp://example.com/x",
    "example.com/login",
    "```\n<img src=x onerror=alert(1)>\n````\n",
    "`a` ``b`` ```c```",
    "~~~~\n# heading\n~~~~",
    "a | b || c \\| d \\\\| e",
    "*bold* _it_ **b** __b__ ~~s~~",
    "# not a heading\n- not an item\n1. nor this\n> nor this\n---\n===",
    "\\`\\[x\\]\\(y\\)",
    "$x^2$ $$y$$ :smile:",
    "ends with a backslash \\",
    "\u{1b}[2J\u{1b}]0;x\u{7}",
    "\u{1b}]52;c;aGk=\u{7}\u{1b}c\u{9b}31m",
    "ok\rFAKE\u{8}\u{8}\u{202e}live",
    "\u{2066}a\u{2069}\u{200f}\u{200e}\u{61c}",
    "\u{0}\u{1}\u{7f}\u{85}\u{a0}",
    "\u{feff}\u{2028}\u{2029}\u{fffe}\u{ffff}",
    "=1+1",
    "+1",
    "-2+3",
    "@SUM(A1)",
    "\t=1",
    "\r=cmd|' /C calc'!A0",
    "＝1+1＋－＠",
    "长长\"'<>&🙂\u{202e}../../etc/passwd",
];

/// 50 payloads, each plain, after words, before words, and long.
pub fn strings() -> Vec<String> {
    let variants: [fn(&str) -> String; 4] = [
        |s| s.to_owned(),
        |s| format!("model 7B {s}"),
        |s| format!("{s} and more"),
        |s| format!("{s}{}{s}", "x".repeat(300)),
    ];
    variants.iter().flat_map(|variant| SEEDS.iter().map(move |seed| variant(seed))).collect()
}

/// A small run whose every foreign field is filled by `next`.
fn run(mut next: impl FnMut() -> String) -> RunSummary {
    let mut run = invalid_synthetic_run();
    run.cells.retain(|cell| cell.cell.ends_with("c1") || cell.cell.ends_with("c2"));
    let arm = next();
    for cell in &mut run.cells {
        cell.arm = arm.clone();
        cell.cell = next();
        cell.samples.icl_ms.truncate(200);
        cell.metrics.insert("ttft_ms_p99", missing(48, &next()));
    }
    run.run_id = next();
    run.name = next();
    run.question = next();
    run.identity = next();
    run.started_utc = next();
    run.verdict = Verdict::Invalid;
    run.reasons = vec![Reason { rule: "V1", message: next() }];
    run.warnings = vec![next(), next()];
    run.provenance = vec![(next(), vec![(next(), next()), ("gpu".into(), next())])];
    run.arms[0].name = arm;
    run.arms[0].target = next();
    run.arms[0].differs = vec![(next(), next())];
    run.failures[0].arm = next();
    run.failures[0].cell = next();
    run.failures[0].example = Some(next());
    run
}

/// The files of a report by name, and the texts of its SVG figures.
fn files(runs: &[RunSummary]) -> HashMap<String, String> {
    let dir = tempfile::tempdir().expect("temporary folder");
    let paths = report::write(runs, dir.path(), &[]).expect("report written");
    let mut files = HashMap::new();
    let text = paths.figures.into_iter().filter(|path| path.extension().is_some_and(|e| e == "svg"));
    for path in [paths.md, paths.html, paths.csv].into_iter().flatten().chain(text) {
        assert!(path.starts_with(dir.path()));
        let name = path.file_name().expect("a file").to_string_lossy().into_owned();
        files.insert(name, std::fs::read_to_string(&path).expect("UTF-8"));
    }
    if let Some(keep) = std::env::var_os("INFERLAB_PICTURES") {
        let name = format!("hostile-{:08x}", crc32(&files["report.md"]));
        std::fs::create_dir_all(&keep)
            .and_then(|()| std::fs::write(std::path::Path::new(&keep).join(format!("{name}.md")), &files["report.md"]))
            .expect("kept");
        std::fs::write(std::path::Path::new(&keep).join(format!("{name}.html")), &files["report.html"]).expect("kept");
    }
    files
}

fn crc32(text: &str) -> u32 {
    text.bytes().fold(5381, |hash: u32, byte| hash.wrapping_mul(33) ^ u32::from(byte))
}

#[test]
fn no_hostile_string_acts_anywhere_in_a_report() {
    let strings = strings();
    assert_eq!(strings.len(), 200);
    let mut count = 0;
    let harmless = files(&[run(|| {
        count += 1;
        format!("harmless {count}")
    })]);
    let harmless_tags: Vec<String> = tags(&harmless["report.html"]).into_iter().map(|tag| tag.name).collect();
    let harmless_shape = shape(&harmless["report.md"]);
    let mut placed = 0;
    for report in 0..10 {
        let hostile = files(&[run(|| {
            placed += 1;
            strings[(placed - 1) % strings.len()].clone()
        })]);
        check(&hostile);
        let found: Vec<String> = tags(&hostile["report.html"]).into_iter().map(|tag| tag.name).collect();
        assert_eq!(found, harmless_tags, "report {report}: foreign text changed the HTML");
        assert_eq!(shape(&hostile["report.md"]), harmless_shape, "report {report}: foreign text changed the Markdown");
    }
    assert!(placed >= strings.len(), "{placed}");
}

fn check(files: &HashMap<String, String>) {
    for (name, text) in files {
        assert_eq!(controls(text), "", "{name}");
    }
    assert_eq!(markdown_dangers(&files["report.md"]), Vec::<String>::new());
    for tag in tags(&files["report.html"]) {
        for (key, value) in &tag.attributes {
            let known = [
                "lang",
                "charset",
                "http-equiv",
                "content",
                "name",
                "rel",
                "href",
                "id",
                "class",
                "role",
                "src",
                "alt",
                "width",
                "height",
                "scope",
                "tabindex",
                "aria-label",
                "aria-labelledby",
                "data-sort",
            ];
            assert!(known.contains(&key.as_str()) || tag.name == "!doctype", "{key} of {}", tag.name);
            match key.as_str() {
                "href" => assert!(value == "data:," || value.starts_with("#run-"), "{tag:?}"),
                "src" => assert!(value.starts_with("data:image/svg+xml;base64,"), "{}", &value[..40.min(value.len())]),
                "http-equiv" => assert_eq!(value, "Content-Security-Policy"),
                _ => {}
            }
        }
    }
    for (name, text) in files.iter().filter(|(name, _)| name.ends_with(".svg")) {
        let mut open: Vec<String> = vec![];
        for tag in tags(text) {
            let plain = tag.name.trim_start_matches('/');
            assert!(
                ["svg", "title", "desc", "rect", "line", "polyline", "polygon", "circle", "text"].contains(&plain),
                "{name}: {tag:?}"
            );
            assert!(
                tag.attributes.iter().all(|(key, _)| !key.starts_with("on") && !key.contains("href")),
                "{name}: {tag:?}"
            );
            match tag.name.strip_prefix('/') {
                Some(closed) => assert_eq!(open.pop().as_deref(), Some(closed), "{name}"),
                None if ["svg", "title", "desc", "text"].contains(&plain) => open.push(tag.name),
                None => {}
            }
        }
        assert!(open.is_empty(), "{name}: {open:?}");
    }
    let mut reader = csv::Reader::from_reader(files["tables.csv"].as_bytes());
    let heads = reader.headers().expect("heads").clone();
    for row in reader.records() {
        for (head, value) in heads.iter().zip(row.expect("a row").iter()) {
            let number =
                ["concurrency", "prompt_tokens", "completion_tokens", "n", "value", "low", "high"].contains(&head);
            assert!(
                if number { value.is_empty() || value.parse::<f64>().is_ok() } else { !formula(value) },
                "{head}: {value}"
            );
        }
    }
}

/// What a spreadsheet takes for a formula.
fn formula(cell: &str) -> bool {
    cell.starts_with(['=', '+', '-', '@', '\t', '\r', '＝', '＋', '－', '＠'])
}

#[test]
fn each_string_alone_is_inert_in_every_form() {
    for text in strings() {
        assert_eq!(controls(&inert::terminal(&text).replace('\t', "")), "", "{text:?}");
        assert_eq!(controls(&inert::terminal_line(&text)), "", "{text:?}");
        assert!(!inert::terminal_line(&text).contains('\n'), "{text:?}");
        for line in [inert::markdown_text(&text).into_owned(), format!("| {} |", inert::markdown_cell(&text))] {
            assert_eq!(markdown_dangers(&line), Vec::<String>::new(), "{text:?}");
            assert!(!line.contains('\n'), "{text:?}");
        }
        assert_eq!(shape(&inert::markdown_text(&text)), ["text"], "{text:?}");
        assert!(tags(&inert::html(&text)).is_empty() && tags(&inert::svg(&text)).is_empty(), "{text:?}");
        assert!(!formula(&inert::csv_text(&text)), "{text:?}");
    }
}

#[test]
fn the_check_sees_what_would_act() {
    for live in [
        "see [x](http://a.b)",
        "<b>x</b>",
        "a `code` and ` <i>",
        "| a | <img src=x> |",
        "| `a | <b>` |",
        "| `a\\\\| <b>` |",
        "![p](http://x/p.png)",
        "go to http://example.com",
        "@someone",
        "[x]: y",
    ] {
        assert_ne!(markdown_dangers(live), Vec::<String>::new(), "{live}");
    }
    assert_eq!(tags("a <b title='>'>x</b> < c")[0].attributes, [("title".to_owned(), ">".to_owned())]);
    assert_eq!(tags("a <b title='>'>x</b> < c").len(), 2);
    assert_eq!(controls("a\n\u{1b}\u{202e}"), "\\u{1b}\\u{202e}");
}
