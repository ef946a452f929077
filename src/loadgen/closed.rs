//! Closed loop: a fixed number of lanes, each sending its next request when its last one ended.
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use tokio::task::JoinSet;

use super::Stop;
use crate::record::{Outcome, RequestRecord, ResponseText};
use crate::request::Request;
use crate::target::{Observation, Target};
use crate::units::Clock;

/// How long requests in flight may go on after a stop was asked for; then they are cancelled.
pub const DRAIN: Duration = Duration::from_secs(8);

/// One request to issue, with its attempt.
#[derive(Debug, Clone)]
pub struct Issue {
    /// What is sent.
    pub request: Request,
    /// 0 at first, higher when a resume reruns the repeat.
    pub attempt: u32,
    /// First 16 hex digits of the prompt's SHA-256.
    pub prompt_sha256: String,
    /// Name of the prompt source.
    pub fixture: &'static str,
}

/// The shape of a closed loop.
#[derive(Debug, Clone, Copy)]
pub struct Lanes {
    /// Requests in flight.
    pub concurrency: u32,
    /// How long they may go on after a stop; [`DRAIN`] but in tests.
    pub drain: Duration,
}

/// Issues `requests` in order over `lanes.concurrency` lanes and hands every observation to `sink` as it ends.
///
/// A lane's next request is scheduled at the moment its last one ended, so `sent − scheduled` is the loop's own lateness.
/// After a stop nothing new is sent, requests in flight get `lanes.drain` and are then cancelled; those never sent are not reported, so
/// that a resume finds them missing. Returns how many were issued.
pub async fn closed_loop<T: Target + 'static>(
    target: Rc<T>,
    clock: Clock,
    lanes: Lanes,
    requests: Vec<Issue>,
    stop: &Stop,
    sink: Rc<RefCell<dyn FnMut(Observation)>>,
) -> usize {
    let queue = Rc::new(RefCell::new(VecDeque::from(requests)));
    let issued = Rc::new(RefCell::new(0usize));
    let mut tasks = JoinSet::new();
    for _ in 0..lanes.concurrency {
        let (target, queue, issued, stop, sink) =
            (Rc::clone(&target), Rc::clone(&queue), Rc::clone(&issued), stop.clone(), Rc::clone(&sink));
        tasks.spawn_local(async move {
            while !stop.requested() {
                let Some(issue) = queue.borrow_mut().pop_front() else { break };
                *issued.borrow_mut() += 1;
                let seen = one(&*target, &clock, issue, &stop, lanes.drain).await;
                (sink.borrow_mut())(seen);
            }
        });
    }
    while let Some(joined) = tasks.join_next().await {
        if let Err(error) = joined
            && error.is_panic()
        {
            std::panic::resume_unwind(error.into_panic());
        }
    }
    issued.take()
}

async fn one<T: Target>(target: &T, clock: &Clock, issue: Issue, stop: &Stop, drain: Duration) -> Observation {
    let mut record = RequestRecord::planned(&issue.request, issue.attempt);
    record.prompt_sha256 = Some(issue.prompt_sha256);
    record.fixture = Some(issue.fixture.to_owned());
    record.scheduled_ns = Some(clock.now());
    let mut seen = Observation { record, text: ResponseText::default() };
    let finished = tokio::select! {
        biased;
        () = target.submit(&issue.request, clock, &mut seen) => true,
        () = async { stop.wait().await; tokio::time::sleep(drain).await } => false,
    };
    if !finished {
        seen.record.outcome = Outcome::Cancelled;
        seen.record.end_ns = Some(clock.now());
        seen.record.error = Some("the run was stopped while this request was in flight".into());
    }
    seen
}
