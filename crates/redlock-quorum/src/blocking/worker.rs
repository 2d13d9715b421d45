//! The thread of a blocking handle.

use std::future::Future;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use crate::driver::slot::Slot;

/// The thread on which the driver works.
pub(super) struct Worker {
    slot: Arc<Slot>,
    runtime: Handle,
    /// Dropped to stop the thread.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// How long the thread continues to release after the last handle is gone.
const LINGER: Duration = Duration::from_secs(1);

impl Worker {
    pub(super) fn start(redlock: crate::Redlock) -> std::io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let slot = redlock.slot().clone();
        let handle = runtime.handle().clone();
        let thread = std::thread::Builder::new().name("redlock".into()).spawn(move || {
            runtime.block_on(async {
                let _ = stopped.await;
                if let Err(left) = redlock.shutdown(LINGER).await {
                    tracing::warn!(%left, "the blocking handle was dropped");
                }
            });
        })?;
        Ok(Self { slot, runtime: handle, stop: Some(stop), thread: Some(thread) })
    }

    /// Runs `work` on the worker's thread and waits for it. Returns `None` if that thread has
    /// exited.
    ///
    /// The result comes back through a channel of the standard library, because it blocks in places
    /// where an async runtime forbids its own ways to block.
    pub(super) fn wait<F>(&self, work: F) -> Option<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        if self.slot.is_forked() {
            // None of it waits: each request fails at its first poll.
            return work.now_or_never();
        }
        let (done, outcome) = mpsc::sync_channel(1);
        self.runtime.spawn(async move {
            // The result has no receiver only if the caller's thread has been torn down.
            let _ = done.send(work.await);
        });
        outcome.recv().ok()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if self.slot.is_forked() {
            // A forked child has no such thread, and waking it would wake the parent's.
            std::mem::forget((self.stop.take(), self.thread.take()));
            return;
        }
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A thread that has panicked has nothing more to release.
            let _ = thread.join();
        }
    }
}
