//! `Guard`: a lock that is held, and `Hold`, `Loss` and `Lost`: what its holder needs to know.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use redlock_core::{Resource, Token};
use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::claim::Claim;
use crate::driver::Message;
use crate::redlock::Inner;
use crate::{ExtendError, Lease, ReleaseError, Votes};

/// A number that grows with every lease of a resource, for stores that refuse smaller ones.
///
/// Locks do not carry one yet: [`Guard::fencing_token`] is `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(u64);

impl FencingToken {
    /// The number, below 2^53.
    pub fn get(self) -> u64 {
        self.0
    }
}

/// A lock that is held.
///
/// It does not promise that the lock *stays* held: a process that is stopped for longer than the
/// lease lasts, or masters that lose it against the rules, end it early. Ask
/// [`is_held`](Self::is_held) or [`check`](Self::check) before every step that matters, or let
/// [`lost`](Self::lost) tell you. Both go by this process's own clock, and no answer from a master
/// is waited for.
///
/// While the guard lives a keeper extends the lease at a third of its TTL, unless that was
/// switched off. Release it with [`release`](Self::release). Dropping it releases it too, in the
/// background, inside or outside a runtime, but then nobody learns how it went.
#[must_use = "the lock is released when its guard is dropped"]
pub struct Guard {
    claim: Arc<Claim>,
    handle: Arc<Inner>,
    is_armed: bool,
}

impl Guard {
    pub(crate) fn new(claim: Arc<Claim>, handle: Arc<Inner>) -> Self {
        Self { claim, handle, is_armed: true }
    }

    /// What the lock is for.
    pub fn resource(&self) -> &Resource {
        &self.claim.resource
    }

    /// The token that signs this lock: the value of its key on the masters.
    pub fn token(&self) -> &Token {
        &self.claim.token
    }

    /// The fencing token of this lease; `None`, because locks do not carry one yet.
    pub fn fencing_token(&self) -> Option<FencingToken> {
        None
    }

    /// How long the holder may still count on the lock, if it is not extended; zero once it is
    /// lost. The stop margin is taken off already.
    pub fn remaining(&self) -> Duration {
        self.claim.remaining()
    }

    /// Whether the lock is still held, exactly and at this moment. Once lost it stays lost.
    pub fn is_held(&self) -> bool {
        self.claim.is_held()
    }

    /// The same, to be used with `?` between two steps of the work.
    ///
    /// # Errors
    /// [`Lost`] once the lock is not held any more, with the reason.
    pub fn check(&self) -> Result<(), Lost> {
        self.claim.check()
    }

    /// Resolves when the lock is over: as soon as this process's clock says so, or when masters
    /// have told that it is gone. A timer on top of [`check`](Self::check), as prompt as the
    /// scheduler. Must be polled inside a tokio runtime.
    pub fn lost(&self) -> Loss {
        Loss::new(self.claim.clone())
    }

    /// How many masters are known to hold the key at this moment. A quorum of them is enough;
    /// with `m` copies of `N` the lock survives `m + q - N - 1` masters that lose it against the
    /// rules. The keeper works to bring them to `N`.
    pub fn copies(&self) -> usize {
        self.claim.copies()
    }

    /// What each master said last: a snapshot.
    pub fn votes(&self) -> Votes {
        self.claim.votes()
    }

    /// A view of this lock for the code that does the work.
    pub fn hold(&self) -> Hold {
        Hold { claim: self.claim.clone() }
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
        self.extension(ttl)?.await
    }

    /// An extension that is on its way already.
    pub(crate) fn extension(
        &self,
        ttl: Duration,
    ) -> Result<impl Future<Output = Result<(), ExtendError>> + Send + use<>, ExtendError> {
        let timing = self.handle.settings.timing(Some(ttl))?;
        timing.check_margin(self.claim.terms.stop_margin)?;
        self.claim.check()?;
        let (reply, outcome) = oneshot::channel();
        let claim = self.claim.clone();
        self.handle.start_and_post(Message::Extend { claim, timing, reply })?;
        Ok(async { outcome.await.unwrap_or(Err(ExtendError::Shutdown)) })
    }

    /// Releases the lock, and waits until a quorum of masters is known to be free of it.
    ///
    /// # Errors
    /// [`ReleaseError::NotOurs`] when the lock had been lost before, and
    /// [`ReleaseError::Unconfirmed`] when too few masters have answered within the node timeout.
    /// The guard is consumed and clean-up goes on either way.
    ///
    /// # Cancel safety
    /// Once polled, the release goes on even when the future is dropped.
    pub async fn release(mut self) -> Result<(), ReleaseError> {
        let (reply, outcome) = oneshot::channel();
        self.part(Some(reply))?;
        outcome.await.unwrap_or(Err(ReleaseError::Shutdown))
    }

    /// Gives up the guard and keeps the lock, as plain data that [`Redlock::resume`] takes back,
    /// here or in another process. Nobody extends it in between: it lasts [`Self::remaining`].
    ///
    /// [`Redlock::resume`]: crate::Redlock::resume
    pub fn into_lease(mut self) -> Lease {
        let lease = Lease::of(&self.claim);
        self.disarm();
        lease
    }

    /// Drops the guard without releasing the lock: the key stays until it expires.
    pub fn forget(mut self) {
        self.disarm();
    }

    pub(crate) fn claim(&self) -> &Arc<Claim> {
        &self.claim
    }

    /// The holder is over with it before the first master hears of it. Where there is nobody to
    /// tell the masters, outside a runtime, the next use of the handle does.
    fn part(
        &mut self,
        reply: Option<crate::farewell::ReleaseReply>,
    ) -> Result<(), crate::InvalidRequest> {
        self.disarm();
        self.handle.post(Message::Release { claim: self.claim.clone(), reply });
        self.handle.start()
    }

    fn disarm(&mut self) {
        self.is_armed = false;
        self.claim.end(Ended::Released);
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.is_armed {
            // Outside a runtime nobody can be started; nobody has to know.
            let _ = self.part(None);
        }
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

/// A view of a held lock, for the code that does the work: it can look and listen, and neither
/// extend nor release. Cheap to clone; goes on telling the truth after the guard is gone.
#[derive(Clone)]
pub struct Hold {
    claim: Arc<Claim>,
}

impl Hold {
    /// What the lock is for.
    pub fn resource(&self) -> &Resource {
        &self.claim.resource
    }

    /// As [`Guard::token`].
    pub fn token(&self) -> &Token {
        &self.claim.token
    }

    /// As [`Guard::fencing_token`].
    pub fn fencing_token(&self) -> Option<FencingToken> {
        None
    }

    /// As [`Guard::remaining`].
    pub fn remaining(&self) -> Duration {
        self.claim.remaining()
    }

    /// As [`Guard::is_held`].
    pub fn is_held(&self) -> bool {
        self.claim.is_held()
    }

    /// As [`Guard::check`].
    ///
    /// # Errors
    /// [`Lost`] once the lock is not held any more.
    pub fn check(&self) -> Result<(), Lost> {
        self.claim.check()
    }

    /// As [`Guard::lost`].
    pub fn lost(&self) -> Loss {
        Loss::new(self.claim.clone())
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

/// How a lock came to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Its holder gave it back, or gave it away.
    Released,
    /// It was lost.
    Lost(Lost),
}

/// The lock is not held any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[error("the lock on {resource} is lost: {why}")]
pub struct Lost {
    /// What the lock was for.
    pub resource: Resource,
    /// Why it is lost.
    pub why: Why,
}

/// Why a lock is not held any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Why {
    /// It was not extended in time.
    Lapsed,
    /// So many masters have told that the key is gone that no quorum is left.
    NotOurs,
    /// The handle was shut down.
    Shutdown,
    /// The guard was released, dropped or turned into a lease.
    Released,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lapsed => "it was not extended in time",
            Self::NotOurs => "too many masters do not hold the key any more",
            Self::Shutdown => "the handle was shut down",
            Self::Released => "it was released",
        })
    }
}

/// A future that resolves when a lock is over; see [`Guard::lost`]. Dropping it does nothing.
#[must_use = "futures do nothing unless polled"]
pub struct Loss {
    claim: Arc<Claim>,
    wait: BoxFuture<'static, Ended>,
}

impl Loss {
    fn new(claim: Arc<Claim>) -> Self {
        Self { wait: Box::pin(ended(claim.clone())), claim }
    }
}

/// The deadline is looked at first and last: the timer only says when to look.
async fn ended(claim: Arc<Claim>) -> Ended {
    loop {
        let mut notified = std::pin::pin!(claim.notify().notified());
        notified.as_mut().enable();
        if let Some(ended) = claim.ended() {
            return ended;
        }
        tokio::select! {
            () = &mut notified => {}
            () = sleep(claim.remaining()) => {}
        }
    }
}

impl Future for Loss {
    type Output = Ended;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Ended> {
        self.wait.as_mut().poll(cx)
    }
}

impl Clone for Loss {
    fn clone(&self) -> Self {
        Self::new(self.claim.clone())
    }
}

impl fmt::Debug for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loss").field("resource", &self.claim.resource).finish_non_exhaustive()
    }
}
