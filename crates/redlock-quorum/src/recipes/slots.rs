//! Collects slots of a semaphore in one call. See rule M1 of `docs/PROTOCOL.md`.
//!
//! # States
//!
//! | state | event | next |
//! |---|---|---|
//! | trying | one permit is wanted, and one of the last calls found the gate free: one slot is requested in one attempt | granted: done; refused: queued |
//! | queued | the call tries the lock `NAME#gate`, and waits for it in its queue | granted after a wait: collecting; granted immediately: alone; refused: over |
//! | alone | one slot is requested in one attempt | granted: done; refused: collecting |
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
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use redlock_core::Resource;
use tokio::time::sleep;

use super::collect::{Held, PAUSE, Setback, are_held, keeping};
use crate::error::AcquireError;
use crate::guard::Guard;
use crate::request::LockRequest;
use crate::settings::InvalidRequest;

/// How many permits a semaphore can have.
pub(super) const PERMITS_MAX: u32 = 64;
/// How many calls in a row may take a slot without the gate. A process that releases its slot and
/// requests it again is faster than a waiter that has just got the gate. It learns of that waiter
/// only at the gate.
const DIRECT_CALLS: u32 = 16;
/// The end of the name of the gate, the longest of the locks' names.
const GATE: &str = "#gate";

/// The slots of a semaphore, and what its callers have learned about them.
pub(super) struct Slots {
    name: Resource,
    gate: Resource,
    names: Vec<Resource>,
    permits: u32,
    /// The slot to try first: the one that was granted last, or the one after a refused one.
    first: AtomicU32,
    /// How many more calls may try a slot without the gate. None if the last call at the gate found
    /// another caller there: a slot that seems free is probably for that one.
    direct_calls: AtomicU32,
}

impl Slots {
    pub(super) fn new(name: Resource, permits: u32) -> Self {
        let of = |suffix: &str| Resource::from([name.as_bytes(), suffix.as_bytes()].concat());
        // No slot of an invalid semaphore is requested.
        let count = permits.min(PERMITS_MAX);
        let names = (0..count).map(|slot| of(&format!("#{slot}"))).collect();
        let first = AtomicU32::new(rand::random_range(0..count.max(1)));
        let direct_calls = AtomicU32::new(DIRECT_CALLS);
        Self { gate: of(GATE), name, names, permits, first, direct_calls }
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
        let (len, max) = (self.name.as_bytes().len(), Resource::LEN_MAX - GATE.len());
        if len > max {
            return Err(InvalidRequest::SemaphoreName { len, max }.into());
        }
        self.name.check().map_err(InvalidRequest::from)?;
        let (permits, max) = (self.permits, PERMITS_MAX);
        if permits == 0 || permits > max {
            return Err(InvalidRequest::Permits { permits, max }.into());
        }
        Ok(())
    }

    /// Returns `true` if a call may try a slot without the gate. Each call that may is counted.
    fn take_direct_call(&self) -> bool {
        let less = |calls: u32| calls.checked_sub(1);
        self.direct_calls.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }

    fn note_gate(&self, is_held: bool) {
        let calls = if is_held { 0 } else { DIRECT_CALLS };
        self.direct_calls.store(calls, Ordering::Relaxed);
    }

    /// All slots, beginning with the one to try first.
    fn in_order(&self) -> impl Iterator<Item = (u32, &Resource)> {
        let first = self.first.load(Ordering::Relaxed);
        let slots = (0..).zip(&self.names);
        let (before, after): (Vec<_>, Vec<_>) = slots.partition(|(slot, _)| *slot < first);
        after.into_iter().chain(before)
    }
}

/// Returns as many slots as wanted, or none, with their guards in the order of the slots.
pub(super) async fn collect(
    slots: &Slots,
    wanted: u32,
    request: LockRequest,
) -> Result<Vec<(u32, Guard)>, AcquireError> {
    slots.check()?;
    if wanted == 0 || wanted > slots.permits {
        return Err(InvalidRequest::PermitCount { count: wanted, permits: slots.permits }.into());
    }
    request.of(&slots.gate).check_all()?;
    let keeps = request.has_keeper();
    let request = request.begun().auto_extend(false);
    let handle = request.handle().clone();
    let call = Call { slots, wanted: wanted as usize, request };
    let held = handle.collecting(call.complete()).await;
    let held = held.map_err(|error| error.about(&slots.name))?;
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
        if self.wanted == 1
            && self.slots.take_direct_call()
            && let Some(held) = self.attempt().await?
        {
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

    /// Requests one slot in one attempt.
    async fn attempt(&self) -> Result<Option<(u32, Guard)>, AcquireError> {
        let Some((slot, name)) = self.slots.in_order().next() else { return Ok(None) };
        match self.request.of(name).wait(Duration::ZERO).await {
            Ok(guard) => Ok(Some((slot, guard))),
            Err(error @ (AcquireError::Invalid(_) | AcquireError::Shutdown)) => Err(error),
            Err(_) => {
                self.slots.first.store((slot + 1) % self.slots.permits, Ordering::Relaxed);
                Ok(None)
            }
        }
    }

    /// Acquires the gate, and returns whether it was free.
    async fn enter(&self) -> Result<(Guard, bool), AcquireError> {
        let request = self.request.of(&self.slots.gate).without_hold_options();
        let tried = request.clone().wait(Duration::ZERO).await;
        let is_held = matches!(tried, Err(AcquireError::Held { .. }));
        self.slots.note_gate(is_held);
        match tried {
            Ok(guard) => Ok((guard, true)),
            Err(error @ (AcquireError::Invalid(_) | AcquireError::Shutdown)) => Err(error),
            Err(error) if self.request.is_over() => Err(error),
            Err(_) => Ok((request.await?, false)),
        }
    }

    /// Waits for the gate, and then for slots.
    async fn pass_the_gate(&self) -> Result<Vec<(u32, Guard)>, Setback> {
        let (gate, was_free) = self.enter().await?;
        let mut held = Held::new();
        held.insert(self.slots.gate.clone(), gate);
        // If the gate was free, there is probably no other caller, so one slot is enough.
        if self.wanted == 1
            && was_free
            && let Some(slot) = keeping(&held, self.attempt()).await??
        {
            return Ok(vec![slot]);
        }
        self.wait_for_slots(held).await
    }

    /// Waits for all slots at the same time until it has as many as wanted.
    async fn wait_for_slots(&self, mut held: Held) -> Result<Vec<(u32, Guard)>, Setback> {
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
        drop(held.remove(&self.slots.gate));
        drop(awaited);
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
