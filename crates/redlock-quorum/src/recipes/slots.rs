//! Collects slots of a semaphore in one call.
//!
//! # States
//!
//! | state | event | next |
//! |---|---|---|
//! | trying | one permit is wanted, and no caller of this semaphore was refused in the last second: one slot is requested in one attempt | granted: done; refused: queued |
//! | queued | the call waits for the lock `NAME#gate`, in its queue | granted: collecting; refused: over |
//! | collecting | the call waits for all slots at the same time, in the queue of each | as many as wanted are granted: done; too few are left: over |
//! | | the gate or a collected slot is lost: everything is released | queued, or over |
//! | done | the gate is released, and the queues of the other slots are left | |
//! | over | the wait has ended: everything is released, with the error of the gate or slot | |
//!
//! Only the holder of the gate waits for slots, and it holds nothing while it waits for the gate.
//! Callers therefore never wait for each other in a circle. Each slot is an ordinary lock, so no
//! bug here creates two holders of one slot.
//!
//! # Failures
//!
//! While it collects, the future itself extends the gate and its slots. A call that dies, or is no
//! longer polled, holds them for at most one TTL. Then the next waiter gets the gate. The queue of
//! a slot forgets a dead waiter after 3 s at most, and passes it over before.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use redlock_core::{Instant, Resource};
use tokio::time::sleep;

use super::collect::{Held, PAUSE, Setback, are_held, keeping};
use crate::error::AcquireError;
use crate::guard::Guard;
use crate::request::LockRequest;
use crate::settings::InvalidRequest;

/// How many permits a semaphore can have.
pub(super) const PERMITS_MAX: u32 = 64;
/// For how long callers go to the gate first after one was refused.
const CONTENDED: Duration = Duration::from_secs(1);

/// The slots of a semaphore, and what its callers have learned about them.
pub(super) struct Slots {
    name: Resource,
    gate: Resource,
    names: Vec<Resource>,
    permits: u32,
    /// The slot to try first: the one that was granted last.
    first: AtomicU32,
    /// Until when callers go to the gate first.
    contended: Mutex<Option<Instant>>,
}

impl Slots {
    pub(super) fn new(name: Resource, permits: u32) -> Self {
        let of = |suffix: &str| Resource::from([name.as_bytes(), suffix.as_bytes()].concat());
        // No slot of an invalid semaphore is requested.
        let count = permits.min(PERMITS_MAX);
        let names = (0..count).map(|slot| of(&format!("#{slot}"))).collect();
        let first = AtomicU32::new(rand::random_range(0..count.max(1)));
        Self { gate: of("#gate"), name, names, permits, first, contended: Mutex::default() }
    }

    pub(super) fn name(&self) -> &Resource {
        &self.name
    }

    pub(super) fn gate(&self) -> &Resource {
        &self.gate
    }

    pub(super) fn names(&self) -> &[Resource] {
        &self.names
    }

    pub(super) fn len(&self) -> u32 {
        self.permits
    }

    pub(super) fn check(&self) -> Result<(), AcquireError> {
        self.name.check().map_err(InvalidRequest::from)?;
        let (permits, max) = (self.permits, PERMITS_MAX);
        if permits == 0 || permits > max {
            return Err(InvalidRequest::Permits { permits, max }.into());
        }
        Ok(())
    }

    /// All slots, beginning with the one to try first.
    fn in_order(&self) -> impl Iterator<Item = (u32, &Resource)> {
        let first = self.first.load(Ordering::Relaxed);
        let slots = (0..).zip(&self.names);
        let (before, after): (Vec<_>, Vec<_>) = slots.partition(|(slot, _)| *slot < first);
        after.into_iter().chain(before)
    }

    fn is_contended(&self, now: Instant) -> bool {
        let until = *self.contended.lock().unwrap_or_else(PoisonError::into_inner);
        until.is_some_and(|until| now < until)
    }

    fn set_contended(&self, now: Instant) {
        let until = Some(now.saturating_add(CONTENDED));
        *self.contended.lock().unwrap_or_else(PoisonError::into_inner) = until;
    }
}

/// Returns as many slots as wanted, or none, with their guards in the order of the slots.
pub(super) async fn collect(
    slots: &Slots,
    wanted: u32,
    request: LockRequest,
) -> Result<Vec<(u32, Guard)>, AcquireError> {
    slots.check()?;
    request.of(&slots.gate).check_all()?;
    let keeps = request.has_keeper();
    let request = request.begun().auto_extend(false);
    let call = Call { slots, wanted: wanted as usize, request };
    let held = call.complete().await.map_err(|error| error.about(&slots.name))?;
    if keeps {
        held.iter().for_each(|(_, guard)| guard.keep());
    }
    if let Some((slot, _)) = held.first() {
        slots.first.store(*slot, Ordering::Relaxed);
    }
    Ok(held)
}

/// One call that collects slots.
struct Call<'a> {
    slots: &'a Slots,
    wanted: usize,
    /// The request for any of the locks: its wait has begun, and it has no keeper.
    request: LockRequest,
}

/// A request for a slot.
type Awaited = BoxFuture<'static, (u32, Result<Guard, AcquireError>)>;

impl Call<'_> {
    async fn complete(&self) -> Result<Vec<(u32, Guard)>, AcquireError> {
        if let Some(held) = self.attempt().await? {
            return Ok(vec![held]);
        }
        loop {
            match self.pass_the_gate().await {
                Ok(held) => return Ok(held),
                Err(Setback::Refused(error)) => return Err(error),
                Err(Setback::Lost(lost)) if self.request.is_over() => {
                    let (resource, votes) = (lost.resource, lost.votes);
                    return Err(AcquireError::TooLate { resource, votes });
                }
                Err(Setback::Lost(_)) => sleep(PAUSE).await,
            }
        }
    }

    /// Requests one slot in one attempt, unless others probably wait.
    async fn attempt(&self) -> Result<Option<(u32, Guard)>, AcquireError> {
        let now = self.request.now();
        if self.wanted > 1 || self.slots.is_contended(now) {
            return Ok(None);
        }
        let Some((slot, name)) = self.slots.in_order().next() else { return Ok(None) };
        match self.request.of(name).wait(Duration::ZERO).await {
            Ok(guard) => Ok(Some((slot, guard))),
            Err(error @ (AcquireError::Invalid(_) | AcquireError::Shutdown)) => Err(error),
            Err(_) => Ok(None),
        }
    }

    /// Waits for the gate, and then for slots.
    async fn pass_the_gate(&self) -> Result<Vec<(u32, Guard)>, Setback> {
        self.slots.set_contended(self.request.now());
        let gate = &self.slots.gate;
        let mut held = Held::new();
        held.insert(gate.clone(), self.request.of(gate).without_hold_options().await?);
        let mut awaited: FuturesUnordered<Awaited> = self.requests().collect();
        let mut slots = Vec::new();
        while slots.len() < self.wanted {
            let Some((slot, outcome)) = keeping(&held, awaited.next()).await? else { break };
            match outcome {
                Ok(guard) => {
                    held.insert(guard.resource().clone(), guard);
                    slots.push(slot);
                }
                Err(error) if slots.len() + awaited.len() < self.wanted => return Err(error.into()),
                Err(_) => {}
            }
        }
        are_held(&held)?;
        // The next waiter needs the gate first.
        drop(held.remove(gate));
        drop(awaited);
        self.slots.set_contended(self.request.now());
        slots.sort_unstable();
        let name = |slot: u32| &self.slots.names[slot as usize];
        Ok(slots.into_iter().filter_map(|slot| Some((slot, held.remove(name(slot))?))).collect())
    }

    /// A request for each slot, for the rest of the wait.
    fn requests(&self) -> impl Iterator<Item = Awaited> {
        self.slots.in_order().map(|(slot, name)| -> Awaited {
            let request = self.request.of(name);
            Box::pin(async move { (slot, request.await) })
        })
    }
}
