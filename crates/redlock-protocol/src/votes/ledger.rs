//! `Ledger`: the state of one token on each master, as far as answers show it.

use std::time::Duration;

use redlock_core::{Answer, Cause, Instant, Verdict};
use smallvec::SmallVec;

use crate::master_set::MasterSet;
use crate::votes::answer::Judged;
use crate::votes::validity::HoldUntil;

/// For each master: until when it is known to hold our key, whether our key may be there, and its
/// last answer. The ledger goes with the token from the attempt to the lease to the release.
///
/// It is kept apart from the machines that it goes through: they are moved from stage to stage.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ledger(Box<Known>);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Known {
    holds: HoldUntil,
    may_hold: MasterSet,
    /// Masters that have not answered the first request.
    unanswered: MasterSet,
    /// Masters that may carry out a request of ours later, because none of their answers shows its
    /// outcome.
    unsettled: MasterSet,
    /// Masters that did not vote when the first request went to them: what they answer to it counts
    /// for nothing, whenever it comes.
    copies: MasterSet,
    /// Masters that granted the key and have not shown a score since.
    unscored: Vec<Unscored>,
    answers: Answers,
}

/// The last answer of each master. Up to five of them take no memory of their own.
pub(crate) type Answers = SmallVec<[LastAnswer; INLINE]>;
const INLINE: usize = 5;

/// A master that granted the key, and may have lost its ballots. Without ballots it may also have
/// lost the key of the former holder: until it has shown a score, neither its grant nor an
/// extension there confirms anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Unscored {
    master: usize,
    /// When the grant was asked for; `None` if it does not count any more.
    sent_at: Option<Instant>,
    /// It was asked for its score, and has not answered.
    is_asked: bool,
}

/// The last answer of one master.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LastAnswer {
    /// The meaning of the answer.
    pub verdict: Verdict,
    /// How long the answer took; `None` if the master itself has not answered.
    pub latency: Option<Duration>,
}

impl LastAnswer {
    /// No answer has come yet.
    pub const PENDING: Self = Self { verdict: Verdict::Pending, latency: None };

    /// Writes the answer down, with the cause if it does not count.
    #[inline]
    pub fn of(judged: Judged<'_>, latency: Duration) -> Self {
        let latency = judged.answer.is_reply().then_some(latency);
        Self { verdict: judged.verdict().into_owned(), latency }
    }

    /// No answer will come, for this cause.
    pub fn unknown(cause: Cause) -> Self {
        Self { verdict: Verdict::Unknown(cause), latency: None }
    }

    /// Whether the answer is still out.
    #[inline]
    pub fn is_pending(&self) -> bool {
        matches!(self.verdict, Verdict::Pending)
    }

    /// The time for an answer is over.
    pub fn time_out(&mut self) {
        if self.is_pending() {
            *self = Self::unknown(Cause::TimedOut);
        }
    }
}

impl Ledger {
    /// A token that every master may come to hold: all are asked for it now, or were before.
    #[inline]
    pub fn new(masters: usize) -> Self {
        Self::asking(masters, MasterSet::all(masters))
    }

    /// A token that only the masters of `asked` may come to hold.
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

    /// More masters are asked for it now.
    pub fn ask(&mut self, masters: MasterSet) {
        self.0.may_hold = self.0.may_hold.union(masters);
        self.0.unanswered = self.0.unanswered.union(masters);
        self.0.unsettled = self.0.unsettled.union(masters);
    }

    /// How many masters there are.
    #[inline]
    pub fn masters(&self) -> usize {
        self.0.answers.len()
    }

    /// A request that may set the key goes to `master` now.
    pub fn expose(&mut self, master: usize) {
        self.0.may_hold.insert(master);
    }

    /// The masters on which our key may be: these must be asked to release it.
    #[inline]
    pub fn may_hold(&self) -> MasterSet {
        self.0.may_hold
    }

    /// Writes down what `master` has answered. A reply settles all that was sent there before,
    /// because nothing overtakes on a connection; a request that was not sent settles nothing.
    #[inline]
    pub fn write(&mut self, master: usize, judged: Judged<'_>, latency: Duration) {
        if judged.answer.is_reply() {
            self.0.unsettled.remove(master);
        } else if judged.answer.sent {
            self.0.unsettled.insert(master);
        }
        self.0.answers[master] = LastAnswer::of(judged, latency);
    }

    /// Writes down what `master` has answered to the first request.
    #[inline]
    pub fn write_first(&mut self, master: usize, judged: Judged<'_>, latency: Duration) {
        self.0.unanswered.remove(master);
        self.write(master, judged, latency);
    }

    /// `master` does not vote, for this reason. It was asked all the same, so that it has a copy.
    pub fn only_copy(&mut self, master: usize, why: Cause) {
        self.0.copies.insert(master);
        self.show(master, why);
    }

    /// Whether `master` did not vote when it was asked first.
    #[inline]
    pub fn is_copy(&self, master: usize) -> bool {
        self.0.copies.contains(master)
    }

    /// The answer of a master that was asked for a copy only. It shows whether there is something
    /// to release.
    pub fn copy_answered(&mut self, master: usize, answer: &Answer) {
        self.note_reply(master, answer);
        self.acquired(master, answer);
    }

    /// `master` has answered the first request, with something that counts for nothing.
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

    /// Sets the verdict that counts for `master` in place of its grant. The time that the answer
    /// took stays.
    pub fn answered_instead(&mut self, master: usize, verdict: Verdict) {
        self.0.answers[master].verdict = verdict;
    }

    /// The answer to the `SET NX` of a token that was never used before.
    #[inline]
    pub fn acquired(&mut self, master: usize, answer: &Answer) {
        if !may_have_set(answer) {
            self.0.may_hold.remove(master);
        }
    }

    /// The answer to an extension. A master that holds no key of ours has none to release.
    pub fn extended(&mut self, master: usize, answer: &Answer) {
        if answer.verdict.is_refusal() {
            self.0.may_hold.remove(master);
        }
    }

    /// `master` has confirmed that it holds the key, by a request sent no earlier than `sent_at`.
    #[inline]
    pub fn confirm(&mut self, master: usize, sent_at: Instant, validity: Duration) {
        self.0.holds.confirm(master, sent_at, validity);
    }

    /// `master` has granted the key, and has not shown that it has ballots. Once it does, the grant
    /// counts from `sent_at`, before which it was not asked for; `None` if it counts for nothing.
    pub fn granted_unscored(&mut self, master: usize, sent_at: Option<Instant>) {
        self.0.unscored.retain(|one| one.master != master);
        self.0.unscored.push(Unscored { master, sent_at, is_asked: false });
    }

    /// `master` has shown a score: what it granted before counts.
    pub fn scored(&mut self, master: usize, validity: Duration) {
        let Some(at) = self.0.unscored.iter().position(|one| one.master == master) else { return };
        if let Some(sent_at) = self.0.unscored.swap_remove(at).sent_at {
            self.confirm(master, sent_at, validity);
        }
    }

    /// Whether a score of `master` is missing.
    pub fn is_unscored(&self, master: usize) -> bool {
        self.0.unscored.iter().any(|one| one.master == master)
    }

    /// The masters whose score is missing.
    pub fn unscored(&self) -> MasterSet {
        self.0.unscored.iter().map(|one| one.master).collect()
    }

    /// The masters whose score is missing and was not asked for. They are asked for it now.
    pub fn ask_scores(&mut self) -> MasterSet {
        let unasked = |one: &&Unscored| !one.is_asked;
        let masters = self.0.unscored.iter().filter(unasked).map(|one| one.master).collect();
        self.scores_asked(masters);
        masters
    }

    /// The scores of `masters` come with something else that is asked of them.
    #[inline]
    pub fn scores_asked(&mut self, masters: MasterSet) {
        for one in self.0.unscored.iter_mut().filter(|one| masters.contains(one.master)) {
            one.is_asked = true;
        }
    }

    /// `master` did not show its score when it was asked.
    pub fn score_missing(&mut self, master: usize) {
        for one in self.0.unscored.iter_mut().filter(|one| one.master == master) {
            one.is_asked = false;
        }
    }

    /// There is evidence that `master` does not hold the key any more.
    pub fn disown(&mut self, master: usize) {
        self.0.holds.clear(master);
        for one in self.0.unscored.iter_mut().filter(|one| one.master == master) {
            one.sent_at = None;
        }
    }

    /// Writes down the answer of `master` to a ballot, or to the request for its score.
    pub fn write_balloted(&mut self, master: usize, judged: Judged<'_>, latency: Duration) {
        self.note_reply(master, judged.answer);
        if judged.answer.verdict.is_refusal() {
            self.0.may_hold.remove(master);
        }
        self.0.answers[master] = LastAnswer::of(judged, latency);
    }

    /// The time of `masters` to answer is over. What they confirmed before counts as before.
    pub fn time_out(&mut self, masters: MasterSet) {
        for master in masters.iter() {
            self.0.answers[master] = LastAnswer::unknown(Cause::TimedOut);
        }
    }

    /// The masters whose answer has not come, and is still waited for.
    #[inline]
    pub fn pending(&self) -> MasterSet {
        (0..self.masters()).filter(|master| self.0.answers[*master].is_pending()).collect()
    }

    /// The masters that have not answered the first request, whether or not it is waited for.
    #[inline]
    pub fn unanswered(&self) -> MasterSet {
        self.0.unanswered
    }

    /// The masters that may carry out a request of ours later.
    #[inline]
    pub fn unsettled(&self) -> MasterSet {
        self.0.unsettled
    }

    /// The server process of `master` is gone, and with it all that was on its way there.
    pub fn process_ended(&mut self, master: usize) {
        self.0.unsettled.remove(master);
    }

    /// Until when a quorum holds the key at least.
    #[inline]
    pub fn valid_until(&self) -> Instant {
        self.0.holds.valid_until()
    }

    /// The number of masters that hold the key at this moment, as far as answers show it.
    pub fn copies(&self, now: Instant) -> usize {
        self.0.holds.copies(now)
    }

    /// Until when `master` holds the key at least.
    #[inline]
    pub fn hold_until(&self, master: usize) -> Instant {
        self.0.holds.of(master)
    }

    /// The last answer of `master`.
    #[inline]
    pub fn answer(&self, master: usize) -> &LastAnswer {
        &self.0.answers[master]
    }

    /// The last answer of each master.
    #[inline]
    pub(crate) fn into_answers(self) -> Answers {
        self.0.answers
    }

    /// The last answer of each master.
    #[inline]
    pub fn answers(&self) -> &[LastAnswer] {
        &self.0.answers
    }
}

/// No master has answered. It is made for each lock, and copied where it takes no memory of its own.
fn none_yet(masters: usize) -> Answers {
    const NONE: [LastAnswer; INLINE] = [LastAnswer::PENDING; INLINE];
    if masters <= INLINE {
        Answers::from_buf_and_len(NONE, masters)
    } else {
        SmallVec::from_elem(LastAnswer::PENDING, masters)
    }
}

/// Whether the `SET NX` of a token that was never used before may have left a key of ours, by its
/// answer. Only a grant and an unknown outcome do: a refusal proves that ours is not there, and
/// after an error reply nothing was set, unless the answer reports a key.
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
    fn only_a_grant_or_an_unknown_outcome_leaves_a_key_that_may_be_ours() {
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
    fn an_error_behind_a_key_that_was_set_leaves_it_to_be_released() {
        let mut answer = Answer::unknown(Cause::ErrorReply("OOM".into()));
        answer.key_set = true;
        let mut ledger = Ledger::new(1);
        ledger.acquired(0, &answer);
        assert!(ledger.may_hold().contains(0));
    }

    #[test]
    fn a_grant_counts_from_its_own_request_once_a_score_was_shown() {
        let at = |nanos| Instant::from_nanos(nanos);
        let mut ledger = Ledger::new(1);
        ledger.granted_unscored(0, Some(at(5)));
        assert_eq!((ledger.valid_until(), ledger.is_unscored(0)), (Instant::ORIGIN, true));
        assert_eq!(ledger.ask_scores().len(), 1);
        assert!(ledger.ask_scores().is_empty(), "it is asked once");
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
    fn a_master_that_denied_the_key_and_got_it_again_is_asked_to_release_it() {
        let mut ledger = Ledger::new(1);
        ledger.extended(0, &Answer::new(Verdict::NotOurs));
        assert!(ledger.may_hold().is_empty());
        ledger.expose(0);
        assert!(ledger.may_hold().contains(0));
    }

    #[test]
    fn a_master_that_is_asked_later_may_hold_the_key_from_then_on() {
        let [first, others] = [MasterSet::from_iter([0]), MasterSet::from_iter([1, 2])];
        let mut ledger = Ledger::asking(3, first);
        let sets = |ledger: &Ledger| [ledger.may_hold(), ledger.unanswered(), ledger.unsettled()];
        assert_eq!(sets(&ledger), [first; 3]);
        ledger.ask(others);
        assert_eq!(sets(&ledger), [MasterSet::all(3); 3]);
    }
}
