//! `Command`: what callers ask of the driver.

use std::sync::Arc;
use std::time::Duration;

use redlock_core::{FencingToken, Instant, Label, Resource, Token};
use tokio::sync::oneshot;

use super::grant::Grant;
use super::ticket::LockId;
use crate::error::{AcquireError, ExtendError, ReleaseError, Unreleased};
use crate::init::{Init, InitError, InitReport};
use crate::protocol::waiting::Ask;
use crate::report::NodeReport;
use crate::settings::{HoldOptions, Timing};
use crate::status::Status;

pub(crate) type AcquireReply = oneshot::Sender<Result<Grant, AcquireError>>;
pub(crate) type ExtendReply = oneshot::Sender<Result<(), ExtendError>>;
pub(crate) type ReleaseReply = oneshot::Sender<Result<(), ReleaseError>>;
pub(crate) type StatusReply = oneshot::Sender<Status>;
pub(crate) type InitReply = oneshot::Sender<Result<InitReport, InitError>>;
pub(crate) type ReportReply = oneshot::Sender<Vec<NodeReport>>;
pub(crate) type CloseReply = oneshot::Sender<Result<(), Unreleased>>;

/// What the driver is asked. A command that is dropped unanswered closes its reply.
pub(crate) enum Command {
    /// A caller wants a lock, or a lease proved.
    Acquire(Request),
    /// The holder wants the lease to last longer.
    Extend { lock: LockId, ttl: Duration, reply: ExtendReply },
    /// The holder is done.
    Release { lock: LockId, reply: Option<ReleaseReply> },
    /// The holder gives the lease away: it is neither kept nor released.
    Forget { lock: LockId },
    /// What a lease says is to be released.
    ReleaseLease(Box<LeaseRelease>),
    /// A caller that waits for this key has gone away.
    Withdrawn { key: Arc<[u8]> },
    /// A caller asks who holds a resource.
    Status { key: Arc<[u8]>, node_timeout: Duration, reply: StatusReply },
    /// A person states that no lock of a former life is alive.
    Init(Init, InitReply),
    /// A caller asks what each master is.
    Report(ReportReply),
    /// The handle is closed.
    Close { within: Duration, reply: Option<CloseReply> },
}

/// What one caller wants, through all its attempts.
pub(crate) struct Request {
    pub(crate) resource: Resource,
    pub(crate) key: Arc<[u8]>,
    /// What the caller gave.
    pub(crate) ttl: Option<Duration>,
    /// What follows from it, by what was known when the latest attempt started.
    pub(crate) timing: Timing,
    pub(crate) options: HoldOptions,
    pub(crate) label: Option<Label>,
    /// When its caller asked.
    pub(crate) asked_at: Instant,
    /// When to stop trying; none for never.
    pub(crate) until: Option<Instant>,
    /// Not to acquire anew, but to take over what this signs.
    pub(crate) resume: Option<Takeover>,
    pub(crate) reply: AcquireReply,
    /// An attempt is under way.
    pub(crate) is_attempted: bool,
    /// Which masters its next attempt asks.
    pub(crate) ask: Ask,
}

/// A lease to be taken over.
#[derive(Clone)]
pub(crate) struct Takeover {
    pub(crate) token: Token,
    /// What its holder had before, as far as that is known.
    pub(crate) fencing_token: Option<FencingToken>,
}

/// A lease to be released by its token alone.
pub(crate) struct LeaseRelease {
    pub(crate) resource: Resource,
    pub(crate) key: Arc<[u8]>,
    pub(crate) token: Token,
    pub(crate) timing: Timing,
    pub(crate) reply: ReleaseReply,
}
