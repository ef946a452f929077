//! Closed loop: a fixed number of lanes, each sending its next request when its last one ended.
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use tokio::task::JoinSet;

use super::issue::{Issue, Loop, Sink};
use super::{Stop, join};
use crate::target::Target;
use crate::units::Clock;

/// The shape of a closed loop.
#[derive(Debug, Clone, Copy)]
pub struct Lanes {
    /// Requests in flight.
    pub concurrency: u32,
    /// How long they may go on after a stop; [`super::DRAIN`] but in tests.
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
    sink: Sink,
) -> usize {
    let common = Loop { target, clock, stop: stop.clone(), drain: lanes.drain, sink };
    let queue = Rc::new(RefCell::new(VecDeque::from(requests)));
    let issued = Rc::new(RefCell::new(0usize));
    let mut tasks = JoinSet::new();
    for _ in 0..lanes.concurrency {
        let (common, queue, issued) = (common.clone(), Rc::clone(&queue), Rc::clone(&issued));
        tasks.spawn_local(async move {
            while !common.stop.requested() {
                let Some(issue) = queue.borrow_mut().pop_front() else { break };
                *issued.borrow_mut() += 1;
                common.carry_out(issue, common.clock.now()).await;
            }
        });
    }
    join(tasks).await;
    issued.take()
}
