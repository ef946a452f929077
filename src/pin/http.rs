//! Download over HTTP into a part file, going on after every cut.
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::time::Duration;

use reqwest::StatusCode;
use reqwest::header::{CONTENT_RANGE, RANGE};

use super::catalog::ModelPin;
use super::error::PinError;
use super::fetch::{FetchEvent, Watch};
use super::store::cause_of_head;

/// Attempts without a single new byte before giving up.
const ATTEMPTS: u32 = 4;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
/// No byte for this long counts as a cut.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
const FIRST_WAIT: Duration = Duration::from_millis(200);

/// `<hub>/<repo>/resolve/<revision>/<file>`, each part percent-encoded.
pub(super) fn hub_url(hub: &str, repo: &str, revision: &str, file: &str) -> String {
    // The hub wants a slash in a revision encoded, and slashes of repository and file as they are.
    let path = |text: &str| text.split('/').map(encode).collect::<Vec<_>>().join("/");
    format!("{hub}/{}/resolve/{}/{}", path(repo), encode(revision), path(file))
}

fn encode(text: &str) -> String {
    use std::fmt::Write;
    text.bytes().fold(String::new(), |mut out, byte| {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-' | b'~') {
            out.push(char::from(byte));
        } else {
            write!(out, "%{byte:02X}").expect("a String takes every write");
        }
        out
    })
}

/// How one attempt ended.
enum End {
    /// Every byte is there.
    Done,
    /// Cut; the part file keeps what came.
    Cut(String),
    /// The server will not go on from where we are: begin again.
    Again(&'static str),
}

/// Fills `part` to the size of the pin, from where it stands.
///
/// Runs on a thread of its own, so that a caller inside an async runtime may call it.
pub(super) fn download(url: &str, part: &Path, pin: &ModelPin, watch: &Watch<'_>) -> Result<(), PinError> {
    std::thread::scope(|scope| {
        let worker = std::thread::Builder::new().name("fetch".to_owned());
        let work = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.map_err(|error| network(url, &error))?;
            runtime.block_on(download_all(url, part, pin, watch))
        };
        let handle = worker.spawn_scoped(scope, work).map_err(|error| network(url, &error))?;
        handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

async fn download_all(url: &str, part: &Path, pin: &ModelPin, watch: &Watch<'_>) -> Result<(), PinError> {
    // Another part of the program may have chosen it before; there is only one provider in the build.
    rustls::crypto::ring::default_provider().install_default().ok();
    let client = reqwest::Client::builder()
        .user_agent(concat!("inferlab/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT_TIMEOUT)
        .read_timeout(IDLE_TIMEOUT)
        .build()
        .map_err(|error| network(url, &error))?;
    let mut file =
        File::options().create(true).truncate(false).write(true).open(part).map_err(PinError::io("open", part))?;
    let mut restarted = false;
    let (mut failures, mut wait) = (0, FIRST_WAIT);
    loop {
        watch.check(&pin.name)?;
        let before = position(&mut file, part, pin)?;
        if before == pin.bytes {
            file.sync_data().map_err(PinError::io("write", part))?;
            return Ok(());
        }
        if before > 0 {
            watch.tell(FetchEvent::Note(&format!("going on at byte {before} of {}", pin.bytes)));
        }
        let end = tokio::select! {
            end = attempt(&client, url, &mut file, before, part, pin, watch) => end?,
            () = stopped(watch) => return Err(PinError::Stopped { name: pin.name.clone() }),
        };
        let cause = match end {
            End::Done => continue,
            End::Again(cause) if !restarted => {
                restarted = true;
                file.set_len(0).map_err(PinError::io("write", part))?;
                watch.tell(FetchEvent::Note(&format!("{cause}; beginning again")));
                continue;
            }
            End::Again(cause) => cause.to_owned(),
            End::Cut(cause) => cause,
        };
        if position(&mut file, part, pin)? > before {
            (failures, wait) = (0, FIRST_WAIT);
        }
        failures += 1;
        if failures >= ATTEMPTS {
            return Err(PinError::Network { url: url.to_owned(), message: cause });
        }
        watch.tell(FetchEvent::Note(&format!("{cause}; trying again")));
        tokio::time::sleep(wait).await;
        wait *= 2;
    }
}

/// Where the part file ends; a part that is longer than the model is no part of it and is emptied.
fn position(file: &mut File, part: &Path, pin: &ModelPin) -> Result<u64, PinError> {
    let end = file.seek(SeekFrom::End(0)).map_err(PinError::io("read", part))?;
    if end <= pin.bytes {
        return Ok(end);
    }
    file.set_len(0).map_err(PinError::io("write", part))?;
    file.seek(SeekFrom::Start(0)).map_err(PinError::io("write", part))
}

async fn stopped(watch: &Watch<'_>) {
    while !(watch.stopped)() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn attempt(
    client: &reqwest::Client,
    url: &str,
    file: &mut File,
    start: u64,
    part: &Path,
    pin: &ModelPin,
    watch: &Watch<'_>,
) -> Result<End, PinError> {
    let request = client.get(url);
    let request = if start > 0 { request.header(RANGE, format!("bytes={start}-")) } else { request };
    let mut response = match request.send().await {
        Ok(response) => response,
        Err(error) => return Ok(End::Cut(reason(&error))),
    };
    let mut at = match response.status() {
        StatusCode::PARTIAL_CONTENT if start > 0 => {
            let range = response.headers().get(CONTENT_RANGE).and_then(|value| value.to_str().ok()).unwrap_or_default();
            if range != format!("bytes {start}-{}/{}", pin.bytes - 1, pin.bytes) {
                return Ok(End::Again("the server answered with another range than asked for"));
            }
            start
        }
        StatusCode::OK => {
            // A server without ranges sends the whole file again.
            file.set_len(0).and_then(|()| file.seek(SeekFrom::Start(0))).map_err(PinError::io("write", part))?;
            0
        }
        StatusCode::RANGE_NOT_SATISFIABLE if start > 0 => {
            return Ok(End::Again("the server has no bytes from there on"));
        }
        status if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => {
            return Ok(End::Cut(format!("HTTP status {status}")));
        }
        status => return Err(PinError::Http { url: url.to_owned(), status: status.as_u16() }),
    };
    let announced = response.content_length().map(|length| at + length);
    let mut first = Vec::new();
    loop {
        let chunk = match response.chunk().await {
            Ok(Some(chunk)) => chunk,
            Ok(None) if at == pin.bytes => return Ok(End::Done),
            // The whole answer came and is too short: no second try makes it longer.
            Ok(None) if at == announced.unwrap_or(at) => {
                file.set_len(0).map_err(PinError::io("write", part))?;
                return Err(wrong_size(url, pin, at, &first));
            }
            Ok(None) => return Ok(End::Cut(format!("the connection ended at byte {at} of {}", pin.bytes))),
            Err(error) => return Ok(End::Cut(reason(&error))),
        };
        if first.len() < 64 {
            first.extend_from_slice(&chunk[..chunk.len().min(64)]);
        }
        if announced.is_some_and(|length| length != pin.bytes) || at + chunk.len() as u64 > pin.bytes {
            file.set_len(0).map_err(PinError::io("write", part))?;
            let found = announced.unwrap_or(at + chunk.len() as u64);
            return Err(wrong_size(url, pin, found, &first));
        }
        file.write_all(&chunk).map_err(PinError::io("write", part))?;
        at += chunk.len() as u64;
        watch.tell(FetchEvent::Downloaded { done: at, total: Some(pin.bytes) });
    }
}

fn wrong_size(url: &str, pin: &ModelPin, found: u64, head: &[u8]) -> PinError {
    let cause = cause_of_head(head).to_owned();
    PinError::Size { name: pin.name.clone(), origin: url.to_owned(), expected: pin.bytes, found, cause }
}

fn network(url: &str, error: &dyn std::error::Error) -> PinError {
    PinError::Network { url: url.to_owned(), message: reason(error) }
}

/// An error with its causes, shortest useful form: reqwest keeps the interesting one innermost.
fn reason(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let inner = error.to_string();
        if !text.contains(&inner) {
            text.push_str(": ");
            text.push_str(&inner);
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hub_url_encodes_what_a_path_cannot_hold() {
        let url = hub_url("https://example.org", "owner/name", "refs/pr/1", "sub folder/m+1#.gguf");
        assert_eq!(url, "https://example.org/owner/name/resolve/refs%2Fpr%2F1/sub%20folder/m%2B1%23.gguf");
    }
}
