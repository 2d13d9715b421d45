//! Voting: the masters that vote, and whether an answer counts.

use std::time::Duration;

use redlock_core::admission::{MAX_TTL_MAX, Names};
use redlock_core::{Cause, Facts, Instant, Lists, NotAdmitted, Vote, WhyNot};
use redlock_protocol::admission::{Event, Misfit, Why};
use redlock_protocol::incarnations::Continuity;
use redlock_protocol::master_set::MasterSet;
use redlock_protocol::meeting_point::Weight;
use redlock_protocol::quorum::quorum;
use redlock_protocol::votes::answer::Counts;

use super::convert::{ceil_millis, floor_millis};
use super::masters::{Changed, Masters, StepFailure};

impl Masters {
    /// Whether what a master has answered counts. It does not count if the master does not vote, or
    /// did not vote when it was asked. An *unknown* answer has its own cause.
    pub(super) fn counts(&self, vote: &Vote, now: Instant) -> Counts {
        let voted = self.votes(vote.master) && vote.sent_at >= self.links[vote.master].alive_since;
        match voted || !vote.answer.verdict.is_clear() {
            true => Counts::Yes,
            false => Counts::Not(self.cause(vote.master, now)),
        }
    }

    pub(super) fn votes(&self, master: usize) -> bool {
        self.voting.contains(master)
    }

    /// The masters that vote and get requests for new locks.
    pub(super) fn open(&self) -> MasterSet {
        self.voting.without(self.misfits)
    }

    /// Whether a quorum of masters votes on new locks.
    pub(super) fn has_votes(&self) -> bool {
        self.open().len() >= quorum(self.len())
    }

    /// Why `master` gets no request for a new lock: its recorded set does not fit our list.
    pub(super) fn misfit(&self, master: usize) -> Option<Cause> {
        let why = match self.admission.misfit(master)? {
            Misfit::Size => WhyNot::SetSize,
            Misfit::Split => WhyNot::SetsDiffer,
        };
        let why = NotAdmitted::wrong_list(why, self.lists(master));
        Some(Cause::NotAdmitted(why.into()))
    }

    /// The set that `master` belongs to, and our list.
    pub(super) fn lists(&self, master: usize) -> Lists {
        let set = self.admission.set_of(master).cloned();
        Lists { set, list: Names::new(self.names.iter().cloned()) }
    }

    /// Whether no attempt can be won before more masters vote, and masters that are connected are
    /// among those that do not. This client learns at once when one comes to vote. One that is
    /// away, or is being checked, may vote at any time.
    pub(super) fn lacks_votes(&self) -> bool {
        let mut silent = (0..self.len()).filter(|master| !self.open().contains(*master));
        !self.has_votes() && silent.any(|master| !self.admission.is_open(master))
    }

    /// The masters of `asked` that get a copy and do not vote. A master that is being checked is
    /// not among them: its answer comes behind the probe.
    pub(super) fn copies_only(&self, asked: MasterSet) -> MasterSet {
        let silent = asked.without(self.voting).without(self.misfits);
        if silent.is_empty() {
            return silent;
        }
        let is_copy = |master: &usize| {
            !self.admission.is_open(*master) && !self.admission.is_foreign(*master)
        };
        silent.iter().filter(is_copy).collect()
    }

    /// Why the answer of `master` does not count. A permanent lack is reported in place of a
    /// quarantine: no wait cures it.
    pub(super) fn cause(&self, master: usize, now: Instant) -> Cause {
        let link = &self.links[master];
        let why = match (self.admission.why(master, floor_millis(now)), &link.unfit) {
            (Some(Why::TwinOf(other)), _) => return Cause::TwinOf(self.names[other].to_string()),
            (Some(Why::Away), _) => return link.state.cause().cloned().unwrap_or_else(away),
            (Some(Why::NotAdmitted(why)), Some(unfit)) if why.why.is_ended_by_quarantine() => {
                let mut unfit = unfit.clone();
                unfit.in_quarantine = why.in_quarantine;
                unfit
            }
            (Some(Why::NotAdmitted(mut why)), _) => {
                why.step_error =
                    link.step_failure.as_ref().map(|step_failure| step_failure.error.clone());
                why
            }
            (None, Some(unfit)) => unfit.clone(),
            (None, None) => NotAdmitted::new(WhyNot::AskedTooEarly),
        };
        Cause::NotAdmitted(why.into())
    }

    /// Takes in an event of a master. The machine judges all masters together: an event of one may
    /// concern another.
    pub(super) fn admit(&mut self, master: usize, event: Event, now: Instant) -> Changed {
        self.admission.on(master, event, ceil_millis(now));
        let mut changed = Changed::default();
        for master in 0..self.len() {
            let continuity = self.incarnations.review(master, &self.admission);
            if continuity == Continuity::Lost {
                changed.lost.insert(master);
            }
            if self.review(master, continuity, now) {
                changed.gained.insert(master);
            }
            self.name_ballots(master);
        }
        self.compare_lists(&mut changed);
        self.max_ttl = self.admission.max_ttl().map_or(MAX_TTL_MAX, Duration::from_millis);
        changed
    }

    /// The sets of all masters are compared with the list. What one shows may concern all.
    fn compare_lists(&mut self, changed: &mut Changed) {
        let misfits: MasterSet =
            (0..self.len()).filter(|master| self.admission.misfit(*master).is_some()).collect();
        let before = std::mem::replace(&mut self.misfits, misfits);
        changed.refused = misfits.without(before);
        changed.fits = !before.without(misfits).is_empty();
        let changing = self.admission.changing();
        let before = std::mem::replace(&mut self.changing, changing);
        changed.changing = changing.filter(|_| before.is_none());
    }

    /// The recorded set and our list, if a change of the list may be under way. `None` if too few
    /// masters are left: each of their answers shows both lists.
    pub(super) fn list_warning(&self) -> Option<Lists> {
        let left = self.len() - self.misfits.len();
        self.changing.filter(|_| left >= quorum(self.len())).map(|master| self.lists(master))
    }

    /// Ballots go to the set of what the machine holds the master to be admitted as.
    fn name_ballots(&mut self, master: usize) {
        let run = self.admission.admitted_as(master);
        let link = &mut self.links[master];
        if std::mem::replace(&mut link.admitted_as, run) != run {
            self.nodes[master].set_admitted(run);
        }
    }

    /// Says whether `master` votes and did not before.
    fn review(&mut self, master: usize, continuity: Continuity, now: Instant) -> bool {
        let link = &mut self.links[master];
        if continuity != Continuity::Kept {
            link.alive_since = now;
        }
        if !self.admission.votes(master) || link.unfit.is_some() {
            self.voting.remove(master);
            return false;
        }
        link.step_failure = None;
        let voted = self.voting.contains(master);
        self.voting.insert(master);
        !voted
    }

    /// It was not proven in time that `master` has what it had. Says whether something may be gone.
    pub(super) fn give_up(&mut self, master: usize) -> bool {
        !self.votes(master) && self.incarnations.give_up(master)
    }

    /// A step towards its admission failed. Of an error reply the text of the server is kept: by
    /// that it is clear whether waiting cures it.
    pub(super) fn step_failed(&mut self, master: usize, cause: &Cause, now: Instant) {
        let error = match cause {
            Cause::ErrorReply(error) | Cause::Demoted(error) => error.clone(),
            cause => cause.to_string(),
        };
        self.links[master].step_failure = Some(StepFailure { error, at: now });
    }

    /// The masters whose latest step failed before this instant: a person may have cured since what
    /// it failed for, and the next step shows it.
    pub(super) fn step_failed_before(&self, at: Instant) -> MasterSet {
        let was = |master: &usize| {
            self.links[*master]
                .step_failure
                .as_ref()
                .is_some_and(|step_failure| step_failure.at < at)
        };
        (0..self.len()).filter(was).collect()
    }

    /// A step towards its admission was carried out.
    pub(super) fn clear_step_failure(&mut self, master: usize) {
        self.links[master].step_failure = None;
    }

    /// The facts of the server were read again.
    pub(super) fn probed(&mut self, master: usize, mut facts: Facts, now: Instant) {
        let link = &mut self.links[master];
        if let Some(before) = &link.facts {
            // These are about the connection, which is the same.
            (facts.tracks, facts.has_barrier) = (before.tracks, before.has_barrier);
            facts.no_ballots.clone_from(&before.no_ballots);
        }
        link.step_failure = StepFailure::of(&facts, now).or_else(|| link.step_failure.take());
        link.weight = Weight::of(&facts.run_id);
        link.facts = Some(facts);
        link.read_at = now;
    }

    /// The facts of the server on the connection that is up.
    pub(super) fn facts(&self, master: usize) -> Option<&Facts> {
        self.links[master].facts.as_ref()
    }
}

fn away() -> Cause {
    Cause::NotConnected("".into())
}
