use proptest::prelude::*;
use redlock_core::Cause;

use super::*;

const FAN_OUT: Duration = Duration::from_micros(300);

/// What can happen to the callers of a key.
#[derive(Clone, Copy, Debug)]
enum Event {
    Join { is_held_here: bool },
    Won,
    Lost(Refusal),
    LostHere,
    Released,
    Answer(usize),
    Pushed(usize),
    LostSight(usize),
    Due,
    LeaveFirst,
    LeaveLast,
}

const EVENTS: [Event; 16] = [
    Event::Join { is_held_here: false },
    Event::Join { is_held_here: true },
    Event::Won,
    Event::Lost(Refusal::Held),
    Event::Lost(Refusal::Split),
    Event::Lost(Refusal::Silent),
    Event::LostHere,
    Event::Released,
    Event::Answer(0),
    Event::Answer(1),
    Event::Answer(2),
    Event::Pushed(0),
    Event::LostSight(0),
    Event::Due,
    Event::LeaveFirst,
    Event::LeaveLast,
];

/// The machine with all that the driver does for it.
#[derive(Clone)]
struct World {
    waiting: Waiting<u32>,
    now: Instant,
    next: u32,
    /// The caller whose attempt is under way.
    attempting: Option<u32>,
    is_looking: bool,
}

impl World {
    fn new() -> Self {
        let waiting = Waiting::new();
        Self { waiting, now: Instant::ORIGIN, next: 0, attempting: None, is_looking: false }
    }

    /// Lets it happen, where it can happen now.
    fn happen(&mut self, event: Event) {
        let now = self.now;
        let step = match event {
            Event::Join { is_held_here } if self.waiting.callers().count() < 3 => {
                self.next += 1;
                self.waiting.join(self.next, is_held_here, now)
            }
            Event::Won if self.attempt_ends() => self.waiting.won(now),
            Event::Lost(refusal) if self.attempt_ends() => {
                self.waiting.lost(refusal, now, FAN_OUT, 0.5)
            }
            Event::LostHere if self.attempt_ends() => self.waiting.lost_here(now),
            Event::Released => self.waiting.released(now, FAN_OUT, 0.5),
            Event::Answer(kind) if std::mem::take(&mut self.is_looking) => {
                let verdict = match kind {
                    0 => Verdict::Free,
                    1 => Verdict::Held { token: None, ttl: Some(Duration::from_millis(300)) },
                    _ => Verdict::Unknown(Cause::TimedOut),
                };
                self.waiting.looked(0, &verdict, now, FAN_OUT, 0.5)
            }
            Event::Pushed(at) => self.waiting.changed(at, now, FAN_OUT, 0.5),
            Event::LostSight(at) => self.waiting.lost_sight(at, now, FAN_OUT, 0.5),
            Event::Due => match self.waiting.due() {
                Some(due) => {
                    self.now = now.max(due);
                    self.waiting.tick(self.now)
                }
                None => Step::Wait,
            },
            Event::LeaveFirst => self.leave(self.waiting.head()),
            Event::LeaveLast => self.leave(self.waiting.callers().last()),
            _ => Step::Wait,
        };
        self.carry_out(step);
        self.check(event);
    }

    /// The attempt that is under way is the head's, and it is over.
    fn attempt_ends(&mut self) -> bool {
        self.attempting.is_some() && self.attempting.take() == self.waiting.head()
    }

    fn leave(&mut self, caller: Option<u32>) -> Step<u32> {
        let Some(caller) = caller else { return Step::Wait };
        if self.attempting == Some(caller) {
            self.attempting = None;
        }
        self.waiting.leave(caller, self.now)
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
                self.is_looking = true;
                let step = self.waiting.look_sent(Some(0), self.now, FAN_OUT, 0.5);
                self.carry_out(step);
            }
        }
    }

    /// Whoever waits is brought on by an attempt, a look or an alarm: no state is a dead end.
    fn check(&self, event: Event) {
        let waits = self.waiting.callers().count() > 0;
        let goes_on = self.attempting.is_some()
            || self.waiting.is_looking() && self.is_looking
            || self.waiting.due().is_some();
        assert!(!waits || goes_on, "{event:?} led to a dead end: {:?}", self.waiting);
        let alarm = self
            .waiting
            .due()
            .is_none_or(|due| due.saturating_since(self.now) <= Duration::from_secs(1));
        assert!(alarm, "every sleep ends within a second: {:?}", self.waiting);
    }
}

/// Every order of five events behind every start.
#[test]
fn no_order_of_events_leads_to_a_dead_end() {
    fn go_on(world: &World, depth: u32) {
        if depth == 0 {
            return;
        }
        for event in EVENTS {
            let mut next = world.clone();
            next.happen(event);
            go_on(&next, depth - 1);
        }
    }
    go_on(&World::new(), 5);
}

proptest! {
    #[test]
    fn no_long_run_leads_to_a_dead_end(events in prop::collection::vec(0..EVENTS.len(), 0..200)) {
        let mut world = World::new();
        for event in events {
            world.happen(EVENTS[event]);
        }
    }

    /// When nothing but attempts that win and releases happens, everybody gets the key, in order.
    #[test]
    fn callers_are_served_in_the_order_in_which_they_asked(
        events in prop::collection::vec(0..EVENTS.len(), 0..60),
    ) {
        let mut world = World::new();
        for event in events {
            world.happen(EVENTS[event]);
        }
        let waiting: Vec<u32> = world.waiting.callers().collect();
        let mut served = Vec::new();
        for _ in 0..100 {
            if let Some(caller) = world.attempting {
                served.push(caller);
                world.happen(Event::Won);
                world.happen(Event::Released);
            } else {
                world.happen(Event::Answer(0));
                world.happen(Event::Due);
            }
        }
        prop_assert_eq!(served, waiting);
    }
}

#[test]
fn a_push_is_answered_after_a_pause_at_the_meeting_point_and_an_expiry_everywhere() {
    let mut world = World::new();
    for event in [Event::Join { is_held_here: false }, Event::Lost(Refusal::Held), Event::Answer(1)]
    {
        world.happen(event);
    }
    let mut expired = world.clone();
    let due = expired.waiting.due().unwrap();
    assert_eq!(due.saturating_since(world.now), Duration::from_millis(301));
    assert_eq!(expired.waiting.tick(due), Step::Attempt(1, Ask::All));
    assert_eq!(world.waiting.changed(1, world.now, FAN_OUT, 0.5), Step::Wait, "not its master");
    assert_eq!(world.waiting.changed(0, world.now, FAN_OUT, 0.5), Step::Wait);
    let pause = world.waiting.due().unwrap().saturating_since(world.now);
    assert!(pause > Duration::ZERO && pause <= PUSH_PAUSE_MAX, "{pause:?}");
    let due = world.waiting.due().unwrap();
    assert_eq!(world.waiting.tick(due), Step::Attempt(1, Ask::MeetingPointFirst));
}

#[test]
fn looks_that_find_the_key_free_end_in_a_pause() {
    let mut world = World::new();
    world.happen(Event::Join { is_held_here: false });
    for _ in 0..FREE_LOOKS_MAX {
        world.happen(Event::Lost(Refusal::Held));
        world.happen(Event::Answer(0));
        assert!(world.attempting.is_some());
    }
    world.happen(Event::Lost(Refusal::Held));
    world.happen(Event::Answer(0));
    assert!(world.attempting.is_none() && world.waiting.due().is_some());
}

#[test]
fn the_next_in_this_process_asks_right_behind_a_release_unless_others_want_the_key() {
    for is_contended in [false, true] {
        let mut world = World::new();
        world.happen(Event::Join { is_held_here: false });
        if is_contended {
            world.happen(Event::Lost(Refusal::Held));
            world.happen(Event::Answer(0));
        }
        world.happen(Event::Won);
        world.happen(Event::Join { is_held_here: true });
        world.happen(Event::Released);
        assert_eq!(world.attempting.is_some(), !is_contended);
    }
}

#[test]
fn nothing_is_remembered_when_nobody_waits_and_the_contention_is_over() {
    let mut world = World::new();
    world.happen(Event::Join { is_held_here: false });
    world.happen(Event::Lost(Refusal::Held));
    world.happen(Event::LeaveFirst);
    assert!(!world.waiting.is_over(world.now));
    let later = world.now.saturating_add(CONTENDED);
    assert!(world.waiting.is_over(later));
}
