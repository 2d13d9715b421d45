//! `Attempt`: one token, requested from all masters in parallel, until the vote is won or lost. See
//! rules V1 to V6 of `docs/PROTOCOL.md`.

use std::time::Duration;

use redlock_core::{Answer, Ballot, Cause, Instant, Verdict};

use crate::master_set::MasterSet;
use crate::terms::{HoldOptions, Timing};
use crate::token::lease::HeldLease;
use crate::votes::answer::Judged;
use crate::votes::last_answer::LastAnswer;
use crate::votes::ledger::Ledger;
use crate::votes::tally::{Decision, Tally};

mod again;
mod fenced;
mod outcome;

use self::again::Enters;
pub use self::fenced::FIRST;
use self::fenced::Fenced;
pub use self::outcome::Outcome;

/// The source of the token of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// A new token: masters receive `SET NX`.
    Acquired,
    /// An existing token, ours or another holder's: masters receive an extension.
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
    /// When the first votes decided. Votes of repeated requests do not change it: the pauses before
    /// them depend on it.
    decided: Option<Instant>,
    awaits_copies: bool,
    /// The masters that have received a request.
    asked: MasterSet,
    /// The masters whose grants are valid.
    granted: MasterSet,
    /// The state for a fencing token; `None` for a plain lock.
    fenced: Option<Fenced>,
    /// The master whose queue this attempt enters, and how many more times masters that refused may
    /// be queried.
    enters: Option<Enters>,
    /// Keep a lost vote open until it is certain whether a quorum answers.
    seeks_quorum: bool,
}

/// The consequence of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Do nothing yet.
    Wait,
    /// Query the other masters, because the meeting point has granted the key.
    AskOthers,
    /// Propose another ballot: a quorum granted the key, but too few masters accepted the ballot.
    Propose,
    /// Query the masters that refused again, a little later: the meeting point granted, but too few
    /// others did.
    TakeAgain,
    /// Propose the latest ballot to these masters, which have also granted the key.
    Join(MasterSet),
    /// Wait briefly for more copies: a quorum has granted, and the caller wants more.
    AwaitCopies,
    /// The lease is ours.
    Won,
    /// The attempt failed.
    Lost(Defeat),
}

/// Why an attempt was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Defeat {
    /// Too few masters granted the key.
    Outvoted,
    /// Enough masters granted the key, but too late.
    TooLate,
    /// Enough masters granted the key, but too few of them accepted one ballot in time.
    BallotRefused,
}

impl Attempt {
    /// Starts an attempt whose requests are all sent now. Read `now` before the first byte can
    /// leave.
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
            decided: None,
            awaits_copies: false,
            granted: MasterSet::EMPTY,
            fenced: None,
            enters: None,
            seeks_quorum: false,
        }
    }

    /// Keeps a lost vote open until it is certain whether a quorum answers. Used for callers whose
    /// previous attempt saw no quorum.
    pub fn seeking_quorum(self) -> Self {
        Self { seeks_quorum: true, ..self }
    }

    /// Queries only the master `first` now, and the others after `first` has granted.
    #[inline]
    pub fn asking_first(self, first: usize) -> Self {
        let (masters, asked) = (self.ledger.masters(), MasterSet::from_iter([first]));
        Self { ledger: Ledger::asking(masters, asked), asked, ..self }
    }

    /// Returns the masters that have received a request.
    #[inline]
    pub fn asked(&self) -> MasterSet {
        self.asked
    }

    /// Records the vote of `master` on a request that was sent no earlier than `sent_at`. An
    /// invalid vote is *unknown*.
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
        // The key of a resumed lease may be on masters that could not be queried.
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

    /// Judges a vote on a resumed lease, whose key existed before the request.
    #[inline]
    fn taken_over<'a>(&self, judged: Judged<'a>) -> Judged<'a> {
        match self.origin {
            Origin::Acquired => judged,
            Origin::Resumed => judged.of_former_key(),
        }
    }

    /// Excludes masters from the vote, each for its reason: they only receive a copy. Their votes
    /// are *unknown* from now on, whatever they answer. All of them are excluded before the attempt
    /// is judged, so that a resulting error reports the reason of each.
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
            // The key of a resumed lease may be there in any case.
            Origin::Resumed => self.ledger.note_reply(master, answer),
        }
    }

    fn judge_or_wait(&mut self, now: Instant) -> Step {
        if self.others().is_empty() { self.judge(now) } else { Step::Wait }
    }

    /// Returns the masters that have not received a request yet.
    #[inline]
    pub(super) fn others(&self) -> MasterSet {
        MasterSet::all(self.ledger.masters()).without(self.asked)
    }

    /// Returns the other masters, which receive the request now. For a fenced lock, `ballot` goes
    /// to them together with the key. The meeting point, which has granted the key, receives only
    /// the ballot.
    pub fn ask_others(&mut self, ballot: Option<Ballot>) -> MasterSet {
        let others = self.others();
        self.ledger.ask(others);
        self.asked = self.asked.union(others);
        self.propose_first(ballot);
        others
    }

    /// Invalidates the grants of `master`, which may have lost its data. `why` becomes its vote.
    pub fn disown(&mut self, master: usize, why: Cause, now: Instant) -> Step {
        self.take_back(master, Verdict::Unknown(why));
        self.judge(now)
    }

    /// Invalidates the grant and the acceptance of `master`. `verdict` replaces a grant.
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

    /// Returns the masters that have received a request and have not answered it.
    pub fn pending(&self) -> MasterSet {
        self.ledger.pending().intersection(self.asked)
    }

    /// Ends the wait for votes after the node timeout: missing votes become *unknown*. Masters that
    /// were not queried yet have not timed out.
    pub fn time_out(&mut self, now: Instant) -> Step {
        self.ledger.time_out(self.pending());
        self.ledger.unasked(self.others());
        self.tally.close();
        if let Some(enters) = &mut self.enters {
            enters.stop();
        }
        if self.others().is_empty() { self.judge(now) } else { Step::Lost(Defeat::Outvoted) }
    }

    /// Ends the wait for more copies: the present copies must suffice.
    pub fn end_grace(&mut self, now: Instant) -> Step {
        if self.awaits_copies { self.conclude(now) } else { Step::Wait }
    }

    fn judge(&mut self, now: Instant) -> Step {
        let decision = self.tally.decision();
        if decision == Decision::Open {
            return Step::Wait;
        }
        self.decided.get_or_insert(now);
        match decision {
            Decision::Open => Step::Wait,
            // The votes on a resumed lease show who holds the key. Wait for all of them, because
            // nothing has to be released in the meantime.
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

    /// Returns `true` if missing answers decide whether a quorum answers, and the caller needs to
    /// know.
    fn awaits_quorum(&self) -> bool {
        self.seeks_quorum
            && self.tally.pending() > 0
            && !self.tally.is_unanswered()
            && self.tally.is_short_of_answers()
    }

    fn has_copies(&self) -> bool {
        let counted = self.tally.granted() - self.uncounted().len();
        self.options.min_copies.is_none_or(|copies| counted >= copies)
    }

    /// Returns `true` if a missing vote or score may add a copy.
    fn expects_copies(&self) -> bool {
        self.tally.pending() > 0 || !self.uncounted().is_empty()
    }

    /// Returns the masters that have granted the key but whose score is missing.
    fn uncounted(&self) -> MasterSet {
        self.granted.intersection(self.ledger.unscored())
    }

    /// Decides after a quorum has granted, and has accepted a ballot if one is required: the lease
    /// is won if any validity is left.
    fn conclude(&self, now: Instant) -> Step {
        let until = self.ledger.valid_until().saturating_sub(self.options.stop_margin);
        let in_time = until > now && self.may_hand_out(now);
        if in_time { Step::Won } else { Step::Lost(Defeat::TooLate) }
    }

    /// Turns the won attempt into a lease.
    #[inline]
    pub fn into_lease(self, now: Instant) -> HeldLease {
        let (proof, started) = (self.proof(), self.started);
        HeldLease::new(self.ledger, self.timing, self.options, proof, started, now)
    }

    /// Returns the state of the token on each master, as far as answers show it.
    #[inline]
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Returns the ledger, for the machine of the next stage.
    #[inline]
    pub fn into_ledger(self) -> Ledger {
        self.ledger
    }

    /// Returns the durations of the request.
    #[inline]
    pub fn timing(&self) -> Timing {
        self.timing
    }

    /// Returns how long the key may stay on `master`, or `None` if it may be set at any time.
    pub(super) fn left(&self, master: usize) -> Option<Duration> {
        (!self.ledger.pending().contains(master)).then_some(self.timing.expiry())
    }

    /// Returns whether the token is new or resumes a lease.
    #[inline]
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// Returns the last answer of each master.
    #[inline]
    pub fn answers(&self) -> &[LastAnswer] {
        self.ledger.answers()
    }
}

/// Returns `true` if the key was set for us, or extended.
fn is_grant(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Granted | Verdict::BallotRefused)
}

#[cfg(test)]
mod tests;
