//! A panic is a bug of ours: said in two lines, exit code 70.
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::exit::ExitCode;

/// Replaces the panic message by one that asks for a report; a backtrace comes with RUST_BACKTRACE only.
pub(super) fn install_hook() {
    std::panic::set_hook(Box::new(|info| {
        let message = info.payload_as_str().unwrap_or("no message");
        let place = info.location().map(|place| format!(" at {}:{}", place.file(), place.line())).unwrap_or_default();
        let mut stderr = std::io::stderr().lock();
        writeln!(stderr, "inferlab: internal error{place}: {message}").ok();
        writeln!(stderr, "This is a bug. Please report it with the command line and the line above.").ok();
        if std::env::var_os("RUST_BACKTRACE").is_some_and(|value| value != "0") {
            writeln!(stderr, "{}", std::backtrace::Backtrace::force_capture()).ok();
        }
    }));
}

/// Runs `body`; a panic in it is [`ExitCode::Internal`].
pub(super) fn guard(body: impl FnOnce() -> ExitCode) -> ExitCode {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(ExitCode::Internal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_exit_code_70() {
        assert_eq!(guard(|| panic!("for the test")).number(), 70);
        assert_eq!(guard(|| ExitCode::Invalid).number(), 10);
    }
}
