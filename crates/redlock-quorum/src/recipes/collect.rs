//! How one call collects several locks.
//!
//! # States
//!
//! The keys are sorted by their bytes. What is held is the lease of some of them.
//!
//! | state | what happens | next |
//! |---|---|---|
//! | asking | every key that is not held is asked for at once, in one attempt each | all granted: done |
//! | | some are refused: those behind the first refused one are released | waiting, or over |
//! | waiting | the first refused key is waited for, in its queue | granted: asking; refused: over |
//! | either | a key that was held is lost: all are released | asking, or over |
//! | over | the wait has ended: all are released, and the error is that of the refused key | |
//!
//! So no caller waits for a key while it holds a larger one, and no circle of callers that wait for
//! each other can close. While it collects, the future itself extends its locks, and no keeper
//! does: a future that is not polled any more holds them for one TTL at most.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::future::{Future, IntoFuture};
use std::time::Duration;

use futures::future::join_all;
use redlock_core::Resource;
use tokio::time::sleep;

use super::set::first_lost;
use crate::error::AcquireError;
use crate::guard::Guard;
use crate::lost::Lost;
use crate::request::LockRequest;

/// The locks that one call has collected so far, in the order of the keys' bytes.
pub(super) type Held = BTreeMap<Resource, Guard>;

/// One call on its way to all of its keys.
pub(super) struct Collection {
    keys: BTreeSet<Resource>,
    /// For any of them: its wait has begun, and it has no keeper.
    request: LockRequest,
    held: Held,
}

impl Collection {
    pub(super) fn new(keys: BTreeSet<Resource>, request: LockRequest) -> Self {
        Self { keys, request, held: Held::new() }
    }

    /// All locks, or none.
    pub(super) async fn complete(mut self) -> Result<Held, AcquireError> {
        loop {
            match self.step().await {
                Ok(true) => return Ok(self.held),
                Ok(false) => {}
                Err(Setback::Refused(error)) => return Err(error),
                Err(Setback::Lost(lost)) => self.begin_anew(lost).await?,
            }
        }
    }

    /// Asks for all that is missing, and waits for the first key that is refused. True where all
    /// are held.
    async fn step(&mut self) -> Result<bool, Setback> {
        let missing = self.keys.iter().filter(|key| !self.held.contains_key(key));
        let missing: Vec<Resource> = missing.cloned().collect();
        let awaited = match missing.as_slice() {
            // Its own request asks at once, too.
            [key] => Some(key.clone()),
            _ => self.ask(missing).await?,
        };
        let Some(key) = awaited else { return self.are_held() };
        // Whoever waits for a key holds none that is larger.
        drop(self.held.split_off(&key));
        let guard = keeping(&self.held, self.request.of(&key).into_future()).await??;
        self.held.insert(key, guard);
        Ok(false)
    }

    /// Asks for these keys at once, in one attempt each; the first that is to be waited for, in
    /// the order of their bytes.
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

    /// Every key was granted: true, unless one was lost again meanwhile.
    fn are_held(&self) -> Result<bool, Setback> {
        match self.held.values().find_map(|guard| guard.check().err()) {
            Some(lost) => Err(lost.into()),
            None => Ok(true),
        }
    }

    /// A lock was lost before all were there: it counts for nothing any more, and neither does
    /// what was collected under it.
    async fn begin_anew(&mut self, lost: Lost) -> Result<(), AcquireError> {
        self.held.clear();
        if self.request.is_over() {
            return Err(AcquireError::TooLate { resource: lost.resource, votes: lost.votes });
        }
        sleep(PAUSE).await;
        Ok(())
    }
}

/// How long the masters are left alone when a lock was lost before all were there.
const PAUSE: Duration = Duration::from_millis(50);

/// Why a collection did not get on.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
enum Setback {
    Refused(#[from] AcquireError),
    Lost(#[from] Lost),
}

/// Waits for `work`, and extends what is held meanwhile.
async fn keeping<F: Future>(held: &Held, work: F) -> Result<F::Output, Lost> {
    if held.is_empty() {
        return Ok(work.await);
    }
    tokio::select! {
        // The loss is checked first: a lost lock has to be collected again anyway.
        biased;
        lost = first_lost(held.values()) => Err(lost),
        output = work => Ok(output),
        never = extend(held) => match never {},
    }
}

/// Extends each lock when a third of its time has passed. One that cannot be extended is tried
/// again until it is lost.
async fn extend(held: &Held) -> Infallible {
    loop {
        sleep(held.values().map(until_due).min().unwrap_or_default()).await;
        // A third of all others' time has passed soon, too; one request each is cheap.
        join_all(held.values().map(|guard| guard.extend(guard.ttl()))).await;
    }
}

/// How long a lock can wait for its next extension. After a failure the masters have a tenth of
/// the time for themselves.
fn until_due(guard: &Guard) -> Duration {
    let time = guard.ttl().saturating_sub(guard.cell().stop_margin);
    guard.remaining().saturating_sub(time * 2 / 3).max(time / 10)
}
