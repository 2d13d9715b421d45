//! `Redlock`: the handle.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redlock_core::{ListWarning, Resource, SharedQueue};

use redlock_protocol::client::input::TokenRelease;

use crate::builder::RedlockBuilder;
use crate::driver::command::Command;
use crate::driver::observing::{Observation, Observed};
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

/// A handle to N independent Redis masters, used to acquire locks. Cheap to clone.
///
/// ```no_run
/// use std::time::Duration;
///
/// use redlock_quorum::Redlock;
///
/// # async fn example() -> anyhow::Result<()> {
/// let redlock = Redlock::from_env()?; // REDLOCK_NODES=redis://10.0.0.1,redis://10.0.0.2,...
/// let guard = redlock.lock("orders:42").await?; // waits up to 10 s
/// guard.release().await?;
/// redlock.shutdown(Duration::from_secs(5)).await?; // before the process exits
/// # Ok(())
/// # }
/// ```
///
/// # Runtimes
/// Building a handle connects nothing. The first use spawns a task on the current tokio runtime.
/// The task owns the connections, extends leases and repeats unacknowledged releases, so use a
/// runtime that keeps running. If the runtime goes away, the next use of the handle continues on
/// another one: a call, a dropped guard, or a polled [`Loss`](crate::Loss).
///
/// A current-thread runtime extends locks only while a thread blocks on it. Callers on other
/// runtimes notice an idle runtime within about 100 ms and take over the task. A caller on a thread
/// without a runtime cannot: after about three seconds it gets
/// [`InvalidRequest::NoRuntime`](crate::InvalidRequest::NoRuntime).
///
/// A quorum is enough for an answer. The other masters are connected and admitted in the
/// background. If a runtime is polled only during calls, or is created again for each call, a lost
/// master may never be reconnected, or never vote again. For a short-lived runtime, create a
/// separate handle and end it with [`shutdown`](Self::shutdown).
#[derive(Clone)]
pub struct Redlock {
    pub(crate) handle: Arc<Handle>,
}

impl Redlock {
    /// Creates a handle with default settings for the masters at these URLs. See
    /// [`RedlockBuilder::nodes`] for their form. Does no input or output yet.
    ///
    /// # Errors
    /// Returns [`BuildError`] if there are no masters or more than 15, or one is malformed or
    /// listed twice.
    pub fn connect<U>(urls: U) -> Result<Self, BuildError>
    where
        U: IntoIterator,
        U::Item: Into<String>,
    {
        Self::builder().nodes(urls).build()
    }

    /// Creates a handle with the settings of the environment and of this host's configuration file,
    /// from the variables of the `redlock` command. See [`RedlockBuilder::from_env`]. Reads files,
    /// but does no other input or output yet.
    ///
    /// # Errors
    /// Returns [`BuildError`] with the name of the variable, or with the line of the file.
    pub fn from_env() -> Result<Self, BuildError> {
        RedlockBuilder::from_env()?.build()
    }

    /// Returns a builder for handles with non-default settings.
    pub fn builder() -> RedlockBuilder {
        RedlockBuilder::new()
    }

    /// Requests a lock on `resource`. Await the request to acquire it. It retries for the handle's
    /// wait time (10 s by default).
    ///
    /// The lock is not reentrant: a caller that holds the lock and requests it again waits for
    /// itself. Use [`reentrant`](Self::reentrant) for that.
    pub fn lock(&self, resource: impl Into<Resource>) -> LockRequest {
        LockRequest::new(self.handle.clone(), resource.into())
    }

    /// Requests a lock on `resource` in one attempt: `lock(resource).wait(Duration::ZERO)`.
    pub fn try_lock(&self, resource: impl Into<Resource>) -> LockRequest {
        self.lock(resource).wait(Duration::ZERO)
    }

    /// Queries every master and returns who holds `resource`. Takes as long as the slowest master,
    /// at most the node timeout plus the time for first connections.
    ///
    /// If no master can be queried because of an invalid name, a missing runtime or a handle that
    /// was shut down, that is the reason for each master, and the state is [`State::Undecided`].
    ///
    /// [`State::Undecided`]: crate::State::Undecided
    pub async fn status(&self, resource: impl Into<Resource>) -> Status {
        let resource = resource.into();
        match self.ask(&resource).await {
            Ok(status) => status,
            Err(error) => Status::unasked(self.names(), &error.to_string()),
        }
    }

    /// Returns statistics of this handle and all its clones. Queries no master and does not wait,
    /// so you can call it anywhere and at any rate.
    pub fn stats(&self) -> Stats {
        self.handle.counters.stats()
    }

    /// Returns a warning if this handle's list of masters may be wrong, although locks are granted.
    /// It contains the list and the recorded set of masters, as far as this handle has read it.
    /// Either a change of the list is under way, or the list is wrong. The log has one warning
    /// about it.
    ///
    /// Returns `None` if the list fits the set, if no set is recorded, or if no master was reached.
    /// A larger difference is the [cause] of an error instead.
    ///
    /// [cause]: crate::NotAdmitted
    pub fn list_warning(&self) -> Option<ListWarning> {
        self.handle.counters.list_warning()
    }

    pub(crate) fn names(&self) -> &[Arc<str>] {
        &self.handle.names
    }

    async fn ask(&self, resource: &Resource) -> Result<Status, AcquireError> {
        let key = self.handle.key(resource)?;
        let node_timeout = self.handle.settings.limits.node_timeout();
        self.handle.open()?;
        let command = |reply| Command::Status { key: key.clone(), node_timeout, reply };
        let status = self.handle.inbox.ask(command);
        let (status, waiters) = futures_util::future::join(status, self.waiters(resource)).await;
        Ok(Status { waiters, ..status? })
    }

    /// Returns how many processes wait for `resource`, or 0 if that is not known.
    pub(crate) async fn waiters(&self, resource: &Resource) -> u32 {
        if !self.handle.settings.queue {
            return 0;
        }
        let node_timeout = self.handle.settings.limits.node_timeout();
        let queue = SharedQueue::key_of(&self.handle.settings.prefix, resource);
        let count = |reply| Command::Waiters { queue: queue.clone(), node_timeout, reply };
        self.handle.inbox.ask(count).await.unwrap_or_default()
    }

    /// Reads who holds `resource`, from all masters or, for a look, only from its meeting point.
    /// The meeting point also reports the next change.
    pub(crate) async fn observe(
        &self,
        resource: &Resource,
        is_look: bool,
    ) -> Result<Observed, AcquireError> {
        let key = self.handle.key(resource)?;
        let node_timeout = self.handle.settings.limits.node_timeout();
        self.handle.open()?;
        let wanted = Observation { key, node_timeout, is_look };
        let command = |reply| Command::Observe(wanted.clone(), reply);
        Ok(self.handle.inbox.ask(command).await?)
    }

    /// Returns the state of each master: which process answers, whether it votes and why not, and
    /// its keys of this prefix. Writes nothing. Waits for the slowest master, at most two node
    /// timeouts or 50 ms, whichever is longer, and for first connections.
    ///
    /// If no master can be queried, because the handle was shut down or there is no runtime, that
    /// is the cause for each master.
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

    /// Lets new masters vote immediately, without a quarantine of 1.1 × `max_ttl`. The same as
    /// [`init_with`](Self::init_with) without options.
    ///
    /// # Errors
    /// Returns the errors of [`init_with`](Self::init_with).
    pub async fn init(&self) -> Result<InitReport, InitError> {
        self.init_with(Init::default()).await
    }

    /// Lets masters vote without waiting out a quarantine. **By calling this you assert** that,
    /// until it returns, either no master was restarted, flushed or replaced in the last 1.1 ×
    /// `max_ttl`, or no lock is held. If that is false, two clients may hold the same lock.
    ///
    /// Non-voting masters are admitted with the largest `max_ttl` of the records and the builder.
    /// The builder's default applies only if no record has one. On masters that already vote, only
    /// a smaller `max_ttl` and smaller ballots are raised, so a second call changes nothing.
    ///
    /// The call waits up to 3 s for all masters. It waits for a master that reads its data from
    /// disk until one quarantine length after that master's start. The record of each master must
    /// be read. With [`Init::again`], masters that do not answer are left out if a quorum does.
    /// Call it again when they are reachable.
    ///
    /// With [`Init::again`] and [`Quarantine::Off`], it removes the records instead and keeps the
    /// largest ballot. Afterwards no client of the prefix may use a quarantine.
    ///
    /// # Errors
    /// - [`InitError::NoQuorum`] if fewer than a quorum can be read. Nothing was written.
    /// - [`InitError::Unread`] if the record of some master was not read. Nothing was written.
    /// - [`InitError::Refused`] if a record shows that the prefix was in use and some master does
    ///   not vote, because that master may have lost a lock. The call checks for 3 s whether
    ///   another `init` is at work, and for 3 s more while a master is being checked. A program
    ///   that calls `init` at each start therefore ends no quarantine, unless the records of all
    ///   masters are gone and this handle has read none of them before, which looks the same as new
    ///   masters.
    /// - [`InitError::MaxTtl`] if the masters do not all hold the `max_ttl` of this call, because a
    ///   concurrent call writes a different one.
    /// - [`InitError::Moved`] if records changed during every attempt.
    ///
    /// # Cancel safety
    /// Dropping the future does not cancel the call.
    pub async fn init_with(&self, init: Init) -> Result<InitReport, InitError> {
        self.handle.open()?;
        if self.handle.settings.quarantine == Quarantine::Off && !init.again {
            return Err(InitError::Off);
        }
        let command = |reply| Command::Init(init, reply);
        self.handle.inbox.ask(command).await.map_err(AcquireError::from)?
    }

    /// Resumes a lease, and proves it by an extension on a quorum of masters. Ignores the validity
    /// written in the lease, and every other clock.
    ///
    /// The extension carries a new ballot, and the guard has its fencing token. That token is
    /// larger than the lease's previous tokens, and than the token of any lock that another client
    /// had in between. The previous token of the lease works until a store has seen the new one. A
    /// handle built without [fencing](RedlockBuilder::fencing) extends the lease without a token.
    ///
    /// If the first holder still exists, it shares the lease with the new one. [`Lease`] describes
    /// what that means, and which lease to resume.
    ///
    /// # Errors
    /// Returns [`ExtendError`] if the lease is no longer ours, or no quorum confirms it in one
    /// attempt. Nothing is released. After [`NoQuorum`](ExtendError::NoQuorum) or
    /// [`TooLate`](ExtendError::TooLate), the lock may still be ours, and you can resume it again:
    /// see [`Lease`].
    ///
    /// # Cancel safety
    /// Dropping the future leaves the lease as it is. It may have been extended. Nothing is
    /// released.
    pub async fn resume(&self, lease: Lease) -> Result<Guard, ExtendError> {
        let request = self.try_lock(lease.resource).ttl(lease.ttl);
        request.resume(lease.token).await.map_err(ExtendError::of_resume)
    }

    /// Releases a lease by its token, without resuming it.
    ///
    /// # Errors
    /// Returns the errors of [`Guard::release`].
    pub async fn release(&self, lease: Lease) -> Result<(), ReleaseError> {
        let Lease { resource, token, ttl, .. } = lease;
        let key = self.handle.key(&resource)?;
        let settings = &self.handle.settings;
        let timing = settings.timing(Some(ttl)).or_else(|_| settings.timing(None))?;
        let command = |reply| {
            let (resource, key, token) = (resource.clone(), key.clone().into(), token.clone());
            Command::ReleaseToken(TokenRelease { resource, key, token, timing }.into(), reply)
        };
        self.handle.inbox.ask(command).await?
    }

    /// Closes this handle and all its clones. Waiting requests fail, held locks are lost, and
    /// unacknowledged releases get up to `within` to finish. If several callers close the handle,
    /// the first that stops waiting ends the wait for all, and all get the same outcome.
    ///
    /// Steps that let a master vote again finish first, whatever `within` is. They take a few round
    /// trips, and at most the connect timeout. Because of this, short-lived processes also end a
    /// quarantine.
    ///
    /// The keys of locks whose guards still exist are left to expire, because their holders might
    /// not have noticed yet. Release those guards first. Requests that collect several locks, or a
    /// permit, release what they have collected. If you keep such a request without polling it, the
    /// shutdown takes up to half of `within` longer.
    ///
    /// # Errors
    /// Returns [`Unreleased`] if keys may remain: which keys, on which masters, and for how long.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the handle closed. Another call continues to wait.
    pub async fn shutdown(self, within: Duration) -> Result<(), Unreleased> {
        self.handle.shut_down(within).await
    }

    #[cfg(feature = "blocking")]
    pub(crate) fn slot(&self) -> &Arc<crate::driver::slot::Slot> {
        self.handle.inbox.slot()
    }
}

impl RedlockBuilder {
    /// Checks all settings and creates the handle. Connects nothing.
    ///
    /// # Errors
    /// Returns [`BuildError`] with the limit and the fix.
    pub fn build(self) -> Result<Redlock, BuildError> {
        Ok(Redlock { handle: Arc::new(self.handle()?) })
    }
}

impl fmt::Debug for Redlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redlock").field("nodes", &self.handle.names).finish_non_exhaustive()
    }
}
