//! All processes and masters, and how messages pass between them.

use redlock_core::{Answer, Cause, Instant, NodeEvent, Verdict, Vote};
use redlock_protocol::client::input::Input;

use super::broken::Broken;
use super::master::Master;
use super::part::Part;
use super::process::{Caller, Process, Push};
use crate::shared::Shared;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World {
    pub(crate) now: Instant,
    pub(crate) processes: Vec<Shared<Process>>,
    pub(crate) masters: Vec<Shared<Master>>,
    pub(crate) left: Left,
    pub(crate) wrong: Option<Wrong>,
}

/// What may still happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Left {
    pub(crate) ticks: u8,
    pub(crate) late: u8,
    pub(crate) cancels: u8,
    pub(crate) breaks: u8,
    pub(crate) stops: u8,
    pub(crate) closes: u8,
}

/// What went wrong on the way to a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Wrong {
    /// A caller has overtaken another caller of its process.
    Overtaken,
    /// Too many leases have passed a process that waits in the queue.
    Passed,
}

impl World {
    pub(crate) fn new(part: &Part) -> Self {
        let now = Instant::from_nanos(1_000_000_000);
        let processes = 0..part.asks.len();
        let process = |number| {
            let mut process = Process::new(part, number, now);
            process.settle(part, now);
            process.into()
        };
        Self {
            now,
            processes: processes.clone().map(process).collect(),
            masters: vec![Master::new(processes.len()).into(); part.masters],
            left: Left {
                ticks: part.ticks,
                late: part.late,
                cancels: part.cancels,
                breaks: part.breaks,
                stops: part.stops,
                closes: part.closes,
            },
            wrong: None,
        }
    }

    /// Whether no message is on its way.
    pub(crate) fn is_quiet(&self) -> bool {
        let mut links = self.processes.iter().flat_map(|process| &process.links);
        links.all(|link| link.requests.is_empty() && link.pushes.is_empty())
    }

    /// Lets a process do something, and looks at who has the key afterwards.
    pub(crate) fn with(
        &mut self,
        part: &Part,
        own: usize,
        does: impl FnOnce(&mut Process, Instant),
    ) {
        let before = self.processes[own].callers.clone();
        does(&mut self.processes[own], self.now);
        let process = &self.processes[own];
        let is_won = |caller: usize| {
            let was_held = matches!(before.get(caller), Some(Caller::Holds(..)));
            matches!(process.callers[caller], Caller::Holds(..)) && !was_held
        };
        let won = (0..process.callers.len()).find(|caller| is_won(*caller));
        if let Some(caller) = won {
            self.won(part, own, caller);
        }
    }

    fn won(&mut self, part: &Part, own: usize, caller: usize) {
        let waits = |one: &Caller| matches!(one, Caller::Waits(_));
        if self.processes[own].callers[..caller].iter().any(waits) {
            self.wrong = Some(Wrong::Overtaken);
        }
        for other in 0..self.processes.len() {
            let process = &self.processes[other];
            let (waits, ticket) = (process.waits(), process.ticket());
            let has_place = self.masters.iter().any(|one| one.tickets.rank(ticket).is_some());
            let passed = process.passed;
            let now = if other == own || !waits || !has_place { 0 } else { passed + 1 };
            if now != passed {
                self.processes[other].passed = now;
            }
            let others = part.asks.len() - 1;
            if part.is_fair && now > others * part.at_once + 1 {
                self.wrong = Some(Wrong::Passed);
            }
        }
    }

    /// A master carries out the next request of a process, which reads the reply.
    pub(crate) fn arrive(&mut self, part: &Part, own: usize, master: usize) {
        while !self.processes[own].links[master].pushes.is_empty() {
            self.push(part, own, master);
        }
        let Some(sent) = self.processes[own].links[master].requests.pop_front() else { return };
        let executed = self.execute(own, master, &sent.op);
        let answer = match (&executed.verdict, part.broken) {
            (Verdict::Held { .. }, Some(Broken::RefusalGrants)) => Answer::granted(),
            _ => executed,
        };
        let vote = Vote::new(master, sent.ticket, sent.at, answer);
        self.with(part, own, |process, now| {
            process.input(part, Input::Vote(&vote), now);
            process.settle(part, now);
        });
        self.push_all(part);
    }

    /// Calls and pushes are read at once, unless they may be late.
    fn push_all(&mut self, part: &Part) {
        while !part.late_calls
            && let Some((own, master)) = self.first_push()
        {
            self.push(part, own, master);
        }
    }

    fn first_push(&self) -> Option<(usize, usize)> {
        self.processes.iter().enumerate().find_map(|(own, process)| {
            Some((own, process.links.iter().position(|link| !link.pushes.is_empty())?))
        })
    }

    fn execute(&mut self, own: usize, master: usize, op: &redlock_core::Op) -> Answer {
        let now = self.now;
        let executed = self.masters[master].execute(own, op, now);
        for (ticket, call) in executed.calls {
            let listens = self.masters[master].listens.clone();
            for (process, _) in listens.iter().enumerate().filter(|(_, one)| **one == Some(ticket))
            {
                self.processes[process].links[master].pushes.push_back(Push::Called(call));
            }
        }
        if executed.has_changed && !self.masters[master].watchers.is_empty() {
            for process in std::mem::take(&mut self.masters[master].watchers) {
                self.processes[process].links[master].pushes.push_back(Push::Changed);
            }
        }
        executed.answer
    }

    /// A process reads the next push of a master.
    pub(crate) fn push(&mut self, part: &Part, own: usize, master: usize) {
        let Some(push) = self.processes[own].links[master].pushes.pop_front() else { return };
        if part.broken == Some(Broken::CallsIgnored) {
            return;
        }
        self.with(part, own, |process, now| {
            process.input(part, Input::Event(master, push.event()), now);
            process.settle(part, now);
        });
    }

    /// A connection breaks after `executed` of its requests, and is made again.
    pub(crate) fn cut(&mut self, part: &Part, own: usize, master: usize, executed: usize) {
        for _ in 0..executed {
            let Some(sent) = self.processes[own].links[master].requests.front().cloned() else {
                break;
            };
            self.execute(own, master, &sent.op);
            // Its reply is lost, and the request stays for its vote.
            self.processes[own].links[master].requests.rotate_left(1);
        }
        let link = std::mem::take(&mut self.processes[own].links[master]);
        self.masters[master].cut(own);
        self.with(part, own, |process, now| {
            for sent in link.requests {
                let answer = Answer::unknown(Cause::ConnectionClosed);
                let vote = Vote::new(master, sent.ticket, sent.at, answer);
                process.input(part, Input::Vote(&vote), now);
            }
            let down = NodeEvent::Down { cause: Cause::ConnectionClosed, retries_now: true };
            process.input(part, Input::Event(master, down), now);
            process.settle(part, now);
            process.connected(part, master, now);
            process.settle(part, now);
        });
        self.push_all(part);
    }

    /// A process stops, and its connections end.
    pub(crate) fn stop(&mut self, own: usize) {
        for master in &mut self.masters {
            master.cut(own);
        }
        let process = &mut *self.processes[own];
        process.is_stopped = true;
        process.due = None;
        for link in &mut process.links {
            *link = Default::default();
        }
    }

    /// Time passes until a process has something to do. Others may be late.
    pub(crate) fn tick(&mut self, part: &Part, own: usize) {
        let Some(due) = self.processes[own].due else { return };
        self.now = self.now.max(due);
        let now = self.now;
        for master in &mut self.masters {
            master.expire(now);
        }
        self.with(part, own, |process, now| process.settle(part, now));
    }
}
