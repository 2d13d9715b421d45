//! `Fleet`: masters, clients and their callers in simulated time, one event after the other.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redlock_core::Instant;
use redlock_core::admission::{Names, RecordedSet, SetId};
use redlock_testkit::{Outbox, Snapshot, World, no_residue};

use crate::callers::Caller;
use crate::faults::Nested;
use crate::flaws::{Broken, Counters, Flaw};
use crate::judge::{Judge, Violation};
use crate::shell::{Number, Shell};
use crate::story::{GUARD, Story, TTL};
use crate::streams::{Of, Stream};

/// The result of a story.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The locks that were held.
    pub leases: u64,
    /// The faults that began.
    pub faults: u64,
    /// The first broken promise.
    pub violation: Option<Violation>,
}

/// What happens next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Happening {
    /// A master's data is copied for this fault.
    Copy(usize),
    Begin(usize),
    End(usize),
    /// A caller does something, unless it has another plan by now.
    Step {
        caller: usize,
        plan: u32,
    },
}

/// One process. Its client is gone while it is dead.
pub(crate) struct Process {
    pub(crate) shell: Option<Shell>,
    /// How many faults stop it, and how many have killed it.
    pub(crate) stopped: usize,
    pub(crate) dead: usize,
    pub(crate) life: usize,
    /// Callers whose time came while it was stopped, each with its time and its plan.
    pub(crate) deferred: Vec<(Instant, usize, u32)>,
    /// It has something to do that no alarm tells.
    pub(crate) is_called: bool,
    pub(crate) links: Vec<usize>,
}

pub(crate) struct Fleet<'a> {
    pub(crate) story: &'a Story,
    flaw: Option<Flaw>,
    pub(crate) now: Instant,
    pub(crate) worlds: Vec<World>,
    pub(crate) processes: Vec<Process>,
    pub(crate) callers: Vec<Caller>,
    pub(crate) judge: Judge,
    pub(crate) nested: Nested,
    pub(crate) copies: Vec<Option<Snapshot>>,
    counters: Counters,
    plans: BinaryHeap<Reverse<(Instant, u64, Happening)>>,
    planned: u64,
    ready: Arc<AtomicU64>,
    names: Names,
    begun: u64,
}

/// Plays a story. With a flaw, all clients have it.
pub(crate) fn play(story: &Story, flaw: Option<Flaw>) -> Outcome {
    let mut fleet = Fleet::new(story, flaw);
    fleet.run();
    let Fleet { judge, begun: faults, .. } = fleet;
    Outcome { leases: judge.leases, faults, violation: judge.violation }
}

impl<'a> Fleet<'a> {
    fn new(story: &'a Story, flaw: Option<Flaw>) -> Self {
        let setup = &story.setup;
        let (seed, now) = (story.seed, Instant::ORIGIN);
        let names = Names::new((0..setup.masters).map(|master| format!("sim-{master}:6379")));
        let seed_of = |master| Stream::new(seed, Of::Master(master)).number();
        let callers = setup.processes * setup.callers;
        let mut fleet = Self {
            story,
            flaw,
            now,
            worlds: (0..setup.masters).map(|master| World::new(seed_of(master), now)).collect(),
            processes: (0..setup.processes).map(|_| Process::new()).collect(),
            callers: (0..callers).map(|caller| Caller::new(caller, story)).collect(),
            judge: Judge::new(setup, setup.keys.unwrap_or(callers), flaw.is_none()),
            nested: Nested::new(setup.masters, setup.processes),
            copies: vec![None; story.faults.len()],
            counters: Rc::new(RefCell::new(vec![0; setup.masters])),
            plans: BinaryHeap::new(),
            planned: 0,
            ready: Arc::default(),
            names,
            begun: 0,
        };
        fleet.admit();
        (0..setup.processes).for_each(|process| fleet.start(process));
        fleet.plan_all();
        fleet
    }

    /// With a quarantine, masters vote from the beginning.
    fn admit(&mut self) {
        if self.story.setup.quarantine {
            let names = self.names.clone();
            let size = u8::try_from(names.len()).unwrap_or(u8::MAX);
            let set = RecordedSet { id: SetId(1), size, names };
            self.worlds.iter_mut().for_each(|world| world.init(TTL, Some(set.clone()), self.now));
        }
    }

    fn plan_all(&mut self) {
        for (index, fault) in self.story.faults.iter().enumerate() {
            let at = Instant::ORIGIN.saturating_add(fault.at);
            if let Some(age) = fault.copied_before() {
                self.plan(at.saturating_sub(age), Happening::Copy(index));
            }
            self.plan(at, Happening::Begin(index));
            self.plan(at.saturating_add(fault.length), Happening::End(index));
        }
        for caller in 0..self.callers.len() {
            self.step_later(caller, Duration::from_millis(caller as u64));
        }
    }

    pub(crate) fn plan(&mut self, at: Instant, happening: Happening) {
        self.planned += 1;
        self.plans.push(Reverse((at, self.planned, happening)));
    }

    /// Starts a client in a process.
    pub(crate) fn start(&mut self, process: usize) {
        let (seed, setup) = (self.story.seed, &self.story.setup);
        let life = self.processes[process].life;
        let own = life * 64 + process;
        let number = Number { process, life };
        let links: Vec<usize> = (0..setup.masters).map(|master| self.link(own, master)).collect();
        let shell = Shell::new((seed, setup), number, self.names.clone(), self.ready.clone());
        let Some(mut shell) = shell else { return };
        let draw = Stream::new(seed, Of::Flaw(own));
        shell.broken = self.flaw.map(|flaw| Broken::new(flaw, draw, self.counters.clone()));
        shell.connect(&links, &mut self.worlds, self.now);
        let of = &mut self.processes[process];
        (of.shell, of.links, of.is_called) = (Some(shell), links, true);
        of.life += 1;
    }

    fn link(&mut self, own: usize, master: usize) -> usize {
        let seed = Stream::new(self.story.seed, Of::Link(own * 16 + master)).number();
        let link = self.worlds[master].connect(Some(seed));
        self.worlds[master].set_quarantine(link, self.story.setup.quarantine);
        self.worlds[master].delay(link, Nested::at_best(), Nested::at_best());
        link
    }

    /// Plays the story to its end, or to the first broken promise.
    fn run(&mut self) {
        // Keys that a late request has set have expired by then.
        let end = self.story.setup.length + (TTL + GUARD) * 3;
        let end = Instant::ORIGIN.saturating_add(end);
        self.work();
        while self.judge.violation.is_none()
            && let Some(at) = self.next().filter(|at| *at <= end)
        {
            self.now = self.now.max(at);
            self.happen();
            self.work();
        }
        self.now = end;
        self.finish();
    }

    fn next(&mut self) -> Option<Instant> {
        let planned = self.plans.peek().map(|Reverse((at, ..))| *at);
        let masters = self.worlds.iter_mut().filter_map(World::next_due).min();
        let running = self.processes.iter().filter(|process| process.stopped == 0);
        let alarms = running.filter_map(|process| process.shell.as_ref()?.alarm).min();
        [planned, masters, alarms].into_iter().flatten().min()
    }

    /// Does what is due at masters and by plan.
    fn happen(&mut self) {
        let now = self.now;
        let mut outbox = Outbox::default();
        for world in &mut self.worlds {
            if world.next_due().is_some_and(|due| due <= now) {
                world.settle(now, &mut outbox);
            }
        }
        outbox.deliver();
        while let Some(Reverse((at, _, happening))) = self.plans.peek().copied()
            && at <= now
        {
            self.plans.pop();
            match happening {
                Happening::Copy(fault) => self.copy(fault),
                Happening::Begin(fault) => {
                    self.begun += 1;
                    self.judge.note(&self.story.faults[fault], now);
                    self.begin(fault);
                }
                Happening::End(fault) => self.end(fault),
                Happening::Step { caller, plan } => self.step(at, caller, plan),
            }
        }
    }

    /// Lets all clients work until none has anything to do.
    fn work(&mut self) {
        loop {
            let mut worked = false;
            for process in 0..self.processes.len() {
                if self.is_wanted(process) {
                    worked = true;
                    self.turn(process);
                }
            }
            if !worked || self.judge.violation.is_some() {
                return;
            }
        }
    }

    fn is_wanted(&self, number: usize) -> bool {
        let process = &self.processes[number];
        let is_ready = self.ready.load(Ordering::Relaxed) & 1 << number != 0;
        let has_alarm = |shell: &Shell| shell.alarm.is_some_and(|alarm| alarm <= self.now);
        process.stopped == 0
            && process
                .shell
                .as_ref()
                .is_some_and(|shell| is_ready || process.is_called || has_alarm(shell))
    }

    fn turn(&mut self, process: usize) {
        let of = &mut self.processes[process];
        let Some(shell) = &mut of.shell else { return };
        of.is_called = false;
        let rests = shell.turn(&mut self.worlds, self.now);
        let told = std::mem::take(&mut shell.told);
        if !rests {
            let text = format!("client {process} does not come to rest at {:?}", self.now);
            self.judge.fail(Violation::Unrest(text));
        }
        told.into_iter().for_each(|told| self.tell(process, told));
    }

    fn finish(&mut self) {
        self.judge.finish();
        self.waited_to_the_end();
        let now = self.now;
        let keys = self.worlds.iter().enumerate();
        let keys = keys.map(|(master, world)| (format!("master {master}"), world.keys(now)));
        if let Err(residue) = no_residue(keys) {
            self.judge.fail(Violation::Residue(residue.to_string()));
        }
    }
}

impl Process {
    fn new() -> Self {
        Self {
            shell: None,
            stopped: 0,
            dead: 0,
            life: 0,
            deferred: Vec::new(),
            is_called: false,
            links: Vec::new(),
        }
    }
}
