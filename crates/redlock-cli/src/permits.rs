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

    /// Requests one permit.
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
        let key = &self.key;
        let holders = holders(key, &self.semaphore(permits).status().await);
        let refused = answers::refused(votes);
        let which =
            if permits == 1 { "the permit".into() } else { format!("all {permits} permits") };
        Failure::new(HELD, anyhow!("{which} of {key} were held by others: {holders}; {refused}"))
    }

    /// The holders of the permits, in one line.
    pub(crate) async fn permits_in_words(&self, permits: u32) -> String {
        holders(&self.key, &self.semaphore(permits).status().await)
    }
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
