//! `Loss`: a future that resolves when a lock is over.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::sleep;

use crate::driver::slot::Slot;
use crate::hold::{HoldCell, NAP_MAX};
use crate::lost::{Ended, LostReason};

/// A future that resolves with the reason when a lock is lost or released. Created by
/// [`Guard::lost`](crate::Guard::lost).
///
/// Poll it inside a tokio runtime. A clone waits for the same lock.
///
/// # Cancel safety
/// Dropping the future has no effect on the lock.
#[must_use = "futures do nothing unless polled"]
pub struct Loss {
    cell: Arc<HoldCell>,
    slot: Arc<Slot>,
    wait: BoxFuture<'static, Ended>,
}

impl Loss {
    pub(crate) fn new(cell: Arc<HoldCell>, slot: Arc<Slot>) -> Self {
        let forked = |cell: &HoldCell| Ended::Lost(cell.lost(LostReason::Shutdown));
        let wait = until(cell.clone(), slot.clone(), HoldCell::ended, forked);
        Self { wait: Box::pin(wait), cell, slot }
    }
}

/// Resolves when `found` returns a value. `found` is called first and last, and the timer only
/// decides when. A forked child has no timer and no driver, so it resolves to `forked`.
async fn until<T>(
    cell: Arc<HoldCell>,
    slot: Arc<Slot>,
    found: fn(&HoldCell) -> Option<T>,
    forked: fn(&HoldCell) -> T,
) -> T {
    loop {
        if slot.is_forked() {
            return forked(&cell);
        }
        let changed = cell.changed();
        if let Some(found) = found(&cell) {
            return found;
        }
        let left = match cell.remaining() {
            Duration::ZERO => NAP_MIN,
            left => left,
        };
        tokio::select! {
            () = changed => {}
            () = driven(&slot, left) => {}
        }
    }
}

/// Resolves when every master has answered the attempt, or its time is up.
pub(crate) async fn settled(cell: Arc<HoldCell>, slot: Arc<Slot>) {
    until(cell, slot, |cell| cell.is_settled().then_some(()), |_| ()).await;
}

/// The time until the next check of a cell whose time is up.
const NAP_MIN: Duration = Duration::from_millis(1);

/// Sleeps for `left`, at most for [`NAP_MAX`], and keeps the driver working: starts it if its
/// runtime is gone, and takes it over from a runtime that does not poll it.
async fn driven(slot: &Arc<Slot>, left: Duration) {
    let nap = left.min(NAP_MAX);
    // If no runtime can drive it, its time still passes.
    let _ = slot.start();
    if !slot.is_elsewhere() {
        return sleep(nap).await;
    }
    let turns = slot.ring();
    sleep(nap / 2).await;
    let _ = slot.take_over(turns);
}

impl Future for Loss {
    type Output = Ended;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Ended> {
        self.wait.as_mut().poll(cx)
    }
}

impl Clone for Loss {
    fn clone(&self) -> Self {
        Self::new(self.cell.clone(), self.slot.clone())
    }
}

impl fmt::Debug for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loss").field("resource", &self.cell.resource).finish_non_exhaustive()
    }
}
