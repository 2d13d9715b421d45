//! `Inbox`: how callers ask the driver, and make sure that some runtime polls it.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::RecvError;
use tokio::time::sleep;

use crate::driver::command::Command;
use crate::driver::life::Slot;
use crate::error::{AcquireError, ExtendError, ReleaseError, Unreleased};
use crate::settings::InvalidRequest;

/// How long a caller waits for a driver on another runtime that may not poll it, before it looks
/// whether the driver was polled at all.
const PATIENCE: Duration = Duration::from_millis(100);

/// The callers' end of the driver.
pub(crate) struct Inbox {
    slot: Arc<Slot>,
}

/// Why the driver gave no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unasked {
    /// Nothing can drive it.
    Invalid(InvalidRequest),
    /// The handle was shut down.
    Shutdown,
}

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

    /// Asks, and waits for the answer. When the runtime that drove the handle goes away, or does
    /// not poll it, the driver goes on with this one, and is asked again.
    pub(crate) async fn ask<T>(
        &self,
        command: impl Fn(oneshot::Sender<T>) -> Command,
    ) -> Result<T, Unasked> {
        loop {
            let (reply, answer) = oneshot::channel();
            self.start()?;
            self.slot.post(command(reply));
            // The task may have gone away in between, and with it the reader of the command.
            self.start()?;
            if let Ok(answer) = self.wait(answer).await {
                return Ok(answer);
            }
        }
    }

    fn start(&self) -> Result<(), Unasked> {
        self.slot.start().map_err(Unasked::Invalid)?;
        match self.slot.is_ended() {
            true => Err(Unasked::Shutdown),
            false => Ok(()),
        }
    }

    async fn wait<T>(&self, mut answer: oneshot::Receiver<T>) -> Result<T, RecvError> {
        // Without a runtime here there is no timer to look up by, and none to go on with.
        while self.slot.is_elsewhere() && Handle::try_current().is_ok() {
            let turns = self.slot.turns();
            tokio::select! {
                biased;
                answer = &mut answer => return answer,
                () = sleep(PATIENCE) => {}
            }
            // Where this runtime cannot take it over either, its own may still poll it.
            let _ = self.slot.take_over(turns);
        }
        answer.await
    }

    /// Closes the driver, and returns what is left on masters. All callers get one outcome.
    pub(crate) async fn close(&self, within: Duration) -> Result<(), Unreleased> {
        let until = self.slot.now().saturating_add(within);
        let command = |reply| {
            let within = until.saturating_since(self.slot.now());
            Command::Close { within, reply: Some(reply) }
        };
        match self.ask(command).await {
            Ok(outcome) => outcome,
            Err(_) => {
                // Nothing can send anything any more.
                self.slot.end_parked();
                self.slot.outcome()
            }
        }
    }
}

impl From<Unasked> for AcquireError {
    fn from(unasked: Unasked) -> Self {
        match unasked {
            Unasked::Invalid(invalid) => Self::Invalid(invalid),
            Unasked::Shutdown => Self::Shutdown,
        }
    }
}

impl From<Unasked> for ExtendError {
    fn from(unasked: Unasked) -> Self {
        match unasked {
            Unasked::Invalid(invalid) => Self::Invalid(invalid),
            Unasked::Shutdown => Self::Shutdown,
        }
    }
}

impl From<Unasked> for ReleaseError {
    fn from(unasked: Unasked) -> Self {
        match unasked {
            Unasked::Invalid(invalid) => Self::Invalid(invalid),
            Unasked::Shutdown => Self::Shutdown,
        }
    }
}
