//! R3: the n-th call to the disk fails, for every n of a small run.
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

use inferlab::record::{
    Disk, DiskFile, LogOptions, LoggedRun, OsDisk, RequestRecord, RunLog, StorageError, read_run, verify_run,
};
use inferlab::table;

use crate::log_rows::{header, memory_directory, open, parts, row, text};

const ENOSPC: i32 = 28;
const EIO: i32 = 5;
const EROFS: i32 = 30;
const EDQUOT: i32 = 122;
const EINTR: i32 = 4;

/// What goes wrong at the n-th call.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Trouble {
    /// That call fails.
    Once(i32),
    /// That call and every later one fail.
    Forever(i32),
    /// A write takes half of its bytes and says so.
    Short,
    /// A write takes half of its bytes, then so many calls find the disk full, shortening the file among them.
    ShortThenFull(usize),
}

#[derive(Debug)]
struct State {
    calls: usize,
    at: usize,
    trouble: Trouble,
    fired: bool,
}

#[derive(Debug, Clone)]
struct FaultyDisk(Arc<Mutex<State>>);

#[derive(Debug)]
struct FaultyFile(Box<dyn DiskFile>, FaultyDisk);

/// What to do instead of a call.
enum Instead {
    Nothing,
    Fail(i32),
    Half,
}

impl FaultyDisk {
    fn new(at: usize, trouble: Trouble) -> Self {
        Self(Arc::new(Mutex::new(State { calls: 0, at, trouble, fired: false })))
    }

    fn fired(&self) -> bool {
        self.0.lock().expect("lock").fired
    }

    /// The n-th call was never made: every call of the run has had its turn.
    fn unreached(&self) -> bool {
        let state = self.0.lock().expect("lock");
        state.calls < state.at
    }

    fn call(&self, write: bool) -> Instead {
        let mut state = self.0.lock().expect("lock");
        state.calls += 1;
        let (now, later) = (state.calls == state.at, state.calls > state.at);
        let instead = match state.trouble {
            Trouble::Once(code) if now => Instead::Fail(code),
            Trouble::Forever(code) if now || later => Instead::Fail(code),
            Trouble::Short if now && write => Instead::Half,
            Trouble::ShortThenFull(_) if now && write => Instead::Half,
            Trouble::ShortThenFull(calls) if later && state.fired && state.calls - state.at <= calls => {
                Instead::Fail(ENOSPC)
            }
            _ => Instead::Nothing,
        };
        state.fired |= !matches!(instead, Instead::Nothing);
        instead
    }

    fn plain(&self) -> io::Result<()> {
        match self.call(false) {
            Instead::Fail(code) => Err(io::Error::from_raw_os_error(code)),
            _ => Ok(()),
        }
    }
}

impl Disk for FaultyDisk {
    fn append(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.plain()?;
        Ok(Box::new(FaultyFile(OsDisk.append(path)?, self.clone())))
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.plain()?;
        OsDisk.rename(from, to)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.plain()?;
        OsDisk.sync_dir(dir)
    }
}

impl DiskFile for FaultyFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.1.call(true) {
            Instead::Fail(code) => Err(io::Error::from_raw_os_error(code)),
            Instead::Half => self.0.write(&bytes[..bytes.len().div_ceil(2)]),
            Instead::Nothing => self.0.write(bytes),
        }
    }
    fn sync(&mut self) -> io::Result<()> {
        self.1.plain()?;
        self.0.sync()
    }
    fn set_len(&mut self, length: u64) -> io::Result<()> {
        self.1.plain()?;
        self.0.set_len(length)
    }
}

/// Rows of the run that an interruption or a fault left unfinished.
fn finish(dir: &Path) {
    let (log, earlier) = if dir.join("log.jsonl").exists() {
        if read_run(dir).expect("reads").end.is_some() {
            return;
        }
        RunLog::resume(dir, "3f9a1c", &parts(), open()).expect("resumes on a sound disk")
    } else {
        (RunLog::create(dir, &header(), open()).expect("starts on a sound disk"), LoggedRun::new(header()))
    };
    for repeat in (0..4).filter(|repeat| !earlier.complete("base", "decode_scaling/c1", *repeat, 5, 0)) {
        let attempt = earlier.next_attempt("base", "decode_scaling/c1", repeat);
        for index in 0..5 {
            let record = row("base", repeat, index, attempt, false);
            log.row_acked(record.clone(), Some(text(&record))).expect("appended");
        }
    }
    assert!(log.close("done").expect("closes").ended);
}

/// One run on `disk`: the rows that were acknowledged, and every error that somebody was told.
fn run_on(disk: &FaultyDisk, dir: &Path) -> (Vec<RequestRecord>, Vec<String>) {
    let (mut acked, mut errors) = (Vec::new(), Vec::new());
    let options = LogOptions { sync_lines: 3, disk: Arc::new(disk.clone()), ..LogOptions::default() };
    match RunLog::create_with(dir, &header(), open(), options) {
        Err(error) => errors.push(error.to_string()),
        Ok(log) => {
            for n in 0..20 {
                let record = row("base", n / 5, n % 5, 0, false);
                match log.row_acked(record.clone(), Some(text(&record))) {
                    Ok(_) => acked.push(record),
                    Err(error) => errors.push(error.to_string()),
                }
            }
            let sound = log.health().is_sound();
            match log.close("done") {
                Err(error) => errors.push(error.to_string()),
                Ok(closed) => {
                    assert!(sound && closed.ended, "an unsound log closed without an error");
                }
            }
        }
    }
    (acked, errors)
}

fn check_acked(dir: &Path, acked: &[RequestRecord], place: &str) {
    if acked.is_empty() {
        return;
    }
    let run = read_run(dir).unwrap_or_else(|error| panic!("{place}: {error}"));
    for record in acked {
        let found = run.rows.iter().filter(|row| row.record == *record).count();
        assert_eq!(found, 1, "{place}: row {} of repeat {}", record.index, record.repeat);
    }
}

#[test]
fn a_failing_call_is_reported_and_no_acknowledged_row_is_lost_for_every_n() {
    let mut cases = 0;
    for trouble in [
        Trouble::Once(ENOSPC),
        Trouble::Once(EIO),
        Trouble::Forever(EDQUOT),
        Trouble::Forever(EROFS),
        Trouble::ShortThenFull(usize::MAX),
        Trouble::ShortThenFull(1),
        Trouble::ShortThenFull(2),
        Trouble::Once(EINTR),
        Trouble::Short,
    ] {
        for n in 1.. {
            let place = format!("{trouble:?} at call {n}");
            let dir = memory_directory();
            let disk = FaultyDisk::new(n, trouble);
            let (acked, errors) = run_on(&disk, dir.path());
            let fired = disk.fired();
            check_acked(dir.path(), &acked, &place);
            if !fired {
                assert!(errors.is_empty(), "{place}: {errors:?}");
                if disk.unreached() {
                    break;
                }
                continue;
            }
            cases += 1;
            if matches!(trouble, Trouble::Once(EINTR) | Trouble::Short) {
                assert!(errors.is_empty() && acked.len() == 20, "{place}: {errors:?}");
                assert!(verify_run(dir.path()).expect("verifies").is_sound(), "{place}");
                continue;
            }
            assert!(!errors.is_empty(), "{place} was told to nobody");
            let folder = dir.path().display().to_string();
            assert!(errors.iter().all(|error| error.contains(&folder)), "{place}: {errors:?} name no file");
            // On a sound disk the run goes on, and all of it verifies.
            finish(dir.path());
            check_acked(dir.path(), &acked, &place);
            let report = verify_run(dir.path()).expect("verifies");
            assert!(report.is_sound() && report.ended && report.row_counts.ok == 20, "{place}: {report:?}");
        }
    }
    println!("{cases} faults");
    assert!(cases > 300, "only {cases} faults fired");
}

#[test]
fn a_failing_call_leaves_the_old_table_or_the_new_one() {
    let dir = memory_directory();
    finish(dir.path());
    let run = read_run(dir.path()).expect("reads");
    let tables = ["requests.parquet", "events.parquet", "hardware.parquet"];
    let rows = |name: &str| table::whole_rows(&dir.path().join(name)).ok();
    let mut cases = 0;
    for (trouble, old) in [
        (Trouble::Once(ENOSPC), false),
        (Trouble::Forever(EIO), true),
        (Trouble::ShortThenFull(usize::MAX), false),
        (Trouble::Short, false),
    ] {
        for n in 1.. {
            tables.iter().for_each(|name| drop(fs::remove_file(dir.path().join(name))));
            if old {
                table::derive(dir.path(), &run).expect("derives");
            }
            let disk = FaultyDisk::new(n, trouble);
            let derived = table::derive_on(&disk, dir.path(), &run, true);
            if disk.unreached() {
                derived.expect("nothing failed");
                break;
            }
            cases += usize::from(disk.fired());
            let lossless = !disk.fired() || trouble == Trouble::Short;
            assert_eq!(derived.is_ok(), lossless, "{trouble:?} at call {n}: {derived:?}");
            if let Err(error) = derived {
                assert!(error.to_string().contains(&dir.path().display().to_string()), "{error}");
            }
            // Whatever has the real name is whole.
            for (name, expected) in tables.iter().zip([run.rows.len(), run.events.len(), run.hardware.len()]) {
                let whole = rows(name) == Some(expected);
                assert!(
                    whole || !old && !lossless && !dir.path().join(name).exists(),
                    "{trouble:?} at call {n}: {name}"
                );
            }
        }
    }
    assert!(cases > 40, "only {cases} faults fired");
}

/// Unmounts at the end of a test.
struct Mounted<'a>(&'a Path);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).status();
    }
}

#[test]
fn a_full_disk_ends_a_run_with_its_rows_safe() {
    // B89: a tmpfs of 1 MiB as the run folder.
    let mount = tempfile::tempdir().expect("a temporary folder");
    let mounted =
        Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m", "inferlab-test"]).arg(mount.path()).output();
    if !mounted.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: this user may not mount a tmpfs");
        return;
    }
    let _mounted = Mounted(mount.path());
    let dir = mount.path().join("run");
    let log = RunLog::create(&dir, &header(), open()).expect("a log");
    let mut acked = Vec::new();
    let error = loop {
        assert!(acked.len() < 100_000, "a disk of 1 MiB took everything");
        let record = row("base", 0, acked.len() as u32, 0, false);
        match log.row_acked(record.clone(), Some(text(&record))) {
            Ok(_) => acked.push(record),
            Err(error) => break error,
        }
    };
    let StorageError::Io { path, cause, .. } = &error else { panic!("{error}") };
    assert_eq!(cause.raw_os_error(), Some(ENOSPC), "{error}");
    assert!(path.contains("run"), "{error}");
    assert!(log.close("storage").is_err());
    let run = read_run(&dir).expect("reads");
    assert!(!run.torn, "a partial line was cut off again");
    assert_eq!(run.rows.iter().map(|row| row.record.clone()).collect::<Vec<_>>(), acked);
    assert!(acked.len() > 100, "{} rows fit", acked.len());
}

#[test]
fn the_rows_of_two_processes_of_one_run_are_one_set() {
    let dir = memory_directory();
    let log = RunLog::create(dir.path(), &header(), open()).expect("a log");
    (0..3).for_each(|index| log.row(row("base", 0, index, 0, false), Some(text(&row("base", 0, index, 0, false)))));
    log.close("interrupted").expect("closes");
    finish(dir.path());
    let run = read_run(dir.path()).expect("reads");
    let keys: BTreeSet<_> = run.live_rows().iter().map(|record| record.key()).collect();
    assert_eq!((keys.len(), run.live_rows().len(), run.superseded()), (20, 20, 3));
}
