//! The parts of the model and their bounds.

use crate::broken::Broken;

/// How long a lock lives. With `max_ttl` 2 the quarantine takes 2.
pub(crate) const TTL: u64 = 2;

/// What one run bounds. Counts are for the whole run.
#[derive(Clone, Debug)]
pub struct Part {
    /// What it is called in the output.
    pub name: &'static str,
    /// How many masters there are.
    pub masters: usize,
    /// How many clients there are: the first stays, the others live a moment.
    pub clients: usize,
    /// How many lives the others have in all.
    pub visits: u8,
    /// When time ends.
    pub horizon: u64,
    /// How often a client looks at a master that does not vote.
    pub look_every: u64,
    /// How many losses of data there are.
    pub losses: u8,
    /// The first so many masters may lose data.
    pub lossy: usize,
    /// The kinds of losses.
    pub kinds: &'static [Loss],
    /// How often a replica catches up, or a snapshot is saved, after the start.
    pub saves: u8,
    /// How many steps the clock of one machine makes.
    pub steps: u8,
    /// How far a clock steps.
    pub strides: &'static [i64],
    /// How often a server forgets that it was a replica.
    pub flips: u8,
    /// How many masters stop for good.
    pub stops: u8,
    /// How many connections break by themselves.
    pub drops: u8,
    /// How many scripts of dead connections may be on the way at once.
    pub strays: usize,
    /// How often a person types `init`.
    pub inits: u8,
    /// How many ballots are tried.
    pub ballots: u8,
    /// Whether clients take locks.
    pub locks: bool,
    /// Whether all clients have tracking; otherwise only the one that stays has it.
    pub tracking: bool,
    /// Whether every state must be one from which all masters come back.
    pub recovery: bool,
    /// Whether the masters are fresh at the start instead of admitted.
    pub fresh: bool,
    /// The rule that is broken.
    pub broken: Option<Broken>,
}

/// How a master loses data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Loss {
    /// A new process without data.
    RestartEmpty,
    /// A new process with what was saved.
    RestartSaved,
    /// A new process with what was saved on a server that had a replica.
    RestartReplica,
    /// The same process without data.
    Flush,
    /// The same process with what its lagging replica had.
    Failover,
}

use Loss::{Failover, Flush, RestartEmpty, RestartReplica, RestartSaved};

const ALL: &[Loss] = &[RestartEmpty, RestartSaved, Flush, Failover];

const NONE: Part = Part {
    name: "",
    masters: 3,
    clients: 2,
    visits: 1,
    horizon: 8,
    look_every: 100,
    losses: 1,
    lossy: 1,
    kinds: ALL,
    saves: 0,
    steps: 0,
    strides: &[4, -4],
    flips: 0,
    stops: 0,
    drops: 0,
    strays: 0,
    inits: 0,
    ballots: 0,
    locks: false,
    tracking: true,
    recovery: false,
    fresh: false,
    broken: None,
};

/// The bounds that the ordinary tests exhaust in seconds.
pub fn small() -> Vec<Part> {
    vec![
        Part { name: "alone", masters: 1, losses: 2, steps: 1, strays: 1, horizon: 6, ..NONE },
    ]
}

/// The bounds of `make model`.
pub fn large() -> Vec<Part> {
    vec![
        Part { name: "alone", masters: 1, losses: 2, steps: 1, strays: 1, horizon: 6, ..NONE },
    ]
}

/// The part in which a mutant is looked for.
pub fn named(broken: Broken) -> Part {
    let part = NONE;
    Part { broken: Some(broken), ..part }
}
const _: Loss = RestartReplica;
