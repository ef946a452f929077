//! Where calibrations are kept: one for each host and build under the cache.
use std::path::PathBuf;

use sha2::{Digest, Sha256};

use super::CalibrateError;
use crate::hardware;
use crate::pin::Store;
use crate::record::Calibration;

/// Facts of the host that name it: the rest changes from hour to hour.
const HOST: [&str; 4] = ["cpu", "cores available", "kernel", "os"];
/// Facts that name the build.
const BUILD: [&str; 3] = ["version", "profile", "binary md5"];
/// Largest file that is read as a calibration.
const MOST_BYTES: u64 = 1 << 20;

/// `<cache>/calibration/<16 hex digits of host and build>.json`.
fn path() -> Result<PathBuf, CalibrateError> {
    let provenance = hardware::provenance();
    let mut hash = Sha256::new();
    for (group, names) in [("host", &HOST[..]), ("build", &BUILD[..])] {
        for name in names {
            let value = provenance[group][*name].as_str().unwrap_or_default();
            hash.update((value.len() as u64).to_le_bytes());
            hash.update(value.as_bytes());
        }
    }
    let name: String = hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    Ok(Store::from_environment()?.cache.join("calibration").join(format!("{name}.json")))
}

/// Keeps `calibration` for this host and build; gives its file.
pub fn save(calibration: &Calibration) -> Result<PathBuf, CalibrateError> {
    let path = path()?;
    let failed = |source| CalibrateError::Store { path: path.clone(), source };
    let text = serde_json::to_vec_pretty(calibration).expect("plain data has a JSON form");
    let folder = path.parent().expect("it lies in a folder");
    std::fs::create_dir_all(folder).map_err(failed)?;
    // Beside it and then renamed: a reader sees the old one or the new one.
    let part = path.with_extension(format!("{}.part", std::process::id()));
    std::fs::write(&part, text).and_then(|()| std::fs::rename(&part, &path)).map_err(failed)?;
    Ok(path)
}

/// The calibration of this host and build; `None` where there is none that can be read.
pub fn load() -> Option<Calibration> {
    let path = path().ok()?;
    if std::fs::metadata(&path).ok()?.len() > MOST_BYTES {
        return None;
    }
    serde_json::from_slice(&std::fs::read(&path).ok()?).ok()
}
