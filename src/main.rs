//! The `inferlab` program.
fn main() -> std::process::ExitCode {
    inferlab::cli::main(std::env::args_os()).into()
}
