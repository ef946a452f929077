//! `--set` and `--only`.
use inferlab::experiment::{ExperimentError, Plan};

use crate::experiment_cases::{MapToStrings, SMALL, load, load_with, rendered, replaced, seen};

#[test]
fn set_lays_a_typed_value_over_the_file() {
    let set = |sets: &[&str]| load_with(SMALL, sets);
    assert_eq!(set(&["repeats=3"]).expect("set").repeats, 3);
    assert_eq!(set(&["repeats=3", "repeats=4"]).expect("the last wins").repeats, 4);
    let plan = Plan::new(
        &set(&[
            "target.in_process.kv_dtype=[f32, bf16]",
            "workloads.0.prefill_scaling.prompt_tokens[0]=64",
            "sampling.temperature=0.5",
            "target.in_process.model=smollm2-135m",
            "question=1.10",
        ])
        .expect("set"),
        &[],
    )
    .expect("planned");
    assert_eq!(plan.arms.len(), 2);
    assert_eq!(plan.cells[0].id, "prefill_scaling/p64");
    assert_eq!(plan.experiment.question, "1.10");
    assert!((plan.experiment.sampling.temperature - 0.5).abs() < 1e-12);
}

#[test]
fn a_wrong_set_is_shown_in_the_argument_itself() {
    let cases: &[(&str, &str, &str, &str)] = &[
        (
            "target.in_process.kv_dtpye=f32",
            "target.in_process.kv_dtpye",
            "target.in_process.kv_dtpye",
            "did you mean `kv_dtype`?",
        ),
        ("traget.in_process.kv_dtype=f32", "traget", "traget.in_process.kv_dtype", "did you mean `target`?"),
        ("target.in_process.kv_dtype=f23", "target.in_process.kv_dtype", "f23", "did you mean `f32`?"),
        (
            "target.in_process.kv_dtype=[bf16, f23]",
            "target.in_process.kv_dtype[1]",
            "[bf16, f23]",
            "did you mean `f32`?",
        ),
        ("repeats=0", "repeats", "0", "from 1"),
        ("repeats=012", "repeats", "012", "write 12"),
        ("limits.max_failure_rate=.inf", "limits.max_failure_rate", ".inf", ""),
        ("repeats=null", "", "null", "as in the file"),
        ("repeats=\"3\"", "repeats", "\"3\"", "remove the quotes"),
        ("workloads.7.prefill_scaling.requests=1", "", "workloads.7.prefill_scaling.requests", "element that is there"),
        ("workloads.first.requests=1", "", "workloads.first.requests", "numbered from 0"),
        ("seed.x=1", "", "seed.x", "whole value"),
        ("repeats", "", "repeats", "KEY=VALUE"),
        ("repeats=", "", "repeats", "KEY=VALUE"),
        ("=3", "", "", "KEY=VALUE"),
        ("repeats=[1", "", "[1", "as in the file"),
        ("repeats=1\nseed: 4", "", "1", "as in the file"),
        ("target.in_process.prefix_cache=true", "target.in_process.prefix_cache", "true", "prefix_cache: false"),
    ];
    for (argument, path, marked, hint) in cases {
        let error = load_with(SMALL, &[argument])
            .and_then(|experiment| Plan::new(&experiment, &[]))
            .err()
            .unwrap_or_else(|| panic!("accepted {argument}"));
        let (seen_path, _, _, seen_marked, help) = seen(&error);
        assert_eq!(error.place().expect("a place").file(), "--set", "{argument}");
        assert_eq!((seen_path.as_str(), seen_marked.as_str()), (*path, *marked), "{}", rendered(&error));
        assert!(help.contains(hint), "{argument}: {help}");
    }
    // An error that no argument made is still shown in the file.
    let error = load_with(&replaced("max_context: 1024", "device: cuda:0"), &["repeats=2"])
        .and_then(|experiment| Plan::new(&experiment, &[]))
        .expect_err("cuda");
    assert_eq!(
        error.place().map(|place| (place.file().to_owned(), place.line_column().0)),
        Some(("suite.yaml".to_owned(), 5))
    );
}

#[test]
fn only_keeps_the_arms_and_cells_that_it_names() {
    let text = replaced("max_context: 1024", "kv_dtype: [f32, bf16]")
        .replace("workloads:\n", "workloads:\n  - decode_scaling: {}\n");
    let experiment = load(&text).expect("loaded");
    let kept = |only: &[&str]| {
        let plan = Plan::new(&experiment, &only.map_to_strings()).expect("planned");
        (
            plan.arms.len(),
            plan.cells.iter().map(|cell| cell.id.clone()).collect::<Vec<_>>().join(" "),
            plan.visits.len(),
        )
    };
    assert_eq!(kept(&[]).0, 2);
    assert_eq!(kept(&["base+kv_dtype=bf16"]).0, 1);
    assert_eq!(
        kept(&["base"]),
        (2, "decode_scaling/c1 decode_scaling/c2 decode_scaling/c4 prefill_scaling/p128".to_owned(), 12)
    );
    assert_eq!(kept(&["prefill_scaling", "base+kv_dtype=f32"]), (1, "prefill_scaling/p128".to_owned(), 6));
    assert_eq!(kept(&["decode_scaling/c2"]).1, "decode_scaling/c2");
    let error = Plan::new(&experiment, &["prefil_scaling".to_owned()]).expect_err("a typo");
    assert!(
        matches!(&error, ExperimentError::Only { help, .. } if help.starts_with("did you mean `prefill_scaling`?")),
        "{error:?}"
    );
}
