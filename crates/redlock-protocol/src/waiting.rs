//! `Waiting`: the callers of one process that wait for one key. Only the first of them, the *head*,
//! sends requests to masters.
//!
//! All processes that wait for a key share one queue, at the *meeting point* of the key, M. A
//! process that enters it takes the key at M if it is its turn, and gets a place otherwise. A
//! release leaves a reservation at M for the first in the queue and calls that process, which then
//! takes the key at M and at the other masters in one turn. The head acts as follows:
//!
//! | while | this happens | then |
//! |---|---|---|
//! | it requests from all masters | it is refused | it enters the queue at M |
//! | it enters | others are ahead of it | it sleeps for 0.3 s, 0.1 s more for each further one, 0.8 s at most, or 1 ms for each of them, and enters again, which renews its place |
//! | it enters | others are ahead of it, and the key is reserved for a different process | it enters again shortly after the reservation, because those ahead may have stopped |
//! | it enters | others are ahead of it and M has no key | M has dropped as many departed waiters as it does in one request: it enters again immediately, 160 times at most |
//! | it enters | it is the first, and the key is taken | it watches the key at M, because a holder that knows of no waiter calls none |
//! | it watches | M answers that the key is free | it enters again |
//! | it enters | the script on the queue fails | it enters at another master, or requests the key from M without a queue |
//! | it watches | a push: the key has changed | it enters. If the same holder had it after the last three pushes, it enters when it would have without a push |
//! | it watches | the holder's TTL, or 100 ms, or twice the previous time, is over | it enters, and requests from the others at the same time, so that an orphan at M does not block it |
//! | it has a place | *go* | it takes the key at M and at the others in one turn |
//! | it has a place | *next* | it enters when the reservation before it must be over |
//! | it has a place | *try* | it pauses for up to two fan-outs, and enters. If M has a key, it sleeps until it has seen that key for as long as an attempt takes, and continues as after *go* |
//! | it has no place at that master | *go* | it leaves the queue there: the next one is called |
//! | it requests | M has granted and too few of the others, of which a quorum answered | it takes a place again without requesting the key, and sleeps |
//! | it requests | M does not answer, or ballots are refused | it has left the queue, pauses, and enters at M |
//! | it requests | no quorum answers | it has left the queue, pauses for 0.1 s at most, and requests from all masters without entering: it calls no waiter, and no release calls it |
//! | it requests | it is not served, and fewer masters vote than a quorum because some connected ones do not | it pauses for about a second |
//! | it sleeps, or watches | the connection to M, or the data there, is lost | it enters at the next M after a short random pause |
//! | it pauses | a master votes that did not, and a quorum does | it enters after a short random pause |
//! | another caller of this process holds the key | that caller releases | it sends its request directly after the release: to M first if others want the key too, or if M has just been queried (see [`leaving`]) and has not answered |
//! | another caller of this process holds the key | it does not take it, the third in a row (see [`untaken`]) | it leaves the queue, pauses, and enters at M |
//! | its last caller gives up | | it leaves the queue |
//!
//! **Without a queue at M** (the server pushes nothing, the user lacks a right, memory or queue are
//! full, the script fails), the head watches the key at M like the first waiter in a queue. If the
//! key stays free, it requests the key from M first (see `unqueued`). After a [run](run::Run) of
//! leases, the callers of this process let other processes go first.
//!
//! A wrong or missing wake-up costs time and never safety: only attempts acquire anything.

mod head;
pub mod leaving;
mod pauses;
pub mod run;
mod step;
mod unqueued;
pub mod untaken;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use redlock_core::{Call, Instant, Verdict};

use self::head::{Head, WATCH_AGAIN};
use self::leaving::fresh_for;
pub use self::step::{Ask, Moment, QueueAnswer, Refusal, Step};
use super::queue::Queue;

#[cfg(test)]
mod tests;

/// The largest number of times a head immediately enters again because departed waiters fill the
/// queue. M drops 64 of them each time, and holds 10,000 at most.
const DROPS_MAX: u32 = 160;
/// After this many useless pushes in a row, the next one is followed by a pause, because a server
/// whose table of watched keys is full immediately reports changes that never happened.
const PUSHES_MAX: u32 = 3;
/// Earliest and latest time after the end of a reservation at which the next waiter enters.
const BEHIND_RESERVATION: [Duration; 2] = [Duration::from_millis(2), Duration::from_millis(5)];

/// The callers that wait for one key, in order of arrival.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Waiting<Id> {
    queue: Queue<Id>,
    head: Head,
    /// The master at which this process has a place, or may have.
    place: Option<usize>,
    /// Sleeps that nothing ended sooner, and refusals without a queue: they widen the next one.
    tries: u32,
    /// How often the head has immediately entered again because of departed waiters, since it
    /// began, found the key taken, was the first, or found the queue full.
    entries: u32,
    /// Pushes after which the same holder still had the key, since the last sleep without a push.
    pushes: u32,
    /// The holder that was seen last, and since when.
    seen: (u64, Instant),
    /// M has told the head to try, and it has not seen since who has the key there.
    is_tried: bool,
    /// The wait of the head counts from here at the earliest.
    since: Instant,
    /// Since when this process waits, or has had no lease.
    waits_since: Instant,
    /// When the key was watched last.
    watched_at: Instant,
    /// Other processes go first until then.
    back_until: Instant,
    /// They watch the key then, because no queue works.
    watches_then: bool,
    /// Until then, others are assumed to want the key.
    contended_until: Instant,
    /// The last attempt saw no quorum.
    is_without_quorum: bool,
}

impl<Id: Copy + Ord> Default for Waiting<Id> {
    fn default() -> Self {
        Self::new()
    }
}

impl<Id: Copy + Ord> Waiting<Id> {
    /// Creates the state of a key without waiters.
    pub fn new() -> Self {
        Self {
            queue: Queue::new(),
            head: Head::Idle,
            place: None,
            tries: 0,
            entries: 0,
            pushes: 0,
            seen: (0, Instant::ORIGIN),
            is_tried: false,
            since: Instant::ORIGIN,
            waits_since: Instant::ORIGIN,
            watched_at: Instant::ORIGIN,
            back_until: Instant::ORIGIN,
            watches_then: false,
            contended_until: Instant::ORIGIN,
            is_without_quorum: false,
        }
    }

    /// Adds a caller that wants the key. `is_held_here` means that a caller of this process holds
    /// it.
    pub fn join(&mut self, caller: Id, is_held_here: bool, now: Instant) -> Step<Id> {
        self.waits_from(now);
        self.queue.join(caller);
        match self.head {
            Head::Idle if is_held_here => self.await_release(now),
            Head::Idle => self.begin(now),
            _ => Step::Wait,
        }
    }

    /// Adds a caller whose attempt runs without waiting here, or was lost.
    pub fn join_attempting(&mut self, caller: Id, now: Instant) -> bool {
        self.waits_from(now);
        self.queue.join(caller);
        let is_head = self.head == Head::Idle;
        if is_head {
            self.head = Head::attempting(Ask::All);
        }
        is_head
    }

    fn waits_from(&mut self, now: Instant) {
        if self.queue.is_empty() {
            self.waits_since = now;
        }
    }

    /// Records that the attempt of the head enters the queue of the master `at`.
    pub fn entering(&mut self, at: usize) {
        self.place = Some(at);
    }

    /// Records that the head has the key and no longer has a place. The next caller waits until the
    /// key is released here. Its wait starts now, because a process with many callers would
    /// otherwise be served for each of them before a process that arrived later.
    pub fn won(&mut self, now: Instant) -> Step<Id> {
        if let Some(head) = self.head() {
            self.queue.leave(head);
        }
        let had_place = self.place.take().is_some();
        if std::mem::take(&mut self.is_without_quorum) || had_place {
            self.tries = 0;
        }
        (self.pushes, self.since, self.waits_since) = (0, now, now);
        self.is_tried = false;
        self.await_release(now)
    }

    /// Records that a caller of this process has released the key. The next caller sends its
    /// request directly after the release, and queues after the processes that already wait. If
    /// each caller's own wait were used, a process with many callers would have more turns than
    /// others.
    pub fn released(&mut self, now: Instant) -> Step<Id> {
        (self.since, self.waits_since) = (now, now);
        match self.head {
            Head::AwaitingRelease { .. } | Head::Watching { .. } | Head::Asleep { .. } => {
                self.begin(now)
            }
            _ => Step::Wait,
        }
    }

    /// Makes the callers of this process let others go first until then: see [`untaken`].
    pub fn stand_back(&mut self, until: Instant) -> Step<Id> {
        self.back_until = until;
        self.place.take().map_or(Step::Wait, Step::Leave)
    }

    /// Records that other processes wait for the key by a master's report, or may wait because the
    /// master has not answered yet. That is assumed until then.
    pub fn others_wait(&mut self, until: Instant) {
        self.contended_until = self.contended_until.max(until);
    }

    /// Records M's report that no process waits for the key.
    pub fn nobody_waits(&mut self) {
        self.contended_until = Instant::ORIGIN;
    }

    /// Records an answer that shows that others want the key.
    fn contends(&mut self, at: Moment) {
        self.others_wait(at.now.saturating_add(fresh_for(at.fan_out)));
    }

    /// Handles an attempt of the head that was lost to a caller of this process. `answer` is as in
    /// [`lost`](Self::lost).
    pub fn lost_here(&mut self, answer: Option<QueueAnswer>, at: Moment) -> Step<Id> {
        if answer.is_some_and(|answer| answer.others_wait) {
            self.contends(at);
        }
        self.await_release(at.now)
    }

    /// Handles a lost attempt of the head. `answer` is the answer of M if it did not let the head
    /// in.
    pub fn lost(&mut self, refusal: Refusal, answer: Option<QueueAnswer>, at: Moment) -> Step<Id> {
        let Head::Attempting { ask, is_called } = self.head else { return Step::Wait };
        if refusal == Refusal::NoQuorum {
            return self.lost_without_quorum(answer, at);
        }
        if std::mem::take(&mut self.is_without_quorum) {
            self.tries = 0;
        }
        if refusal != Refusal::Silent {
            self.contends(at);
        }
        match (refusal, answer) {
            (Refusal::Held | Refusal::Split, Some(_)) if is_called => self.attempt(Ask::Called),
            (Refusal::Held | Refusal::Split, Some(answer)) => self.answered(answer, at),
            (Refusal::Held | Refusal::Split, None) if ask == Ask::All => self.attempt(Ask::First),
            (Refusal::Held, None) => Step::Watch,
            (Refusal::Split, None) => {
                let pause = at.fan_out + (at.fan_out * 2).mul_f64(at.random);
                self.pause(at.now.saturating_add(pause), Ask::First)
            }
            (Refusal::Alone, _) => Step::Queue,
            (Refusal::Silent | Refusal::NoQuorum, answer) => {
                // The start of the wait stays, because a ballot is also refused if another process
                // was faster.
                self.pause_blindly(at);
                self.leave_place(answer)
            }
        }
    }

    /// M has not let the head in, and reports the state of the key.
    fn answered(&mut self, answer: QueueAnswer, at: Moment) -> Step<Id> {
        self.contends(at);
        if answer.has_failed {
            // The next attempt enters the queue of another master, or does without one.
            self.place = None;
            return self.attempt(Ask::First);
        }
        if answer.is_reserved_for_us {
            return self.attempt(Ask::Called);
        }
        let is_behind_others = answer.rank.is_some_and(|rank| rank > 0);
        if !(is_behind_others && answer.is_free) {
            self.entries = 0;
        }
        match answer.rank {
            // The queue is full.
            None => {
                self.place = None;
                Step::Watch
            }
            Some(0) => Step::Watch,
            Some(_) if answer.is_free && self.entries < DROPS_MAX => {
                self.entries += 1;
                self.attempt(Ask::First)
            }
            Some(rank) => self.sleep_behind(rank, answer, at),
        }
    }

    /// Records the master that was sent the request for a place without the key. `None` if there is
    /// no queue.
    pub fn queue_sent(&mut self, master: Option<usize>, at: Moment) -> Step<Id> {
        let Some(master) = master else { return self.pause_blindly(at) };
        (self.place, self.head) = (Some(master), Head::Queueing { at: master });
        Step::Wait
    }

    /// Handles the answer of M to that request. `None` if it did not answer.
    pub fn queued(&mut self, master: usize, answer: Option<QueueAnswer>, at: Moment) -> Step<Id> {
        match (self.head, answer) {
            (Head::Queueing { at }, _) if at != master => Step::Wait,
            (Head::Queueing { .. }, Some(answer)) => self.answered(answer, at),
            (Head::Queueing { .. }, None) => self.silent(master, at),
            _ => Step::Wait,
        }
    }

    /// Handles a master that has not answered the watch, or the request for a place.
    pub fn silent(&mut self, master: usize, at: Moment) -> Step<Id> {
        if !self.is_asking() || !self.head.is_at(master) {
            return Step::Wait;
        }
        self.pause_blindly(at);
        self.place.take().map_or(Step::Wait, Step::Leave)
    }

    /// Records the master that was sent the watch. `None` if no master can report changes.
    pub fn watch_sent(&mut self, master: Option<usize>, at: Moment) -> Step<Id> {
        let Some(master) = master else { return self.pause_blindly(at) };
        // Directly after a place without the key, an immediate new request is useless.
        let enters = !matches!(self.head, Head::Queueing { .. });
        self.watched_at = at.now;
        self.head = Head::Watching { at: master, enters };
        Step::Wait
    }

    /// Handles the answer of the meeting point to the watch.
    pub fn watch_answered(&mut self, master: usize, verdict: &Verdict, at: Moment) -> Step<Id> {
        let Head::Watching { at: watches, enters } = self.head else { return Step::Wait };
        if watches != master {
            return Step::Wait;
        }
        if *verdict == Verdict::Free {
            // The key has changed.
            self.pushes = 0;
        }
        match verdict {
            Verdict::Free if enters && self.place.is_some() => self.attempt(Ask::First),
            Verdict::Free if enters => self.stay_apart(master, at),
            Verdict::Free => self.watch(master, None, at),
            Verdict::Held { token, ttl } => {
                self.saw(token.as_deref(), at.now);
                self.watch(master, *ttl, at)
            }
            _ => self.pause_blindly(at),
        }
    }

    /// Remembers the holder. A push is useful if the holder has changed.
    fn saw(&mut self, token: Option<&str>, now: Instant) {
        let mut hasher = DefaultHasher::new();
        token.hash(&mut hasher);
        let holder = hasher.finish();
        if self.seen.0 != holder {
            self.seen = (holder, now);
            self.pushes = 0;
        }
    }

    /// Handles a report of the master `at` that the key has changed.
    pub fn changed(&mut self, master: usize, at: Moment) -> Step<Id> {
        if !self.head.is_watching(master) {
            return Step::Wait;
        }
        self.pushes = self.pushes.saturating_add(1);
        let is_useless = self.pushes > PUSHES_MAX;
        match self.head {
            Head::Asleep { until, ask, .. } if is_useless => {
                self.tries = self.tries.saturating_add(1);
                self.pause(until, ask)
            }
            _ if is_useless => {
                self.pause(at.now.saturating_add(WATCH_AGAIN.mul_f64(at.random)), Ask::First)
            }
            _ if self.place.is_some() => self.attempt(Ask::First),
            _ => self.watch_later(at),
        }
    }

    /// M calls this process. `reservation` is how long those before it have to come.
    pub fn called(
        &mut self,
        master: usize,
        call: Call,
        reservation: Duration,
        at: Moment,
    ) -> Step<Id> {
        let is_placed = self.place == Some(master) && self.queue.first().is_some();
        match (&mut self.head, call) {
            (_, Call::Go) if !is_placed => Step::Leave(master),
            (Head::AwaitingRelease { .. } | Head::Idle, Call::Go) => Step::Leave(master),
            (_, _) if !is_placed => Step::Wait,
            // It finds out by itself, unless M has answered already.
            (Head::Attempting { is_called, .. }, Call::Go) => {
                *is_called = true;
                Step::Wait
            }
            (_, Call::Go) => {
                self.tries = 0;
                self.attempt(Ask::Called)
            }
            (Head::Asleep { .. } | Head::Watching { .. }, Call::Try) => {
                let pause = (at.fan_out * 2).mul_f64(at.random);
                let until = at.now.saturating_add(pause);
                self.is_tried = true;
                self.pause(until, Ask::First)
            }
            (Head::Asleep { until, ask, .. }, Call::Next) => {
                let [least, most] = BEHIND_RESERVATION;
                let behind = reservation + least + (most - least).mul_f64(at.random);
                *until = at.now.saturating_add(behind).min(*until);
                *ask = Ask::First;
                self.tries = 0;
                Step::Wait
            }
            _ => Step::Wait,
        }
    }

    /// Returns when [`tick`](Self::tick) has something to do.
    pub fn due(&self) -> Option<Instant> {
        self.head.due()
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Instant) -> Step<Id> {
        match self.head {
            Head::Pausing { until, ask } if until <= now => self.attempt(ask),
            Head::Aside { until } if until <= now => Step::Watch,
            Head::Asleep { until, ask, .. } if until <= now => {
                (self.tries, self.pushes) = (self.tries.saturating_add(1), 0);
                self.attempt(ask)
            }
            // The holder here may have lost the key.
            Head::AwaitingRelease { ask_at } if ask_at <= now => self.attempt(Ask::First),
            _ => Step::Wait,
        }
    }

    /// Removes a caller. Its turn goes to the next caller.
    ///
    /// A watch or a pause that a head has begun continues for the next head. An attempt ends with
    /// its caller, and the next head starts over.
    pub fn leave(&mut self, caller: Id, now: Instant) -> Step<Id> {
        let was_head = self.head() == Some(caller);
        self.queue.leave(caller);
        if self.queue.is_empty() {
            self.head = Head::Idle;
            return self.place.take().map_or(Step::Wait, Step::Leave);
        }
        if was_head && self.is_attempting() {
            return self.begin(now);
        }
        Step::Wait
    }

    /// Returns `true` if an attempt for the head is under way.
    pub fn is_attempting(&self) -> bool {
        matches!(self.head, Head::Attempting { .. })
    }

    /// Returns `true` if the head waits for a caller of this process, and sends no request until
    /// then.
    pub fn awaits_release(&self) -> bool {
        matches!(self.head, Head::AwaitingRelease { .. })
    }

    /// Returns `true` if the head waits for the answer to a watch, or to the request for a place.
    pub fn is_asking(&self) -> bool {
        matches!(self.head, Head::Watching { .. } | Head::Queueing { .. })
    }

    /// Returns the master at which this process has a place, or may have one.
    pub fn place(&self) -> Option<usize> {
        self.place
    }

    /// Returns `true` if the last attempt reached no quorum, so that the next one must find out if
    /// there is one.
    pub fn is_without_quorum(&self) -> bool {
        self.is_without_quorum
    }

    /// Returns the earliest start of the head's wait.
    pub fn since(&self) -> Instant {
        self.since
    }

    /// Returns all callers, in order.
    #[cfg(test)]
    pub fn callers(&self) -> impl Iterator<Item = Id> {
        self.queue.iter()
    }

    /// Returns the caller whose turn it is.
    pub fn head(&self) -> Option<Id> {
        self.queue.first()
    }

    /// Returns `true` if there are no callers and nothing worth remembering.
    pub fn is_over(&self, now: Instant) -> bool {
        self.queue.is_empty() && self.head == Head::Idle && now >= self.remembered_until()
    }

    /// Returns until when a queue without callers is kept.
    pub fn remembered_until(&self) -> Instant {
        self.back_until.max(self.contended_until)
    }

    /// Returns `true` if others want the key, as far as this process knows.
    pub fn is_contended(&self, now: Instant) -> bool {
        now < self.contended_until
    }

    /// Starts with the meeting point if others also want the key, so that votes do not split and
    /// earlier waiters are served first.
    fn begin(&mut self, now: Instant) -> Step<Id> {
        self.entries = 0;
        let watches = std::mem::take(&mut self.watches_then);
        if now < self.back_until {
            return match watches {
                true => self.step_aside(self.back_until),
                false => self.pause(self.back_until, Ask::First),
            };
        }
        let enters = self.is_contended(now) && !self.is_without_quorum;
        self.attempt(if enters { Ask::First } else { Ask::All })
    }

    /// Sends no request while the holder is known to be in this process, except once per second,
    /// because the end of a holder that never returns is not reported.
    fn await_release(&mut self, now: Instant) -> Step<Id> {
        self.head = match self.queue.is_empty() {
            true => Head::Idle,
            false => Head::AwaitingRelease { ask_at: now.saturating_add(WATCH_AGAIN) },
        };
        Step::Wait
    }

    fn attempt(&mut self, ask: Ask) -> Step<Id> {
        match self.head() {
            Some(head) => {
                self.head = Head::attempting(ask);
                Step::Attempt(head, ask)
            }
            None => {
                self.head = Head::Idle;
                Step::Wait
            }
        }
    }
}
