//! `Watch`: a stream of the changes of one lock.
//!
//! # States
//!
//! | state | event | next |
//! |---|---|---|
//! | reading | all masters have answered, or their time is over | resting |
//! | | the first answer that no quorum agrees on | resting, for 100 ms only |
//! | resting | a second has passed since the last read began | reading |
//! | | the meeting point reports a change, or is lost | looking, at most once a second in vain |
//! | looking | the meeting point has the same holder as before | resting |
//! | | it has another holder, or no answer | reading, 100 ms after the last read at the earliest |
//! | any | the handle is shut down | over |
//!
//! # Messages
//!
//! A read is one request to each master. The request to the meeting point also requests a report of
//! the next change. A look is that request only, because extending a lock also changes its key, and
//! reading all masters for each extension would double the load.
//!
//! # Failures
//!
//! A lost push, a lost meeting point and masters that do not push cost up to a second, because
//! reads continue. A master that does not answer delays a read by one node timeout. The stream
//! avoids it as the meeting point for about a second. Without a quorum, the stream reports that,
//! and continues. If its runtime goes away, the stream continues on the next runtime that polls it.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::{BoxStream, Stream, unfold};
use redlock_core::{Instant, Resource, Verdict};
use tokio::time::sleep;

use crate::driver::reply::Awaited;
use crate::error::AcquireError;
use crate::redlock::Redlock;
use crate::status::{State, Status};
use crate::votes::NodeVote;

/// The longest time between two reads of all masters.
const PERIOD: Duration = Duration::from_secs(1);
/// The shortest time between two reads of all masters.
const PAUSE: Duration = Duration::from_millis(100);

impl Redlock {
    /// Returns a stream of who holds `resource`: the present [`Status`], then each change of its
    /// state or of the holder's token. Sends nothing before it is polled.
    ///
    /// ```no_run
    /// use futures_util::StreamExt;
    ///
    /// # async fn example(redlock: redlock_quorum::Redlock) {
    /// let mut changes = redlock.watch("orders:42");
    /// while let Some(status) = changes.next().await {
    ///     println!("{status}");
    /// }
    /// # }
    /// ```
    pub fn watch(&self, resource: impl Into<Resource>) -> Watch {
        let resource = resource.into();
        let watching = Watching::new(self.clone(), resource.clone());
        Watch { statuses: unfold(watching, Watching::next).fuse().boxed(), resource }
    }
}

/// A stream of who holds a resource, created by [`Redlock::watch`].
///
/// It reads all masters once a second. In between, one master reports changes of the key, so that
/// most changes arrive within milliseconds, unless the lock was extended in the second before. All
/// masters are read at most ten times a second. A state
/// that lasts for two seconds is always reported, and a shorter one may be missed. With N masters,
/// a stream without changes sends at most N + 1 requests per second.
///
/// The state is [`State::Undecided`] if two reads in a row find no quorum that agrees: if too few
/// masters answer, for example. The stream continues and reports when that is over.
///
/// It ends after [`Redlock::shutdown`]. If no master can be queried, because the name is invalid or
/// the process was forked, it ends after one status with the reason. It is a clone of the handle,
/// so drop it when you no longer need it. Poll it inside a tokio runtime.
///
/// # Cancel safety
/// Dropping the future of its next item loses no change. If you do not poll the stream, it reads
/// nothing, and reports the state at the next poll.
#[must_use = "streams do nothing unless polled"]
pub struct Watch {
    statuses: BoxStream<'static, Status>,
    resource: Resource,
}

impl Stream for Watch {
    type Item = Status;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Status>> {
        self.statuses.poll_next_unpin(cx)
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("resource", &self.resource).finish_non_exhaustive()
    }
}

/// The state of a stream between two items.
struct Watching {
    redlock: Redlock,
    resource: Resource,
    /// The state that was reported last.
    reported: Option<State>,
    /// Each master's answer to the last read.
    known: Vec<NodeVote>,
    /// The last read found no quorum that agrees, and this was not reported.
    is_in_doubt: bool,
    /// Resolves when the meeting point reports a change. `None` if it does not matter.
    changed: Option<Awaited<'static, ()>>,
    read_at: Instant,
    /// When the next read is due.
    due: Instant,
    /// When the next look may be made, because the last one found no change. A change that follows
    /// an extension therefore waits for the next read.
    looks_from: Instant,
    is_over: bool,
}

impl Watching {
    fn new(redlock: Redlock, resource: Resource) -> Self {
        let start = Instant::ORIGIN;
        Self {
            redlock,
            resource,
            reported: None,
            known: Vec::new(),
            is_in_doubt: false,
            changed: None,
            read_at: start,
            due: start,
            looks_from: start,
            is_over: false,
        }
    }

    fn now(&self) -> Instant {
        self.redlock.handle.clock.now()
    }

    /// Returns the next status to report, or `None` if the stream is over.
    async fn next(mut self) -> Option<(Status, Self)> {
        if self.is_over {
            return None;
        }
        match self.change().await {
            Ok(status) => Some((status, self)),
            Err(AcquireError::Shutdown) => None,
            Err(error) => {
                self.is_over = true;
                Some((Status::unasked(self.redlock.names(), &error.to_string()), self))
            }
        }
    }

    async fn change(&mut self) -> Result<Status, AcquireError> {
        loop {
            self.rest().await?;
            if let Some(status) = self.read().await? {
                return Ok(status);
            }
        }
    }

    /// Waits until the next read is due.
    async fn rest(&mut self) -> Result<(), AcquireError> {
        while self.is_reported_early().await {
            if self.now() < self.looks_from {
                continue;
            }
            if self.look().await? {
                // Further reports do not make the read earlier.
                self.changed = None;
                self.due = self.due.min(self.read_at.saturating_add(PAUSE));
            } else {
                self.looks_from = self.now().saturating_add(PERIOD);
            }
        }
        Ok(())
    }

    /// Returns `true` if the meeting point reports something before the next read is due.
    async fn is_reported_early(&mut self) -> bool {
        let left = self.due.saturating_since(self.now());
        let Some(changed) = &mut self.changed else {
            sleep(left).await;
            return false;
        };
        tokio::select! {
            biased;
            _ = changed => {
                self.changed = None;
                true
            }
            () = sleep(left) => false,
        }
    }

    /// Reads only the meeting point. Returns `true` if it has another holder than it had before.
    async fn look(&mut self) -> Result<bool, AcquireError> {
        let observed = self.redlock.observe(&self.resource, true).await?;
        let Some(at) = observed.at else { return Ok(true) };
        self.changed = Some(observed.changed);
        let holder = |nodes: &[NodeVote]| nodes.get(at).map(|node| seen(&node.verdict));
        Ok(holder(&observed.status.nodes) != holder(&self.known))
    }

    /// Reads all masters. Returns the status if it has to be reported.
    async fn read(&mut self) -> Result<Option<Status>, AcquireError> {
        self.read_at = self.now();
        self.due = self.read_at.saturating_add(PERIOD);
        let observed = self.redlock.observe(&self.resource, false).await?;
        self.changed = observed.at.map(|_| observed.changed);
        let status = observed.status;
        self.known.clone_from(&status.nodes);
        let is_new = !self.reported.as_ref().is_some_and(|state| is_same(state, &status.state));
        // A read in the middle of a change finds no quorum either.
        let is_doubtful = is_new && status.state == State::Undecided && !self.is_in_doubt;
        self.is_in_doubt = is_doubtful;
        if is_doubtful {
            self.due = self.read_at.saturating_add(PAUSE);
        }
        if is_doubtful || !is_new {
            return Ok(None);
        }
        self.reported = Some(status.state.clone());
        self.looks_from = self.read_at;
        let waiters = self.redlock.waiters(&self.resource).await;
        Ok(Some(Status { waiters, ..status }))
    }
}

/// Returns `true` if neither the state nor the token differs.
fn is_same(one: &State, other: &State) -> bool {
    match (one, other) {
        (State::Held { token: one, .. }, State::Held { token: other, .. }) => one == other,
        _ => std::mem::discriminant(one) == std::mem::discriminant(other),
    }
}

/// Returns the answer of a master without the time that is left of the key.
fn seen(verdict: &Verdict) -> Verdict {
    match verdict {
        Verdict::Held { token, .. } => Verdict::Held { token: token.clone(), ttl: None },
        other => other.clone(),
    }
}
