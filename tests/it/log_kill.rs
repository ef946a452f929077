//! kill -9 at random points. The witness is the id that the child prints on a pipe after an append returned: whatever was printed must
//! stand in the log, unchanged, and at the end each key must be live exactly once.
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use inferlab::record::{LogError, LogOptions, LoggedRun, RunLog, TextReader, read_run, verify_run};
use inferlab::units::TimestampNs;
use serde_json::json;

use crate::log_rows::{Draw, header, open, parts, row, text};

const KILL_CHILD: &str = "INFERLAB_KILL_CHILD";
/// Kills in CI; `INFERLAB_KILL_POINTS=1000` is R1.
const POINTS: usize = 200;
const CELL: &str = "decode_scaling/c1";
const ARMS: [&str; 3] = ["base", "int8", "bf16"];
const WARMUP: u32 = 2;
const MEASURED: u32 = 6;

/// One row of the child's plan: arm, index, attempt, warm-up.
type Id = (String, u32, u32, bool);

fn plan() -> impl Iterator<Item = (&'static str, u32, bool)> {
    ARMS.into_iter().flat_map(|arm| {
        (0..WARMUP).map(move |index| (arm, index, true)).chain((0..MEASURED).map(move |index| (arm, index, false)))
    })
}

/// What the child does: begin or go on with the run in `dir`, and print each row after its append returned.
fn append_until_done(dir: &Path) {
    let say = |line: String| {
        let mut out = std::io::stdout().lock();
        out.write_all(line.as_bytes()).and_then(|()| out.flush()).expect("the parent reads");
    };
    say("\nready\n".into());
    let options = LogOptions { sync_lines: 5, ..LogOptions::default() };
    let (log, earlier) = if dir.join("log.jsonl").exists() {
        match RunLog::resume_with(dir, "3f9a1c", &parts(), open(), options) {
            // The kill came between the end of the run and the word of it.
            Err(LogError::Ended { .. }) => return say("finished\n".into()),
            resumed => resumed.expect("the run resumes"),
        }
    } else {
        (RunLog::create_with(dir, &header(), open(), options).expect("a new run"), LoggedRun::new(header()))
    };
    for arm in ARMS {
        if earlier.complete(arm, CELL, 0, MEASURED, WARMUP) {
            continue;
        }
        let attempt = earlier.next_attempt(arm, CELL, 0);
        log.event(TimestampNs(1), "launch", json!({"arm": arm, "attempt": attempt}));
        for (_, index, warmup) in plan().filter(|(name, ..)| *name == arm) {
            let record = row(arm, 0, index, attempt, warmup);
            log.row_acked(record.clone(), Some(text(&record))).expect("appended");
            say(format!("ack {arm} {index} {attempt} {warmup}\n"));
            std::thread::sleep(Duration::from_micros(150));
        }
    }
    let closed = log.close("done").expect("closes");
    assert!(closed.ended, "{:?}", closed.health);
    say("finished\n".into());
}

#[test]
#[ignore = "the child process of the kill test, which starts it"]
fn child() {
    let dir = std::env::var_os(KILL_CHILD).expect("started by the kill test");
    append_until_done(Path::new(&dir));
}

struct Running {
    child: Child,
    lines: Receiver<String>,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn start(dir: &Path) -> Running {
    let mut child = Command::new(std::env::current_exe().expect("the test binary"))
        .args(["log_kill::child", "--exact", "--ignored", "--nocapture", "--test-threads=1"])
        .env(KILL_CHILD, dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the test binary starts");
    let out = BufReader::new(child.stdout.take().expect("piped"));
    let (sender, lines) = channel();
    std::thread::spawn(move || out.lines().map_while(Result::ok).for_each(|line| drop(sender.send(line))));
    Running { child, lines }
}

fn acked(line: &str) -> Option<Id> {
    let mut words = line.strip_prefix("ack ")?.split(' ');
    let mut word = || words.next().expect("four words");
    Some((
        word().into(),
        word().parse().expect("index"),
        word().parse().expect("attempt"),
        word().parse().expect("bool"),
    ))
}

/// From which moment of the child's life the delay before its kill is counted.
#[derive(Debug, Clone, Copy, PartialEq)]
enum From {
    Start,
    /// It is about to create the log or to resume it.
    Ready,
    /// Its first row was acknowledged.
    FirstRow,
}

/// Starts the child and kills it after the delay. `true` when the kill met it alive.
fn kill_after(dir: &Path, kill: Option<(From, Duration)>, acks: &mut Vec<Id>) -> bool {
    let mut running = start(dir);
    let mut lines = Vec::new();
    if let Some((from, delay)) = kill {
        while from != From::Start
            && let Ok(line) = running.lines.recv()
        {
            let reached = if from == From::Ready { line == "ready" } else { line.starts_with("ack ") };
            lines.push(line);
            if reached {
                break;
            }
        }
        std::thread::sleep(delay);
        running.child.kill().expect("kill -9");
    }
    lines.extend(running.lines.iter());
    let status = running.child.wait().expect("a status");
    acks.extend(lines.iter().filter_map(|line| acked(line)));
    if status.signal() == Some(9) {
        return true;
    }
    let mut stderr = String::new();
    let _ = std::io::Read::read_to_string(&mut running.child.stderr.take().expect("piped"), &mut stderr);
    assert!(status.success() && lines.iter().any(|line| line == "finished"), "{status}: {lines:?}\n{stderr}");
    false
}

fn check(dir: &Path, acks: &[Id], seed: u64) {
    let report = verify_run(dir).expect("verifies");
    assert!(report.is_sound() && report.ended, "seed {seed}: {report:?}");
    let run = read_run(dir).expect("reads");
    let mut found = BTreeMap::new();
    for logged in &run.rows {
        let r = &logged.record;
        let id: Id = (r.arm.clone(), r.index, r.attempt, r.warmup);
        assert_eq!(*r, row(&r.arm, 0, r.index, r.attempt, r.warmup), "seed {seed}: {id:?} was changed");
        assert_eq!(found.insert(id.clone(), ()), None, "seed {seed}: {id:?} stands twice");
    }
    for id in acks {
        assert!(found.contains_key(id), "seed {seed}: {id:?} was acknowledged and is lost");
    }
    let live: Vec<_> = run.live_rows().iter().map(|r| (r.arm.clone(), r.index, r.warmup)).collect();
    let wanted: BTreeSet<_> = plan().map(|(arm, index, warmup)| (arm.to_owned(), index, warmup)).collect();
    assert_eq!(live.len(), wanted.len(), "seed {seed}");
    assert_eq!(live.into_iter().collect::<BTreeSet<_>>(), wanted, "seed {seed}");
    let mut texts = TextReader::open(dir).expect("opens").expect("kept");
    let mut said = BTreeSet::new();
    while let Some(logged) = texts.next_text().expect("sound") {
        let k = &logged.key;
        assert_eq!(logged.text, text(&row(&k.arm, 0, k.index, logged.attempt, k.warmup)), "seed {seed}");
        said.insert((k.arm.clone(), k.index, logged.attempt, k.warmup));
    }
    assert!(found.keys().all(|id| said.contains(id)), "seed {seed}: a row without its text");
}

#[test]
fn no_acknowledged_row_is_lost_to_kill_9_at_200_random_points() {
    let points = std::env::var("INFERLAB_KILL_POINTS").ok().and_then(|n| n.parse().ok()).unwrap_or(POINTS);
    let (mut kills, mut inside, mut acks_seen, mut torn, mut superseded, mut seed) = (0, 0, 0, 0, 0, 0u64);
    while kills < points {
        assert!(seed < 10 * points as u64, "only {kills} of {seed} kills met a living child");
        seed += 1;
        let mut draw = Draw(seed);
        let dir = tempfile::tempdir().expect("a temporary folder");
        let mut acks = Vec::new();
        // Up to two kills of one run, so that a resume is killed as well.
        for _ in 0..1 + draw.below(2) {
            let (from, low, high) =
                [(From::Start, 1e-3, 60e-3), (From::Ready, 20e-6, 15e-3), (From::FirstRow, 5e-6, 8e-3)]
                    [[0, 1, 1, 2, 2, 2, 2, 2][draw.below(8)]];
            let delay = Duration::from_secs_f64(draw.log_uniform(low, high));
            let before = acks.len();
            if !kill_after(dir.path(), Some((from, delay)), &mut acks) {
                break;
            }
            kills += 1;
            inside += usize::from(acks.len() > before);
        }
        if !read_run(dir.path()).is_ok_and(|run| run.end.is_some()) {
            assert!(!kill_after(dir.path(), None, &mut acks));
        }
        check(dir.path(), &acks, seed);
        acks_seen += acks.len();
        torn += usize::from(dir.path().join("log.torn").exists() || dir.path().join("texts.torn").exists());
        superseded += read_run(dir.path()).expect("reads").superseded();
    }
    println!(
        "{kills} kills in {seed} runs, {inside} of them between two rows: {acks_seen} acknowledged rows, 0 lost; {superseded} superseded, \
         {torn} runs with a torn tail"
    );
    assert!(inside * 3 > kills && superseded > 0, "too few kills fell between rows: {inside} of {kills}");
}
