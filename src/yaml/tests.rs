use serde::Deserialize;

use super::*;

#[derive(Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct Sample {
    text: String,
    #[serde(default)]
    count: Option<u32>,
    #[serde(default)]
    swept: Option<Axis<u32>>,
    #[serde(default)]
    rate: Option<Finite>,
    #[serde(default)]
    wait: Option<HumanDuration>,
    #[serde(default)]
    on: Option<bool>,
    #[serde(default)]
    inner: Option<Vec<Shape>>,
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(rename_all = "snake_case")]
enum Shape {
    Plain,
    Round(Round),
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct Round {
    radius: u32,
}

fn read(text: &str) -> Result<Sample, YamlError> {
    Source::new("sample.yaml", text.as_bytes())?.parse()
}

fn fails(text: &str) -> YamlError {
    match read(text) {
        Ok(sample) => panic!("read as {sample:?}: {text}"),
        Err(error) => error,
    }
}

/// Line, column and the marked text of an error.
fn marked(error: &YamlError) -> (usize, usize, String) {
    let place = error.place().expect("an error with a place");
    let (line, column) = place.line_column();
    (line, column, place.marked().to_owned())
}

fn help(error: &YamlError) -> String {
    miette::Diagnostic::help(error).map(|help| help.to_string()).unwrap_or_default()
}

#[test]
fn a_byte_order_mark_loses_no_key() {
    assert_eq!(read("\u{feff}text: a\ncount: 2\n").expect("read").count, Some(2));
}

#[test]
fn text_keeps_the_face_of_a_number() {
    for text in ["1.10", "012", "0x10", "1e3", "12:30", "1_000", ".inf", "4090"] {
        assert_eq!(read(&format!("text: {text}\n")).expect("read").text, text);
    }
}

#[test]
fn a_number_with_an_odd_face_is_refused_with_the_way_to_write_it() {
    for (written, hint) in [
        ("012", "write 12, or 0o12"),
        ("1_000", "1000"),
        ("12:30", "base 60"),
        ("1e3", "whole number: 1000"),
        ("1.5", "whole number"),
        ("-1", "negative"),
        ("\"7\"", "remove the quotes: 7"),
    ] {
        for key in ["count", "swept"] {
            let error = fails(&format!("text: a\n{key}: {written}\n"));
            assert_eq!(marked(&error), (2, key.len() + 3, written.to_owned()), "{error}");
            assert_eq!(error.path(), Some(key));
            assert!(help(&error).contains(hint), "{written}: {}", help(&error));
        }
    }
}

#[test]
fn infinity_and_nan_are_refused_where_they_stand() {
    for written in [".inf", "-.inf", ".nan"] {
        let error = fails(&format!("text: a\nrate: {written}\n"));
        assert_eq!(marked(&error), (2, 7, written.to_owned()));
        assert_eq!(error.path(), Some("rate"));
        assert!(error.to_string().contains("finite"), "{error}");
    }
    assert_eq!(read("text: a\nrate: 2\n").expect("read").rate, Some(Finite(2.0)));
}

#[test]
fn a_quoted_boolean_is_not_true() {
    let error = fails("text: a\non: \"false\"\n");
    assert_eq!(marked(&error), (2, 5, "\"false\"".to_owned()));
    assert_eq!(help(&error), "remove the quotes: false");
}

#[test]
fn an_unknown_key_names_its_path_and_the_nearest_key() {
    let error = fails("text: a\ninner:\n  - round: {radios: 1}\n");
    assert_eq!(error.path(), Some("inner[0].round.radios"));
    assert_eq!(marked(&error), (3, 13, "radios".to_owned()));
    assert!(help(&error).starts_with("did you mean `radius`?"), "{}", help(&error));
    let error = fails("text: a\ninner: [rund]\n");
    assert!(matches!(&error, YamlError::UnknownWord { found, .. } if found == "rund"), "{error:?}");
    assert_eq!(marked(&error), (2, 9, "rund".to_owned()));
    assert!(help(&error).contains("`round`") && help(&error).contains("`plain`"));
    // Nothing is near: no guess, but all that is allowed.
    let error = fails("text: a\nzzzzzzzzzz: 1\n");
    assert!(!help(&error).contains("did you mean") && help(&error).contains("`swept`"), "{}", help(&error));
}

#[test]
fn an_enum_of_two_keys_is_refused() {
    let error = fails("text: a\ninner:\n  - round: {radius: 1}\n    plain: 1\n");
    assert!(help(&error).contains("one key"), "{error:?} {}", help(&error));
    assert_eq!(marked(&error).0, 3);
}

#[test]
fn a_missing_key_is_named_with_its_path() {
    let error = fails("text: a\ninner: [{round: {}}]\n");
    assert!(matches!(&error, YamlError::MissingKey { path, .. } if path == "inner[0].round.radius"), "{error:?}");
    assert_eq!(marked(&error).0, 2);
}

#[test]
fn a_key_that_stands_twice_is_shown_at_both_places() {
    let error = fails("text: a\ncount: 1\ntext: b\n");
    assert_eq!(marked(&error), (3, 1, "text".to_owned()));
    let labels: Vec<usize> = miette::Diagnostic::labels(&error).expect("labels").map(|label| label.offset()).collect();
    assert_eq!(labels, [17, 0]);
    let error = fails("text: a\ninner: [{round: {radius: 1, radius: 2}}]\n");
    assert_eq!(error.path(), Some("inner[0].round.radius"));
    assert_eq!(marked(&error).1, 29);
}

#[test]
fn an_empty_file_is_no_experiment() {
    for text in ["", "\n\n", "# nothing\n", "---\n", "--- # x\n...\n", "\u{feff}", "null\n", "~"] {
        assert!(matches!(fails(text), YamlError::Empty { .. }), "{text:?} {:?}", fails(text));
    }
    for text in ["- a\n", "just text\n", "[1]\n", "7\n"] {
        assert!(matches!(fails(text), YamlError::NotAMap { .. }), "{text:?}");
    }
}

#[test]
fn a_second_document_is_shown_where_it_starts() {
    for (text, line) in [
        ("text: a\n---\ntext: b\n", 2),
        ("---\ntext: a\n---\n", 3),
        ("--- # first\ntext: '---'\n# x\n\n--- {text: b}\n", 5),
        ("text: |\n  ---\n  x\n---\n# nothing\n", 4),
    ] {
        let error = fails(text);
        assert!(matches!(error, YamlError::SecondDocument { .. }), "{text:?} {error:?}");
        assert_eq!(marked(&error), (line, 1, "---".to_owned()), "{text:?}");
    }
    let error = fails("text: a\n...\ntext: b\n");
    assert!(matches!(error, YamlError::SecondDocument { .. }) && marked(&error).0 == 3, "{error:?}");
    assert_eq!(read("---\ntext: a\n...\n").expect("one document").text, "a");
}

#[test]
fn merge_keys_tags_and_empty_values_are_refused_where_they_stand() {
    let error = fails("text: a\ninner:\n  - &r {round: {radius: 1}}\n  - {<<: *r}\n");
    assert!(matches!(error, YamlError::MergeKey { .. }), "{error:?}");
    assert_eq!(marked(&error).0, 4);
    let error = fails("text: a\ncount: !!str 5\ninner: [!round {radius: 1}]\n");
    assert!(matches!(error, YamlError::Tag { .. }), "{error:?}");
    for nothing in ["", " ~", " null", " # later"] {
        let error = fails(&format!("text: a\ncount:{nothing}\nrate: 1\n"));
        assert!(matches!(&error, YamlError::NoValue { path, .. } if path == "count"), "{error:?}");
        assert_eq!(marked(&error), (2, 1, "count".to_owned()));
    }
}

#[test]
fn an_alias_repeats_its_anchor() {
    assert_eq!(
        read("text: &t a\ninner: [{round: &r {radius: 3}}, {round: *r}]\n").expect("read").inner.map(|list| list.len()),
        Some(2)
    );
}

#[test]
fn aliases_cannot_multiply_without_bound() {
    let mut text = "text: a\na0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..40 {
        text += &format!("a{level}: &a{level} [{}]\n", vec![format!("*a{}", level - 1); 10].join(", "));
    }
    let error = fails(&text);
    assert!(matches!(error, YamlError::TooMany { .. } | YamlError::Syntax { .. }), "{error:?}");
}

#[test]
fn deep_nesting_is_refused_before_a_parser_sees_it() {
    for (open, close) in [("[", "]"), ("{a: ", "}"), ("[{a: ", "}]")] {
        for depth in [65, 2_000, 100_000] {
            // One line of brackets, and one bracket a line.
            for end in ["", "\n "] {
                let text = format!("text: {}{}\n", format!("{open}{end}").repeat(depth), close.repeat(depth));
                let error = fails(&text);
                assert!(
                    matches!(
                        error,
                        YamlError::TooDeep { .. } | YamlError::LongLine { .. } | YamlError::TooLarge { .. }
                    ),
                    "{open} {depth} {error:?}"
                );
            }
        }
    }
    let blocks: String = (0..200).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect();
    assert!(matches!(fails(&blocks), YamlError::TooDeep { .. }));
    // A quote that YAML does not take for one hides nothing.
    let hidden = format!("text: it's {{\nswept: {}\n", "[".repeat(3_000));
    assert!(matches!(fails(&hidden), YamlError::TooDeep { .. }));
}

#[test]
fn brackets_in_quotes_and_comments_nest_nothing() {
    let brackets = "[".repeat(100);
    assert_eq!(read(&format!("text: \"{brackets}\" # {brackets}\n")).expect("read").text, brackets);
    assert_eq!(
        read(&format!("text: '{brackets} ''{brackets}'\n")).expect("read").text,
        format!("{brackets} '{brackets}")
    );
}

#[test]
fn a_file_over_the_cap_is_refused_by_size() {
    let text = format!("text: a\n#{}\n", "x".repeat(MAX_BYTES));
    assert!(matches!(fails(&text), YamlError::TooLarge { .. }));
}

#[test]
fn a_line_without_end_is_refused_by_number() {
    let error = fails(&format!("text: a\nswept: [{}1]\n", "1, ".repeat(40_000)));
    assert!(matches!(error, YamlError::LongLine { line: 2, .. }), "{error:?}");
    let line = format!("text: {}\n", "x".repeat(MAX_LINE - 6));
    assert_eq!(read(&line).expect("the longest line").text.len(), MAX_LINE - 6);
}

#[test]
fn bytes_that_are_no_text_are_shown_where_they_stand() {
    let error = Source::new("x", b"text: a\ncount: \xff\n").expect_err("not UTF-8");
    assert!(matches!(error, YamlError::NotUtf8 { .. }));
    assert_eq!(error.place().expect("a place").line_column(), (2, 8));
    let error = Source::new("x", b"\xff\xfet\0e\0x\0t\0").expect_err("UTF-16");
    assert!(matches!(error, YamlError::NotUtf8 { .. }));
    let error = Source::new("x", b"text: a\ncount: \x1b[2J\n").expect_err("an escape");
    assert!(matches!(error, YamlError::Control { found: '\u{1b}', .. }), "{error:?}");
    assert_eq!(error.place().expect("a place").line_column(), (2, 8));
}

#[test]
fn places_count_characters_and_not_bytes() {
    let error = fails("text: 世界 # é\ncount: 世界\n");
    assert_eq!(marked(&error), (2, 8, "世界".to_owned()));
}

#[test]
fn a_duration_wants_its_unit() {
    assert_eq!(read("text: a\nwait: 4h\n").expect("read").wait, Some(HumanDuration::seconds(14_400)));
    assert_eq!(read("text: a\nwait: 1m 30s\n").expect("read").wait, Some(HumanDuration::seconds(90)));
    for written in ["10", "soon", "0s", "-5s", "99999999999999999999h"] {
        let error = fails(&format!("text: a\nwait: {written}\n"));
        assert_eq!(marked(&error), (2, 7, written.to_owned()), "{error}");
    }
}

#[test]
fn an_axis_is_a_value_or_a_list_without_repetition() {
    assert_eq!(read("text: a\nswept: 3\n").expect("read").swept, Some(Axis::One(3)));
    assert_eq!(read("text: a\nswept: [3, 4]\n").expect("read").swept, Some(Axis::Many(vec![3, 4])));
    for (written, what) in [("[]", "empty"), ("[1, 2, 1]", "number 3")] {
        let error = fails(&format!("text: a\nswept: {written}\n"));
        assert!(error.to_string().contains(what), "{error}");
        assert_eq!(marked(&error).0, 2);
    }
    let error = fails("text: a\nswept: [1, two]\n");
    assert_eq!(error.path(), Some("swept[1]"));
    assert_eq!(marked(&error), (2, 12, "two".to_owned()));
}

#[test]
fn a_path_is_found_again_or_its_deepest_part_is() {
    let source =
        Source::new("x", b"text: a\ninner:\n  - plain\n  - round:\n      radius: 5 # five\n").expect("checked");
    let path = KeyPath::parse("inner[1].round.radius");
    assert_eq!((source.key(&path).line_column(), source.key(&path).marked()), ((5, 7), "radius"));
    assert_eq!((source.value(&path).line_column(), source.value(&path).marked()), ((5, 15), "5"));
    assert_eq!(source.value(&KeyPath::parse("inner.0")).line_column(), (3, 5));
    assert_eq!(source.value(&KeyPath::parse("inner[1].round.nothing.more")).line_column(), (5, 7));
    assert_eq!(source.value(&KeyPath::parse("inner[9]")).line_column(), (3, 3));
    assert_eq!(source.value(&KeyPath::root()).line_column(), (1, 1));
    assert_eq!(KeyPath::parse("inner.1.round").to_string(), "inner[1].round");
}

#[test]
fn a_credential_is_not_spread_by_an_error_beside_it() {
    let text = "text: a\napi_key: sk-live-0123456789\nurl: http://me:pass@host/\npassword: 'hunter2'\nother: hf_abcdefghijkl\napi_key_env: s3cret-value\ncont: 1\n";
    let error = fails(text);
    let mut all = String::new();
    let handler =
        miette::GraphicalReportHandler::new_themed(miette::GraphicalTheme::unicode_nocolor()).with_context_lines(20);
    handler.render_report(&mut all, &error).expect("rendered");
    assert!(all.contains("api_key: ***"), "{all}");
    for secret in ["sk-live", "0123456789", "pass@", "hunter2", "abcdefghijkl", "s3cret"] {
        assert!(!all.contains(secret), "{secret} in {all}");
    }
    assert!(all.contains("api_key_env"), "the way out is named: {all}");
}

#[test]
fn hostile_text_is_inert_in_messages() {
    let error = fails("text: a\n\"\\e[2J\\u202Ekey\": 1\n");
    let shown = format!("{:?}", miette::Report::new(error));
    assert!(!shown.contains("\u{1b}[2J") && !shown.contains('\u{202e}'), "{shown:?}");
    let error = fails("text: a\n\u{202e}key: 1\n");
    let shown = format!("{:?}", miette::Report::new(error));
    assert!(!shown.contains('\u{202e}'), "{shown:?}");
}

#[test]
fn the_report_of_an_error_shows_the_line_and_the_caret() {
    let mut all = String::new();
    let error = fails("text: a\n\ncuont: 3\n");
    miette::GraphicalReportHandler::new_themed(miette::GraphicalTheme::unicode_nocolor())
        .render_report(&mut all, &error)
        .expect("rendered");
    let lines: Vec<&str> = all.lines().map(str::trim).collect();
    assert_eq!(
        lines,
        [
            "× unknown key `cuont`",
            "╭─[sample.yaml:3:1]",
            "2 │",
            "3 │ cuont: 3",
            "· ──┬──",
            "·   ╰── no such key",
            "╰────",
            "help: did you mean `count`? allowed here: `text`, `count`, `swept`, `rate`, `wait`, `on`, `inner`"
        ]
    );
    let mut all = String::new();
    miette::GraphicalReportHandler::new_themed(miette::GraphicalTheme::unicode_nocolor())
        .render_report(&mut all, &fails(""))
        .expect("rendered");
    assert!(all.contains("empty"), "{all}");
}
