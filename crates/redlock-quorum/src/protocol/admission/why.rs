//! Why a master does not vote, and when it may vote again.

use redlock_core::admission::{Millis, quarantine_length};

use super::facts::{Doubt, Stuck};
use super::{Admission, Facts, Role, over};

/// Why a vote does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct NotAdmitted {
    pub(crate) why: Why,
    /// How long until this client can admit it, at the earliest. None where no time decides it.
    /// A client that has the nonce for longer may do so sooner.
    pub(crate) votes_again: Option<Millis>,
}

/// What keeps a master from voting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Why {
    /// There is no connection.
    Away,
    Replica,
    Loading,
    Cluster,
    /// INFO or HGETALL is denied.
    Denied,
    /// It is the same server as this one.
    TwinOf(usize),
    /// Its data may have been lost a moment ago. What it has now is being read.
    Checked,
    /// It has no record: it is brand-new, or it was flushed or restarted empty.
    NoRecord,
    /// It was admitted with another identity: it restarted, or was a replica for a while.
    Restarted,
    /// Its ballot set is gone or incomplete.
    Incomplete,
    /// A quarantine is under way.
    Quarantine,
    /// Clients without quarantine use this namespace.
    Mixed,
    /// A score reaches 2^53.
    TooLarge,
}

impl Admission {
    /// Why this master does not vote; None where it does.
    pub(crate) fn why(&self, master: usize, now: Millis) -> Option<NotAdmitted> {
        if self.votes(master) {
            return None;
        }
        let peer = &self.peers[master];
        let why = match &peer.facts {
            None => Why::Away,
            Some(facts) => self.why_not(master, facts),
        };
        let votes_again = match why {
            Why::NoRecord | Why::Restarted | Why::Incomplete => Some(self.length_to_come(master)),
            Why::Quarantine => self.left(master, now),
            _ => None,
        };
        Some(NotAdmitted { why, votes_again })
    }

    fn why_not(&self, master: usize, facts: &Facts) -> Why {
        let peer = &self.peers[master];
        match (facts.role, self.twin_of(master)) {
            (Role::Replica, _) => Why::Replica,
            (Role::Loading, _) => Why::Loading,
            (Role::Cluster, _) => Why::Cluster,
            (Role::Denied, _) => Why::Denied,
            (Role::Master, Some(twin)) => Why::TwinOf(twin),
            (Role::Master, None) if peer.stuck == Some(Stuck::Mixed) => Why::Mixed,
            (Role::Master, None) if peer.stuck == Some(Stuck::TooLarge) => Why::TooLarge,
            (Role::Master, None) if peer.doubt != Doubt::None => Why::Checked,
            (Role::Master, None) => why_unadmitted(facts),
        }
    }

    /// The time that a quarantine takes that is begun now.
    fn length_to_come(&self, master: usize) -> Millis {
        let own = self.peers[master].facts.as_ref().and_then(|facts| facts.record.max_ttl);
        let held = self.records().filter_map(|record| record.max_ttl).max();
        quarantine_length(own.or(held).unwrap_or(self.max_ttl))
    }

    fn left(&self, master: usize, now: Millis) -> Option<Millis> {
        let peer = &self.peers[master];
        let ways = [over::over_at(peer, now), over::noted_at(peer, now)];
        let earliest = ways.into_iter().flatten().min()?;
        Some(earliest.saturating_sub(now))
    }
}

fn why_unadmitted(facts: &Facts) -> Why {
    let record = &facts.record;
    if record.quarantine_of(facts.identity).is_some() {
        Why::Quarantine
    } else if record.admits(facts.identity) {
        Why::Incomplete
    } else if record.run.is_some() || record.quarantine.is_some() {
        Why::Restarted
    } else {
        Why::NoRecord
    }
}
