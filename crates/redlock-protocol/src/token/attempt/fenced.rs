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
    /// Until then some ballot must be accepted: one node timeout after a quorum has granted.
    until: Option<Instant>,
}

/// The ballot that goes with the first request.
pub const FIRST: u32 = 1;

impl Attempt {
    /// Makes this the attempt of a fenced lock. `ballot` goes with the key to all masters; `None`
    /// if the meeting point is asked for the key alone.
    #[inline]
    pub fn fenced(mut self, ballot: Option<Ballot>) -> Self {
        let proposals = Proposals::new(self.ledger.masters());
        self.fenced = Some(Fenced { proposals, until: None });
        self.propose_first(ballot);
        self
    }

    /// Whether the lock is to have a fencing token.
    #[inline]
    pub fn is_fenced(&self) -> bool {
        self.fenced.is_some()
    }

    /// Until when a ballot must be accepted; `None` while no quorum has granted.
    #[inline]
    pub fn ballots_until(&self) -> Option<Instant> {
        self.fenced.as_ref()?.until
    }

    /// How many ballots were proposed.
    pub fn ballots(&self) -> u32 {
        self.fenced.as_ref().map_or(0, |fenced| fenced.proposals.count())
    }

    /// The ballot that may be handed out.
    #[inline]
    pub fn proof(&self) -> Option<Proof> {
        self.fenced.as_ref()?.proposals.proof()
    }

    #[cfg(test)]
    /// The fencing token of the ballot that a quorum accepted.
    pub fn fencing_token(&self) -> Option<redlock_core::FencingToken> {
        self.proof().map(|proof| proof.ballot.token())
    }

    /// The first ballot goes out with the key, or behind it.
    #[inline]
    pub(super) fn propose_first(&mut self, ballot: Option<Ballot>) {
        if let (Some(fenced), Some(ballot)) = (&mut self.fenced, ballot) {
            fenced.proposals.propose(ballot, self.asked);
            self.ledger.scores_asked(self.asked);
        }
    }

    /// Another ballot goes out now, under this number to these masters.
    pub fn propose(&mut self, ballot: Ballot) -> Option<(u32, MasterSet)> {
        let proposals = &mut self.fenced.as_mut()?.proposals;
        let masters = proposals.askable(self.granted);
        self.ledger.scores_asked(masters);
        Some((proposals.propose(ballot, masters), masters))
    }

    /// The latest ballot goes to these masters, too.
    pub fn join(&mut self, masters: MasterSet) -> Option<(u32, Ballot)> {
        self.ledger.scores_asked(masters);
        self.fenced.as_mut()?.proposals.join(masters)
    }

    /// The first ballot goes out again with the key.
    pub(super) fn join_again(&mut self, masters: MasterSet) -> Option<Ballot> {
        self.fenced.as_mut()?.proposals.join(masters).map(|(_, ballot)| ballot)
    }

    /// The masters that are to be asked for their score now.
    pub fn ask_scores(&mut self) -> MasterSet {
        self.ledger.ask_scores()
    }

    /// Counts the answer of `master` to the ballot with this number, which was proposed for a key
    /// that it had granted.
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
        // A resume extends the key each time.
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

    /// The next ballot is not above the scores of these masters: it is proposed to the others.
    pub fn set_refusing(&mut self, masters: MasterSet) {
        if let Some(Fenced { proposals, .. }) = &mut self.fenced {
            proposals.set_refusing(masters);
        }
    }

    /// Counts the answer of `master` to the request for its score.
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

    /// The answer of `master` to one of both does not count.
    fn ballot_uncounted(&mut self, master: usize, now: Instant) -> Step {
        self.disown_ballots(master);
        self.ledger.score_missing(master);
        self.judge_ballots(now)
    }

    /// The time for ballots is over.
    pub fn end_ballots(&mut self, now: Instant) -> Step {
        let is_over = self.ballots_until().is_some_and(|until| until <= now);
        if is_over && !self.is_proven() { Step::Lost(Defeat::BallotRefused) } else { Step::Wait }
    }

    /// A fencing token is not handed out before the ballot behind it was accepted.
    #[inline]
    pub(super) fn is_proven(&self) -> bool {
        self.fenced.as_ref().is_none_or(|fenced| fenced.proposals.is_accepted())
    }

    /// Nor after those that accepted it may have lost the key.
    #[inline]
    pub(super) fn may_hand_out(&self, now: Instant) -> bool {
        self.fenced.is_none() || self.proof().is_some_and(|proof| proof.until > now)
    }

    /// Counts the part of an answer of `master` about the ballot with this number, which went with
    /// the key, behind it, or with an extension.
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

    /// Until when `master` is known to hold the key, for a ballot that it has accepted: by the
    /// `SET` before, or by the extension that the ballot came with.
    #[inline]
    fn accepted_until(&self, master: usize, sent_at: Instant) -> Instant {
        match self.origin {
            Origin::Acquired => self.ledger.hold_until(master),
            Origin::Resumed => sent_at.saturating_add(self.timing.ttl.validity()),
        }
    }

    /// Takes in an answer of `master` that grants or extends the key. A refused ballot may mean
    /// that the master has lost its ballots: it must show its score before its grant, or any
    /// extension there, counts.
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

    /// No acceptance of `master` counts any more.
    pub(super) fn disown_ballots(&mut self, master: usize) {
        if let Some(fenced) = &mut self.fenced {
            fenced.proposals.disown(master);
        }
    }

    /// No quorum has granted any more.
    pub(super) fn stop_ballots(&mut self) {
        if let Some(fenced) = &mut self.fenced {
            fenced.until = None;
        }
    }

    /// A quorum has granted, and no ballot has one.
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
            // The lease asks again: the master may be admitted by then.
            Shown::NoKey | Shown::NoBallots | Shown::Nothing => self.ledger.score_missing(master),
        }
        if let Shown::NoKey | Shown::NoBallots = shown {
            self.take_back(master, answer.verdict.clone());
        }
    }
}

#[cfg(test)]
mod tests;
