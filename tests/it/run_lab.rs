//! A folder with an experiment in it, and the real program at work there.
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use inferlab::record::{self, LoggedRun};

/// A working folder; gone when dropped.
pub struct Lab {
    folder: tempfile::TempDir,
}

impl Lab {
    /// A folder that holds `suite` as `suite.yaml`.
    pub fn new(suite: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("suite.yaml"), suite).unwrap();
        Self { folder }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The program with these arguments, in the folder, without colours and proxies.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_inferlab"));
        command.args(arguments);
        self.settle(&mut command);
        command
    }

    /// The program under another one, as `unshare -n`.
    pub fn command_under(&self, wrapper: &[&str], arguments: &[&str]) -> Command {
        let mut command = Command::new(wrapper[0]);
        command.args(&wrapper[1..]).arg(env!("CARGO_BIN_EXE_inferlab")).args(arguments);
        self.settle(&mut command);
        command
    }

    /// Folder, standard streams and environment.
    pub fn settle(&self, command: &mut Command) {
        // One cache for all: the digest of the program itself is kept there and need not be computed by every run.
        command.current_dir(self.path()).env("INFERLAB_CACHE", concat!(env!("CARGO_TARGET_TMPDIR"), "/lab-cache"));
        command.env("NO_COLOR", "1").stdin(Stdio::null());
        for proxy in ["http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
            command.env_remove(proxy);
        }
    }

    pub fn output(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Starts the program with both streams piped.
    pub fn start(&self, arguments: &[&str]) -> Child {
        self.command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Run directories, oldest first.
    pub fn runs(&self) -> Vec<PathBuf> {
        let Ok(entries) = std::fs::read_dir(self.path().join("runs")) else { return Vec::new() };
        let mut runs: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        runs.sort();
        runs
    }

    /// The only run directory.
    pub fn run(&self) -> PathBuf {
        let runs = self.runs();
        assert_eq!(runs.len(), 1, "{runs:?}");
        runs[0].clone()
    }

    /// What its log holds.
    pub fn log(&self) -> LoggedRun {
        record::read_run(&self.run()).unwrap()
    }

    /// Waits until the log of the only run holds `needle` so many times. `false` when the process ended before.
    pub fn wait_for(&self, child: &mut Child, needle: &str, times: usize) -> bool {
        let begun = Instant::now();
        loop {
            let found = self
                .runs()
                .first()
                .and_then(|run| std::fs::read_to_string(run.join("log.jsonl")).ok())
                .map_or(0, |text| text.matches(needle).count());
            if found >= times {
                return child.try_wait().unwrap().is_none();
            }
            if child.try_wait().unwrap().is_some() {
                return false;
            }
            assert!(begun.elapsed() < Duration::from_secs(120), "no {needle} after two minutes");
            std::thread::sleep(Duration::from_millis(3));
        }
    }

    /// Asserts that `inferlab verify` finds nothing wrong.
    pub fn assert_sound(&self) {
        let run = self.run();
        let said = self.output(&["verify", run.to_str().unwrap()]);
        assert_eq!(code(&said), 0, "{}{}", stdout(&said), stderr(&said));
    }

    /// Every file below the folder.
    pub fn files(&self) -> Vec<PathBuf> {
        let (mut files, mut folders) = (Vec::new(), vec![self.path().to_owned()]);
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() { folders.push(path) } else { files.push(path) }
            }
        }
        files.sort();
        files
    }
}

pub fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or(-1)
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Both streams, for a message.
pub fn said(output: &Output) -> String {
    format!("{}{}", stdout(output), stderr(output))
}

/// Whether a wrapper such as `unshare -n` is permitted here; the reason is printed where not.
pub fn permitted(wrapper: &[&str]) -> bool {
    let tried = Command::new(wrapper[0]).args(&wrapper[1..]).arg("true").output();
    match tried {
        Ok(output) if output.status.success() => true,
        Ok(output) => {
            eprintln!("skipped: `{}` is not permitted here: {}", wrapper.join(" "), stderr(&output).trim());
            false
        }
        Err(error) => {
            eprintln!("skipped: no `{}` here: {error}", wrapper[0]);
            false
        }
    }
}

/// A suite on random weights: `target` lines, then `workloads` lines, both as flow mappings.
pub fn synthetic(target: &str, repeats: u32, workloads: &[&str]) -> String {
    let list: String = workloads.iter().map(|workload| format!("  - {workload}\n")).collect();
    format!(
        "schema: 1\nname: lab\nquestion: Does a run work?\nseed: 7\ntarget:\n  in_process: {{model: {{synthetic: \
         {{shape: tiny-llama, seed: 1}}}}, max_context: 512, max_concurrency: 2{target}}}\nrepeats: {repeats}\n\
         workloads:\n{list}"
    )
}
