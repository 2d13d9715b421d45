//! The reservations that a lease leaves to the next contender, and how that one takes them.
//!
//! A release may replace the key by a reservation, a value that is not a token. A contender that
//! enters the queue at the meeting point replaces it. The time of a notification is not modelled:
//! each contender sends its requests at any time, and a reservation ends at any time, whatever its
//! expiry.

use redlock_protocol::master_set::MasterSet;
use redlock_protocol::token::lifecycle::{Answered, Asked, Event, Stage};
use redlock_protocol::votes::answer::{Counts, Judged};

use super::action::Action;
use super::broken::Broken;
use super::contender::Lock;
use super::master::Master;
use super::part::Part;
use super::wire::{Kind, Number, Reply, Request, Value};
use super::world::World;

/// The master that keeps the queue.
pub(crate) const MEETING_POINT: usize = 0;

/// The value of a reservation for no particular contender. Reservations for a contender follow it.
const RESERVED: Value = 100;

/// The entries that the release of a lock leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Leaving {
    /// No key.
    Nothing,
    /// A call of the next one at the meeting point, and no key elsewhere.
    Place,
    /// A reservation in the place of each key.
    Lease,
}

/// Returns the contender of a reservation: `None` for a token, `Some(None)` for no particular
/// contender.
pub(crate) fn reserved_for(value: Value) -> Option<Option<usize>> {
    let named = value.checked_sub(RESERVED)?;
    (named < 8).then(|| named.checked_sub(1).map(usize::from))
}

fn reservation(to: Option<usize>) -> Value {
    RESERVED + to.map_or(0, |to| to as Value + 1)
}

impl Part {
    /// Whether a contender enters the queue, and so sends ENTER and TAKE in the place of SET NX.
    pub(crate) fn enters(&self, own: usize) -> bool {
        self.enters.get(own).is_some_and(|enters| *enters)
    }

    /// Whether there is a meeting point.
    pub(crate) fn has_queue(&self) -> bool {
        !self.enters.is_empty()
    }

    /// Whom a contender calls.
    fn next(&self, own: usize) -> usize {
        (own + 1) % self.attempts.len()
    }
}

impl World {
    pub(crate) fn queue_actions(&self, part: &Part, actions: &mut Vec<Action>) {
        if !part.has_queue() {
            return;
        }
        for (own, contender) in self.contenders.iter().enumerate() {
            let stage = contender.open().map(|lock| (lock.machine.stage(), lock.takes));
            match stage {
                Some((Stage::Lease(_), _)) if part.releases => actions.push(Action::Leave(own)),
                Some((Stage::Attempt(_), true)) if self.left.again > 0 => {
                    actions.push(Action::TakeAgain(own));
                }
                _ => {}
            }
        }
        for (index, master) in self.masters.iter().enumerate() {
            if master.keys[0].is_some_and(|(value, _)| reserved_for(value).is_some()) {
                actions.push(Action::Lapse(index));
            }
        }
    }

    /// The requests for the key go to these masters.
    pub(crate) fn send_attempt(
        &mut self,
        part: &Part,
        own: usize,
        id: u8,
        ballot: Number,
        masters: MasterSet,
    ) {
        let now = self.now;
        let contender = &mut self.contenders[own];
        if !part.enters(own) {
            return contender.send(id, Kind::Acquire, ballot, masters, now);
        }
        let at = MasterSet::from_iter([MEETING_POINT]);
        contender.send(id, Kind::Enter, ballot, masters.intersection(at), now);
        contender.send(id, Kind::Take, ballot, masters.without(at), now);
    }

    /// Sends the releases of a lock to these masters. Reservations are left only once, and a
    /// repeated release only deletes.
    pub(crate) fn send_releases(&mut self, part: &Part, own: usize, id: u8, masters: MasterSet) {
        let (now, next) = (self.now, part.next(own));
        let contender = &mut self.contenders[own];
        let Some(lock) = contender.lock(id) else { return };
        let at = MasterSet::from_iter([MEETING_POINT]);
        let elsewhere = match std::mem::replace(&mut lock.leaving, Leaving::Nothing) {
            Leaving::Nothing => return contender.send(id, Kind::Release, 0, masters, now),
            Leaving::Place => Kind::Release,
            Leaving::Lease => Kind::Reserve,
        };
        contender.send(id, elsewhere, 0, masters.without(at), now);
        let is_there = masters.contains(MEETING_POINT);
        let kind = if is_there { Kind::Leave(next) } else { Kind::Exit(next) };
        contender.send(id, kind, 0, at, now);
    }

    /// Releases a lease and leaves it to the next contender.
    pub(crate) fn leave(&mut self, part: &Part, own: usize) {
        if let Some(lock) = self.contenders[own].open_mut() {
            lock.leaving = Leaving::Lease;
        }
        self.give_up(part, own);
    }

    /// A contender that leaves the queue notifies the next one.
    pub(crate) fn leave_place(&mut self, part: &Part, own: usize, id: u8) {
        let enters = part.enters(own);
        let lock = self.contenders[own].lock(id).filter(|lock| enters && lock.is_attempt());
        lock.into_iter().for_each(|lock| lock.leaving = Leaving::Place);
    }

    /// A mutant remembers which masters were queried again.
    pub(crate) fn note_again(&mut self, part: &Part, own: usize, masters: MasterSet) {
        if part.broken == Some(Broken::RefusedBefore) {
            self.contenders[own].accepted = masters.iter().map(|master| (master, 0)).collect();
        }
    }

    /// The attempt is abandoned. A mutant takes the masters' earlier answers as answers to the
    /// repeated request.
    pub(crate) fn refused_before(&mut self, part: &Part, own: usize, id: u8) {
        if part.broken != Some(Broken::RefusedBefore) {
            return;
        }
        let clock = self.contenders[own].clock(part, self.now);
        let contender = &self.contenders[own];
        let is_again = |master: &usize| contender.accepted.contains(&(*master, 0));
        let masters: Vec<usize> = contender.taking(id).filter(is_again).collect();
        for master in masters {
            let (answer, counts) = (Reply::Held.answer(), Counts::Yes);
            let judged = Judged { answer: &answer, counts: &counts };
            let answered = Answered { to: Asked::First, master, judged, sent_at: clock };
            self.happens(part, own, id, Event::Answered(answered));
        }
    }

    /// The answer that a mutant gets from a master whose key is reserved.
    pub(crate) fn reservation_granted(&self, master: usize, reply: Reply) -> Reply {
        let value = self.masters[master].keys[0].map(|(value, _)| value);
        let is_reserved = value.and_then(reserved_for).is_some();
        if reply == Reply::Held && is_reserved { Reply::Granted } else { reply }
    }

    /// Queries masters that refused for the same key again.
    pub(crate) fn take_again(&mut self, part: &Part, own: usize) {
        let Some(lock) = self.contenders[own].open_mut() else { return };
        lock.takes = false;
        let id = lock.id;
        self.left.again -= 1;
        self.happens(part, own, id, Event::TakeAgain);
    }
}

impl Master {
    /// Whether a request that sets the key finds it free.
    pub(crate) fn is_free(&self, part: &Part, resource: usize, request: &Request) -> bool {
        let Some((value, _)) = self.keys[resource] else { return true };
        let own = Lock::contender(request.lock);
        match (request.kind, reserved_for(value)) {
            (Kind::Take, Some(_)) => true,
            (Kind::Take, None) => part.broken == Some(Broken::TakeReplaces),
            (Kind::Enter, Some(to)) => to == Some(own),
            _ => false,
        }
    }

    /// Creates a reservation in the place of the request's key. At the meeting point, also if there
    /// is no key, or a reservation for this contender.
    pub(crate) fn reserve(&mut self, part: &Part, resource: usize, request: &Request) -> Reply {
        let (value, own) = (self.keys[resource].map(|(value, _)| value), request.lock);
        let is_ours = value == Some(request.value);
        let is_for_us = value
            .and_then(reserved_for)
            .is_some_and(|to| to.is_none_or(|to| to == Lock::contender(own)));
        let (is_free, to) = match request.kind {
            Kind::Leave(to) | Kind::Exit(to) => (is_ours || value.is_none() || is_for_us, Some(to)),
            _ => (is_ours || part.broken == Some(Broken::ReserveWithoutCompare), None),
        };
        if is_free {
            // It ends when the model lets it end.
            self.keys[resource] = Some((reservation(to), Value::MAX));
        }
        if is_ours { Reply::Granted } else { Reply::NotOurs }
    }
}
