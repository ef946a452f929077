//! Fork and join over a few threads that stay warm between the operations of one step and park when the engine is idle.
//!
//! A decode step of a small model is some 150 parallel regions of 30 to 100 µs. Waking a parked thread costs about as much as one
//! of them, so a worker looks for the next region for [`SPIN`] before it parks; the caller never waits for a worker that has
//! not joined: whoever comes late finds the region closed.
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long an idle worker looks for work before it parks.
const SPIN: Duration = Duration::from_micros(50);

const INSIDE: u64 = 0xFFFF;
const OPEN: u64 = 1 << 16;
const REGION: u64 = 1 << 17;

/// A fixed set of threads; the calling thread is one of them.
pub struct WorkerPool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

struct Shared {
    /// Number of the region in the high bits, whether it may be joined, and how many workers are inside.
    gate: AtomicU64,
    job: UnsafeCell<Option<Job>>,
    next: AtomicUsize,
    panicked: AtomicBool,
    stop: AtomicBool,
    sleepers: Mutex<usize>,
    wake: Condvar,
}

#[derive(Clone, Copy)]
struct Job {
    tasks: usize,
    body: *const (dyn Fn(usize, usize) + Sync),
}

// SAFETY: `job` is written only while the gate is closed and nobody is inside, and read only by workers that entered through the
// open gate (acquire after the caller's release); the closure is `Sync` and outlives the region, which ends before `run` returns.
unsafe impl Sync for Shared {}
// SAFETY: as above; the raw pointer is never used outside a region.
unsafe impl Send for Shared {}

impl WorkerPool {
    /// A pool of `threads` threads in all, at least 1.
    pub fn new(threads: usize) -> Self {
        let shared = Arc::new(Shared {
            gate: AtomicU64::new(0),
            job: UnsafeCell::new(None),
            next: AtomicUsize::new(0),
            panicked: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            sleepers: Mutex::new(0),
            wake: Condvar::new(),
        });
        let workers = (1..threads.max(1))
            .filter_map(|number| {
                let shared = Arc::clone(&shared);
                // A thread that cannot be had is done without: the others take its tasks.
                std::thread::Builder::new()
                    .name(format!("engine worker {number}"))
                    .spawn(move || shared.work(number))
                    .ok()
            })
            .collect();
        Self { shared, workers }
    }

    /// Threads in all, the caller included.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `body(task, thread)` once for every task below `tasks`, in no fixed order, and returns when all are done.
    ///
    /// `thread` is below [`Self::threads`] and never the same for two calls at one time. Panics if a task panicked.
    pub fn run(&mut self, tasks: usize, body: &(dyn Fn(usize, usize) + Sync)) {
        if tasks <= 1 || self.workers.is_empty() {
            (0..tasks).for_each(|task| body(task, 0));
            return;
        }
        let shared = &*self.shared;
        // SAFETY: extends the closure's lifetime for the region only; `run` closes the gate and waits before it returns.
        let body_static: *const (dyn Fn(usize, usize) + Sync) = unsafe {
            std::mem::transmute::<
                *const (dyn Fn(usize, usize) + Sync + '_),
                *const (dyn Fn(usize, usize) + Sync + 'static),
            >(std::ptr::from_ref(body))
        };
        // SAFETY: the gate is closed and nobody is inside: the last region ended that way, and `&mut self` allows one caller.
        unsafe { *shared.job.get() = Some(Job { tasks, body: body_static }) };
        shared.next.store(0, Ordering::Relaxed);
        let region = (shared.gate.load(Ordering::Relaxed) / REGION).wrapping_add(1);
        shared.gate.store(region.wrapping_mul(REGION) | OPEN, Ordering::SeqCst);
        if *shared.sleepers.lock().unwrap_or_else(PoisonError::into_inner) > 0 {
            shared.wake.notify_all();
        }
        let mine = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| shared.take_tasks(tasks, body, 0)));
        shared.gate.fetch_and(!OPEN, Ordering::SeqCst);
        let mut looks = 0u32;
        while shared.gate.load(Ordering::Acquire) & INSIDE != 0 {
            looks += 1;
            // With more threads than processors the one we wait for may need ours.
            if looks.is_multiple_of(4096) { std::thread::yield_now() } else { std::hint::spin_loop() }
        }
        let theirs = shared.panicked.swap(false, Ordering::SeqCst);
        if let Err(panic) = mine {
            std::panic::resume_unwind(panic);
        }
        assert!(!theirs, "a worker of the engine panicked");
    }
}

impl Shared {
    fn take_tasks(&self, tasks: usize, body: &(dyn Fn(usize, usize) + Sync), thread: usize) {
        loop {
            let task = self.next.fetch_add(1, Ordering::Relaxed);
            if task >= tasks {
                return;
            }
            body(task, thread);
        }
    }

    /// Enters the open region, if there is one.
    fn enter(&self) -> bool {
        let mut gate = self.gate.load(Ordering::Acquire);
        while gate & OPEN != 0 {
            match self.gate.compare_exchange_weak(gate, gate + 1, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return true,
                Err(now) => gate = now,
            }
        }
        false
    }

    fn work(&self, thread: usize) {
        let mut seen = 0u64;
        loop {
            let idle_since = Instant::now();
            loop {
                if self.stop.load(Ordering::Relaxed) {
                    return;
                }
                let gate = self.gate.load(Ordering::Acquire);
                if gate & OPEN != 0 && gate / REGION != seen {
                    break;
                }
                if idle_since.elapsed() > SPIN {
                    self.park(seen);
                    break;
                }
                std::hint::spin_loop();
            }
            if !self.enter() {
                continue;
            }
            seen = self.gate.load(Ordering::Relaxed) / REGION;
            // SAFETY: inside the region the job is set and its closure alive.
            let done = unsafe { *self.job.get() }.map(|job| {
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    // SAFETY: as above.
                    self.take_tasks(job.tasks, unsafe { &*job.body }, thread);
                }))
            });
            if matches!(done, Some(Err(_))) {
                self.panicked.store(true, Ordering::SeqCst);
            }
            self.gate.fetch_sub(1, Ordering::Release);
        }
    }

    fn park(&self, seen: u64) {
        let mut sleepers = self.sleepers.lock().unwrap_or_else(PoisonError::into_inner);
        *sleepers += 1;
        loop {
            // Looked at under the lock that the caller takes after opening the gate, so no region is slept through.
            let gate = self.gate.load(Ordering::SeqCst);
            if self.stop.load(Ordering::SeqCst) || (gate & OPEN != 0 && gate / REGION != seen) {
                break;
            }
            sleepers = self.wake.wait(sleepers).unwrap_or_else(PoisonError::into_inner);
        }
        *sleepers -= 1;
    }
}

/// Scratch of every thread of a pool.
pub struct PerThread<T>(Vec<UnsafeCell<T>>);

// SAFETY: an entry is only reached through `get`, whose caller promises to be the one thread of that number.
unsafe impl<T: Send> Sync for PerThread<T> {}

impl<T> PerThread<T> {
    /// One entry a thread.
    pub fn new(threads: usize, mut make: impl FnMut() -> T) -> Self {
        Self((0..threads).map(|_| UnsafeCell::new(make())).collect())
    }

    /// The entry of a thread.
    ///
    /// # Safety
    /// `thread` is the number the pool gave to the running task, and the task holds no other reference to this entry.
    #[allow(clippy::mut_from_ref)] // the caller's promise stands in for the borrow checker
    pub unsafe fn get(&self, thread: usize) -> &mut T {
        // SAFETY: no other thread has this number during the region.
        unsafe { &mut *self.0[thread].get() }
    }
}

impl Drop for WorkerPool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        drop(self.shared.sleepers.lock().unwrap_or_else(PoisonError::into_inner));
        self.shared.wake.notify_all();
        for worker in self.workers.drain(..) {
            // A worker that panicked outside a task has nothing more to say.
            let _ = worker.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_runs_once_over_thousands_of_regions() {
        let mut pool = WorkerPool::new(4);
        for round in 0..5000usize {
            let tasks = round % 37;
            let hits: Vec<AtomicUsize> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
            pool.run(tasks, &|task, thread| {
                assert!(thread < 4);
                hits[task].fetch_add(1, Ordering::Relaxed);
            });
            assert!(hits.iter().all(|h| h.load(Ordering::Relaxed) == 1), "round {round}");
            if round.is_multiple_of(500) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    #[test]
    fn a_panic_in_a_task_reaches_the_caller_and_the_pool_lives_on() {
        let mut pool = WorkerPool::new(2);
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            pool.run(8, &|task, _| assert_ne!(task, 5, "task five"));
        }));
        assert!(result.is_err());
        let count = AtomicUsize::new(0);
        pool.run(8, &|_, _| {
            count.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(count.into_inner(), 8);
    }
}
