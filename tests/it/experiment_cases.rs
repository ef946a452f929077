//! Experiment files against the contract: every key, and every failing input of the case collection.
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use inferlab::experiment::{self, Experiment, ExperimentError, IdentityInputs, Plan};
use inferlab::target::config::{Dialect, KvDtype, TargetConfig};
use inferlab::yaml::YamlError;

pub(crate) const EVERY_KEY: &str = include_str!("../fixtures/contracts/suite.every-key.yaml");

/// A small right file; tests replace parts of it.
pub(crate) const SMALL: &str = "\
schema: 1
name: small
question: Is this file read as meant?
seed: 1
target: {in_process: {model: {synthetic: {shape: tiny-llama, seed: 1}}, max_context: 1024}}
workloads:
  - prefill_scaling: {load: {closed: {concurrency: 1}}, prompt_tokens: [128], requests: 2}
";

pub(crate) fn load(text: &str) -> Result<Experiment, ExperimentError> {
    Experiment::from_bytes("suite.yaml", text.as_bytes(), &[])
}

pub(crate) fn load_with(text: &str, sets: &[&str]) -> Result<Experiment, ExperimentError> {
    Experiment::from_bytes("suite.yaml", text.as_bytes(), &sets.map_to_strings())
}

pub(crate) trait MapToStrings {
    fn map_to_strings(&self) -> Vec<String>;
}

impl MapToStrings for &[&str] {
    fn map_to_strings(&self) -> Vec<String> {
        self.iter().map(|text| (*text).to_owned()).collect()
    }
}

pub(crate) fn plan(text: &str) -> Result<Plan, ExperimentError> {
    Plan::new(&load(text)?, &[])
}

pub(crate) fn replaced(from: &str, to: &str) -> String {
    assert!(SMALL.contains(from), "{from}");
    SMALL.replace(from, to)
}

/// Two arms and cells of both workloads.
pub(crate) const TWO_ARMS: &str = "\
schema: 1
name: prefill-warm
question: Is this file read as meant?
seed: 1
repeats: 3
target: {in_process: {model: {synthetic: {shape: tiny-llama, seed: 1}}, max_context: 16384, kv_dtype: [f32, bf16]}}
workloads:
  - prefill_scaling: {load: {closed: {concurrency: 1}}, prompt_tokens: [64, 2048], requests: 3}
  - decode_scaling: {load: {closed: {concurrency: 2}}, prompt_tokens: 64, completion_tokens: 8}
";

/// Path, line, column and marked text of an error, and its help.
pub(crate) fn seen(error: &ExperimentError) -> (String, usize, usize, String, String) {
    let place = error.place().unwrap_or_else(|| panic!("no place: {error}"));
    let (line, column) = place.line_column();
    let help = miette::Diagnostic::help(error).map(|help| help.to_string()).unwrap_or_default();
    (error.path().unwrap_or("").to_owned(), line, column, place.marked().to_owned(), help)
}

pub(crate) fn rendered(error: &ExperimentError) -> String {
    let mut out = String::new();
    let handler =
        miette::GraphicalReportHandler::new_themed(miette::GraphicalTheme::unicode_nocolor()).with_context_lines(10);
    handler.render_report(&mut out, error).expect("rendered");
    out
}

/// The case collection, or nothing with a printed reason.
pub(crate) fn shared() -> Option<PathBuf> {
    let path = std::env::var_os("INFERLAB_SHARED")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared"), PathBuf::from);
    if path.join("cases/EXPECT.jsonl").is_file() {
        return Some(path);
    }
    println!("skipped: no case collection at {}", path.display());
    None
}

#[test]
fn every_yaml_case_gets_the_stated_answer_with_key_line_and_caret() {
    let Some(shared) = shared() else { return };
    let expected = std::fs::read_to_string(shared.join("cases/EXPECT.jsonl")).expect("EXPECT.jsonl");
    let mut files = 0;
    for line in expected.lines() {
        let case: serde_json::Value = serde_json::from_str(line).expect("a JSON line");
        if case["kind"] != "yaml" {
            continue;
        }
        for file in case["files"].as_array().expect("files").iter().filter_map(|file| file.as_str()) {
            files += 1;
            let path = shared.join("cases").join(file);
            let started = std::time::Instant::now();
            let result = experiment::load(&path, &[]).and_then(|experiment| Plan::new(&experiment, &[]));
            let ms = started.elapsed().as_secs_f64() * 1e3;
            println!("{file}: {ms:.1} ms");
            if case["verdict"] == "ok" {
                result.unwrap_or_else(|error| panic!("{file}: {error}"));
                continue;
            }
            let error = result.err().unwrap_or_else(|| panic!("{file} was accepted"));
            if let Some(most) = case["max_ms"].as_f64() {
                // Refused by size or by counting brackets, so no parser ran; the time is printed above.
                let before = matches!(
                    error,
                    ExperimentError::Yaml(
                        YamlError::TooLarge { .. } | YamlError::TooDeep { .. } | YamlError::LongLine { .. }
                    )
                );
                assert!(before, "{file} went to the parser, which may take more than {most} ms: {error:?}");
            }
            let Some(key) = case["keys"][file].as_str() else { continue };
            let text = std::fs::read_to_string(&path).expect("readable");
            let (number, written) =
                text.lines().enumerate().find(|(_, line)| line.contains(key)).expect("the key stands in the file");
            let (path, line, column, marked, help) = seen(&error);
            assert!(path.ends_with(key), "{file}: {path}");
            assert_eq!(line, number + 1, "{file}");
            let key_at = written.find(key).expect("found above") + 1;
            let value_at = key_at + key.len() + 2;
            assert!([key_at, value_at].contains(&column), "{file}: column {column} is neither the key nor its value");
            assert!(!marked.is_empty());
            if let Some(suggested) = case["suggest"][file].as_str() {
                assert!(help.starts_with(&format!("did you mean `{suggested}`?")), "{file}: {help}");
            }
        }
    }
    assert_eq!(files, 11, "the collection holds 11 YAML files of kind yaml");
}

#[test]
fn the_second_document_of_a_file_is_shown() {
    let error = load(&format!("{SMALL}---\n{SMALL}")).expect_err("two documents");
    assert!(matches!(error, ExperimentError::Yaml(YamlError::SecondDocument { .. })));
    let (_, line, column, marked, _) = seen(&error);
    assert_eq!((line, column, marked.as_str()), (8, 1, "---"));
}

/// Own variants of the cases: these bite without the collection too.
#[test]
fn odd_values_and_keys_are_refused_by_path_place_and_way_out() {
    let constant = |rate: &str| {
        replaced(
            "prefill_scaling: {load: {closed: {concurrency: 1}}, prompt_tokens: [128], requests: 2}",
            &format!(
                "decode_scaling: {{load: {{constant: {{rate_req_s: {rate}, duration: 10s}}}}, prompt_tokens: 64}}"
            ),
        )
    };
    let rate_path = "workloads[0].decode_scaling.load.constant.rate_req_s";
    let cases: Vec<(String, &str, usize, &str, &str)> = vec![
        (replaced("seed: 1\n", "seed: 012\n"), "seed", 4, "012", "write 12"),
        (replaced("seed: 1\n", "seed: 1_000\n"), "seed", 4, "1_000", "1000"),
        (replaced("seed: 1\n", "seed: 12:30\n"), "seed", 4, "12:30", "base 60"),
        (replaced("seed: 1\n", "seed: 1.10\n"), "seed", 4, "1.10", "whole number"),
        (replaced("seed: 1\n", "seed: 99999999999999999999\n"), "seed", 4, "99999999999999999999", ""),
        (constant(".inf"), rate_path, 7, ".inf", ""),
        (constant(".nan"), rate_path, 7, ".nan", ""),
        (constant("[1.0, .inf]"), "workloads[0].decode_scaling.load.constant.rate_req_s[1]", 7, ".inf", ""),
        (constant("0"), rate_path, 7, "0", "2.0"),
        (
            replaced("max_context: 1024", "prefix_cache: \"false\""),
            "target.in_process.prefix_cache",
            5,
            "\"false\"",
            "remove the quotes",
        ),
        (
            replaced("max_context: 1024", "max_context: \"1024\""),
            "target.in_process.max_context",
            5,
            "\"1024\"",
            "remove the quotes: 1024",
        ),
        (
            replaced("prompt_tokens", "promt_tokens"),
            "workloads[0].prefill_scaling.promt_tokens",
            7,
            "promt_tokens",
            "did you mean `prompt_tokens`?",
        ),
        (
            replaced("prefill_scaling", "prefil_scaling"),
            "workloads[0]",
            7,
            "prefil_scaling",
            "did you mean `prefill_scaling`?",
        ),
        (replaced("closed", "closd"), "workloads[0].prefill_scaling.load", 7, "closd", "did you mean `closed`?"),
        (replaced("in_process:", "inprocess:"), "target", 5, "inprocess", "did you mean `in_process`?"),
        (
            replaced("max_context: 1024", "kv_dtype: [f32, int9]"),
            "target.in_process.kv_dtype[1]",
            5,
            "int9",
            "did you mean `int8`?",
        ),
        (
            replaced("max_context: 1024", "kv_dtype: rk4v4_e8"),
            "target.in_process.kv_dtype",
            5,
            "rk4v4_e8",
            "did you mean `rk4v4-e8`?",
        ),
        (replaced("max_context: 1024", "device: gpu"), "target.in_process.device", 5, "gpu", "`cuda:0`"),
        (replaced("max_context: 1024", "scheduler: fair"), "target.in_process.scheduler", 5, "fair", "`mixed`"),
        (replaced("max_context: 1024", "threads: 0"), "target.in_process.threads", 5, "0", "auto"),
        (replaced("max_context: 1024", "pending_timeout: 600"), "target.in_process.pending_timeout", 5, "600", ""),
        (replaced("{synthetic: {shape: tiny-llama, seed: 1}}", "4090"), "target.in_process.model", 5, "4090", "quotes"),
        (
            replaced("{synthetic: {shape: tiny-llama, seed: 1}}", "{synthetic: {shpe: tiny-llama, seed: 1}}"),
            "target.in_process.model.synthetic.shpe",
            5,
            "shpe",
            "`shape`",
        ),
        (
            replaced("model: {synthetic: {shape: tiny-llama, seed: 1}}, ", ""),
            "target.in_process.model",
            5,
            "{",
            "required",
        ),
        (replaced("seed: 1\n", ""), "seed", 1, "schema", "required"),
        (replaced("requests: 2", "requests: 0"), "workloads[0].prefill_scaling.requests", 7, "0", "from 1"),
        (
            replaced("requests: 2", "requests: 4294967296"),
            "workloads[0].prefill_scaling.requests",
            7,
            "4294967296",
            "at most 4294967295",
        ),
        (replaced("[128]", "[]"), "workloads[0].prefill_scaling.prompt_tokens", 7, "[", ""),
        (replaced("[128]", "[128, 256, 128]"), "workloads[0].prefill_scaling.prompt_tokens", 7, "[", ""),
        (replaced("[128]", "[128, 0]"), "workloads[0].prefill_scaling.prompt_tokens[1]", 7, "0", "from 1"),
        (replaced("name: small", "name: Small Run"), "name", 2, "Small Run", "a-z"),
        (replaced("name: small", "name: ../x"), "name", 2, "../x", "a-z"),
        (replaced("schema: 1", "schema: 2"), "schema", 1, "2", "newer"),
        (replaced("schema: 1", "schema: 1\nrepeats: 0"), "repeats", 2, "0", "from 1"),
        (replaced("schema: 1", "schema: 1\nrepeats:"), "repeats", 2, "repeats", "default"),
        (replaced("schema: 1", "schema: 1\nschema: 1"), "schema", 2, "schema", "keep one"),
        (replaced("schema: 1", "schema: 1\nnoise_floor: \"true\""), "noise_floor", 2, "\"true\"", "remove the quotes"),
        (replaced("schema: 1", "schema: 1\norder: abab"), "order", 2, "abab", "did you mean `abba`?"),
        (
            replaced("schema: 1", "schema: 1\nsampling: {temperature: .nan}"),
            "sampling.temperature",
            2,
            ".nan",
            "from 0",
        ),
        (replaced("schema: 1", "schema: 1\nsampling: {top_p: 1.5}"), "sampling.top_p", 2, "1.5", "from 0 to 1"),
        (replaced("schema: 1", "schema: 1\nlimits: {max_failure_rate: 2}"), "limits.max_failure_rate", 2, "2", "share"),
        (
            replaced("schema: 1", "schema: 1\nlimits: {max_duration: 4 parsecs}"),
            "limits.max_duration",
            2,
            "4 parsecs",
            "",
        ),
        (replaced("schema: 1", "schema: 1\narms: []"), "arms", 2, "[", "delete"),
        (replaced("schema: 1", "schema: 1\narms: [{name: a}, {name: a}]"), "arms[1].name", 2, "a", "own"),
        (
            replaced("schema: 1", "schema: 1\narms: [{name: a, override: {endpoint: {model: x}}}]"),
            "arms[0].override",
            2,
            "{",
            "two experiments",
        ),
        (
            replaced("schema: 1", "schema: 1\narms: [{name: a, override: {in_process: {sheduler: mixed}}}]"),
            "arms[0].override.in_process.sheduler",
            2,
            "sheduler",
            "`scheduler`",
        ),
        (replaced("schema: 1", "schema: 1\nreport: {formats: [md, pdf]}"), "report.formats[1]", 2, "pdf", "`html`"),
    ];
    for (text, path, line, marked, hint) in cases {
        let error = load(&text).err().unwrap_or_else(|| panic!("accepted: {text}"));
        let (seen_path, seen_line, seen_column, seen_marked, help) = seen(&error);
        assert_eq!((seen_path.as_str(), seen_line, seen_marked.as_str()), (path, line, marked), "{}", rendered(&error));
        let written = text.lines().nth(line - 1).expect("the line");
        assert!(written[seen_column - 1..].starts_with(marked), "{}", rendered(&error));
        assert!(help.contains(hint), "{hint}: {}", rendered(&error));
    }
}

#[test]
fn other_spellings_of_a_number_mean_what_they_say() {
    assert_eq!(load(&replaced("seed: 1\n", "seed: 0x10\n")).expect("hexadecimal").seed, 16);
    assert_eq!(load(&replaced("seed: 1\n", "seed: 0o12\n")).expect("octal").seed, 10);
    assert_eq!(load(&replaced("seed: 1\n", "seed: 18446744073709551615\n")).expect("u64").seed, u64::MAX);
    // Text keeps its face.
    assert_eq!(load(&replaced("Is this file read as meant?", "1.10")).expect("text").question, "1.10");
}

#[test]
fn every_key_of_the_contract_is_read_and_shows_its_default() {
    let every = load(EVERY_KEY).expect("the contract's own example");
    assert_eq!(every.name, "every-key");
    // Keys that show their default must equal those of a file that leaves them out.
    let every = serde_json::to_value(&every).expect("json");
    let small = load(SMALL).expect("small");
    let small_json = serde_json::to_value(&small).expect("json");
    for key in ["repeats", "order", "noise_floor", "limits", "text", "sampling", "thinking", "report"] {
        assert_eq!(every[key], small_json[key], "{key}");
    }
    let bare = replaced(
        "prefill_scaling: {load: {closed: {concurrency: 1}}, prompt_tokens: [128], requests: 2}",
        "decode_scaling: {}\n  - prefill_scaling: {}",
    );
    assert_eq!(every["workloads"], serde_json::to_value(load(&bare).expect("defaults")).expect("json")["workloads"]);
    let TargetConfig::InProcess(defaults) =
        plan(&replaced(", max_context: 1024", "")).expect("planned").arms[0].target.clone()
    else {
        panic!("in process")
    };
    let defaults = serde_json::to_value(defaults).expect("json");
    let shown = &every["target"]["in_process"];
    for key in [
        "device",
        "threads",
        "max_context",
        "max_concurrency",
        "kv_dtype",
        "kv_capacity",
        "prefill_chunk",
        "scheduler",
        "cuda_graph",
        "speculation",
        "pending_timeout",
    ] {
        assert_eq!(shown[key], defaults[key], "{key}");
    }
    // The one exception: this version has no prefix cache and says so.
    assert_eq!((&shown["prefix_cache"], &defaults["prefix_cache"]), (&true.into(), &false.into()));
}

/// The contract's file with the endpoint's comment opened in place of `in_process`.
pub(crate) fn every_endpoint_key() -> String {
    let mut out = String::new();
    let mut in_process = false;
    for line in EVERY_KEY.lines() {
        in_process = line == "  in_process:" || in_process && line.starts_with("    ");
        // The override of the example is for in_process.
        let line = line.split("override:").next().unwrap_or("").trim_end();
        match line.strip_prefix("  # ") {
            Some(opened) => out += &format!("  {opened}\n"),
            None if in_process || line.trim().is_empty() => {}
            None => out += &format!("{line}\n"),
        }
    }
    out
}

#[test]
fn every_endpoint_key_of_the_contract_is_read_and_shows_its_default() {
    let text = every_endpoint_key();
    let every =
        serde_json::to_value(load(&text).unwrap_or_else(|error| panic!("{}\n{text}", rendered(&error)))).expect("json");
    let shown = &every["target"]["endpoint"];
    assert_eq!(shown["model"], "4090");
    assert_eq!(shown["launch"]["vary"]["draft"], serde_json::json!(["3", "4", "5"]));
    assert_eq!(shown["launch"]["ready"], serde_json::json!({"path": "/health", "timeout": "10m"}));
    let bare = replaced(
        "{in_process: {model: {synthetic: {shape: tiny-llama, seed: 1}}, max_context: 1024}}",
        "{endpoint: {url: \"http://127.0.0.1:1/v1\", model: 4090}}",
    );
    let TargetConfig::Endpoint(defaults) = plan(&bare).expect("planned").arms[0].target.clone() else {
        panic!("endpoint")
    };
    assert_eq!(defaults.model, "4090", "an unquoted number keeps its face as text");
    let defaults = serde_json::to_value(defaults).expect("json");
    for key in ["dialect", "api", "tokenizer", "timeouts"] {
        assert_eq!(shown[key], defaults[key], "{key}");
    }
}

#[test]
fn words_are_those_of_the_contract() {
    let words: serde_json::Value =
        serde_json::from_str(include_str!("../fixtures/contracts/words.json")).expect("words.json");
    let listed: BTreeSet<&str> = words["kv_dtype"].as_object().expect("a map").keys().map(String::as_str).collect();
    assert_eq!(listed, KvDtype::ALL.iter().map(|dtype| dtype.word()).collect());
    let listed: BTreeSet<&str> =
        words["dialect"].as_array().expect("a list").iter().filter_map(|word| word.as_str()).collect();
    assert_eq!(listed, Dialect::ALL.iter().map(|dialect| dialect.word()).filter(|word| *word != "auto").collect());
}

#[test]
fn the_contract_example_is_refused_for_what_this_version_lacks_and_for_nothing_else() {
    let error = plan(EVERY_KEY).expect_err("a prefix cache");
    let (path, line, _, marked, _) = seen(&error);
    assert_eq!((path.as_str(), marked.as_str()), ("target.in_process.prefix_cache", "true"));
    assert!(EVERY_KEY.lines().nth(line - 1).expect("the line").contains("prefix_cache: true"));
    let text = EVERY_KEY.replace("prefix_cache: true", "prefix_cache: false");
    let error = plan(&text).expect_err("a price");
    assert_eq!((seen(&error).0.as_str(), seen(&error).3.as_str()), ("power", "power"));
    let text = text.replace("power: {price_per_kwh: 0.6, currency: CNY}\n", "");
    let plan = plan(&text).expect("all the rest");
    assert_eq!(plan.arms.iter().map(|arm| arm.name.as_str()).collect::<Vec<_>>(), ["base", "fair"]);
}

#[test]
fn what_comes_later_is_refused_by_name_and_place() {
    let endpoint = |keys: &str| {
        replaced(
            "{in_process: {model: {synthetic: {shape: tiny-llama, seed: 1}}, max_context: 1024}}",
            &format!("{{endpoint: {{url: \"http://127.0.0.1:1/v1\", model: m, {keys}}}}}"),
        )
    };
    let load = |load: &str| replaced("{closed: {concurrency: 1}}", load);
    let loads = "workloads[0].prefill_scaling.load";
    let cases: Vec<(String, String, &str)> = vec![
        (replaced("max_context: 1024", "device: cuda:0"), "target.in_process.device".into(), "cuda:0"),
        (replaced("max_context: 1024", "device: GPU-0a1b"), "target.in_process.device".into(), "GPU-0a1b"),
        (replaced("max_context: 1024", "kv_dtype: [bf16, fp8]"), "target.in_process.kv_dtype[1]".into(), "fp8"),
        (
            replaced("max_context: 1024", "speculation: {mtp: {draft_tokens: 3}}"),
            "target.in_process.speculation".into(),
            "{",
        ),
        (
            replaced("max_context: 1024", "speculation: [none, {ngram: {draft_tokens: 3}}]"),
            "target.in_process.speculation[1]".into(),
            "{",
        ),
        (
            replaced("max_context: 1024", "speculation: {synthetic: {rates: [0.8]}}"),
            "target.in_process.speculation".into(),
            "{",
        ),
        (
            replaced("max_context: 1024", "prefix_cache: [false, true]"),
            "target.in_process.prefix_cache[1]".into(),
            "true",
        ),
        (replaced("schema: 1", "schema: 1\nthinking: off"), "thinking".into(), "off"),
        (replaced("schema: 1", "schema: 1\nthinking: [default, {budget: 2000}]"), "thinking[1]".into(), "{"),
        (replaced("schema: 1", "schema: 1\npower: {price_per_kwh: 1, currency: EUR}"), "power".into(), "power"),
        (replaced("schema: 1", "schema: 1\nreport: {language: zh}"), "report.language".into(), "zh"),
        (
            replaced("schema: 1", "schema: 1\narms: [{name: a}, {name: b, override: {in_process: {kv_dtype: int8}}}]"),
            "arms[1].override.in_process.kv_dtype".into(),
            "int8",
        ),
        (load("{constant: {rate_req_s: 2.0, duration: 60s}}"), format!("{loads}.constant"), "constant"),
        (load("{poisson: {rate_req_s: 2, duration: 60s}}"), format!("{loads}.poisson"), "poisson"),
        (load("{ramp: {from_req_s: 1, to_req_s: 2, duration: 60s}}"), format!("{loads}.ramp"), "ramp"),
        (load("{trace: {file: t.jsonl}}"), format!("{loads}.trace"), "trace"),
        (endpoint("model_shape: qwen"), "target.endpoint.model_shape".into(), "model_shape"),
        (endpoint("launch: {command: [./server]}"), "target.endpoint.launch".into(), "launch"),
    ];
    for (text, path, marked) in cases {
        let error = plan(&text).err().unwrap_or_else(|| panic!("accepted: {text}"));
        assert!(matches!(error, ExperimentError::Unsupported { .. }), "{}", rendered(&error));
        assert!(error.to_string().contains("not in this version"));
        let (seen_path, line, column, seen_marked, help) = seen(&error);
        assert_eq!((seen_path, seen_marked.as_str()), (path, marked), "{}", rendered(&error));
        assert!(
            text.lines().nth(line - 1).expect("the line")[column - 1..].starts_with(marked),
            "{}",
            rendered(&error)
        );
        assert!(!help.is_empty());
    }
    for fine in [
        endpoint("dialect: llama_cpp"),
        endpoint("dialect: openai"),
        endpoint("dialect: vllm, api: completions"),
        endpoint("tokenizer: server"),
        endpoint("tokenizer: tokenizer.json"),
        endpoint("dialect: ninfer, api: messages"),
        endpoint("dialect: sglang").replace("schema: 1", "schema: 1\nthinking: [default, off, {budget: 2000}]"),
        // Whether that server can be asked shows when it is reached.
        endpoint("dialect: auto").replace("schema: 1", "schema: 1\nthinking: off"),
        replaced("max_context: 1024", "scheduler: [serial, mixed], cuda_graph: false, prefix_cache: false"),
    ] {
        plan(&fine).unwrap_or_else(|error| panic!("{}", rendered(&error)));
    }
}

#[test]
fn thinking_that_a_dialect_cannot_be_asked_for_is_refused_with_the_way_out() {
    let suite = |keys: &str, thinking: &str| {
        replaced(
            "{in_process: {model: {synthetic: {shape: tiny-llama, seed: 1}}, max_context: 1024}}",
            &format!("{{endpoint: {{url: \"http://127.0.0.1:1/v1\", model: m, {keys}}}}}"),
        )
        .replace("schema: 1", &format!("schema: 1\nthinking: {thinking}"))
    };
    for (keys, thinking, path, said) in [
        ("dialect: openai", "off", "thinking", "name the dialect"),
        ("dialect: ninfer", "[off, {budget: 2000}]", "thinking[1]", "api: messages"),
        ("dialect: ninfer, api: messages", "{budget: 100}", "thinking", "1024"),
        ("api: completions", "on", "thinking", "api: chat"),
    ] {
        let error = plan(&suite(keys, thinking)).expect_err(keys);
        assert!(matches!(error, ExperimentError::Rule { .. }), "{}", rendered(&error));
        assert_eq!(seen(&error).0, path);
        assert!(error.to_string().contains(said), "{}", rendered(&error));
    }
}

#[test]
fn a_url_with_a_password_is_refused_and_not_printed() {
    let url = |url: &str| {
        replaced(
            "{in_process: {model: {synthetic: {shape: tiny-llama, seed: 1}}, max_context: 1024}}",
            &format!("{{endpoint: {{url: \"{url}\", model: m}}}}"),
        )
    };
    let error = load(&url("http://me:hunter2@host/v1")).expect_err("a password");
    assert_eq!(seen(&error).0, "target.endpoint.url");
    assert!(!rendered(&error).contains("hunter2"), "{}", rendered(&error));
    for wrong in ["127.0.0.1:8080", "ftp://host/v1", "http://", "http:///v1", "http://host/v1?key=1", "http://ho st/v1"]
    {
        assert_eq!(seen(&load(&url(wrong)).expect_err(wrong)).0, "target.endpoint.url", "{wrong}");
    }
    load(&url("https://host.example/v1")).expect("a plain URL");
}

#[test]
fn a_key_reaches_neither_plan_nor_error() {
    const NEEDLE: &str = "sk-TESTONLY-0123456789abcdef";
    let endpoint = |keys: &str| {
        replaced(
            "{in_process: {model: {synthetic: {shape: tiny-llama, seed: 1}}, max_context: 1024}}",
            &format!("{{endpoint: {{url: \"http://127.0.0.1:1/v1\", model: m, {keys}}}}}"),
        )
    };
    let named = plan(&endpoint("api_key_env: LAB_KEY")).expect("a name");
    assert!(serde_json::to_string(&named.planned()).expect("json").contains("LAB_KEY"));
    assert!(!named.identity(&IdentityInputs::default()).parts.values().any(|part| part.contains("LAB_KEY")));
    for keys in [
        format!("api_key: {NEEDLE}"),
        format!("api_key_env: {NEEDLE}"),
        format!("api_key_env: [{NEEDLE}]"),
        format!("headers: {{X-Api-Key: {NEEDLE}}}"),
        format!("dialekt: x, api_key_env: {NEEDLE}"),
    ] {
        let error = load(&endpoint(&keys)).expect_err("a key in the file");
        let all = format!("{}{error:?}", rendered(&error));
        assert!(!all.contains("TESTONLY"), "{all}");
    }
    let error = load_with(&endpoint("dialect: auto"), &[&format!("target.endpoint.api_key={NEEDLE}")])
        .expect_err("a key in an argument");
    assert!(!rendered(&error).contains("TESTONLY"), "{}", rendered(&error));
    // The collection's own file, where there is one.
    let Some(shared) = shared() else { return };
    let experiment = experiment::load(&shared.join("cases/B135.yaml"), &[]).expect("B135.yaml names a variable");
    let plan = Plan::new(&experiment, &[]).expect("planned");
    let all = format!("{}{}{experiment:?}", experiment::text(&plan), experiment::json(&plan));
    assert!(!all.contains("TESTONLY"));
}
