//! Open loop: requests go out at their times, whatever became of the earlier ones.
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::issue::{Issue, Loop, Sink};
use super::{Stop, join, unpanicked};
use crate::target::Target;
use crate::units::{Clock, TimestampNs};

/// From the call to the first possible arrival: the loop is awake by then.
const LEAD: Duration = Duration::from_millis(5);
/// How long before a due time the timer may let go. Tokio's counts whole milliseconds and rounds up, so that it is up to one late by itself;
/// the rest is passed by yielding, in which streams in flight are still read.
const WAKE_EARLY: Duration = Duration::from_millis(2);

/// The shape of an open loop.
#[derive(Debug, Clone)]
pub struct Schedule {
    /// When each request is due, in ns from the start, rising.
    pub arrivals_ns: Vec<u64>,
    /// Requests in flight above which an arrival is shed: recorded, never sent.
    pub max_in_flight: u32,
    /// How long requests may go on after a stop; [`super::DRAIN`] but in tests.
    pub drain: Duration,
}

/// Issues `requests` in order at their times and hands every observation to `sink` as it ends.
///
/// The schedule is never bent: a request that cannot go out in time goes out as soon as it can, with the time it was due as
/// `scheduled_ns`, so `sent − scheduled` is the loop's own lateness and latency from schedule holds it. An arrival that finds
/// `max_in_flight` requests in flight is a row with outcome `shed`. After a stop nothing new is sent, requests in flight get
/// `schedule.drain` and are then cancelled; those not yet due are not reported, so that a resume finds them missing. Returns how many were
/// issued, shed ones too.
pub async fn open_loop<T: Target + 'static>(
    target: Rc<T>,
    clock: Clock,
    schedule: Schedule,
    requests: Vec<Issue>,
    stop: &Stop,
    sink: Sink,
) -> usize {
    let common = Loop { target, clock, stop: stop.clone(), drain: schedule.drain, sink };
    let start = clock.at(Instant::now() + LEAD).0;
    let most = usize::try_from(schedule.max_in_flight).unwrap_or(usize::MAX);
    let mut tasks: JoinSet<()> = JoinSet::new();
    let mut issued = 0;
    for (issue, after) in requests.into_iter().zip(schedule.arrivals_ns) {
        let due = TimestampNs(start.saturating_add_unsigned(after));
        if !until(clock.instant(due), stop).await {
            break;
        }
        while let Some(ended) = tasks.try_join_next() {
            unpanicked(ended);
        }
        issued += 1;
        if tasks.len() >= most {
            let why =
                format!("not sent: {} requests were in flight, the most that `max_in_flight` allows", tasks.len());
            issue.shed(due, &why, &common.sink);
            continue;
        }
        let common = common.clone();
        tasks.spawn_local(async move { common.carry_out(issue, due).await });
    }
    join(tasks).await;
    issued
}

/// Returns at `due` to within some tens of microseconds of a free processor, at once where it has passed; `false` once a stop is asked for.
async fn until(due: Instant, stop: &Stop) -> bool {
    if let Some(early) = due.checked_sub(WAKE_EARLY)
        && Instant::now() < early
    {
        tokio::select! {
            () = tokio::time::sleep_until(early.into()) => {}
            () = stop.wait() => return false,
        }
    }
    while Instant::now() < due {
        if stop.requested() {
            return false;
        }
        tokio::task::yield_now().await;
    }
    !stop.requested()
}
