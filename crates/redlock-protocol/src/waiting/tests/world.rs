//! The machine with all that the driver does for it, and the rules that hold at every event.

use std::time::Duration;

use redlock_core::{Call, Cause, Instant, Verdict};

use crate::waiting::{Ask, Head, Moment, QueueAnswer, Refusal, Step, WATCH_AGAIN, Waiting};

pub(super) const FAN_OUT: Duration = Duration::from_micros(300);
const RANDOM: f64 = 0.5;
const MASTERS: usize = 3;

/// The events of the callers of a key.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    Join {
        is_held_here: bool,
    },
    Won,
    Lost(Refusal),
    /// The meeting point did not let the head in.
    NotLetIn(Place),
    LostHere,
    /// Fewer masters vote than a quorum.
    LostForWantOfVotes,
    VotesGained,
    Released,
    /// This master answers the watch, or the request for a place, that it was sent.
    Answer(usize, Said),
    Called(usize, Call),
    Pushed(usize),
    LostSight(usize),
    /// The alarm of the machine, or the end of the time that a master has to answer a watch.
    Due,
    LeaveFirst,
    LeaveLast,
    Leave(u32),
}

/// The answer of a master to a watch, or to the request for a place.
#[derive(Clone, Copy, Debug)]
pub(super) enum Said {
    Free,
    Held,
    Nothing,
}

/// The head's place in the queue.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    First,
    Behind(u32),
    BehindThoseThatAreGone,
    OursIsReserved,
    Full,
    /// There is no place, because the script has failed.
    Failed,
}

impl Place {
    pub(super) const ALL: [Self; 6] = [
        Self::First,
        Self::Behind(2),
        Self::BehindThoseThatAreGone,
        Self::OursIsReserved,
        Self::Full,
        Self::Failed,
    ];

    pub(super) fn answered(self, at: usize) -> QueueAnswer {
        let rank = match self {
            Self::First => Some(0),
            Self::Behind(rank) => Some(rank),
            Self::BehindThoseThatAreGone => Some(7),
            Self::OursIsReserved | Self::Full | Self::Failed => None,
        };
        let is_free = matches!(self, Self::BehindThoseThatAreGone);
        let is_reserved_for_us = matches!(self, Self::OursIsReserved);
        let others_wait = !matches!(self, Self::First);
        let (reserved_for, has_failed) = (None, matches!(self, Self::Failed));
        QueueAnswer { at, rank, others_wait, is_free, is_reserved_for_us, reserved_for, has_failed }
    }
}

impl Said {
    pub(super) const ALL: [Self; 3] = [Self::Free, Self::Held, Self::Nothing];

    pub(super) fn verdict(self) -> Verdict {
        match self {
            Self::Free => Verdict::Free,
            Self::Held => Verdict::Held { token: None, ttl: Some(Duration::from_millis(3_000)) },
            Self::Nothing => Verdict::Unknown(Cause::TimedOut),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct World {
    pub(super) waiting: Waiting<u32>,
    pub(super) now: Instant,
    next: u32,
    /// The caller whose attempt is under way.
    pub(super) attempting: Option<u32>,
    /// The master that was sent the last watch or request for a place, and has not answered it.
    pub(super) asked: Option<usize>,
    /// A request for a place is under way.
    is_queueing: bool,
    /// Masters that are no longer reachable.
    is_lost: [bool; MASTERS],
    /// The places given up so far.
    pub(super) left: Vec<usize>,
}

impl World {
    pub(super) fn new() -> Self {
        Self {
            waiting: Waiting::new(),
            now: Instant::ORIGIN,
            next: 0,
            attempting: None,
            asked: None,
            is_queueing: false,
            is_lost: [false; MASTERS],
            left: Vec::new(),
        }
    }

    /// The same after all these events.
    pub(super) fn after(events: &[Event]) -> Self {
        let mut world = Self::new();
        events.iter().for_each(|event| world.happen(*event));
        world
    }

    /// The present moment, with the middle one of all random draws.
    pub(super) fn moment(&self) -> Moment {
        moment(self.now, RANDOM)
    }

    /// Lets it happen, if it can happen now.
    pub(super) fn happen(&mut self, event: Event) {
        let (now, moment) = (self.now, self.moment());
        match event {
            Event::Join { is_held_here } if self.waiting.callers().count() < 3 => {
                self.next += 1;
                let step = self.waiting.join(self.next, is_held_here, now);
                self.carry_out(step);
            }
            Event::Won if self.attempt_ends() => {
                let step = self.waiting.won(now);
                assert_eq!(step, Step::Wait, "the next one waits for the release");
                assert_eq!(self.waiting.place(), None);
            }
            Event::Lost(refusal) if self.attempt_ends() => {
                let step = self.waiting.lost(refusal, None, moment);
                self.carry_out(step);
            }
            Event::NotLetIn(place) if self.waiting.place().is_some() && self.attempt_ends() => {
                let at = self.waiting.place().unwrap();
                let step = self.waiting.lost(Refusal::Held, Some(place.answered(at)), moment);
                self.carry_out(step);
            }
            Event::LostHere if self.attempt_ends() => {
                let step = self.waiting.lost_here(None, moment);
                self.carry_out(step);
            }
            Event::LostForWantOfVotes if self.attempt_ends() => {
                let step = self.waiting.lost_for_want_of_votes(None, moment);
                assert_eq!(step, Step::Wait, "no attempt can be won");
                assert!(self.waiting.due() >= Some(now.saturating_add(WATCH_AGAIN / 2)));
            }
            Event::VotesGained => {
                let step = self.waiting.votes_gained(moment);
                assert_eq!(step, Step::Wait, "heads do not come at the same time");
            }
            Event::Released => {
                let step = self.waiting.released(now);
                self.carry_out(step);
            }
            Event::Answer(at, said) if self.asked == Some(at) => self.answer(at, said),
            Event::Called(at, call) => self.call(at, call),
            Event::Pushed(at) => self.push(at),
            Event::LostSight(at) => self.lose_sight(at),
            Event::Due => self.let_time_pass(),
            Event::LeaveFirst => self.leave(self.waiting.head()),
            Event::LeaveLast => self.leave(self.waiting.callers().last()),
            Event::Leave(caller) => self.leave(Some(caller)),
            _ => {}
        }
        self.check(event);
    }

    /// The attempt that is under way is the head's, and it is over.
    fn attempt_ends(&mut self) -> bool {
        self.attempting.is_some() && self.attempting.take() == self.waiting.head()
    }

    fn answer(&mut self, at: usize, said: Said) {
        self.asked = None;
        let (before, moment) = (self.waiting.clone(), self.moment());
        let step = match (std::mem::take(&mut self.is_queueing), said) {
            (_, Said::Nothing) => self.waiting.silent(at, moment),
            (true, Said::Held) => self.waiting.queued(at, Some(Place::First.answered(at)), moment),
            (true, Said::Free) => self.waiting.queued(at, Some(Place::Full.answered(at)), moment),
            (false, said) => self.waiting.watch_answered(at, &said.verdict(), moment),
        };
        if !before.head.is_at(at) {
            assert_eq!((step, &self.waiting), (Step::Wait, &before), "nothing looks there");
        }
        self.carry_out(step);
    }

    /// A called head takes the key, unless it already requests it or has no place there.
    fn call(&mut self, at: usize, call: Call) {
        let before = self.waiting.clone();
        let reservation = Duration::from_millis(50);
        let step = self.waiting.called(at, call, reservation, self.moment());
        let is_placed = before.place() == Some(at) && before.head().is_some();
        match (call, before.head) {
            (Call::Go, _) if !is_placed => assert_eq!(step, Step::Leave(at)),
            (Call::Go, Head::Attempting { .. }) => assert_eq!(step, Step::Wait),
            (Call::Go, Head::AwaitingRelease { .. }) => assert_eq!(step, Step::Leave(at)),
            (Call::Go, _) => assert!(matches!(step, Step::Attempt(_, Ask::Called)), "{step:?}"),
            (_, _) if !is_placed => assert_eq!((step, &self.waiting), (Step::Wait, &before)),
            _ => assert_eq!(step, Step::Wait, "not immediately"),
        }
        self.carry_out(step);
    }

    /// A head that watches at that master continues, and no other head does.
    fn push(&mut self, at: usize) {
        let before = self.waiting.clone();
        let step = self.waiting.changed(at, self.moment());
        if before.head.is_watching(at) {
            let is_pause = matches!(self.waiting.head, Head::Pausing { .. } | Head::Aside { .. });
            let asks = matches!(step, Step::Attempt(_, Ask::First));
            assert!(asks || is_pause, "{before:?} slept on: {:?}", self.waiting);
        } else {
            assert_eq!((step, &self.waiting), (Step::Wait, &before));
        }
        self.carry_out(step);
    }

    /// Unanswered requests to that master are unknown before its connection is reported as lost.
    fn lose_sight(&mut self, at: usize) {
        self.is_lost[at] = true;
        if self.asked == Some(at) {
            self.answer(at, Said::Nothing);
        }
        let before = self.waiting.clone();
        let step = self.waiting.lost_sight(at, self.moment());
        assert_eq!(step, Step::Wait, "contenders do not come at the same time");
        assert_ne!(self.waiting.place(), Some(at), "it no longer has a place there");
        if !before.head.is_at(at) {
            assert_eq!(self.waiting.head, before.head);
        } else {
            assert!(matches!(self.waiting.head, Head::Pausing { ask: Ask::First, .. }));
        }
    }

    fn let_time_pass(&mut self) {
        if let Some(due) = self.waiting.due() {
            self.now = self.now.max(due);
            let step = self.waiting.tick(self.now);
            assert_ne!(step, Step::Wait, "a useless alarm rings forever");
            self.carry_out(step);
        } else if let Some(at) = self.asked {
            self.answer(at, Said::Nothing);
        }
    }

    /// The driver ends the attempt of a caller that has gone.
    fn leave(&mut self, caller: Option<u32>) {
        let Some(caller) = caller else { return };
        let before = self.waiting.clone();
        let was_attempting = self.attempting == Some(caller);
        if was_attempting {
            self.attempting = None;
        }
        let step = self.waiting.leave(caller, self.now);
        let left: Vec<u32> = before.callers().filter(|waiting| *waiting != caller).collect();
        assert_eq!(self.waiting.callers().collect::<Vec<_>>(), left, "the others keep their order");
        match left.first() {
            Some(next) if was_attempting => {
                assert!(matches!(step, Step::Attempt(caller, _) if caller == *next), "{step:?}");
            }
            Some(_) => assert_eq!((step, self.waiting.head), (Step::Wait, before.head)),
            None => {
                let wanted = before.place().map_or(Step::Wait, Step::Leave);
                assert_eq!((step, self.waiting.head), (wanted, Head::Idle));
            }
        }
        self.carry_out(step);
    }

    fn carry_out(&mut self, step: Step<u32>) {
        match step {
            Step::Wait => {}
            Step::Attempt(caller, ask) => {
                assert_eq!(self.attempting, None, "one attempt at a time");
                assert_eq!(Some(caller), self.waiting.head(), "only the head sends requests");
                self.attempting = Some(caller);
                let at = self.meeting_point();
                if let Some(at) = at.filter(|_| ask != Ask::All || self.waiting.place().is_some()) {
                    self.waiting.entering(at);
                }
            }
            Step::Watch | Step::Queue => {
                self.asked = self.meeting_point();
                self.is_queueing = step == Step::Queue;
                let moment = self.moment();
                let step = match step {
                    Step::Queue => self.waiting.queue_sent(self.asked, moment),
                    _ => self.waiting.watch_sent(self.asked, moment),
                };
                self.carry_out(step);
            }
            Step::Leave(at) => self.left.push(at),
        }
    }

    fn meeting_point(&self) -> Option<usize> {
        self.waiting.place().or_else(|| (0..MASTERS).find(|at| !self.is_lost[*at]))
    }

    /// For each caller that waits an attempt, a watch or an alarm is pending: no state is a dead
    /// end.
    fn check(&self, event: Event) {
        let waits = self.waiting.head().is_some();
        let goes_on = self.attempting.is_some()
            || self.waiting.is_asking() && self.asked.is_some()
            || self.waiting.due().is_some();
        assert_eq!(waits, goes_on, "{event:?} led to a dead end or a ghost: {:?}", self.waiting);
        assert!(waits || self.waiting.place().is_none(), "{event:?} left a place");
        let sleep = self.waiting.due().map(|due| due.saturating_since(self.now));
        assert!(sleep <= Some(WATCH_AGAIN.mul_f64(1.25)), "sleeps are short: {:?}", self.waiting);
    }
}

pub(super) fn moment(now: Instant, random: f64) -> Moment {
    Moment { now, fan_out: FAN_OUT, random }
}
