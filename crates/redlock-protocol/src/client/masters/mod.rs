//! `Masters`: what one client knows of each master, and which masters vote.
//!
//! It contains the state of connections, the admission of masters with the steps in progress,
//! doubts about their data, their clocks and scores, and the choice of meeting points. Locks,
//! callers and keys do not occur here. Consequences for other parts are appended to [`News`], in
//! order.
//!
//! In reading order: `link` (one master), `links`, `news`; `events` (what happens to connections), `voting`
//! (whose answers are valid), `steps` (towards admission), `gate` (attempts that wait for steps),
//! `doubt` (a master that reports that its data may be gone), `freshness`, `ballots`, `meeting`, `view`
//! (what questions see), `voters` (what locks see).

mod ballots;
mod doubt;
mod events;
mod freshness;
mod gate;
mod link;
mod links;
mod meeting;
mod millis;
mod news;
mod steps;
mod view;
mod voters;
mod voting;

#[cfg(test)]
mod tests;

use std::time::Duration;

use redlock_core::admission::{MAX_TTL_MAX, Names};
use redlock_core::{Instant, ListDoubt};

pub use self::freshness::FRESH_FOR;
use self::gate::Gate;
use self::link::Link;
pub use self::links::Links;
use self::millis::to_millis;
pub use self::news::{News, Weakness};
use self::steps::Steps;
use crate::admission::Admission;
use crate::ballot::chooser::Chooser;
use crate::incarnations::Incarnations;
use crate::master_set::MasterSet;

/// All masters of one client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Masters {
    terms: Terms,
    links: Links,
    /// Decides with `incarnations` which masters vote.
    admission: Admission,
    incarnations: Incarnations,
    /// The masters that vote.
    voting: MasterSet,
    /// The masters that get no requests for new locks, because their recorded set does not fit the
    /// list of this client.
    misfits: MasterSet,
    /// The misfits that are certain, and were reported.
    reported: MasterSet,
    /// Why the list of this client may be wrong although it works, and the master that shows it.
    doubt: Option<(usize, ListDoubt)>,
    /// The longest usable TTL: the smallest that masters record, or ours if none records one. Only
    /// the general limit applies before a record was read.
    max_ttl: Duration,
    /// Until when first connections may be made.
    connecting_until: Instant,
    /// Whether a lease is held, which may lack a copy on each unreachable master.
    is_holding: bool,
    /// Whether a lock has been requested from the handle.
    is_asked: bool,
    gate: Gate,
    steps: Vec<Steps>,
    ballots: Chooser,
}

/// The settings of a client that concern its masters.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Terms {
    /// The masters, in the order of the list.
    pub names: Names,
    /// Whether locks have fencing tokens.
    pub fencing: bool,
    /// Whether a master that may have lost its data must end a quarantine.
    pub has_quarantine: bool,
    /// Whether callers that wait use shared queues.
    pub wants_queue: bool,
    /// The largest TTL while no master records another one.
    pub max_ttl: Duration,
    /// Whether an operator set `max_ttl`, so that it is not the default.
    pub is_max_ttl_given: bool,
    /// How long after sending a script of admission may act.
    pub act_within: Duration,
    /// How long a master has to answer a request about its admission.
    pub order_timeout: Duration,
    /// How long a master has to answer another request.
    pub node_timeout: Duration,
    /// How long attempts wait for steps under way.
    pub connect_timeout: Duration,
}

/// Context of an input.
pub type Context<'a> = super::context::Context<'a, News>;

/// How often a master that does not vote is probed.
const PROBE_EVERY: Duration = Duration::from_secs(1);

impl Masters {
    /// Creates the state before the first connections.
    pub fn new(terms: Terms) -> Self {
        let masters = terms.names.iter().count();
        let max_ttl = if terms.has_quarantine { MAX_TTL_MAX } else { terms.max_ttl };
        Self {
            links: Links(vec![Link::new(); masters]),
            admission: admission(masters, &terms),
            incarnations: Incarnations::new(masters),
            voting: MasterSet::EMPTY,
            misfits: MasterSet::EMPTY,
            reported: MasterSet::EMPTY,
            doubt: None,
            max_ttl,
            connecting_until: Instant::ORIGIN,
            is_holding: false,
            is_asked: false,
            gate: Gate::default(),
            steps: vec![Steps::default(); masters],
            ballots: Chooser::new(masters),
            terms,
        }
    }

    /// Returns the number of masters.
    #[inline]
    pub fn len(&self) -> usize {
        self.links.0.len()
    }

    /// Returns all masters.
    pub fn all(&self) -> MasterSet {
        MasterSet::all(self.len())
    }

    /// Returns `true` if there are no masters.
    pub fn is_empty(&self) -> bool {
        self.links.0.is_empty()
    }

    /// Returns the connections to all masters.
    #[inline]
    pub fn links(&self) -> &Links {
        &self.links
    }

    /// Returns the admission of all masters.
    pub fn admission(&self) -> &Admission {
        &self.admission
    }

    /// Passes to the admission whether first connections are still being made.
    fn note_connecting(&mut self, now: Instant) {
        let may_connect = self.links.is_connecting() && now < self.connecting_until;
        self.admission.set_connecting(may_connect);
    }

    /// Returns `true` if first connections are being made that may show duplicate addresses, without
    /// which the list fits the recorded set.
    pub fn awaits_duplicates(&self, now: Instant) -> bool {
        now < self.connecting_until && self.admission.awaits_duplicates()
    }
}

fn admission(masters: usize, terms: &Terms) -> Admission {
    let (max_ttl, probe_every) = (to_millis(terms.max_ttl), to_millis(PROBE_EVERY));
    let mut admission = Admission::new(masters, max_ttl, probe_every, to_millis(terms.act_within));
    if terms.is_max_ttl_given {
        admission = admission.with_given_max_ttl();
    }
    match (terms.has_quarantine, terms.fencing) {
        (true, _) => admission,
        (false, true) => admission.without_quarantine(),
        (false, false) => admission.without_quarantine().without_ballots(),
    }
}
