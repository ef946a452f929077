//! Ctrl-C and friends: the first signal asks for an orderly end, the second ends at once.
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::exit::ExitCode;

/// Calls `stop`, from a thread of its own, at SIGINT, SIGTERM and SIGHUP; a second of them exits with 20 from inside the signal
/// handler, whatever hangs.
///
/// A SIGHUP that was ignored from the start, as under `nohup`, stays ignored. SIGPIPE stays ignored, as Rust has it. Call it once in
/// a process.
///
/// Errors: the system refuses a handler or a thread.
pub fn on_stop(stop: impl Fn() + Send + 'static) -> io::Result<()> {
    let seen = Arc::new(AtomicBool::new(false));
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut signals = vec![SIGINT, SIGTERM];
    if !is_ignored(SIGHUP, &status) {
        signals.push(SIGHUP);
    }
    for &signal in &signals {
        // Actions of a signal run in this order: the first signal finds `seen` unset and sets it, the second one exits.
        let code = i32::from(ExitCode::Interrupted.number());
        signal_hook::flag::register_conditional_shutdown(signal, code, Arc::clone(&seen))?;
        signal_hook::flag::register(signal, Arc::clone(&seen))?;
    }
    let mut queue = Signals::new(signals)?;
    let listen = move || {
        for _ in queue.forever() {
            stop();
        }
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(listen).map(drop)
}

/// Whether the process ignores a signal: a bit of the hexadecimal mask `SigIgn` in /proc/self/status.
fn is_ignored(signal: i32, status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal - 1) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ignored_signal_is_seen_in_the_mask_of_the_kernel() {
        // SIGHUP is 1 and SIGPIPE 13: bits 0 and 12.
        let status = "Name:\tx\nSigIgn:\t0000000000001001\nSigCgt:\t0000000000004002\n";
        assert!(is_ignored(SIGHUP, status) && is_ignored(signal_hook::consts::SIGPIPE, status));
        assert!(!is_ignored(SIGINT, status) && !is_ignored(SIGHUP, ""));
    }
}
