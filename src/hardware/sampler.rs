//! Samples of CPU, memory and load during a run, from a thread of its own.
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::host::{kibibytes, load_average, read};
use crate::units::{Clock, TimestampNs};

/// Kernel ticks a second in /proc: USER_HZ, 100 on every Linux that Rust supports.
const TICKS_PER_SECOND: f64 = 100.0;

/// One look at the host. What cannot be known is `None`, never 0.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct HardwareSample {
    /// When, on the clock of the segment.
    pub t_ns: TimestampNs,
    /// CPU time of this process since the last sample in % of one core; above 100 with several threads.
    pub process_cpu_percent: Option<f64>,
    /// CPU time of the whole host that was not idle, in % of all its cores.
    pub host_cpu_percent: Option<f64>,
    /// Resident memory of this process in bytes.
    pub rss_bytes: Option<u64>,
    /// Load average over one minute.
    pub load1: Option<f64>,
}

/// Counters of /proc at one instant; a sample is the difference of two.
#[derive(Debug, Clone, Copy)]
struct Counters {
    at: Instant,
    process_ticks: Option<u64>,
    host_ticks: Option<HostTicks>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct HostTicks {
    busy: u64,
    total: u64,
}

/// A sample each second is enough to see another program start.
const INTERVAL: Duration = Duration::from_secs(1);
/// Samples kept between two takes: a day at one a second. Later ones are dropped.
const MOST_KEPT: usize = 86_400;

/// A running sampler; it ends when finished or dropped.
#[derive(Debug)]
pub struct Sampler {
    seen: Arc<Mutex<Vec<HardwareSample>>>,
    /// Dropping it ends the thread.
    end: Option<Sender<()>>,
    /// `None` where the system had no thread left: a run without samples is still a run.
    thread: Option<JoinHandle<()>>,
}

impl Sampler {
    /// Samples each second, the first time after one second.
    pub fn start(clock: Clock) -> Self {
        Self::start_each(clock, INTERVAL)
    }

    fn start_each(clock: Clock, interval: Duration) -> Self {
        let (end, ended) = channel::<()>();
        let seen: Arc<Mutex<Vec<HardwareSample>>> = Arc::default();
        let kept = Arc::clone(&seen);
        let work = move || {
            let mut last = Counters::now();
            let mut next = Instant::now() + interval;
            loop {
                match ended.recv_timeout(next.saturating_duration_since(Instant::now())) {
                    Err(RecvTimeoutError::Timeout) => {}
                    Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
                }
                let counters = Counters::now();
                let mut kept = lock(&kept);
                if kept.len() < MOST_KEPT {
                    kept.push(sample(&clock, &last, &counters));
                }
                drop(kept);
                last = counters;
                // After a suspend the missed samples are not made up for.
                next = (next + interval).max(Instant::now());
            }
        };
        let thread = std::thread::Builder::new().name("hardware".to_owned()).spawn(work).ok();
        Self { seen, end: Some(end), thread }
    }

    /// Samples since the last call, in order of time.
    pub fn take(&self) -> Vec<HardwareSample> {
        std::mem::take(&mut *lock(&self.seen))
    }

    /// Ends the sampling and gives the samples since the last take.
    pub fn finish(mut self) -> Vec<HardwareSample> {
        self.end();
        self.take()
    }

    fn end(&mut self) {
        self.end = None;
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.end();
    }
}

/// A list of plain values is whole even if its writer panicked.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Counters {
    fn now() -> Self {
        Self {
            at: Instant::now(),
            process_ticks: read("/proc/self/stat").as_deref().and_then(process_ticks),
            host_ticks: read("/proc/stat").as_deref().and_then(host_ticks),
        }
    }
}

fn sample(clock: &Clock, last: &Counters, now: &Counters) -> HardwareSample {
    let seconds = now.at.duration_since(last.at).as_secs_f64();
    let process = now.process_ticks.zip(last.process_ticks).and_then(|(now, last)| now.checked_sub(last));
    let host = now.host_ticks.zip(last.host_ticks).and_then(|(now, last)| {
        let (busy, total) = (now.busy.checked_sub(last.busy)?, now.total.checked_sub(last.total)?);
        (total > 0).then(|| 100.0 * busy as f64 / total as f64)
    });
    HardwareSample {
        t_ns: clock.at(now.at),
        process_cpu_percent: process
            .filter(|_| seconds > 0.0)
            .map(|ticks| 100.0 * ticks as f64 / TICKS_PER_SECOND / seconds),
        host_cpu_percent: host,
        rss_bytes: read("/proc/self/status").as_deref().and_then(|status| kibibytes(status, "VmRSS")),
        load1: load_average().map(|load| load[0]),
    }
}

/// User and system ticks of /proc/self/stat: fields 14 and 15. The name in field 2 may hold anything, so counting starts after its `)`.
fn process_ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let (user, system) = (fields.next()?.parse::<u64>().ok()?, fields.next()?.parse::<u64>().ok()?);
    user.checked_add(system)
}

/// The `cpu` line of /proc/stat: user nice system idle iowait irq softirq steal; guest time is inside user time.
fn host_ticks(stat: &str) -> Option<HostTicks> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<u64> = line.split_whitespace().take(8).map(|n| n.parse().ok()).collect::<Option<_>>()?;
    let idle = ticks.get(3)?.checked_add(*ticks.get(4).unwrap_or(&0))?;
    let total = ticks.iter().try_fold(0u64, |sum, n| sum.checked_add(*n))?;
    Some(HostTicks { busy: total.checked_sub(idle)?, total })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_use_is_the_difference_of_two_readings() {
        let clock = Clock::start();
        let at = Instant::now();
        let reading = |seconds, process, busy, total| Counters {
            at: at + Duration::from_secs(seconds),
            process_ticks: process,
            host_ticks: Some(HostTicks { busy, total }),
        };
        // 150 ticks of 10 ms in one second are one core and a half; 300 of 400 host ticks busy are 75 %.
        let seen = sample(&clock, &reading(1, Some(50), 100, 1000), &reading(2, Some(200), 400, 1400));
        assert_eq!((seen.process_cpu_percent, seen.host_cpu_percent), (Some(150.0), Some(75.0)));
        let unknown = sample(&clock, &reading(1, None, 9, 9), &reading(2, Some(3), 9, 9));
        assert_eq!((unknown.process_cpu_percent, unknown.host_cpu_percent), (None, None));
    }

    #[test]
    fn a_program_name_with_blanks_and_brackets_does_not_shift_the_fields() {
        let stat = "42 (a) b (c)) R 1 2 3 4 5 6 7 8 9 10 700 30 0 0";
        assert_eq!(process_ticks(stat), Some(730));
        assert_eq!(process_ticks("42 (short) R 1"), None);
    }

    #[test]
    fn idle_and_waiting_time_is_not_busy() {
        let ticks = host_ticks("cpu  10 1 4 80 5 0 0 0 0 0\ncpu0 1 1 1 1\n").unwrap();
        assert_eq!(ticks, HostTicks { busy: 15, total: 100 });
    }

    #[test]
    fn samples_come_in_order_of_time_and_each_is_given_once() {
        let sampler = Sampler::start_each(Clock::start(), Duration::from_millis(1));
        let mut taken = Vec::new();
        while taken.len() < 3 {
            taken.extend(sampler.take());
            std::thread::yield_now();
        }
        taken.extend(sampler.finish());
        assert!(taken.is_sorted_by(|a, b| a.t_ns < b.t_ns), "{taken:?}");
    }
}
