//! The machine with all that the driver does for it, and the rules that hold at every event.

use std::time::Duration;

use redlock_core::{Cause, Instant, Verdict};

use crate::protocol::retry::REST_MAX;
use crate::protocol::waiting::{Ask, Head, LOOK_AGAIN, Refusal, Step, Waiting};

pub(super) const FAN_OUT: Duration = Duration::from_micros(300);
const RANDOM: f64 = 0.5;
const MASTERS: usize = 3;

/// What can happen to the callers of a key.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    Join {
        is_held_here: bool,
    },
    Won,
    Lost(Refusal),
    LostHere,
    /// Fewer masters vote than a quorum.
    LostForWantOfVotes,
    VotesGained,
    Released,
    /// This master answers the look that it was sent.
    Answer(usize, Said),
    Pushed(usize),
    LostSight(usize),
    /// The alarm of the machine, or the end of the time that a master has to answer a look.
    Due,
    LeaveFirst,
    LeaveLast,
    Leave(u32),
}

/// What a master answers to a look.
#[derive(Clone, Copy, Debug)]
pub(super) enum Said {
    Free,
    Held,
    /// By one that does not give it back.
    HeldForGood,
    Nothing,
}

impl Said {
    pub(super) const ALL: [Self; 3] = [Self::Free, Self::Held, Self::Nothing];

    pub(super) fn verdict(self) -> Verdict {
        match self {
            Self::Free => Verdict::Free,
            Self::Held => Verdict::Held { token: None, ttl: Some(Duration::from_millis(300)) },
            Self::HeldForGood => Verdict::HELD,
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
    /// The master that was sent the last look, and has not answered it.
    pub(super) looking: Option<usize>,
    /// Masters that cannot be reached any more.
    is_lost: [bool; MASTERS],
}

impl World {
    pub(super) fn new() -> Self {
        Self {
            waiting: Waiting::new(),
            now: Instant::ORIGIN,
            next: 0,
            attempting: None,
            looking: None,
            is_lost: [false; MASTERS],
        }
    }

    /// The same after all these events.
    pub(super) fn after(events: &[Event]) -> Self {
        let mut world = Self::new();
        events.iter().for_each(|event| world.happen(*event));
        world
    }

    /// Lets it happen, where it can happen now.
    pub(super) fn happen(&mut self, event: Event) {
        let now = self.now;
        match event {
            Event::Join { is_held_here } if self.waiting.callers().count() < 3 => {
                self.next += 1;
                let step = self.waiting.join(self.next, is_held_here, now);
                self.carry_out(step);
            }
            Event::Won if self.attempt_ends() => {
                let step = self.waiting.won(now);
                assert_eq!(step, Step::Wait, "the next one waits for the release");
            }
            Event::Lost(refusal) if self.attempt_ends() => {
                let step = self.waiting.lost(refusal, now, FAN_OUT, RANDOM);
                self.carry_out(step);
            }
            Event::LostHere if self.attempt_ends() => {
                let step = self.waiting.lost_here(now);
                self.carry_out(step);
            }
            Event::LostForWantOfVotes if self.attempt_ends() => {
                let step = self.waiting.lost_for_want_of_votes(now, RANDOM);
                assert_eq!(step, Step::Wait, "no attempt can be won");
                assert!(self.waiting.due() >= Some(now.saturating_add(LOOK_AGAIN / 2)));
            }
            Event::VotesGained => self.gain_votes(),
            Event::Released => {
                let step = self.waiting.released(now, RANDOM);
                self.carry_out(step);
            }
            Event::Answer(at, said) if self.looking == Some(at) => self.answer(at, said),
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
        self.looking = None;
        let before = self.waiting.clone();
        let step = self.waiting.looked(at, &said.verdict(), self.now, FAN_OUT, RANDOM);
        if before.head != (Head::Looking { at }) {
            assert_eq!((step, &self.waiting), (Step::Wait, &before), "nothing looks there");
        }
        self.carry_out(step);
    }

    /// A head that watches or looks at that master asks at once, and no other head is woken.
    fn push(&mut self, at: usize) {
        let before = self.waiting.clone();
        let step = self.waiting.changed(at);
        match (watched(&before), before.head()) {
            (Some(watched), Some(_)) if watched == at && before.pushes.are_useless() => {
                assert_eq!((step, self.waiting.due()), (Step::Wait, before.due()));
            }
            (Some(watched), Some(head)) if watched == at => {
                assert_eq!(step, Step::Attempt(head, Ask::MeetingPointFirst));
            }
            _ => assert_eq!((step, &self.waiting), (Step::Wait, &before)),
        }
        self.carry_out(step);
    }

    /// What that master has not answered is unknown before its connection is reported as lost.
    fn lose_sight(&mut self, at: usize) {
        self.is_lost[at] = true;
        if self.looking == Some(at) {
            self.answer(at, Said::Nothing);
        }
        let before = self.waiting.clone();
        let step = self.waiting.lost_sight(at, self.now, FAN_OUT, RANDOM);
        assert_eq!(step, Step::Wait, "contenders do not come in step");
        self.check_waking(&before, at);
    }

    /// A head that watches or looks at that master is woken, and no other head is.
    fn check_waking(&self, before: &Waiting<u32>, at: usize) {
        match self.waiting.head {
            Head::Pausing { until, ask } if watched(before) == Some(at) => {
                assert_eq!(ask, Ask::All);
                let pause = until.saturating_since(self.now);
                assert!(Duration::ZERO < pause && pause <= REST_MAX, "{pause:?}");
            }
            _ if watched(before) == Some(at) => panic!("{before:?} slept on: {:?}", self.waiting),
            _ => assert_eq!(&self.waiting, before, "it has nothing to do with that master"),
        }
    }

    fn let_time_pass(&mut self) {
        if let Some(due) = self.waiting.due() {
            self.now = self.now.max(due);
            let step = self.waiting.tick(self.now);
            let did = step != Step::Wait || self.waiting.due().is_none_or(|next| next > due);
            assert!(did, "an alarm that does nothing rings for ever");
            self.carry_out(step);
        } else if let Some(at) = self.looking {
            self.answer(at, Said::Nothing);
        }
    }

    /// A head that pauses goes on within a rest, or when it would have; no other head is woken.
    fn gain_votes(&mut self) {
        let before = self.waiting.clone();
        let step = self.waiting.votes_gained(self.now, FAN_OUT, RANDOM);
        assert_eq!(step, Step::Wait, "heads do not come in step");
        if let Head::Pausing { .. } = before.head {
            let latest = self.now.saturating_add(REST_MAX);
            assert!(self.waiting.due() <= before.due().min(Some(latest)), "{before:?}");
        } else {
            assert_eq!(self.waiting, before);
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
            None => assert_eq!((step, self.waiting.head), (Step::Wait, Head::Idle)),
        }
        self.carry_out(step);
    }

    fn carry_out(&mut self, step: Step<u32>) {
        match step {
            Step::Wait => {}
            Step::Attempt(caller, _) => {
                assert_eq!(self.attempting, None, "one attempt at a time");
                assert_eq!(Some(caller), self.waiting.head(), "only the head asks");
                self.attempting = Some(caller);
            }
            Step::Look => {
                assert!(!self.waiting.is_looking(), "one look at a time");
                self.looking = (0..MASTERS).find(|at| !self.is_lost[*at]);
                let step = self.waiting.look_sent(self.looking, self.now, FAN_OUT, RANDOM);
                self.carry_out(step);
            }
        }
    }

    /// A caller that waits is brought on by an attempt, a look or an alarm: no state is a dead end.
    fn check(&self, event: Event) {
        let waits = self.waiting.head().is_some();
        let goes_on = self.attempting.is_some()
            || self.waiting.is_looking() && self.looking.is_some()
            || self.waiting.due().is_some();
        assert_eq!(waits, goes_on, "{event:?} led to a dead end or a ghost: {:?}", self.waiting);
        let sleep = self.waiting.due().map(|due| due.saturating_since(self.now));
        assert!(sleep <= Some(LOOK_AGAIN), "every sleep ends within a second: {:?}", self.waiting);
    }
}

/// The master at which the head watches or looks.
fn watched(waiting: &Waiting<u32>) -> Option<usize> {
    match waiting.head {
        Head::Looking { at } | Head::Watching { at, .. } => Some(at),
        _ => None,
    }
}
