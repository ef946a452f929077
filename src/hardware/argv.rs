//! Arguments as they may be written to a log: secrets out, the home folder shortened.
use std::ffi::OsString;

const HIDDEN: &str = "[redacted]";
/// Words of a flag's or variable's name that make its value a secret.
const SECRET_WORDS: &[&str] = &[
    "key",
    "apikey",
    "token",
    "secret",
    "password",
    "passwd",
    "pwd",
    "auth",
    "authorization",
    "credential",
    "credentials",
    "bearer",
    "cookie",
];
/// Beginnings of well-known secrets, wherever they stand.
const SECRET_STARTS: &[&str] = &["sk-", "hf_", "ghp_", "gho_", "github_pat_", "xoxb-", "AKIA", "eyJ"];

/// The arguments of a command line without secrets.
///
/// Hidden are: the argument after a flag such as `--api-key`, the value in `--api-key=…` or `LAB_TOKEN=…`, the user part and secret
/// parameters of a URL, and words that begin as well-known tokens do. `home` becomes `~`.
pub fn redacted(arguments: impl IntoIterator<Item = OsString>, home: Option<&str>) -> Vec<String> {
    let mut hide_next = false;
    let mut out = Vec::new();
    for argument in arguments {
        let argument = argument.to_string_lossy().into_owned();
        let is_flag = argument.starts_with('-');
        if std::mem::take(&mut hide_next) && !is_flag {
            out.push(HIDDEN.to_owned());
            continue;
        }
        hide_next = is_flag && !argument.contains('=') && is_secret_name(&argument);
        out.push(shorten(&without_secrets(&argument), home));
    }
    out
}

fn without_secrets(argument: &str) -> String {
    if let Some(at) = argument.find("://") {
        return without_url_secrets(argument, at + 3);
    }
    match argument.split_once('=') {
        Some((name, value)) if is_secret_name(name) || looks_secret(value) => format!("{name}={HIDDEN}"),
        None if looks_secret(argument) => HIDDEN.to_owned(),
        _ => argument.to_owned(),
    }
}

/// `text` with the user part of its URL and the values of secret parameters hidden; the authority begins at `start`.
fn without_url_secrets(text: &str, start: usize) -> String {
    let (head, rest) = text.split_at(start);
    let authority = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, tail) = rest.split_at(authority);
    let authority = match authority.rsplit_once('@') {
        Some((_, host)) => format!("{HIDDEN}@{host}"),
        None => authority.to_owned(),
    };
    let tail = match tail.split_once('?') {
        Some((path, query)) => {
            let parameters: Vec<String> = query.split('&').map(without_secrets).collect();
            format!("{path}?{}", parameters.join("&"))
        }
        None => tail.to_owned(),
    };
    format!("{head}{authority}{tail}")
}

fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| SECRET_WORDS.contains(&word))
}

fn looks_secret(value: &str) -> bool {
    value.len() >= 8 && SECRET_STARTS.iter().any(|start| value.starts_with(start))
}

fn shorten(text: &str, home: Option<&str>) -> String {
    match home.map(|home| home.trim_end_matches('/')).filter(|home| !home.is_empty()) {
        Some(home) => text.replace(&format!("{home}/"), "~/"),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(arguments: &[&str]) -> String {
        redacted(arguments.iter().map(OsString::from), Some("/home/ada")).join(" ")
    }

    #[test]
    fn secrets_after_and_inside_flags_are_hidden() {
        assert_eq!(shown(&["x", "--api-key", "abc", "y"]), "x --api-key [redacted] y");
        assert_eq!(shown(&["--api-key=abc"]), "--api-key=[redacted]");
        assert_eq!(shown(&["LAB_KEY=abc"]), "LAB_KEY=[redacted]");
        assert_eq!(shown(&["--set", "target.endpoint.password=abc"]), "--set target.endpoint.password=[redacted]");
        assert_eq!(shown(&["--header", "sk-abcdef123456"]), "--header [redacted]");
    }

    #[test]
    fn secrets_in_a_url_are_hidden_and_the_rest_stays() {
        assert_eq!(
            shown(&["http://u:p@host:1/v1?api_key=abc&n=2"]),
            "http://[redacted]@host:1/v1?api_key=[redacted]&n=2"
        );
        assert_eq!(shown(&["--url=https://host/v1"]), "--url=https://host/v1");
    }

    #[test]
    fn what_only_looks_like_a_secret_stays() {
        assert_eq!(shown(&["--set", "workloads.prompt_tokens=512"]), "--set workloads.prompt_tokens=512");
        assert_eq!(shown(&["--key", "--json"]), "--key --json");
    }

    #[test]
    fn the_home_folder_is_not_told() {
        assert_eq!(shown(&["/home/ada/bin/inferlab", "--out=/home/ada/runs"]), "~/bin/inferlab --out=~/runs");
    }
}
