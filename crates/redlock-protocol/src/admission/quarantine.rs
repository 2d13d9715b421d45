//! A master in quarantine: the notes, the floor, and the admission.

use redlock_core::admission::{Admit, Millis, Nonce, Note, RunId};

use super::floor::{self, Floor, Scored};
use super::messages::Step;
use super::peer::Stuck;
use super::view::MasterTime;
use super::{Admission, over};

impl Admission {
    pub(super) fn in_quarantine(&self, master: usize, now: Millis) -> Option<Step> {
        let peer = &self.peers[master];
        let (nonce, _) = peer.nonce_since?;
        let identity = peer.facts.as_ref()?.identity;
        if let Some(way) = over::over(peer, self.length(), now, |one| self.votes_as(one)) {
            return Some(match peer.floor {
                None => Step::ReadFloor(nonce, self.reachable()),
                Some(Floor { score: floor, .. }) => {
                    let (until, set) = (self.until(master, now), self.set_of_voting());
                    Step::Admit(Admit { nonce, identity, way, floor, set, until })
                }
            });
        }
        if peer.times.is_none() {
            let voting: Vec<_> = self.voting().collect();
            return (!voting.is_empty()).then_some(Step::AskTimes(nonce, voting));
        }
        let times = self.worth_noting(master);
        let until = self.until(master, now);
        (!times.is_empty()).then_some(Step::Note(Note { nonce, times, until }))
    }

    fn worth_noting(&self, master: usize) -> Vec<(RunId, Millis)> {
        let peer = &self.peers[master];
        let Some(quarantine) = peer.quarantine() else { return Vec::new() };
        let times = peer.times.iter().flatten().filter(|one| self.votes_as(one));
        let wanted = times.filter(|one| quarantine.wants(one.process, one.time));
        wanted.map(|one| (one.process, one.time)).collect()
    }

    pub(super) fn wait(&self, master: usize, now: Millis) -> Step {
        let peer = &self.peers[master];
        let probe_at = peer.paced + self.probe_every;
        let over_at = over::over_at(peer, self.length(), now);
        Step::Wait(over_at.map_or(probe_at, |over| over.min(probe_at)))
    }

    pub(super) fn on_floors(
        &mut self,
        master: usize,
        nonce: Nonce,
        answers: &[Scored],
        now: Millis,
    ) {
        let masters = self.peers.len();
        self.peers[master].under_way = false;
        let peer = &self.peers[master];
        let Some(quarantine) = peer.quarantine() else { return };
        if peer.nonce_since.is_none_or(|(known, _)| known != nonce) {
            return;
        }
        let is_proven = |answer: &Scored| self.is_proven(answer);
        let floor = floor::floor(masters, master, quarantine.ballot, answers, is_proven);
        let peer = &mut self.peers[master];
        if !answers.iter().any(|answer| answer.master == master) {
            return peer.rest(Stuck::Failed, now);
        }
        peer.floor = floor;
        if peer.floor.is_none() {
            peer.rest(Stuck::TooLarge, now);
        }
    }

    /// Returns `true` if the process that reported its TIME votes now.
    fn votes_as(&self, one: &MasterTime) -> bool {
        let process = self.peers[one.master].facts.as_ref().map(|facts| facts.identity.run);
        process == Some(one.process) && self.votes(one.master)
    }
}
