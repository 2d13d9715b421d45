//! The fenced part of an attempt: a ballot that a quorum of masters accepts.

use redlock_core::{Answer, Ballot, Balloted, Instant, Verdict};

use super::{Attempt, Defeat, Origin, Step};
use crate::ballot::proposals::{Proof, Proposals};
use crate::master_set::MasterSet;
use crate::quorum::quorum;
use crate::votes::answer::{Judged, Shown};
use crate::votes::tally::Decision;

/// The ballots of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Fenced {
    proposals: Proposals,
    /// The deadline for a ballot to be accepted: one node timeout after a quorum granted the key.
    until: Option<Instant>,
}

/// The number of the ballot that is sent with the first request.
pub const FIRST: u32 = 1;

impl Attempt {
    /// Makes this the attempt of a fenced lock. `ballot` goes with the key to all masters. `None`
    /// if only the meeting point receives the request for the key now.
    #[inline]
    pub fn fenced(mut self, ballot: Option<Ballot>) -> Self {
        let proposals = Proposals::new(self.ledger.masters());
        self.fenced = Some(Fenced { proposals, until: None });
        self.propose_first(ballot);
        self
    }

    /// Returns `true` if the lock has a fencing token.
    #[inline]
    pub fn is_fenced(&self) -> bool {
        self.fenced.is_some()
    }

    /// Returns the deadline for a ballot to be accepted, or `None` while no quorum has granted the
    /// key.
    #[inline]
    pub fn ballots_until(&self) -> Option<Instant> {
        self.fenced.as_ref()?.until
    }

    /// Returns how many ballots were proposed.
    pub fn ballots(&self) -> u32 {
        self.fenced.as_ref().map_or(0, |fenced| fenced.proposals.count())
    }

    /// Returns the ballot that may be handed out.
    #[inline]
    pub fn proof(&self) -> Option<Proof> {
        self.fenced.as_ref()?.proposals.proof()
    }

    #[cfg(test)]
    /// Returns the fencing token of the ballot that a quorum accepted.
    pub fn fencing_token(&self) -> Option<redlock_core::FencingToken> {
        self.proof().map(|proof| proof.ballot.token())
    }

    /// Proposes the first ballot, together with the key or after it.
    #[inline]
    pub(super) fn propose_first(&mut self, ballot: Option<Ballot>) {
        if let (Some(fenced), Some(ballot)) = (&mut self.fenced, ballot) {
            fenced.proposals.propose(ballot, self.asked);
            self.ledger.scores_asked(self.asked);
        }
    }

    /// Proposes another ballot. Returns its number and the masters that receive it.
    pub fn propose(&mut self, ballot: Ballot) -> Option<(u32, MasterSet)> {
        let proposals = &mut self.fenced.as_mut()?.proposals;
        let masters = proposals.askable(self.granted);
        self.ledger.scores_asked(masters);
        Some((proposals.propose(ballot, masters), masters))
    }

    /// Proposes the latest ballot to these masters as well.
    pub fn join(&mut self, masters: MasterSet) -> Option<(u32, Ballot)> {
        self.ledger.scores_asked(masters);
        self.fenced.as_mut()?.proposals.join(masters)
    }

    /// Proposes the first ballot again, together with the key.
    pub(super) fn join_again(&mut self, masters: MasterSet) -> Option<Ballot> {
        self.fenced.as_mut()?.proposals.join(masters).map(|(_, ballot)| ballot)
    }

    /// Returns the masters that must report their score now.
    pub fn ask_scores(&mut self) -> MasterSet {
        self.ledger.ask_scores()
    }

    /// Records the answer of `master` to the ballot with this number, proposed for a key that it
    /// granted.
    pub fn ballot_vote<'a>(
        &mut self,
        number: u32,
        master: usize,
        judged: impl Into<Judged<'a>>,
        sent_at: Instant,
        now: Instant,
    ) -> Step {
        let judged = self.taken_over(judged.into());
        if !judged.does_count() {
            return self.ballot_uncounted(master, now);
        }
        let answer = judged.answer;
        self.ledger.write_balloted(master, judged, now.saturating_since(sent_at));
        self.note_score(master, answer);
        // Each request of a resume extends the key.
        if self.origin == Origin::Resumed && self.granted.contains(master) {
            self.confirm(master, judged, sent_at);
        }
        self.note_ballot(number, master, judged, sent_at);
        if let (Verdict::Unknown(_), Some(Fenced { proposals, .. })) =
            (&answer.verdict, &mut self.fenced)
        {
            proposals.leave(number, master);
        }
        self.judge_ballots(now)
    }

    /// Excludes masters whose scores the next ballot does not exceed. The others receive it.
    pub fn set_refusing(&mut self, masters: MasterSet) {
        if let Some(Fenced { proposals, .. }) = &mut self.fenced {
            proposals.set_refusing(masters);
        }
    }

    /// Records the answer of `master` to the request for its score.
    pub fn score_vote<'a>(
        &mut self,
        master: usize,
        judged: impl Into<Judged<'a>>,
        now: Instant,
    ) -> Step {
        let judged = judged.into();
        if !judged.does_count() {
            return self.ballot_uncounted(master, now);
        }
        self.note_score(master, judged.answer);
        self.judge_ballots(now)
    }

    /// Ignores the answer of `master` to a ballot or to a request for its score.
    fn ballot_uncounted(&mut self, master: usize, now: Instant) -> Step {
        self.disown_ballots(master);
        self.ledger.score_missing(master);
        self.judge_ballots(now)
    }

    /// Ends the time for ballots.
    pub fn end_ballots(&mut self, now: Instant) -> Step {
        let is_over = self.ballots_until().is_some_and(|until| until <= now);
        if is_over && !self.is_proven() { Step::Lost(Defeat::BallotRefused) } else { Step::Wait }
    }

    /// Returns `true` if the ballot was accepted. Until then, no fencing token is handed out.
    #[inline]
    pub(super) fn is_proven(&self) -> bool {
        self.fenced.as_ref().is_none_or(|fenced| fenced.proposals.is_accepted())
    }

    /// Returns `true` while the masters that accepted the ballot are known to hold the key. After
    /// that, no fencing token is handed out.
    #[inline]
    pub(super) fn may_hand_out(&self, now: Instant) -> bool {
        self.fenced.is_none() || self.proof().is_some_and(|proof| proof.until > now)
    }

    /// Records the part of an answer of `master` that concerns the ballot with this number. The
    /// ballot went with the key, after it, or with an extension.
    #[inline]
    pub(super) fn note_ballot(
        &mut self,
        number: u32,
        master: usize,
        judged: Judged<'_>,
        sent_at: Instant,
    ) {
        let until = self.accepted_until(master, sent_at);
        let Some(Fenced { proposals, .. }) = &mut self.fenced else { return };
        match (&*judged.verdict(), judged.answer.balloted) {
            (Verdict::Granted, Some(Balloted::Accepted)) => proposals.accept(number, master, until),
            _ => proposals.refuse(number, master),
        }
    }

    /// Returns until when `master` is known to hold the key, for a ballot that it has accepted.
    /// This depends on the earlier `SET`, or on the extension that carried the ballot.
    #[inline]
    fn accepted_until(&self, master: usize, sent_at: Instant) -> Instant {
        match self.origin {
            Origin::Acquired => self.ledger.hold_until(master),
            Origin::Resumed => sent_at.saturating_add(self.timing.ttl.validity()),
        }
    }

    /// Records an answer of `master` that grants or extends the key. A refused ballot may mean that
    /// the master has lost its ballots. It must then show its score before its grant or any
    /// extension is valid.
    #[inline]
    pub(super) fn confirm(&mut self, master: usize, judged: Judged<'_>, sent_at: Instant) {
        let is_shown = self.fenced.is_none() || Shown::by(judged.answer) == Shown::Ballots;
        match (&judged.answer.verdict, judged.does_count()) {
            (Verdict::Granted | Verdict::BallotRefused, true) if is_shown => {
                self.ledger.confirm(master, sent_at, self.timing.ttl.validity());
            }
            (Verdict::Granted | Verdict::BallotRefused, true) => {
                self.ledger.granted_unscored(master, Some(sent_at));
            }
            (Verdict::BallotRefused, false) => self.ledger.granted_unscored(master, None),
            _ => {}
        }
    }

    /// Invalidates every acceptance of `master`.
    pub(super) fn disown_ballots(&mut self, master: usize) {
        if let Some(fenced) = &mut self.fenced {
            fenced.proposals.disown(master);
        }
    }

    /// Stops the ballots, because no quorum has granted the key any longer.
    pub(super) fn stop_ballots(&mut self) {
        if let Some(fenced) = &mut self.fenced {
            fenced.until = None;
        }
    }

    /// Continues with ballots after a quorum has granted, while no ballot has a quorum.
    pub(super) fn pursue_ballots(&mut self, now: Instant) -> Step {
        let (quorum, node_timeout) = (quorum(self.ledger.masters()), self.timing.node_timeout);
        let Some(Fenced { proposals, until }) = &mut self.fenced else { return Step::Wait };
        until.get_or_insert(now.saturating_add(node_timeout));
        let askable = proposals.askable(self.granted).len();
        let unasked = proposals.unasked(self.granted);
        if proposals.is_hopeful(self.granted) {
            if unasked.is_empty() { Step::Wait } else { Step::Join(unasked) }
        } else if askable >= quorum {
            Step::Propose
        } else if askable + self.tally.pending() < quorum {
            Step::Lost(Defeat::BallotRefused)
        } else {
            Step::Wait
        }
    }

    fn judge_ballots(&mut self, now: Instant) -> Step {
        let is_open = self.tally.decision() == Decision::Open;
        if is_open { Step::Wait } else { self.judge(now) }
    }

    fn note_score(&mut self, master: usize, answer: &Answer) {
        let shown = Shown::by(answer);
        match shown {
            Shown::Ballots => self.ledger.scored(master, self.timing.ttl.validity()),
            // The lease requests the score again, because the master may be admitted by then.
            Shown::NoKey | Shown::NoBallots | Shown::Nothing => self.ledger.score_missing(master),
        }
        if let Shown::NoKey | Shown::NoBallots = shown {
            self.take_back(master, answer.verdict.clone());
        }
    }
}

#[cfg(test)]
mod tests;
