//! Figures: any data gives a picture, and what it says is readable.
use std::path::{Path, PathBuf};

use inferlab::plot::scene::{HEIGHT, Op, Scene, WIDTH};
use inferlab::plot::{Curve, DistributionChart, Horizontal, LineChart, Mark, Panel, Point, Series, Vertical, figures};
use proptest::prelude::*;

use crate::report_check::{controls, tags};
use crate::report_summary::{failed_run, full_run, invalid_synthetic_run, tail};

/// Where to leave the pictures for a person to look at: `INFERLAB_PICTURES=dir cargo test`.
fn leave(name: &str, scene: &Scene) {
    if let Some(dir) = std::env::var_os("INFERLAB_PICTURES") {
        let path = Path::new(&dir).join(format!("{name}.png"));
        scene.write_png(&path).expect("picture written");
        std::fs::write(path.with_extension("svg"), scene.to_svg(name, name).expect("svg")).expect("svg written");
    }
}

fn words(scene: &Scene) -> Vec<&str> {
    scene.ops.iter().filter_map(|op| if let Op::Words { text, .. } = op { Some(text.as_str()) } else { None }).collect()
}

fn says(scene: &Scene, wanted: &str) -> bool {
    words(scene).iter().any(|text| text.contains(wanted))
}

/// What cannot be read: words outside the canvas, or on top of other words.
fn unreadable(scene: &Scene) -> Vec<String> {
    let boxes: Vec<([f64; 4], &Op)> = scene.ops.iter().filter_map(|op| Some((Scene::words_box(op)?, op))).collect();
    let mut faults = vec![];
    for (index, (a, op)) in boxes.iter().enumerate() {
        if a[0] < 0.0 || a[1] < 0.0 || a[2] > WIDTH || a[3] > HEIGHT {
            faults.push(format!("outside: {op:?}"));
        }
        for (b, other) in &boxes[index + 1..] {
            if a[0] < b[2] - 1.0 && b[0] < a[2] - 1.0 && a[1] < b[3] - 1.0 && b[1] < a[3] - 1.0 {
                faults.push(format!("overlap: {op:?} and {other:?}"));
            }
        }
    }
    faults
}

/// Pixels of a PNG that are not paper, without a decoder of our own: painted twice, compared with an empty scene's file.
fn paints_something(scene: &Scene) -> bool {
    let dir = tempfile::tempdir().expect("temporary folder");
    let (full, empty) = (dir.path().join("a.png"), dir.path().join("b.png"));
    scene.write_png(&full).expect("painted");
    Scene::default().write_png(&empty).expect("painted");
    let (full, empty) = (std::fs::read(full).expect("read"), std::fs::read(empty).expect("read"));
    assert!(full.starts_with(b"\x89PNG\r\n\x1a\n") && full.ends_with(b"IEND\xaeB`\x82"));
    full != empty
}

fn line_chart(series: Vec<Series>) -> LineChart {
    LineChart {
        title: "Decode throughput by concurrency".into(),
        subtitle: "run · n = 4".into(),
        marks: vec![Mark::Invalid, Mark::SpeedOnly],
        x_name: "concurrency [requests in flight]".into(),
        horizontal: Horizontal::Counts,
        y_name: "decode [tok/s]".into(),
        vertical: Vertical::FromZero,
        series,
        linear_reference: true,
    }
}

fn series(name: &str, points: &[(f64, Option<f64>)]) -> Series {
    let points =
        points.iter().map(|(x, y)| Point { x: *x, y: *y, n: usize::from(y.is_some()), ..Point::default() }).collect();
    Series { name: name.to_owned(), points }
}

fn distribution(samples: Vec<(&str, Vec<f64>)>) -> DistributionChart {
    let curves = samples.into_iter().map(|(name, samples)| Curve {
        name: name.to_owned(),
        p50: samples.first().copied(),
        samples,
        p90: None,
    });
    let panel = Panel {
        heading: "Time to first token".into(),
        x_name: "TTFT [ms]".into(),
        of: "requests",
        curves: curves.collect(),
    };
    DistributionChart {
        title: "Latency distribution".into(),
        subtitle: "run".into(),
        marks: vec![],
        panels: vec![panel.clone(), panel],
    }
}

/// Points of a series by its name: place and value.
type NamedPoints = (String, Vec<(f64, Option<f64>)>);

/// The series of case B61 by name, and its label of 300 characters.
fn b61() -> Option<(Vec<NamedPoints>, String)> {
    let shared = std::env::var_os("INFERLAB_SHARED")
        .map_or(PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared")), PathBuf::from);
    let path = shared.join("cases/B61.series.json");
    let Ok(text) = std::fs::read_to_string(&path) else {
        eprintln!("skipped: no {}", path.display());
        return None;
    };
    let case: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let mut all = vec![];
    for (name, value) in case.as_object().expect("an object") {
        if let Some(points) = value.as_array() {
            all.push((name.clone(), points.iter().map(|p| (p[0].as_f64().expect("x"), p[1].as_f64())).collect()));
        }
    }
    Some((all, case["label"].as_str().expect("label").to_owned()))
}

#[test]
fn every_figure_of_a_run_is_readable_and_carries_its_marks() {
    for (name, run) in [("full", full_run()), ("invalid", invalid_synthetic_run()), ("failed", failed_run())] {
        let figures = figures(&run);
        assert!(figures.len() >= 5, "{name}: {}", figures.len());
        for figure in figures {
            assert_eq!(unreadable(&figure.scene), Vec::<String>::new(), "{name} {}", figure.slug);
            assert_eq!(says(&figure.scene, "SPEED ONLY: random weights"), run.synthetic, "{name} {}", figure.slug);
            assert_eq!(says(&figure.scene, "INVALID RUN"), name != "full", "{name} {}", figure.slug);
            assert_eq!(says(&figure.scene, "no data (n=0)"), name == "failed", "{name} {}", figure.slug);
            assert!(says(&figure.scene, &run.run_id), "{name} {}", figure.slug);
            assert!(says(&figure.scene, "n = ") || words(&figure.scene).contains(&"n"), "{name} {}", figure.slug);
            leave(&format!("{name}-{}", figure.slug), &figure.scene);
        }
    }
}

#[test]
fn b61_flat_single_empty_null_and_wide_series_and_long_labels_are_drawn() {
    let Some((all, label)) = b61() else { return };
    assert_eq!(
        all.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
        ["flat", "one", "empty", "nulls", "wide"]
    );
    for (name, points) in all {
        for vertical in [Vertical::FromZero, Vertical::Times] {
            let chart = LineChart {
                vertical,
                title: label.clone(),
                ..line_chart(vec![series(&label, &points), series(&name, &points)])
            };
            let scene = chart.scene();
            assert_eq!(unreadable(&scene), Vec::<String>::new(), "{name}");
            assert_eq!(says(&scene, "no data (n=0)"), name == "empty", "{name}");
            assert!(vertical == Vertical::Times || paints_something(&scene), "{name}");
            leave(&format!("b61-{name}-{vertical:?}"), &scene);
        }
        let values: Vec<f64> = points.iter().filter_map(|p| p.1).collect();
        let scene = distribution(vec![(&label, values.clone()), (&name, values)]).scene();
        assert_eq!(unreadable(&scene), Vec::<String>::new(), "{name}");
        leave(&format!("b61-{name}-distribution"), &scene);
    }
}

#[test]
fn a_line_without_values_says_so_in_the_legend() {
    let scene =
        line_chart(vec![series("a", &[(1.0, Some(5.0)), (2.0, Some(9.0))]), series("b", &[(1.0, None)])]).scene();
    assert!(says(&scene, "no data (n=0)"));
    assert!(!words(&scene).contains(&"0.00"));
}

#[test]
fn values_stand_beside_their_points() {
    let scene = line_chart(vec![series("a", &[(1.0, Some(41.2)), (2.0, Some(74.6))])]).scene();
    assert!(words(&scene).contains(&"41.2") && words(&scene).contains(&"74.6"), "{:?}", words(&scene));
}

#[test]
fn many_lines_are_counted_where_they_are_not_drawn() {
    let lines = (0..30)
        .map(|i| {
            series(
                &format!("arm {i} with a rather long name of its own"),
                &[(1.0, Some(f64::from(i))), (64.0, Some(f64::from(2 * i)))],
            )
        })
        .collect();
    let scene = line_chart(lines).scene();
    assert!(says(&scene, "first 14 of 30 lines; 16 only in the table"));
    assert_eq!(unreadable(&scene), Vec::<String>::new());
    leave("many-lines", &scene);
    let names: Vec<String> =
        (0..8).map(|i| format!("arm-with-a-long-name-{i}, concurrency {i}, prompt 128 tokens")).collect();
    let scene = distribution(
        names
            .iter()
            .enumerate()
            .map(|(i, name)| (name.as_str(), tail(300, 10.0 * (i + 1) as f64 * (i + 1) as f64, i as u32)))
            .collect(),
    )
    .scene();
    assert_eq!(unreadable(&scene), Vec::<String>::new());
    leave("many-curves", &scene);
}

#[test]
fn an_svg_is_one_inert_document_and_the_same_each_time() {
    let hostile = "</text><script>alert(1)</script>\u{1b}[2J\u{202e}&\"'";
    let scene = line_chart(vec![series(hostile, &[(1.0, Some(5.0)), (2.0, Some(9.0))])]).scene();
    let svg = scene.to_svg(hostile, hostile).expect("svg");
    assert_eq!(controls(&svg), "");
    assert!(tags(&svg).iter().all(|tag| !tag.name.contains("script")));
    assert_eq!(svg, scene.to_svg(hostile, hostile).expect("svg"));
    assert!(svg.contains("viewBox=\"0 0 2400 1400\"") && svg.contains("sans-serif"));
}

fn number() -> impl Strategy<Value = f64> {
    prop_oneof![any::<f64>(), -1e3..1e3f64, Just(0.0), Just(1e-9), Just(1e12), Just(5e-324), Just(f64::MAX)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_numbers_give_a_readable_line_chart(
        lines in prop::collection::vec(prop::collection::vec((number(), prop::option::of(number()), prop::option::of(number()), prop::option::of(number()), 0usize..9), 0..7), 0..4),
        names in prop::collection::vec(any::<String>(), 4),
        title in any::<String>(),
    ) {
        let lines = lines.into_iter().zip(names).map(|(points, name)| Series {
            name,
            points: points.into_iter().map(|(x, y, low, high, n)| Point { x, y, low, high, n }).collect(),
        });
        let chart = LineChart { title, ..line_chart(lines.collect()) };
        for (horizontal, vertical) in [(Horizontal::Counts, Vertical::FromZero), (Horizontal::Lengths, Vertical::Times)] {
            let scene = LineChart { horizontal, vertical, ..chart.clone() }.scene();
            prop_assert_eq!(unreadable(&scene), Vec::<String>::new());
            prop_assert!(words(&scene).iter().all(|text| controls(text).is_empty() && *text != "NaN" && *text != "inf"));
        }
    }

    #[test]
    fn any_numbers_give_a_readable_distribution(curves in prop::collection::vec(prop::collection::vec(number(), 0..30), 0..9), name in any::<String>()) {
        let scene = distribution(curves.into_iter().map(|samples| (name.as_str(), samples)).collect()).scene();
        prop_assert_eq!(unreadable(&scene), Vec::<String>::new());
        prop_assert!(words(&scene).iter().all(|text| *text != "NaN" && *text != "inf"));
    }
}
