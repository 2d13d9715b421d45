//! The parts of the model and their bounds.

use super::broken::Broken;

/// How long a lock lives. With `max_ttl` 2 the quarantine takes 2.
pub(crate) const TTL: u64 = 2;

/// The bounds of one run. Numbers apply to the whole run.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// Its name in the output.
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
    pub probe_every: u64,
    /// How long after its sending a script may act.
    pub act_within: u64,
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
    /// The maximum number of scripts of dead connections on their way at the same time.
    pub strays: usize,
    /// How often an operator runs `init`.
    pub inits: u8,
    /// Whether it is a start script that does, without `again`.
    pub plain: bool,
    /// Whether the person lists the masters under other names, so that `init` records another set.
    pub relists: bool,
    /// How many ballots are tried.
    pub ballots: u8,
    /// The `max_ttl` in the records at the start.
    pub(crate) held: u64,
    /// The clients' own `max_ttl`.
    pub(crate) own: u64,
    /// Whether an operator set it in the clients.
    pub given: bool,
    /// How often an operator raises `max_ttl`, with an `init` that reaches all masters.
    pub raises: u8,
    /// Whether clients connect to one master after the other, and any connection may break.
    pub gradual: bool,
    /// Whether clients take locks.
    pub locks: bool,
    /// Whether all clients have tracking. Otherwise only the client that stays has it, and the
    /// other client notices lost data by its ballots, which do not show a failover and back.
    pub tracking: bool,
    /// Whether every state must be one from which all masters come back.
    pub recovery: bool,
    /// Whether a note of an earlier quarantine of the first master is on the way at the start.
    pub late: bool,
    /// The first so many masters are fresh at the start, the others are admitted.
    pub fresh: usize,
    /// The broken rule.
    pub broken: Option<Broken>,
}

/// How a master loses data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Loss {
    /// A new process without data.
    RestartEmpty,
    /// A new process with the saved data.
    RestartSaved,
    /// A new process with the saved data on a server that had a replica.
    RestartReplica,
    /// The same process without data.
    Flush,
    /// The same process with what its lagging replica had.
    Failover,
    /// The same process with the saved data, after every client has seen other data.
    PutBack,
}

use Loss::{Failover, Flush, PutBack, RestartEmpty, RestartReplica, RestartSaved};

const ALL: &[Loss] = &[RestartEmpty, RestartSaved, Flush, Failover];

/// Nothing happens but one loss.
const NONE: Part = Part {
    name: "",
    masters: 3,
    clients: 2,
    visits: 1,
    horizon: 8,
    probe_every: 100,
    act_within: u64::MAX,
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
    plain: false,
    relists: false,
    ballots: 0,
    held: TTL,
    own: TTL,
    given: false,
    raises: 0,
    gradual: false,
    locks: false,
    tracking: true,
    recovery: false,
    late: false,
    fresh: 0,
    broken: None,
};

/// Returns the bounds that the ordinary tests exhaust in seconds.
pub fn small() -> Vec<Part> {
    let one = Part { kinds: &[RestartEmpty], clients: 1, visits: 0, horizon: 4, ..NONE };
    vec![
        Part { name: "alone", masters: 1, horizon: 4, ..NONE },
        Part { name: "three", kinds: &[Flush], steps: 1, strides: &[4], late: true, ..one },
        Part { name: "floor", ballots: 1, ..one },
        Part { name: "recovery", recovery: true, steps: 2, strides: &[40, -40], ..one },
    ]
}

/// Returns the bounds of `make model`.
pub fn large() -> Vec<Part> {
    let alone = Part { masters: 1, losses: 2, horizon: 6, ..NONE };
    let three = Part { losses: 2, horizon: 6, ..NONE };
    let stays = Part { clients: 1, visits: 0, ..three };
    let two = Part { masters: 2, ..three };
    let saved = &[RestartSaved, RestartReplica, Flush, Failover];
    let empty = &[RestartEmpty, Flush];
    let forgetful = &[RestartEmpty, RestartSaved, Flush];
    let length = Part { kinds: &[RestartEmpty], own: 1, gradual: true, drops: 1, ..three };
    vec![
        Part { name: "alone", steps: 1, strays: 1, ..alone },
        Part { name: "alone-flips", kinds: saved, saves: 1, flips: 1, strays: 1, ..alone },
        Part { name: "alone-locks", kinds: forgetful, locks: true, tracking: false, ..alone },
        Part { name: "one-loss", losses: 1, steps: 1, horizon: 5, ..three },
        Part { name: "two-losses", ..three },
        Part { name: "two-masters", lossy: 2, kinds: empty, steps: 1, strides: &[4], ..stays },
        Part { name: "clock", steps: 1, strides: &[4, -4], late: true, horizon: 5, ..stays },
        Part {
            name: "looks",
            losses: 1,
            probe_every: 1,
            steps: 1,
            strides: &[4],
            horizon: 5,
            ..three
        },
        Part { name: "late", strays: 1, kinds: &[Flush], late: true, horizon: 4, ..two },
        Part { name: "flips", kinds: &[Failover], flips: 1, counted: false, horizon: 5, ..two },
        Part {
            name: "floor",
            lossy: 2,
            ballots: 1,
            kinds: &[RestartEmpty, Failover],
            horizon: 4,
            ..stays
        },
        Part { name: "floor-2", losses: 1, lossy: 2, ballots: 2, ..stays },
        Part { name: "locks", losses: 1, locks: true, kinds: &[RestartEmpty], horizon: 3, ..NONE },
        Part { name: "init", losses: 1, ballots: 1, inits: 1, kinds: empty, horizon: 4, ..stays },
        Part {
            name: "relists",
            losses: 1,
            inits: 1,
            relists: true,
            kinds: forgetful,
            saves: 1,
            horizon: 4,
            ..stays
        },
        Part { name: "late-init", losses: 1, ..late_init(alone) },
        Part { name: "script", ..script(three) },
        Part { name: "lengths", clients: 1, visits: 0, lossy: 2, horizon: 4, ..length },
        Part { name: "visitor", lossy: 2, drops: 0, horizon: 2, ..length },
        Part { name: "raised", losses: 1, held: 1, raises: 1, horizon: 3, ..length },
        Part { name: "put-back", ..put_back(alone) },
        Part { name: "put-back-3", ballots: 1, ..put_back(Part { horizon: 4, ..three }) },
        Part { name: "older", ..older(Part { losses: 2, horizon: 5, ..NONE }) },
        Part { name: "older-3", masters: 3, lossy: 2, stops: 1, ..older(stays) },
        Part {
            name: "recovery",
            recovery: true,
            losses: 1,
            steps: 2,
            strides: &[40, -40],
            stops: 1,
            horizon: 3,
            ..stays
        },
    ]
}

/// Masters come back with a record from before `max_ttl` was raised.
fn older(part: Part) -> Part {
    Part { masters: 1, kinds: &[RestartSaved], held: 1, given: true, raises: 1, ..part }
}

/// One of the losses restores a copy of the data while a client stays connected.
fn put_back(part: Part) -> Part {
    let kinds = &[RestartEmpty, Flush, PutBack];
    Part { clients: 1, visits: 0, saves: 1, losses: 3, kinds, ..part }
}

/// The order of an `init` may be on its way forever.
fn late_init(part: Part) -> Part {
    Part { fresh: 1, inits: 1, act_within: 1, kinds: &[Flush], ..part }
}

/// Two masters lose their data, the third one may stop, and a script types `init`.
fn script(part: Part) -> Part {
    let empty = &[RestartEmpty, Flush];
    let script = Part { plain: true, inits: 1, stops: 1, lossy: 2, losses: 2, ..part };
    Part { kinds: empty, clients: 1, visits: 0, horizon: 4, ..script }
}

/// Returns the part in which a mutant is searched.
pub fn named(broken: Broken) -> Part {
    use Broken as B;
    let alone = Part { masters: 1, losses: 1, visits: 0, horizon: 5, strides: &[4], ..NONE };
    let three = Part { losses: 1, ..NONE };
    let floor = Part { ballots: 1, visits: 0, clients: 1, kinds: &[RestartEmpty], ..three };
    let flips = Part { kinds: &[Failover], flips: 1, ..three };
    let lengths = Part { kinds: &[RestartEmpty], own: 1, gradual: true, horizon: 3, ..three };
    let forever = Part { recovery: true, kinds: &[RestartEmpty], clients: 1, visits: 0, ..three };
    let part = match broken {
        B::NoQuarantine => alone,
        // The client that stays connected has seen that the prefix was in use.
        B::NewWithoutRecord => Part { visits: 1, ..alone },
        B::PushIgnored => Part { kinds: &[Flush], ..alone },
        B::TimeAlone => Part { steps: 1, probe_every: 1, ..alone },
        B::IdentityKnown => Part { kinds: &[Flush], steps: 1, probe_every: 1, ..alone },
        B::TimesBeforeNonce => Part {
            kinds: &[Flush],
            clients: 1,
            visits: 0,
            steps: 1,
            strides: &[4],
            horizon: 6,
            probe_every: 1,
            ..three
        },
        B::NoteWithoutNonce => Part {
            kinds: &[Flush],
            late: true,
            steps: 1,
            strides: &[4],
            horizon: 5,
            probe_every: 1,
            clients: 1,
            visits: 0,
            ..three
        },
        B::NoLaterNotes => Part { losses: 2, lossy: 2, stops: 1, horizon: 3, ..forever },
        B::FarAheadStands => Part { steps: 2, strides: &[40, -40], ..forever },
        B::UntilByClient => Part { kinds: &[Flush], ..three },
        B::NonceForgotten | B::BeginWithoutCompare => {
            Part { masters: 1, kinds: &[Failover, Flush], losses: 2, flips: 1, horizon: 3, ..NONE }
        }
        B::RunKept => Part { counted: false, ..flips },
        B::FlipBegins => flips,
        B::OutdatedTaken => put_back(Part { horizon: 3, ..alone }),
        B::WithoutReplid => Part { kinds: &[Failover], masters: 1, ..NONE },
        B::FloorFromTooFew | B::FloorEarly => floor,
        B::FloorProvenBefore => {
            Part { kinds: &[RestartEmpty, Failover], losses: 2, lossy: 2, horizon: 2, ..floor }
        }
        B::ProofOfAnotherLife => {
            Part { kinds: &[Failover], losses: 2, lossy: 2, horizon: 4, ..floor }
        }
        B::SetRemoved => Part { kinds: &[RestartSaved], ..alone },
        B::InitActsLate => late_init(alone),
        B::UnreadIsEmpty => script(three),
        B::InitWithoutCompare => Part { inits: 1, horizon: 3, ..floor },
        B::InitLowers => Part { inits: 1, losses: 0, ..floor },
        B::NotesKept => Part {
            kinds: &[RestartEmpty, RestartSaved],
            losses: 2,
            saves: 1,
            steps: 1,
            clock: Some(0),
            strides: &[4],
            horizon: 5,
            probe_every: 1,
            clients: 1,
            visits: 0,
            ..three
        },
        B::AdmitWithoutNonce => Part {
            kinds: &[Flush],
            losses: 2,
            steps: 1,
            strides: &[4],
            horizon: 3,
            masters: 1,
            ..NONE
        },
        B::AdmitWithoutIdentity => {
            Part { kinds: &[Failover], losses: 2, saves: 1, masters: 1, ..NONE }
        }
        B::BeginAtQuorum => Part { losses: 2, lossy: 2, ..lengths },
        B::LengthForgotten => {
            Part { losses: 2, lossy: 2, drops: 1, clients: 1, visits: 0, ..lengths }
        }
        // A broken connection prevents the client from learning a later value in time.
        B::LengthFromBefore => {
            let forgets = Part { losses: 2, lossy: 2, drops: 1, held: 1, raises: 1, ..lengths };
            Part { clients: 1, visits: 0, horizon: 4, ..forgets }
        }
        B::GivenIgnored => older(Part { clients: 1, visits: 0, ..alone }),
        B::NotedWithoutMore => {
            Part { kinds: &[Flush], steps: 1, clients: 1, visits: 0, probe_every: 1, ..three }
        }
    };
    Part { name: "mutant", broken: Some(broken), ..part }
}
