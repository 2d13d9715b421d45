//! A lock, in the stage of its life that it is in.

use std::sync::Arc;
use std::time::Duration;

use redlock_core::{Instant, Resource, Token};

use super::command::{ExtendReply, ReleaseReply};
use super::ticket::{InspectionId, RequestId, UseId};
use crate::hold::{Acceptance, HoldCell};
use crate::protocol::attempt::Attempt;
use crate::protocol::lease::HeldLease;
use crate::protocol::release::Release;

/// One token, in exactly one stage of its life.
pub(super) struct Lock {
    pub(super) resource: Resource,
    pub(super) key: Arc<[u8]>,
    /// What is known of the key, while it is held.
    pub(super) known: UseId,
    pub(super) token: Token,
    /// How long masters have to answer what is sent for it.
    pub(super) node_timeout: Duration,
    pub(super) stage: Stage,
    /// When that was sent which counts as open in the line.
    pub(super) opened: Option<Instant>,
    /// Until when answers to the attempt are waited for.
    pub(super) due: Instant,
}

pub(super) enum Stage {
    /// Masters are asked for it.
    /// The alarm is set for when its ballots end.
    Attempt { attempt: Attempt, request: RequestId, alarm: Option<Instant> },
    /// It is held.
    Lease(Tenure),
    /// It is given back.
    Release { release: Release, reply: Option<ReleaseReply>, explains: Option<InspectionId> },
    /// Between two stages.
    Changing,
}

/// A lease and its holder.
pub(super) struct Tenure {
    pub(super) lease: HeldLease,
    pub(super) cell: Arc<HoldCell>,
    /// Holders that wait for an extension, by its number.
    pub(super) extending: Vec<(u32, ExtendReply)>,
    /// When its keeper is scheduled next.
    pub(super) scheduled: Option<Instant>,
    /// The last extension whose margin was counted.
    pub(super) measured: u32,
    /// Its loss was counted.
    pub(super) is_lost: bool,
    /// It was taken over: where nobody takes it, it is left to its former holder.
    pub(super) is_resumed: bool,
}

impl Tenure {
    /// When there is something to do for it next. What nobody has taken is not extended: it waits
    /// for that, until it can't be taken any more.
    pub(super) fn due(&self) -> Option<Instant> {
        let until = || self.cell.acceptable_until();
        match self.cell.acceptance() {
            Acceptance::Offered => {
                Some(self.lease.due().map_or_else(until, |due| due.min(until())))
            }
            Acceptance::Awaited => Some(until()),
            Acceptance::Accepted => self.lease.due(),
            Acceptance::Withdrawn => None,
        }
    }
}

impl Stage {
    /// Whether the node timeout of what was sent still means something.
    pub(super) fn awaits_votes(&self) -> bool {
        match self {
            Self::Attempt { .. } => true,
            Self::Lease(tenure) => !tenure.cell.is_settled(),
            Self::Release { release, .. } => release.outcome().is_none(),
            Self::Changing => false,
        }
    }
}
