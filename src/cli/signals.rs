//! Ctrl-C and friends: the first signal asks for an orderly end, the second ends at once.
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tokio::sync::watch;

use super::exit::ExitCode;

/// A request to stop, which many may wait for. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Stop {
    requested: Arc<watch::Sender<bool>>,
}

impl Default for Stop {
    fn default() -> Self {
        Self::new()
    }
}

impl Stop {
    /// A stop that no signal reaches, for tests and inner deadlines.
    pub fn new() -> Self {
        Self { requested: Arc::new(watch::Sender::new(false)) }
    }

    /// A stop that SIGINT, SIGTERM and SIGHUP request; a second of them exits with 20 from inside the signal handler, whatever hangs.
    ///
    /// Call it once in a process. SIGPIPE is left ignored, as Rust has it.
    pub fn on_signals() -> io::Result<Self> {
        let stop = Self::new();
        let seen = Arc::new(AtomicBool::new(false));
        let signals = [SIGINT, SIGTERM, SIGHUP];
        for signal in signals {
            // Handlers of a signal run in this order: the first signal finds `seen` unset, sets it, and the second one exits.
            signal_hook::flag::register_conditional_shutdown(
                signal,
                i32::from(ExitCode::Interrupted.number()),
                seen.clone(),
            )?;
            signal_hook::flag::register(signal, seen.clone())?;
        }
        let mut queue = Signals::new(signals)?;
        let requester = stop.clone();
        std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
            for _ in queue.forever() {
                requester.request();
            }
        })?;
        Ok(stop)
    }

    /// Asks for a stop.
    pub fn request(&self) {
        self.requested.send_replace(true);
    }

    /// Whether a stop was asked for.
    pub fn requested(&self) -> bool {
        *self.requested.borrow()
    }

    /// Returns when a stop is asked for; at once when it was.
    pub async fn wait(&self) {
        // The sender lives as long as `self`, so the wait ends only by a request.
        self.requested.subscribe().wait_for(|requested| *requested).await.ok();
    }

    /// Runs `wake` when a stop is asked for, on a thread of its own; for waiters that are not async.
    pub fn on_request(&self, wake: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let mut requested = self.requested.subscribe();
        let wait = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build();
            // Every `Stop` dropped without a request: nobody is left to wake.
            if runtime.is_ok_and(|runtime| runtime.block_on(requested.wait_for(|requested| *requested)).is_ok()) {
                wake();
            }
        };
        std::thread::Builder::new().name("stop".to_owned()).spawn(wait)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn everyone_who_waits_hears_of_a_stop_whether_before_or_after() {
        let stop = Stop::new();
        assert!(!stop.requested());
        let waiter = stop.clone();
        let (sender, woken) = std::sync::mpsc::channel();
        stop.on_request(move || sender.send(()).expect("the test still listens")).unwrap();
        let ((), ()) = tokio::join!(waiter.wait(), async { stop.request() });
        woken.recv().unwrap();
        stop.wait().await;
        assert!(waiter.requested());
    }
}
