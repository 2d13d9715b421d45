//! Conversions of masters' answers into the types of the machine of admission.

use std::time::Duration;

use redlock_core::admission::{Identity, Millis, RunId};
use redlock_core::{Instant, Role, Unread};
use redlock_protocol::admission::{MasterKind, MasterView};

const NANOS: u64 = 1_000_000;

/// The instant of a judgement, rounded down: a time that has lasted this long has lasted a part of
/// a millisecond more.
pub(super) fn floor_millis(now: Instant) -> Millis {
    now.as_nanos() / NANOS
}

/// When something happened.
pub(super) fn ceil_millis(now: Instant) -> Millis {
    now.as_nanos().div_ceil(NANOS)
}

/// The instant at which the machine has something to do.
pub(super) fn instant(at: Millis) -> Instant {
    Instant::from_nanos(at.saturating_mul(NANOS))
}

pub(super) fn to_millis(time: Duration) -> Millis {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The facts that a connection read. A server that does not report its TIME is taken to show
/// `time`.
pub(super) fn view_of(
    facts: &redlock_core::Facts,
    members: Option<u32>,
    time: Millis,
) -> MasterView {
    let identity = facts.identity.unwrap_or(Identity::of(RunId::new([0; 20])));
    let record = facts.record.as_deref().cloned().unwrap_or_default();
    let time = facts.time_us.map_or(time, |micros| micros / 1_000);
    MasterView { role: kind(facts), identity, time, record, members }
}

fn kind(facts: &redlock_core::Facts) -> MasterKind {
    match (&facts.record, facts.role) {
        _ if facts.is_cluster => MasterKind::Cluster,
        (_, Role::Replica) => MasterKind::Replica,
        (Err(Unread::Loading), _) => {
            MasterKind::Loading { uptime: facts.uptime.map_or(0, to_millis) }
        }
        (_, Role::Master) if facts.identity.is_none() => MasterKind::Denied,
        // A node without a namespace is asked for no record.
        (Err(Unread::NotAsked) | Ok(_), Role::Master) => MasterKind::Master,
        (Err(_), Role::Master) => MasterKind::Denied,
        _ => MasterKind::NotMaster,
    }
}
