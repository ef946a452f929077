//! What machine and what program this is: provenance of a segment, samples during a run, and `doctor`.
//!
//! Nothing here names a person: no host name, no user name; the home folder in arguments becomes `~`.
mod argv;
mod cuda;
mod doctor;
mod host;
mod sampler;

use serde_json::{Map, Value, json};

pub use argv::redacted;
pub use cuda::{CudaDevice, CudaDriver, Nvrtc, cuda_driver, nvrtc};
pub use doctor::{Check, Level, examine};
pub use host::{boot_id, cpu_features, host_facts};
pub use sampler::{HardwareSample, Sampler};

/// Name and value, in the order a table prints them; a fact that cannot be known is left out.
pub type Facts = Vec<(&'static str, String)>;

/// Host and build as the log's provenance holds them: `{"host": {name: value}, "build": {name: value}}`, all values text.
pub fn provenance() -> Value {
    json!({"host": object(host_facts()), "build": object(build_facts())})
}

/// What program this is: version, revision, profile, target, compiler, digest of the binary, arguments.
pub fn build_facts() -> Facts {
    let mut facts = vec![
        ("version", env!("CARGO_PKG_VERSION").to_owned()),
        ("git revision", env!("INFERLAB_GIT_REVISION").to_owned()),
        ("profile", env!("INFERLAB_PROFILE").to_owned()),
        ("target", env!("INFERLAB_TARGET").to_owned()),
        ("compiler", env!("INFERLAB_RUSTC").to_owned()),
    ];
    facts.extend(binary_md5().map(|md5| ("binary md5", md5)));
    let home = std::env::var("HOME").ok();
    let mut arguments: Vec<_> = std::env::args_os().collect();
    // Where the program lies is a matter of this machine; which one it is stands in its md5.
    if let Some(program) = arguments.first_mut() {
        *program = std::path::Path::new(program).file_name().unwrap_or_default().to_owned();
    }
    facts.push(("arguments", redacted(arguments, home.as_deref()).join(" ")));
    facts
}

/// md5 of the running program; read once and then known by its stamp.
fn binary_md5() -> Option<String> {
    let program = std::env::current_exe().ok()?;
    let store = crate::pin::Store::from_environment().ok()?;
    crate::pin::stamped_md5(&store.cache, &program).ok()
}

fn object(facts: Facts) -> Value {
    Value::Object(facts.into_iter().map(|(name, value)| (name.to_owned(), Value::String(value))).collect::<Map<_, _>>())
}

/// Memory in GiB with one decimal, disk and RAM alike.
fn gibibytes(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn provenance_holds_texts_only_and_no_host_name() {
        let provenance = provenance();
        for group in ["host", "build"] {
            let group = provenance[group].as_object().unwrap();
            assert!(!group.is_empty());
            assert!(group.values().all(Value::is_string), "{group:?}");
        }
        if let Ok(name) = std::fs::read_to_string("/proc/sys/kernel/hostname")
            && name.trim().len() > 6
        {
            assert!(!provenance["host"].to_string().contains(name.trim()));
        }
    }
}
