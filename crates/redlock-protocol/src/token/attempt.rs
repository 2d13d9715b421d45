//! `Attempt`: one token, asked of all masters at once, until it is won or lost.

use std::time::Duration;

use redlock_core::{Answer, Ballot, Cause, Instant, Verdict};

use crate::master_set::MasterSet;
use crate::quorum::quorum;
use crate::terms::{HoldOptions, Timing};
use crate::token::lease::HeldLease;
use crate::votes::answer::Judged;
use crate::votes::ledger::{LastAnswer, Ledger};
use crate::votes::tally::{Decision, Tally};
use crate::waiting::Refusal;

mod fenced;

pub use self::fenced::FIRST;
use self::fenced::Fenced;

/// How the token came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// It is fresh: `SET NX` is asked of the masters.
    Acquired,
    /// It is another's, or ours from before: an extension is asked of the masters.
    Resumed,
}

/// The votes on one token.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Attempt {
    ledger: Ledger,
    tally: Tally,
    origin: Origin,
    timing: Timing,
    options: HoldOptions,
    started: Instant,
    /// When the vote was decided; the start while it is open.
    decided: Instant,
    awaits_copies: bool,
    /// The masters that were asked so far.
    asked: MasterSet,
    /// The masters whose grants are counted.
    granted: MasterSet,
    /// The state for a fencing token; `None` for a plain lock.
    fenced: Option<Fenced>,
    /// The master whose queue it enters, and how often those that refused may be asked again.
    enters: Option<Enters>,
    /// A vote that is lost stays open until it is certain whether a quorum answers.
    seeks_quorum: bool,
}

/// The entry into the queue at the meeting point.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Enters {
    at: usize,
    again: u8,
    /// The masters that refused are to be asked again.
    is_due: bool,
}

/// How often masters that refused are asked again, where the meeting point has granted: what the
/// holder before left behind there may be on its way.
const AGAIN_MAX: u8 = 4;

/// The consequence of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// No step yet.
    Wait,
    /// The meeting point has granted: the others are to be asked.
    AskOthers,
    /// A quorum has granted, and too few have accepted the ballot: another one is to be proposed.
    Propose,
    /// The meeting point has granted, and too few of the others: those that refused are to be asked
    /// again a little later.
    TakeAgain,
    /// These masters have granted, too: the latest ballot is to be proposed to them.
    Join(MasterSet),
    /// A quorum has granted, and the caller wants more copies: wait a little for them.
    AwaitCopies,
    /// The lease is ours.
    Won,
    /// It is not.
    Lost(Defeat),
}

/// Why an attempt was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Defeat {
    /// Too few granted.
    Outvoted,
    /// Enough granted, too late.
    TooLate,
    /// Enough granted, and too few of them accepted one ballot in time.
    BallotRefused,
}

impl Attempt {
    /// The requests go out now, all of them. `now` was read before the first byte could leave.
    #[inline]
    pub fn new(
        masters: usize,
        origin: Origin,
        timing: Timing,
        options: HoldOptions,
        now: Instant,
    ) -> Self {
        let asked = MasterSet::all(masters);
        Self {
            ledger: Ledger::new(masters),
            asked,
            tally: Tally::new(masters),
            origin,
            timing,
            options,
            started: now,
            decided: now,
            awaits_copies: false,
            granted: MasterSet::EMPTY,
            fenced: None,
            enters: None,
            seeks_quorum: false,
        }
    }

    /// Makes this an attempt that enters the queue at the master `at`.
    pub fn entering(self, at: usize) -> Self {
        Self { enters: Some(Enters { at, again: AGAIN_MAX, is_due: false }), ..self }
    }

    /// Makes this an attempt that is not lost before it is certain whether a quorum answers: for
    /// those that saw none before.
    pub fn seeking_quorum(self) -> Self {
        Self { seeks_quorum: true, ..self }
    }

    /// Makes this an attempt that asks only the master `first` now, and the others when `first` has
    /// granted.
    #[inline]
    pub fn asking_first(self, first: usize) -> Self {
        let (masters, asked) = (self.ledger.masters(), MasterSet::from_iter([first]));
        Self { ledger: Ledger::asking(masters, asked), asked, ..self }
    }

    /// The masters that were asked so far.
    #[inline]
    pub fn asked(&self) -> MasterSet {
        self.asked
    }

    /// The vote of `master`, on a request that was sent no earlier than `sent_at`. One that does
    /// not count is *unknown*.
    pub fn vote<'a>(
        &mut self,
        master: usize,
        judged: impl Into<Judged<'a>>,
        sent_at: Instant,
        now: Instant,
    ) -> Step {
        let judged = self.taken_over(judged.into());
        if self.ledger.is_copy(master) {
            self.copy_answered(master, judged.answer);
            return Step::Wait;
        }
        self.ledger.write_first(master, judged, now.saturating_since(sent_at));
        // A lease that is taken over may have its key where it could not be asked for it.
        if self.origin == Origin::Acquired {
            self.ledger.acquired(master, judged.answer);
        }
        let verdict = judged.verdict();
        self.tally.count(&verdict);
        if is_grant(&verdict) {
            self.granted.insert(master);
        }
        self.confirm(master, judged, sent_at);
        self.note_ballot(FIRST, master, judged, sent_at);
        if self.others().is_empty() {
            return self.judge(now);
        }
        match *verdict {
            Verdict::Granted => Step::AskOthers,
            _ => Step::Lost(Defeat::Outvoted),
        }
    }

    /// A lease that is taken over was there before.
    #[inline]
    fn taken_over<'a>(&self, judged: Judged<'a>) -> Judged<'a> {
        match self.origin {
            Origin::Acquired => judged,
            Origin::Resumed => judged.of_former_key(),
        }
    }

    /// These masters do not vote, each for its reason: they are asked for a copy only. Their votes
    /// are *unknown* from now on, whatever they answer. All are counted before the attempt is
    /// judged: an error that follows reports the reason of each.
    pub fn only_copies(&mut self, whys: Vec<(usize, Cause)>, now: Instant) -> Step {
        for (master, why) in whys {
            self.ledger.only_copy(master, why);
            self.tally.count_unknown();
            self.disown_ballots(master);
        }
        self.judge_or_wait(now)
    }

    fn copy_answered(&mut self, master: usize, answer: &Answer) {
        match self.origin {
            Origin::Acquired => self.ledger.copy_answered(master, answer),
            // A lease that is taken over may have its key there in any case.
            Origin::Resumed => self.ledger.note_reply(master, answer),
        }
    }

    fn judge_or_wait(&mut self, now: Instant) -> Step {
        if self.others().is_empty() { self.judge(now) } else { Step::Wait }
    }

    /// The masters that were not asked yet.
    #[inline]
    pub(super) fn others(&self) -> MasterSet {
        MasterSet::all(self.ledger.masters()).without(self.asked)
    }

    /// Returns the other masters, which are asked now. For a fenced lock `ballot` goes to them with
    /// the key, and without the key to the meeting point, which has granted it.
    pub fn ask_others(&mut self, ballot: Option<Ballot>) -> MasterSet {
        let others = self.others();
        self.ledger.ask(others);
        self.asked = self.asked.union(others);
        self.propose_first(ballot);
        others
    }

    /// `master` may have lost its data: what it has granted counts no more, and `why` is its vote.
    pub fn disown(&mut self, master: usize, why: Cause, now: Instant) -> Step {
        self.take_back(master, Verdict::Unknown(why));
        self.judge(now)
    }

    /// The grant and the acceptance of `master` count no more. `verdict` replaces a grant that was
    /// counted.
    fn take_back(&mut self, master: usize, verdict: Verdict) {
        if self.granted.contains(master) {
            if verdict.is_refusal() {
                self.tally.deny()
            } else {
                self.tally.revoke()
            }
            self.ledger.answered_instead(master, verdict);
        }
        self.granted.remove(master);
        self.ledger.disown(master);
        self.disown_ballots(master);
        let has_quorum = self.tally.decision() == Decision::Won;
        self.awaits_copies &= has_quorum && self.is_proven();
        if !has_quorum {
            self.stop_ballots();
        }
    }

    /// The node timeout has passed: votes that are still out are *unknown*.
    pub fn time_out(&mut self, now: Instant) -> Step {
        self.ledger.time_out(self.ledger.pending());
        self.tally.close();
        if let Some(enters) = &mut self.enters {
            (enters.again, enters.is_due) = (0, false);
        }
        if self.others().is_empty() { self.judge(now) } else { Step::Lost(Defeat::Outvoted) }
    }

    /// The grace for more copies is over: the copies so far must suffice.
    pub fn end_grace(&mut self, now: Instant) -> Step {
        if self.awaits_copies { self.conclude(now) } else { Step::Wait }
    }

    fn judge(&mut self, now: Instant) -> Step {
        let decision = self.tally.decision();
        if decision == Decision::Open {
            return Step::Wait;
        }
        if !self.awaits_copies && self.ballots_until().is_none() {
            self.decided = now;
        }
        match decision {
            Decision::Open => Step::Wait,
            // The votes on a lease that is taken over show who holds the key: all of them are
            // waited for, because nothing has to be released meanwhile.
            Decision::Lost if self.origin == Origin::Resumed && self.tally.pending() > 0 => {
                Step::Wait
            }
            Decision::Lost if self.awaits_entry() || self.awaits_quorum() => Step::Wait,
            Decision::Lost => self.take_again_or_lose(),
            Decision::Won if !self.is_proven() => self.pursue_ballots(now),
            Decision::Won if self.has_copies() || !self.expects_copies() => self.conclude(now),
            Decision::Won if self.awaits_copies => Step::Wait,
            Decision::Won => {
                self.awaits_copies = true;
                Step::AwaitCopies
            }
        }
    }

    /// Whether the answer of the meeting point is missing, which decides where to wait.
    fn awaits_entry(&self) -> bool {
        self.enters.as_ref().is_some_and(|enters| self.ledger.answer(enters.at).is_pending())
    }

    /// Whether answers that are missing decide if a quorum answers, which is to be known.
    fn awaits_quorum(&self) -> bool {
        self.seeks_quorum
            && self.tally.pending() > 0
            && !self.tally.is_unanswered()
            && self.tally.is_short_of_answers()
    }

    fn take_again_or_lose(&mut self) -> Step {
        let may_win = !self.tally.is_unanswered();
        let granted = self.granted;
        match &mut self.enters {
            Some(enters) if enters.is_due => Step::Wait,
            Some(Enters { at, again, is_due })
                if granted.contains(*at) && *again > 0 && may_win =>
            {
                *again -= 1;
                *is_due = true;
                Step::TakeAgain
            }
            _ => Step::Lost(Defeat::Outvoted),
        }
    }

    /// These masters have refused, and are asked again now, with this ballot. `None` if that is
    /// not due any more.
    pub fn take_again(&mut self) -> (MasterSet, Option<Ballot>) {
        let Some(enters) = self.enters.as_mut().filter(|enters| enters.is_due) else {
            return (MasterSet::EMPTY, None);
        };
        enters.is_due = false;
        let has_refused = |master: &usize| {
            self.ledger.answer(*master).verdict.is_refusal() && !self.granted.contains(*master)
        };
        let masters: MasterSet = (0..self.ledger.masters()).filter(has_refused).collect();
        self.ledger.ask(masters);
        self.tally.ask_again(masters.len());
        for master in masters.iter() {
            self.ledger.answered_instead(master, Verdict::Pending);
        }
        (masters, self.join_again(masters))
    }

    /// Whether the meeting point, whose queue it asks to enter, has granted the key.
    pub fn is_let_in(&self) -> bool {
        self.enters.as_ref().is_some_and(|enters| self.granted.contains(enters.at))
    }

    /// Whether all masters were asked once: only that measures how long votes take.
    pub fn is_measured(&self) -> bool {
        self.enters.as_ref().is_none_or(|enters| enters.again == AGAIN_MAX)
    }

    fn has_copies(&self) -> bool {
        let counted = self.tally.granted() - self.uncounted().len();
        self.options.min_copies.is_none_or(|copies| counted >= copies)
    }

    /// Whether a vote or a score that is still to come may make one more copy.
    fn expects_copies(&self) -> bool {
        self.tally.pending() > 0 || !self.uncounted().is_empty()
    }

    /// The masters that have granted the key, and whose score is missing.
    fn uncounted(&self) -> MasterSet {
        self.granted.intersection(self.ledger.unscored())
    }

    /// A quorum has granted, and accepted a ballot where one is needed: the lease is won if
    /// anything of it is left.
    fn conclude(&self, now: Instant) -> Step {
        let until = self.ledger.valid_until().saturating_sub(self.options.stop_margin);
        let in_time = until > now && self.may_hand_out(now);
        if in_time { Step::Won } else { Step::Lost(Defeat::TooLate) }
    }

    /// The lease that was won now.
    #[inline]
    pub fn into_lease(self, now: Instant) -> HeldLease {
        let (proof, started) = (self.proof(), self.started);
        HeldLease::new(self.ledger, self.timing, self.options, proof, started, now)
    }

    /// The state of the token on each master, as far as answers show it.
    #[inline]
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The ledger, for the machine of the next stage.
    #[inline]
    pub fn into_ledger(self) -> Ledger {
        self.ledger
    }

    /// The durations of the request.
    #[inline]
    pub fn timing(&self) -> Timing {
        self.timing
    }

    /// How long the key may stay on `master`; `None` if it may be set at any time.
    pub(super) fn left(&self, master: usize) -> Option<Duration> {
        (!self.ledger.pending().contains(master)).then_some(self.timing.expiry())
    }

    /// Whether the token is new, or a lease is resumed with it.
    #[inline]
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// How long the votes took. A process that was stopped in the middle of them has not measured
    /// its network: no more than the node timeout counts.
    #[inline]
    pub fn fan_out(&self) -> Duration {
        self.decided.saturating_since(self.started).min(self.timing.node_timeout)
    }

    /// The meeting point that was asked before the others, if it has not answered.
    pub fn silent_first(&self) -> Option<usize> {
        let is_silent = |master: &usize| !self.ledger.answer(*master).verdict.is_clear();
        if self.others().is_empty() { None } else { self.asked.iter().find(is_silent) }
    }

    /// How the attempt was lost, for those that wait on.
    pub fn refusal(&self, defeat: Defeat) -> Refusal {
        if defeat == Defeat::TooLate {
            return Refusal::Silent;
        }
        let answers = || self.ledger.answers().iter().map(|answer| &answer.verdict);
        let refused = answers().filter(|verdict| verdict.is_refusal()).count();
        let granted = self.tally.granted();
        let quorum = quorum(self.ledger.masters());
        if !self.others().is_empty() {
            if refused > 0 { Refusal::Held } else { Refusal::Silent }
        } else if refused >= quorum || refused > 0 && granted == 0 {
            Refusal::Held
        } else if granted + refused >= quorum {
            Refusal::Split
        } else {
            Refusal::Silent
        }
    }

    /// Whether refusals have decided the vote. Then it has measured how long votes take: silence
    /// measures the node timeout, and one master alone is no fan-out.
    pub fn is_refused(&self) -> bool {
        self.others().is_empty() && self.tally.is_refused()
    }

    /// Whether a quorum of masters has answered, so that the request need not wait for the others.
    #[inline]
    pub fn is_answered(&self) -> bool {
        self.tally.counted() >= quorum(self.ledger.masters())
    }

    /// Whether a lost vote is certain to have been lost to masters that did not answer.
    pub fn is_unanswered(&self) -> bool {
        self.tally.is_unanswered() && self.ledger.pending().is_empty()
    }

    /// Whether all masters were asked, and too few answered for any attempt to be won.
    pub fn is_without_quorum(&self) -> bool {
        self.others().is_empty() && self.tally.is_unanswered()
    }

    /// The last answer of each master.
    #[inline]
    pub fn answers(&self) -> &[LastAnswer] {
        self.ledger.answers()
    }
}

/// Whether the key was set for us, or extended.
fn is_grant(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Granted | Verdict::BallotRefused)
}

#[cfg(test)]
mod tests;
