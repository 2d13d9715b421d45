//! `Beside`: runs a call that may block on a separate thread.

use std::future::poll_fn;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

/// How long a result can be reused by later attempts.
const FRESH: Duration = Duration::from_secs(5);

/// Runs one call at a time, and hands its result to the attempt that waits for it.
///
/// Runs calls that block and cannot be cancelled. No runtime waits for their thread when it shuts
/// down. If a call hangs, the next attempt waits for the same call.
pub(super) struct Beside<T> {
    thread: &'static str,
    progress: Arc<Mutex<Progress<T>>>,
}

enum Progress<T> {
    Idle,
    /// To be woken at the end.
    Running(Waker),
    Done(io::Result<T>, Instant),
}

impl<T: Send + 'static> Beside<T> {
    /// Creates a place for calls, whose threads get this name.
    pub(super) fn new(thread: &'static str) -> Self {
        Self { thread, progress: Arc::new(Mutex::new(Progress::Idle)) }
    }

    /// Returns the result of the call under way, or starts this one.
    pub(super) async fn run<F>(&self, call: impl Fn() -> F) -> io::Result<T>
    where
        F: FnOnce() -> io::Result<T> + Send + 'static,
    {
        poll_fn(|cx| self.poll(&call, cx)).await
    }

    fn poll<F>(&self, call: &impl Fn() -> F, cx: &mut Context<'_>) -> Poll<io::Result<T>>
    where
        F: FnOnce() -> io::Result<T> + Send + 'static,
    {
        let mut progress = lock(&self.progress);
        let waker = cx.waker().clone();
        match std::mem::replace(&mut *progress, Progress::Idle) {
            Progress::Done(result, at) if at.elapsed() < FRESH => return Poll::Ready(result),
            Progress::Running(_) => {}
            Progress::Idle | Progress::Done(..) => self.start(call())?,
        }
        *progress = Progress::Running(waker);
        Poll::Pending
    }

    /// Starts the thread. It reports its result only after the lock on the progress, which is held
    /// here, is free.
    fn start(&self, call: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<()> {
        let progress = self.progress.clone();
        let run = move || {
            // Without this, no attempt would ever get the result of a call that panicked.
            let result = catch_unwind(AssertUnwindSafe(call));
            let result = result.unwrap_or_else(|_| Err(io::Error::other("the call panicked")));
            let done = Progress::Done(result, Instant::now());
            let before = std::mem::replace(&mut *lock(&progress), done);
            if let Progress::Running(waker) = before {
                waker.wake();
            }
        };
        thread::Builder::new().name(self.thread.into()).spawn(run).map(drop)
    }
}

/// No code that holds this lock can panic half-way through a change.
fn lock<T>(progress: &Mutex<Progress<T>>) -> MutexGuard<'_, Progress<T>> {
    progress.lock().unwrap_or_else(PoisonError::into_inner)
}
