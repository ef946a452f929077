//! A loopback chat server whose recorded write times are the truth that clients are measured against. Standard library only:
//!
//!     rustc -O --edition 2024 benches/peers/stub.rs -o /tmp/stub && /tmp/stub /tmp/truth.jsonl
//!
//! It prints its address and serves `/v1/models` and `/v1/chat/completions`, a thread a connection. How it answers stands in the model's
//! name: `stub`, or `stub?ttft_ms=50&itl_ms=20&tokens=64&mode=role`. Modes:
//! - `plain`: one token an event, usage at the end;
//! - `role`: the same behind a role-only chunk that is sent at once, before the prefill;
//! - `four`: four tokens an event, usage in every chunk;
//! - `reasoning`: the first half is reasoning; `empty`: an empty delta after every token; `usage`: usage in every chunk;
//! - `malformed`: one event in the middle is no JSON; `cut`: the connection closes at half; `error`: an error object at half.
//!
//! `stall_at_s` and `stall_s` stop the whole server once, counted from its first request. `tokens` overrides what the request asks for.
//!
//! Each answer becomes one line of the truth file: the seed of the request, when its last byte had been read, when each write of tokens
//! began, in ns of CLOCK_MONOTONIC, and how many tokens each carried.
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

#[repr(C)]
struct Timespec {
    seconds: i64,
    nanoseconds: i64,
}

unsafe extern "C" {
    fn clock_gettime(clock: i32, time: *mut Timespec) -> i32;
}

/// ns of CLOCK_MONOTONIC, the clock that clients on this machine can read too.
fn now() -> u64 {
    let mut time = Timespec { seconds: 0, nanoseconds: 0 };
    // SAFETY: the kernel writes one timespec; clock 1 is CLOCK_MONOTONIC on Linux.
    unsafe { clock_gettime(1, &mut time) };
    time.seconds as u64 * 1_000_000_000 + time.nanoseconds as u64
}

fn sleep_until(deadline: u64) {
    let left = deadline.saturating_sub(now());
    if left > 0 {
        std::thread::sleep(Duration::from_nanos(left));
    }
}

type Truth = Arc<Mutex<std::fs::File>>;
static FIRST: OnceLock<u64> = OnceLock::new();

fn main() {
    let path = std::env::args().nth(1).expect("usage: stub TRUTH.jsonl [PORT]");
    let port: u16 = std::env::args().nth(2).map_or(0, |port| port.parse().expect("a port"));
    let truth: Truth = Arc::new(Mutex::new(std::fs::File::create(path).expect("the truth file can be written")));
    let listener = TcpListener::bind(("127.0.0.1", port)).expect("a loopback port");
    println!("http://{}/v1", listener.local_addr().expect("an address"));
    for stream in listener.incoming().flatten() {
        let truth = truth.clone();
        let serve = move || drop(connection(stream, &truth));
        std::thread::Builder::new().stack_size(128 << 10).spawn(serve).expect("a thread");
    }
}

fn connection(stream: TcpStream, truth: &Truth) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut out = stream;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let (mut length, mut close) = (0usize, false);
        loop {
            let mut header = String::new();
            reader.read_line(&mut header)?;
            let header = header.trim_end().to_ascii_lowercase();
            if header.is_empty() {
                break;
            }
            if let Some(value) = header.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap_or(0);
            }
            close |= header == "connection: close";
        }
        let mut body = vec![0; length.min(64 << 20)];
        reader.read_exact(&mut body)?;
        let read_ns = now();
        if line.starts_with("POST /v1/chat/completions") {
            if !answer(&mut out, &String::from_utf8_lossy(&body), read_ns, truth)? {
                return Ok(());
            }
        } else {
            let (status, body) = if line.starts_with("GET /v1/models") {
                ("200 OK", r#"{"object":"list","data":[{"id":"stub","object":"model"}]}"#)
            } else {
                ("404 Not Found", r#"{"error":{"message":"not here"}}"#)
            };
            let length = body.len();
            write!(out, "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}")?;
        }
        if close {
            return Ok(());
        }
    }
}

/// The number behind `"name":` in a JSON text without nesting of that name.
fn number(json: &str, name: &str) -> Option<u64> {
    let at = json.find(&format!("\"{name}\":"))? + name.len() + 3;
    let digits: String = json[at..].trim_start().chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

/// `false` when the connection is to be closed.
fn answer(out: &mut TcpStream, body: &str, read_ns: u64, truth: &Truth) -> std::io::Result<bool> {
    let at = body.find("\"model\":\"").map_or(0, |at| at + 9);
    let model = body[at..].split('"').next().unwrap_or_default();
    let options = model.split_once('?').map_or("", |(_, options)| options);
    let word = |name: &str| options.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
    let real = |name: &str, default: f64| word(name).and_then(|value| value.parse().ok()).unwrap_or(default);
    let mode = word("mode").unwrap_or("plain");
    let asked = number(body, "max_tokens").or_else(|| number(body, "max_completion_tokens")).unwrap_or(64);
    let tokens = word("tokens").and_then(|value| value.parse().ok()).unwrap_or(asked);
    let seed = number(body, "seed").unwrap_or(0);
    let (ttft, itl) = ((real("ttft_ms", 0.0) * 1e6) as u64, (real("itl_ms", 0.0) * 1e6) as u64);
    let first = *FIRST.get_or_init(|| read_ns);
    let stall_from = first + (real("stall_at_s", 1e9) * 1e9) as u64;
    let stall_to = stall_from + (real("stall_s", 0.0) * 1e9) as u64;
    let wait = |deadline: u64| {
        sleep_until(deadline);
        if (stall_from..stall_to).contains(&now()) {
            sleep_until(stall_to);
        }
    };
    if !body.contains("\"stream\":true") {
        let text = format!(
            "{{\"choices\":[{{\"index\":0,\"message\":{{\"role\":\"assistant\",\"content\":\"x\"}},\"finish_reason\":\"length\"}}],\
             \"usage\":{{\"prompt_tokens\":64,\"completion_tokens\":{tokens}}}}}"
        );
        write!(out, "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{text}", text.len())?;
        return Ok(true);
    }
    out.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")?;
    let head = "{\"id\":\"s\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"stub\",\"choices\":[";
    let mut event = |data: &str| -> std::io::Result<()> {
        let length = data.len() + 8;
        out.write_all(format!("{length:x}\r\ndata: {data}\n\n\r\n").as_bytes())
    };
    if mode == "role" {
        event(&format!("{head}{{\"index\":0,\"delta\":{{\"role\":\"assistant\",\"content\":\"\"}},\"finish_reason\":null}}]}}"))?;
    }
    let per = if mode == "four" { 4 } else { 1 };
    let in_all = matches!(mode, "four" | "usage");
    let mut writes: Vec<(u64, u64)> = Vec::new();
    let (mut sent, mut step) = (0u64, 0u64);
    while sent < tokens {
        wait(read_ns + ttft + step * itl * per);
        step += 1;
        let now_carried = per.min(tokens - sent);
        // A client's probe of one token is answered well.
        if matches!(mode, "cut" | "error" | "malformed") && tokens > 1 && sent == tokens / 2 {
            match mode {
                "cut" => {
                    record(truth, seed, read_ns, &writes);
                    // Without the last chunk of the encoding: below HTTP the answer is cut.
                    return Ok(false);
                }
                "error" => {
                    event("{\"error\":{\"message\":\"out of memory\",\"code\":500}}")?;
                    out.write_all(b"0\r\n\r\n")?;
                    record(truth, seed, read_ns, &writes);
                    return Ok(true);
                }
                _ => event("{\"choices\":[{\"delta\":{\"content\":\"bro")?,
            }
        }
        let key = if mode == "reasoning" && sent < tokens / 2 { "reasoning_content" } else { "content" };
        let text = " word".repeat(now_carried as usize);
        sent += now_carried;
        let usage = if in_all {
            format!(",\"usage\":{{\"prompt_tokens\":64,\"completion_tokens\":{sent},\"total_tokens\":{}}}", 64 + sent)
        } else {
            String::new()
        };
        let data = format!("{head}{{\"index\":0,\"delta\":{{\"{key}\":\"{text}\"}},\"finish_reason\":null}}]{usage}}}");
        writes.push((now(), now_carried));
        event(&data)?;
        if mode == "empty" {
            event(&format!("{head}{{\"index\":0,\"delta\":{{\"content\":\"\"}},\"finish_reason\":null}}]}}"))?;
        }
    }
    event(&format!("{head}{{\"index\":0,\"delta\":{{}},\"finish_reason\":\"length\"}}]}}"))?;
    event(&format!("{head}],\"usage\":{{\"prompt_tokens\":64,\"completion_tokens\":{tokens},\"total_tokens\":{}}}}}", 64 + tokens))?;
    event("[DONE]")?;
    out.write_all(b"0\r\n\r\n")?;
    record(truth, seed, read_ns, &writes);
    Ok(true)
}

fn record(truth: &Truth, seed: u64, read_ns: u64, writes: &[(u64, u64)]) {
    let [times, carried] = [|w: &(u64, u64)| w.0.to_string(), |w: &(u64, u64)| w.1.to_string()]
        .map(|part| writes.iter().map(part).collect::<Vec<_>>().join(","));
    let line = format!("{{\"seed\":{seed},\"read_ns\":{read_ns},\"writes_ns\":[{times}],\"tokens\":[{carried}]}}\n");
    truth.lock().expect("no writer panics").write_all(line.as_bytes()).expect("the truth file can be written");
}
