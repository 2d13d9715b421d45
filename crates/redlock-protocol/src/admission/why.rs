//! Why a master does not vote, and when it may vote again. See rule A19 of `docs/PROTOCOL.md`.

use std::time::Duration;

use redlock_core::admission::{Millis, Nonce};
use redlock_core::{NotAdmitted, WhyNot};

use super::peer::{Doubt, Stuck};
use super::{Admission, MasterKind, MasterView, over};

/// The reason for which a master does not vote.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Why {
    /// There is no connection.
    Away,
    /// The master is the same server as this one.
    TwinOf(usize),
    /// The master is reachable but does not vote. The first time is the shortest until this client,
    /// or a new one, can admit it. The second is the longest if only short-lived clients come. A
    /// client that has read the nonce earlier may admit it sooner.
    NotAdmitted(NotAdmitted),
}

/// How long a quarantine takes until it is over: by this client, should it stay; and by any that
/// comes when the notes of masters that vote are old enough.
#[derive(Clone, Copy, Default)]
struct Left {
    by_staying: Option<Millis>,
    by_visits: Option<Millis>,
}

impl Left {
    fn earliest(self) -> Option<Millis> {
        self.by_staying.into_iter().chain(self.by_visits).min()
    }
}

impl Admission {
    /// Returns why this master does not vote. `None` if it does.
    pub fn why(&self, master: usize, now: Millis) -> Option<Why> {
        if self.votes(master) {
            return None;
        }
        let Some(facts) = &self.peers[master].facts else { return Some(Why::Away) };
        if let (MasterKind::Master, Some(twin)) = (facts.role, self.twins.twin_of(master)) {
            return Some(Why::TwinOf(twin));
        }
        let why = self.why_not(master, facts);
        let in_quarantine = self.peers[master].quarantine().is_some();
        let left = match why.is_ended_by_quarantine() {
            // This client neither begins nor ends a quarantine.
            true if self.is_elsewhere() => Left::default(),
            true if in_quarantine => self.left(master, now),
            true => self.left_from_begin(),
            false => Left::default(),
        };
        let mut said = NotAdmitted::new(why);
        said.in_quarantine = in_quarantine;
        said.votes_again = left.earliest().map(Duration::from_millis);
        said.by_visits = left.by_visits.map(Duration::from_millis);
        Some(Why::NotAdmitted(said))
    }

    fn why_not(&self, master: usize, facts: &MasterView) -> WhyNot {
        let peer = &self.peers[master];
        match facts.role {
            MasterKind::Replica => WhyNot::Replica,
            MasterKind::NotMaster => WhyNot::NotMaster,
            MasterKind::Loading { .. } => WhyNot::Loading,
            MasterKind::Cluster => WhyNot::Cluster,
            MasterKind::Denied => WhyNot::Denied,
            MasterKind::BadRecord => WhyNot::BadRecord,
            MasterKind::Master if peer.doubt != Doubt::None => WhyNot::Checked,
            MasterKind::Master if !self.has_quarantine => WhyNot::UsedWithQuarantine,
            MasterKind::Master
                if peer.stuck == Some(Stuck::Mixed) || facts.shows_no_quarantine() =>
            {
                WhyNot::UsedWithoutQuarantine
            }
            MasterKind::Master if peer.stuck == Some(Stuck::TooLarge) => WhyNot::ScoreTooLarge,
            MasterKind::Master if peer.is_outdated() => WhyNot::Outdated,
            MasterKind::Master => self.why_unadmitted(facts),
        }
    }

    /// Returns the remaining time. By the clocks of two masters, it falls from one short-lived
    /// client to the next.
    fn left(&self, master: usize, now: Millis) -> Left {
        let peer = &self.peers[master];
        let times = self.voting().filter_map(|other| {
            let process = self.peers[other].master()?.identity.run;
            Some((process, self.time(other, now)))
        });
        let length = self.length();
        let left = |at: Millis| at.saturating_sub(now);
        Left {
            by_staying: over::over_at(peer, length, now).map(left),
            by_visits: over::noted_at(peer, length, now, times).map(left),
        }
    }

    /// Returns the length of a quarantine that begins now.
    fn left_from_begin(&self) -> Left {
        let length = self.length();
        let by_visits = self.voting().next().map(|_| 2 * length);
        Left { by_staying: Some(length), by_visits }
    }

    /// Returns why a master without an admission does not vote. Every admission leaves a floor, and
    /// a quarantine keeps it. If this master has no floor, a floor read from any other master shows
    /// that the prefix is not new.
    fn why_unadmitted(&self, facts: &MasterView) -> WhyNot {
        let record = &facts.record;
        if record.admits(facts.identity) {
            WhyNot::Incomplete
        } else if record.was_admitted() {
            WhyNot::Restarted
        } else if self.was_used_before(&[]) {
            WhyNot::Emptied
        } else {
            WhyNot::New
        }
    }

    /// Returns `true` if masters of this prefix were admitted earlier, by scripts other than
    /// those with these nonces, as far as this client has ever read.
    pub(super) fn was_used_before(&self, ours: &[Nonce]) -> bool {
        let used = self.peers.iter().filter_map(|peer| peer.used);
        used.into_iter().any(|used| !used.is_by(ours))
    }
}
