//! `Inbox`: sends the callers' commands to the driver, and makes sure that some runtime polls it.

use std::future::{Future, pending, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::driver::command::Command;
use crate::driver::reply::{Awaited, Reply, Withdrawals, reply};
use crate::driver::runtimes::{PATIENCE, living_runtime};
use crate::driver::slot::Slot;
use crate::error::{AcquireError, ExtendError, ReleaseError, Unreleased};
use crate::settings::InvalidRequest;

/// How long a caller without its own runtime waits for an unpolled driver. The thread that
/// polls the driver may be busy for a while.
const SILENT_MAX: Duration = Duration::from_secs(3);
/// The longest time between two checks of a driver on another runtime, which may have ended.
const PATIENCE_MAX: Duration = Duration::from_secs(1);

/// How long a dismissed caller waits before it checks whether the driver accepts commands again.
const PARKING: Duration = Duration::from_millis(1);

/// The callers' end of the driver.
pub(crate) struct Inbox {
    slot: Arc<Slot>,
}

/// Why the driver gave no answer: no runtime can drive it, for this reason; `None` where the handle
/// was shut down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unasked(Option<InvalidRequest>);

impl Inbox {
    pub(crate) fn new(slot: Arc<Slot>) -> Self {
        Self { slot }
    }

    pub(crate) fn slot(&self) -> &Arc<Slot> {
        &self.slot
    }

    /// Leaves a command that nothing waits for.
    pub(crate) fn post(&self, command: Command) {
        self.slot.post(command);
    }

    /// Sends a command and waits for the answer. If the runtime that drove the handle goes away, or
    /// does not poll it, the driver continues on the caller's runtime, and the command is sent
    /// again.
    pub(crate) fn ask<T: Send + 'static>(
        &self,
        command: impl Fn(Reply<T>) -> Command,
    ) -> impl Future<Output = Result<T, Unasked>> {
        self.question(command, None)
    }

    /// Requests a lock, as [`ask`](Self::ask) does. If the caller stops waiting, the driver is
    /// notified, so that its turn immediately goes to the next caller, and nothing of it stays in
    /// memory.
    pub(crate) fn ask_or_withdraw<T: Send + 'static>(
        &self,
        command: impl Fn(Reply<T>) -> Command,
    ) -> impl Future<Output = Result<T, Unasked>> {
        self.question(command, Some(&*self.slot))
    }

    async fn question<T: Send + 'static>(
        &self,
        command: impl Fn(Reply<T>) -> Command,
        withdraws_at: Option<&dyn Withdrawals>,
    ) -> Result<T, Unasked> {
        loop {
            // A dropped answer is withdrawn, and a withdrawal needs a runtime as well.
            self.start()?;
            let (reply, answer) = reply(withdraws_at);
            self.slot.post_here(command(reply));
            // The task may have gone away in between, and with it the reader of the command.
            self.drive()?;
            let answer = self.wait(answer).await?;
            if let Some(answer) = answer {
                return Ok(answer);
            }
            self.parked().await;
        }
    }

    /// Waits until the driver has left its runtime, if it is leaving. With hundreds of callers that
    /// immediately retry, it would never finish.
    async fn parked(&self) {
        while self.slot.is_parking() {
            Box::pin(pause(PARKING)).await;
        }
    }

    fn start(&self) -> Result<(), Unasked> {
        self.stay()?;
        self.drive()
    }

    fn drive(&self) -> Result<(), Unasked> {
        self.slot.start()?;
        if self.slot.is_ended() { Err(Unasked(None)) } else { Ok(()) }
    }

    /// # Errors
    /// Returns [`InvalidRequest::Forked`] in a forked child, which has no driver.
    pub(crate) fn stay(&self) -> Result<(), InvalidRequest> {
        if self.slot.is_forked() { Err(InvalidRequest::Forked) } else { Ok(()) }
    }

    /// Waits for the answer. `None` if it will not come and the command must be sent again.
    async fn wait<T: Send + 'static>(
        &self,
        mut answer: Awaited<'_, T>,
    ) -> Result<Option<T>, Unasked> {
        let (mut patience, mut silent) = (PATIENCE, Duration::ZERO);
        let mut is_checked = true;
        while self.slot.is_elsewhere() {
            let turns = self.slot.ring();
            is_checked = false;
            tokio::select! {
                biased;
                answer = &mut answer => {
                    self.stay()?;
                    return Ok(answer);
                }
                // It is rare, and the future of each caller has room for what it may await.
                () = Box::pin(pause(patience)) => {}
            }
            silent = if self.slot.has_turned(turns) { Duration::ZERO } else { silent + patience };
            if let Err(invalid) = self.slot.take_over(turns)
                && silent >= SILENT_MAX
            {
                return Err(Unasked(Some(invalid)));
            }
            patience = longer(patience);
        }
        // A future that the parent has polled may be polled again in a child. An answer from before
        // the fork belongs to the parent. The first poll follows the check of the call, and a check
        // is a system call.
        poll_fn(|cx| {
            if !std::mem::take(&mut is_checked) {
                self.stay()?;
            }
            Pin::new(&mut answer).poll(cx).map(Ok)
        })
        .await
    }

    /// Closes the driver, and returns the keys left on masters. All callers get the same outcome.
    pub(crate) async fn close(&self, within: Duration) -> Result<(), Unreleased> {
        let until = self.slot.now().saturating_add(within);
        let command = |reply| {
            let within = until.saturating_since(self.slot.now());
            Command::Close { within, reply: Some(reply) }
        };
        loop {
            if let Ok(outcome) = self.ask_or_withdraw(command).await {
                return outcome;
            }
            if self.slot.is_forked() {
                return Ok(());
            }
            // The driver can no longer send anything.
            self.slot.end_unpolled();
            if let Some(outcome) = self.slot.outcome() {
                return outcome;
            }
        }
    }
}

/// Returns the next check interval. An unpolled driver is noticed soon, and long waits for a polled
/// driver cost little.
fn longer(patience: Duration) -> Duration {
    PATIENCE_MAX.min(patience * 2)
}

/// Waits for `time`, also without a runtime, and so without a timer: that costs a thread.
async fn pause(time: Duration) {
    if living_runtime().is_some() {
        return sleep(time).await;
    }
    let (over, is_over) = oneshot::channel::<()>();
    let (wanted, is_wanted) = mpsc::channel::<()>();
    let timer = move || {
        // The wait ends early if the answer has arrived.
        let _ = is_wanted.recv_timeout(time);
        drop(over);
    };
    let spawned = thread::Builder::new().name("redlock timer".into()).spawn(timer);
    if spawned.is_err() {
        // The answer may still come.
        return pending().await;
    }
    let _ = is_over.await;
    drop(wanted);
}

impl From<InvalidRequest> for Unasked {
    fn from(invalid: InvalidRequest) -> Self {
        Self(Some(invalid))
    }
}

impl From<Unasked> for AcquireError {
    fn from(unasked: Unasked) -> Self {
        unasked.0.map_or(Self::Shutdown, Self::Invalid)
    }
}

impl From<Unasked> for ExtendError {
    fn from(unasked: Unasked) -> Self {
        unasked.0.map_or(Self::Shutdown, Self::Invalid)
    }
}

impl From<Unasked> for ReleaseError {
    fn from(unasked: Unasked) -> Self {
        unasked.0.map_or(Self::Shutdown, Self::Invalid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remote_driver_is_polled_soon_and_then_once_per_second() {
        let pauses = std::iter::successors(Some(PATIENCE), |last| Some(longer(*last))).take(6);
        let millis: Vec<_> = pauses.map(|patience| patience.as_millis()).collect();
        assert_eq!(millis, [100, 200, 400, 800, 1_000, 1_000]);
    }
}
