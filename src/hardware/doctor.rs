//! `doctor`: what this machine offers, what is missing, and what to do about it.
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access, statfs, statvfs};
use rustix::process::{Resource, getrlimit};
use serde::Serialize;

use super::host::{cpu_features, host_facts, load_average, memory_available};
use super::{cuda_driver, gibibytes, nvrtc};

/// Room below which a run of the larger suites may fill the disk.
const LOW_DISK: u64 = 1 << 30;
/// Memory below which even the small model is tight.
const LOW_MEMORY: u64 = 1 << 30;
/// Open files below which an endpoint run at high concurrency fails.
const FEW_FILES: u64 = 1024;

/// How a check came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// As it should be.
    Ok,
    /// Absent, and nothing in this version needs it.
    Info,
    /// Works, with a limit that a reader should know.
    Warning,
    /// Runs cannot work.
    Broken,
}

/// One check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What was looked at.
    pub name: &'static str,
    /// How it came out.
    pub level: Level,
    /// What was seen.
    pub seen: String,
    /// What to do, where something can be done.
    pub help: Option<String>,
}

impl Check {
    fn new(name: &'static str, level: Level, seen: impl Into<String>) -> Self {
        Self { name, level, seen: seen.into(), help: None }
    }

    fn help(self, help: &str) -> Self {
        Self { help: Some(help.to_owned()), ..self }
    }
}

/// Looks at the machine; `runs` is the folder for runs, `cache` the one for models where there is one, `pip` the command of INFERLAB_PIP.
pub fn examine(runs: &Path, cache: Option<&Path>, pip: Option<&str>) -> Vec<Check> {
    let facts = host_facts();
    let fact = |name: &str| facts.iter().find(|(n, _)| *n == name).map_or("–", |(_, value)| value.as_str());
    let cores = format!("{} available, {} online", fact("cores available"), fact("cores online"));
    let mut checks = vec![
        Check::new("system", Level::Ok, format!("{}, kernel {}, {}", fact("os"), fact("kernel"), fact("architecture"))),
        Check::new("cpu", Level::Ok, fact("cpu")),
        features(),
        Check::new("cores", Level::Ok, cores),
        memory(fact("memory")),
        load(),
        folder("runs folder", runs, Level::Broken),
    ];
    checks.push(match cache {
        Some(cache) => folder("model cache", cache, Level::Warning),
        None => Check::new("model cache", Level::Warning, "no folder for it").help("set INFERLAB_CACHE or HOME"),
    });
    checks.push(open_files());
    checks.push(match crate::pin::pip_version(pip) {
        Some((command, version)) => Check::new("pip", Level::Ok, format!("{version} (`{command}`)")),
        None => {
            Check::new("pip", Level::Info, "not found").help("models from PyPI need it; INFERLAB_PIP names the command")
        }
    });
    checks.push(match cuda_driver() {
        Ok(driver) => cuda(&driver),
        Err(why) => Check::new("cuda", Level::Info, format!("not used: {why}")),
    });
    checks.push(match nvrtc() {
        Ok(nvrtc) => Check::new("nvrtc", Level::Ok, format!("version {}", nvrtc.version)),
        Err(why) => Check::new("nvrtc", Level::Info, why),
    });
    checks
}

fn features() -> Check {
    let found = cpu_features();
    let seen = if found.is_empty() { "none of those the engine uses".to_owned() } else { found.join(" ") };
    let slow = cfg!(target_arch = "x86_64") && !(found.contains(&"avx2") && found.contains(&"fma"));
    if slow {
        Check::new("cpu features", Level::Warning, seen).help("without avx2 and fma the engine is several times slower")
    } else {
        Check::new("cpu features", Level::Ok, seen)
    }
}

fn memory(total: &str) -> Check {
    match memory_available() {
        Some(available) if available < LOW_MEMORY => {
            let seen = format!("{total}, {} available", gibibytes(available));
            Check::new("memory", Level::Warning, seen).help("close other programs, or measure a smaller model")
        }
        Some(available) => Check::new("memory", Level::Ok, format!("{total}, {} available", gibibytes(available))),
        None => Check::new("memory", Level::Info, "unknown"),
    }
}

fn load() -> Check {
    let cores = std::thread::available_parallelism().map_or(1.0, |n| n.get() as f64);
    match load_average() {
        Some([one, ..]) if one > cores / 2.0 => {
            Check::new("load", Level::Warning, format!("{one:.2} over the last minute"))
                .help("other programs are running: numbers measured now are theirs as well")
        }
        Some([one, ..]) => Check::new("load", Level::Ok, format!("{one:.2} over the last minute")),
        None => Check::new("load", Level::Info, "unknown"),
    }
}

/// Whether a folder, or the nearest one above that exists, can be written, and its room; nothing is created.
fn folder(name: &'static str, folder: &Path, when_broken: Level) -> Check {
    let Some(there) = nearest_existing(folder) else {
        return Check::new(name, when_broken, format!("{}: no folder above it exists", folder.display()));
    };
    let shown = folder.display();
    if !there.is_dir() {
        return Check::new(name, when_broken, format!("{shown}: {} is no folder", there.display()))
            .help("choose another folder");
    }
    if let Err(error) = access(&there, Access::WRITE_OK | Access::EXEC_OK) {
        return Check::new(name, when_broken, format!("{shown}: cannot be written ({error})"))
            .help("choose another folder");
    }
    // procfs and sysfs (their magic numbers, statfs(2)) say yes to root and take no file.
    let kernel_view = [0x9fa0, 0x6265_6572];
    if statfs(&there).is_ok_and(|disk| kernel_view.contains(&disk.f_type)) {
        return Check::new(name, when_broken, format!("{shown}: {} is a view of the kernel, no disk", there.display()))
            .help("choose another folder");
    }
    match statvfs(&there).map(|disk| disk.f_bavail.saturating_mul(disk.f_frsize)) {
        Ok(free) if free < LOW_DISK => {
            Check::new(name, Level::Warning, format!("{shown}: writable, {} free", gibibytes(free)))
                .help("make room before a long run")
        }
        Ok(free) => Check::new(name, Level::Ok, format!("{shown}: writable, {} free", gibibytes(free))),
        Err(error) => Check::new(name, Level::Warning, format!("{shown}: writable, free space unknown ({error})")),
    }
}

fn nearest_existing(folder: &Path) -> Option<PathBuf> {
    let absolute = std::path::absolute(folder).ok()?;
    absolute.ancestors().find(|path| path.exists()).map(Path::to_owned)
}

fn open_files() -> Check {
    match getrlimit(Resource::Nofile).current {
        Some(limit) if limit < FEW_FILES => Check::new("open files", Level::Warning, format!("limit {limit}"))
            .help("`ulimit -n 4096`: each request in flight to an endpoint holds a connection"),
        Some(limit) => Check::new("open files", Level::Ok, format!("limit {limit}")),
        None => Check::new("open files", Level::Ok, "no limit"),
    }
}

fn cuda(driver: &super::CudaDriver) -> Check {
    let version = driver.version.as_deref().unwrap_or("unknown");
    let devices: Vec<String> = driver
        .devices
        .iter()
        .map(|device| {
            let memory = device.memory_bytes.map_or("memory unknown".to_owned(), gibibytes);
            let capability = device.compute_capability.as_deref().unwrap_or("unknown");
            format!("{} ({memory}, compute capability {capability})", device.name)
        })
        .collect();
    let seen = match devices.as_slice() {
        [] => format!("driver for CUDA {version}, no device"),
        devices => format!("driver for CUDA {version}: {}", devices.join("; ")),
    };
    Check::new("cuda", Level::Info, format!("{seen}; the engine of this version runs on the CPU"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runs_folder_below_a_file_is_broken_and_one_to_be_created_is_not() {
        let temporary = tempfile::tempdir().unwrap();
        let file = temporary.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert_eq!(folder("runs folder", &file.join("runs"), Level::Broken).level, Level::Broken);
        let fresh = temporary.path().join("a/b/runs");
        assert_ne!(folder("runs folder", &fresh, Level::Broken).level, Level::Broken);
        assert!(!temporary.path().join("a").exists(), "doctor creates nothing");
        // Root may "write" there by the permission bits, and every file fails.
        assert_eq!(folder("runs folder", Path::new("/proc/self/runs"), Level::Broken).level, Level::Broken);
    }
}
