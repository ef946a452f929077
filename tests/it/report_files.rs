//! A whole report on disk: what it says and what it leaves.
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use inferlab::metric::summary::{Estimate, RunSummary};
use inferlab::report::{self, ReportError};
use proptest::prelude::*;
use sha2::{Digest, Sha256};

use crate::report_check::{markdown_dangers, tags};
use crate::report_summary::{failed_run, full_run, invalid_synthetic_run};

/// Every file of a report by its path inside the folder. `INFERLAB_PICTURES=dir` keeps them for a person to look at.
fn written(name: &str, runs: &[RunSummary]) -> BTreeMap<PathBuf, Vec<u8>> {
    let temporary = tempfile::tempdir().expect("temporary folder");
    let dir = std::env::var_os("INFERLAB_PICTURES").map_or(temporary.path().to_owned(), PathBuf::from).join(name);
    report::write(runs, &dir, &[]).expect("report written");
    let mut files = BTreeMap::new();
    collect(&dir, &dir, &mut files);
    files
}

fn collect(root: &Path, dir: &Path, files: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in std::fs::read_dir(dir).expect("a folder") {
        let path = entry.expect("an entry").path();
        match path.is_dir() {
            true => collect(root, &path, files),
            false => {
                let bytes = std::fs::read(&path).expect("a file");
                files.insert(path.strip_prefix(root).expect("inside").to_owned(), bytes);
            }
        }
    }
}

fn text(files: &BTreeMap<PathBuf, Vec<u8>>, name: &str) -> String {
    String::from_utf8(files[Path::new(name)].clone()).expect("UTF-8")
}

fn captions(markdown: &str) -> Vec<&str> {
    markdown.lines().filter(|line| line.starts_with("**Table ")).collect()
}

#[test]
fn the_question_stands_on_top_and_the_verdict_under_it() {
    let files = written("full", &[full_run()]);
    let markdown = text(&files, "report.md");
    let lines: Vec<&str> = markdown.lines().filter(|line| !line.is_empty()).collect();
    assert_eq!(lines[0], "# Does a bf16 KV cache decode faster than f32 on this CPU?");
    assert!(lines[1].starts_with("**Verdict: VALID.**"), "{}", lines[1]);
    assert!(!markdown.contains("speed only") && !markdown.contains("INVALID"));
    for part in [
        "| kv-f32 | 1 | 4 | 48 / 48 | 41.2 (40.7–41.7) n=4 |",
        "| decode\\_scaling/c1 | decode, all lanes | kv-bf16 | kv-f32 | 1.090 (1.069–1.111) n=4 | 1.2 | faster by 9.0 % (6.9 to 11.1 %) |",
        "| kv-bf16 | in-process cpu | bf16 |",
        "| host | cpu | AMD EPYC 9V74, 2 cores |",
        "¹ n too small",
        "inferlab verify runs/kv-dtype-20261130T091500Z-4f1c2a",
    ] {
        assert!(markdown.contains(part), "{part} in\n{markdown}");
    }
    assert_eq!(markdown_dangers(&markdown), Vec::<String>::new());
}

#[test]
fn every_number_of_a_result_has_its_n_beside_it() {
    let markdown = text(&written("n", &[full_run()]), "report.md");
    let intervals = markdown.lines().filter(|line| line.starts_with("| kv-")).flat_map(|line| line.split(" | "));
    let mut seen = 0;
    for cell in intervals.filter(|cell| cell.contains('(') || cell.starts_with('–')) {
        assert!(cell.contains(" n="), "{cell}");
        seen += 1;
    }
    // 8 decode cells with 5 metrics, 10 prefill cells with 2.
    assert_eq!(seen, 8 * 5 + 10 * 2);
}

#[test]
fn random_weights_and_a_broken_rule_are_said_in_every_caption_and_picture() {
    let files = written("invalid", &[invalid_synthetic_run()]);
    let markdown = text(&files, "report.md");
    assert!(captions(&markdown).len() >= 8);
    for caption in captions(&markdown) {
        assert!(caption.contains("**speed only: random weights**") && caption.contains("**INVALID run**"), "{caption}");
    }
    let html = text(&files, "report.html");
    let tables = html.matches("<caption").count();
    assert_eq!(
        (html.matches("<strong>speed only: random weights</strong>").count(), captions(&markdown).len()),
        (tables, tables)
    );
    assert!(markdown.contains("- **V1**: 6 of 864 requests failed (0.69 %), above 0.5 %"));
    assert!(markdown.contains("| kv-f32 | decode\\_scaling/c8 | http\\_error | 6 | 503 Service Unavailable: request queue timeout after 30 s |"));
    for (path, bytes) in files.iter().filter(|(path, _)| path.extension().is_some_and(|e| e == "svg")) {
        let svg = String::from_utf8_lossy(bytes);
        assert!(svg.contains("SPEED ONLY: random weights") && svg.contains("INVALID RUN"), "{}", path.display());
    }
}

#[test]
fn b55_a_run_without_one_answer_is_reported_with_counts_and_dashes() {
    let files = written("failed", &[failed_run()]);
    let markdown = text(&files, "report.md");
    assert!(markdown.contains("0 of 20 requests answered; 20 failed"));
    assert!(markdown.contains("| kv-f32 | 1 | 0 | 0 / 20 | – n=0 |"), "{markdown}");
    let mut reader = csv::Reader::from_reader(&files[Path::new("tables.csv")][..]);
    let heads = reader.headers().expect("heads").clone();
    let mut rows = 0;
    for row in reader.records() {
        let row = row.expect("a row");
        let field = |name: &str| &row[heads.iter().position(|h| h == name).expect("a column")];
        assert_eq!(
            (field("n"), field("value"), field("low"), field("high"), field("verdict")),
            ("0", "", "", "", "invalid")
        );
        rows += 1;
    }
    assert!(rows > 20, "{rows}");
}

#[test]
fn the_same_runs_give_the_same_bytes_and_nothing_else_is_left() {
    let runs = [full_run(), invalid_synthetic_run()];
    let (first, second) = (written("several", &runs), written("several", &runs));
    assert_eq!(first.keys().collect::<Vec<_>>(), second.keys().collect::<Vec<_>>());
    for (path, bytes) in &first {
        assert!(*bytes == second[path], "{} differs", path.display());
        let name = path.file_name().expect("a file").to_string_lossy();
        assert!(!name.starts_with('.'), "{name} was left behind");
    }
    let names: Vec<String> = first.keys().map(|path| path.to_string_lossy().into_owned()).collect();
    for name in
        ["report.md", "report.html", "tables.csv", "figures/run1-decode_scaling.png", "figures/run2-prefill_ttft.svg"]
    {
        assert!(names.iter().any(|n| n == name), "{name} in {names:?}");
    }
}

#[test]
fn several_runs_stand_beside_each_other_before_each_is_told() {
    let files = written("several", &[full_run(), invalid_synthetic_run()]);
    let markdown = text(&files, "report.md");
    assert!(markdown.starts_with("# Report on 2 runs\n"));
    let first_run = markdown.find("## Does a bf16").expect("the first run's section");
    let overview = &markdown[..first_run];
    let row = "| decode\\_scaling/c1 | kv-f32 | quickstart-20261130T101500Z-9be001 | INVALID | 41.2 (40.7–41.7) n=4 |";
    assert!(overview.contains(row), "{overview}");
    // Only one of the two is random: the caption names it.
    assert!(
        captions(overview)[0].contains("**speed only: random weights** (`quickstart-20261130T101500Z-9be001`)"),
        "{}",
        captions(overview)[0]
    );
    let html = text(&files, "report.html");
    let anchors: Vec<String> =
        tags(&html).into_iter().filter(|tag| tag.name == "a").map(|tag| tag.attributes[0].1.clone()).collect();
    assert_eq!(anchors, ["#run-1", "#run-2"]);
    let mut ids: Vec<String> = tags(&html)
        .into_iter()
        .flat_map(|tag| tag.attributes)
        .filter(|(key, _)| key == "id")
        .map(|(_, id)| id)
        .collect();
    let all = ids.len();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), all, "ids are unique");
}

#[test]
fn the_html_loads_nothing_and_its_policy_names_its_own_style_and_script() {
    let html = text(&written("full", &[full_run()]), "report.html");
    let between = |open: &str, close: &str| {
        let start = html.find(open).expect("opened") + open.len();
        &html[start..start + html[start..].find(close).expect("closed")]
    };
    let hash =
        |body: &str| format!("'sha256-{}'", base64::engine::general_purpose::STANDARD.encode(Sha256::digest(body)));
    let expected = format!(
        "default-src 'none'; style-src {}; script-src {}; img-src data:; base-uri 'none'; form-action 'none'",
        hash(between("<style>", "</style>")),
        hash(between("<script>", "</script>"))
    );
    let policy = tags(&html)
        .into_iter()
        .find(|tag| tag.name == "meta" && tag.attributes[0].0 == "http-equiv")
        .expect("a policy");
    assert_eq!(policy.attributes[1].1, expected);
    for tag in tags(&html) {
        assert!(
            !["link", "iframe", "object", "embed", "form", "base"].contains(&tag.name.as_str())
                || tag.attributes.contains(&("href".into(), "data:,".into())),
            "{}",
            tag.name
        );
        assert!(tag.attributes.iter().all(|(key, _)| key != "style" && !key.starts_with("on")), "{}", tag.name);
        if tag.name == "img" {
            assert!(tag.attributes.iter().any(|(key, value)| key == "alt" && value.len() > 20));
        }
        if tag.name == "th" {
            assert!(tag.attributes.iter().any(|(key, _)| key == "scope"));
        }
    }
    assert_eq!(html.matches("<table").count(), html.matches("<caption").count());
}

#[test]
fn only_what_is_asked_for_is_written_and_a_wrong_word_is_answered_with_the_nearest() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let paths = report::write(&[full_run()], dir.path(), &["csv".into()]).expect("written");
    assert_eq!((paths.md, paths.html, paths.figures.len()), (None, None, 0));
    assert_eq!(std::fs::read_dir(dir.path()).expect("a folder").count(), 1);
    match report::write(&[full_run()], dir.path(), &["htm".into()]) {
        Err(ReportError::Format { format, nearest }) => assert_eq!((format.as_str(), nearest), ("htm", Some("html"))),
        other => panic!("{other:?}"),
    }
    assert!(matches!(report::write(&[], dir.path(), &[]), Err(ReportError::NoRuns)));
    let file = dir.path().join("tables.csv");
    match report::write(&[full_run()], &file, &[]) {
        Err(ReportError::Io { path, .. }) => assert_eq!(path, file),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_run_without_cells_says_that_nothing_was_measured() {
    let run = RunSummary { cells: vec![], arms: vec![], provenance: vec![], comparisons: vec![], ..failed_run() };
    let markdown = text(&written("empty", &[run]), "report.md");
    assert!(markdown.contains("No cell was run: nothing was measured (n=0)."));
}

fn estimate() -> impl Strategy<Value = Estimate> {
    let number = prop_oneof![Just(None), any::<f64>().prop_map(Some), (-1e4..1e4f64).prop_map(Some), Just(Some(0.0))];
    (0usize..500, number.clone(), number.clone(), number).prop_map(|(n, value, low, high)| Estimate {
        n,
        value,
        low,
        high,
        note: None,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_estimates_give_a_report_without_nan_or_infinity(estimates in prop::collection::vec(estimate(), 60)) {
        let mut run = full_run();
        run.cells.retain(|cell| cell.workload == "decode_scaling");
        let mut estimates = estimates.into_iter().cycle();
        for cell in &mut run.cells {
            cell.samples = Default::default();
            cell.metrics.values_mut().for_each(|e| *e = estimates.next().expect("cycle"));
        }
        let dir = tempfile::tempdir().expect("temporary folder");
        let paths = report::write(&[run], dir.path(), &[]).expect("written");
        for path in [paths.md, paths.csv].into_iter().flatten() {
            let text = std::fs::read_to_string(&path).expect("read");
            let words = text.split(|c: char| !c.is_alphanumeric());
            let odd: Vec<&str> = words.filter(|word| ["nan", "inf", "infinity"].contains(&word.to_lowercase().as_str())).collect();
            prop_assert!(odd.is_empty(), "{}: {odd:?}", path.display());
        }
    }
}
