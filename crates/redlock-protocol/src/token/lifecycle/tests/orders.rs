//! One token from its attempt to its last release, against simulated masters, in any order of
//! events. The belief of the machines is compared with the state of the masters.

mod invariants;
mod master;

use proptest::prelude::*;
use redlock_core::{Answer, Instant, Verdict};

use self::master::{Master, Request};
use super::{Answered, Asked, Event as Happening, Lifecycle, Stage, Step};
use crate::lab::*;
use crate::master_set::MasterSet;
use crate::terms::HoldOptions;
use crate::token::lease::{self, Extend};
use crate::votes::answer::Judged;

/// The next event. The first number names a master.
#[derive(Clone, Copy, Debug)]
enum Event {
    Serve(usize),
    Deliver(usize),
    /// The connection breaks. The master may still carry out its requests.
    Break(usize),
    /// There is a connection again, and no request of an earlier one can be carried out later.
    Reconnect(usize),
    /// The process ends, and another one answers, with its data or without.
    Restart(usize, bool),
    /// The process has exited, and connections to its address are refused.
    Refuse(usize),
    /// Its data is lost, and it does not report that.
    Forget(usize),
    Stranger(usize),
    Busy(usize, bool),
    /// This many milliseconds pass.
    Pass(u64),
    /// The holder wants the lease to last so many milliseconds.
    Extend(u64),
    /// The holder is done, and the next caller requests the lock with these options.
    HandOn(HoldOptions),
    /// The caller cancels, or the guard is dropped, or the release times out.
    GiveUp,
    /// An unacknowledged release is sent again.
    Retry(usize),
}

/// The driver, reduced to what the machines need, and all that it cannot see.
struct World {
    now: Instant,
    masters: Vec<Master>,
    machine: Lifecycle,
    options: HoldOptions,
    started: Instant,
    attempt_due: Option<Instant>,
    ttl: u64,
    /// Extensions that the holder waits for, and when their time is up; `None` once answered.
    awaited: Vec<(u32, Option<Instant>)>,
    /// The deadline has passed, or the lease was lost before.
    is_over: bool,
}

impl World {
    fn new(masters: usize, options: HoldOptions) -> Self {
        let now = at(1_000);
        let mut world = Self {
            now,
            masters: vec![Master::default(); masters],
            machine: Lifecycle::new(attempt(masters, options, now)),
            options,
            started: now,
            attempt_due: Some(now.saturating_add(ms(NODE_TIMEOUT))),
            ttl: TTL,
            awaited: Vec::new(),
            is_over: false,
        };
        world.send(Asked::First, MasterSet::all(masters));
        world
    }

    fn send(&mut self, kind: Asked, masters: MasterSet) {
        let request = Request { kind, sent_at: self.now, ttl: self.ttl };
        let (down, up): (Vec<usize>, Vec<usize>) =
            masters.iter().partition(|master| self.masters[*master].is_down);
        up.iter().for_each(|one| self.masters[*one].requests.push_back(request.clone()));
        down.iter().for_each(|one| self.answer(*one, &request, &unsent()));
    }

    fn answer(&mut self, master: usize, request: &Request, answer: &Answer) {
        self.note(master, request, answer);
        let (to, sent_at) = (request.kind, request.sent_at);
        let answered = Answered { to, master, judged: Judged::from(answer), sent_at };
        self.happens(Happening::Answered(answered));
    }

    fn happens(&mut self, event: Happening<'_>) {
        match self.machine.on(event, self.now) {
            Step::Wait | Step::AwaitCopies(_) | Step::Won(_) | Step::Released | Step::Gone => {}
            Step::AskOthers { .. } | Step::TakeAgain | Step::AskAgain { .. } => {
                panic!("all were asked at once")
            }
            Step::NeedBallot { .. } | Step::SendBallot { .. } => panic!("there is no ballot"),
            Step::Lost(_) | Step::Release => self.happens(Happening::Turn),
            Step::SendRelease(masters) => self.send(Asked::Release, masters),
            Step::HandedOn(_) => panic!("nobody else asks for it"),
            Step::Hold(step) => self.hold(step),
        }
    }

    fn hold(&mut self, step: lease::Step) {
        step.extended.iter().for_each(|(number, _)| self.extended(*number));
        self.readd(step.readd);
        if let Some(Extend { number, masters }) = step.extend {
            self.send(Asked::Extension(number), masters);
        }
    }

    /// Records until when the holder can rely on a master, by the definition only.
    fn note(&mut self, master: usize, request: &Request, answer: &Answer) {
        let master = &mut self.masters[master];
        match (&answer.verdict, request.kind) {
            (Verdict::Granted, Asked::First | Asked::Readd | Asked::Extension(_)) => {
                let until = request.sent_at.saturating_add(timing(request.ttl).ttl.validity());
                master.confirmed = master.confirmed.max(Some(until));
                master.has_lost &= !master.holds(self.now);
            }
            (Verdict::NotOurs | Verdict::Held { .. }, Asked::Extension(_)) => {
                master.confirmed = None
            }
            _ => {}
        }
    }

    fn extended(&mut self, number: u32) {
        let awaited = self.awaited.iter_mut().find(|(one, _)| *one == number);
        let (_, until) = awaited.expect("the holder waits for it");
        assert!(until.take().is_some(), "answered twice");
    }

    fn readd(&mut self, masters: MasterSet) {
        for master in masters.iter() {
            assert!(!self.is_over, "only while the lease is valid");
            let master = &self.masters[master];
            let mut under_way =
                master.requests.iter().chain(master.replies.iter().map(|one| &one.0));
            assert!(under_way.all(|request| request.kind != Asked::Readd));
        }
        self.send(Asked::Readd, masters);
    }

    fn apply(&mut self, event: Event) {
        let place = |master: usize| master % self.masters.len();
        match event {
            Event::Serve(master) => self.serve(place(master)),
            Event::Deliver(master) => self.deliver(place(master)),
            Event::Break(master) => self.disconnect(place(master)),
            Event::Reconnect(master) => self.reconnect(place(master)),
            Event::Restart(master, keeps_data) => self.restart(place(master), keeps_data),
            Event::Refuse(master) => self.end_process(place(master)),
            Event::Forget(master) => {
                let master = place(master);
                self.masters[master].has_lost |= self.masters[master].key.take().is_some();
            }
            Event::Stranger(master) => {
                let (master, now) = (place(master), self.now);
                self.masters[master].has_strangers_key |= !self.masters[master].holds(now);
            }
            Event::Busy(master, is_busy) => {
                let master = place(master);
                self.masters[master].is_busy = is_busy;
            }
            Event::Pass(millis) => self.pass(millis),
            Event::Extend(ttl) => self.extend(ttl),
            Event::HandOn(options) => self.hand_on(options),
            Event::GiveUp => self.give_up(),
            Event::Retry(master) => self.retry(place(master)),
        }
    }

    fn serve(&mut self, master: usize) {
        let master = &mut self.masters[master];
        if let Some(ghost) = master.ghosts.pop_front() {
            master.execute(&ghost, self.now);
        } else if let Some(request) = master.requests.pop_front() {
            let answer = master.execute(&request, self.now);
            master.replies.push_back((request, answer));
        }
    }

    fn deliver(&mut self, master: usize) {
        if let Some((request, answer)) = self.masters[master].replies.pop_front() {
            self.answer(master, &request, &answer);
        }
    }

    fn disconnect(&mut self, at: usize) {
        let master = &mut self.masters[at];
        master.is_down = true;
        let requests = std::mem::take(&mut master.requests);
        let replies = std::mem::take(&mut master.replies);
        master.ghosts.extend(requests.iter().cloned());
        for request in replies.into_iter().map(|(request, _)| request).chain(requests) {
            self.answer(at, &request, &closed());
        }
    }

    fn reconnect(&mut self, at: usize) {
        if self.masters[at].has_ended {
            return self.restart(at, true);
        }
        self.masters[at].is_down = false;
        self.masters[at].ghosts.clear();
    }

    fn end_process(&mut self, at: usize) {
        self.disconnect(at);
        self.masters[at].ghosts.clear();
        self.masters[at].has_ended = true;
        self.happens(Happening::ProcessEnded(at));
    }

    fn restart(&mut self, at: usize, keeps_data: bool) {
        self.end_process(at);
        let master = &mut self.masters[at];
        (master.is_down, master.has_ended, master.confirmed) = (false, false, None);
        if !keeps_data {
            (master.key, master.has_strangers_key) = (None, false);
        }
        self.happens(Happening::Disowned(at, checked()));
    }

    fn pass(&mut self, millis: u64) {
        self.now = self.now.saturating_add(ms(millis));
        self.is_over |= self.has_lapsed();
        let now = self.now;
        self.happens(Happening::GraceEnded);
        if self.attempt_due.take_if(|due| *due <= now).is_some() {
            self.happens(Happening::AttemptTimedOut);
        }
        self.time_out_extensions();
        self.tick();
        self.happens(Happening::Expired);
    }

    fn time_out_extensions(&mut self) {
        let is_due = |until: &Option<Instant>| until.is_some_and(|until| until <= self.now);
        let due: Vec<u32> =
            self.awaited.iter().filter(|(_, until)| is_due(until)).map(|one| one.0).collect();
        for number in due {
            if self.machine.lease().is_none() {
                return;
            }
            self.happens(Happening::ExtensionTimedOut(number));
            let awaited = self.awaited.iter().find(|one| one.0 == number);
            assert!(awaited.is_some_and(|(_, until)| until.is_none()), "no answer in time");
        }
    }

    fn due(&self) -> Option<Instant> {
        self.machine.lease()?.due().filter(|due| *due <= self.now)
    }

    fn tick(&mut self) {
        if self.due().is_none() {
            return;
        }
        let Step::Hold(step) = self.machine.on(Happening::Tick(0.5), self.now) else { return };
        assert_eq!(self.due(), None, "the keeper does not spin");
        if let Some(Extend { masters, .. }) = step.extend {
            let held = self.now.saturating_since(self.started);
            assert!(!self.is_over && self.options.max_hold.is_none_or(|max| held < max));
            let all = 0..self.masters.len();
            let asked = all.filter(|master| !self.masters[*master].owes_an_answer()).collect();
            assert_eq!(masters, asked, "no master without an answer is queried again");
        }
        self.hold(step);
    }

    fn extend(&mut self, ttl: u64) {
        if self.machine.lease().is_none() || self.is_over {
            return;
        }
        self.ttl = ttl;
        let step = self.machine.on(Happening::Extend(timing(ttl)), self.now);
        let Step::Hold(lease::Step { extend: Some(Extend { number, masters }), .. }) = step else {
            panic!("{step:?}")
        };
        assert_eq!(masters, MasterSet::all(self.masters.len()));
        self.awaited.push((number, Some(self.now.saturating_add(ms(NODE_TIMEOUT)))));
        self.send(Asked::Extension(number), masters);
    }

    fn hand_on(&mut self, options: HoldOptions) {
        if self.machine.lease().is_none() {
            return;
        }
        match self.machine.on(Happening::HandOn(options), self.now) {
            Step::HandedOn(_) => {
                assert!(!self.is_over && !self.has_lapsed(), "an expired lease is not handed over");
                let lease = self.machine.lease().expect("it is held");
                let copies = lease.ledger().copies(self.now);
                assert!(options.min_copies.is_none_or(|least| copies >= least));
                (self.options, self.started) = (options, self.now);
            }
            step => assert_eq!(step, Step::Wait),
        }
    }

    fn give_up(&mut self) {
        self.happens(match self.machine.stage() {
            Stage::Attempt(_) => Happening::Cancelled,
            Stage::Lease(_) => Happening::Returned { was_lost: self.is_over },
            Stage::Release(_) | Stage::Over => Happening::ReleaseTimedOut,
        });
    }

    fn retry(&mut self, master: usize) {
        if !self.masters[master].is_down {
            self.happens(Happening::Retry(master));
        }
    }

    fn has_lapsed(&self) -> bool {
        match self.machine.stage() {
            Stage::Lease(lease) => lease.deadline().is_none_or(|deadline| deadline <= self.now),
            Stage::Attempt(_) | Stage::Release(_) | Stage::Over => false,
        }
    }
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let at = 0..60_usize;
    let event = prop_oneof![
        24 => at.clone().prop_map(Event::Serve),
        24 => at.clone().prop_map(Event::Deliver),
        2 => at.clone().prop_map(Event::Break),
        3 => at.clone().prop_map(Event::Reconnect),
        1 => (at.clone(), any::<bool>()).prop_map(|(at, keeps)| Event::Restart(at, keeps)),
        1 => at.clone().prop_map(Event::Refuse),
        2 => at.clone().prop_map(Event::Forget),
        1 => at.clone().prop_map(Event::Stranger),
        2 => (at.clone(), any::<bool>()).prop_map(|(at, is)| Event::Busy(at, is)),
        8 => prop::sample::select(vec![1, 10, 60, 150, 400, 1_200]).prop_map(Event::Pass),
        3 => prop::sample::select(vec![400, TTL, 3_000]).prop_map(Event::Extend),
        3 => options().prop_map(Event::HandOn),
        1 => Just(Event::GiveUp),
        4 => at.prop_map(Event::Retry),
    ];
    prop::collection::vec(event, 0..200)
}

fn options() -> impl Strategy<Value = HoldOptions> {
    let max_hold = prop::option::of(Just(ms(900)));
    let min_copies = prop::option::of(1..4_usize);
    let stop_margin = prop::sample::select(vec![ms(0), ms(300)]);
    (any::<bool>(), max_hold, min_copies, stop_margin).prop_map(
        |(auto_extend, max_hold, min_copies, stop_margin)| HoldOptions {
            auto_extend,
            max_hold,
            min_copies,
            stop_margin,
        },
    )
}

proptest! {
    #[test]
    fn beliefs_match_the_masters_in_any_order_of_events(
        masters in 1..8_usize,
        options in options(),
        events in events(),
    ) {
        let mut world = World::new(masters, options);
        world.check();
        for event in events {
            world.apply(event);
            world.check();
        }
        world.heal();
    }
}
