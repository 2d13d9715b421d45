//! Events of each stage: an event reaches the machine of its stage, which returns the next step.
//! This file has the events of an attempt.

mod held;
mod released;

use redlock_core::{Answer, Ballot, Balloted, Bid, Verdict};

use super::stages::{answered, attempted, held_lock, released, resumed, set};
use super::*;
use crate::lab::*;
use crate::token::lease::extension::Extended;

fn ballot(n: u64) -> Ballot {
    Ballot::new(n).unwrap()
}

fn accepted() -> Answer {
    Answer::granted().with_ballot(Balloted::Accepted)
}

/// The answer to a ballot that is too small, with the score that is in its way.
fn too_small() -> Answer {
    Answer::new(Verdict::BallotRefused).with_ballot(Balloted::Score(95))
}

fn fenced(masters: usize, first: Option<u64>) -> Lifecycle {
    let attempt = attempt(masters, HoldOptions::default(), at(0));
    Lifecycle::new(attempt.fenced(first.map(ballot)))
}

fn first(token: &mut Lifecycle, master: usize, answer: &Answer) -> Step {
    token.on(answered(Asked::First, master, answer), at(1))
}

fn lost(step: Step) -> Loss {
    let Step::Lost(loss) = step else { panic!("{step:?}") };
    loss
}

fn hold(step: Step) -> lease::Step {
    let Step::Hold(step) = step else { panic!("{step:?}") };
    step
}

/// The lease of a token that all of three masters have granted.
fn whole() -> Lifecycle {
    let mut token = held_lock();
    hold(first(&mut token, 2, &Answer::granted()));
    token
}

fn lease(token: &Lifecycle) -> &HeldLease {
    token.lease().expect("it is held")
}

/// The token when all masters have confirmed the extension of the keeper, and what comes back.
fn kept(token: &mut Lifecycle) -> lease::Extend {
    hold(token.on(Event::Tick(0.5), at(400))).extend.expect("an extension is due")
}

#[test]
fn masters_with_only_copies_are_excluded_from_the_vote() {
    let mut token = attempted(3);
    let event = Event::OnlyCopies(vec![(0, checked()), (1, checked())]);
    let loss = lost(token.on(event, at(0)));
    assert_eq!(loss.answers[1].verdict, Verdict::Unknown(checked()));
}

#[test]
fn silent_masters_have_not_granted() {
    let mut token = attempted(3);
    first(&mut token, 0, &Answer::granted());
    let loss = lost(token.on(Event::AttemptTimedOut, at(50)));
    assert_eq!((loss.defeat, loss.refusal), (Defeat::Outvoted, Refusal::Silent));
    assert_eq!(loss.answers[1].verdict, Verdict::Unknown(Cause::TimedOut));
    assert!(!loss.is_explicable && loss.fan_out.is_none(), "{loss:?}");
    assert!(token.release().is_some(), "the key may be there");
}

#[test]
fn refusals_are_explicable_and_measure_the_fan_out() {
    let mut token = attempted(3);
    first(&mut token, 0, &held());
    let loss = lost(token.on(answered(Asked::First, 1, &held()), at(7)));
    assert!(loss.is_explicable, "{loss:?}");
    assert_eq!((loss.refusal, loss.fan_out), (Refusal::Held, Some(ms(7))));
    let mut token = resumed();
    first(&mut token, 0, &held());
    first(&mut token, 1, &held());
    let loss = lost(first(&mut token, 2, &held()));
    assert!(!loss.is_explicable, "its votes show the holder: {loss:?}");
    assert!(token.is_over(), "there is nothing to release");
}

#[test]
fn late_grant_needs_no_explanation() {
    let mut token = attempted(1);
    let loss = lost(token.on(answered(Asked::First, 0, &Answer::granted()), at(VALIDITY)));
    assert_eq!((loss.defeat, loss.is_explicable), (Defeat::TooLate, false));
}

#[test]
fn attempt_waits_for_copies_until_the_grace_ends() {
    let options = HoldOptions { min_copies: Some(3), ..HoldOptions::default() };
    let mut token = Lifecycle::new(attempt(3, options, at(0)));
    first(&mut token, 0, &Answer::granted());
    let step = token.on(answered(Asked::First, 1, &Answer::granted()), at(9));
    assert_eq!(step, Step::AwaitCopies(ms(9)), "as long as the quorum took");
    assert!(matches!(token.on(Event::GraceEnded, at(18)), Step::Won(_)));
}

#[test]
fn grants_of_disowned_or_suspected_masters_are_ignored() {
    for event in [Event::Disowned as fn(usize, Cause) -> Event<'static>, Event::Suspected] {
        let mut token = attempted(3);
        first(&mut token, 0, &Answer::granted());
        assert_eq!(token.on(event(0, checked()), at(1)), Step::Wait);
        assert_eq!(first(&mut token, 1, &Answer::granted()), Step::Wait, "one of three");
        assert!(matches!(first(&mut token, 2, &Answer::granted()), Step::Won(_)));
    }
}

#[test]
fn plain_lock_queries_others_without_a_ballot() {
    let alone = attempt(3, HoldOptions::default(), at(0)).asking_first(1);
    let mut token = Lifecycle::new(alone.clone());
    let step = first(&mut token, 1, &Answer::granted());
    let wanted = |ballot| Step::AskOthers { others: set([0, 2]), first: set([1]), ballot };
    assert_eq!(step, wanted(None));
    let mut token = Lifecycle::new(alone.fenced(None));
    assert_eq!(first(&mut token, 1, &Answer::granted()), Step::NeedBallot { proposed: 0 });
    assert_eq!(token.on(Event::Drawn(Some(ballot(8))), at(1)), wanted(Some(ballot(8))));
}

/// Two of three have granted the key, and one ballot was refused.
fn short_of_a_ballot() -> Lifecycle {
    let mut token = fenced(3, Some(7));
    first(&mut token, 0, &accepted());
    assert_eq!(first(&mut token, 1, &too_small()), Step::NeedBallot { proposed: 1 });
    token
}

#[test]
fn next_ballot_goes_to_masters_that_granted() {
    let mut token = short_of_a_ballot();
    let step = token.on(Event::Drawn(Some(ballot(9))), at(1));
    assert_eq!(step, Step::SendBallot { number: 2, ballot: ballot(9), masters: set([0, 1]) });
    assert_eq!(token.on(answered(Asked::Ballot(2), 0, &accepted()), at(2)), Step::Wait);
    let Step::Won(won) = token.on(answered(Asked::Ballot(2), 1, &accepted()), at(2)) else {
        panic!("it is won")
    };
    assert_eq!(won.proof.map(|proof| proof.ballot), Some(ballot(9)));
    assert_eq!(lease(&token).proof(), won.proof);
}

#[test]
fn attempt_is_lost_without_a_further_ballot() {
    let mut token = short_of_a_ballot();
    assert_eq!(lost(token.on(Event::Drawn(None), at(1))).defeat, Defeat::BallotRefused);
    let mut token = short_of_a_ballot();
    token.on(Event::Drawn(Some(ballot(9))), at(1));
    assert_eq!(token.on(Event::BallotsEnded, at(2)), Step::Wait, "there is time left");
    assert_eq!(lost(token.on(Event::BallotsEnded, at(60))).defeat, Defeat::BallotRefused);
}

#[test]
fn masters_refusing_the_next_ballot_are_not_queried() {
    let mut token = fenced(3, Some(7));
    first(&mut token, 0, &accepted());
    first(&mut token, 1, &too_small());
    assert_eq!(token.on(Event::Refusing(set([1])), at(1)), Step::Wait);
    let loss = lost(first(&mut token, 2, &held()));
    assert_eq!(loss.defeat, Defeat::BallotRefused, "one master is not a quorum");
}

#[test]
fn refused_ballot_requests_the_score_of_its_master() {
    let mut token = fenced(3, Some(7));
    let refused = Answer::new(Verdict::BallotRefused).with_ballot(Balloted::Refused);
    first(&mut token, 0, &refused);
    assert_eq!(token.ask_scores(), set([0]));
    assert_eq!(token.ask_scores(), MasterSet::EMPTY, "once");
    let mut uncounted_one = fenced(3, Some(7));
    let event =
        Answered { to: Asked::First, master: 0, judged: uncounted(&refused), sent_at: at(0) };
    uncounted_one.on(Event::Answered(event), at(1));
    assert_eq!(uncounted_one.ask_scores(), set([0]), "even if it does not vote yet");
    first(&mut token, 1, &accepted());
    assert!(matches!(first(&mut token, 2, &accepted()), Step::Won(_)));
    let bid = Bid { ballot: ballot(7), member: redlock_core::Member::of(b"k") };
    let scored = Answer::granted().with_ballot(Balloted::Score(bid.ballot.score()));
    assert_eq!(lease(&token).ledger().hold_until(0), at(0), "it is used with its score");
    hold(token.on(answered(Asked::Score, 0, &scored), at(3)));
    assert_eq!(lease(&token).ledger().hold_until(0), at(VALIDITY));
}

#[test]
fn refusing_masters_are_queried_again_after_the_meeting_point() {
    let mut token = Lifecycle::new(attempt(3, HoldOptions::default(), at(0)).entering(0));
    first(&mut token, 0, &Answer::granted());
    first(&mut token, 1, &held());
    assert_eq!(first(&mut token, 2, &held()), Step::TakeAgain);
    let again = Step::AskAgain { masters: set([1, 2]), ballot: None };
    assert_eq!(token.on(Event::TakeAgain, at(2)), again);
    assert_eq!(token.on(Event::TakeAgain, at(2)), Step::Wait, "once");
    let attempt = attempt(3, HoldOptions::default(), at(0)).entering(0).fenced(Some(ballot(7)));
    let mut token = Lifecycle::new(attempt);
    first(&mut token, 0, &accepted());
    first(&mut token, 1, &held());
    assert_eq!(first(&mut token, 2, &held()), Step::TakeAgain);
    let again = Step::AskAgain { masters: set([1, 2]), ballot: Some(ballot(7)) };
    assert_eq!(token.on(Event::TakeAgain, at(2)), again, "it has the first request's ballot");
}

#[test]
fn requested_copy_is_released_and_shows_its_reason() {
    let mut token = attempted(3);
    token.on(Event::OnlyCopies(vec![(2, checked())]), at(0));
    first(&mut token, 2, &Answer::granted());
    let attempt = token.attempt().unwrap();
    assert_eq!(attempt.ledger().unanswered(), set([0, 1]));
    assert_eq!(attempt.ledger().unsettled(), set([0, 1]));
    assert_eq!(attempt.answers()[2].verdict, Verdict::Unknown(checked()));
    assert!(attempt.ledger().may_hold().contains(2));
}

#[test]
fn cancelled_attempt_is_released_wherever_its_key_may_be() {
    let mut token = attempted(3);
    first(&mut token, 0, &Answer::granted());
    assert_eq!(token.on(Event::Cancelled, at(1)), Step::Release);
    let mut refused = attempted(3);
    first(&mut refused, 0, &held());
    let mut silent = refused.clone();
    assert_eq!(silent.on(Event::Cancelled, at(1)), Step::Release, "two have not answered");
    let loss = first(&mut refused, 1, &held());
    assert!(matches!(loss, Step::Lost(_)) && !refused.is_over(), "one has not answered");
}

#[test]
fn insufficient_grant_is_released_after_all_answered() {
    let mut token = attempted(3);
    first(&mut token, 0, &Answer::granted());
    first(&mut token, 1, &held());
    lost(first(&mut token, 2, &held()));
    assert_eq!(token.release().map(Release::unacknowledged), Some(set([0])));
}
