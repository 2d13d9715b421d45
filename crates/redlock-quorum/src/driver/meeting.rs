//! `Meeting`: what attempts and releases do with the shared queue at the meeting point of a key.

use std::sync::Arc;
use std::time::Duration;

use redlock_core::{
    Answer, Bid, Cause, Entry, Exit, Instant, Leaving, Op, Resource, SharedQueue, Verdict, Vote,
};

use super::{Driver, Lock};
use crate::hold::Acceptance;
use redlock_protocol::client::draws::Draw;
use redlock_protocol::client::ids::{LockId, RequestId, Ticket};
use redlock_protocol::client::timers::Due;
use redlock_protocol::master_set::MasterSet;
use redlock_protocol::token::attempt::Defeat;
use redlock_protocol::token::lifecycle::Loss;
use redlock_protocol::waiting::leaving::{self, Known};
use redlock_protocol::waiting::{Ask, QueueAnswer, Refusal, Waiting};

/// One in this many of such releases leaves the key free: for processes that wait at another
/// master, and for those that cannot wait in a queue.
const OPEN_ONE_IN: u64 = 64;
/// How long a reservation lasts at least, and at most.
const RESERVATION: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(1)];

/// How one token uses the shared queue of its key.
pub(super) struct Meeting {
    /// The master that keeps it.
    pub(super) at: usize,
    /// The parameters of its caller there.
    entry: Entry,
    /// The other masters are asked for the key even where it is reserved.
    pub(super) takes: bool,
    /// The master has not answered yet.
    is_open: bool,
    /// The answer when it did not let the caller in.
    answer: Option<QueueAnswer>,
    /// The script on the queue has failed.
    has_failed: bool,
    /// Others wait for the key, by the latest answer.
    pub(super) others_wait: bool,
}

impl Driver {
    /// Where the attempt of this request asks first, or asks to enter the queue; `None` if it does
    /// neither.
    pub(super) fn meeting_point(&self, id: RequestId, now: Instant) -> Option<usize> {
        let request = self.requests.get(id)?;
        let place = self.waiters.place(&request.key);
        match (request.ask, place) {
            (Ask::All, None) => None,
            // The key is reserved at the master that has called.
            (Ask::Called, Some(place)) if self.masters.may_meet(place, now) => Some(place),
            _ => self.queues_at(&request.key, place, now),
        }
    }

    /// Returns the master at which a process with this place queues next. That is the common
    /// meeting point as soon as a queue works there, so a process that has queued elsewhere for a
    /// moment returns.
    pub(super) fn queues_at(
        &self,
        key: &Arc<[u8]>,
        place: Option<usize>,
        now: Instant,
    ) -> Option<usize> {
        let place = place.filter(|at| self.masters.may_meet(*at, now));
        let meets = self.meeting_point_of(key, now);
        let works = meets.is_some_and(|at| self.queue_works(key, at, now));
        place.filter(|_| !works).or(meets)
    }

    /// The queue that the attempt of this request asks to enter at the master `at`.
    pub(super) fn meet(&mut self, id: RequestId, at: usize, now: Instant) -> Option<Box<Meeting>> {
        let request = self.requests.get(id)?;
        if !self.queue_works(&request.key, at, now) {
            return None;
        }
        let former = self.waiters.place(&request.key).filter(|place| *place != at);
        let since = self.waiters.enter_at(&request.key, at).unwrap_or(request.asked_at);
        let meeting = Meeting {
            at,
            entry: self.entry(&request.resource, since.max(request.asked_at), now),
            takes: request.ask != Ask::All,
            is_open: true,
            answer: None,
            has_failed: false,
            others_wait: false,
        };
        if let Some(former) = former {
            let key = request.key.clone();
            self.give_up_place(&key, former, now);
        }
        Some(Box::new(meeting))
    }

    /// The parameters of a caller that waits since `since`.
    pub(super) fn entry(&self, resource: &Resource, since: Instant, now: Instant) -> Entry {
        let waited = now.saturating_since(since).as_micros();
        Entry {
            queue: SharedQueue::new(&self.settings.prefix, resource, self.queue_ticket),
            ask: None,
            waited_us: u64::try_from(waited).unwrap_or(u64::MAX),
            reservation_ms: self.reservation_ms(),
        }
    }

    /// The queue of the key of this lock.
    fn shared_queue(&mut self, id: LockId) -> Option<SharedQueue> {
        let Self { locks, keys, settings, queue_ticket, .. } = self;
        let lock = locks.get(id)?;
        let make = || SharedQueue::new(&settings.prefix, &lock.resource, *queue_ticket);
        Some(keys.queue(lock.key_use, make))
    }

    fn exit(
        &mut self,
        id: LockId,
        has_token: bool,
        gives_up_place: bool,
        leaving: Leaving,
    ) -> Option<Op> {
        let queue = self.shared_queue(id)?;
        let lock = self.locks.get(id)?;
        let exit = Exit {
            queue,
            token: has_token.then(|| lock.token.clone()),
            gives_up_place,
            reservation_ms: self.reservation_ms(),
            leaving,
        };
        Some(Op::leave(lock.key.clone(), exit))
    }

    pub(super) fn reservation(&self) -> Duration {
        let [least, most] = RESERVATION;
        (self.fan_out * 4).clamp(least, most)
    }

    fn reservation_ms(&self) -> u64 {
        u64::try_from(self.reservation().as_millis()).unwrap_or(u64::MAX)
    }

    /// The meeting point has answered to one who enters its queue.
    pub(super) fn entered(&mut self, id: LockId, vote: &Vote, now: Instant) {
        let ticket = self.queue_ticket;
        let Some(lock) = self.locks.get_mut(id) else { return };
        let Some(meeting) = &mut lock.meeting else { return };
        if meeting.at != vote.master || !std::mem::take(&mut meeting.is_open) {
            return;
        }
        meeting.answer = QueueAnswer::of(vote.master, &vote.answer, ticket);
        if vote.answer.queued.is_some() {
            self.waiters.broken.works(&lock.key, vote.master);
        }
        if is_queue_error(&vote.answer) {
            meeting.answer = Some(QueueAnswer::failed(vote.master));
            meeting.has_failed = true;
            let key = lock.key.clone();
            return self.waiters.broken.failed(&key, vote.master, now);
        }
        let others_wait = vote.answer.queued.is_some_and(|queued| queued.waiters > 0);
        let is_in = meeting.answer.is_none();
        meeting.others_wait |= others_wait && is_in;
        let is_lease = lock.is_lease();
        let key = lock.key.clone();
        match is_in {
            true if others_wait => self.others_wait(&key, now),
            true => self.keys.others_wait(&key, false),
            false => {}
        }
        if is_lease && !is_in {
            self.give_up_place_of(id, now);
        }
    }

    /// The time for answers is over: a meeting point that has not answered an entry or an exit is
    /// not used for a moment. A place that it may have given is given up afterwards.
    pub(super) fn meeting_point_silent(&mut self, id: LockId, now: Instant) {
        let Some(lock) = self.locks.get(id) else { return };
        let Some(at) = lock.meeting.as_ref().filter(|it| it.is_open).map(|it| it.at) else {
            return;
        };
        if lock.is_lease() {
            self.give_up_place_of(id, now);
        }
        self.suspect(at, now);
    }

    /// A lock was won, and the meeting point had no part in it: the place there is given up.
    pub(super) fn won_without(&mut self, id: LockId, now: Instant) {
        if let Some(lock) = self.locks.get(id)
            && let Some(meeting) = &lock.meeting
            && meeting.answer.is_some()
        {
            self.give_up_place_of(id, now);
        }
    }

    fn give_up_place_of(&mut self, id: LockId, now: Instant) {
        let Some(lock) = self.locks.get(id) else { return };
        let Some(at) = lock.meeting.as_ref().map(|meeting| meeting.at) else { return };
        let Some(op) = self.exit(id, false, true, Leaving::Undo) else { return };
        self.send(&op, MasterSet::from_iter([at]), Ticket::Exit(id), now);
    }

    /// The place at this master, or a reservation for us there, is given up: the next one is called.
    pub(super) fn give_up_place(&mut self, key: &[u8], at: usize, now: Instant) {
        let Some(name) = key.strip_prefix(&self.settings.prefix[..]) else { return };
        let exit = Exit {
            queue: SharedQueue::new(&self.settings.prefix, &name.into(), self.queue_ticket),
            token: None,
            gives_up_place: true,
            reservation_ms: self.reservation_ms(),
            leaving: Leaving::Undo,
        };
        let (op, ticket) = (Op::leave(key, exit), Ticket::Exit(LockId::default()));
        self.send(&op, MasterSet::from_iter([at]), ticket, now);
    }

    /// A master reports how many wait, in its answer to a release or to a place that was given up.
    pub(super) fn left_queue(&mut self, id: LockId, vote: &Vote, now: Instant) {
        let Some(queued) = vote.answer.queued else { return };
        let Some(lock) = self.locks.get_mut(id) else { return };
        let key = lock.key.clone();
        if queued.waiters > 0 {
            if let Some(meeting) = &mut lock.meeting {
                meeting.others_wait = true;
            }
            self.others_wait(&key, now);
        } else if vote.answer.verdict == Verdict::Granted {
            self.keys.left_unwanted(lock.key_use, vote.master, now);
            self.nobody_waits(&key, now);
        } else {
            // Another has it there: one that was called waits no more, and has no lock yet.
            self.keys.wanted(&key);
        }
    }

    /// Whether the script on the queue has failed for this attempt, which shows that its master
    /// answers.
    pub(super) fn has_queue_failed(&self, id: LockId) -> bool {
        let meeting = self.locks.get(id).and_then(|lock| lock.meeting.as_ref());
        meeting.is_some_and(|meeting| meeting.has_failed)
    }

    /// How an attempt was lost, for those that wait on.
    pub(super) fn refusal(&self, id: LockId, loss: &Loss) -> (Refusal, Option<QueueAnswer>) {
        let refusal = if loss.is_without_quorum { Refusal::NoQuorum } else { loss.refusal };
        let Some(meeting) = self.locks.get(id).and_then(|lock| lock.meeting.as_ref()) else {
            return (refusal, None);
        };
        let refusal = match refusal {
            _ if loss.defeat == Defeat::BallotRefused => Refusal::Silent,
            // That shows nothing about votes: the next attempt does without the queue.
            _ if meeting.has_failed => Refusal::Held,
            Refusal::Held | Refusal::Split if loss.is_let_in => Refusal::Alone,
            refusal => refusal,
        };
        (refusal, meeting.answer)
    }

    /// How an attempt that was not won leaves the meeting point, where its key may be there. An
    /// attempt whose caller goes on waiting in the queue there deletes its key as at every master.
    /// One that saw no quorum, and has no place there, calls nobody: they would see none either.
    pub(super) fn leave_after(&mut self, id: LockId, refusal: Refusal, now: Instant) {
        let Some(lock) = self.locks.get(id) else { return };
        let (at, gives_up) = match &lock.meeting {
            Some(meeting) if refusal == Refusal::Alone || meeting.answer.is_some() => return,
            Some(meeting) => (Some(meeting.at), true),
            None if refusal == Refusal::NoQuorum => return,
            None => (self.queue_of(&lock.key, now), false),
        };
        let exit = at.and_then(|at| Some((at, self.exit(id, true, gives_up, Leaving::Undo)?)));
        if let Some(lock) = self.locks.get_mut(id) {
            lock.exit = exit;
        }
    }

    /// The holder of a lease leaves it. If no caller has taken it, as so often before, the callers of
    /// this process let others go first.
    pub(super) fn end_untaken(&mut self, id: LockId, now: Instant) {
        let reservation = self.reservation();
        let Some(lock) = self.locks.get(id) else { return };
        let Some(acceptance) = lock.acceptance() else { return };
        let is_taken = acceptance == Acceptance::Accepted;
        let held_for = self.keys.held_for(lock.key_use, id, now).unwrap_or_default();
        let pause = self.keys.lease_ends(lock.key_use, is_taken, held_for, reservation);
        if let Some(pause) = pause {
            let key = lock.key.clone();
            let until = now.saturating_add(pause);
            self.stand_back(&key, |waiting| waiting.stand_back(until, now), now);
        }
    }

    /// The same after a run of leases, if no queue works.
    pub(super) fn end_unqueued(&mut self, id: LockId, now: Instant) {
        let Some(lock) = self.locks.get(id) else { return };
        if self.queue_of(&lock.key, now).is_some() {
            return;
        }
        let (key, leases) = (lock.key.clone(), u32::from(lock.hand_overs) + 1);
        let held_for = self.keys.held_for(lock.key_use, id, now).unwrap_or_default();
        let run = self.keys.run(lock.key_use);
        let pause = run.and_then(|run| run.lease_ends(leases, held_for, self.fan_out, now));
        if let Some(pause) = pause {
            let fan_out = self.fan_out;
            let stands_back =
                |waiting: &mut Waiting<RequestId>| waiting.stand_back_unqueued(pause, fan_out, now);
            self.stand_back(&key, stands_back, now);
        }
    }

    /// How a lease is left to those that wait.
    pub(super) fn leave_lease(&mut self, id: LockId, is_unwanted: bool, now: Instant) {
        if !self.settings.queue {
            return;
        }
        let Some(known) = self.known_of_others(id, is_unwanted, now) else { return };
        let leaving::Leaving::Query { reserves, presumes } = leaving::Leaving::of(known) else {
            return;
        };
        let Some(at) = self.left_at(id, now) else { return };
        let is_open =
            reserves && self.draws.number(Draw::Leave(id), now).is_multiple_of(OPEN_ONE_IN);
        let Some(lock) = self.locks.get(id) else { return };
        let key = lock.key.clone();
        let leaving = if is_open { Leaving::Open } else { Leaving::Done };
        let gives_up = self.waiters.place(&key) != Some(at);
        let exit = self.exit(id, true, gives_up, leaving).map(|op| (at, op));
        let reserve_ms = (reserves && !is_open).then(|| self.reservation_ms());
        if let Some(lock) = self.locks.get_mut(id) {
            (lock.exit, lock.reserve_ms) = (exit, reserve_ms);
        }
        if presumes {
            self.others_may_wait(&key, now);
        }
    }

    /// How a token is left whose lease this process may never have had: it may have been held for
    /// long, and others may wait.
    pub(super) fn leave_token(&mut self, id: LockId, now: Instant) {
        let at = self.locks.get(id).and_then(|lock| self.queue_of(&lock.key, now));
        let Some(at) = at.filter(|_| self.settings.queue) else { return };
        let exit = self.exit(id, true, false, Leaving::Done).map(|op| (at, op));
        if let Some(lock) = self.locks.get_mut(id) {
            lock.exit = exit;
        }
    }

    /// What is known about the processes that wait for the key of this lease.
    fn known_of_others(&self, id: LockId, is_unwanted: bool, now: Instant) -> Option<Known> {
        let lock = self.locks.get(id)?;
        let meeting = lock.meeting.as_ref();
        let others_wait = meeting.is_some_and(|meeting| meeting.others_wait);
        Some(Known {
            others_wait: others_wait || self.keys.is_waited_for(lock.key_use),
            is_unanswered: meeting.is_some_and(|meeting| meeting.is_unanswered()),
            was_held: lock.hand_overs > 0 || self.keys.was_held_before(lock.key_use),
            is_unwanted: is_unwanted && lock.hand_overs == 0,
            held_for: self.keys.held_for(lock.key_use, id, now),
            fan_out: self.fan_out,
        })
    }

    /// The meeting point at which this lease is left.
    fn left_at(&self, id: LockId, now: Instant) -> Option<usize> {
        let lock = self.locks.get(id)?;
        let met = lock.meeting.as_ref().map(|meeting| meeting.at);
        met.filter(|at| self.queue_works(&lock.key, *at, now))
            .or_else(|| self.queue_of(&lock.key, now))
    }

    /// Where contenders of the key meet: at a master whose queue has not failed, if there is one.
    pub(super) fn meeting_point_of(&self, key: &Arc<[u8]>, now: Instant) -> Option<usize> {
        let avoided = self.waiters.broken.avoided(key, self.masters.len(), now);
        self.masters.meeting_point(key, avoided, now)
    }

    /// Whether those that wait for the key at this master do so in a queue.
    fn queue_works(&self, key: &Arc<[u8]>, at: usize, now: Instant) -> bool {
        self.masters.has_queue(at) && !self.waiters.broken.has(key, at, now)
    }

    /// Where contenders of the key meet in a queue.
    pub(super) fn queue_of(&self, key: &Arc<[u8]>, now: Instant) -> Option<usize> {
        self.meeting_point_of(key, now).filter(|at| self.queue_works(key, *at, now))
    }

    /// Sends what a token leaves behind, in one turn, and to the meeting point first: the time in
    /// which it calls the next holder is enough for the others to be written to. One that asks
    /// them sooner is refused there, and asks again a few times. If this process ends in between,
    /// the key stays on the others for as long as it lives, as with any holder that dies.
    pub(super) fn send_exits(&mut self, id: LockId, masters: MasterSet, now: Instant) {
        let Some(lock) = self.locks.get_mut(id) else { return };
        let (exit, reserve_ms) = (lock.exit.take(), lock.reserve_ms.take());
        let of_lock = || (lock.key.clone(), lock.token.clone());
        let release = match (reserve_ms, &exit) {
            (Some(px), _) => {
                let (key, token) = of_lock();
                Op::reserve(key, token, px)
            }
            (None, Some((_, leave))) => leave.without_exit(),
            (None, None) => {
                let (key, token) = of_lock();
                Op::release(key, token)
            }
        };
        let met = MasterSet::from_iter(exit.as_ref().map(|(at, _)| *at));
        self.send(&release, masters.without(met), Ticket::Release(id), now);
        let Some((at, leave)) = exit else { return };
        self.driven_first |= 1 << at;
        // At a master that cannot have the key, it only calls the next one.
        let counts = masters.contains(at);
        let ticket = if counts { Ticket::Release(id) } else { Ticket::Exit(id) };
        self.send(&leave, met, ticket, now);
    }

    /// The reservations of the former holder are still on their way: they get about the time of a
    /// fan-out.
    pub(super) fn take_again_later(&mut self, id: LockId, now: Instant) {
        let pause = self.fan_out.mul_f64(0.6 + 0.4 * self.draws.unit(Draw::TakeAgain(id), now));
        self.timers.enter(now.saturating_add(pause), Due::TakeAgain(id));
    }
}

/// Whether the script has failed before it set the key.
pub(super) fn is_queue_error(answer: &Answer) -> bool {
    matches!(answer.verdict, Verdict::Unknown(Cause::ErrorReply(_))) && !answer.key_set
}

impl Meeting {
    /// Whether a token that came from the queue was granted before the meeting point has answered,
    /// and shown whether others wait.
    fn is_unanswered(&self) -> bool {
        self.is_open && self.takes
    }

    /// The request to enter the queue.
    pub(super) fn enter(&self, lock: &Lock, px: u64, bid: Option<Bid>) -> Op {
        let entry = Entry { ask: Some((lock.token.clone(), px)), ..self.entry.clone() };
        Op::enter(lock.key.clone(), entry, bid)
    }
}
