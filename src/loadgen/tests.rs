//! The loops against a target that answers after a set time.
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use super::{Issue, Lanes, Schedule, Sink, Stop, closed_loop, open_loop};
use crate::metric::row;
use crate::record::Outcome;
use crate::request::{Message, Prompt, Request, RequestKey, Sampling};
use crate::statistics::percentile;
use crate::target::{Observation, PromptCount, Target, TargetFacts};
use crate::units::Clock;
use crate::workload::{Ask, Turn};

/// Counts what is in flight; a request with an index in `hang` never ends.
struct Fake {
    facts: TargetFacts,
    service: Duration,
    hang: fn(u32) -> bool,
    in_flight: Cell<u32>,
    most: Cell<u32>,
    /// In flight right after each send.
    at_send: RefCell<Vec<u32>>,
    sent: RefCell<Vec<u32>>,
    /// Asked at the n-th send.
    stop_at: Option<(usize, Stop)>,
    /// Holds up the whole client while this request is sent.
    block: Option<(u32, Duration)>,
    /// Content of every chat as it was sent.
    chats: RefCell<Vec<Vec<Message>>>,
}

impl Fake {
    fn new(service_ms: u64) -> Self {
        Self {
            facts: TargetFacts::default(),
            service: Duration::from_millis(service_ms),
            hang: |_| false,
            in_flight: Cell::new(0),
            most: Cell::new(0),
            at_send: RefCell::default(),
            sent: RefCell::default(),
            stop_at: None,
            block: None,
            chats: RefCell::default(),
        }
    }
}

impl Target for Fake {
    fn facts(&self) -> &TargetFacts {
        &self.facts
    }
    fn count_prompt(&self, _: &[Message]) -> PromptCount {
        PromptCount::Unknown
    }
    fn raw_vocabulary(&self) -> Option<u32> {
        None
    }
    async fn submit(&self, request: &Request, clock: &Clock, seen: &mut Observation) {
        seen.record.sent_ns = Some(clock.now());
        self.in_flight.set(self.in_flight.get() + 1);
        self.most.set(self.most.get().max(self.in_flight.get()));
        self.at_send.borrow_mut().push(self.in_flight.get());
        self.sent.borrow_mut().push(request.key.index);
        if let Some((n, stop)) = &self.stop_at
            && self.sent.borrow().len() == *n
        {
            stop.request();
        }
        if let Prompt::Chat(messages) = &request.prompt {
            self.chats.borrow_mut().push(messages.clone());
        }
        if let Some((_, time)) = self.block.filter(|(index, _)| *index == request.key.index) {
            std::thread::sleep(time);
        }
        if (self.hang)(request.key.index) {
            std::future::pending::<()>().await;
        }
        if !self.service.is_zero() {
            tokio::time::sleep(self.service).await;
        }
        seen.text.content = format!("answer {}", request.key.index);
        self.in_flight.set(self.in_flight.get() - 1);
        seen.record.outcome = Outcome::Ok;
        seen.record.end_ns = Some(clock.now());
    }
}

fn issues(n: u32) -> Vec<Issue> {
    let request = |index| Request {
        key: RequestKey { arm: "a".into(), cell: "c".into(), repeat: 0, index, warmup: false },
        prompt: Prompt::TokenIds(vec![3]),
        prompt_tokens_planned: Some(1),
        sampling: Sampling::default(),
        max_tokens: 1,
        ignore_eos: true,
        seed: index,
    };
    let issue = |index| Issue::new(Ask { request: request(index), session: None, turns: Vec::new() }, 0);
    (0..n).map(issue).collect()
}

/// Runs `n` requests over `lanes` and gives how many were issued, and the rows in the order they ended.
fn drive(target: &Rc<Fake>, lanes: u32, n: u32, stop: &Stop) -> (usize, Vec<Observation>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let rows: Rc<RefCell<Vec<Observation>>> = Rc::default();
    let kept = Rc::clone(&rows);
    let sink: Sink = Rc::new(RefCell::new(move |seen| kept.borrow_mut().push(seen)));
    let lanes = Lanes { concurrency: lanes, drain: Duration::from_millis(50) };
    let issued = tokio::task::LocalSet::new()
        .block_on(&runtime, closed_loop(Rc::clone(target), Clock::start(), lanes, issues(n), stop, sink));
    (issued, rows.take())
}

#[test]
fn a_closed_loop_keeps_its_lanes_full_until_the_requests_run_out() {
    let target = Rc::new(Fake::new(2));
    let (issued, rows) = drive(&target, 4, 40, &Stop::default());
    assert_eq!((issued, rows.len(), target.most.get()), (40, 40, 4));
    // Once all four lanes send, each send finds the three others in flight or just ended in the same turn of the clock.
    let at_send = target.at_send.borrow();
    assert_eq!(at_send[..4], [1, 2, 3, 4]);
    assert!(at_send.iter().all(|&n| (1..=4).contains(&n)), "{at_send:?}");
}

#[test]
fn hundreds_in_flight_are_not_capped_by_the_client() {
    // B63: 512 asked, a service time far longer than sending takes.
    let target = Rc::new(Fake::new(200));
    let (issued, _) = drive(&target, 512, 1024, &Stop::default());
    assert_eq!((issued, target.most.get()), (1024, 512));
}

#[test]
fn requests_are_sent_in_the_order_of_the_plan() {
    let target = Rc::new(Fake::new(1));
    drive(&target, 3, 20, &Stop::default());
    assert_eq!(*target.sent.borrow(), (0..20).collect::<Vec<_>>());
}

#[test]
fn a_lane_schedules_its_next_request_when_its_last_one_ended() {
    let (_, rows) = drive(&Rc::new(Fake::new(1)), 1, 5, &Stop::default());
    for pair in rows.windows(2) {
        let (ended, scheduled, sent) =
            (pair[0].record.end_ns.unwrap(), pair[1].record.scheduled_ns.unwrap(), pair[1].record.sent_ns.unwrap());
        assert!(ended <= scheduled && scheduled <= sent);
    }
}

#[test]
fn a_stop_lets_what_is_in_flight_end_and_sends_nothing_more() {
    let stop = Stop::default();
    let target = Rc::new(Fake { stop_at: Some((5, stop.clone())), ..Fake::new(1) });
    let (issued, rows) = drive(&target, 2, 100, &stop);
    assert!((5..=6).contains(&issued), "{issued} were sent");
    assert!(rows.len() == issued && rows.iter().all(|seen| seen.record.outcome == Outcome::Ok));
}

#[test]
fn what_does_not_end_within_the_drain_is_cancelled_and_reported() {
    let stop = Stop::default();
    let target = Rc::new(Fake { stop_at: Some((2, stop.clone())), hang: |index| index == 1, ..Fake::new(1) });
    let (issued, rows) = drive(&target, 2, 100, &stop);
    let outcomes: Vec<_> = rows.iter().map(|seen| (seen.record.index, seen.record.outcome)).collect();
    assert_eq!((issued, outcomes), (2, vec![(0, Outcome::Ok), (1, Outcome::Cancelled)]));
    assert!(rows[1].record.end_ns.is_some() && rows[1].record.error.is_some());
}

#[test]
fn a_stop_asked_for_before_the_start_sends_nothing() {
    let stop = Stop::default();
    stop.request();
    let (issued, rows) = drive(&Rc::new(Fake::new(1)), 4, 10, &stop);
    assert_eq!((issued, rows.len()), (0, 0));
}

/// Runs requests that are due every `every` over an open loop.
fn drive_open(
    target: &Rc<Fake>,
    every: Duration,
    max_in_flight: u32,
    issues: Vec<Issue>,
    stop: &Stop,
) -> Vec<Observation> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let rows: Rc<RefCell<Vec<Observation>>> = Rc::default();
    let kept = Rc::clone(&rows);
    let sink: Sink = Rc::new(RefCell::new(move |seen| kept.borrow_mut().push(seen)));
    let every = u64::try_from(every.as_nanos()).unwrap();
    let arrivals_ns = (0..issues.len() as u64).map(|i| i * every).collect();
    let schedule = Schedule { arrivals_ns, max_in_flight, drain: Duration::from_millis(50) };
    let issued = tokio::task::LocalSet::new()
        .block_on(&runtime, open_loop(Rc::clone(target), Clock::start(), schedule, issues, stop, sink));
    let mut rows = rows.take();
    assert!(rows.len() >= issued);
    rows.sort_by_key(|seen| seen.record.index);
    rows
}

#[test]
fn an_open_loop_sends_at_its_times_and_never_before() {
    // A service time far above the distance: a closed loop would fall behind.
    let target = Rc::new(Fake::new(60));
    let rows = drive_open(&target, Duration::from_millis(3), 512, issues(50), &Stop::default());
    assert!(rows.iter().all(|seen| seen.record.outcome == Outcome::Ok));
    assert!(rows.iter().all(|seen| row::lateness_ms(&seen.record).unwrap() >= 0.0));
    for pair in rows.windows(2) {
        let (a, b) = (pair[0].record.scheduled_ns.unwrap(), pair[1].record.scheduled_ns.unwrap());
        assert_eq!(b.0 - a.0, 3_000_000);
    }
    assert!(target.most.get() > 1);
}

#[test]
fn a_client_that_stalls_shows_it_from_schedule_and_not_from_send() {
    // 2 s in 30 s at 20 req/s, at 20 times the speed: the 40 requests due in the stall go out late by up to all of it. Of 600, the six
    // slowest lie above p99; the sixth of 40 waits spread evenly over 100 ms waited 100·(1 − 6/40) = 85 ms; 80 ms is 1,600 ms at full size.
    let target = Rc::new(Fake { block: Some((300, Duration::from_millis(100))), ..Fake::new(0) });
    let rows = drive_open(&target, Duration::from_micros(2500), 512, issues(600), &Stop::default());
    let p99 = |of: fn(&crate::record::RequestRecord) -> Option<f64>| {
        // The request that stalls the client takes its time by both clocks; it is one of 600 and below no percentile here.
        let values: Vec<f64> = rows.iter().filter_map(|seen| of(&seen.record)).collect();
        assert_eq!(values.len(), 600);
        percentile(&values, 0.99).unwrap()
    };
    let (sent, scheduled) = (p99(row::e2e_latency_ms), p99(row::e2e_latency_from_schedule_ms));
    assert!(scheduled >= 80.0, "p99 from schedule {scheduled} ms");
    assert!(sent < scheduled / 2.0, "p99 from send {sent} ms, from schedule {scheduled} ms");
}

#[test]
fn arrivals_above_the_cap_are_rows_that_say_so() {
    let target = Rc::new(Fake { hang: |index| index < 3, ..Fake::new(0) });
    let stop = Stop::default();
    let asked = stop.clone();
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        asked.request();
    });
    let rows = drive_open(&target, Duration::from_millis(1), 3, issues(20), &stop);
    let of = |outcome| {
        rows.iter().filter(|seen| seen.record.outcome == outcome).map(|seen| seen.record.index).collect::<Vec<_>>()
    };
    assert_eq!((of(Outcome::Cancelled), of(Outcome::Ok)), (vec![0, 1, 2], vec![]));
    assert_eq!(of(Outcome::Shed), (3..20).collect::<Vec<_>>());
    for seen in rows.iter().filter(|seen| seen.record.outcome == Outcome::Shed) {
        assert!(seen.record.scheduled_ns.is_some() && seen.record.sent_ns.is_none());
        assert!(seen.record.error.as_ref().unwrap().contains("max_in_flight"));
    }
}

/// A conversation of `turns` turns, its requests numbered from `first`.
fn conversation(first: u32, turns: u32) -> Issue {
    let said = |index: u32| Message { role: "user".into(), content: format!("message {index}") };
    let template = issues(1).remove(0).ask.request;
    let request = |index: u32| Request {
        key: RequestKey { index, ..template.key.clone() },
        prompt: Prompt::Chat(vec![said(index)]),
        ..template.clone()
    };
    let turn = |index| Turn { request: request(index), think_time: Duration::ZERO };
    let turns = (first + 1..first + turns).map(turn).collect();
    Issue::new(Ask { request: request(first), session: Some(first), turns }, 0)
}

#[test]
fn a_conversation_grows_by_the_answers_of_the_model() {
    let target = Rc::new(Fake::new(0));
    let rows = drive_open(&target, Duration::ZERO, 9, vec![conversation(0, 3)], &Stop::default());
    let places: Vec<_> = rows.iter().map(|seen| (seen.record.session, seen.record.turn, seen.record.outcome)).collect();
    assert_eq!(places, (0..3).map(|turn| (Some(0), Some(turn), Outcome::Ok)).collect::<Vec<_>>());
    let last: Vec<String> = target.chats.borrow()[2].iter().map(|m| format!("{} {}", m.role, m.content)).collect();
    assert_eq!(
        last,
        ["user message 0", "assistant answer 0", "user message 1", "assistant answer 1", "user message 2"]
    );
    for pair in rows.windows(2) {
        assert_eq!(pair[1].record.scheduled_ns, pair[0].record.end_ns);
        assert_ne!(pair[0].record.prompt_sha256, pair[1].record.prompt_sha256);
    }
}
