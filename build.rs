//! Records what the program is built from: git revision, target, profile, compiler. Works without git and outside a repository.
use std::path::Path;
use std::process::Command;

fn main() {
    let revision =
        git(&["describe", "--always", "--dirty", "--abbrev=12"]).unwrap_or_else(|| "unknown revision".to_owned());
    println!("cargo::rustc-env=INFERLAB_GIT_REVISION={revision}");
    let compiler = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let version = output(Command::new(compiler).arg("--version")).unwrap_or_else(|| "unknown compiler".to_owned());
    println!("cargo::rustc-env=INFERLAB_RUSTC={version}");
    for (name, variable) in [("INFERLAB_TARGET", "TARGET"), ("INFERLAB_PROFILE", "PROFILE")] {
        println!("cargo::rustc-env={name}={}", std::env::var(variable).unwrap_or_else(|_| "unknown".to_owned()));
    }

    // A change of the sources may make the tree dirty, a commit or checkout changes HEAD or its log.
    for path in ["build.rs", "Cargo.toml", "Cargo.lock", "src", "models"] {
        println!("cargo::rerun-if-changed={path}");
    }
    for name in ["HEAD", "logs/HEAD"] {
        // A path that does not exist would have this run at each build.
        if let Some(path) = git(&["rev-parse", "--git-path", name])
            && Path::new(&path).exists()
        {
            println!("cargo::rerun-if-changed={path}");
        }
    }
}

fn git(arguments: &[&str]) -> Option<String> {
    output(Command::new("git").args(arguments))
}

/// What a command printed, if it ran and ended well.
fn output(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (!text.is_empty()).then_some(text)
}
