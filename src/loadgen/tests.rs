//! The closed loop against a target that answers after a set time.
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use super::{Issue, Lanes, Stop, closed_loop};
use crate::record::Outcome;
use crate::request::{Message, Prompt, Request, RequestKey, Sampling};
use crate::target::{Observation, PromptCount, Target, TargetFacts};
use crate::units::Clock;

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
        if (self.hang)(request.key.index) {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(self.service).await;
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
    let issue = |index| Issue { request: request(index), attempt: 0, prompt_sha256: String::new(), fixture: "none" };
    (0..n).map(issue).collect()
}

/// Runs `n` requests over `lanes` and gives how many were issued, and the rows in the order they ended.
fn drive(target: &Rc<Fake>, lanes: u32, n: u32, stop: &Stop) -> (usize, Vec<Observation>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let rows: Rc<RefCell<Vec<Observation>>> = Rc::default();
    let kept = Rc::clone(&rows);
    let sink: Rc<RefCell<dyn FnMut(Observation)>> = Rc::new(RefCell::new(move |seen| kept.borrow_mut().push(seen)));
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
