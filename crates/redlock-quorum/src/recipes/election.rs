//! `Election`: one leader among candidates, from a lock and a stream of its changes.
//!
//! # States of a candidate
//!
//! | state | event | next |
//! |---|---|---|
//! | campaigning | the lock is granted | leading |
//! | | the wait ends, or masters report a fault that waiting does not fix | over, with the error |
//! | leading | it resigns, or its guard is dropped: the lock is released | over |
//! | | the lock is lost by the leader's clock: the work of `run` is dropped | campaigning in `run`, otherwise over |
//!
//! # Messages
//!
//! Those of one lock. The candidate's text is the label of its token, so every reader of the key
//! knows the leader.
//!
//! # Failures
//!
//! The lock provides all safety: a leader's deadline, by its own clock, is before another
//! candidate can win a majority. A killed leader leads until its key expires. A paused leader finds
//! the loss at its next check. In both cases, the next candidate leads after at most 1.1 times the
//! TTL. If masters fail, the leader keeps leading with a quorum, and candidates keep campaigning
//! without one.

use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
#[cfg(feature = "blocking")]
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime};

use futures_util::StreamExt;
use futures_util::stream::Stream;
use redlock_core::{Resource, Token};

use super::watch::Watch;
use crate::error::{AcquireError, ReleaseError};
use crate::guard::{Guard, Hold};
use crate::redlock::Redlock;
use crate::request::LockRequest;
use crate::run_error::RunError;
use crate::status::{State, Status};
use crate::votes::Votes;

impl Redlock {
    /// Returns the election with this name: at most one candidate leads at a time. Sends nothing
    /// yet.
    ///
    /// ```no_run
    /// # async fn schedule() {}
    /// # async fn example(redlock: redlock_quorum::Redlock) -> anyhow::Result<()> {
    /// let election = redlock.election("scheduler").candidate("10.0.0.7:8080");
    /// election.run(|_hold| schedule()).await?; // campaigns again after each loss
    /// # Ok(())
    /// # }
    /// ```
    pub fn election(&self, name: impl Into<Resource>) -> Election {
        let name = name.into();
        Election { request: self.lock(name.clone()).wait_forever(), redlock: self.clone(), name }
    }
}

/// An election, created by [`Redlock::election`]. Cheap to clone.
///
/// It is the lock of the same name, and the leader is its holder. A candidate that uses
/// [`Redlock::lock`] or `redlock run` takes part. Pass each store the leader's
/// [fencing token](crate::Guard::fencing_token): a paused process cannot know that it no longer
/// leads.
#[must_use = "elections do nothing unless used"]
#[derive(Clone)]
pub struct Election {
    redlock: Redlock,
    name: Resource,
    request: LockRequest,
}

impl Election {
    /// Sets the text by which others know this candidate, such as its address: 1 to 64 of
    /// `A-Z a-z 0-9 . _ @ : -`. Defaults to the label of the handle.
    pub fn candidate(mut self, text: impl Into<String>) -> Self {
        self.request = self.request.label(text);
        self
    }

    /// Sets how long to campaign. Defaults to no limit. See
    /// [`LockRequest::wait`](crate::LockRequest::wait).
    pub fn wait(mut self, wait: Duration) -> Self {
        self.request = self.request.wait(wait);
        self
    }

    /// Sets how long the leadership lasts without being extended, and so how long a killed leader
    /// delays the next one. See [`LockRequest::ttl`](crate::LockRequest::ttl).
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.request = self.request.ttl(ttl);
        self
    }

    /// Ends a leadership this long after it was won, within one TTL. Defaults to no limit. See
    /// [`LockRequest::max_hold`](crate::LockRequest::max_hold).
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.request = self.request.max_hold(max_hold);
        self
    }

    /// Waits until this candidate leads. Candidates lead in order of arrival.
    ///
    /// # Errors
    /// The same as awaiting a [`LockRequest`](crate::LockRequest). `Held` and most cases of
    /// `NoQuorum` need a limited [`wait`](Self::wait).
    ///
    /// # Cancel safety
    /// Dropping the future ends the campaign. See [`LockRequest`](crate::LockRequest).
    pub fn campaign(
        &self,
    ) -> impl Future<Output = Result<Leadership, AcquireError>> + Send + use<> {
        let request = self.request.clone();
        async move { Ok(Leadership { guard: request.await? }) }
    }

    /// Campaigns, runs the work while this candidate leads, and campaigns again if the leadership
    /// is lost. When the work returns, resigns and returns its output.
    ///
    /// On a loss the work is dropped at its next await point, before another candidate can lead.
    /// Work that does not await cannot be stopped: call [`Hold::check`] between its steps.
    ///
    /// # Errors
    /// - [`RunError::Acquire`] if a campaign fails. See [`campaign`](Self::campaign).
    /// - [`RunError::Lost`] if the work returned after the loss, because it did not await. The
    ///   error contains its output.
    ///
    /// # Cancel safety
    /// Dropping the future drops the work and resigns in the background.
    pub async fn run<W, F>(self, mut work: W) -> Result<F::Output, RunError<F::Output>>
    where
        W: FnMut(Hold) -> F,
        F: Future,
    {
        loop {
            let Leadership { guard } = self.campaign().await?;
            match guard.work(&mut work).await {
                Ok(output) => return guard.end_run(output).await,
                // The work was dropped. The log has the loss.
                Err(_) => drop(guard),
            }
        }
    }

    /// Queries every master and returns who leads. See [`Redlock::status`].
    pub fn leader(&self) -> impl Future<Output = Leader> + Send + use<> {
        let (redlock, name) = (self.redlock.clone(), self.name.clone());
        async move { Leader::of(redlock.status(name).await) }
    }

    #[cfg(feature = "blocking")]
    pub(crate) fn names(&self) -> &[Arc<str>] {
        self.redlock.names()
    }

    /// Returns a stream of who leads: the present [`Leader`], then each change of its text or
    /// token. It reads masters like a [`Watch`].
    pub fn observe(&self) -> Leaders {
        Leaders { watch: self.redlock.watch(self.name.clone()), last: None }
    }
}

impl fmt::Debug for Election {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Election").field(&self.request).finish()
    }
}

/// The leadership of an [`Election`], released on drop: a [`Guard`], to which it derefs.
///
/// You cannot take the lease out of it, because a leader that gives it away would not know when its
/// leadership ends.
#[must_use = "if unused, the leadership ends immediately"]
pub struct Leadership {
    guard: Guard,
}

impl Leadership {
    /// Ends the leadership, and waits until a quorum of masters has confirmed it. Call it when your
    /// work has ended: the next candidate leads immediately.
    ///
    /// # Errors
    /// The same as [`Guard::release`].
    ///
    /// # Cancel safety
    /// Dropping the future, polled or not, does not cancel the release.
    pub fn resign(self) -> impl Future<Output = Result<(), ReleaseError>> + Send + use<> {
        self.guard.release()
    }

    /// Ends the leadership. See [`resign`](Self::resign).
    ///
    /// # Errors
    /// The same as [`Guard::release`].
    pub fn release(self) -> impl Future<Output = Result<(), ReleaseError>> + Send + use<> {
        self.resign()
    }
}

impl Deref for Leadership {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.guard
    }
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Leadership").field(&self.guard).finish()
    }
}

/// The leader, as a quorum of masters reports it. A snapshot, like [`Status`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Leader {
    /// This candidate leads.
    #[non_exhaustive]
    Is {
        /// The text of the candidate. Empty if its lock has no label.
        text: String,
        /// The token of the candidate's lock. Each leadership has another.
        token: String,
        /// Start of the attempt that won, by the leader's clock. [`SystemTime::UNIX_EPOCH`] if
        /// the token has no time, because another program set it.
        since: SystemTime,
    },
    /// No candidate leads. The name may be reserved for the next one.
    None,
    /// Too few masters answered, or they do not agree: each master's answer.
    Unknown(Votes),
}

impl Leader {
    pub(crate) fn of(status: Status) -> Self {
        match status.state {
            State::Held { token, .. } => {
                let parsed = Token::parse(&token).ok();
                let text = parsed.as_ref().and_then(Token::label).unwrap_or_default().to_owned();
                let since = parsed.as_ref().and_then(Token::made_at);
                Self::Is { text, token, since: since.unwrap_or(SystemTime::UNIX_EPOCH) }
            }
            State::Free | State::Reserved => Self::None,
            State::Undecided => Self::Unknown(Votes::new(status.nodes)),
        }
    }

    /// Returns `true` if neither the text nor the token differs.
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            // The text is part of the token.
            (Self::Is { token: one, .. }, Self::Is { token: other, .. }) => one == other,
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }
}

/// A stream of who leads, created by [`Election::observe`]. See [`Watch`] for what it sends, what
/// it may miss, and when it ends.
#[must_use = "streams do nothing unless polled"]
#[derive(Debug)]
pub struct Leaders {
    watch: Watch,
    last: Option<Leader>,
}

impl Stream for Leaders {
    type Item = Leader;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Leader>> {
        loop {
            let Some(status) = ready!(self.watch.poll_next_unpin(cx)) else {
                return Poll::Ready(None);
            };
            let leader = Leader::of(status);
            if !self.last.as_ref().is_some_and(|last| last.is_same(&leader)) {
                self.last = Some(leader.clone());
                return Poll::Ready(Some(leader));
            }
        }
    }
}
