//! `Caller`: a user of the lock. It acquires, uses, extends and releases it, or stops at any point.

use std::sync::Arc;
use std::time::Duration;

use redlock_core::{Instant, Resource};
use redlock_protocol::client::ids::{HoldId, RequestId};
use redlock_protocol::terms::HoldOptions;
use redlock_testkit::Event;

use crate::fleet::{Fleet, Happening};
use crate::judge::Violation;
use crate::shell::Told;
use crate::story::{GUARD, Setup, Story, TTL};
use crate::streams::{Of, Stream};

/// How long after the last faults begin all is as good as new.
const SETTLED: Duration = Duration::from_secs(5);

pub(crate) struct Caller {
    process: usize,
    key: usize,
    draw: Stream,
    state: State,
    /// The number of its present plan. A step of another one is out of date.
    plan: u32,
    asked_at: Instant,
    /// The number of its requests.
    requests: u64,
    name: Arc<str>,
    auto_extend: bool,
}

enum State {
    Idle,
    Waiting(RequestId),
    Holding(Holding),
    /// The story is over, or its process is dead.
    Stopped,
}

#[derive(Clone, Copy)]
struct Holding {
    id: RequestId,
    hold: HoldId,
    until: Instant,
    /// How often it uses the lock before it returns it.
    uses: u64,
}

impl Caller {
    pub(crate) fn new(caller: usize, story: &Story) -> Self {
        Self {
            process: caller / story.setup.callers,
            key: caller,
            draw: Stream::new(story.seed, Of::Caller(caller)),
            state: State::Idle,
            plan: 0,
            asked_at: Instant::ORIGIN,
            requests: 0,
            name: "".into(),
            auto_extend: true,
        }
    }
}

/// From when on a wait is judged, and how long it may take.
fn patience(setup: &Setup) -> (Instant, Duration) {
    let from = Instant::ORIGIN.saturating_add(setup.troubled + SETTLED);
    let callers = u32::try_from(setup.processes * setup.callers).unwrap_or(u32::MAX);
    (from, Duration::from_millis(400) * callers + (TTL + GUARD) * 2)
}

impl Fleet<'_> {
    fn is_settled(&self) -> bool {
        self.now >= patience(&self.story.setup).0
    }

    /// A caller does something after this time.
    pub(crate) fn step_later(&mut self, caller: usize, after: Duration) {
        let of = &mut self.callers[caller];
        of.plan += 1;
        let plan = of.plan;
        self.plan(self.now.saturating_add(after), Happening::Step { caller, plan });
    }

    pub(crate) fn step(&mut self, at: Instant, caller: usize, plan: u32) {
        let of = &self.callers[caller];
        if of.plan != plan {
            return;
        }
        let process = &mut self.processes[of.process];
        if process.stopped > 0 {
            return process.deferred.push((at, caller, plan));
        }
        process.is_called = true;
        match of.state {
            State::Idle => self.ask(caller),
            State::Waiting(id) => self.give_up(caller, id),
            State::Holding(holding) => self.use_lock(caller, holding),
            State::Stopped => {}
        }
    }

    fn ask(&mut self, caller: usize) {
        let is_calm = self.story.is_calm();
        let is_settled = self.is_settled();
        let is_over = self.now.as_nanos() >= self.story.setup.length.as_nanos() as u64;
        let of = &mut self.callers[caller];
        if is_over {
            of.state = State::Stopped;
            return;
        }
        of.requests += 1;
        of.asked_at = self.now;
        of.name = format!("{caller}-{}", of.requests).into();
        let (mut wait, mut leaves) = (None, None);
        let mut options = HoldOptions::default();
        if let Some(keys) = self.story.setup.keys {
            of.key = of.draw.index(keys);
            if !is_settled {
                let tries = of.draw.percent(10);
                wait = Some(of.draw.millis(0, if tries { 0 } else { 2_000 }));
                leaves = of.draw.percent(10).then(|| of.draw.millis(0, 100));
            }
            options.auto_extend = of.draw.percent(70);
            if of.draw.percent(5) {
                options.min_copies = Some(self.story.setup.masters);
            }
        }
        of.auto_extend = options.auto_extend;
        let (key, name) = (of.key, of.name.clone());
        self.judge.see(self.now, (caller, key), &name, Event::Invoked);
        let text = self.judge.key(key);
        let named = (Resource::from(&**text), text.as_bytes().into());
        let until = wait.map(|wait| self.now.saturating_add(wait));
        let until = until.or_else(|| is_calm.then(|| self.now.saturating_add(TTL)));
        let Some(shell) = &mut self.processes[self.callers[caller].process].shell else { return };
        let id = shell.acquire(caller, named, until, options, self.now);
        self.callers[caller].state = State::Waiting(id);
        match leaves {
            Some(after) => self.step_later(caller, after),
            None => self.callers[caller].plan += 1,
        }
    }

    fn give_up(&mut self, caller: usize, id: RequestId) {
        if let Some(shell) = &mut self.processes[self.callers[caller].process].shell {
            shell.withdraw(id, self.now);
        }
        self.refused(caller);
    }

    /// A caller has no lock, and tries again later.
    fn refused(&mut self, caller: usize) {
        let of = &mut self.callers[caller];
        of.state = State::Idle;
        let (key, name, pause) = (of.key, of.name.clone(), of.draw.millis(0, 30));
        self.judge.see(self.now, (caller, key), &name, Event::Refused);
        self.step_later(caller, pause);
    }

    pub(crate) fn tell(&mut self, process: usize, told: Told) {
        match told {
            Told::Won { caller, id, hold, fencing_token } => {
                self.won(caller, (id, hold), fencing_token);
            }
            Told::Failed { caller, failed } => {
                self.judge.failed(process, &failed, self.now);
                if self.story.is_calm() {
                    let text = format!("caller {caller} was refused: {:?}", failed.defeat);
                    self.judge.fail(Violation::Cause(text));
                }
                self.refused(caller);
            }
            Told::Refused { caller } => self.refused(caller),
            Told::Lost { caller, reason } if self.callers[caller].auto_extend => {
                self.judge.lost(process, reason, self.now);
            }
            Told::Lost { .. } => {}
        }
    }

    fn won(&mut self, caller: usize, (id, hold): (RequestId, HoldId), token: Option<u64>) {
        let of = &mut self.callers[caller];
        let (key, name) = (of.key, of.name.clone());
        let process = &mut self.processes[of.process];
        let Some(shell) = &mut process.shell else { return };
        process.is_called = true;
        let Some(until) = shell.accept(id, hold, self.now) else {
            shell.give_back((id, hold), (false, false), self.now);
            return self.refused(caller);
        };
        if let (Some(token), Some(broken)) = (token, &mut shell.broken) {
            let token = broken.fencing_token(token, (caller, hold.lock), &self.worlds, self.now);
            self.fenced(caller, token, until);
        } else if let Some(token) = token {
            self.fenced(caller, token, until);
        }
        self.judge.see(self.now, (caller, key), &name, Event::Granted { until });
        self.judge_wait(caller);
        let is_settled = self.is_settled();
        let (is_calm, of) = (self.story.is_calm(), &mut self.callers[caller]);
        let uses = if is_calm || is_settled { 0 } else { of.draw.below(4) };
        of.state = State::Holding(Holding { id, hold, until, uses });
        let pause = match of.draw.below(10) {
            _ if is_calm => of.draw.millis(0, 2),
            0 if !is_settled => of.draw.millis(0, 1_500),
            _ => of.draw.millis(0, 20),
        };
        self.step_later(caller, pause);
    }

    fn fenced(&mut self, caller: usize, fencing_token: u64, until: Instant) {
        let (key, name) = (self.callers[caller].key, self.callers[caller].name.clone());
        self.judge.see(self.now, (caller, key), &name, Event::Fenced { fencing_token, until });
    }

    fn use_lock(&mut self, caller: usize, mut holding: Holding) {
        let of = &mut self.callers[caller];
        let (key, name, number) = (of.key, of.name.clone(), of.process);
        let Some(shell) = &mut self.processes[number].shell else { return };
        let Holding { id, hold, .. } = holding;
        match shell.check(id, self.now) {
            Err(reason) => {
                shell.give_back((id, hold), (false, false), self.now);
                if let Some(reason) = reason.filter(|_| of.auto_extend) {
                    self.judge.lost(number, reason, self.now);
                }
                self.judge.see(self.now, (caller, key), &name, Event::Lost);
                self.rest(caller);
            }
            Ok(until) => {
                if until != holding.until {
                    holding.until = until;
                    self.judge.see(self.now, (caller, key), &name, Event::Granted { until });
                }
                if holding.uses == 0 {
                    return self.give_back(caller, holding);
                }
                holding.uses -= 1;
                if of.draw.percent(20) {
                    shell.extend(hold, caller, self.now);
                }
                of.state = State::Holding(holding);
                let pause = of.draw.millis(0, 500);
                self.step_later(caller, pause);
            }
        }
    }

    fn give_back(&mut self, caller: usize, Holding { id, hold, .. }: Holding) {
        let of = &mut self.callers[caller];
        let (key, name) = (of.key, of.name.clone());
        let (is_token_known, waits) = (of.draw.percent(10), of.draw.percent(50));
        self.judge.see(self.now, (caller, key), &name, Event::Released);
        if let Some(shell) = &mut self.processes[of.process].shell {
            shell.give_back((id, hold), (is_token_known, waits), self.now);
        }
        self.rest(caller);
    }

    /// A lease is over. The caller asks again soon.
    fn rest(&mut self, caller: usize) {
        self.judge.leases += 1;
        let is_calm = self.story.is_calm();
        let of = &mut self.callers[caller];
        of.state = State::Idle;
        let pause = of.draw.millis(0, if is_calm { 1 } else { 5 });
        self.step_later(caller, pause);
    }

    fn judge_wait(&mut self, caller: usize) {
        let (from, most) = patience(&self.story.setup);
        let waited = self.now.saturating_since(self.callers[caller].asked_at.max(from));
        if self.story.setup.queue && waited > most {
            let text = format!("caller {caller} waited for {waited:?} until {:?}", self.now);
            self.judge.fail(Violation::Starvation(text));
        }
    }

    /// Judges those that wait when the story ends.
    pub(crate) fn waited_to_the_end(&mut self) {
        for caller in 0..self.callers.len() {
            if matches!(self.callers[caller].state, State::Waiting(_)) {
                self.judge_wait(caller);
            }
        }
    }

    /// The callers of a killed process stop.
    pub(crate) fn bury(&mut self, process: usize) {
        for caller in 0..self.callers.len() {
            let of = &mut self.callers[caller];
            if of.process != process {
                continue;
            }
            let event = match std::mem::replace(&mut of.state, State::Stopped) {
                State::Holding(_) => Some(Event::Lost),
                State::Waiting(_) => Some(Event::Unknown),
                State::Idle | State::Stopped => None,
            };
            of.plan += 1;
            let (key, name) = (of.key, of.name.clone());
            if let Some(event) = event {
                self.judge.see(self.now, (caller, key), &name, event);
            }
        }
    }

    /// Those of the process that follows begin.
    pub(crate) fn raise(&mut self, process: usize) {
        for caller in 0..self.callers.len() {
            if self.callers[caller].process == process {
                self.callers[caller].state = State::Idle;
                self.step_later(caller, Duration::ZERO);
            }
        }
    }
}
