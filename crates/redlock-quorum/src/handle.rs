//! `Handle`: what all clones of a handle, and all its guards, share.

use std::future::Future;
use std::mem::{Discriminant, discriminant};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redlock_core::{Clock, InvalidResource, Resource};
use redlock_protocol::throttle::Throttle;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::counters::Counters;
use crate::driver::command::Command;
use crate::driver::slot::Slot;
use crate::error::{AcquireError, MarkError, ReleaseError, Unreleased};
use crate::inbox::Inbox;
use crate::settings::{InvalidRequest, Settings};

/// One handle, shared by callers and guards.
pub(crate) struct Handle {
    pub(crate) settings: Settings,
    pub(crate) clock: Clock,
    pub(crate) names: Arc<[Arc<str>]>,
    pub(crate) counters: Arc<Counters>,
    /// Warnings that no caller gets as an error, by the kind of what went wrong.
    warnings: Mutex<Throttle<Warning>>,
    pub(crate) inbox: Inbox,
    /// Calls that collect several locks listen to it, as long as they may hold some.
    is_shut_down: watch::Sender<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Warning {
    Release(Discriminant<ReleaseError>),
    Mark(Discriminant<MarkError>),
}

/// How long a dropped handle keeps releasing, if its runtime allows it.
const LINGER: Duration = Duration::from_secs(5);

impl Handle {
    pub(crate) fn new(
        settings: Settings,
        clock: Clock,
        names: Arc<[Arc<str>]>,
        counters: Arc<Counters>,
        slot: Arc<Slot>,
    ) -> Self {
        let (inbox, is_shut_down) = (Inbox::new(slot), watch::Sender::new(false));
        Self { settings, clock, names, counters, warnings: Mutex::default(), inbox, is_shut_down }
    }

    /// Returns the key of a resource.
    ///
    /// # Errors
    /// Returns [`InvalidRequest::Resource`] if the name, or the whole key, cannot be used.
    pub(crate) fn key(&self, resource: &Resource) -> Result<Arc<[u8]>, InvalidRequest> {
        resource.check()?;
        let key = resource.key(&self.settings.prefix);
        // A prefix and a name may make up together what neither may contain.
        if Resource::is_reserved(&key) {
            return Err(InvalidResource::Reserved.into());
        }
        Ok(key)
    }

    /// # Errors
    /// Returns [`AcquireError::Shutdown`] once the handle was shut down.
    pub(crate) fn open(&self) -> Result<(), AcquireError> {
        match *self.is_shut_down.borrow() {
            true => Err(AcquireError::Shutdown),
            false => Ok(()),
        }
    }

    /// Runs a call that collects several locks. It ends when the handle is shut down. Its caller has
    /// no guards that it could release, so the call releases what it has collected.
    pub(crate) async fn collecting<T>(
        &self,
        call: impl Future<Output = Result<T, AcquireError>>,
    ) -> Result<T, AcquireError> {
        let mut is_shut_down = self.is_shut_down.subscribe();
        tokio::select! {
            biased;
            _ = is_shut_down.wait_for(|is| *is) => Err(AcquireError::Shutdown),
            collected = call => collected,
        }
    }

    /// Logs the failed release of a lock after its work, because no caller gets the error.
    pub(crate) fn warn_of_release(&self, error: &ReleaseError) {
        let what = "the work is done, but its lock is not known to be released";
        match self.admit(Warning::Release(discriminant(error))) {
            Some(suppressed) => tracing::warn!(%error, suppressed, "{what}"),
            None => tracing::debug!(%error, "{what}"),
        }
    }

    /// Logs that the work was done without a confirmed mark, because no caller gets the error.
    pub(crate) fn warn_of_mark(&self, error: &MarkError) {
        let what = "the work is done, but too few masters keep a mark of it";
        match self.admit(Warning::Mark(discriminant(error))) {
            Some(suppressed) => tracing::warn!(%error, suppressed, "{what}"),
            None => tracing::debug!(%error, "{what}"),
        }
    }

    /// Returns how many warnings were suppressed since the last one, or `None` to suppress this one
    /// as well. The mutex is unlocked before the line is written, because a subscriber may use this
    /// handle.
    fn admit(&self, warning: Warning) -> Option<u64> {
        let now = self.clock.now();
        self.warnings.lock().unwrap_or_else(PoisonError::into_inner).admit(warning, now)
    }

    /// Closes the handle, and returns the keys left on masters.
    pub(crate) async fn shut_down(&self, within: Duration) -> Result<(), Unreleased> {
        self.is_shut_down.send_replace(true);
        let began = self.clock.now();
        let unless_dropped = CloseOnDrop(Some(&self.inbox));
        // Without a runtime, nothing polls these calls.
        let may_wait =
            tokio::runtime::Handle::try_current().is_ok() && !self.inbox.slot().is_forked();
        if may_wait && self.is_shut_down.receiver_count() > 0 {
            // Calls release what they have collected. A call without polls must not use up the time
            // of all releases.
            let _ = timeout(within / 2, self.is_shut_down.closed()).await;
        }
        unless_dropped.disarm();
        self.inbox.close(within.saturating_sub(self.clock.now().saturating_since(began))).await
    }
}

/// Closes the handle if its shutdown is dropped before it has reached the driver.
struct CloseOnDrop<'a>(Option<&'a Inbox>);

impl CloseOnDrop<'_> {
    fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for CloseOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(inbox) = self.0 {
            inbox.post(Command::Close { within: LINGER, reply: None });
        }
    }
}

/// The last handle is gone, and every guard: the driver ends when all releases are acknowledged.
impl Drop for Handle {
    fn drop(&mut self) {
        self.inbox.post(Command::Close { within: LINGER, reply: None });
    }
}
