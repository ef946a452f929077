//! The wish to stop a run, seen by the issue loop and by whoever waits.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// A handle that any thread may use to ask the run to stop; clones share the wish.
#[derive(Debug, Clone, Default)]
pub struct Stop {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    requested: AtomicBool,
    wake: Notify,
}

impl Stop {
    /// Asks the run to stop. Safe to call more than once and from any thread, but not from a signal handler itself.
    pub fn request(&self) {
        self.inner.requested.store(true, Ordering::SeqCst);
        self.inner.wake.notify_waiters();
    }

    /// Whether a stop was asked for.
    pub fn requested(&self) -> bool {
        self.inner.requested.load(Ordering::SeqCst)
    }

    /// Returns once a stop was asked for.
    pub async fn wait(&self) {
        let notified = self.inner.wake.notified();
        tokio::pin!(notified);
        // Registered before the flag is read, so that a request between the two is not missed.
        notified.as_mut().enable();
        if !self.requested() {
            notified.await;
        }
    }
}
