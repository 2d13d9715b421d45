//! Permits of a semaphore: `run --permits` and `status --permits`.

use std::time::Duration;

use anyhow::anyhow;
use redlock_quorum::{
    AcquireError, GuardSet, Permitted, Resource, Semaphore, State, Status, Votes,
};

use crate::answers;
use crate::duration::Wait;
use crate::exit::{Failure, HELD, NOT_OURS, UNAVAILABLE};
use crate::session::Session;

impl Session {
    /// The semaphore of the key, with so many permits.
    pub(crate) fn semaphore(&self, permits: u32) -> Semaphore {
        self.redlock.semaphore(&self.key, permits)
    }

    pub(crate) async fn request_permit(
        &self,
        permits: u32,
        wait: Wait,
        max_hold: Option<Duration>,
    ) -> Result<GuardSet, AcquireError> {
        let mut request = self.semaphore(permits).acquire_many(1).ttl(self.ttl.get());
        request = match wait {
            Wait::For(wait) => request.wait(wait),
            Wait::Forever => request.wait_forever(),
        };
        if let Some(max_hold) = max_hold {
            request = request.max_hold(max_hold);
        }
        let permit = request.await?;
        self.slot.set(permit.slots().first().copied());
        Ok(permit.into())
    }

    /// All permits were held until the wait was over.
    pub(crate) async fn no_permit(&self, permits: u32, votes: &Votes) -> Failure {
        let permitted = match self.all_permits_held_around_us(permits).await {
            Ok(permitted) => permitted,
            Err(failure) => return failure,
        };
        let (key, which) = (&self.key, all(permits));
        let (holders, refused) = (holders(key, &permitted), answers::refused(votes));
        Failure::new(HELD, anyhow!("{key}: {which} held: {holders}; {refused}"))
    }

    /// Returns who holds the permits, or the failure if each of them is held by an enclosing
    /// `redlock run`.
    pub(crate) async fn all_permits_held_around_us(
        &self,
        permits: u32,
    ) -> Result<Permitted, Failure> {
        let permitted = self.semaphore(permits).status().await;
        if !permitted.slots.iter().all(|slot| self.held.holds(slot)) {
            return Ok(permitted);
        }
        let (key, which) = (&self.key, all(permits));
        let holders = holders(key, &permitted);
        let cure = "run the nested command directly, without `redlock run`";
        let cause = anyhow!("{key}: {which} held by enclosing `redlock run`s: {holders}; {cure}");
        Err(Failure::new(HELD, cause))
    }

    /// The holders of the permits, in one line.
    pub(crate) async fn permits_in_words(&self, permits: u32) -> String {
        holders(&self.key, &self.semaphore(permits).status().await)
    }
}

fn all(permits: u32) -> String {
    if permits == 1 { "the permit is".into() } else { format!("all {permits} permits are") }
}

/// The slot with this number.
pub(crate) fn name_of(key: &Resource, slot: usize) -> String {
    format!("{key}#{slot}")
}

fn holders(key: &Resource, permitted: &Permitted) -> String {
    rows(key, permitted).join("; ")
}

fn rows(key: &Resource, permitted: &Permitted) -> Vec<String> {
    let slot = |(slot, status): (usize, &Status)| answers::verdict(&name_of(key, slot), status);
    let mut slots: Vec<_> = permitted.slots.iter().enumerate().map(slot).collect();
    slots.extend(waiters(permitted.waiters));
    slots
}

fn waiters(waiters: u32) -> Option<String> {
    match waiters {
        0 => None,
        1 => Some("1 process waits for a permit".into()),
        waiters => Some(format!("{waiters} processes wait for a permit")),
    }
}

/// One line for each slot, and how many wait.
pub(crate) fn people(key: &Resource, permitted: &Permitted) -> String {
    rows(key, permitted).join("\n")
}

/// The exit code, or the failure with its own.
pub(crate) fn judge(key: &Resource, permitted: &Permitted) -> Result<u8, Failure> {
    let slots = || permitted.slots.iter().enumerate();
    if slots().any(|(_, slot)| matches!(slot.state, State::Held { .. })) {
        return Ok(0);
    }
    if let Some((slot, status)) = slots().find(|(_, slot)| slot.state == State::Undecided) {
        let (name, list) = (name_of(key, slot), answers::list(status));
        return Err(Failure::new(UNAVAILABLE, anyhow!("no quorum agrees on {name}: {list}")));
    }
    Err(Failure::new(NOT_OURS, anyhow!("no permit of {key} is held")))
}
