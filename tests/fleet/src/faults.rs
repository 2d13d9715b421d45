//! What a fault does to masters, connections and processes when it begins and when it ends.

use std::ops::RangeInclusive;
use std::time::Duration;

use redlock_testkit::{InFlight, Outbox, Restart};

use crate::fleet::{Fleet, Happening};
use crate::story::{Back, Fault, What};

/// Faults that last at the same time: how many of each kind, by master and process.
pub(crate) struct Nested {
    down: Vec<usize>,
    held: Vec<usize>,
    clocks: Vec<i64>,
    parted: Vec<Vec<usize>>,
    no_requests: Vec<Vec<usize>>,
    no_replies: Vec<Vec<usize>>,
}

impl Nested {
    pub(crate) fn new(masters: usize, processes: usize) -> Self {
        let each = vec![vec![0; processes]; masters];
        Self {
            down: vec![0; masters],
            held: vec![0; masters],
            clocks: vec![0; masters],
            parted: each.clone(),
            no_requests: each.clone(),
            no_replies: each,
        }
    }

    /// How long a message takes without a fault.
    pub(crate) const fn at_best() -> RangeInclusive<Duration> {
        Duration::from_micros(80)..=Duration::from_micros(240)
    }
}

/// Counts a fault that begins or ends. Returns whether that is the first or the last one.
fn count(faults: &mut usize, begins: bool) -> bool {
    if begins {
        *faults += 1;
        *faults == 1
    } else {
        *faults -= 1;
        *faults == 0
    }
}

impl Fault {
    /// How long before it begins the data of its master is copied.
    pub(crate) fn copied_before(&self) -> Option<Duration> {
        match self.what {
            What::Kill(_, Back::Old(age)) => Some(age),
            _ => None,
        }
    }
}

impl Fleet<'_> {
    pub(crate) fn copy(&mut self, fault: usize) {
        if let What::Kill(master, _) = self.story.faults[fault].what {
            self.copies[fault] = Some(self.worlds[master].snapshot());
        }
    }

    pub(crate) fn begin(&mut self, fault: usize) {
        self.change(fault, true);
    }

    pub(crate) fn end(&mut self, fault: usize) {
        self.change(fault, false);
    }

    fn change(&mut self, index: usize, begins: bool) {
        let now = self.now;
        let mut outbox = Outbox::default();
        match self.story.faults[index].what {
            What::Kill(master, back) => {
                let changes = count(&mut self.nested.down[master], begins);
                let world = &mut self.worlds[master];
                match begins {
                    true if changes => world.down(now, &mut outbox),
                    true => {}
                    false => {
                        let with = match (back, self.copies[index].take()) {
                            (Back::Empty, _) => Restart::Empty,
                            (Back::Old(_), Some(copy)) => Restart::From(copy.into()),
                            _ => Restart::Keeping,
                        };
                        world.restart(with, now, &mut outbox);
                        world.hold(self.nested.held[master] > 0);
                        if changes {
                            world.up();
                        }
                    }
                }
            }
            What::Pause(master) => {
                if count(&mut self.nested.held[master], begins) {
                    self.worlds[master].hold(begins);
                }
            }
            What::SetClock(master, to) if begins => {
                let to = i64::try_from(to).unwrap_or(0);
                let from = std::mem::replace(&mut self.nested.clocks[master], to);
                self.worlds[master].step_clock(to - from);
            }
            What::Break(master, process, late) if begins => {
                let rest = late.map_or(InFlight::Barrier, |(n, by)| InFlight::Late(n, by));
                let link = self.processes[process].links[master];
                self.worlds[master].cut_with(link, rest, now, &mut outbox);
            }
            What::SetClock(..) | What::Break(..) => {}
            What::PauseProcess(process) => self.stop(process, begins, None),
            What::Suspend(process) => {
                let length = self.story.faults[index].length;
                self.stop(process, begins, Some(length));
            }
            What::KillProcess(process) => self.kill(process, begins),
            What::Part(master, whom)
            | What::LoseRequests(master, whom)
            | What::LoseReplies(master, whom)
            | What::Slow(master, whom, _) => {
                let all = 0..self.processes.len();
                for process in all.filter(|one| whom.is_none_or(|whom| whom == *one)) {
                    self.change_link(index, (master, process), begins, &mut outbox);
                }
            }
        }
        for world in &mut self.worlds {
            world.settle(now, &mut outbox);
        }
        outbox.deliver();
    }

    fn change_link(
        &mut self,
        fault: usize,
        (master, process): (usize, usize),
        begins: bool,
        outbox: &mut Outbox,
    ) {
        let (now, nested) = (self.now, &mut self.nested);
        let link = self.processes[process].links[master];
        let world = &mut self.worlds[master];
        match self.story.faults[fault].what {
            What::Part(..) if count(&mut nested.parted[master][process], begins) => match begins {
                true => world.partition(link, now, outbox),
                false => world.heal(link),
            },
            What::LoseRequests(..) if count(&mut nested.no_requests[master][process], begins) => {
                world.lose_requests(link, begins, now, outbox);
            }
            What::LoseReplies(..) if count(&mut nested.no_replies[master][process], begins) => {
                world.lose_replies(link, begins, now, outbox);
            }
            What::Slow(.., by) => {
                let best = Nested::at_best();
                let slow = *best.start()..=*best.end() + by;
                let delay = if begins { slow } else { best };
                world.delay(link, delay.clone(), delay);
            }
            _ => {}
        }
    }

    /// A process stops, or goes on. After a suspension its timers are late by its length.
    fn stop(&mut self, process: usize, begins: bool, suspended: Option<Duration>) {
        let of = &mut self.processes[process];
        let changes = count(&mut of.stopped, begins);
        if begins {
            return;
        }
        if let Some((late, shell)) = suspended.zip(of.shell.as_mut()) {
            shell.alarm = shell.alarm.map(|alarm| alarm.saturating_add(late));
        }
        if changes {
            let late = suspended.unwrap_or_default();
            for (at, caller, plan) in std::mem::take(&mut of.deferred) {
                let at = at.saturating_add(late).max(self.now);
                self.plan(at, Happening::Step { caller, plan });
            }
        }
    }

    /// A process dies, or another one starts in its place.
    fn kill(&mut self, process: usize, begins: bool) {
        let of = &mut self.processes[process];
        let changes = count(&mut of.dead, begins);
        if !changes {
            return;
        }
        if begins {
            if let Some(shell) = of.shell.take() {
                shell.die(&mut self.worlds, self.now);
            }
            self.bury(process);
        } else {
            self.start(process);
            self.follow_faults(process);
            self.raise(process);
        }
    }

    /// The connections of a new client have the faults that last.
    fn follow_faults(&mut self, process: usize) {
        let (now, mut outbox) = (self.now, Outbox::default());
        for master in 0..self.worlds.len() {
            let (world, link) = (&mut self.worlds[master], self.processes[process].links[master]);
            if self.nested.parted[master][process] > 0 {
                world.partition(link, now, &mut outbox);
            }
            if self.nested.no_requests[master][process] > 0 {
                world.lose_requests(link, true, now, &mut outbox);
            }
            if self.nested.no_replies[master][process] > 0 {
                world.lose_replies(link, true, now, &mut outbox);
            }
        }
        outbox.deliver();
    }
}
