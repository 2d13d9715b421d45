//! `Init`: an operator asserts that no lock of a former incarnation is held on any master.

use std::sync::Arc;
use std::time::Duration;

use redlock_core::admission::RecordedSet;
use redlock_core::duration::spelled;
use redlock_core::{Cause, FencingToken, Lists};
use redlock_protocol::client::questions::{self, Failure, InitOutcome, InitRow, Order};

use crate::error::AcquireError;
use crate::report::Standing;
use crate::settings::InvalidRequest;

/// The options of [`Redlock::init_with`](crate::Redlock::init_with).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Init {
    /// Admits masters although a record shows that the prefix was in use, so that one of them may
    /// have lost a held lock. Without it, the call fails in this case. Defaults to `false`.
    ///
    /// It also converts a prefix. A handle with [`Quarantine::On`](crate::Quarantine::On) takes
    /// over the ballots of clients without a quarantine. A handle with
    /// [`Quarantine::Off`](crate::Quarantine::Off) removes the records. Stop all clients of the
    /// other kind first: they stop working immediately or within about a minute.
    ///
    /// It also records the list of this handle as the set of masters, if another set is recorded
    /// that differs by more than one master.
    ///
    /// If you set a `max_ttl` on the builder, it also replaces the value on the masters if all of
    /// them answer. It may be smaller.
    pub again: bool,
    /// Sets a lower limit for all fencing tokens handed out later. Must be at most 2^51 us, about
    /// 71 years, ahead of the masters' clocks, and more than a minute ahead only with
    /// [`far_floor`](Self::far_floor). Defaults to none.
    pub floor: Option<FencingToken>,
    /// Allows a floor more than a minute ahead of the masters' clocks. If all masters come back
    /// empty, this floor is recorded nowhere: you must pass it again, larger than every token seen
    /// so far, or tokens become smaller. Defaults to `false`.
    pub far_floor: bool,
}

/// The result of [`Redlock::init`](crate::Redlock::init).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InitReport {
    /// Each master, in the order in which they were configured.
    pub nodes: Vec<InitNode>,
    /// The smallest fencing token that can be handed out from now on. `None` if no master had to be
    /// admitted.
    pub floor: Option<FencingToken>,
    /// The set that most of the masters belong to now. `None` if no record names one. All masters
    /// belong to one set if every one of them has answered.
    pub set: Option<RecordedSet>,
    /// The masters that did not answer, so that no set was recorded. Call `init` again when they
    /// do. Empty if the set was recorded.
    pub unanswered: Vec<Arc<str>>,
}

/// The result of `init` on one master.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InitNode {
    /// The master: `host:port`, or the path of its socket.
    pub node: Arc<str>,
    /// The standing before the call.
    pub was: Standing,
    /// The standing after the call.
    pub now: Standing,
    /// The reason why it does not vote now. `None` if it votes.
    pub cause: Option<Cause>,
    /// The process: 40 hex digits, new with every start. `None` if it did not answer.
    pub run_id: Option<String>,
    /// The uptime of that process. `None` if the server does not report it.
    pub uptime: Option<Duration>,
    /// The longest TTL that it allows now. `None` if it has no record.
    pub max_ttl: Option<Duration>,
    /// The longest TTL that it allowed before. `None` if it had no record.
    pub former_max_ttl: Option<Duration>,
    /// The set of masters that its record names now. `None` if it names none.
    pub set: Option<RecordedSet>,
    /// The set of masters that its record named before. `None` if it named none.
    pub former_set: Option<RecordedSet>,
}

/// The reason why `init` failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InitError {
    /// Fewer than a quorum of masters could be read. Nothing was written.
    #[error("nothing was written, because too few masters answered: {}", list(.nodes))]
    NoQuorum {
        /// Each master's answer.
        nodes: Vec<InitNode>,
    },
    /// The record of some master was not read, and [`Init::again`] was not set. That record may
    /// show that the prefix was in use, and that masters without a record have lost a held lock.
    /// Duplicate addresses have no record either. Nothing was written.
    #[error("refused, nothing was written: {}: {}", unread_because(.unread, .nodes), list(.nodes))]
    Unread {
        /// The masters whose records were not read.
        unread: Vec<Arc<str>>,
        /// Each master's answer.
        nodes: Vec<InitNode>,
    },
    /// The prefix was in use and some master does not vote, so it may have lost a held lock; or
    /// clients without a quarantine use the prefix. No master was admitted.
    #[error("{}: {}", refusal(.nodes), list(.nodes))]
    Refused {
        /// Each master's answer.
        nodes: Vec<InitNode>,
    },
    /// The recorded set of masters differs from the list of this handle by more than one master,
    /// and [`Init::again`] was not set. The list may be wrong. Nothing was written.
    #[error(
        "refused, nothing was written: the list of masters differs from the recorded set by more \
         than one: {lists}; correct the list, or set `again` to record it if no lock is held: {}",
        list(.nodes)
    )]
    OtherSet {
        /// The recorded set, and the list of this handle.
        lists: Lists,
        /// Each master's answer.
        nodes: Vec<InitNode>,
    },
    /// Not every master showed the written `max_ttl` afterwards. Another `init` writes a different
    /// value at the same time, so this call gave up, or a master did not accept the value. If you
    /// still want it, call `init` again after the other call has finished.
    #[error("{}", max_ttl_differs(*.wanted, .nodes))]
    MaxTtl {
        /// The `max_ttl` that all masters should hold.
        wanted: Duration,
        /// The `max_ttl` and the standing of each master.
        nodes: Vec<InitNode>,
    },
    /// A record changed between reading and writing on every attempt, or the script arrived too
    /// late, probably because of another `init`. Some writes may have been applied.
    #[error(
        "records changed during every attempt, perhaps by another init; try again when it has \
            finished: {}",
        list(.nodes)
    )]
    Moved {
        /// Each master's answer.
        nodes: Vec<InitNode>,
    },
    /// The floor, or a score on a master, is 2^53 or more. Nothing was written.
    #[error("refused, nothing was written: the floor or a ballot is 2^53 or more")]
    TooLarge,
    /// The floor is more than 2^51 us, about 71 years, ahead of the masters' clocks. Tokens only
    /// grow, so this would permanently use up most of the range. Nothing was written.
    #[error(
        "refused, nothing was written: the floor is more than 71 years (2^51 us) ahead of the \
         masters' clocks and would permanently exhaust the fencing tokens; use at most {limit}, such \
         as the largest token a store has seen"
    )]
    FloorTooFar {
        /// The largest floor that is allowed now.
        limit: FencingToken,
    },
    /// The floor is more than a minute ahead of the masters' clocks, and [`Init::far_floor`] was
    /// not set. Nothing was written.
    #[error(
        "refused, nothing was written: the floor is more than a minute ahead of the masters' clocks \
         (limit {limit}). With `far_floor` it is accepted, but if all masters ever restart empty, you \
         must pass a floor above every token issued"
    )]
    FarFloor {
        /// The largest floor that is allowed now without [`Init::far_floor`].
        limit: FencingToken,
    },
    /// The handle has [`Quarantine::Off`](crate::Quarantine::Off), so there is nothing to admit.
    /// [`Init::again`] removes the records of clients with a quarantine.
    #[error(
        "a handle with Quarantine::Off admits no masters; use Quarantine::On, or set `again` to \
         remove the records of a quarantine"
    )]
    Off,
    /// The request is invalid. Nothing was sent.
    #[error(transparent)]
    Invalid(#[from] InvalidRequest),
    /// The handle was shut down.
    #[error("the lock handle was shut down")]
    Shutdown,
}

impl Init {
    pub(crate) fn order(self) -> Order {
        let Self { again, floor, far_floor } = self;
        Order { again, floor: floor.map_or(0, FencingToken::get), far_floor }
    }
}

impl InitReport {
    /// Converts the outcome for the masters of these names.
    pub(crate) fn of(outcome: InitOutcome, names: &[Arc<str>]) -> Result<Self, InitError> {
        let InitOutcome { failure, rows, floor, set, unanswered } = outcome;
        let node = |(row, name): (InitRow, &Arc<str>)| InitNode::of(name.clone(), row);
        let nodes: Vec<InitNode> = rows.into_iter().zip(names).map(node).collect();
        match failure {
            None => {
                let floor = floor.and_then(FencingToken::new);
                let unanswered = unanswered.into_iter().map(|master| names[master].clone());
                Ok(Self { nodes, floor, set, unanswered: unanswered.collect() })
            }
            Some(failure) => Err(InitError::of(failure, nodes, names)),
        }
    }

    /// Returns how many masters vote now.
    pub fn admitted(&self) -> usize {
        self.nodes.iter().filter(|node| node.now == Standing::Admitted).count()
    }
}

impl InitError {
    fn of(failure: Failure, nodes: Vec<InitNode>, names: &[Arc<str>]) -> Self {
        let token = |limit| FencingToken::new(limit).unwrap_or(FencingToken::MAX);
        match failure {
            Failure::NoQuorum => Self::NoQuorum { nodes },
            Failure::Unread(masters) => {
                let name = |master: usize| names[master].clone();
                Self::Unread { unread: masters.into_iter().map(name).collect(), nodes }
            }
            Failure::Refused => Self::Refused { nodes },
            Failure::OtherSet(lists) => Self::OtherSet { lists: *lists, nodes },
            Failure::MaxTtl(max_ttl) => {
                Self::MaxTtl { wanted: Duration::from_millis(max_ttl), nodes }
            }
            Failure::Moved => Self::Moved { nodes },
            Failure::TooLarge => Self::TooLarge,
            Failure::FarFloor(limit) => Self::FarFloor { limit: token(limit) },
            Failure::FloorTooFar(limit) => Self::FloorTooFar { limit: token(limit) },
        }
    }

    /// Returns each master's answer, if masters were queried.
    pub fn nodes(&self) -> Option<&[InitNode]> {
        match self {
            Self::NoQuorum { nodes }
            | Self::Unread { nodes, .. }
            | Self::Refused { nodes }
            | Self::OtherSet { nodes, .. }
            | Self::MaxTtl { nodes, .. }
            | Self::Moved { nodes } => Some(nodes),
            _ => None,
        }
    }
}

impl From<AcquireError> for InitError {
    fn from(error: AcquireError) -> Self {
        match error {
            AcquireError::Invalid(invalid) => Self::Invalid(invalid),
            _ => Self::Shutdown,
        }
    }
}

impl InitNode {
    fn of(node: Arc<str>, row: InitRow) -> Self {
        Self {
            node,
            was: Standing::without(row.was.as_ref()),
            now: Standing::without(row.now.as_ref()),
            cause: row.now,
            run_id: row.run_id,
            uptime: row.uptime,
            max_ttl: row.max_ttl.map(Duration::from_millis),
            former_max_ttl: row.former_max_ttl.map(Duration::from_millis),
            set: row.set,
            former_set: row.former_set,
        }
    }

    /// Returns `true` if its record has just changed, for example by another `init`. It is being
    /// checked, and it is not known yet whether it has lost data.
    pub fn is_checked(&self) -> bool {
        questions::is_checked(self.cause.as_ref())
    }
}

/// Returns the advice if no master was admitted.
fn refusal(nodes: &[InitNode]) -> &'static str {
    if nodes.iter().any(InitNode::is_checked) {
        return "masters are still being checked, perhaps by another init; call init again shortly";
    }
    "refused: this prefix is in use, and a master may have lost a lock that is still held (or clients \
     without a quarantine use it). Wait for the quarantine to end, or set `again` if no lock is held"
}

/// Returns the advice if records were not read.
fn unread_because(unread: &[Arc<str>], nodes: &[InitNode]) -> String {
    let is_duplicate = |node: &InitNode| matches!(node.cause, Some(Cause::TwinOf(_)));
    if nodes.iter().any(|node| is_duplicate(node) && unread.contains(&node.node)) {
        return "the list has duplicate addresses; list each server once".to_owned();
    }
    format!(
        "could not read the admission record of {}, which may show that this prefix is in use. Call \
         init again once every master answers, or set `again` if no lock is held",
        unread.join(", ")
    )
}

fn max_ttl_differs(wanted: Duration, nodes: &[InitNode]) -> String {
    let node = |node: &InitNode| match node.max_ttl {
        Some(max_ttl) => format!("{} has {}", node.node, spelled(max_ttl)),
        None => format!("{} shows none", node.node),
    };
    let nodes = nodes.iter().map(node).collect::<Vec<_>>().join(", ");
    let wanted = spelled(wanted);
    format!(
        "max_ttl is not {wanted} on every master ({nodes}), perhaps because of another init; call \
         init again when it has finished"
    )
}

fn list(nodes: &[InitNode]) -> String {
    let node = |node: &InitNode| match &node.cause {
        Some(cause) => format!("{} {cause}", node.node),
        None => format!("{} {}", node.node, node.now),
    };
    nodes.iter().map(node).collect::<Vec<_>>().join(", ")
}
