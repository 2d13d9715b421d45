//! `Guard`: a held lock, and `Hold`: a view of it for the code that does the work.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use redlock_core::{FencingToken, Resource, Token};

use crate::driver::command::Command;
use crate::driver::held_lock::HeldLock;
use crate::driver::slot::Slot;
use crate::error::{ExtendError, ReleaseError};
use crate::handle::Handle;
use crate::hold::HoldCell;
use crate::lease::Lease;
use crate::loss::{Loss, settled};
use crate::lost::{Ended, Lost, LostReason};
use crate::run_error::RunError;
use crate::settings::InvalidRequest;
use crate::votes::Votes;

/// A held lock, released on drop.
///
/// You can lose the lock while you hold the guard, for example if this process is paused for longer
/// than the lease, or if masters lose data. Call [`check`](Self::check) before each step that
/// matters, or await [`lost`](Self::lost). Both use the local clock and contact no master.
///
/// ```no_run
/// # async fn example(redlock: redlock_quorum::Redlock) -> anyhow::Result<()> {
/// let guard = redlock.lock("orders:42").await?;
/// for step in ["reserve", "charge", "ship"] {
///     guard.check()?; // returns here if the lock is lost
///     println!("{step} under the token {:?}", guard.fencing_token());
/// }
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
///
/// While the guard exists, the lock is extended at a third of its TTL, unless you switched that
/// off. Release it with [`release`](Self::release).
///
/// Dropping the guard also releases the lock, in the background, inside or outside a runtime, but
/// does not report the outcome. At the end of `main`, the runtime may end right after the guard is
/// dropped, for example after `?` or a panic. The release is then handed to the open connections
/// without waiting for an answer. If no connection is open at that moment, or the runtime ended
/// *before* the guard was dropped, the key stays until it expires.
#[must_use = "if unused, the lock is released immediately; `let _ = ..` also drops the guard"]
pub struct Guard {
    // The order matters: the release is requested before the handle can be closed.
    held: HeldLock,
    handle: Arc<Handle>,
}

impl Guard {
    /// Returns `Err` if the lock comes too late.
    pub(crate) fn accept(mut held: HeldLock, handle: Arc<Handle>) -> Result<Self, HeldLock> {
        if held.accept() { Ok(Self { held, handle }) } else { Err(held) }
    }

    /// Returns the resource of the lock.
    pub fn resource(&self) -> &Resource {
        &self.held.cell.resource
    }

    /// Returns the token of this lock: the value of its key on the masters.
    ///
    /// A lock whose token was read, here or by [`Hold::token`], is released on the masters and not
    /// passed to the next caller of the process ([`RedlockBuilder::hand_over`]), because another
    /// program may have the token.
    ///
    /// Read it while you hold the lock. The [`Hold`] of a lock that is over still has the token,
    /// which the next caller's lock may use by then. Releasing by that token ends the next lock.
    ///
    /// [`RedlockBuilder::hand_over`]: crate::RedlockBuilder::hand_over
    pub fn token(&self) -> &Token {
        self.held.cell.show_token()
    }

    /// Returns the fencing token. It is larger than the tokens of all locks on this resource that
    /// were returned before this lock was requested, and of all leases that ended before this lease
    /// began. A store that rejects smaller tokens than it has seen never accepts a late write.
    /// `None` if [fencing] is off.
    ///
    /// If the lock was passed on within this process, the first guarantee needs the clock
    /// assumptions. If a clock broke them, this lock may have a smaller token than another
    /// client's, and the store rejects it. [`hand_over(false)`] avoids that.
    ///
    /// [fencing]: crate::RedlockBuilder::fencing
    /// [`hand_over(false)`]: crate::RedlockBuilder::hand_over
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.held.cell.fencing_token()
    }

    /// Returns how long an extension makes the lock last: the TTL of the request, or the longest
    /// TTL that was passed to [`extend`](Self::extend) since.
    pub fn ttl(&self) -> Duration {
        self.held.cell.ttl()
    }

    /// Returns how long you may rely on the lock if it is not extended, or zero once it is lost.
    /// The stop margin is already subtracted.
    pub fn remaining(&self) -> Duration {
        self.held.cell.remaining()
    }

    /// Returns `true` if the lock is held at the time of the call. A lost lock stays lost.
    ///
    /// A process that was forked later does not own the lock, and must not rely on this method: it
    /// only knows the deadline at the time of the fork. The methods that query masters fail there.
    pub fn is_held(&self) -> bool {
        self.held.cell.is_held()
    }

    /// Returns an error if the lock is lost. Use it with `?` between two steps of the work. See
    /// [`is_held`](Self::is_held).
    ///
    /// # Errors
    /// Returns [`Lost`], with the reason, if the lock is no longer held.
    pub fn check(&self) -> Result<(), Lost> {
        self.held.cell.check()
    }

    /// Resolves when the lock is over: when its deadline has passed by the local clock, or when
    /// masters have answered that it is gone. It resolves as promptly as the scheduler allows, and
    /// within a second after a suspension of the machine. Poll it inside a tokio runtime. If the
    /// runtime that extends the lease goes away, polling the future continues the extensions.
    pub fn lost(&self) -> Loss {
        Loss::new(self.held.cell.clone(), self.handle.inbox.slot().clone())
    }

    /// Waits until every master has answered the request for this lock or its time is up (one node
    /// timeout, or the end of the lock). After that, [`votes`](Self::votes) has no `Pending` entry
    /// for the acquisition. Poll it inside a tokio runtime.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub fn settled(&self) -> impl Future<Output = ()> + Send + use<> {
        settled(self.held.cell.clone(), self.handle.inbox.slot().clone())
    }

    /// Returns how many masters are known to hold the key at the time of the call. A quorum is
    /// enough. With `m` copies of `N`, the lock survives `m + q - N - 1` masters that lose it.
    /// Extensions also try to bring the number to `N`.
    pub fn copies(&self) -> usize {
        self.held.cell.copies()
    }

    /// Returns each master's last answer, as a snapshot.
    pub fn votes(&self) -> Votes {
        self.held.cell.votes()
    }

    /// Returns a view of this lock for the code that does the work.
    pub fn hold(&self) -> Hold {
        Hold { cell: self.held.cell.clone(), slot: self.handle.inbox.slot().clone() }
    }

    /// Extends the lock now, so that it lasts at least `ttl` from now. Later automatic extensions
    /// also use at least this TTL. Never shortens the lock.
    ///
    /// # Errors
    /// Returns [`ExtendError`] if no quorum confirms the extension. The lock then stays valid as
    /// long as before.
    ///
    /// # Cancel safety
    /// Dropping the future does not cancel the extension. Confirmations that arrive later still
    /// apply.
    pub async fn extend(&self, ttl: Duration) -> Result<(), ExtendError> {
        self.extension(ttl).await
    }

    pub(crate) fn extension(
        &self,
        ttl: Duration,
    ) -> impl Future<Output = Result<(), ExtendError>> + Send + use<> {
        let (handle, cell) = (self.handle.clone(), self.held.cell.clone());
        let hold = self.held.hold;
        let HoldCell { resource, token, .. } = &*cell;
        let span = tracing::debug_span!("extend", %resource, %token, ?ttl);
        async move {
            handle.inbox.stay()?;
            let timing = handle.settings.timing(Some(ttl))?;
            timing.check_margin(cell.stop_margin).map_err(InvalidRequest::from)?;
            cell.check()?;
            let command = |reply| Command::Extend { hold, ttl, reply };
            let outcome = handle.inbox.ask(command).await;
            drop(span);
            outcome?
        }
    }

    /// Releases the lock, and waits until a quorum of masters has confirmed that its key is gone.
    ///
    /// # Errors
    /// - [`ReleaseError::NotOurs`] if the lock was lost earlier.
    /// - [`ReleaseError::Unconfirmed`] if too few masters answered within the node timeout.
    ///
    /// The guard is consumed and clean-up continues in both cases.
    ///
    /// # Cancel safety
    /// Dropping the future, polled or not, does not cancel the release.
    pub async fn release(self) -> Result<(), ReleaseError> {
        let Self { held, handle } = self;
        let hold = held.hold;
        let HoldCell { resource, token, .. } = &*held.cell;
        let span = tracing::debug_span!("release", %resource, %token);
        held.end();
        let command = |reply| Command::Release { hold, reply };
        let answer = handle.inbox.ask(|reply| command(Some(reply))).await;
        drop(span);
        match answer {
            Ok(outcome) => outcome,
            Err(unasked) => {
                // If no task can drive the handle now, its next use continues the release.
                handle.inbox.post(command(None));
                Err(unasked.into())
            }
        }
    }

    /// Gives up the guard and keeps the lock, as plain data for [`Redlock::resume`], in this
    /// process or another. Nothing extends the lock in between. It lasts for [`Self::remaining`].
    ///
    /// [`Redlock::resume`]: crate::Redlock::resume
    pub fn into_lease(self) -> Lease {
        let lease = Lease {
            resource: self.resource().clone(),
            token: self.token().clone(),
            ttl: self.held.cell.ttl(),
            fencing_token: self.fencing_token(),
            validity: self.remaining(),
        };
        self.held.forget();
        lease
    }

    /// Drops the guard without releasing the lock. The key stays until it expires.
    pub fn forget(self) {
        self.held.forget();
    }

    /// Runs the work while the lock is held.
    pub(crate) async fn work<W, F>(&self, work: W) -> Result<F::Output, RunError<F::Output>>
    where
        W: FnOnce(Hold) -> F,
        F: Future,
    {
        tokio::select! {
            // The loss is polled first: after it, no more of the work runs.
            biased;
            ended = self.lost() => Err(RunError::Lost { lost: self.loss_of(ended), output: None }),
            output = work(self.hold()) => Ok(output),
        }
    }

    /// Runs the work under the lock, and ends the lock.
    pub(crate) async fn run<W, F>(self, work: W) -> Result<F::Output, RunError<F::Output>>
    where
        W: FnOnce(Hold) -> F,
        F: Future,
    {
        let output = self.work(work).await?;
        self.end_run(output).await
    }

    /// Ends the lock after the work that ran under it.
    pub(crate) async fn end_run<T>(self, output: T) -> Result<T, RunError<T>> {
        if let Err(lost) = self.check() {
            return Err(RunError::Lost { lost, output: Some(output) });
        }
        self.leave().await;
        Ok(output)
    }

    /// Releases the lock after the work, and logs a failure.
    pub(crate) async fn leave(self) {
        let handle = self.handle.clone();
        if let Err(error) = self.release().await {
            handle.warn_of_release(&error);
        }
    }

    /// Returns the loss that ended the lock while its guard still existed.
    pub(crate) fn loss_of(&self, ended: Ended) -> Lost {
        match ended {
            Ended::Lost(lost) => lost,
            // Only this guard could have released it, and it has not.
            Ended::Released => self.held.cell.lost(LostReason::Released),
        }
    }

    /// Starts automatic extensions that the request had switched off.
    pub(crate) fn keep(&self) {
        self.handle.inbox.post(Command::Keep { hold: self.held.hold });
    }

    pub(crate) fn handle(&self) -> &Arc<Handle> {
        &self.handle
    }

    pub(crate) fn cell(&self) -> &Arc<HoldCell> {
        &self.held.cell
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("resource", self.resource())
            .field("remaining", &self.remaining())
            .field("copies", &self.copies())
            .finish_non_exhaustive()
    }
}

/// A view of a held lock, for the code that does the work. It can read the state and wait for the
/// loss, but not extend or release the lock. Cheap to clone. It stays correct after the guard is
/// gone.
#[derive(Clone)]
pub struct Hold {
    cell: Arc<HoldCell>,
    slot: Arc<Slot>,
}

impl Hold {
    /// Returns the resource of the lock.
    pub fn resource(&self) -> &Resource {
        &self.cell.resource
    }

    /// Returns the token of the lock. See [`Guard::token`].
    pub fn token(&self) -> &Token {
        self.cell.show_token()
    }

    /// Returns the fencing token. See [`Guard::fencing_token`].
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.cell.fencing_token()
    }

    /// Returns how long you may rely on the lock. See [`Guard::remaining`].
    pub fn remaining(&self) -> Duration {
        self.cell.remaining()
    }

    /// Returns `true` if the lock is held. See [`Guard::is_held`].
    pub fn is_held(&self) -> bool {
        self.cell.is_held()
    }

    /// Returns an error if the lock is lost. See [`Guard::check`].
    ///
    /// # Errors
    /// Returns [`Lost`] if the lock is no longer held.
    pub fn check(&self) -> Result<(), Lost> {
        self.cell.check()
    }

    /// Resolves when the lock is over. See [`Guard::lost`].
    pub fn lost(&self) -> Loss {
        Loss::new(self.cell.clone(), self.slot.clone())
    }

    /// Returns each master's last answer. See [`Guard::votes`].
    pub fn votes(&self) -> Votes {
        self.cell.votes()
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold")
            .field("resource", self.resource())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}
