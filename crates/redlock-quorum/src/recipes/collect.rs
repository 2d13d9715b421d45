//! Collects several locks in one call.
//!
//! # States
//!
//! The keys are sorted by their bytes. The call holds the leases of some of them.
//!
//! | state | event | next |
//! |---|---|---|
//! | requesting | every missing key is requested at the same time, in one attempt each | all granted: done |
//! | | some are refused: the locks after the first refused key are released | waiting, or over |
//! | waiting | the call waits for the first refused key in its queue | granted: requesting; refused: over |
//! | either | a held key is lost: all locks are released | requesting, or over |
//! | over | the wait has ended: all locks are released, with the error of the refused key | |
//!
//! No caller waits for a key while it holds a larger one, so callers cannot wait for each other in
//! a circle. While it collects, the future itself extends its locks, without a keeper. A future
//! that is no longer polled holds them for at most one TTL.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::future::{Future, IntoFuture};
use std::time::Duration;

use futures_util::future::join_all;
use redlock_core::Resource;
use tokio::time::sleep;

use super::set::first_lost;
use crate::error::AcquireError;
use crate::guard::Guard;
use crate::lost::Lost;
use crate::request::LockRequest;

/// The locks that one call has collected so far, in the order of the keys' bytes.
pub(super) type Held = BTreeMap<Resource, Guard>;

/// One call that collects its keys.
pub(super) struct Collection {
    keys: BTreeSet<Resource>,
    /// The request for any of them: its wait has begun, and it has no keeper.
    request: LockRequest,
    held: Held,
}

impl Collection {
    pub(super) fn new(keys: BTreeSet<Resource>, request: LockRequest) -> Self {
        Self { keys, request, held: Held::new() }
    }

    /// Returns all locks, or none.
    pub(super) async fn complete(mut self) -> Result<Held, AcquireError> {
        loop {
            match self.step().await {
                Ok(true) => return Ok(self.held),
                Ok(false) => {}
                Err(Setback::Refused(error)) => return Err(error),
                Err(Setback::Lost(lost)) => self.start_over(lost).await?,
            }
        }
    }

    /// Requests all missing keys, and waits for the first refused one. Returns `true` if all are
    /// held.
    async fn step(&mut self) -> Result<bool, Setback> {
        let missing = self.keys.iter().filter(|key| !self.held.contains_key(key));
        let missing: Vec<Resource> = missing.cloned().collect();
        let awaited = match missing.as_slice() {
            // Its own request tries immediately as well.
            [key] => Some(key.clone()),
            _ => self.ask(missing).await?,
        };
        let Some(key) = awaited else { return are_held(&self.held).map(|()| true) };
        // A caller that waits for a key holds no larger one.
        drop(self.held.split_off(&key));
        let guard = keeping(&self.held, self.request.of(&key).into_future()).await??;
        self.held.insert(key, guard);
        Ok(false)
    }

    /// Requests these keys at the same time, in one attempt each. Returns the first key to wait
    /// for, in the order of their bytes.
    async fn ask(&mut self, keys: Vec<Resource>) -> Result<Option<Resource>, Setback> {
        let attempt = |key: &Resource| self.request.of(key).wait(Duration::ZERO).into_future();
        let outcomes = keeping(&self.held, join_all(keys.iter().map(attempt))).await?;
        let mut refused = None;
        for (key, outcome) in keys.into_iter().zip(outcomes) {
            match outcome {
                Ok(guard) => drop(self.held.insert(key, guard)),
                Err(error) => refused = refused.or(Some((key, error))),
            }
        }
        let Some((key, error)) = refused else { return Ok(None) };
        let is_final = matches!(error, AcquireError::Invalid(_) | AcquireError::Shutdown);
        if is_final || self.request.is_over() { Err(error.into()) } else { Ok(Some(key)) }
    }

    /// Starts again after a lock was lost before all were held. The locks collected so far are
    /// released.
    async fn start_over(&mut self, lost: Lost) -> Result<(), AcquireError> {
        self.held.clear();
        if self.request.is_over() {
            return Err(AcquireError::TooLate { resource: lost.resource, votes: lost.votes });
        }
        sleep(PAUSE).await;
        Ok(())
    }
}

/// How long to pause after a lock was lost before all were held.
pub(super) const PAUSE: Duration = Duration::from_millis(50);

/// Why a collection did not advance.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(super) enum Setback {
    Refused(#[from] AcquireError),
    Lost(#[from] Lost),
}

/// Returns an error if one of the locks was lost in the meantime.
pub(super) fn are_held(held: &Held) -> Result<(), Setback> {
    Ok(held.values().try_for_each(Guard::check)?)
}

/// Waits for `work`, and extends the held locks in the meantime.
pub(super) async fn keeping<F: Future>(held: &Held, work: F) -> Result<F::Output, Lost> {
    if held.is_empty() {
        return Ok(work.await);
    }
    tokio::select! {
        // The loss is polled first, because a lost lock has to be collected again anyway.
        biased;
        lost = first_lost(held.values()) => Err(lost),
        output = work => Ok(output),
        never = extend(held) => match never {},
    }
}

/// Extends each lock when a third of its time has passed. Retries a failed extension until the lock
/// is lost.
async fn extend(held: &Held) -> Infallible {
    loop {
        sleep(held.values().map(until_due).min().unwrap_or_default()).await;
        // A third of the others' time has also almost passed, and one request each is cheap.
        join_all(held.values().map(|guard| guard.extend(guard.ttl()))).await;
    }
}

/// Returns how long a lock can wait for its next extension. After a failure, a tenth of the time
/// passes first.
fn until_due(guard: &Guard) -> Duration {
    let time = guard.ttl().saturating_sub(guard.cell().stop_margin);
    guard.remaining().saturating_sub(time * 2 / 3).max(time / 10)
}
