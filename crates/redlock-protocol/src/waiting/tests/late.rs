//! A process with two callers that have the key in turn, and a waiting process: every order in
//! which requests and answers arrive. The answer to a release may come long after the next request.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use crate::waiting::leaving::{Known, Leaving};

/// The largest number of holds that can overtake a queued process.
const PASSED_MAX: u8 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Key {
    Free,
    OfHolder,
    Reserved,
    OfWaiter,
}

/// A request of the holder's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Asked {
    Delete,
    Leave,
    SetIfFree,
    Enter,
    Take,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Holder {
    Holds,
    Asks,
    Queued,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Waiter {
    Comes,
    Watches,
    IsCalled,
    Takes,
    Served,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    meeting_point: Key,
    /// The other masters, which are a quorum.
    others: Key,
    to_meeting_point: VecDeque<Asked>,
    to_others: VecDeque<Asked>,
    /// Answers to releases: others wait.
    answers: VecDeque<bool>,
    holder: Holder,
    waiter: Waiter,
    /// The holder's process queries M first.
    is_contended: bool,
    passed: u8,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Releases,
    AtMeetingPoint,
    AtOthers,
    Answered,
    WaiterAtMeetingPoint,
    WaiterAtOthers,
}

const EVENTS: [Event; 6] = [
    Event::Releases,
    Event::AtMeetingPoint,
    Event::AtOthers,
    Event::Answered,
    Event::WaiterAtMeetingPoint,
    Event::WaiterAtOthers,
];

type Rule = fn(Known) -> Leaving;

impl World {
    fn begin() -> Self {
        Self {
            meeting_point: Key::OfHolder,
            others: Key::OfHolder,
            to_meeting_point: VecDeque::new(),
            to_others: VecDeque::new(),
            answers: VecDeque::new(),
            holder: Holder::Holds,
            waiter: Waiter::Comes,
            is_contended: false,
            passed: 0,
        }
    }

    /// Lets it happen. `None` if it cannot happen now.
    fn after(mut self, event: Event, rule: Rule) -> Option<Self> {
        match event {
            Event::Releases if self.holder == Holder::Holds && self.is_small() => {
                self.release(rule);
            }
            Event::Releases => return None,
            Event::AtMeetingPoint => {
                let asked = self.to_meeting_point.pop_front()?;
                self.at_meeting_point(asked);
            }
            Event::AtOthers => {
                let asked = self.to_others.pop_front()?;
                self.at_others(asked);
            }
            Event::Answered => self.is_contended = self.answers.pop_front()?,
            Event::WaiterAtMeetingPoint => self.waiter_at_meeting_point()?,
            Event::WaiterAtOthers => self.waiter_at_others()?,
        }
        Some(self)
    }

    /// So few requests and answers are on their way that the states can be exhausted.
    fn is_small(&self) -> bool {
        self.to_meeting_point.len() <= 4 && self.answers.len() <= 2
    }

    /// After a long hold, and directly after that comes the request of the next caller.
    fn release(&mut self, rule: Rule) {
        let held_for = Some(Duration::from_secs(4));
        let fan_out = Duration::from_millis(1);
        let known = Known { held_for, fan_out, was_held: true, ..Known::default() };
        let (leaves, presumes) = match rule(known) {
            Leaving::Plain => (Asked::Delete, false),
            Leaving::Query { presumes, .. } => (Asked::Leave, presumes),
        };
        self.is_contended |= presumes;
        self.to_meeting_point.push_back(leaves);
        self.to_others.push_back(Asked::Delete);
        self.holder = Holder::Asks;
        if self.is_contended {
            self.to_meeting_point.push_back(Asked::Enter);
        } else {
            self.to_meeting_point.push_back(Asked::SetIfFree);
            self.to_others.push_back(Asked::SetIfFree);
        }
    }

    fn at_meeting_point(&mut self, asked: Asked) {
        let is_ours = self.meeting_point == Key::OfHolder;
        let stands = self.waiter == Waiter::Watches;
        match asked {
            Asked::Delete if is_ours => self.meeting_point = Key::Free,
            Asked::Leave => {
                self.answers.push_back(stands);
                match (self.meeting_point, stands) {
                    (Key::OfHolder | Key::Free, true) => {
                        (self.meeting_point, self.waiter) = (Key::Reserved, Waiter::IsCalled);
                    }
                    (Key::OfHolder, false) => self.meeting_point = Key::Free,
                    _ => {}
                }
            }
            Asked::SetIfFree if self.meeting_point == Key::Free => {
                self.meeting_point = Key::OfHolder;
            }
            Asked::Enter if self.meeting_point == Key::Free && !stands => {
                self.meeting_point = Key::OfHolder;
                self.to_others.push_back(Asked::Take);
            }
            Asked::Enter => self.holder = Holder::Queued,
            _ => {}
        }
    }

    fn at_others(&mut self, asked: Asked) {
        match asked {
            Asked::Delete if self.others == Key::OfHolder => self.others = Key::Free,
            Asked::SetIfFree | Asked::Take if self.others == Key::Free => {
                (self.others, self.holder) = (Key::OfHolder, Holder::Holds);
                self.passed += u8::from(self.waiter != Waiter::Comes);
            }
            Asked::SetIfFree | Asked::Take => self.holder = Holder::Queued,
            _ => {}
        }
    }

    /// It enters when it comes, after a push, and after a call.
    fn waiter_at_meeting_point(&mut self) -> Option<()> {
        self.waiter = match (self.waiter, self.meeting_point) {
            (Waiter::Comes | Waiter::Watches, Key::Free) | (Waiter::IsCalled, Key::Reserved) => {
                self.meeting_point = Key::OfWaiter;
                Waiter::Takes
            }
            (Waiter::Comes, _) => Waiter::Watches,
            _ => return None,
        };
        Some(())
    }

    /// It repeats its request when it is refused.
    fn waiter_at_others(&mut self) -> Option<()> {
        if self.waiter != Waiter::Takes || self.others != Key::Free {
            return None;
        }
        (self.others, self.waiter) = (Key::OfWaiter, Waiter::Served);
        Some(())
    }
}

/// Returns how many holds pass the waiter at most, and how many states there are.
fn passed(rule: Rule) -> (u8, usize) {
    let mut seen: HashSet<World> = HashSet::new();
    let mut open = vec![World::begin()];
    let mut most = 0;
    while let Some(world) = open.pop() {
        most = most.max(world.passed);
        if world.passed > PASSED_MAX || world.waiter == Waiter::Served {
            continue;
        }
        let next = EVENTS.iter().filter_map(|event| world.clone().after(*event, rule));
        for after in next {
            if seen.insert(after.clone()) {
                open.push(after);
            }
        }
    }
    (most, seen.len())
}

#[test]
fn late_release_answers_let_at_most_two_holds_pass_a_waiter() {
    let (most, states) = passed(Leaving::of);
    assert!(most <= PASSED_MAX, "{most} in {states} states");
    assert!(states > 20, "only {states} states");
}

/// A release that queries M does not suffice: until M has answered, the next caller would have the
/// other masters before the process that M has called.
#[test]
fn a_rule_that_presumes_nothing_before_the_answer_is_found() {
    let presumes_nothing = |known| match Leaving::of(known) {
        Leaving::Query { reserves, .. } => Leaving::Query { reserves, presumes: false },
        Leaving::Plain => Leaving::Plain,
    };
    assert!(passed(presumes_nothing).0 > PASSED_MAX);
    assert!(passed(|_| Leaving::Plain).0 > PASSED_MAX);
}
