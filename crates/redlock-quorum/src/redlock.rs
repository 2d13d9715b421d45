//! `Redlock`: the handle.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redlock_core::{Lists, Resource, SharedQueue};

use crate::builder::RedlockBuilder;
use crate::driver::command::{Command, LeaseRelease};
use crate::driver::slot::Slot;
use crate::error::{AcquireError, ExtendError, ReleaseError, Unreleased};
use crate::guard::Guard;
use crate::handle::Handle;
use crate::init::{Init, InitError, InitReport};
use crate::lease::Lease;
use crate::report::NodeReport;
use crate::request::LockRequest;
use crate::settings::{BuildError, Quarantine};
use crate::stats::Stats;
use crate::status::Status;

/// A handle on N independent Redis masters, which hands out locks. Cheap to clone.
///
/// Building it connects nothing. The first use starts a task, on the tokio runtime it happens on,
/// that owns the connections, extends leases and releases what was not acknowledged. When that
/// runtime goes away, the next use goes on with another: a call, a guard that is dropped, or a
/// [`Loss`](crate::Loss) that is polled. A current-thread runtime that no thread blocks on polls
/// nothing, and so extends nothing; callers on other runtimes notice within about 100 ms, and take
/// the task over. A caller on a thread without a runtime cannot: after about three seconds it gets
/// [`InvalidRequest::NoRuntime`](crate::InvalidRequest::NoRuntime).
///
/// Use a handle on a runtime that keeps running. A quorum is enough for an answer; the other
/// masters are connected and admitted in the background. On a runtime that is polled only during
/// calls, or is made anew for each of them, a master that was lost may never be reconnected, or
/// never vote again. For a short-lived runtime, make a handle of its own, and end it with
/// [`shutdown`](Self::shutdown).
#[derive(Clone)]
pub struct Redlock {
    pub(crate) handle: Arc<Handle>,
}

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

    /// A handle with the settings of the environment, from the variables of the `redlock` command;
    /// see [`RedlockBuilder::from_env`]. No input or output happens yet, except that files are
    /// read.
    ///
    /// # Errors
    /// [`BuildError`] with the name of the variable.
    pub fn from_env() -> Result<Self, BuildError> {
        RedlockBuilder::from_env()?.build()
    }

    /// A builder, for everything that is not default.
    pub fn builder() -> RedlockBuilder {
        RedlockBuilder::new()
    }

    /// A lock on `resource`, to be awaited: it keeps trying for the handle's wait.
    ///
    /// It is not reentrant: a caller that holds the lock and asks for it again waits for itself.
    /// [`reentrant`](Self::reentrant) is.
    pub fn lock(&self, resource: impl Into<Resource>) -> LockRequest {
        LockRequest::new(self.handle.clone(), resource.into())
    }

    /// A lock on `resource` in one attempt: `lock(resource).wait(Duration::ZERO)`.
    pub fn try_lock(&self, resource: impl Into<Resource>) -> LockRequest {
        self.lock(resource).wait(Duration::ZERO)
    }

    /// Each master's answer about `resource`, and the state on which a quorum of them agrees. Waits
    /// for the slowest master, for the node timeout at most, and for first connections.
    ///
    /// A name that cannot be a resource, a missing runtime and a handle that was shut down appear
    /// as the reason why no master could be asked: the state is [`State::Undecided`] then.
    ///
    /// [`State::Undecided`]: crate::State::Undecided
    pub async fn status(&self, resource: impl Into<Resource>) -> Status {
        let resource = resource.into();
        match self.ask(&resource).await {
            Ok(status) => status,
            Err(error) => Status::unasked(self.names(), &error.to_string()),
        }
    }

    /// Statistics of this handle and all its clones so far. The call asks no master and does not
    /// wait, so it may be made anywhere and at any rate.
    pub fn stats(&self) -> Stats {
        self.handle.counters.stats()
    }

    /// Returns the recorded set of masters and the list of this handle, if they differ by one master
    /// as far as this handle has read. Locks are granted: a change of the list may be under way, or
    /// the list is wrong. The log has one warning about it.
    ///
    /// Returns `None` if they fit, if no set is recorded, or if no master was reached. A larger
    /// difference is the [cause] of an error instead.
    ///
    /// [cause]: crate::NotAdmitted
    pub fn list_warning(&self) -> Option<Lists> {
        self.handle.counters.lists()
    }

    pub(crate) fn names(&self) -> &[Arc<str>] {
        &self.handle.names
    }

    async fn ask(&self, resource: &Resource) -> Result<Status, AcquireError> {
        let key = self.handle.key(resource)?;
        let node_timeout = self.handle.settings.node_timeout();
        self.handle.open()?;
        let command = |reply| Command::Status { key: key.clone(), node_timeout, reply };
        if !self.handle.settings.queue {
            return Ok(self.handle.inbox.ask(command).await?);
        }
        let queue = SharedQueue::key_of(&self.handle.settings.prefix, resource);
        let count = |reply| Command::Waiters { queue: queue.clone(), node_timeout, reply };
        let inbox = &self.handle.inbox;
        let (status, waiters) = futures::future::join(inbox.ask(command), inbox.ask(count)).await;
        Ok(Status { waiters: waiters.unwrap_or_default(), ..status? })
    }

    /// The state of each master: which process answers, whether it votes and why not, and its keys
    /// of this namespace. Nothing is written. Waits for the slowest master, for two node timeouts
    /// or 50 ms at most, whichever is longer, and for first connections.
    ///
    /// If no master could be asked, because the handle was shut down or there is no runtime, that
    /// is the cause of each master.
    pub async fn inspect(&self) -> Vec<NodeReport> {
        match self.reports().await {
            Ok(reports) => reports,
            Err(error) => NodeReport::unasked(self.names(), &error.to_string()),
        }
    }

    async fn reports(&self) -> Result<Vec<NodeReport>, AcquireError> {
        self.handle.open()?;
        Ok(self.handle.inbox.ask(Command::Report).await?)
    }

    /// Admits brand-new masters at once, which would otherwise be in quarantine for 1.1 times
    /// `max_ttl`. The same as [`init_with`](Self::init_with) without options.
    ///
    /// # Errors
    /// As [`init_with`](Self::init_with).
    pub async fn init(&self) -> Result<InitReport, InitError> {
        self.init_with(Init::default()).await
    }

    /// States that **none of the masters has restarted, been flushed or replaced** within the last
    /// 1.1 times `max_ttl`, or that no lock is alive on them, until this call has returned. Where
    /// that is not so, two may hold one lock afterwards.
    ///
    /// Masters that do not vote are admitted with the largest `max_ttl` that a record holds or that
    /// the builder was given. The default of the builder counts only where no record has one. Where
    /// a master votes already only its `max_ttl`, and ballots that lag behind, are raised: a second
    /// call changes nothing.
    ///
    /// It waits up to 3 s for all masters, and for one that reads its data from disk as long as it
    /// may matter: a quarantine's length behind its start. The record of each must be read. With
    /// [`Init::again`] those that do not answer are left out, as long as a quorum does; call it
    /// again when they are there.
    ///
    /// With [`Init::again`] and [`Quarantine::Off`] it removes the records instead, and keeps the
    /// largest ballot: afterwards no client needs a quarantine, and none has one.
    ///
    /// # Errors
    /// [`InitError::NoQuorum`] when fewer than a quorum can be read: nothing was written.
    /// [`InitError::Unread`] when the record of some master was not read: nothing was written.
    /// [`InitError::Refused`] when some record shows that the namespace was in use and some master
    /// does not vote: it may have lost a lock. The call checks for 3 s whether another one is at
    /// work, and for 3 s more while a master is being checked. So a program that calls `init` at
    /// each start ends no quarantine, unless the records of all masters are gone and this handle
    /// has read none of them before: that state cannot be distinguished from new masters.
    /// [`InitError::MaxTtl`] when masters do not all hold the `max_ttl` that was written: another
    /// call sets another one at the same time. [`InitError::Moved`] when records changed whenever
    /// it tried.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the call going on.
    pub async fn init_with(&self, init: Init) -> Result<InitReport, InitError> {
        self.handle.open()?;
        if self.handle.settings.quarantine == Quarantine::Off && !init.again {
            return Err(InitError::Off);
        }
        let command = |reply| Command::Init(init, reply);
        self.handle.inbox.ask(command).await.map_err(AcquireError::from)?
    }

    /// Takes over a lease, and proves it by an extension on a quorum of masters. The validity
    /// written in the lease is ignored, and so is every other clock.
    ///
    /// With the extension goes a new ballot, and the guard has the fencing token of that: larger
    /// than those of the lease before, and than that of any lock that another had in between. The
    /// smaller token of the same lease is good until a store has seen the new one. A handle that
    /// was built without ([`RedlockBuilder::fencing`]) extends, and gets no token.
    ///
    /// A first holder that is still there shares the lease with the new one: [`Lease`] describes
    /// what that means, and which lease to resume.
    ///
    /// # Errors
    /// [`ExtendError`] when it is not ours any more or no quorum confirms it in one attempt.
    /// Nothing is released then. After [`NoQuorum`](ExtendError::NoQuorum) or
    /// [`TooLate`](ExtendError::TooLate) the lock may still be ours, and may be resumed again: see
    /// [`Lease`] for how.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the lease as it is: it may have been extended, and nothing is
    /// released.
    pub async fn resume(&self, lease: Lease) -> Result<Guard, ExtendError> {
        let request = self.try_lock(lease.resource).ttl(lease.ttl);
        request.resume(lease.token).await.map_err(ExtendError::of_resume)
    }

    /// Releases a lease without taking it over, by its token alone.
    ///
    /// # Errors
    /// As [`Guard::release`].
    pub async fn release(&self, lease: Lease) -> Result<(), ReleaseError> {
        let Lease { resource, token, ttl, .. } = lease;
        let key = self.handle.key(&resource)?;
        let settings = &self.handle.settings;
        let timing =
            settings.timing_unlimited(Some(ttl)).or_else(|_| settings.timing_unlimited(None))?;
        let command = |reply| {
            let (resource, key, token) = (resource.clone(), key.clone(), token.clone());
            Command::ReleaseLease(Box::new(LeaseRelease { resource, key, token, timing, reply }))
        };
        self.handle.inbox.ask(command).await?
    }

    /// Closes this handle and all its clones: requests that wait fail, held locks are lost, and
    /// releases that masters have not acknowledged are waited for, no longer than `within`. Where
    /// several callers close the handle, the first that stops waiting ends it for all, and all get
    /// one outcome.
    ///
    /// Steps that are under way to let a master vote again are finished first, whatever `within`
    /// is: that takes some round trips, and the connect timeout at most. So short-lived processes
    /// end a quarantine too.
    ///
    /// The keys of locks whose guards still exist are left to expire, because their holders may
    /// not have noticed yet. Release guards before.
    ///
    /// # Errors
    /// [`Unreleased`] when keys may be left: which ones, where, and for how long.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the handle closed; another call goes on waiting.
    pub async fn shutdown(self, within: Duration) -> Result<(), Unreleased> {
        self.handle.shut_down(within).await
    }

    pub(crate) fn slot(&self) -> &Arc<Slot> {
        self.handle.inbox.slot()
    }
}

impl RedlockBuilder {
    /// Checks everything and makes the handle. Connects nothing.
    ///
    /// # Errors
    /// [`BuildError`] with the limit that was passed and what to do.
    pub fn build(self) -> Result<Redlock, BuildError> {
        Ok(Redlock { handle: Arc::new(self.handle()?) })
    }
}

impl fmt::Debug for Redlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redlock").field("nodes", &self.handle.names).finish_non_exhaustive()
    }
}
