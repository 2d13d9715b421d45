//! `Story`: what happens to a fleet. All of it follows from one seed, and each fault can be left
//! out.

use std::fmt;
use std::time::Duration;

use crate::flaws::Flaw;
use crate::streams::{Of, Stream};

/// The TTL of all locks, and how far the clocks of the masters may be set.
pub(crate) const TTL: Duration = Duration::from_millis(1_000);
pub(crate) const GUARD: Duration = Duration::from_millis(100);

/// The fleet and what it does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) masters: usize,
    pub(crate) processes: usize,
    /// The callers of one process.
    pub(crate) callers: usize,
    /// The number of keys that all contend for. `None` if each caller has its own.
    pub(crate) keys: Option<usize>,
    pub(crate) quarantine: bool,
    pub(crate) fencing: bool,
    pub(crate) queue: bool,
    pub(crate) hand_over: bool,
    /// How long to wait for an answer, if that is not the default.
    pub(crate) node_timeout: Option<Duration>,
    /// Faults begin before this, and have ended shortly after it.
    pub(crate) troubled: Duration,
    /// Callers stop then.
    pub(crate) length: Duration,
}

/// A fault, when it begins and how long it lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) number: usize,
    pub(crate) at: Duration,
    pub(crate) length: Duration,
    pub(crate) what: What,
}

/// The kinds of faults. Masters and processes are named by their numbers. A fault of the network
/// concerns one process, or all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Kill(usize, Back),
    Pause(usize),
    /// Sets the clock of a master so far ahead.
    SetClock(usize, u64),
    Part(usize, Option<usize>),
    LoseRequests(usize, Option<usize>),
    LoseReplies(usize, Option<usize>),
    Slow(usize, Option<usize>, Duration),
    /// Breaks a connection. So many requests that are on their way arrive so much later.
    Break(usize, usize, Option<(usize, Duration)>),
    PauseProcess(usize),
    /// The machine is suspended: its timers stop, and the clock of its leases does not.
    Suspend(usize),
    KillProcess(usize),
}

/// The data of a master that is started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Back {
    Keeping,
    Empty,
    /// From a copy that was made so long before.
    Old(Duration),
}

/// A fleet and its faults.
#[derive(Clone, Debug)]
pub struct Story {
    pub(crate) seed: u64,
    pub(crate) setup: Setup,
    pub(crate) faults: Vec<Fault>,
}

impl Story {
    /// Returns the story of this seed. Every fourth one has neither contention nor faults.
    pub fn of(seed: u64) -> Self {
        if seed % 4 == 3 { Self::calm(seed) } else { Self::troubled(seed, Setup::of(seed)) }
    }

    /// No contention and no faults.
    pub(crate) fn calm(seed: u64) -> Self {
        let length = Duration::from_secs(3);
        let setup = Setup::of(seed);
        let setup = Setup { keys: None, troubled: Duration::ZERO, length, ..setup };
        Self { seed, setup, faults: Vec::new() }
    }

    pub(crate) fn troubled(seed: u64, setup: Setup) -> Self {
        let mut plan = Stream::new(seed, Of::Plan);
        let count = plan.index(30);
        let faults = (0..count).map(|number| Fault::of(seed, number, &setup)).collect();
        Self { seed, setup, faults }
    }

    /// A story in which a client with this flaw may show it: on one key, without a quarantine, and
    /// on a network that may be slow. Some flaws show only while all masters are slow.
    pub fn for_flaw(flaw: Flaw, seed: u64) -> Self {
        let fencing = flaw.is_of_tokens();
        let (keys, node_timeout) = (Some(1), Some(TTL / 4));
        let setup = Setup { keys, quarantine: false, fencing, node_timeout, ..Setup::of(seed) };
        let mut story = Self::troubled(seed, Setup { hand_over: !fencing, ..setup });
        match flaw {
            _ if fencing => story.slow_down(TTL / 10),
            Flaw::ValidityFromReplies => story.slow_down(TTL / 5),
            _ => {}
        }
        story
    }

    /// Adds that all masters are slow for all clients, during all other faults.
    fn slow_down(&mut self, by: Duration) {
        let (begin, length) = (self.faults.len(), self.setup.troubled);
        self.faults.extend((0..self.setup.masters).map(|master| {
            let (number, what) = (begin + master, What::Slow(master, None, by));
            Fault { number, at: Duration::ZERO, length, what }
        }));
    }

    pub(crate) fn is_calm(&self) -> bool {
        self.setup.keys.is_none()
    }

    /// Returns its seed.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns the number of its faults.
    pub fn len(&self) -> usize {
        self.faults.len()
    }

    /// Returns `true` if it has no faults.
    pub fn is_empty(&self) -> bool {
        self.faults.is_empty()
    }
}

impl Setup {
    pub(crate) fn of(seed: u64) -> Self {
        let mut draw = Stream::new(seed, Of::Setup);
        Self {
            masters: if draw.percent(70) { 5 } else { 3 },
            processes: 2 + draw.index(3),
            callers: 1 + draw.index(2),
            keys: Some(1 + draw.index(2)),
            quarantine: draw.percent(50),
            fencing: draw.percent(75),
            queue: draw.percent(75),
            hand_over: draw.percent(75),
            node_timeout: draw.percent(25).then_some(TTL / 4),
            troubled: Duration::from_secs(12),
            length: Duration::from_secs(24),
        }
    }
}

impl Fault {
    fn of(seed: u64, number: usize, setup: &Setup) -> Self {
        let mut draw = Stream::new(seed, Of::Fault(number));
        let end = u64::try_from(setup.troubled.as_millis()).unwrap_or(u64::MAX);
        let at = draw.millis(0, end);
        let length = draw.millis(20, 2_000);
        let master = draw.index(setup.masters);
        let process = draw.index(setup.processes);
        let one = draw.percent(50).then_some(process);
        let what = match draw.below(12) {
            0 => What::Kill(master, Back::of(&mut draw, setup.quarantine)),
            1 => What::Kill(master, Back::Keeping),
            2 => What::Pause(master),
            3 => What::SetClock(master, draw.below(GUARD.as_millis() as u64 + 1)),
            4 => What::Part(master, one),
            5 => What::LoseRequests(master, one),
            6 => What::LoseReplies(master, one),
            7 => What::Slow(master, one, draw.millis(1, 125)),
            8 => {
                let late = draw.percent(70).then(|| (1 + draw.index(8), draw.millis(1, 1_500)));
                What::Break(master, process, late)
            }
            9 => What::PauseProcess(process),
            10 => What::Suspend(process),
            _ => What::KillProcess(process),
        };
        Self { number, at, length, what }
    }
}

impl Back {
    /// Without a quarantine, masters must not forget.
    fn of(draw: &mut Stream, quarantine: bool) -> Self {
        let age = draw.millis(1, 1_000);
        match draw.below(2) {
            _ if !quarantine => Self::Keeping,
            0 => Self::Empty,
            _ => Self::Old(age),
        }
    }
}

impl fmt::Display for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { masters, processes, callers, .. } = self;
        write!(f, "{masters} masters, {processes} clients with {callers} callers each, ")?;
        match self.keys {
            Some(keys) => write!(f, "{keys} keys")?,
            None => write!(f, "a key for each caller")?,
        }
        let switches = [
            (self.fencing, "fencing"),
            (self.quarantine, "quarantine"),
            (self.queue, "queue"),
            (self.hand_over, "hand-over"),
        ];
        for (on, name) in switches {
            write!(f, ", {}{name}", if on { "" } else { "no " })?;
        }
        Ok(())
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, length, .. } = self;
        write!(f, "{:.3}s ", at.as_secs_f64())?;
        match self.what {
            What::Kill(master, Back::Keeping) => write!(f, "master {master} is killed"),
            What::Kill(master, Back::Empty) => write!(f, "master {master} is killed, and empty"),
            What::Kill(master, Back::Old(age)) => {
                write!(f, "master {master} is killed, and has its data of {age:?} before")
            }
            What::Pause(master) => write!(f, "master {master} is paused"),
            What::SetClock(master, to) => {
                return write!(f, "the clock of master {master} is set {to} ms ahead");
            }
            What::Part(master, one) => write!(f, "master {master} is out of reach{}", Whom(one)),
            What::LoseRequests(master, one) => {
                write!(f, "requests to master {master} are lost{}", Whom(one))
            }
            What::LoseReplies(master, one) => {
                write!(f, "replies of master {master} are lost{}", Whom(one))
            }
            What::Slow(master, one, by) => {
                write!(f, "messages of master {master} take {by:?} more{}", Whom(one))
            }
            What::Break(master, process, None) => {
                return write!(f, "client {process} loses its connection to master {master}");
            }
            What::Break(master, process, Some((count, late))) => {
                return write!(
                    f,
                    "client {process} loses its connection to master {master}, and up to {count} \
                     of its requests arrive {late:?} later"
                );
            }
            What::PauseProcess(process) => write!(f, "client {process} is paused"),
            What::Suspend(process) => write!(f, "client {process} is suspended"),
            What::KillProcess(process) => write!(f, "client {process} is killed"),
        }?;
        write!(f, " for {:.3}s", length.as_secs_f64())
    }
}

/// Whom a fault of the network concerns.
struct Whom(Option<usize>);

impl fmt::Display for Whom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |process| write!(f, " for client {process}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fault_is_independent_of_other_faults() {
        let story = Story::troubled(7, Setup::of(7));
        for fault in &story.faults {
            assert_eq!(*fault, Fault::of(7, fault.number, &story.setup));
        }
    }

    #[test]
    fn masters_forget_only_with_a_quarantine() {
        for seed in 0..200 {
            let story = Story::of(seed);
            let forgets =
                |fault: &Fault| matches!(fault.what, What::Kill(_, Back::Empty | Back::Old(_)));
            assert!(story.setup.quarantine || !story.faults.iter().any(forgets));
        }
    }
}
