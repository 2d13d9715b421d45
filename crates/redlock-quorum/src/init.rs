//! `Init`: a person states that no lock of a former incarnation is alive on any master.

use std::sync::Arc;
use std::time::Duration;

use redlock_core::admission::RecordedSet;
use redlock_core::duration::spelled;
use redlock_core::{Cause, FencingToken, Lists, WhyNot};

use crate::error::AcquireError;
use crate::report::Standing;
use crate::settings::InvalidRequest;

/// The options of [`Redlock::init_with`](crate::Redlock::init_with).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Init {
    /// Admit masters although some record shows that the namespace was in use: one of them may have
    /// lost a lock that is alive. Without it the call is refused. Default: no.
    ///
    /// It converts a namespace, too. A handle with [`Quarantine::On`](crate::Quarantine::On) takes
    /// over what clients without one have left; one with
    /// [`Quarantine::Off`](crate::Quarantine::Off) removes the records. Clients of the other kind
    /// must be gone: theirs are refused afterwards, at once or within about a minute.
    ///
    /// It also records the list of this handle as the set of masters, if another set is recorded that
    /// differs by more than one master.
    ///
    /// With it, and with a `max_ttl` given to the builder, that one replaces what the masters
    /// have, where all of them answer. It may be smaller.
    pub again: bool,
    /// No fencing token that is handed out later may be smaller than this one. At most 2^51 us,
    /// some 71 years, ahead of the masters' clocks; more than a minute only with
    /// [`far_floor`](Self::far_floor). Default: none.
    pub floor: Option<FencingToken>,
    /// The floor may be more than a minute ahead of the masters' clocks. If all masters come back
    /// empty, this floor is recorded nowhere: a person must give it again, larger than every token
    /// that was seen, or tokens become smaller. Default: no.
    pub far_floor: bool,
}

/// The result of [`Redlock::init`](crate::Redlock::init).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InitReport {
    /// Each master, in the order in which they were given.
    pub nodes: Vec<InitNode>,
    /// The least fencing token that can be handed out from now on; `None` if no master had to be
    /// admitted.
    pub floor: Option<FencingToken>,
    /// The set that most of the masters belong to now; `None` if no record names one. All masters
    /// belong to one set if every one of them has answered.
    pub set: Option<RecordedSet>,
}

/// The result of `init` on one master.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InitNode {
    /// The master: `host:port`, or the path of its socket.
    pub node: Arc<str>,
    /// Its standing before.
    pub was: Standing,
    /// Its standing now.
    pub now: Standing,
    /// Why its votes do not count now; `None` if they do.
    pub cause: Option<Cause>,
    /// The process: 40 hex digits, new with every start; `None` if it did not answer.
    pub run_id: Option<String>,
    /// How long that process has been running; `None` if the server does not report it.
    pub uptime: Option<Duration>,
    /// The longest TTL that it allows clients now; `None` if it has no record.
    pub max_ttl: Option<Duration>,
    /// The longest TTL that it allowed clients before; `None` if it had no record.
    pub former_max_ttl: Option<Duration>,
}

/// Why `init` did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InitError {
    /// Fewer than a quorum of masters could be read. Nothing was written.
    #[error("fewer than a quorum of masters could be read, nothing was written: {}", list(.nodes))]
    NoQuorum {
        /// Each master's answer.
        nodes: Vec<InitNode>,
    },
    /// The record of some master was not read, and [`Init::again`] was not set. That record may
    /// show that the namespace was in use, and that masters without a record have lost a lock that
    /// is alive. Nothing was written.
    #[error(
        "the record of {} was not read, and it may show that this namespace was in use: call \
         init again when every master answers, or set `again` to state that no lock is held; \
         nothing was written: \
         {}",
        .unread.join(", "), list(.nodes)
    )]
    Unread {
        /// The masters whose records were not read.
        unread: Vec<Arc<str>>,
        /// Each master's answer.
        nodes: Vec<InitNode>,
    },
    /// Some master does not vote although the namespace was in use: it may have lost a lock that is
    /// alive; or clients without quarantine use it. No master was admitted.
    #[error("{}: {}", refusal(.nodes), list(.nodes))]
    Refused {
        /// Each master's answer.
        nodes: Vec<InitNode>,
    },
    /// A set of masters is recorded that differs from the list of this handle by more than one
    /// master, and [`Init::again`] was not set: the list may be a wrong one. Nothing was written.
    #[error(
        "the list of masters differs from the recorded set by more than one: {lists}; correct the \
         list, or set `again` to record it, if no lock is held; nothing was written: {}",
        list(.nodes)
    )]
    OtherSet {
        /// The recorded set, and the list of this handle.
        lists: Lists,
        /// Each master's answer.
        nodes: Vec<InitNode>,
    },
    /// Not every master that was written holds the `max_ttl` that this call has written there, as
    /// far as it could be read afterwards: another call of `init` sets another one at the same
    /// time, and this call gave up, or a master did not take it. Call it again when the other call
    /// has ended, if this value is still wanted.
    #[error("{}", max_ttl_differs(*.wanted, .nodes))]
    MaxTtl {
        /// The `max_ttl` that all masters were to have.
        wanted: Duration,
        /// The `max_ttl` and the standing of each master.
        nodes: Vec<InitNode>,
    },
    /// Whenever scripts came to the masters, some record was another than the one that was read, or
    /// the script was too late. Some of the writes may have been carried out.
    #[error(
        "the records changed during each try of init: another init may be running; call init \
         again when it has ended: {}",
        list(.nodes)
    )]
    Moved {
        /// Each master's answer.
        nodes: Vec<InitNode>,
    },
    /// The floor that was given, or a score that was found, is 2^53 or more. Nothing was written.
    #[error("a fencing token that was given or found is 2^53 or more, nothing was written")]
    TooLarge,
    /// The floor that was given is more than 2^51 us, some 71 years, ahead of the masters' clocks.
    /// Tokens never become smaller, so few would be left for ever. Nothing was written.
    #[error(
        "the floor that was given is more than 71 years (2^51 us) ahead of the masters' clocks, \
         and would use up the fencing tokens for ever: give {limit} at most, such as the largest \
         token that a store has seen; nothing was written"
    )]
    FloorTooFar {
        /// The largest that may be given now.
        limit: FencingToken,
    },
    /// The floor that was given is more than a minute ahead of the masters' clocks, and
    /// [`Init::far_floor`] was not set. Nothing was written.
    #[error(
        "the floor that was given is more than a minute ahead of the masters' clocks: if all \
         masters restart empty, no master knows this floor, and tokens become smaller unless a \
         person gives a floor above every token seen; give {limit} at most, or set `far_floor`; nothing \
         was written"
    )]
    FarFloor {
        /// The largest that may be given now without saying so.
        limit: FencingToken,
    },
    /// The handle has [`Quarantine::Off`](crate::Quarantine::Off): there is nothing to admit.
    /// [`Init::again`] removes the records of clients with quarantine.
    #[error(
        "the handle has Quarantine::Off: build one with Quarantine::On, or set `again` to \
         remove the records of a quarantine"
    )]
    Off,
    /// The request itself is wrong. Nothing was sent.
    #[error(transparent)]
    Invalid(#[from] InvalidRequest),
    /// The handle was shut down.
    #[error("the lock handle was shut down")]
    Shutdown,
}

impl InitReport {
    /// How many masters vote now.
    pub fn admitted(&self) -> usize {
        self.nodes.iter().filter(|node| node.now == Standing::Admitted).count()
    }
}

impl InitError {
    /// Each master's answer, if masters were asked.
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
    /// Whether its record has changed a moment ago, such as by another `init`: it is being checked,
    /// and it is not known yet whether it has lost data.
    pub fn is_checked(&self) -> bool {
        is_checked(self.cause.as_ref())
    }
}

/// Whether a master that does not vote, for this cause, is being checked.
pub(crate) fn is_checked(cause: Option<&Cause>) -> bool {
    matches!(cause, Some(Cause::NotAdmitted(not)) if not.why == WhyNot::Checked)
}

/// The advice if no master was admitted.
fn refusal(nodes: &[InitNode]) -> &'static str {
    if nodes.iter().any(InitNode::is_checked) {
        return "masters are being checked, another init may be running: call it again in a moment";
    }
    "this namespace was in use: a master may have lost a lock that is still held, or clients \
     without a quarantine use it; wait for the end of the quarantine, or set `again` to state \
     that no lock is held"
}

fn max_ttl_differs(wanted: Duration, nodes: &[InitNode]) -> String {
    let node = |node: &InitNode| match node.max_ttl {
        Some(max_ttl) => format!("{} has {}", node.node, spelled(max_ttl)),
        None => format!("{} shows none", node.node),
    };
    let nodes = nodes.iter().map(node).collect::<Vec<_>>().join(", ");
    let wanted = spelled(wanted);
    format!(
        "max_ttl is not known to be {wanted} on every master ({nodes}): another init may be \
         setting another one; call this one again when that has ended, if {wanted} is still \
         wanted"
    )
}

fn list(nodes: &[InitNode]) -> String {
    let node = |node: &InitNode| match &node.cause {
        Some(cause) => format!("{} {cause}", node.node),
        None => format!("{} {}", node.node, node.now),
    };
    nodes.iter().map(node).collect::<Vec<_>>().join(", ")
}
