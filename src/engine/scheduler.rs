//! What the engine does next: a prefill chunk or a decode step.
use std::time::Duration;

/// Who goes first when one sequence is in prefill and others decode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SchedulerPolicy {
    /// One sequence owns prefill; the others get one decode step between two of its chunks, so a long prompt slows them to the pace
    /// of its chunks (as NInfer does).
    #[default]
    Serial,
    /// Decode keeps half of the time: after a chunk, decode steps run until they took as long as the chunk did.
    Mixed,
}

/// One thing to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// A chunk of the oldest sequence in prefill.
    Prefill,
    /// One step of every decoding sequence.
    Decode,
    /// Nothing is admitted.
    Idle,
}

/// The time each side has had since they last were even.
#[derive(Debug)]
pub struct Scheduler {
    policy: SchedulerPolicy,
    owed_to_decode: Duration,
    chunk_since_decode: bool,
}

impl Scheduler {
    /// A scheduler that owes nothing.
    pub fn new(policy: SchedulerPolicy) -> Self {
        Self { policy, owed_to_decode: Duration::ZERO, chunk_since_decode: false }
    }

    /// What to do with `prefilling` and `decoding` sequences.
    pub fn next(&self, prefilling: usize, decoding: usize) -> Next {
        match (prefilling, decoding) {
            (0, 0) => Next::Idle,
            (0, _) => Next::Decode,
            (_, 0) => Next::Prefill,
            _ if self.decode_is_due() => Next::Decode,
            _ => Next::Prefill,
        }
    }

    fn decode_is_due(&self) -> bool {
        match self.policy {
            SchedulerPolicy::Serial => self.chunk_since_decode,
            SchedulerPolicy::Mixed => !self.owed_to_decode.is_zero(),
        }
    }

    /// A chunk took `time` while `decoding` sequences waited.
    pub fn prefilled(&mut self, time: Duration, decoding: usize) {
        self.chunk_since_decode = true;
        self.owed_to_decode = if decoding == 0 { Duration::ZERO } else { self.owed_to_decode + time };
    }

    /// A decode step took `time`.
    pub fn decoded(&mut self, time: Duration) {
        self.chunk_since_decode = false;
        self.owed_to_decode = self.owed_to_decode.saturating_sub(time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(policy: SchedulerPolicy) -> (Duration, Duration) {
        let (chunk, step) = (Duration::from_millis(100), Duration::from_millis(10));
        let mut scheduler = Scheduler::new(policy);
        let (mut prefill, mut decode) = (Duration::ZERO, Duration::ZERO);
        for _ in 0..2200 {
            match scheduler.next(1, 2) {
                Next::Prefill => {
                    scheduler.prefilled(chunk, 2);
                    prefill += chunk;
                }
                Next::Decode => {
                    scheduler.decoded(step);
                    decode += step;
                }
                Next::Idle => unreachable!("there is work"),
            }
        }
        (prefill, decode)
    }

    #[test]
    fn serial_gives_decode_one_step_a_chunk() {
        let (prefill, decode) = shares(SchedulerPolicy::Serial);
        assert_eq!(prefill, decode * 10);
    }

    #[test]
    fn mixed_gives_decode_half_of_the_time() {
        let (prefill, decode) = shares(SchedulerPolicy::Mixed);
        assert_eq!(prefill, decode);
    }

    #[test]
    fn nothing_is_owed_when_nobody_waited() {
        let mut scheduler = Scheduler::new(SchedulerPolicy::Mixed);
        scheduler.prefilled(Duration::from_secs(1), 0);
        assert_eq!(scheduler.next(1, 1), Next::Prefill);
        assert_eq!(scheduler.next(0, 0), Next::Idle);
    }
}
