//! Simulated masters: the part of Redis that a lock uses, with faults that a test can switch.
//!
//! In reading order: `master` (keys, expiry, the effect of each request), `clock` (the master's
//! clock, which may be wrong), `ballot_set` (one set of ballots), `data` (its admission data, and
//! the effect of each script on it), `admission` (its answers about that), `ballots` (its handling
//! of ballots), `marks` (completed jobs), `queues` (waiting contenders), `log`, `link` (one
//! connection and the requests on their way), `agenda` (which connection is next), `world` (a
//! master with all its connections, driven by calls that pass the time), `outbox` and `faults`.
//! None of these knows a runtime. Above them are `timed` (a world in tokio's time), `node` (the interface and the
//! switches) and `nemesis` (a plan that uses the switches).

mod admission;
mod agenda;
mod ballot_set;
mod ballots;
mod clock;
mod data;
mod faults;
mod link;
mod log;
mod marks;
mod master;
mod meeting;
mod nemesis;
mod node;
mod outbox;
mod queue_scripts;
mod queues;
mod tickets;
mod timed;
mod world;

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use redlock_core::admission::Names;
use redlock_core::{Clock, Node};

pub use ballot_set::Ballots;
pub use data::Data;
pub use faults::{InFlight, Restart};
pub use log::Executed;
pub use master::Snapshot;
pub use meeting::Meeting;
pub use nemesis::{Action, Fault, Nemesis, Step};
pub use node::SimNode;
pub use outbox::Outbox;
pub use queue_scripts::{reserve, take};
pub use tickets::Tickets;
pub use world::World;

/// Several simulated masters, as one client of them sees them.
///
/// Give [`SimNodes::nodes`] and [`SimNodes::clock`] to a lock, then turn the switches of each
/// [`SimNode`], by hand or by a [`Nemesis`]:
///
/// ```
/// use redlock_testkit::SimNodes;
///
/// let masters = SimNodes::new(5, 42);
/// masters[0].hold();
/// masters[1].partition();
/// masters[2].put("orders:42", "a stranger", 10_000);
/// assert_eq!(masters[2].holder("orders:42").as_deref(), Some("a stranger"));
/// ```
#[derive(Clone, Debug)]
pub struct SimNodes {
    nodes: Vec<Arc<SimNode>>,
    clock: Clock,
}

impl SimNodes {
    /// Creates `n` empty masters. All their random choices follow from `seed`. They are new: for
    /// clients with a quarantine, they do not vote before [`init`](Self::init).
    ///
    /// Create them inside the runtime whose time they follow. In a paused single-threaded runtime,
    /// a run repeats itself exactly.
    pub fn new(n: usize, seed: u64) -> Self {
        let clock = Clock::paused();
        let mut seeds = StdRng::seed_from_u64(seed);
        let node = |i| SimNode::new(format!("sim-{i}:6379"), seeds.random(), clock.clone());
        Self { nodes: (0..n).map(node).collect(), clock: clock.clone() }
    }

    /// Returns the same masters for another client, which has its own connections and network
    /// faults.
    #[must_use]
    pub fn another_client(&self) -> Self {
        let nodes = self.nodes.iter().map(|node| node.another_client()).collect();
        Self { nodes, clock: self.clock.clone() }
    }

    /// Returns the masters in the form in which a lock accepts them.
    pub fn nodes(&self) -> Vec<Arc<dyn Node>> {
        self.nodes.iter().map(|node| Arc::clone(node) as Arc<dyn Node>).collect()
    }

    /// Admits all masters, see [`SimNode::init`], and records them as one set.
    pub fn init(&self, max_ttl: Duration) {
        let names = Names::new(self.nodes.iter().map(|node| node.name()));
        let set = faults::set_of(names);
        self.nodes.iter().for_each(|node| node.init_into(max_ttl, Some(set.clone())));
    }

    /// Returns the clock of the simulation, which follows tokio's clock exactly.
    pub fn clock(&self) -> Clock {
        self.clock.clone()
    }

    /// Returns the number of keys on each master, for [`no_residue`].
    ///
    /// [`no_residue`]: crate::no_residue
    pub fn keys(&self) -> Vec<(String, usize)> {
        self.nodes.iter().map(|node| (node.name().to_owned(), node.keys())).collect()
    }
}

impl Deref for SimNodes {
    type Target = [Arc<SimNode>];

    fn deref(&self) -> &Self::Target {
        &self.nodes
    }
}
