//! `Guard`: a lock that is held, and `Hold`: a view of it for the code that does the work.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use redlock_core::{FencingToken, Resource, Token};

use crate::driver::command::Command;
use crate::driver::hold::held_lock::HeldLock;
use crate::driver::slot::Slot;
use crate::error::{ExtendError, ReleaseError};
use crate::handle::Handle;
use crate::hold::HoldCell;
use crate::lease::Lease;
use crate::loss::{Loss, settled};
use crate::lost::{Ended, Lost, LostReason};
use crate::run_error::RunError;
use crate::settings::check_margin;
use crate::votes::Votes;

/// A lock that is held.
///
/// It does not promise that the lock *stays* held: a process that is stopped for longer than the
/// lease lasts, or masters that lose it against the rules, end it early. Ask
/// [`is_held`](Self::is_held) or [`check`](Self::check) before every step that matters, or await
/// [`lost`](Self::lost). Both go by this process's own clock, and no answer from a master is
/// waited for.
///
/// While the guard exists a keeper extends the lease at a third of its TTL, unless that was
/// switched off. Release it with [`release`](Self::release).
///
/// Dropping it releases it too, in the background, inside or outside a runtime, but then its
/// outcome is not reported. At the end of `main`, where the runtime ends right behind the guard
/// (the `?` between a lock and its release leads there, and so does a panic), the release is handed
/// to connections that take it at once, and no answer is awaited. If there is no connection at that
/// moment, or the runtime ended *before* the guard was dropped, the key stays until it expires.
#[must_use = "the lock is released when its guard is dropped"]
pub struct Guard {
    // In this order: the release is asked for before the handle can be closed.
    held: HeldLock,
    handle: Arc<Handle>,
}

impl Guard {
    /// `Err` where the lock comes too late.
    pub(crate) fn accept(mut held: HeldLock, handle: Arc<Handle>) -> Result<Self, HeldLock> {
        if held.accept() { Ok(Self { held, handle }) } else { Err(held) }
    }

    /// The resource of the lock.
    pub fn resource(&self) -> &Resource {
        &self.held.cell.resource
    }

    /// The token that signs this lock: the value of its key on the masters.
    ///
    /// A lock whose token was read, here or by [`Hold::token`], is released on the masters and not
    /// handed on to the next caller of the process ([`RedlockBuilder::hand_over`]): another program
    /// may have the token by then.
    ///
    /// Read it while the lock is held. A [`Hold`] of a lock that is over still has the token, and that
    /// may sign the lock of the next caller by then: releasing it by that token ends the next lock.
    ///
    /// [`RedlockBuilder::hand_over`]: crate::RedlockBuilder::hand_over
    pub fn token(&self) -> &Token {
        self.held.cell.show_token()
    }

    /// The fencing token of this lock: larger than that of every lock of this resource that was
    /// returned before this one was asked for, and than that of every lease that has ended before
    /// this one began. A store that refuses smaller tokens than it has seen never takes a late
    /// write.
    ///
    /// For a lock that was handed on by another caller of this process
    /// ([`RedlockBuilder::hand_over`]) the first half of that takes the assumptions that leases do not
    /// overlap: where a clock broke them, this lock may have a smaller token than one that another
    /// client got meanwhile, and a store refuses it.
    ///
    /// `None` if the handle was built without ([`RedlockBuilder::fencing`]).
    ///
    /// [`RedlockBuilder::hand_over`]: crate::RedlockBuilder::hand_over
    ///
    /// [`RedlockBuilder::fencing`]: crate::RedlockBuilder::fencing
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.held.cell.fencing_token()
    }

    /// How long an extension makes the lock last: the TTL that was asked for, or the longest one
    /// that [`extend`](Self::extend) was given since.
    pub fn ttl(&self) -> Duration {
        self.held.cell.ttl()
    }

    /// How long the holder may still count on the lock, if it is not extended; zero once it is
    /// lost. The stop margin is taken off already.
    pub fn remaining(&self) -> Duration {
        self.held.cell.remaining()
    }

    /// Whether the lock is still held, exactly and at this moment. Once lost it stays lost.
    pub fn is_held(&self) -> bool {
        self.held.cell.is_held()
    }

    /// [`is_held`](Self::is_held) as a `Result`, to be used with `?` between two steps of the work.
    ///
    /// # Errors
    /// [`Lost`] once the lock is not held any more, with the reason.
    pub fn check(&self) -> Result<(), Lost> {
        self.held.cell.check()
    }

    /// Resolves when the lock is over: as soon as its deadline has passed by this process's clock,
    /// or when masters have answered that it is gone. A timer on top of [`check`](Self::check), as
    /// prompt as the scheduler, and within a second after the machine was suspended. Must be polled
    /// inside a tokio runtime; polling it keeps the lease extended when the runtime that did so
    /// goes away.
    pub fn lost(&self) -> Loss {
        Loss::new(self.held.cell.clone(), self.handle.inbox.slot().clone())
    }

    /// Resolves when every master has answered the request for this lock, or its time is up (one
    /// node timeout after the request, or the end of the lock): from then on
    /// [`votes`](Self::votes) has no vote of the acquisition that is pending. Must be polled inside
    /// a tokio runtime.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub fn settled(&self) -> impl Future<Output = ()> + Send + use<> {
        settled(self.held.cell.clone(), self.handle.inbox.slot().clone())
    }

    /// How many masters are known to hold the key at this moment. A quorum of them is enough;
    /// with `m` copies of `N` the lock survives `m + q - N - 1` masters that lose it against the
    /// rules. The keeper works to bring them to `N`.
    pub fn copies(&self) -> usize {
        self.held.cell.copies()
    }

    /// Each master's last answer: a snapshot.
    pub fn votes(&self) -> Votes {
        self.held.cell.votes()
    }

    /// A view of this lock for the code that does the work.
    pub fn hold(&self) -> Hold {
        Hold { cell: self.held.cell.clone(), slot: self.handle.inbox.slot().clone() }
    }

    /// Extends the lock now, so that it lasts at least `ttl` from here, and lets the keeper extend
    /// it by that much from now on. Never shortens it.
    ///
    /// # Errors
    /// [`ExtendError`] when no quorum confirms it; the lock is then valid as long as before.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the extension going on; whatever of it is confirmed counts.
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
            let timing = handle.settings.timing_unlimited(Some(ttl))?;
            check_margin(&timing, cell.stop_margin)?;
            cell.check()?;
            let command = |reply| Command::Extend { hold, ttl, reply };
            let outcome = handle.inbox.ask(command).await;
            drop(span);
            outcome?
        }
    }

    /// Releases the lock, and waits until a quorum of masters is known to be free of it.
    ///
    /// # Errors
    /// [`ReleaseError::NotOurs`] when the lock was lost before, and
    /// [`ReleaseError::Unconfirmed`] when too few masters have answered within the node timeout.
    /// The guard is consumed and clean-up goes on either way.
    ///
    /// # Cancel safety
    /// Dropping the future, polled or not, leaves the release going on.
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
                // Where nothing can drive the handle now, its next use goes on with the release.
                handle.inbox.post(command(None));
                Err(unasked.into())
            }
        }
    }

    /// Gives up the guard and keeps the lock, as plain data that [`Redlock::resume`] takes back,
    /// here or in another process. Nothing extends it in between: it lasts [`Self::remaining`].
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

    /// Drops the guard without releasing the lock: the key stays until it expires.
    pub fn forget(self) {
        self.held.forget();
    }

    /// Does the work, as long as the lock is held.
    pub(crate) async fn work<W, F>(&self, work: W) -> Result<F::Output, RunError<F::Output>>
    where
        W: FnOnce(Hold) -> F,
        F: Future,
    {
        tokio::select! {
            // The loss is checked first: once it is known, nothing more of the work is done.
            biased;
            ended = self.lost() => Err(RunError::Lost { lost: self.loss_of(ended), output: None }),
            output = work(self.hold()) => Ok(output),
        }
    }

    /// The work that ran under this lock has ended.
    pub(crate) async fn end_run<T>(self, output: T) -> Result<T, RunError<T>> {
        if let Err(lost) = self.check() {
            return Err(RunError::Lost { lost, output: Some(output) });
        }
        self.leave().await;
        Ok(output)
    }

    /// Releases the lock of work that has ended. Where that fails it is logged.
    pub(crate) async fn leave(self) {
        let handle = self.handle.clone();
        if let Err(error) = self.release().await {
            handle.warn_of_release(&error);
        }
    }

    /// The cause that ended the lock while its guard still existed.
    pub(crate) fn loss_of(&self, ended: Ended) -> Lost {
        match ended {
            Ended::Lost(lost) => lost,
            // Only this guard could have released it, and it has not.
            Ended::Released => self.held.cell.lost(LostReason::Released),
        }
    }

    /// From here on a keeper extends the lease, where the request had switched it off.
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

/// A view of a held lock, for the code that does the work: it can read the state and wait for the
/// loss, and neither extend nor release. Cheap to clone; it stays correct after the guard is gone.
#[derive(Clone)]
pub struct Hold {
    cell: Arc<HoldCell>,
    slot: Arc<Slot>,
}

impl Hold {
    /// The resource of the lock.
    pub fn resource(&self) -> &Resource {
        &self.cell.resource
    }

    /// As [`Guard::token`].
    pub fn token(&self) -> &Token {
        self.cell.show_token()
    }

    /// As [`Guard::fencing_token`].
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.cell.fencing_token()
    }

    /// As [`Guard::remaining`].
    pub fn remaining(&self) -> Duration {
        self.cell.remaining()
    }

    /// As [`Guard::is_held`].
    pub fn is_held(&self) -> bool {
        self.cell.is_held()
    }

    /// As [`Guard::check`].
    ///
    /// # Errors
    /// [`Lost`] once the lock is not held any more.
    pub fn check(&self) -> Result<(), Lost> {
        self.cell.check()
    }

    /// As [`Guard::lost`].
    pub fn lost(&self) -> Loss {
        Loss::new(self.cell.clone(), self.slot.clone())
    }

    /// As [`Guard::votes`].
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
