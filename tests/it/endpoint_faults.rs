//! The matrix of endpoint faults: every kind, alone and 8 and 64 at a time, each beside requests that nothing must disturb.
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use inferlab::record::{Outcome, RequestRecord};
use inferlab::request::Request;
use inferlab::target::Target;
use inferlab::target::endpoint::{Endpoint, EndpointSettings, Timeouts};
use inferlab::units::Clock;

use crate::endpoint_client::{MS, block_on, patient, plain};
use crate::endpoint_stream::{nothing_seen, request};
use crate::wire::{End, Reply, WireServer, fixtures};

/// One kind of fault: how the server behaves, the deadline that is short for it, and the word it must get.
struct Fault {
    name: String,
    reply: Option<Reply>,
    timeouts: fn(&mut Timeouts),
    /// The short deadline, where one must fire.
    deadline: Option<Duration>,
    outcomes: &'static [Outcome],
}

/// A deadline that fires in a test.
const SHORT: Duration = Duration::from_millis(400);

fn wire(name: &str) -> Reply {
    Reply::load(&fixtures().join(name))
}

fn faults() -> Vec<Fault> {
    use Outcome::{
        BadPayload, ConnectFailed, HttpError, Ok, Reset, TimeoutFirstByte, TimeoutIdle, TimeoutTotal, Truncated,
    };
    let mut all = Vec::new();
    let mut add = |name: &str, reply: Option<Reply>, timeouts: fn(&mut Timeouts), outcomes: &'static [Outcome]| {
        let waits = outcomes.iter().any(|o| matches!(o, TimeoutFirstByte | TimeoutIdle | TimeoutTotal));
        all.push(Fault { name: name.to_owned(), reply, timeouts, deadline: waits.then_some(SHORT), outcomes });
    };
    let patience: fn(&mut Timeouts) = |_| ();
    add("refuse", None, patience, &[ConnectFailed]);
    add("accept and silence", Some(wire("silence.wire.json")), |t| t.first_byte = SHORT, &[TimeoutFirstByte]);
    add(
        "headers and silence",
        Some(wire("headers_then_silence.wire.json")),
        |t| t.first_byte = SHORT,
        &[TimeoutFirstByte],
    );
    add("stall in the middle", Some(wire("stall_after_two.wire.json")), |t| t.idle = SHORT, &[TimeoutIdle]);
    add("drip", Some(wire("drip.wire.json")), |t| t.total = SHORT, &[TimeoutTotal]);
    add("keep-alives only", Some(wire("keepalives_for_ever.wire.json")), |t| t.idle = SHORT, &[TimeoutIdle]);
    add("429", Some(wire("limit_429.wire.json")), patience, &[HttpError]);
    add("500", Some(Reply::json(500, r#"{"error":"x"}"#)), patience, &[HttpError]);
    add("502 with HTML", Some(wire("gateway_502.wire.json")), patience, &[HttpError]);
    add("503 with Retry-After", Some(wire("busy_503.wire.json")), patience, &[HttpError]);
    add("307", Some(wire("moved_307.wire.json")), patience, &[HttpError]);
    add("gzip", Some(wire("gzip.wire.json")), patience, &[BadPayload]);
    // Twice the limit of a line; 10 MiB of it for 64 at once would be memory for the server, not a harder case.
    let line = format!("data: {}", "a".repeat(2 << 20));
    add("a line without end", Some(Reply::new(200, "text/event-stream", line, End::Hang)), patience, &[BadPayload]);
    add("200 with JSON", Some(wire("json_body.sse")), patience, &[Ok]);
    let body = plain();
    let finish = body.windows(4).position(|w| w == b"stop").unwrap();
    for n in 1..=20 {
        let cut = finish * n / 21;
        let part = |end| Some(Reply::new(200, "text/event-stream", &body[..cut], end));
        add(&format!("reset at {cut}"), part(End::Rst), patience, &[Reset]);
        // Before the first whole event there is nothing that could be used.
        add(&format!("closed at {cut}"), part(End::Eof), patience, &[Truncated, BadPayload]);
    }
    all
}

struct Seen {
    good: bool,
    row: RequestRecord,
}

/// Sends `lanes` requests at once that meet the fault, and as many that do not.
async fn meet(fault: &Fault, address: SocketAddr, lanes: u32) -> Vec<Seen> {
    let url = format!("http://{address}/v1");
    let mut settings = patient(&url);
    (fault.timeouts)(&mut settings.timeouts);
    let refused = || {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        EndpointSettings { url: format!("http://127.0.0.1:{port}/v1"), ..settings.clone() }
    };
    let faulty = if fault.reply.is_none() { refused() } else { settings.clone() };
    let (faulty, good) =
        (Rc::new(Endpoint::attach(faulty).unwrap()), Rc::new(Endpoint::attach(patient(&url)).unwrap()));
    let mut tasks = tokio::task::JoinSet::new();
    for lane in 0..2 * lanes {
        let is_good = lane % 2 == 1;
        let endpoint = Rc::clone(if is_good { &good } else { &faulty });
        tasks.spawn_local(async move {
            let mut seen = nothing_seen();
            // The server tells them apart by their seed.
            let request = Request { seed: u32::from(is_good), ..request(lane) };
            endpoint.submit(&request, &Clock::start(), &mut seen).await;
            assert!(!is_good || seen.text.content == "One fine día ☀", "{:?}", seen.record);
            Seen { good: is_good, row: seen.record }
        });
    }
    tasks.join_all().await
}

fn server(fault: &Fault) -> WireServer {
    let reply = fault.reply.clone();
    WireServer::start(move |request| match &reply {
        Some(reply) if request.json()["seed"] == 0 => reply.clone(),
        _ => Reply::sse(plain()),
    })
}

/// How long after its deadline each request that must miss it was given up, in ms.
fn overruns(fault: &Fault, seen: &[Seen]) -> Vec<f64> {
    let Some(deadline) = fault.deadline else { return Vec::new() };
    let waited = |row: &RequestRecord| row.end_ns.unwrap().ms_since(row.sent_ns.unwrap());
    seen.iter().filter(|s| !s.good).map(|s| waited(&s.row) - deadline.as_secs_f64() * 1e3).collect()
}

fn matrix(levels: &[u32], mut each: impl FnMut(&Fault, u32, &[Seen])) {
    for fault in faults() {
        let server = server(&fault);
        for &lanes in levels {
            let seen = block_on(meet(&fault, server.address, lanes));
            assert_eq!(seen.len(), 2 * lanes as usize);
            for Seen { good, row } in &seen {
                let want: &[Outcome] = if *good { &[Outcome::Ok] } else { fault.outcomes };
                assert!(want.contains(&row.outcome), "{} × {lanes}: {row:?}", fault.name);
                assert_eq!(row.error.is_none(), row.outcome == Outcome::Ok, "{row:?}");
                assert!(*good || row.outcome != Outcome::BadPayload || row.finish.is_none(), "{row:?}");
            }
            each(&fault, lanes, &seen);
        }
    }
}

#[test]
fn every_fault_has_its_word_alone_and_beside_others_and_disturbs_none() {
    matrix(&[1, 8, 64], |fault, _, seen| {
        // Never given up early, whatever the machine does.
        assert!(overruns(fault, seen).iter().all(|&over| over > -1.0), "{}", fault.name);
    });
}

/// `cargo test --release --test it deadline_overruns -- --ignored --nocapture` on a quiet machine.
#[test]
#[ignore = "its limits are times; the figures stand in the closing note"]
fn deadline_overruns_stay_below_100_ms_and_1_percent() {
    let mut worst = 0.0_f64;
    matrix(&[1, 8, 64], |fault, lanes, seen| {
        let most = overruns(fault, seen).into_iter().fold(0.0, f64::max);
        worst = worst.max(most);
        assert!(most <= 100.0 + 0.01 * SHORT.as_secs_f64() * 1e3, "{} × {lanes}: {most:.1} ms over", fault.name);
    });
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    eprintln!("worst overrun {worst:.1} ms over {} ms; load {}", MS(400).as_millis(), load.trim());
}
