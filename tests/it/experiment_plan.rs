//! What a plan makes of an experiment file: arms, cells, order, identity, text.
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use inferlab::experiment::{self, IdentityInputs, Plan};
use inferlab::target::config::{TargetConfig, TargetEntry};

use crate::experiment_cases::{SMALL, TWO_ARMS, every_endpoint_key, load, plan, rendered, replaced, seen};

#[test]
fn swept_keys_multiply_into_named_arms() {
    let text = replaced("max_context: 1024", "max_context: [1024, 2048], kv_dtype: [f32, bf16], prefill_chunk: [64]");
    let names = |text: &str| plan(text).expect("planned").arms.iter().map(|arm| arm.name.clone()).collect::<Vec<_>>();
    assert_eq!(
        names(&text),
        [
            "base+max_context=1024+kv_dtype=f32",
            "base+max_context=1024+kv_dtype=bf16",
            "base+max_context=2048+kv_dtype=f32",
            "base+max_context=2048+kv_dtype=bf16"
        ]
    );
    let arms = "schema: 1\narms: [{name: a}, {name: b, override: {in_process: {kv_dtype: [bf16], scheduler: [serial, mixed]}}}]";
    let plan = plan(&text.replace("schema: 1", arms).replace("[1024, 2048]", "1024")).expect("planned");
    let seen: Vec<_> = plan
        .arms
        .iter()
        .map(|arm| {
            let TargetConfig::InProcess(target) = &arm.target else { panic!("in process") };
            (arm.name.as_str(), target.kv_dtype.word(), target.scheduler.word(), target.prefill_chunk)
        })
        .collect();
    assert_eq!(
        seen,
        [
            ("a+kv_dtype=f32", "f32", "serial", 64),
            ("a+kv_dtype=bf16", "bf16", "serial", 64),
            ("b+scheduler=serial", "bf16", "serial", 64),
            ("b+scheduler=mixed", "bf16", "mixed", 64)
        ]
    );
}

#[test]
fn an_override_is_deep_and_replaces_lists() {
    let text = every_endpoint_key().replace("  - name: fair", "  - name: fair\n    override: {endpoint: {timeouts: {idle: 5s}, launch: {command: [./other], env: {A: b}, ready: {path: /up}}}}");
    let experiment = load(&text).unwrap_or_else(|error| panic!("{}", rendered(&error)));
    let (TargetEntry::Endpoint(base), Some(TargetEntry::Endpoint(over))) =
        (&experiment.target, &experiment.arms.as_ref().expect("arms")[1].over)
    else {
        panic!("endpoints")
    };
    let merged = serde_json::to_value(over.over(base)).expect("json");
    assert_eq!(
        merged["timeouts"],
        serde_json::json!({"connect": "5s", "first_byte": "10m", "idle": "5s", "total": "30m"})
    );
    assert_eq!(merged["launch"]["command"], serde_json::json!(["./other"]));
    assert_eq!(merged["launch"]["env"], serde_json::json!({"A": "b", "CUDA_VISIBLE_DEVICES": "0"}));
    assert_eq!(merged["launch"]["ready"], serde_json::json!({"path": "/up", "timeout": "10m"}));
    assert_eq!(merged["model"], "4090");
}

#[test]
fn a_noise_floor_adds_a_copy_of_the_first_arm() {
    let plan = plan(&replaced("schema: 1", "schema: 1\nnoise_floor: true\narms: [{name: a}, {name: b}]\nrepeats: 6"))
        .expect("planned");
    let names: Vec<_> = plan.arms.iter().map(|arm| (arm.name.as_str(), arm.copy_of.as_deref())).collect();
    assert_eq!(names, [("a", None), ("b", None), ("a+copy", Some("a"))]);
    assert_eq!(plan.arms[0].target, plan.arms[2].target);
    assert_eq!(plan.visits.len(), 18);
}

#[test]
fn cells_are_named_after_the_axes_that_vary() {
    let ids = |workloads: &str| {
        let (head, _) = SMALL.split_once("workloads:").expect("workloads");
        plan(&format!("{head}workloads:\n{workloads}"))
            .unwrap_or_else(|error| panic!("{}", rendered(&error)))
            .cells
            .iter()
            .map(|cell| cell.id.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(ids("  - decode_scaling: {}\n"), ["decode_scaling/c1", "decode_scaling/c2", "decode_scaling/c4"]);
    assert_eq!(
        ids("  - prefill_scaling: {prompt_tokens: [64, 512]}\n"),
        ["prefill_scaling/p64", "prefill_scaling/p512"]
    );
    assert_eq!(ids("  - prefill_scaling: {prompt_tokens: 64}\n"), ["prefill_scaling/p64"]);
    assert_eq!(ids("  - decode_scaling: {load: {closed: {concurrency: 2}}}\n"), ["decode_scaling/c2"]);
    assert_eq!(
        ids("  - decode_scaling: {load: {closed: {concurrency: [1, 2]}}, prompt_tokens: [8, 16]}\n").join(" "),
        "decode_scaling/c1-p8 decode_scaling/c1-p16 decode_scaling/c2-p8 decode_scaling/c2-p16"
    );
    assert_eq!(
        ids("  - decode_scaling: {load: {closed: {concurrency: 1}}, completion_tokens: [8, 16]}\n"),
        ["decode_scaling/n8", "decode_scaling/n16"]
    );
    assert_eq!(
        ids("  - prefill_scaling: {load: {closed: {concurrency: [1, 2]}}, prompt_tokens: 64}\n"),
        ["prefill_scaling/c1", "prefill_scaling/c2"]
    );
    assert_eq!(
        ids("  - prefill_scaling: {prompt_tokens: 64}\n  - prefill_scaling: {prompt_tokens: 64}\n"),
        ["prefill_scaling/p64", "prefill_scaling-2/p64"]
    );
}

#[test]
fn a_cell_that_an_arm_cannot_hold_is_refused_before_anything_runs() {
    let error = plan(&replaced("[128]", "[128, 1024]")).expect_err("1024 + 1 tokens in a context of 1024");
    let (path, line, _, marked, help) = seen(&error);
    assert_eq!((path.as_str(), line, marked.as_str()), ("workloads[0].prefill_scaling.prompt_tokens[1]", 7, "1024"));
    assert!(help.contains("`target.in_process.max_context` to 1025"), "{help}");
    plan(&replaced("[128]", "[128, 1023]")).expect("1023 + 1 fit");
    let error = plan(&replaced("concurrency: 1", "concurrency: 5")).expect_err("five lanes of four");
    let (path, _, _, marked, help) = seen(&error);
    assert_eq!((path.as_str(), marked.as_str()), ("workloads[0].prefill_scaling.load.closed.concurrency", "5"));
    assert!(help.contains("`target.in_process.max_concurrency` to 5"), "{help}");
    // The arm's own override is named where it decides.
    let arms = "schema: 1\narms: [{name: a}, {name: b, override: {in_process: {max_context: 100}}}]";
    let error = plan(&replaced("schema: 1", arms)).expect_err("arm b is short");
    assert!(seen(&error).4.contains("`arms[1].override.in_process.max_context`"), "{}", rendered(&error));
    let error = plan(&replaced("max_context: 1024", "kv_capacity: 100")).expect_err("129 tokens in a cache of 100");
    assert!(seen(&error).4.contains("kv_capacity"), "{}", rendered(&error));
}

#[test]
fn axes_that_multiply_without_bound_are_refused() {
    let many = format!("[{}]", (1..=900).map(|n| n.to_string()).collect::<Vec<_>>().join(", "));
    let error = plan(&replaced("[128]", &many).replace("concurrency: 1", &format!("concurrency: {many}")))
        .expect_err("810 000 cells");
    assert_eq!(seen(&error).0, "workloads[0]");
    let error = plan(&replaced("max_context: 1024", &format!("max_context: {many}, max_concurrency: {many}")))
        .expect_err("810 000 arms");
    assert_eq!(seen(&error).0, "target");
    let error = plan(&replaced("requests: 2", "requests: 1000000").replace("schema: 1", "schema: 1\nrepeats: 10000"))
        .expect_err("more than 31 bits");
    assert_eq!(seen(&error).0, "workloads");
}

#[test]
fn the_identity_follows_what_is_asked_and_nothing_else() {
    let identity = |text: &str, inputs: &IdentityInputs| {
        plan(text).unwrap_or_else(|error| panic!("{}", rendered(&error))).identity(inputs)
    };
    let none = IdentityInputs::default();
    let base = identity(TWO_ARMS, &none);
    assert_eq!((base.hex.len(), base.sha256.len()), (6, 64));
    assert_eq!(base, identity(TWO_ARMS, &none));
    // Not part of it: name, question, report, timeouts, limits, the way a default is written.
    for (from, to) in [
        ("name: prefill-warm", "name: other"),
        ("Is this file read as meant?", "Why?"),
        ("schema: 1", "schema: 1\nreport: {formats: [md]}\nlimits: {max_duration: 1h}\ntext: hash"),
        ("max_context: 16384", "max_context: 16384, pending_timeout: 1s"),
        ("max_context: 16384", "max_context: [16384], scheduler: serial"),
    ] {
        assert_eq!(base.sha256, identity(&TWO_ARMS.replace(from, to), &none).sha256, "{to}");
    }
    // Part of it, each with the key that differs.
    for (from, to, key) in [
        ("seed: 1\n", "seed: 2\n", "seed"),
        ("repeats: 3", "repeats: 4", "repeats"),
        ("schema: 1", "schema: 1\norder: sequential", "order"),
        ("schema: 1", "schema: 1\nsampling: {top_k: 5}", "sampling.top_k"),
        (
            "max_context: 16384",
            "max_context: 16384, prefill_chunk: 64",
            "arms.base+kv_dtype=f32.in_process.prefill_chunk",
        ),
        ("requests: 3", "requests: 4", "workloads.prefill_scaling/p64.prefill_scaling.requests"),
        ("concurrency: 2", "concurrency: 1", "workloads.decode_scaling/c1.decode_scaling.load.closed.concurrency"),
        (
            "shape: tiny-llama, seed: 1",
            "shape: tiny-llama, seed: 9",
            "arms.base+kv_dtype=bf16.in_process.model.synthetic.seed",
        ),
    ] {
        let other = identity(&TWO_ARMS.replace(from, to), &none);
        assert_ne!(base.sha256, other.sha256, "{to}");
        assert_ne!(base.parts.get(key), other.parts.get(key), "{to}");
    }
    // The model's md5 stands for its name and path.
    let md5 = |md5: &str| IdentityInputs {
        model_md5: ["base+kv_dtype=f32", "base+kv_dtype=bf16"].map(|arm| (arm.to_owned(), md5.to_owned())).into(),
        target_version: BTreeMap::new(),
    };
    let named = |name: &str| TWO_ARMS.replace("{synthetic: {shape: tiny-llama, seed: 1}}", name);
    assert_eq!(
        identity(&named("a.gguf"), &md5("d41d")).sha256,
        identity(&named("/elsewhere/b.gguf"), &md5("d41d")).sha256
    );
    assert_ne!(identity(&named("a.gguf"), &md5("d41d")).sha256, identity(&named("a.gguf"), &md5("ffff")).sha256);
    let mut version = none.clone();
    version.target_version.insert("base+kv_dtype=f32".to_owned(), "b1234".to_owned());
    assert_ne!(base.sha256, identity(TWO_ARMS, &version).sha256);
}

#[test]
fn the_plan_in_the_header_says_what_each_cell_is() {
    let planned = plan(TWO_ARMS).expect("planned").planned();
    let cells: Vec<_> = planned
        .cells
        .iter()
        .map(|cell| {
            (
                cell.id.as_str(),
                cell.concurrency,
                cell.prompt_tokens,
                cell.completion_tokens,
                cell.requests,
                cell.warmup,
                cell.cold,
            )
        })
        .collect();
    assert_eq!(
        cells,
        [
            ("prefill_scaling/p64", 1, 64, 1, 3, 1, true),
            ("prefill_scaling/p2048", 1, 2048, 1, 3, 1, true),
            ("decode_scaling/c2", 2, 64, 8, 8, 2, true)
        ]
    );
    let visits: Vec<_> = planned
        .visits
        .iter()
        .map(|visit| format!("{} {}", visit.repeat, visit.arm.trim_start_matches("base+kv_dtype=")))
        .collect();
    assert_eq!(visits, ["0 f32", "0 bf16", "1 bf16", "1 f32", "2 f32", "2 bf16"]);
    assert_eq!(planned.arms[0].target["in_process"]["kv_dtype"], "f32");
    assert_eq!(planned.limits.max_duration_s, Some(14_400.0));
    let json = serde_json::to_string(&planned).expect("json");
    assert_eq!(serde_json::from_str::<inferlab::record::PlannedRun>(&json).expect("read back"), planned);
}

#[test]
fn the_plan_as_text_shows_arms_cells_order_and_sums() {
    let plan = plan(TWO_ARMS).expect("planned");
    insta::assert_snapshot!(experiment::text(&plan), @r"
    prefill-warm: Is this file read as meant?
    seed 1, 3 repeats, order abba

    arms
      base+kv_dtype=f32   in process, synthetic tiny-llama (seed 1), device auto, threads auto, context 16384 tok, 4 sequences, KV f32 (auto), prefill chunk 512 tok, serial
      base+kv_dtype=bf16  in process, synthetic tiny-llama (seed 1), device auto, threads auto, context 16384 tok, 4 sequences, KV bf16 (auto), prefill chunk 512 tok, serial

    cells, in each repeat of each arm
      cell                   in flight  prompt tok  completion tok  warm-up req  measured req
      prefill_scaling/p64            1          64               1            1             3
      prefill_scaling/p2048          1        2048               1            1             3
      decode_scaling/c2              2          64               8            2             8

    order
      repeat 0: base+kv_dtype=f32, base+kv_dtype=bf16
      repeat 1: base+kv_dtype=bf16, base+kv_dtype=f32
      repeat 2: base+kv_dtype=f32, base+kv_dtype=bf16

    launches  6
    requests  84 measured, 24 warm-up
    tokens    54528 prompt, 528 completion, warm-up included
    disk      about 179 kB
    time      unknown
    ");
    let json = experiment::json(&plan);
    assert_eq!(json["requests"], serde_json::json!({"warmup": 24, "measured": 84}));
    assert_eq!(json["launches"], 6);
    assert_eq!(json["time_s"], serde_json::Value::Null);
}

#[test]
fn hostile_text_in_a_question_is_inert_in_the_plan() {
    let plan =
        plan(&replaced("question: Is this file read as meant?", "question: \"\\e[2J\\e]52;c;AAAA\\a\\u202Eevil\""))
            .expect("planned");
    let text = experiment::text(&plan);
    assert!(
        text.chars().all(|letter| letter == '\n' || !letter.is_control()) && !text.contains('\u{202e}'),
        "{text:?}"
    );
}

#[test]
fn every_suite_of_the_project_can_be_planned() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("suites");
    let mut names = BTreeSet::new();
    for entry in std::fs::read_dir(folder).expect("suites/") {
        let path = entry.expect("an entry").path();
        let experiment = experiment::load(&path, &[]).unwrap_or_else(|error| panic!("{}", rendered(&error)));
        assert_eq!(
            path.file_stem().and_then(|stem| stem.to_str()),
            Some(experiment.name.as_str()),
            "a suite is named after its file"
        );
        Plan::new(&experiment, &[]).unwrap_or_else(|error| panic!("{}", rendered(&error)));
        names.insert(experiment.name);
    }
    for name in ["quickstart", "smollm2", "smollm2-kv", "llama-server"] {
        assert!(names.contains(name), "suites/{name}.yaml");
    }
}
