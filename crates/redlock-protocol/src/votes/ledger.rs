//! `Ledger`: the state of one token on each master, as far as answers show it. See rule R1 of
//! `docs/PROTOCOL.md`.

use std::time::Duration;

use redlock_core::{Answer, Cause, Instant, Verdict};

use crate::master_set::MasterSet;
use crate::votes::answer::Judged;
use crate::votes::last_answer::{Answers, LastAnswer, none_yet};
use crate::votes::validity::HoldUntil;

/// For each master: until when it is known to hold our key, whether our key may be there, and its
/// last answer. The ledger passes with the token from the attempt to the lease to the release.
///
/// It is boxed, because the machines that contain it are moved from stage to stage.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ledger(Box<Known>);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Known {
    holds: HoldUntil,
    may_hold: MasterSet,
    /// Masters that have not answered the first request.
    unanswered: MasterSet,
    /// Masters that might still execute one of our requests, because no answer has shown its
    /// outcome.
    unsettled: MasterSet,
    /// Masters that were not voting when the first request was sent. Their answers to it are
    /// ignored, however late.
    copies: MasterSet,
    /// Masters that granted the key and have not shown a score since.
    unscored: Vec<Unscored>,
    answers: Answers,
}

/// A master that granted the key, and may have lost its ballots. It may then also have lost the key
/// of the former holder. Until it has shown a score, neither its grant nor an extension confirms
/// anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Unscored {
    master: usize,
    /// When the grant was requested. `None` if it is no longer valid.
    sent_at: Option<Instant>,
    /// It received a query for its score and has not answered.
    is_asked: bool,
}

impl Ledger {
    /// Creates the ledger of a token that every master may hold, because all are queried for it.
    #[inline]
    pub fn new(masters: usize) -> Self {
        Self::asking(masters, MasterSet::all(masters))
    }

    /// Creates the ledger of a token that only the masters of `asked` may hold.
    #[inline]
    pub fn asking(masters: usize, asked: MasterSet) -> Self {
        Self(Box::new(Known {
            holds: HoldUntil::new(masters),
            may_hold: asked,
            unanswered: asked,
            unsettled: asked,
            copies: MasterSet::EMPTY,
            unscored: Vec::new(),
            answers: none_yet(masters),
        }))
    }

    /// Adds masters that are queried for the token now.
    pub fn ask(&mut self, masters: MasterSet) {
        self.0.may_hold = self.0.may_hold.union(masters);
        self.0.unanswered = self.0.unanswered.union(masters);
        self.0.unsettled = self.0.unsettled.union(masters);
    }

    /// Returns the number of masters.
    #[inline]
    pub fn masters(&self) -> usize {
        self.0.answers.len()
    }

    /// Records that `master` now receives a request that may set the key.
    pub fn expose(&mut self, master: usize) {
        self.0.may_hold.insert(master);
    }

    /// Returns the masters that may have our key and must release it.
    #[inline]
    pub fn may_hold(&self) -> MasterSet {
        self.0.may_hold
    }

    /// Records an answer of `master`. A reply settles all earlier requests to it, because requests
    /// cannot overtake each other on a connection. A request that was never sent settles nothing.
    #[inline]
    pub fn write(&mut self, master: usize, judged: Judged<'_>, latency: Duration) {
        if judged.answer.is_reply() {
            self.0.unsettled.remove(master);
        } else if judged.answer.sent {
            self.0.unsettled.insert(master);
        }
        self.0.answers[master] = LastAnswer::of(judged, latency);
    }

    /// Records an answer of `master` to the first request.
    #[inline]
    pub fn write_first(&mut self, master: usize, judged: Judged<'_>, latency: Duration) {
        self.0.unanswered.remove(master);
        self.write(master, judged, latency);
    }

    /// Records that `master` does not vote, for this reason. It received the request anyway, to get
    /// a copy.
    pub fn only_copy(&mut self, master: usize, why: Cause) {
        self.0.copies.insert(master);
        self.show(master, why);
    }

    /// Returns `true` if `master` was not voting when the first request was sent.
    #[inline]
    pub fn is_copy(&self, master: usize) -> bool {
        self.0.copies.contains(master)
    }

    /// Records the answer of a master that only received a copy. It shows whether there is
    /// something to release.
    pub fn copy_answered(&mut self, master: usize, answer: &Answer) {
        self.note_reply(master, answer);
        self.acquired(master, answer);
    }

    /// Records that `master` has answered the first request with an invalid answer.
    #[inline]
    pub fn note_reply(&mut self, master: usize, answer: &Answer) {
        self.0.unanswered.remove(master);
        if answer.is_reply() {
            self.0.unsettled.remove(master);
        }
    }

    /// Sets the cause that is reported for `master` in place of its answer.
    pub fn show(&mut self, master: usize, why: Cause) {
        self.0.answers[master] = LastAnswer::unknown(why);
    }

    /// Sets the verdict of `master` in place of its grant. Keeps the duration of the answer.
    pub fn answered_instead(&mut self, master: usize, verdict: Verdict) {
        self.0.answers[master].verdict = verdict;
    }

    /// Records the answer to the `SET NX` of a new token.
    #[inline]
    pub fn acquired(&mut self, master: usize, answer: &Answer) {
        if !may_have_set(answer) {
            self.0.may_hold.remove(master);
        }
    }

    /// Records the answer to an extension. A master that holds no key of ours has none to release.
    pub fn extended(&mut self, master: usize, answer: &Answer) {
        if answer.verdict.is_refusal() {
            self.0.may_hold.remove(master);
        }
    }

    /// Records that `master` has confirmed the key, by a request sent no earlier than `sent_at`.
    #[inline]
    pub fn confirm(&mut self, master: usize, sent_at: Instant, validity: Duration) {
        self.0.holds.confirm(master, sent_at, validity);
    }

    /// Records that `master` has granted the key without showing that it has ballots. Once it does,
    /// the grant is valid from `sent_at`, the earliest time of the request. `None` if the grant
    /// stays invalid.
    pub fn granted_unscored(&mut self, master: usize, sent_at: Option<Instant>) {
        self.0.unscored.retain(|one| one.master != master);
        self.0.unscored.push(Unscored { master, sent_at, is_asked: false });
    }

    /// Records that `master` has shown a score, so that its earlier grants are valid.
    pub fn scored(&mut self, master: usize, validity: Duration) {
        let Some(at) = self.0.unscored.iter().position(|one| one.master == master) else { return };
        if let Some(sent_at) = self.0.unscored.swap_remove(at).sent_at {
            self.confirm(master, sent_at, validity);
        }
    }

    /// Returns `true` if the score of `master` is missing.
    pub fn is_unscored(&self, master: usize) -> bool {
        self.0.unscored.iter().any(|one| one.master == master)
    }

    /// Returns the masters whose score is missing.
    pub fn unscored(&self) -> MasterSet {
        self.0.unscored.iter().map(|one| one.master).collect()
    }

    /// Returns the masters whose score is missing and was not requested. It is requested now.
    pub fn ask_scores(&mut self) -> MasterSet {
        let unasked = |one: &&Unscored| !one.is_asked;
        let masters = self.0.unscored.iter().filter(unasked).map(|one| one.master).collect();
        self.scores_asked(masters);
        masters
    }

    /// Records that the scores of `masters` arrive with the answer to another request.
    #[inline]
    pub fn scores_asked(&mut self, masters: MasterSet) {
        for one in self.0.unscored.iter_mut().filter(|one| masters.contains(one.master)) {
            one.is_asked = true;
        }
    }

    /// Records that `master` did not show its score on request.
    pub fn score_missing(&mut self, master: usize) {
        for one in self.0.unscored.iter_mut().filter(|one| one.master == master) {
            one.is_asked = false;
        }
    }

    /// Records evidence that `master` no longer holds the key.
    pub fn disown(&mut self, master: usize) {
        self.0.holds.clear(master);
        for one in self.0.unscored.iter_mut().filter(|one| one.master == master) {
            one.sent_at = None;
        }
    }

    /// Records the answer of `master` to a ballot, or to a query for its score.
    pub fn write_balloted(&mut self, master: usize, judged: Judged<'_>, latency: Duration) {
        self.note_reply(master, judged.answer);
        if judged.answer.verdict.is_refusal() {
            self.0.may_hold.remove(master);
        }
        self.0.answers[master] = LastAnswer::of(judged, latency);
    }

    /// Records that `masters` received no request.
    pub fn unasked(&mut self, masters: MasterSet) {
        masters.iter().for_each(|master| self.0.answers[master] = LastAnswer::unasked());
    }

    /// Ends the wait for answers of `masters`. Earlier confirmations stay valid.
    pub fn time_out(&mut self, masters: MasterSet) {
        for master in masters.iter() {
            self.0.answers[master] = LastAnswer::unknown(Cause::TimedOut);
        }
    }

    /// Returns the masters whose answer is missing and still expected.
    #[inline]
    pub fn pending(&self) -> MasterSet {
        (0..self.masters()).filter(|master| self.0.answers[*master].is_pending()).collect()
    }

    /// Returns the masters that have not answered the first request, whether or not it is still
    /// expected.
    #[inline]
    pub fn unanswered(&self) -> MasterSet {
        self.0.unanswered
    }

    /// Returns the masters that may still execute one of our requests.
    #[inline]
    pub fn unsettled(&self) -> MasterSet {
        self.0.unsettled
    }

    /// Records that the server process of `master` has exited, with all requests on their way to
    /// it.
    pub fn process_ended(&mut self, master: usize) {
        self.0.unsettled.remove(master);
    }

    /// Returns until when a quorum holds the key at least.
    #[inline]
    pub fn valid_until(&self) -> Instant {
        self.0.holds.valid_until()
    }

    /// Returns the masters that hold the key now, as far as answers show it.
    pub fn held_at(&self, now: Instant) -> MasterSet {
        (0..self.masters()).filter(|master| self.hold_until(*master) > now).collect()
    }

    /// Returns the number of masters that hold the key now, as far as answers show it.
    pub fn copies(&self, now: Instant) -> usize {
        self.0.holds.copies(now)
    }

    /// Returns until when `master` holds the key at least.
    #[inline]
    pub fn hold_until(&self, master: usize) -> Instant {
        self.0.holds.of(master)
    }

    /// Returns the last answer of `master`.
    #[inline]
    pub fn answer(&self, master: usize) -> &LastAnswer {
        &self.0.answers[master]
    }

    /// Returns the last answer of each master.
    #[inline]
    pub(crate) fn into_answers(self) -> Answers {
        self.0.answers
    }

    /// Returns the last answer of each master.
    #[inline]
    pub fn answers(&self) -> &[LastAnswer] {
        &self.0.answers
    }
}

/// Returns `true` if the `SET NX` of a new token may have left our key, by its answer. Only a grant
/// and an unknown outcome do. A refusal proves that our key is not there, and an error reply sets
/// nothing, unless the answer reports a key.
pub fn may_have_set(answer: &Answer) -> bool {
    match &answer.verdict {
        Verdict::Unknown(_) if answer.key_set => true,
        Verdict::Unknown(cause) => answer.sent && !cause.is_error_reply(),
        verdict => !verdict.is_refusal(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_grant_or_unknown_outcome_may_leave_our_key() {
        let answers = [
            (Answer::granted(), true),
            (Answer::unknown(Cause::TimedOut), true),
            (Answer::unknown(Cause::ConnectionClosed), true),
            (Answer::held(None, None), false),
            (Answer::unknown(Cause::ErrorReply("BUSY".into())), false),
            (Answer::unknown(Cause::Demoted("READONLY".into())), false),
            (Answer::unsent(Cause::ConnectionRefused), false),
            (Answer::new(Verdict::BallotRefused), true),
            (Answer::new(Verdict::NotOurs), false),
        ];
        for (answer, may_hold) in answers {
            let mut ledger = Ledger::new(1);
            ledger.acquired(0, &answer);
            assert_eq!(ledger.may_hold().contains(0), may_hold, "{answer:?}");
        }
    }

    #[test]
    fn error_after_a_set_key_requires_a_release() {
        let mut answer = Answer::unknown(Cause::ErrorReply("OOM".into()));
        answer.key_set = true;
        let mut ledger = Ledger::new(1);
        ledger.acquired(0, &answer);
        assert!(ledger.may_hold().contains(0));
    }

    #[test]
    fn unscored_grant_is_valid_from_its_request_after_a_score() {
        let at = |nanos| Instant::from_nanos(nanos);
        let mut ledger = Ledger::new(1);
        ledger.granted_unscored(0, Some(at(5)));
        assert_eq!((ledger.valid_until(), ledger.is_unscored(0)), (Instant::ORIGIN, true));
        assert_eq!(ledger.ask_scores().len(), 1);
        assert!(ledger.ask_scores().is_empty(), "it is queried once");
        ledger.score_missing(0);
        assert_eq!(ledger.ask_scores().len(), 1);
        let mut disowned = ledger.clone();
        ledger.scored(0, Duration::from_nanos(10));
        assert_eq!((ledger.valid_until(), ledger.is_unscored(0)), (at(15), false));
        disowned.disown(0);
        assert!(disowned.is_unscored(0), "an extension there has proven nothing yet");
        disowned.scored(0, Duration::from_nanos(10));
        assert_eq!(disowned.valid_until(), Instant::ORIGIN);
    }

    #[test]
    fn readded_key_must_be_released() {
        let mut ledger = Ledger::new(1);
        ledger.extended(0, &Answer::new(Verdict::NotOurs));
        assert!(ledger.may_hold().is_empty());
        ledger.expose(0);
        assert!(ledger.may_hold().contains(0));
    }

    #[test]
    fn later_queried_master_may_hold_the_key() {
        let [first, others] = [MasterSet::from_iter([0]), MasterSet::from_iter([1, 2])];
        let mut ledger = Ledger::asking(3, first);
        let sets = |ledger: &Ledger| [ledger.may_hold(), ledger.unanswered(), ledger.unsettled()];
        assert_eq!(sets(&ledger), [first; 3]);
        ledger.ask(others);
        assert_eq!(sets(&ledger), [MasterSet::all(3); 3]);
    }
}
