//! `Inspection`: what each master reports about a key, from one query to all of them.

use std::time::Duration;

use redlock_core::Verdict;

use super::master_set::MasterSet;
use crate::quorum::quorum;
use crate::votes::answer::Judged;
use crate::votes::last_answer::LastAnswer;

/// The answers to one query to all masters.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Inspection {
    answers: Vec<LastAnswer>,
    /// The masters' answers to the lost attempt that needs an explanation. Empty if there is none.
    attempt: Vec<LastAnswer>,
    is_over: bool,
}

impl Inspection {
    /// Starts an inspection that follows no attempt.
    pub fn new(masters: usize) -> Self {
        Self::behind(masters, Vec::new())
    }

    /// Starts an inspection of only these masters.
    pub fn asking(masters: usize, asked: MasterSet) -> Self {
        let mut inspection = Self::new(masters);
        for master in MasterSet::all(masters).without(asked).iter() {
            inspection.answers[master] = LastAnswer::unasked();
        }
        inspection
    }

    /// Starts an inspection after a lost attempt, to find out who holds the key.
    pub fn behind(masters: usize, attempt: Vec<LastAnswer>) -> Self {
        Self { answers: vec![LastAnswer::PENDING; masters], attempt, is_over: false }
    }

    /// Records the answer of `master`. Returns `true` if it was the last one.
    pub fn vote<'a>(
        &mut self,
        master: usize,
        judged: impl Into<Judged<'a>>,
        latency: Duration,
    ) -> bool {
        if self.is_over {
            return false;
        }
        // Answers of a master known to be away are recorded as well, because only their timing
        // matters here.
        let verdict = judged.into().verdict().into_owned();
        self.answers[master] = LastAnswer { verdict, latency: Some(latency) };
        self.is_over = !self.answers.iter().any(LastAnswer::is_pending);
        self.is_over
    }

    /// Records the late answer of `master` to the attempt.
    pub fn attempt_vote<'a>(
        &mut self,
        master: usize,
        judged: impl Into<Judged<'a>>,
        latency: Duration,
    ) {
        if let Some(known) = self.attempt.get_mut(master) {
            *known = LastAnswer::of(judged.into(), latency);
        }
    }

    /// Ends the wait for answers after the node timeout.
    pub fn time_out(&mut self) {
        self.answers.iter_mut().chain(&mut self.attempt).for_each(LastAnswer::time_out);
        self.is_over = true;
    }

    /// Returns `true` if every master has answered or its time is over.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Returns `true` if a quorum of masters has answered.
    pub fn is_answered(&self) -> bool {
        let answered = self.answers.iter().filter(|answer| !answer.is_pending()).count();
        answered >= quorum(self.answers.len())
    }

    /// Returns the masters' answers.
    pub fn into_answers(self) -> Vec<LastAnswer> {
        self.answers
    }

    /// Returns why the attempt was lost: its own votes, and who holds the key on masters that
    /// refused it or were not queried for it.
    pub fn into_explanation(self) -> Vec<LastAnswer> {
        if self.attempt.is_empty() {
            return self.answers;
        }
        let explain = |(vote, now): (LastAnswer, LastAnswer)| match (&vote.verdict, now.verdict) {
            (Verdict::Held { .. }, held @ Verdict::Held { .. }) => {
                LastAnswer { verdict: held, ..vote }
            }
            // The attempt did not query it, or it has answered since: it is not silent.
            (Verdict::Pending, verdict) => LastAnswer { verdict, latency: now.latency },
            _ => vote,
        };
        self.attempt.into_iter().zip(self.answers).map(explain).collect()
    }
}

/// Returns `true` if a quorum of masters has answered clearly, so that other holders caused the
/// loss.
pub fn is_contended(answers: &[LastAnswer]) -> bool {
    let clear = answers.iter().filter(|answer| answer.verdict.is_clear()).count();
    clear >= quorum(answers.len())
}

/// Returns `true` if waiting cannot produce a quorum. A master that has not answered this time
/// keeps its previous class: it is in `incurable` or not. Masters that were `curable` before the
/// request began may recover.
pub fn is_hopeless(answers: &[LastAnswer], incurable: MasterSet, curable: MasterSet) -> bool {
    let is_lost = |(master, answer): &(usize, &LastAnswer)| {
        let is_cause =
            is_incurable(&answer.verdict) || answer.is_pending() && incurable.contains(*master);
        is_cause && !curable.contains(*master)
    };
    let lost = answers.iter().enumerate().filter(is_lost).count();
    answers.len() - lost < quorum(answers.len())
}

/// Returns `true` if waiting does not make this master vote.
pub fn is_incurable(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Unknown(cause) if !cause.is_curable())
}

#[cfg(test)]
mod tests {
    use redlock_core::{Answer, Cause};

    use super::*;

    fn held(token: &str) -> Answer {
        Answer::held(Some(token.as_bytes()), None)
    }

    #[test]
    fn refusal_is_explained_by_its_holder_and_silence_is_not() {
        let silent = LastAnswer::unknown(Cause::TimedOut);
        let refused = LastAnswer { verdict: Verdict::HELD, latency: None };
        let granted = LastAnswer { verdict: Verdict::Granted, latency: None };
        let mut inspection = Inspection::behind(3, vec![refused, silent.clone(), granted.clone()]);
        for master in 0..3 {
            let is_over = inspection.vote(master, &held("a"), Duration::ZERO);
            assert_eq!(is_over, master == 2);
        }
        let votes = inspection.into_explanation();
        assert_eq!(votes[0].verdict, held("a").verdict);
        assert_eq!(votes[1..], [silent, granted]);
    }

    /// The attempt had not queried it yet, because the meeting point was queried first.
    #[test]
    fn answer_of_an_unqueried_master_replaces_pending() {
        let refused = LastAnswer { verdict: Verdict::HELD, latency: None };
        let attempt = vec![refused, LastAnswer::PENDING, LastAnswer::PENDING];
        let mut inspection = Inspection::behind(3, attempt);
        inspection.vote(0, &held("a"), Duration::ZERO);
        inspection.vote(1, &held("a"), Duration::ZERO);
        inspection.vote(2, &Answer::unknown(Cause::ConnectionClosed), Duration::ZERO);
        let votes = inspection.into_explanation();
        assert_eq!(votes[1].verdict, held("a").verdict);
        assert_eq!(votes[2].verdict, Verdict::Unknown(Cause::ConnectionClosed));
    }

    #[test]
    fn after_its_time_is_up_nothing_changes_it() {
        let mut inspection = Inspection::new(2);
        inspection.vote(0, &Answer::new(Verdict::Free), Duration::ZERO);
        assert!(!inspection.is_answered());
        inspection.time_out();
        assert!(!inspection.vote(1, &held("a"), Duration::ZERO));
        let answers = inspection.into_answers();
        assert_eq!(answers[0].verdict, Verdict::Free);
        assert_eq!(answers[1].verdict, Verdict::Unknown(Cause::TimedOut));
    }

    #[test]
    fn the_late_answer_to_the_attempt_is_part_of_the_explanation() {
        let mut inspection = Inspection::behind(2, vec![LastAnswer::PENDING; 2]);
        inspection.attempt_vote(0, &Answer::granted(), Duration::ZERO);
        inspection.attempt_vote(1, &held("a"), Duration::ZERO);
        inspection.vote(1, &held("b"), Duration::ZERO);
        let votes = inspection.into_explanation();
        assert_eq!(votes[0].verdict, Verdict::Granted);
        assert_eq!(votes[1].verdict, held("b").verdict);
        let mut alone = Inspection::new(2);
        alone.attempt_vote(0, &Answer::granted(), Duration::ZERO);
        assert_eq!(alone, Inspection::new(2), "there was no attempt");
    }

    #[test]
    fn unqueried_masters_are_not_awaited() {
        let mut inspection = Inspection::asking(3, MasterSet::from_iter([1]));
        assert!(!inspection.is_over());
        assert!(inspection.vote(1, &Answer::granted(), Duration::ZERO));
        let granted = |answer: &LastAnswer| answer.verdict == Verdict::Granted;
        assert_eq!(inspection.into_answers().iter().filter(|answer| granted(answer)).count(), 1);
    }

    #[test]
    fn inspection_is_answered_by_a_quorum_and_over_with_the_last() {
        let mut inspection = Inspection::new(4);
        for master in 0..4 {
            inspection.vote(master, &held("a"), Duration::ZERO);
            assert_eq!(inspection.is_answered(), master >= 2, "{master}");
            assert_eq!(inspection.is_over(), master == 3, "{master}");
        }
    }

    #[test]
    fn held_takes_a_quorum_of_clear_answers() {
        let clear = LastAnswer { verdict: Verdict::HELD, latency: None };
        let silent = LastAnswer::unknown(Cause::TimedOut);
        assert!(is_contended(&[clear.clone(), clear.clone(), silent.clone()]));
        assert!(!is_contended(&[clear, silent.clone(), silent]));
    }

    #[test]
    fn waiting_is_hopeless_if_no_quorum_can_recover() {
        let denied = || LastAnswer::unknown(Cause::ErrorReply("WRONGPASS no".into()));
        let silent = || LastAnswer::unknown(Cause::TimedOut);
        let none = MasterSet::EMPTY;
        assert!(is_hopeless(&[denied(), denied(), silent()], none, none));
        assert!(!is_hopeless(&[denied(), silent(), silent()], none, none));
        assert!(!is_hopeless(&[denied(), denied(), silent(), silent(), silent()], none, none));
        let pending = [denied(), silent(), LastAnswer::PENDING];
        assert!(!is_hopeless(&pending, none, none), "a pending vote may be anything");
        assert!(is_hopeless(&pending, MasterSet::from_iter([2]), none), "it was a denial before");
        assert!(
            !is_hopeless(&pending, MasterSet::from_iter([1]), none),
            "its present answer applies"
        );
        let cured = MasterSet::from_iter([0]);
        assert!(!is_hopeless(&[denied(), denied(), silent()], none, cured), "it may be");
        assert!(is_hopeless(&[denied(), denied(), denied()], none, cured), "it does not matter");
    }
}
