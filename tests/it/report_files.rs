//! A whole report on disk: what it says and what it leaves.
use std::path::Path;

use inferlab::report;

use crate::report_summary::{failed_run, full_run, invalid_synthetic_run};

/// `INFERLAB_PICTURES=dir` keeps the reports for a person to look at.
fn folder(name: &str) -> (Option<tempfile::TempDir>, std::path::PathBuf) {
    match std::env::var_os("INFERLAB_PICTURES") {
        Some(dir) => (None, Path::new(&dir).join(name)),
        None => {
            let dir = tempfile::tempdir().expect("temporary folder");
            let path = dir.path().join(name);
            (Some(dir), path)
        }
    }
}

#[test]
fn a_report_of_each_kind_is_written() {
    for (name, runs) in [
        ("full", vec![full_run()]),
        ("invalid", vec![invalid_synthetic_run()]),
        ("failed", vec![failed_run()]),
        ("several", vec![full_run(), invalid_synthetic_run()]),
    ] {
        let (_keep, dir) = folder(name);
        let start = std::time::Instant::now();
        let paths = report::write(&runs, &dir, &[]).expect("report written");
        eprintln!("{name}: {:?} {paths:?}", start.elapsed());
    }
}
