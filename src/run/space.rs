//! Checks the place of a run before anything is loaded: it can be written, and the plan fits.
use std::path::Path;

use rustix::fs::{Access, access};

use super::RunError;
use crate::record::{self, StorageError};

/// Figures and tables of a report, and what file systems round up to.
const REPORT_BYTES: u64 = 2 << 20;

/// Makes `folder` where it is absent and checks that it takes `log_bytes` of log and texts, as many again for the tables, and a
/// report.
///
/// Errors: the folder cannot be made or written; too little room.
pub fn check(folder: &Path, log_bytes: u64) -> Result<(), RunError> {
    std::fs::create_dir_all(folder).map_err(|error| StorageError::io(folder, "mkdir", error))?;
    access(folder, Access::WRITE_OK).map_err(|error| StorageError::io(folder, "write", error.into()))?;
    let free = record::free_bytes(folder)?;
    let needed = log_bytes.saturating_mul(2).saturating_add(REPORT_BYTES);
    if free < needed {
        return Err(RunError::Space {
            path: folder.display().to_string(),
            free_mib: free >> 20,
            needed_mib: needed.div_ceil(1 << 20),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_larger_than_the_disk_is_refused_and_the_folder_named() {
        let place = tempfile::tempdir().unwrap();
        let runs = place.path().join("deep/runs");
        check(&runs, 1000).unwrap();
        let error = check(&runs, u64::MAX / 4).unwrap_err();
        assert!(matches!(&error, RunError::Space { path, .. } if *path == runs.display().to_string()), "{error}");
    }

    #[test]
    fn a_place_that_is_no_folder_is_refused_and_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = check(&file.path().join("runs"), 1).unwrap_err();
        assert!(matches!(error, RunError::Storage(_)) && error.to_string().contains("runs: mkdir failed"), "{error}");
    }
}
