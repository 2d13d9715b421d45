//! `Waiting`: the callers of one process that wait for one key, of which only the first, the
//! *head*, talks to masters.
//!
//! A head that was refused watches the key at the *meeting point*, the one master at which all
//! contenders of the key meet, and sleeps. What wakes it and what it does then:
//!
//! | while | this happens | then |
//! |---|---|---|
//! | it watches | a push: the key has changed | it asks the meeting point first, at once |
//! | it watches | a push, and nothing came of the last three | it looks, when it would have without the push |
//! | it asks | it is refused, and not for the first time | it rests for a random time, during which nothing wakes it, and looks |
//! | it watches | the holder's remaining TTL is over | it asks all masters at once, because pushes of an expiry come late |
//! | it watches | a second has passed | it looks again: the answer shows that the connection lives |
//! | it looks | the key is free | it asks the meeting point first; after three such looks in a row it pauses as if nothing were known |
//! | it looks, or asks first | the meeting point is silent or lost | it pauses, and asks all masters at once |
//! | it watches or looks | the connection, or the data there, is lost | it asks all masters after a short pause |
//! | it asks | it is not served, and fewer masters vote than a quorum because some that are connected do not | it pauses for about a second (`pauses.rs`) |
//! | it pauses | a master votes that did not, and a quorum does | it asks all masters after a short pause |
//! | another caller of this process holds the key | that caller releases | it asks right behind the release, the meeting point first where other processes want the key, too |
//! | another caller of this process holds the key | that caller releases, and the key has gone from caller to caller here 31 times or for 100 ms | it looks, behind a random rest where other processes are known to want the key |
//! | nobody waits here, and this process has kept the key for 100 ms, or for a second where no other is known to want it | a caller asks again right behind the release | it looks, behind a random rest |
//!
//! A wrong or missing wake-up costs time and never safety: only attempts acquire anything.
//!
//! While a contended key goes from hand to hand quickly, most heads rest and few watch. Those few
//! are served within a few round trips of a release, and not every release wakes everybody. A rest
//! is wider the more often the head was refused, and narrower again with each key that it gets.

mod head;
mod pauses;
mod step;

use std::time::Duration;

use redlock_core::{Instant, Verdict};

use self::head::{Head, LOOK_AGAIN};
pub(crate) use self::step::{Ask, Refusal, Step};
use super::pushes::Pushes;
use super::queue::Queue;
use super::retry::REST_MAX;
use super::run;

#[cfg(test)]
mod tests;

/// How many looks in a row may find the key free and the attempt behind them refused.
const FREE_LOOKS_MAX: u32 = 3;
/// How long a key counts as contended after it was refused.
const CONTENDED: Duration = Duration::from_secs(1);
/// How often the callers of one process take the key from each other before those of other
/// processes get a chance.
const RUN_MAX: u32 = 31;

/// The callers that wait for one key, in the order in which they asked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Waiting<Id> {
    queue: Queue<Id>,
    head: Head,
    /// Refusals, less the keys that were won since: they widen the rest behind the next refusal.
    refusals: u32,
    pushes: Pushes,
    /// Looks in a row that found the key free.
    free_looks: u32,
    /// When this process was refused the key last, by another holder than itself.
    refused_at: Option<Instant>,
    /// Since when the key goes from caller to caller of this process, and how often it has.
    run: Option<(Instant, u32)>,
}

impl<Id: Copy + Ord> Waiting<Id> {
    /// A key that nothing waits for yet.
    pub(crate) fn new() -> Self {
        Self {
            queue: Queue::new(),
            head: Head::Idle,
            refusals: 0,
            pushes: Pushes::default(),
            free_looks: 0,
            refused_at: None,
            run: None,
        }
    }

    /// One more caller wants the key, which a caller of this process holds or does not.
    pub(crate) fn join(&mut self, caller: Id, is_held_here: bool, now: Instant) -> Step<Id> {
        self.queue.join(caller);
        match self.head {
            Head::Idle if is_held_here => self.await_release(now),
            Head::Idle => self.begin(now),
            _ => Step::Wait,
        }
    }

    /// One more caller wants the key, which this process has kept for so long that it is the turn
    /// of others. They get time to come out of a rest. Where none is known it is less, because most
    /// often there is none.
    pub(crate) fn join_late(&mut self, caller: Id, now: Instant, random: f64) -> Step<Id> {
        self.queue.join(caller);
        if self.head != Head::Idle {
            return Step::Wait;
        }
        let range = if self.is_contended(now) { REST_MAX } else { REST_MAX / 2 };
        self.head = Head::Resting { until: now.saturating_add(range.mul_f64(random)) };
        Step::Wait
    }

    /// A caller whose attempt is made without waiting here, or was and is lost, waits from now on.
    pub(crate) fn join_attempting(&mut self, caller: Id) -> bool {
        self.queue.join(caller);
        let is_head = self.head == Head::Idle;
        if is_head {
            self.head = Head::Attempting;
        }
        is_head
    }

    /// The head has the key: the next one waits until it is released here.
    pub(crate) fn won(&mut self, now: Instant) -> Step<Id> {
        if let Some(head) = self.head() {
            self.queue.leave(head);
        }
        self.refusals = self.refusals.saturating_sub(1);
        self.free_looks = 0;
        self.pushes.forget();
        self.await_release(now)
    }

    /// A caller of this process has released the key: the next one asks right behind the release,
    /// unless it is the turn of other processes. None of those can be as quick as that.
    /// One that watches is woken by its push, unless no other process wants the key.
    pub(crate) fn released(&mut self, now: Instant, random: f64) -> Step<Id> {
        let was_next = matches!(self.head, Head::AwaitingRelease { .. });
        if was_next && self.ends_run(now) {
            return self.let_others_have_it(now, random);
        }
        match self.head {
            Head::AwaitingRelease { .. } => self.begin(now),
            Head::Watching { .. } | Head::Resting { .. } if !self.is_contended(now) => {
                self.attempt(Ask::All)
            }
            _ => Step::Wait,
        }
    }

    /// Callers of other processes, which a push has woken, ask sooner than a head that looks. Where
    /// there are such, they get time to come out of a rest, too.
    fn let_others_have_it(&mut self, now: Instant, random: f64) -> Step<Id> {
        if !self.is_contended(now) {
            return Step::Look;
        }
        self.head = Head::Resting { until: now.saturating_add(REST_MAX.mul_f64(random)) };
        Step::Wait
    }

    /// Whether other processes are to get a chance now. Then the next run begins.
    fn ends_run(&mut self, now: Instant) -> bool {
        let (since, times) = self.run.unwrap_or((now, 0));
        let is_over = times >= RUN_MAX || now.saturating_since(since) >= run::CONTENDED;
        self.run = (!is_over).then_some((since, times + 1));
        is_over
    }

    /// The attempt of the head was lost to a caller of this process.
    pub(crate) fn lost_here(&mut self, now: Instant) -> Step<Id> {
        self.await_release(now)
    }

    /// The attempt of the head was lost.
    pub(crate) fn lost(
        &mut self,
        refusal: Refusal,
        now: Instant,
        fan_out: Duration,
        random: f64,
    ) -> Step<Id> {
        self.refusals = self.refusals.saturating_add(1);
        self.run = None;
        match refusal {
            Refusal::Held if self.is_contended(now) => {
                self.refused_at = Some(now);
                self.rest(now, fan_out, random)
            }
            Refusal::Held => {
                self.refused_at = Some(now);
                Step::Look
            }
            Refusal::Split => {
                self.refused_at = Some(now);
                let pause = fan_out + (fan_out * 2).mul_f64(random);
                self.pause(now.saturating_add(pause), Ask::MeetingPointFirst)
            }
            Refusal::Silent => self.pause_blindly(now, fan_out, random),
        }
    }

    /// The look goes to this master; none where no master can report changes.
    pub(crate) fn look_sent(
        &mut self,
        at: Option<usize>,
        now: Instant,
        fan_out: Duration,
        random: f64,
    ) -> Step<Id> {
        match at {
            Some(at) => {
                self.head = Head::Looking { at };
                Step::Wait
            }
            None => self.pause_blindly(now, fan_out, random),
        }
    }

    /// What the meeting point `at` answered to the look.
    pub(crate) fn looked(
        &mut self,
        at: usize,
        verdict: &Verdict,
        now: Instant,
        fan_out: Duration,
        random: f64,
    ) -> Step<Id> {
        if self.head != (Head::Looking { at }) {
            return Step::Wait;
        }
        match verdict {
            Verdict::Free if self.free_looks < FREE_LOOKS_MAX => {
                self.free_looks += 1;
                self.attempt(Ask::MeetingPointFirst)
            }
            Verdict::Held { token, ttl } => {
                self.free_looks = 0;
                self.pushes.saw(token.as_deref(), *ttl, now);
                self.head = Head::watching(at, *ttl, now, random);
                Step::Wait
            }
            _ => self.pause_blindly(now, fan_out, random),
        }
    }

    /// The master `at` reports that the key has changed. Where such reports were of no use, the
    /// head looks when it would have without one.
    pub(crate) fn changed(&mut self, at: usize) -> Step<Id> {
        if !self.head.is_at(at) {
            return Step::Wait;
        }
        self.pushes.pushed();
        if !self.pushes.are_useless() {
            return self.attempt(Ask::MeetingPointFirst);
        }
        if let Head::Watching { until, .. } = self.head {
            self.head = Head::Resting { until };
        }
        Step::Wait
    }

    /// When [`tick`](Self::tick) has something to do.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.head.due()
    }

    /// Time has passed.
    pub(crate) fn tick(&mut self, now: Instant) -> Step<Id> {
        if matches!(self.head, Head::Watching { until, .. } if until <= now) {
            self.pushes.forget();
        }
        match self.head {
            Head::Pausing { until, ask } if until <= now => self.attempt(ask),
            Head::Watching { until, expires: true, .. } if until <= now => self.attempt(Ask::All),
            Head::Resting { until }
            | Head::Watching { until, .. }
            | Head::AwaitingRelease { look_at: until }
                if until <= now =>
            {
                Step::Look
            }
            _ => Step::Wait,
        }
    }

    /// A caller does not wait any longer. Its turn goes to the one behind it.
    ///
    /// What a head has begun goes on for the next one. An attempt does not: its caller's end is the
    /// end of the attempt, and the next one begins anew.
    pub(crate) fn leave(&mut self, caller: Id, now: Instant) -> Step<Id> {
        let was_head = self.head() == Some(caller);
        self.queue.leave(caller);
        if self.queue.is_empty() {
            self.head = Head::Idle;
        } else if was_head && self.head == Head::Attempting {
            return self.begin(now);
        }
        Step::Wait
    }

    /// Whether an attempt is made for the head.
    pub(crate) fn is_attempting(&self) -> bool {
        self.head == Head::Attempting
    }

    /// Whether the head waits for the answer to a look.
    pub(crate) fn is_looking(&self) -> bool {
        matches!(self.head, Head::Looking { .. })
    }

    /// All callers, in order.
    #[cfg(test)]
    pub(crate) fn callers(&self) -> impl Iterator<Item = Id> {
        self.queue.iter()
    }

    /// The caller whose turn it is.
    pub(crate) fn head(&self) -> Option<Id> {
        self.queue.first()
    }

    /// Whether nothing waits here, and nothing is worth remembering.
    pub(crate) fn is_over(&self, now: Instant) -> bool {
        let remembered = self.remembered_until().is_some_and(|until| now < until);
        self.queue.is_empty() && self.head == Head::Idle && !remembered
    }

    /// Until when a queue without callers is of use: it says that the key is contended, or how long
    /// this process has kept it. Where two callers take turns, the queue is empty in between.
    pub(crate) fn remembered_until(&self) -> Option<Instant> {
        let run = self.run.map(|(since, _)| since.saturating_add(CONTENDED));
        self.contended_until().max(run)
    }

    /// Until when the key counts as contended, where it does.
    fn contended_until(&self) -> Option<Instant> {
        self.refused_at.map(|at| at.saturating_add(CONTENDED))
    }

    pub(crate) fn is_contended(&self, now: Instant) -> bool {
        self.contended_until().is_some_and(|until| now < until)
    }

    /// A caller that wants a key which was refused a moment ago asks the meeting point first:
    /// votes do not split then, and a refusal costs one command.
    fn begin(&mut self, now: Instant) -> Step<Id> {
        let is_contended = self.is_contended(now);
        self.attempt(if is_contended { Ask::MeetingPointFirst } else { Ask::All })
    }

    /// No look is needed while it is known who holds the key; one a second all the same, because a
    /// holder that never returns says nothing.
    fn await_release(&mut self, now: Instant) -> Step<Id> {
        self.head = match self.queue.is_empty() {
            true => Head::Idle,
            false => Head::AwaitingRelease { look_at: now.saturating_add(LOOK_AGAIN) },
        };
        Step::Wait
    }

    fn attempt(&mut self, ask: Ask) -> Step<Id> {
        match self.head() {
            Some(head) => {
                self.head = Head::Attempting;
                Step::Attempt(head, ask)
            }
            None => {
                self.head = Head::Idle;
                Step::Wait
            }
        }
    }
}
