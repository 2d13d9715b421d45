//! The masters that vote, and whether an answer is valid.

use std::time::Duration;

use redlock_core::admission::MAX_TTL_MAX;
use redlock_core::{Cause, Facts, Instant, ListWarning, Lists, NotAdmitted, Vote, WhyNot};

use super::link::StepFailure;
use super::millis::ceil_millis;
use super::{Context, Masters, News};
use crate::admission::{Event, Misfit};
use crate::client::view::{Purpose, Voters as _};
use crate::incarnations::Continuity;
use crate::master_set::MasterSet;
use crate::meeting_point::Weight;
use crate::quorum::quorum;
use crate::votes::answer::Counts;

/// The effect of an event on the set of masters that vote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Changed {
    /// Masters whose previous confirmations are not valid any longer.
    lost: MasterSet,
    /// These vote from now on.
    gained: MasterSet,
    /// These get no requests for new locks from now on: their recorded set does not fit the list.
    refused: MasterSet,
    /// The recorded sets of masters fit the list of this client from now on.
    fits: bool,
    /// The list works and may be wrong since now.
    has_doubt: bool,
}

impl Masters {
    /// Returns whether the answer of a master is valid. An answer is invalid if the master does not
    /// vote, or did not vote when the request was sent. An *unknown* answer has its own cause.
    #[inline]
    pub fn counts(&self, vote: &Vote, now: Instant) -> Counts {
        let voted =
            self.votes(vote.master) && vote.sent_at >= self.links.0[vote.master].alive_since;
        match voted || !vote.answer.verdict.is_clear() {
            true => Counts::Yes,
            false => Counts::Not(self.cause(vote.master, now)),
        }
    }

    /// Returns `true` if `master` votes.
    #[inline]
    pub fn votes(&self, master: usize) -> bool {
        self.voting.contains(master)
    }

    /// Returns `true` if a quorum of masters votes on new locks.
    #[inline]
    pub fn has_votes(&self) -> bool {
        self.open().len() >= quorum(self.len())
    }

    /// Returns why `master` gets no request for a new lock: its recorded set does not fit our list.
    pub fn misfit(&self, master: usize) -> Option<Cause> {
        let why = match self.admission.misfit(master)? {
            Misfit::Size => WhyNot::SetSize,
            Misfit::Split => WhyNot::SetsDiffer,
        };
        let why = NotAdmitted::wrong_list(why, self.lists(master));
        Some(Cause::NotAdmitted(why.into()))
    }

    /// Returns why a lock that another process acquired on `master` may also be on masters that our
    /// list lacks.
    pub fn elsewhere(&self, master: usize) -> Option<Cause> {
        let is_elsewhere = self.refused(Purpose::Resume).contains(master);
        is_elsewhere.then(|| self.misfit(master)).flatten()
    }

    /// Returns the set that `master` belongs to, and our list.
    fn lists(&self, master: usize) -> Lists {
        self.admission.lists(self.admission.set_of(master), &self.terms.names)
    }

    /// Handles an event of a master. All masters are judged together, because an event of one may
    /// concern another.
    pub(super) fn admit(&mut self, master: usize, event: Event, cx: &mut Context<'_>) -> Changed {
        self.admission.on(master, event, ceil_millis(cx.now));
        let mut changed = Changed::default();
        for master in 0..self.len() {
            let continuity = self.incarnations.review(master, &self.admission);
            if continuity == Continuity::Lost {
                changed.lost.insert(master);
            }
            if self.review(master, continuity, cx.now) {
                changed.gained.insert(master);
            }
            self.name_ballots(master, cx);
        }
        self.note_connecting(cx.now);
        self.compare_lists(&mut changed);
        self.max_ttl = self.admission.max_ttl().map_or(MAX_TTL_MAX, Duration::from_millis);
        changed
    }

    /// Handles an event of a master, and reports what it changes.
    pub(super) fn learn(&mut self, master: usize, event: Event, cx: &mut Context<'_>) {
        if let Event::Script(reply) = &event {
            self.learn_floor(reply.record.floor, cx.now);
        }
        let changed = self.admit(master, event, cx);
        self.tell(changed, cx);
    }

    /// Appends the news about these changes.
    pub(super) fn tell(&mut self, changed: Changed, cx: &mut Context<'_>) {
        for master in changed.lost.iter() {
            let cause = self.cause(master, cx.now);
            if !self.votes(master) {
                cx.news.push(News::NotCounting(master, cause.clone()));
            }
            cx.news.push(News::Disowned(master, cause));
        }
        for master in changed.gained.iter() {
            cx.news.push(News::Counting(master));
            self.proven(master, cx);
            cx.news.push(News::Voting(master));
        }
        for master in changed.refused.iter() {
            if let Some(cause) = self.misfit(master) {
                cx.news.push(News::NotCounting(master, cause));
            }
        }
        let warning = self.list_warning();
        if let Some(warning) = warning.as_ref().filter(|_| changed.has_doubt) {
            cx.news.push(News::ListDoubt(warning.clone()));
        }
        // The first event shows one master, and later ones may show that another one differs.
        cx.news.push(News::ListWarning(warning));
        if (!changed.gained.is_empty() || changed.fits) && self.has_votes() {
            cx.news.push(News::PausesOver);
        }
    }

    /// Compares the sets of all masters with the list. What one shows may concern all.
    fn compare_lists(&mut self, changed: &mut Changed) {
        let misfits: MasterSet =
            (0..self.len()).filter(|master| self.admission.misfit(*master).is_some()).collect();
        let before = std::mem::replace(&mut self.misfits, misfits);
        let is_certain = !self.admission.awaits_duplicates();
        let certain = if is_certain { misfits } else { MasterSet::EMPTY };
        let reported = std::mem::replace(&mut self.reported, certain);
        changed.refused = certain.without(reported);
        changed.fits = !before.without(misfits).is_empty();
        let doubt = self.admission.list_doubt(&self.terms.names);
        let before = std::mem::replace(&mut self.doubt, doubt);
        changed.has_doubt = doubt.is_some() && before.is_none();
    }

    /// Returns why our list may be wrong although it works. `None` if too few masters are left:
    /// then each of their answers shows both lists.
    fn list_warning(&self) -> Option<Box<ListWarning>> {
        let left = self.len() - self.misfits.len();
        let (master, doubt) = self.doubt.filter(|_| left >= quorum(self.len()))?;
        let node = self.terms.names.iter().nth(master)?;
        Some(ListWarning::new(doubt, node.into(), self.lists(master)).into())
    }

    /// Ballots go to the set of the identity with which the master is taken to be admitted.
    fn name_ballots(&mut self, master: usize, cx: &mut Context<'_>) {
        let run = self.admission.admitted_as(master);
        if std::mem::replace(&mut self.links.0[master].admitted_as, run) != run {
            cx.news.push(News::Admitted(master, run));
        }
    }

    /// Decides whether `master` votes. Returns `true` if it does and did not before.
    fn review(&mut self, master: usize, continuity: Continuity, now: Instant) -> bool {
        let link = &mut self.links.0[master];
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

    /// Ends the incarnation of a master that was not proven in time. Returns `true` if something
    /// may be gone.
    pub(super) fn give_up(&mut self, master: usize) -> bool {
        !self.votes(master) && self.incarnations.give_up(master)
    }

    /// Records a failed step towards the admission of `master`. The text of an error reply is kept,
    /// because it shows whether waiting helps.
    pub fn step_failed(&mut self, master: usize, cause: &Cause, now: Instant) {
        let error = match cause {
            Cause::ErrorReply(error) | Cause::Demoted(error) => error.clone(),
            cause => cause.to_string(),
        };
        self.links.0[master].step_failure = Some(StepFailure { error, at: now });
    }

    /// Records facts of the server that were read again.
    pub(super) fn probed(&mut self, master: usize, mut facts: Facts, now: Instant) {
        let link = &mut self.links.0[master];
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
}
