//! The command line as a shell sees it: exit codes, streams, colours, help.
use std::process::{Command, Output, Stdio};

use clap::CommandFactory;

fn inferlab(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_inferlab"));
    command.args(arguments).stdin(Stdio::null()).env_remove("NO_COLOR").env_remove("INFERLAB_MODELS");
    command
}

fn output(arguments: &[&str]) -> Output {
    inferlab(arguments).output().unwrap()
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or(-1)
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn help_names_the_commands_of_this_version_only() {
    let help = inferlab::cli::Cli::command().term_width(100).render_help().to_string();
    insta::assert_snapshot!(help, @r#"
    A reproducible benchmark-and-eval laboratory for LLM inference engines

    Usage: inferlab [OPTIONS] <COMMAND>

    Commands:
      run        Plan an experiment, run it, derive its tables and write its report
      plan       Show what a run would do, without running anything
      bench      Measure prefill and decode of a model or server without a file, in a box of time
      report     Write reports of finished or partial runs, from their logs only
      verify     Check a run's log: every line, checksum and count
      table      Derive the Parquet tables of a run from its log
      probe      Ask a server what it is, what its answers hold and what it can be measured in
      model      List, fetch, check and describe pinned models
      calibrate  Measure this client's own error on this machine; later runs against servers print it
      doctor     Say what this machine offers and what is missing
      help       Print this message or the help of the given subcommand(s)

    Options:
          --json          Print one JSON object on stdout instead of text (default: text)
          --color <WHEN>  Colour messages on stderr; `auto` means on a terminal without NO_COLOR
                          [default: auto] [possible values: auto, always, never]
      -h, --help          Print help (see more with '--help')
      -V, --version       Print version

    Exit codes: 0 valid, 2 usage or experiment file, 3 model pin, 4 target unreachable, 10 run invalid,
    11 failure limit, 12 soak verdict, 20 interrupted, 30 storage, 70 internal error.
    "#);
}

#[test]
fn help_of_run_says_unit_and_default_of_every_argument() {
    let mut command = inferlab::cli::Cli::command().term_width(100);
    command.build();
    let run = command.find_subcommand_mut("run").unwrap();
    insta::assert_snapshot!(run.render_help().to_string(), @r#"
    Plan an experiment, run it, derive its tables and write its report

    Usage: inferlab run [OPTIONS] <SUITE>

    Arguments:
      <SUITE>  Experiment file to run (YAML)

    Options:
          --out <DIR>               Folder that gets the run's own folder [default: runs]
          --resume <RUN>            Go on with this interrupted run folder; refused when the experiment
                                    differs (default: a new run)
          --set <KEY=VALUE>         Override one key of the suite, as `repeats=2`; may be given again
                                    (default: none)
          --only <ARM_OR_WORKLOAD>  Run only this arm or workload; may be given again (default: all)
          --dry-run                 Show the plan and stop before anything runs (default: run)
          --no-report               Leave out the report; the log and tables are still written (default:
                                    report)
          --json                    Print one JSON object on stdout instead of text (default: text)
          --color <WHEN>            Colour messages on stderr; `auto` means on a terminal without
                                    NO_COLOR [default: auto] [possible values: auto, always, never]
      -h, --help                    Print help (see more with '--help')
    "#);
}

#[test]
fn usage_errors_exit_2_and_help_exits_0() {
    for arguments in
        [&[][..], &["rnu"], &["run"], &["report"], &["run", "a", "b"], &["run", "a", "--frobnicate"], &["model"]]
    {
        assert_eq!(code(&output(arguments)), 2, "{arguments:?}");
    }
    for arguments in [&["--help"][..], &["--version"], &["run", "--help"], &["model", "fetch", "-h"]] {
        let output = output(arguments);
        assert_eq!(code(&output), 0, "{arguments:?}");
        assert!(!output.stdout.is_empty() && output.stderr.is_empty(), "help is data: {arguments:?}");
    }
    assert!(stderr(&output(&["reprot"])).contains("'report'"), "a typo is answered with the nearest command");
}

#[test]
fn a_command_of_a_later_version_says_so_and_exits_2() {
    for command in ["import", "dataset", "score", "compare", "capacity", "serve", "watch"] {
        let output = output(&[command, "x"]);
        assert_eq!(code(&output), 2, "{command}");
        let said = stderr(&output);
        assert!(said.contains(&format!("`inferlab {command}` is not in this version")), "{said}");
    }
}

#[test]
fn an_unknown_model_exits_3_and_names_the_nearest() {
    let output = output(&["model", "fetch", "smolm2-135m"]);
    assert_eq!(code(&output), 3);
    assert!(stderr(&output).contains("did you mean `smollm2-135m`?"), "{}", stderr(&output));
    assert!(output.stdout.is_empty());
}

#[test]
fn the_embedded_pin_is_listed_where_there_is_no_models_folder() {
    let empty = tempfile::tempdir().unwrap();
    let mut command = inferlab(&["model", "list", "--json"]);
    command.current_dir(empty.path()).env("INFERLAB_MODELS", empty.path()).env("INFERLAB_CACHE", empty.path());
    let output = command.output().unwrap();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(said["models"][0]["name"], "smollm2-135m");
    assert_eq!(said["models"][0]["pin"], "built in");
    assert_eq!(said["models"][0]["state"], "absent");
}

#[test]
fn with_json_an_error_is_one_object_on_stdout_as_well() {
    let output = output(&["--json", "model", "fetch", "nosuch"]);
    assert_eq!(code(&output), 3);
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(said["exit"], 3);
    assert!(said["error"].as_str().unwrap().contains("nosuch"));
    assert!(!output.stderr.is_empty());
}

#[test]
fn with_json_a_usage_error_is_one_object_too() {
    for arguments in [&["run", "--json", "a", "--frobnicate"][..], &["--json", "bnech"], &["--json", "serve", "m"]] {
        let output = output(arguments);
        assert_eq!(code(&output), 2, "{arguments:?}");
        let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(said["exit"], 2, "{arguments:?}");
        assert!(!said["error"].as_str().unwrap().is_empty() && !output.stderr.is_empty(), "{arguments:?}");
    }
}

#[test]
fn a_plan_names_models_that_exist() {
    let folder = tempfile::tempdir().unwrap();
    let plan = |model: &str| {
        let suite = format!(
            "schema: 1\nname: m\nquestion: Which model?\nseed: 1\ntarget:\n  in_process: {{model: {model}}}\n\
             workloads:\n  - prefill_scaling: {{load: {{closed: {{concurrency: 1}}}}, prompt_tokens: 8, requests: 1}}\n"
        );
        std::fs::write(folder.path().join("m.yaml"), suite).unwrap();
        inferlab(&["plan", "m.yaml"]).current_dir(folder.path()).output().unwrap()
    };
    let shape = plan("{synthetic: {shape: tiny-lama, seed: 1}}");
    assert_eq!(code(&shape), 2, "{}", stderr(&shape));
    for words in ["there is no shape `tiny-lama`", "did you mean `tiny-llama`?", "m.yaml:6"] {
        assert!(stderr(&shape).contains(words), "{}", stderr(&shape));
    }
    let name = plan("smolm2-135m");
    assert_eq!(code(&name), 3, "{}", stderr(&name));
    for words in ["did you mean `smollm2-135m`?", "m.yaml:6"] {
        assert!(stderr(&name).contains(words), "{}", stderr(&name));
    }
    let path = plan("./nothing.gguf");
    assert_eq!(code(&path), 3, "{}", stderr(&path));
    assert!(stderr(&path).contains("is not a file"), "{}", stderr(&path));
    // A pin that is not fetched yet is no fault of the file.
    assert_eq!(code(&plan("smollm2-135m")), 0);
}

#[test]
fn a_reader_who_closes_the_pipe_is_no_error() {
    for arguments in [&["model", "list"][..], &["doctor"], &["doctor", "--json"], &["--help"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = inferlab(arguments).stdout(writer).stderr(Stdio::piped()).output().unwrap();
        assert_eq!(code(&output), 0, "{arguments:?}: {}", stderr(&output));
        assert_eq!(stderr(&output), "", "{arguments:?}");
    }
}

#[test]
fn a_full_disk_under_stdout_exits_30() {
    let Ok(full) = std::fs::File::options().write(true).open("/dev/full") else {
        println!("skipped: no /dev/full here");
        return;
    };
    let output = inferlab(&["model", "list"]).stdout(full).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(code(&output), 30, "{}", stderr(&output));
}

#[test]
fn doctor_says_why_cuda_is_not_used_and_ends_well() {
    let folder = tempfile::tempdir().unwrap();
    let output = inferlab(&["doctor", "--json"]).current_dir(folder.path()).output().unwrap();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let checks = said["checks"].as_array().unwrap();
    for name in ["cpu features", "cores", "memory", "runs folder", "model cache", "open files", "pip", "cuda", "nvrtc"]
    {
        let check = checks.iter().find(|check| check["name"] == name).unwrap_or_else(|| panic!("no check {name}"));
        assert!(check["seen"].as_str().is_some_and(|seen| !seen.is_empty()), "{check}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "doctor creates nothing");
}

#[test]
fn doctor_exits_30_when_runs_cannot_be_written() {
    let output = output(&["doctor", "--out", "/dev/null/runs"]);
    assert_eq!(code(&output), 30);
    assert!(String::from_utf8_lossy(&output.stdout).contains("BROKEN"));
}

#[test]
fn a_message_that_is_piped_is_plain_unless_colour_is_asked_for() {
    let plain = output(&["model", "fetch", "nosuch"]);
    assert!(stderr(&plain).is_ascii() && !stderr(&plain).contains('\u{1b}'), "{:?}", stderr(&plain));
    let coloured = output(&["--color", "always", "model", "fetch", "nosuch"]);
    assert!(stderr(&coloured).contains('\u{1b}'));
}

#[test]
fn no_color_is_honoured_on_a_terminal() {
    // Python has a pseudo-terminal in its standard library; what the program writes to it comes out on stdout.
    let on_terminal = |no_color: Option<&str>| {
        let mut command = Command::new("python3");
        let spawn = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))";
        command.args(["-c", spawn, env!("CARGO_BIN_EXE_inferlab"), "model", "fetch", "nosuch"]);
        command.stdin(Stdio::null()).env("TERM", "xterm").env_remove("NO_COLOR");
        command.envs(no_color.map(|value| ("NO_COLOR", value)));
        command.output()
    };
    let Ok(coloured) = on_terminal(None) else {
        println!("skipped: no python3 for a pseudo-terminal");
        return;
    };
    let text = |output: &Output| String::from_utf8_lossy(&output.stdout).into_owned();
    if !text(&coloured).contains("nosuch") {
        println!("skipped: no pseudo-terminal here: {}", stderr(&coloured));
        return;
    }
    assert!(text(&coloured).contains('\u{1b}'), "{}", text(&coloured));
    assert_eq!(code(&coloured), 3);
    let plain = on_terminal(Some("1")).unwrap();
    assert!(text(&plain).contains("nosuch") && !text(&plain).contains('\u{1b}'), "{}", text(&plain));
    let empty = on_terminal(Some("")).unwrap();
    assert!(text(&empty).contains('\u{1b}'), "an empty NO_COLOR is none");
}
