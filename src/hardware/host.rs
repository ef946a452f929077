//! Facts about the host that a reader of numbers needs.
use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::{Facts, gibibytes};

/// Kernel files are small; a strange one may not be.
const READ_LIMIT: u64 = 1 << 20;

/// CPU, cores, memory, load, governor, kernel, system, boot id.
pub fn host_facts() -> Facts {
    let cpuinfo = read("/proc/cpuinfo");
    let meminfo = read("/proc/meminfo");
    let memory = |key: &str| meminfo.as_deref().and_then(|text| kibibytes(text, key)).map(gibibytes);
    let mut facts = Facts::new();
    let mut fact = |name, value: Option<String>| facts.extend(value.map(|value| (name, value)));
    fact("cpu", cpuinfo.as_deref().and_then(cpu_model));
    fact("cpu features", Some(cpu_features().join(" ")).filter(|features| !features.is_empty()));
    fact("cores available", std::thread::available_parallelism().ok().map(|n| n.to_string()));
    fact(
        "cores online",
        read_line("/sys/devices/system/cpu/online").as_deref().and_then(count_of_ranges).map(|n| n.to_string()),
    );
    fact("virtual machine", cpuinfo.as_deref().filter(|text| has_flag(text, "hypervisor")).map(|_| "yes".to_owned()));
    fact("memory", memory("MemTotal"));
    fact("memory available", memory("MemAvailable"));
    fact("memory limit", read_line("/sys/fs/cgroup/memory.max").and_then(|limit| limit.parse().ok()).map(gibibytes));
    fact("load average", load_average().map(|load| load.map(|l| format!("{l:.2}")).join(" ")));
    fact("governor", read_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"));
    fact("os", os_name());
    fact("kernel", read_line("/proc/sys/kernel/osrelease"));
    fact("architecture", Some(std::env::consts::ARCH.to_owned()));
    fact("boot id", boot_id());
    facts
}

/// An id that changes at each boot; a segment after a reboot cannot be taken for the one before it.
pub fn boot_id() -> Option<String> {
    read_line("/proc/sys/kernel/random/boot_id")
}

/// Instruction sets that matter to the engine and that this CPU has.
pub fn cpu_features() -> Vec<&'static str> {
    let mut found = Vec::new();
    macro_rules! detect {
        ($detect:ident: $($feature:tt)*) => { $(if std::arch::$detect!($feature) { found.push($feature); })* };
    }
    #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
    detect!(is_x86_feature_detected: "sse4.2" "avx" "avx2" "fma" "f16c" "avx512f" "avx512bw" "avx512vnni" "avx512bf16" "avxvnni");
    #[cfg(target_arch = "aarch64")]
    detect!(is_aarch64_feature_detected: "neon" "fp16" "dotprod" "i8mm" "bf16" "sve");
    found
}

/// The three load averages: 1, 5 and 15 minutes.
pub(super) fn load_average() -> Option<[f64; 3]> {
    let line = read_line("/proc/loadavg")?;
    let mut numbers = line.split_whitespace().map(str::parse::<f64>);
    let mut next = || numbers.next()?.ok();
    Some([next()?, next()?, next()?])
}

/// Available memory in bytes, as the kernel estimates it.
pub(super) fn memory_available() -> Option<u64> {
    kibibytes(&read("/proc/meminfo")?, "MemAvailable")
}

/// A kernel file, if it is there and text.
pub(super) fn read(path: impl AsRef<Path>) -> Option<String> {
    let mut text = String::new();
    File::open(path).ok()?.take(READ_LIMIT).read_to_string(&mut text).ok()?;
    Some(text)
}

pub(super) fn read_line(path: impl AsRef<Path>) -> Option<String> {
    let text = read(path)?;
    let line = text.lines().next()?.trim();
    (!line.is_empty()).then(|| line.to_owned())
}

fn cpu_model(cpuinfo: &str) -> Option<String> {
    // x86 says `model name`; some ARM kernels say `Model` or `Hardware`, others nothing a person would know.
    ["model name", "Model", "Hardware"].iter().find_map(|key| value_of(cpuinfo, key)).map(str::to_owned)
}

fn value_of<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key).then(|| value.trim()).filter(|value| !value.is_empty())
    })
}

fn has_flag(cpuinfo: &str, flag: &str) -> bool {
    value_of(cpuinfo, "flags").is_some_and(|flags| flags.split_whitespace().any(|found| found == flag))
}

/// Bytes of a `Name:  123 kB` line of /proc.
pub(super) fn kibibytes(text: &str, key: &str) -> Option<u64> {
    value_of(text, key)?.strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// CPUs in a list such as `0-3,8,10-11`.
fn count_of_ranges(list: &str) -> Option<u64> {
    list.split(',')
        .map(|range| match range.split_once('-') {
            Some((first, last)) => {
                let (first, last) = (first.parse::<u64>().ok()?, last.parse::<u64>().ok()?);
                last.checked_sub(first)?.checked_add(1)
            }
            None => range.parse::<u64>().ok().map(|_| 1),
        })
        .try_fold(0u64, |sum, count| sum.checked_add(count?))
}

fn os_name() -> Option<String> {
    let text = read("/etc/os-release").unwrap_or_default();
    let pretty =
        text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME=")).map(|name| name.trim_matches('"').to_owned());
    pretty.or_else(|| Some(std::env::consts::OS.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn online_cpus_are_counted_from_the_kernels_list() {
        assert_eq!(count_of_ranges("0-3,8,10-11"), Some(7));
        assert_eq!(count_of_ranges("0"), Some(1));
        assert_eq!(count_of_ranges("3-1"), None);
        assert_eq!(count_of_ranges("all"), None);
    }

    #[test]
    fn fields_of_proc_are_read_and_unknown_ones_are_none() {
        let cpuinfo = "processor\t: 0\nmodel name\t: Example CPU @ 2.0GHz\nflags\t\t: fpu hypervisor avx2\n";
        assert_eq!(cpu_model(cpuinfo).as_deref(), Some("Example CPU @ 2.0GHz"));
        assert!(has_flag(cpuinfo, "hypervisor") && !has_flag(cpuinfo, "avx"));
        assert_eq!(cpu_model("processor : 0\nCPU part : 0xd0c\n"), None);
        assert_eq!(kibibytes("MemTotal:       16 kB\n", "MemTotal"), Some(16384));
        assert_eq!(kibibytes("MemTotal:       16\n", "MemTotal"), None);
    }
}
