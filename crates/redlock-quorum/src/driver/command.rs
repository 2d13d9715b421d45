//! `Command`: the requests of callers to the driver.

use std::sync::Arc;
use std::time::Duration;

use redlock_core::Mark;
use redlock_protocol::marks::MarkAnswer;
use redlock_protocol::master_set::MasterSet;

use super::held_lock::HeldLock;
use super::observing::{Observation, ObservedReply};
use super::reply::{Entered, Reply};
use crate::error::{AcquireError, ExtendError, ReleaseError, Unreleased};
use crate::init::{Init, InitError, InitReport};
use crate::report::NodeReport;
use crate::status::Status;
use crate::votes::Votes;
use redlock_protocol::client::callers::Caller;
use redlock_protocol::client::ids::HoldId;
use redlock_protocol::client::input::TokenRelease;

pub(crate) type AcquireReply = Reply<Result<HeldLock, AcquireError>>;
pub(crate) type ExtendReply = Reply<Result<(), ExtendError>>;
pub(crate) type ReleaseReply = Reply<Result<(), ReleaseError>>;
pub(crate) type WaitersReply = Reply<u32>;
pub(crate) type StatusReply = Reply<Status>;
pub(crate) type MarkReply = Reply<MarkVotes>;
pub(crate) type InitReply = Reply<Result<InitReport, InitError>>;
pub(crate) type ReportReply = Reply<Vec<NodeReport>>;
pub(crate) type CloseReply = Reply<Result<(), Unreleased>>;

/// A request to the driver. A command that is dropped unanswered closes its reply.
pub(crate) enum Command {
    /// A caller wants a lock, or a lease proved.
    Acquire(Caller, AcquireReply),
    /// The holder wants the lease to last longer.
    Extend { hold: HoldId, ttl: Duration, reply: ExtendReply },
    /// Start to extend the lease automatically.
    Keep { hold: HoldId },
    /// The holder is done.
    Release { hold: HoldId, reply: Option<ReleaseReply> },
    /// The holder gives the lease away: it is neither kept nor released.
    Forget { hold: HoldId },
    /// A caller has taken its lock, which the keeper waited for.
    Accepted { hold: HoldId },
    /// Release the key of a stored lease.
    ReleaseToken(Box<TokenRelease>, ReleaseReply),
    /// A caller that waits has gone away.
    Withdrawn { entry: Arc<dyn Entered> },
    /// Query who holds a resource.
    Status { key: Arc<[u8]>, node_timeout: Duration, reply: StatusReply },
    /// Query how many processes wait in this queue.
    Waiters { queue: Arc<[u8]>, node_timeout: Duration, reply: WaitersReply },
    /// A stream reads who holds a key, and wants to know of its next change.
    Observe(Observation, ObservedReply),
    /// A caller reads or raises the mark of a name.
    Mark(MarkRequest, MarkReply),
    /// Admit masters, because an operator asserts that no lock of a former incarnation is held.
    Init(Init, InitReply),
    /// Query the state of each master.
    Report(ReportReply),
    /// The handle is closed.
    Close { within: Duration, reply: Option<CloseReply> },
}

/// A request to masters to read or raise a mark.
#[derive(Clone)]
pub(crate) struct MarkRequest {
    pub(crate) key: Arc<[u8]>,
    pub(crate) node_timeout: Duration,
    /// The new mark, and for how many milliseconds masters keep it; `None` to read the mark.
    pub(crate) raise: Option<(Mark, u64)>,
    /// The queried masters.
    pub(crate) masters: MasterSet,
}

/// The masters' answers about a mark.
pub(crate) struct MarkVotes {
    /// *Granted* if a voting master carried out the request.
    pub(crate) votes: Votes,
    pub(crate) answers: Vec<MarkAnswer>,
}
