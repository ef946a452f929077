//! Foreign text made inert: for any text, and for the cases.
use std::collections::HashSet;
use std::path::PathBuf;

use inferlab::inert;
use proptest::prelude::*;

use crate::report_check::{controls, markdown_dangers, shape, tags};

fn cases() -> Option<PathBuf> {
    let shared = std::env::var_os("INFERLAB_SHARED")
        .map_or(PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared")), PathBuf::from);
    let cases = shared.join("cases");
    if !cases.is_dir() {
        eprintln!("skipped: no {}", cases.display());
        return None;
    }
    Some(cases)
}

fn lines(name: &str) -> Option<Vec<serde_json::Value>> {
    let text = std::fs::read_to_string(cases()?.join(name)).expect("the case's file");
    Some(text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect())
}

/// The texts of a recorded stream.
fn deltas(name: &str) -> Option<Vec<String>> {
    let text = std::fs::read_to_string(cases()?.join(name)).expect("the case's file");
    let events =
        text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line.strip_prefix("data: ")?).ok());
    Some(
        events
            .filter_map(|event| Some(event["choices"][0]["delta"]["content"].as_str()?.to_owned()))
            .filter(|t| !t.is_empty())
            .collect(),
    )
}

#[test]
fn b133_ids_become_distinct_safe_file_names() {
    let Some(rows) = lines("B133.names.jsonl") else { return };
    let names: Vec<String> = rows.iter().map(|row| inert::file_slug(row["id"].as_str().expect("id"))).collect();
    assert_eq!(names.iter().collect::<HashSet<_>>().len(), rows.len(), "{names:?}");
    assert_eq!(names.iter().map(|name| name.to_lowercase()).collect::<HashSet<_>>().len(), rows.len(), "{names:?}");
    for name in &names {
        assert!(name.len() <= 80 + 9 && !name.starts_with(['.', '-']) && !name.ends_with('.'), "{name}");
        assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c)), "{name}");
        assert!(!name.to_uppercase().split('.').any(|part| part == "CON"), "{name}");
    }
    assert!(inert::file_slug("con.txt").starts_with("_con.txt-"), "Windows keeps CON with any ending");
}

#[test]
fn b137_terminal_escapes_are_shown_and_not_sent() {
    let Some(texts) = deltas("B137.sse") else { return };
    assert_eq!(texts.len(), 2);
    assert_eq!(inert::terminal(&texts[0]), "a\\x1b[2J\\x1b]0;t\\x07b\\x1b]52;c;aGk=\\x07\\x1bc\\x9b31m");
    assert_eq!(inert::terminal(&texts[1]), "ok\\x0dFAKE\\x08\\x08\\u{202e}evil");
    for text in texts {
        assert_eq!(controls(&inert::terminal(&text)), "");
    }
}

#[test]
fn b139_no_link_image_or_tag_of_an_answer_lives_in_markdown() {
    let Some(texts) = deltas("B139.sse") else { return };
    for text in texts {
        assert_eq!(markdown_dangers(&inert::markdown_text(&text)), Vec::<String>::new());
        assert_eq!(markdown_dangers(&format!("| {} |", inert::markdown_cell(&text))), Vec::<String>::new());
        let block = inert::markdown_block(&text);
        let shape = shape(&block);
        assert_eq!((shape[0].as_str(), shape[shape.len() - 1].as_str()), ("fence", "fence ends"));
        assert!(shape[1..shape.len() - 1].iter().all(|line| line == "code"), "{block}");
    }
}

#[test]
fn b141_text_is_never_a_formula_and_stays_readable() {
    let Some(rows) = lines("B141.rows.jsonl") else { return };
    let cells: Vec<String> =
        rows.iter().map(|row| inert::csv_text(row["text"].as_str().expect("text")).into_owned()).collect();
    assert_eq!(cells, ["'=1+1", "'+1", "'-2+3", "'@SUM(A1)", "'\\t=1", "'\\x0d=1", "'＝1+1", "plain", "'-1.5"]);
}

#[test]
fn plain_words_stay_prose_and_only_what_could_act_becomes_code() {
    assert_eq!(inert::markdown_text("Does Q8_0 cost speed?"), "Does Q8\\_0 cost speed?");
    assert_eq!(inert::markdown_text("llama.cpp b1234 (CPU)"), "`llama.cpp` b1234 (CPU)");
    assert_eq!(inert::markdown_text("see <b>x</b> and [y](z) now"), "see `<b>x</b> and [y](z)` now");
    assert_eq!(inert::markdown_cell("a|b"), "`a\\x7cb`");
    assert_eq!(inert::markdown_cell("0.1.0"), "0.1.0");
    assert_eq!(inert::markdown_text("1. first"), "1\\. first");
    assert_eq!(inert::markdown_cell(" "), "–");
    assert_eq!(inert::clip("abcdef", 3), "abc… (+3 characters)");
}

/// Text with many of the characters that matter.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        prop::collection::vec(
            prop::sample::select("`|*_[]()<>!#~\\@:/.=+-&$'\"\n\r\t\u{1b}\u{202e}aw1 长🙂".chars().collect::<Vec<_>>()),
            0..40
        )
        .prop_map(|chars| chars.into_iter().collect()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_inert_in_markdown(text in text()) {
        for line in [inert::markdown_text(&text).into_owned(), format!("| {} |", inert::markdown_cell(&text)), format!("| {} |", inert::markdown_code(&text))] {
            prop_assert_eq!(markdown_dangers(&line), Vec::<String>::new(), "{:?} as {}", text, line);
            prop_assert!(controls(&line).is_empty() && !line.contains('\n'));
        }
        prop_assert_eq!(&shape(&format!("| {} |", inert::markdown_cell(&text))), &["row of 3"]);
    }

    #[test]
    fn any_text_is_inert_in_terminal_html_svg_and_csv(text in text()) {
        prop_assert!(controls(&inert::terminal(&text).replace('\t', "")).is_empty());
        prop_assert!(tags(&inert::html(&text)).is_empty());
        prop_assert!(!inert::html(&text).contains(['<', '>', '"', '\'']));
        prop_assert!(controls(&inert::svg(&text)).is_empty());
        let cell = inert::csv_text(&text);
        prop_assert!(!cell.starts_with(['=', '+', '-', '@', '\t', '\r', '＝', '＋', '－', '＠']));
    }

    #[test]
    fn any_id_becomes_a_safe_file_name(id in text()) {
        let name = inert::file_slug(&id);
        prop_assert!((9..=89).contains(&name.len()) && !name.starts_with(['.', '-']));
        prop_assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c)));
        prop_assert_eq!(name, inert::file_slug(&id));
    }
}
