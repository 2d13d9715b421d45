//! The connection to one master, and what its events mean.

use std::sync::Arc;
use std::task::Waker;

use futures::future::BoxFuture;
use redlock_core::admission::Identity;
use redlock_core::{Call, Cause, Facts, Instant, NotAdmitted, Op, Unread, VoteSlot, WhyNot};
use redlock_protocol::master_set::MasterSet;
use redlock_protocol::meeting_point::Weight;

use crate::settings::Quarantine;

/// The connection to one master.
pub(in crate::driver) struct Link {
    pub(in crate::driver) state: State,
    /// The requests that the node gets together at the end of this turn.
    pub(super) outbox: Vec<(Op, VoteSlot)>,
    /// The node's own input and output, with the waker for its work.
    pub(super) drive: Option<(BoxFuture<'static, ()>, Waker)>,
    /// An earlier connection may still carry out requests: the server did not let us end it.
    pub(super) lacks_barrier: bool,
    /// The log has the warning that the server does not report changes of keys.
    pub(super) is_known_mute: bool,
    /// The log has the warning that the server keeps no queue for us.
    pub(super) is_unqueued: bool,
    /// It answered the last attempt with what waiting does not cure.
    pub(super) is_incurable: bool,
    /// The node knows that a new connection is urgent.
    pub(super) is_urgent: bool,
    /// The facts of the server on the connection that is up.
    pub(in crate::driver) facts: Option<Facts>,
    /// How much its process is preferred as a meeting point.
    pub(in crate::driver) weight: Weight,
    /// When these facts were read.
    pub(in crate::driver) read_at: Instant,
    /// Since when it is in its present incarnation. While it votes, answers to what was sent from
    /// then on count.
    pub(in crate::driver) alive_since: Instant,
    /// The identity that the node was given as the admitted one.
    pub(in crate::driver) admitted_as: Option<Identity>,
    /// A property that this handle needs and the master lacks: its connection shows that, and no
    /// wait cures it.
    pub(in crate::driver) unfit: Option<NotAdmitted>,
    /// The server's error in answer to the last step towards its admission, if any.
    pub(in crate::driver) step_failure: Option<StepFailure>,
    /// It was slow or silent, and is no meeting point until then.
    pub(super) suspect_until: Instant,
}

/// The property that a handle needs of each master, besides an admission, and this server lacks.
pub(super) fn unmet(fencing: bool, quarantine: Quarantine, facts: &Facts) -> Option<NotAdmitted> {
    match quarantine {
        // A member of a ballot set that is not there shows a loss of data, too.
        _ if fencing => facts.no_ballots.as_ref().map(|error| {
            let mut why = NotAdmitted::new(WhyNot::NoBallots);
            why.step_error = Some(error.clone());
            why
        }),
        // Nothing but its reports shows a loss of data.
        Quarantine::On if !facts.tracks => Some(NotAdmitted::new(WhyNot::ReportsNoLoss)),
        // With the quarantine off, a master that may have lost its data votes all the same.
        Quarantine::On | Quarantine::Off => None,
    }
}

/// The obstacle to the admission of a master.
pub(in crate::driver) struct StepFailure {
    pub(in crate::driver) error: String,
    /// When the server reported it.
    pub(in crate::driver) at: Instant,
}

impl StepFailure {
    /// Why the facts that decide whether a server may vote cannot be read.
    pub(in crate::driver) fn of(facts: &Facts, at: Instant) -> Option<Self> {
        let error = match &facts.record {
            Ok(_) | Err(Unread::NotAsked | Unread::Loading) if facts.identity.is_some() => {
                return None;
            }
            Ok(_) | Err(Unread::NotAsked | Unread::Loading) => {
                "its run_id is not 40 hex digits".into()
            }
            Err(unread) => unread.to_string(),
        };
        Some(Self { error, at })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::driver) enum State {
    /// The first connection is being made.
    Connecting,
    Up,
    Down(Cause),
    /// The connection broke, and another is being made since then.
    Reviving(Instant, Cause),
}

impl State {
    /// Why there is no connection.
    pub(in crate::driver) fn cause(&self) -> Option<&Cause> {
        match self {
            Self::Down(cause) | Self::Reviving(_, cause) => Some(cause),
            Self::Connecting | Self::Up => None,
        }
    }
}

/// The effect of an event of a master on the copies there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::driver) enum News {
    /// It has no effect.
    None,
    /// It can be reached, and the same process as before answers.
    Up,
    /// It can be reached, and another process answers.
    Restarted,
    /// No server listens there: the process has ended.
    Ended,
    /// There is no connection.
    Down,
    /// A watched key has changed.
    KeyChanged(Arc<[u8]>),
    /// This process is called from the queue of a key.
    Called(Call, Arc<[u8]>),
    /// It does not let us use queues any more.
    NoQueue,
    /// Its data may be gone.
    DataLost,
}

/// The effect of an event on the set of masters that vote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::driver) struct Changed {
    /// Masters whose earlier confirmations count no more.
    pub(in crate::driver) lost: MasterSet,
    /// These vote from now on.
    pub(in crate::driver) gained: MasterSet,
    /// These get no requests for new locks from now on: their recorded set does not fit the list.
    pub(in crate::driver) refused: MasterSet,
    /// The recorded sets of masters fit the list of this client from now on.
    pub(in crate::driver) fits: bool,
    /// This master shows since now that a change of the list may be under way.
    pub(in crate::driver) changing: Option<usize>,
}
