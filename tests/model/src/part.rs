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
    pub(crate) kinds: &'static [Loss],
    /// How often a replica catches up, or a snapshot is saved, after the start.
    pub saves: u8,
    /// How many steps the clock of one machine makes.
    pub steps: u8,
    /// Which machine's clock it is; any one where this is None.
    pub clock: Option<usize>,
    /// Whether `ZCARD` is answered before the first grant, or never.
    pub counted: bool,
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
    /// The first so many masters are fresh at the start, the others are admitted.
    pub fresh: usize,
    /// The rule that is broken.
    pub broken: Option<Broken>,
}

/// How a master loses data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Loss {
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

/// Nothing happens but one loss.
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
    clock: None,
    counted: true,
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
    fresh: 0,
    broken: None,
};

/// The bounds that the ordinary tests exhaust in seconds.
pub fn small() -> Vec<Part> {
    vec![
        Part { name: "alone", masters: 1, losses: 1, horizon: 6, ..NONE },
        Part { name: "quarantine", losses: 1, steps: 1, horizon: 5, ..NONE },
    ]
}

/// The bounds of `make model`.
pub fn large() -> Vec<Part> {
    let alone = Part { masters: 1, losses: 2, horizon: 6, ..NONE };
    let three = Part { losses: 2, horizon: 6, ..NONE };
    let one = Part { losses: 1, horizon: 5, ..NONE };
    let saved = &[RestartSaved, RestartReplica, Flush, Failover];
    let floor = Part { losses: 2, lossy: 2, ballots: 1, visits: 0, clients: 1, ..three.clone() };
    vec![
        Part { name: "alone", steps: 1, strays: 1, ..alone.clone() },
        Part { name: "alone-flips", kinds: saved, saves: 1, flips: 1, strays: 1, ..alone.clone() },
        Part { name: "alone-locks", locks: true, tracking: false, ..alone.clone() },
        Part { name: "one-loss", steps: 1, ..one.clone() },
        Part { name: "two-losses", ..three.clone() },
        Part { name: "two-masters", lossy: 2, kinds: &[RestartEmpty, Flush], visits: 0, clients: 1, steps: 1, strides: &[4], ..three.clone() },
        Part { name: "looks", look_every: 1, steps: 1, strides: &[4], ..one.clone() },
        Part { name: "strays", strays: 1, drops: 1, steps: 1, strides: &[4], kinds: &[Flush, Failover], ..one.clone() },
        Part { name: "flips", kinds: &[Failover, RestartReplica], flips: 1, counted: false, ..three.clone() },
        Part { name: "floor", ..floor.clone() },
        Part { name: "floor-2", losses: 1, ballots: 2, ..floor.clone() },
        Part { name: "locks", losses: 1, locks: true, horizon: 4, ..three.clone() },
        Part { name: "init", losses: 1, ballots: 1, inits: 2, visits: 0, clients: 1, ..three.clone() },
        Part { name: "init-fresh", fresh: 3, losses: 1, inits: 2, horizon: 4, ..three.clone() },
        Part { name: "recovery", recovery: true, losses: 1, steps: 2, strides: &[4, 40, -40], stops: 1, horizon: 4, ..three.clone() },
    ]
}

/// The part in which a mutant is looked for.
pub fn named(broken: Broken) -> Part {
    use Broken as B;
    let alone = Part { masters: 1, losses: 1, visits: 0, horizon: 5, strides: &[4], ..NONE };
    let three = Part { losses: 1, ..NONE };
    let floor = Part { ballots: 1, visits: 0, clients: 1, kinds: &[RestartEmpty], ..three.clone() };
    let flips = Part { kinds: &[Failover], flips: 1, ..three.clone() };
    let forever = Part { recovery: true, kinds: &[RestartEmpty], clients: 1, visits: 0, ..three.clone() };
    let part = match broken {
        B::NoQuarantine | B::NewWithoutRecord => alone,
        B::PushIgnored => Part { kinds: &[Flush], ..alone },
        B::TimeAlone => Part { steps: 1, look_every: 1, ..alone },
        B::IdentityKnown => Part { kinds: &[Flush], steps: 1, look_every: 1, ..alone },
        B::TimesBeforeNonce => Part { kinds: &[Flush], clients: 1, visits: 0, steps: 1, strides: &[4], horizon: 6, look_every: 1, ..three },
B::NoteWithoutNonce => Part { masters: 2, kinds: &[Flush], fresh: 1, steps: 1, clock: Some(0), strides: &[4], inits: 1, horizon: 4, ..three },
        B::NoLaterNotes => Part { losses: 2, lossy: 2, stops: 1, horizon: 3, ..forever },
        B::FarAheadStands => Part { steps: 2, strides: &[40, -40], ..forever },
        B::UntilByClient => Part { kinds: &[Flush], ..three },
        B::NonceForgotten | B::BeginWithoutCompare => Part { masters: 1, kinds: &[Failover, Flush], losses: 2, flips: 1, strays: 1, ..NONE },
        B::RunKept => Part { counted: false, ..flips },
        B::FlipBegins => flips,
        B::WithoutReplid => Part { kinds: &[Failover], masters: 1, ..NONE },
        B::FloorFromTooFew | B::FloorEarly => floor,
        B::FloorProvenBefore => Part { kinds: &[RestartEmpty, Failover], losses: 2, lossy: 2, horizon: 2, ..floor },
        B::InitWithoutCompare => Part { inits: 1, ..floor },
        B::InitLowers => Part { inits: 1, losses: 0, ..floor },
        B::AdmitWithoutNonce => Part { kinds: &[Flush], losses: 2, strays: 1, steps: 1, masters: 1, ..NONE },
        B::AdmitWithoutIdentity => Part { kinds: &[Failover], losses: 2, saves: 1, masters: 1, ..NONE },
        B::NotedWithoutMore => Part { kinds: &[Flush], steps: 1, clients: 1, visits: 0, look_every: 1, ..three },
    };
    Part { name: "mutant", broken: Some(broken), ..part }
}
