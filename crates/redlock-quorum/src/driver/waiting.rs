//! Callers that wait for a key: one queue for each key, whose head alone talks to masters.

mod broken;
mod watches;

use std::collections::HashMap;
use std::sync::Arc;

use redlock_core::Instant;
use redlock_protocol::client::table::Table;
use redlock_protocol::token::attempt::Defeat;
use redlock_protocol::waiting::{Ask, Moment, QueueAnswer, Refusal, Step, Waiting};

use self::broken::BrokenQueues;
use super::Driver;
use super::command::Request;
use redlock_protocol::client::draws::Draw;
use redlock_protocol::client::ids::{InspectionId, LockId, RequestId, WaitingId};
use redlock_protocol::client::line::Outgoing;
use redlock_protocol::client::timers::Due;

/// The queues, by key and by the name that timers and votes have for them.
#[derive(Default)]
pub(super) struct Waiters {
    queues: Table<WaitingId, Queue>,
    by_key: HashMap<Arc<[u8]>, WaitingId>,
    /// The queues that do not work.
    pub(super) broken: BrokenQueues,
}

/// The callers that wait for one key.
#[derive(Default)]
struct Queue {
    key: Arc<[u8]>,
    waiting: Waiting<RequestId>,
    /// When its head is scheduled next.
    scheduled: Option<Instant>,
    /// The number of its last watch.
    watch: u32,
    /// The master that was asked in it.
    watch_at: usize,
    /// The last caller that made its last attempt here.
    last: Option<RequestId>,
    /// When an attempt for this key was lost last.
    lost_at: Option<Instant>,
    /// The last question for callers whose wait was over.
    explanation: Option<InspectionId>,
}

impl Waiters {
    pub(super) fn contains(&self, id: WaitingId) -> bool {
        self.queues.contains(id)
    }

    /// The caller whose turn it is.
    pub(super) fn head(&self, id: WaitingId) -> Option<RequestId> {
        self.queues.get(id)?.waiting.head()
    }

    /// The caller that waits for what this process holds, while nothing is asked for it.
    pub(super) fn next_here(&self, id: WaitingId) -> Option<RequestId> {
        let waiting = &self.queues.get(id)?.waiting;
        waiting.head().filter(|_| waiting.awaits_release())
    }

    pub(super) fn of(&self, key: &[u8]) -> Option<WaitingId> {
        if self.by_key.is_empty() { None } else { self.by_key.get(key).copied() }
    }

    fn enter(&mut self, key: &Arc<[u8]>) -> WaitingId {
        if let Some(id) = self.of(key) {
            return id;
        }
        let id = self.queues.insert(Queue { key: key.clone(), ..Queue::default() });
        self.by_key.insert(key.clone(), id);
        id
    }

    /// The master at which this process has a place in the queue of the key, or may have.
    pub(super) fn place(&self, key: &[u8]) -> Option<usize> {
        self.queues.get(self.of(key)?)?.waiting.place()
    }

    /// Whether the last attempt of this process for the key saw no quorum.
    pub(super) fn is_without_quorum(&self, key: &[u8]) -> bool {
        let queue = self.of(key).and_then(|id| self.queues.get(id));
        queue.is_some_and(|queue| queue.waiting.is_without_quorum())
    }

    /// The attempt of the head asks to enter the queue of the master `at`. Returns from when on its
    /// wait counts, at the earliest.
    pub(super) fn enter_at(&mut self, key: &[u8], at: usize) -> Option<Instant> {
        let waiting = &mut self.queues.get_mut(self.of(key)?)?.waiting;
        waiting.entering(at);
        Some(waiting.since())
    }

    /// Removes all queues, with their record of contention.
    pub(super) fn clear(&mut self) {
        self.queues.clear();
        self.by_key.clear();
    }
}

impl Driver {
    /// A caller that may wait asks at once where nobody else of this process asks for the key or
    /// holds it. Otherwise it stands behind them.
    pub(super) fn ask_or_queue(&mut self, id: RequestId, now: Instant) {
        let Some(request) = self.requests.get_mut(id) else { return };
        let key = request.key.clone();
        let has_queue = self.waiters.of(&key).is_some();
        let known = if has_queue {
            self.keys.of(&key)
        } else {
            // Its caller is the first one, or others have an entry already.
            request.key_use = self.keys.enter(&key);
            self.keys.get(request.key_use).unwrap_or_default()
        };
        let (entry, is_held_here, asker) = (request.key_use, known.is_held(), known.asker);
        if !has_queue && !is_held_here && asker.is_none() {
            self.keys.ask(entry, id);
            return self.stand_in_line(id);
        }
        self.limit_waiting(id);
        self.say_request(id, "wait in the queue");
        let queue = self.waiters.enter(&key);
        if let Some(asker) = asker {
            self.begin_queue(queue, &key, asker, now);
        }
        let step = self.waiters.queues[queue].waiting.join(id, is_held_here, now);
        self.step(queue, step, now);
    }

    /// The caller that asks for the key is the head of those that wait for it from now on.
    fn begin_queue(&mut self, queue: WaitingId, key: &[u8], asker: RequestId, now: Instant) {
        self.keys.end_asking(key, asker);
        self.limit_waiting(asker);
        self.waiters.queues[queue].waiting.join_attempting(asker, now);
    }

    /// An attempt was lost by a caller that goes on waiting. `told` is the answer of the meeting
    /// point when it did not let the attempt in.
    pub(super) fn wait_on(
        &mut self,
        id: RequestId,
        refusal: Refusal,
        answer: Option<QueueAnswer>,
        now: Instant,
    ) {
        let Some(request) = self.requests.get_mut(id) else { return };
        request.is_attempted = false;
        let key = request.key.clone();
        self.keys.end_asking(&key, id);
        self.say_request(id, "wait");
        let queue = self.waiters.enter(&key);
        if self.waiters.queues[queue].waiting.head() != Some(id) {
            self.limit_waiting(id);
            if !self.waiters.queues[queue].waiting.join_attempting(id, now) {
                // Others were first: it waits behind them.
                return;
            }
        }
        let (is_held_here, moment) = (self.keys.of(&key).is_held(), self.moment(queue, now));
        let lacks_votes = self.masters.lacks_votes();
        let waiting = &mut self.waiters.queues[queue].waiting;
        let step = match refusal {
            Refusal::Held | Refusal::Split if is_held_here => waiting.lost_here(answer, now),
            _ if lacks_votes => waiting.lost_for_want_of_votes(moment),
            refusal => waiting.lost(refusal, answer, moment),
        };
        self.step(queue, step, now);
    }

    /// The parameters of pauses that begin now.
    pub(super) fn moment(&self, id: WaitingId, now: Instant) -> Moment {
        let random = self.draws.unit(Draw::Wait(id), now);
        Moment { now, fan_out: self.fan_out, random }
    }

    /// Others wait for the key: those of this process that come next ask at the meeting point
    /// first.
    pub(super) fn others_wait(&mut self, key: &Arc<[u8]>, now: Instant) {
        self.keys.wanted(key);
        self.keys.others_wait(key, true);
        self.others_may_wait(key, now);
    }

    /// The same, until the meeting point has answered.
    pub(super) fn others_may_wait(&mut self, key: &Arc<[u8]>, now: Instant) {
        let queue = self.waiters.enter(key);
        self.waiters.queues[queue].waiting.others_wait(now);
        self.schedule_waiting(queue, now);
    }

    /// The callers of this process let others go first.
    pub(super) fn stand_back(
        &mut self,
        key: &Arc<[u8]>,
        stands_back: impl FnOnce(&mut Waiting<RequestId>) -> Step<RequestId>,
        now: Instant,
    ) {
        let queue = self.waiters.enter(key);
        let step = stands_back(&mut self.waiters.queues[queue].waiting);
        self.step(queue, step, now);
    }

    /// The meeting point has answered that nobody waits for the key.
    pub(super) fn nobody_waits(&mut self, key: &[u8], now: Instant) {
        self.keys.others_wait(key, false);
        if let Some(queue) = self.waiters.of(key) {
            self.waiters.queues[queue].waiting.nobody_waits();
            self.schedule_waiting(queue, now);
        }
    }

    /// A request that waits for the key does so until its wait is over.
    fn limit_waiting(&mut self, id: RequestId) {
        if let Some(until) = self.requests.get(id).and_then(|request| request.until) {
            self.timers.enter(until, Due::Wait(id));
        }
    }

    /// A caller has the key: from here on those behind it wait for its release.
    pub(super) fn key_won(&mut self, lock: LockId, id: RequestId, request: &Request, now: Instant) {
        let key = &request.key;
        let known = {
            // A lease that was resumed is older than its lock here.
            let since = request.resume.is_none().then_some(now);
            self.keys.won(key, request.key_use, (id, lock), since)
        };
        if let Some(lock) = self.locks.get_mut(lock) {
            lock.key_use = known;
        }
        let Some(queue) = self.waiters.of(key) else { return };
        let waiting = &mut self.waiters.queues[queue].waiting;
        if waiting.head() == Some(id) {
            let step = waiting.won(now);
            self.step(queue, step, now);
        }
    }

    /// A caller of this process does not hold the key any more: its release stands in line, or its
    /// lease is over.
    pub(super) fn key_left(&mut self, id: LockId, now: Instant) {
        let Some(lock) = self.locks.get(id) else { return };
        if !self.keys.left(lock.key_use, id) {
            return;
        }
        let Some(queue) = self.waiters.of(&lock.key) else { return };
        let step = self.waiters.queues[queue].waiting.released(now);
        self.step(queue, step, now);
    }

    /// Carries out what the machine wants, and sets the head's alarm.
    pub(super) fn step(&mut self, id: WaitingId, step: Step<RequestId>, now: Instant) {
        let mut step = step;
        loop {
            step = match step {
                Step::Wait => return self.schedule_waiting(id, now),
                Step::Watch => self.watch(id, now),
                Step::Queue => {
                    self.line.push(Outgoing::Place(id));
                    Step::Wait
                }
                Step::Leave(at) => {
                    if let Some(queue) = self.waiters.queues.get(id) {
                        let key = queue.key.clone();
                        self.give_up_place(&key, at, now);
                    }
                    Step::Wait
                }
                Step::Attempt(request, _) if self.is_lost_since(id, request) => {
                    self.answer_with_others(request, id);
                    self.waiters.queues[id].waiting.leave(request, now)
                }
                Step::Attempt(request, ask) => match self.requests.get_mut(request) {
                    Some(entry) if !entry.reply.is_closed() => {
                        entry.ask = ask;
                        entry.is_attempted = true;
                        self.line.push(Outgoing::Attempt(request));
                        Step::Wait
                    }
                    // The caller is gone: its turn goes to the next.
                    _ => {
                        self.cancelled(request);
                        self.waiters.queues[id].waiting.leave(request, now)
                    }
                },
            };
        }
    }

    /// Whether an attempt for the key was lost since the wait of this caller was over: an attempt
    /// of its own would show nothing more. A driver that is late would attempt for one caller after
    /// the other, because the end of a wait is noticed only after the runtime has checked its
    /// sockets.
    fn is_lost_since(&self, id: WaitingId, request: RequestId) -> bool {
        let until = self.requests.get(request).and_then(|request| request.until);
        let lost_at = self.waiters.queues.get(id).and_then(|queue| queue.lost_at);
        until.zip(lost_at).is_some_and(|(until, lost_at)| until <= lost_at)
    }

    /// An attempt for the key was lost.
    pub(super) fn key_refused(&mut self, key: &[u8], now: Instant) {
        self.keys.wanted(key);
        if let Some(queue) = self.waiters.of(key) {
            self.waiters.queues[queue].lost_at = Some(now);
        }
    }

    fn schedule_waiting(&mut self, id: WaitingId, now: Instant) {
        let Some(queue) = self.waiters.queues.get_mut(id) else { return };
        if queue.waiting.is_over(now) {
            self.waiters.by_key.remove(&queue.key);
            self.waiters.queues.remove(id);
            return;
        }
        // An idle queue is remembered for as long as its key counts as contended.
        let forgotten = Some(queue.waiting.remembered_until()).filter(|until| *until > now);
        let Some(due) = queue.waiting.due().or(forgotten) else { return };
        if queue.scheduled.is_none_or(|scheduled| due < scheduled) {
            queue.scheduled = Some(due);
            self.timers.enter(due, Due::Waiting(id, due));
        }
    }

    /// The head of a queue has something to do.
    pub(super) fn waiting_due(&mut self, id: WaitingId, at: Instant, now: Instant) {
        let Some(queue) = self.waiters.queues.get_mut(id) else { return };
        if queue.scheduled != Some(at) {
            return;
        }
        queue.scheduled = None;
        let step = queue.waiting.tick(now);
        if matches!(step, Step::Attempt(..)) {
            self.observer.counters.polls.add(1);
        }
        self.step(id, step, now);
    }

    /// The event for which heads pause may have come, or may never come: each head makes one
    /// attempt.
    pub(super) fn end_pauses(&mut self, now: Instant) {
        let ids: Vec<WaitingId> = self.waiters.queues.ids().collect();
        for id in ids {
            let moment = self.moment(id, now);
            let step = self.waiters.queues[id].waiting.votes_gained(moment);
            self.step(id, step, now);
        }
    }

    /// The wait of a request is over. The head makes its last attempt; the others are answered with
    /// the masters' present answers. A caller that becomes the head because the wait of the head
    /// before it ended at the same time counts as one of the others: its attempt would show nothing
    /// more.
    pub(super) fn wait_due(&mut self, id: RequestId, now: Instant) {
        let Some(request) = self.requests.get(id).filter(|request| !request.is_attempted) else {
            return;
        };
        let Some(queue) = self.waiters.of(&request.key) else { return };
        let Queue { waiting, last, .. } = &mut self.waiters.queues[queue];
        let is_head = waiting.head() == Some(id);
        if is_head && waiting.is_attempting() {
            // It stands in line: its attempt is its last.
            return;
        }
        let has_others = last.is_some_and(|last| self.requests.contains(last));
        let attempts = is_head && !has_others;
        *last = if attempts { Some(id) } else { *last };
        let step = waiting.leave(id, now);
        if attempts {
            self.requests[id].ask = Ask::All;
            self.stand_in_line(id);
        } else {
            self.answer_with_others(id, queue);
        }
        self.step(queue, step, now);
    }

    /// Callers of one queue whose waits end within the time of one question share it.
    fn answer_with_others(&mut self, id: RequestId, queue: WaitingId) {
        let Some(request) = self.requests.remove(id) else { return };
        let explanation = self.waiters.queues.get(queue).and_then(|queue| queue.explanation);
        let unshared = match explanation {
            Some(explanation) => self.share_explanation(explanation, request),
            None => Some(request),
        };
        if let Some(request) = unshared {
            let explanation = self.explain(request, Defeat::Outvoted, Vec::new());
            if let Some(queue) = self.waiters.queues.get_mut(queue) {
                queue.explanation = Some(explanation);
            }
        }
    }

    /// Nobody here waits any more: those behind in the queues of other processes are called, and
    /// need not wait for what is reserved for this one.
    pub(super) fn give_up_places(&mut self, now: Instant) {
        let place = |queue: &Queue| Some((queue.key.clone(), queue.waiting.place()?));
        let places: Vec<_> = self.waiters.queues.values().filter_map(place).collect();
        for (key, at) in places {
            self.give_up_place(&key, at, now);
        }
    }

    /// A caller is gone. Where an attempt is made for it, that ends first, and then it is found to
    /// be gone.
    pub(super) fn withdrawn(&mut self, id: RequestId, now: Instant) {
        let is_attempted = self.requests.get(id).is_none_or(|request| request.is_attempted);
        if !is_attempted && let Some(request) = self.cancelled(id) {
            self.left_waiting(id, &request.key, now);
        }
    }

    /// The caller of a request is gone.
    pub(super) fn cancelled(&mut self, id: RequestId) -> Option<Request> {
        let request = self.requests.remove(id);
        self.observer.counters.cancelled.add(u64::from(request.is_some()));
        request
    }

    /// A caller has its answer: it waits no longer.
    pub(super) fn left_waiting(&mut self, id: RequestId, key: &[u8], now: Instant) {
        self.keys.end_asking(key, id);
        let Some(queue) = self.waiters.of(key) else { return };
        let step = self.waiters.queues[queue].waiting.leave(id, now);
        self.step(queue, step, now);
    }
}
