//! `Judge`: whether what callers see keeps the promises. Its memory does not grow with the story.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redlock_core::{Cause, Instant, Verdict};
use redlock_protocol::LostReason;
use redlock_protocol::client::effects::Failed;
use redlock_protocol::votes::last_answer::LastAnswer;
use redlock_testkit::{Event, Exclusion, Record, TokenOrder};

use crate::story::{Back, Fault, GUARD, Setup, TTL, What};

/// How long a fault may be the cause of something after it has ended: masters are connected again
/// and vote again, and requests have been answered.
const AFTERMATH: Duration = Duration::from_millis(1_500);

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// Two holders of one key at one time.
    Exclusion(String),
    /// A fencing token out of order.
    Tokens(String),
    /// Keys are left after all locks are released.
    Residue(String),
    /// A caller waited too long.
    Starvation(String),
    /// A cause without a fault that explains it.
    Cause(String),
    /// A client does not come to rest.
    Unrest(String),
}

impl Violation {
    /// Returns `true` if it breaks the same promise.
    pub fn is_like(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Exclusion(text)
        | Self::Tokens(text)
        | Self::Residue(text)
        | Self::Starvation(text)
        | Self::Cause(text)
        | Self::Unrest(text)) = self;
        f.write_str(text)
    }
}

/// Until when faults of each kind may explain what a client reports about a master.
#[derive(Clone, Copy, Debug)]
struct Trouble {
    /// The server does not listen.
    down: Instant,
    /// A connection is broken.
    broken: Instant,
    /// Messages or a process are slow or lost.
    slow: Instant,
    /// The master is in quarantine.
    forgotten: Instant,
}

pub(crate) struct Judge {
    exclusion: Exclusion,
    order: TokenOrder,
    keys: Vec<Arc<str>>,
    /// Whether causes are judged. A client with a flaw need not know why.
    judges_causes: bool,
    /// By process, then by master.
    trouble: Vec<Vec<Trouble>>,
    pub(crate) leases: u64,
    pub(crate) violation: Option<Violation>,
}

impl Judge {
    pub(crate) fn new(setup: &Setup, keys: usize, judges_causes: bool) -> Self {
        // The first connections are made, and masters are probed.
        let soon = Instant::ORIGIN.saturating_add(AFTERMATH);
        let new = Trouble { down: Instant::ORIGIN, broken: soon, slow: soon, forgotten: soon };
        Self {
            exclusion: Exclusion::default(),
            order: TokenOrder::default(),
            keys: (0..keys).map(|key| format!("key:{key}").into()).collect(),
            judges_causes,
            trouble: vec![vec![new; setup.masters]; setup.processes],
            leases: 0,
            violation: None,
        }
    }

    pub(crate) fn key(&self, key: usize) -> &Arc<str> {
        &self.keys[key]
    }

    pub(crate) fn fail(&mut self, violation: Violation) {
        if matches!(violation, Violation::Cause(_)) && !self.judges_causes {
            return;
        }
        self.violation.get_or_insert(violation);
    }

    /// What a caller sees of a key.
    pub(crate) fn see(
        &mut self,
        at: Instant,
        (caller, key): (usize, usize),
        token: &Arc<str>,
        event: Event,
    ) {
        let record = Record::new(at, caller, self.keys[key].clone(), token.clone(), event);
        if let Err(overlap) = self.exclusion.record(&record) {
            self.fail(Violation::Exclusion(overlap.to_string()));
        }
        if let Err(disorder) = self.order.record(&record) {
            self.fail(Violation::Tokens(disorder.to_string()));
        }
    }

    /// Judges what has no end.
    pub(crate) fn finish(&mut self) {
        if let Err(overlap) = std::mem::take(&mut self.exclusion).finish() {
            self.fail(Violation::Exclusion(overlap.to_string()));
        }
    }

    /// Notes what a fault may explain.
    pub(crate) fn note(&mut self, fault: &Fault, now: Instant) {
        let end = now.saturating_add(fault.length + AFTERMATH);
        let quarantine = end.saturating_add((TTL + GUARD) * 3);
        let is_of = |one: Option<usize>, process| one.is_none_or(|one| one == process);
        for (process, masters) in self.trouble.iter_mut().enumerate() {
            for (master, trouble) in masters.iter_mut().enumerate() {
                match fault.what {
                    What::Kill(one, back) if one == master => {
                        trouble.down = trouble.down.max(end);
                        trouble.broken = trouble.broken.max(end);
                        trouble.slow = trouble.slow.max(end);
                        let until = if back == Back::Keeping { end } else { quarantine };
                        trouble.forgotten = trouble.forgotten.max(until.max(quarantine));
                    }
                    What::Pause(one) if one == master => {
                        trouble.slow = trouble.slow.max(end);
                        trouble.broken = trouble.broken.max(end);
                        trouble.forgotten = trouble.forgotten.max(end);
                    }
                    What::Part(one, whom)
                    | What::LoseRequests(one, whom)
                    | What::LoseReplies(one, whom)
                    | What::Slow(one, whom, _)
                        if one == master && is_of(whom, process) =>
                    {
                        trouble.reach(end);
                    }
                    What::Break(one, whom, _) if one == master && whom == process => {
                        trouble.reach(end);
                    }
                    What::PauseProcess(one) | What::Suspend(one) | What::KillProcess(one)
                        if one == process =>
                    {
                        trouble.reach(end);
                    }
                    _ => {}
                }
            }
        }
    }

    /// Compares the answers behind a failure with the faults.
    pub(crate) fn failed(&mut self, process: usize, failed: &Failed, now: Instant) {
        let masters = &self.trouble[process];
        // An attempt that waits for one master alone has not queried the others yet.
        let is_slow = masters.iter().any(|trouble| trouble.explains(&Cause::TimedOut, now));
        for (master, answer) in failed.answers.iter().enumerate() {
            if let Verdict::Unknown(cause) = &answer.verdict
                && !(*answer == LastAnswer::unasked() && is_slow)
                && !self.trouble[process][master].explains(cause, now)
            {
                let text = format!(
                    "client {process} reports of master {master} at {now:?} \"{cause}\", and no \
                     fault explains it"
                );
                self.fail(Violation::Cause(text));
            }
        }
    }

    /// Compares the loss of a lease with the faults.
    pub(crate) fn lost(&mut self, process: usize, reason: LostReason, now: Instant) {
        let masters = &self.trouble[process];
        let is_explained = match reason {
            LostReason::NotExtended | LostReason::NotOurs | LostReason::DataLost => {
                masters.iter().any(|trouble| trouble.is_any(now))
            }
            LostReason::MaxHold => true,
            _ => false,
        };
        if !is_explained {
            let text = format!(
                "client {process} lost a lease at {now:?} because {reason}, and no \
                                fault explains it"
            );
            self.fail(Violation::Cause(text));
        }
    }
}

impl Trouble {
    /// The master cannot be reached for a while, or not in time.
    fn reach(&mut self, until: Instant) {
        self.broken = self.broken.max(until);
        self.slow = self.slow.max(until);
        // It is probed again.
        self.forgotten = self.forgotten.max(until);
    }

    fn is_any(&self, now: Instant) -> bool {
        [self.down, self.broken, self.slow, self.forgotten].into_iter().any(|until| now <= until)
    }

    fn explains(&self, cause: &Cause, now: Instant) -> bool {
        let lasts = |until: Instant| now <= until;
        match cause {
            Cause::ConnectionRefused => lasts(self.down),
            Cause::ConnectionClosed => lasts(self.broken),
            Cause::TimedOut => lasts(self.slow),
            Cause::NotConnected(_) | Cause::NotSent(_) => lasts(self.broken) || lasts(self.slow),
            Cause::NotAdmitted(_) => lasts(self.forgotten),
            _ => false,
        }
    }
}
