//! `Redlock`: the handle.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redlock_core::{Node, Resource};
use tokio::sync::oneshot;

use crate::claim::Context;
use crate::driver::{Message, Slot, as_extension};
use crate::request::LockRequest;
use crate::settings::Settings;
use crate::{
    AcquireError, BuildError, ExtendError, Guard, InvalidRequest, Lease, RedlockBuilder,
    ReleaseError, Status, Unreleased,
};

/// A handle on N independent Redis masters, from which locks are had. Cheap to clone.
///
/// Building it connects nothing. The first use starts a task, on the tokio runtime it happens on,
/// that owns the connections and cleans up after whoever does not. When that runtime goes away,
/// the next use goes on with another. The runtime must be running for leases to be extended: one
/// that nobody polls (a current-thread runtime between two calls of `block_on`) extends nothing.
#[derive(Clone)]
pub struct Redlock {
    inner: Arc<Inner>,
}

/// What all clones of a handle, and all its guards, share.
pub(crate) struct Inner {
    pub(crate) settings: Settings,
    pub(crate) context: Arc<Context>,
    masters: Arc<[Arc<dyn Node>]>,
    slot: Arc<Slot>,
    is_shut_down: AtomicBool,
}

/// How long a handle that was dropped goes on releasing what is owed, where the runtime lets it.
const LINGER: Duration = Duration::from_secs(5);

impl Redlock {
    /// A handle with defaults on the masters at these URLs; see [`RedlockBuilder::nodes`] for
    /// their form. No input or output happens yet.
    ///
    /// # Errors
    /// [`BuildError`] when there are none or more than 15, one is malformed or listed twice.
    pub fn connect<U>(urls: U) -> Result<Self, BuildError>
    where
        U: IntoIterator,
        U::Item: Into<String>,
    {
        Self::builder().nodes(urls).build()
    }

    /// A builder, for everything that is not default.
    pub fn builder() -> RedlockBuilder {
        RedlockBuilder::new()
    }

    pub(crate) fn new(
        settings: Settings,
        context: Arc<Context>,
        masters: Arc<[Arc<dyn Node>]>,
        slot: Arc<Slot>,
    ) -> Self {
        let is_shut_down = AtomicBool::new(false);
        Self { inner: Arc::new(Inner { settings, context, masters, slot, is_shut_down }) }
    }

    /// A lock on `resource`, to be awaited: it keeps trying for the handle's wait.
    pub fn lock(&self, resource: impl Into<Resource>) -> LockRequest {
        LockRequest::new(self.inner.clone(), resource.into())
    }

    /// A lock on `resource` in one attempt: `lock(resource).wait(Duration::ZERO)`.
    pub fn try_lock(&self, resource: impl Into<Resource>) -> LockRequest {
        self.lock(resource).wait(Duration::ZERO)
    }

    /// What each master says about `resource`, and what a quorum of them agrees on. Waits for the
    /// slowest master, for the node timeout at most, and for first connections.
    ///
    /// A name that cannot be a resource, a missing runtime and a handle that was shut down are
    /// told as the reason why no master could be asked: the state is [`State::Undecided`] then.
    ///
    /// [`State::Undecided`]: crate::State::Undecided
    pub async fn status(&self, resource: impl Into<Resource>) -> Status {
        let resource = resource.into();
        match self.ask(&resource).await {
            Ok(status) => status,
            Err(error) => Status::unasked(self.names(), &error.to_string()),
        }
    }

    pub(crate) fn names(&self) -> &[Arc<str>] {
        &self.inner.context.names
    }

    async fn ask(&self, resource: &Resource) -> Result<Status, AcquireError> {
        resource.check().map_err(InvalidRequest::from)?;
        let node_timeout = self.inner.settings.timing(None)?.node_timeout;
        let key = self.inner.key(resource);
        loop {
            let (reply, outcome) = oneshot::channel();
            let message = Message::Status { key: key.clone(), node_timeout, reply };
            self.inner.start_and_post(message)?;
            match outcome.await {
                Ok(status) => return Ok(status),
                Err(_) if self.inner.is_shut_down() => return Err(AcquireError::Shutdown),
                // The runtime that drove the handle has gone: ask again on this one.
                Err(_) => {}
            }
        }
    }

    /// Takes over a lease, and proves it by an extension on a quorum of masters. What the lease
    /// says of its validity is not looked at, nor is any other clock.
    ///
    /// # Errors
    /// [`ExtendError`] when it is not ours any more or no quorum confirms it in one attempt.
    /// Nothing is released then.
    ///
    /// # Cancel safety
    /// Dropping the future once the lease is proved releases the lock, as dropping a guard does.
    pub async fn resume(&self, lease: Lease) -> Result<Guard, ExtendError> {
        let ttl = lease.ttl;
        let request = self.try_lock(&lease.resource).ttl(ttl);
        request.resume(lease).await.map_err(as_extension)
    }

    /// Releases a lease without taking it over: for whoever has only its token.
    ///
    /// # Errors
    /// As [`Guard::release`].
    pub async fn release(&self, lease: Lease) -> Result<(), ReleaseError> {
        lease.resource.check().map_err(InvalidRequest::from)?;
        let timing = self.inner.settings.timing(None)?;
        let key = self.inner.key(&lease.resource);
        let (reply, outcome) = oneshot::channel();
        self.inner.start_and_post(Message::ReleaseLease { lease, key, timing, reply })?;
        outcome.await.unwrap_or(Err(ReleaseError::Shutdown))
    }

    /// Closes this handle and all its clones: requests that wait fail, held locks are lost, and
    /// what is owed to masters is waited for, no longer than `within`.
    ///
    /// The keys of locks that somebody still holds are left to expire, because their holder may
    /// not have noticed yet. Release guards before.
    ///
    /// # Errors
    /// [`Unreleased`] when keys may be left: which ones, where, and for how long.
    pub async fn shutdown(self, within: Duration) -> Result<(), Unreleased> {
        if self.inner.is_shut_down.swap(true, Ordering::SeqCst) {
            // Somebody else closes it already, and hears of what is left.
            return Ok(());
        }
        if !self.inner.slot.was_started() || self.inner.slot.start().is_err() {
            // Nothing was ever sent; or nothing can be.
            self.inner.context.mailbox.close();
            return Ok(());
        }
        let (reply, outcome) = oneshot::channel();
        self.inner.post(Message::Close { within, reply: Some(reply) });
        outcome.await.unwrap_or(Ok(()))
    }
}

impl Inner {
    pub(crate) fn key(&self, resource: &Resource) -> Arc<[u8]> {
        resource.key(&self.settings.prefix)
    }

    pub(crate) fn post(&self, message: Message) {
        self.context.mailbox.post(message);
    }

    /// Makes sure that somebody reads what was posted.
    pub(crate) fn start(&self) -> Result<(), InvalidRequest> {
        self.slot.start()
    }

    /// Leaves a message for a driver that is running: it is started where it is not.
    pub(crate) fn start_and_post(&self, message: Message) -> Result<(), InvalidRequest> {
        self.start()?;
        self.post(message);
        // The task may have gone away in between, and with it whoever would read the message.
        self.start()
    }

    pub(crate) fn is_shut_down(&self) -> bool {
        self.is_shut_down.load(Ordering::SeqCst)
    }

    pub(crate) fn shut_down_error(&self) -> Option<AcquireError> {
        self.is_shut_down().then_some(AcquireError::Shutdown)
    }
}

/// The last handle is gone, and every guard: the driver ends when nothing is owed any more.
impl Drop for Inner {
    fn drop(&mut self) {
        self.post(Message::Close { within: LINGER, reply: None });
    }
}

impl fmt::Debug for Redlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.inner.masters.iter().map(|node| node.name()).collect();
        f.debug_struct("Redlock").field("nodes", &names).finish_non_exhaustive()
    }
}
