//! Each event, in the stage in which it means something: it reaches the machine of that stage, and
//! the step of that machine comes back.

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

// While it is attempted.

#[test]
fn masters_that_get_copies_only_are_out_of_the_vote() {
    let mut token = attempted(3);
    let event = Event::OnlyCopies(vec![(0, checked()), (1, checked())]);
    let loss = lost(token.on(event, at(0)));
    assert_eq!(loss.answers[1].verdict, Verdict::Unknown(checked()));
}

#[test]
fn masters_that_do_not_answer_in_time_have_not_granted() {
    let mut token = attempted(3);
    first(&mut token, 0, &Answer::granted());
    let loss = lost(token.on(Event::AttemptTimedOut, at(50)));
    assert_eq!((loss.defeat, loss.refusal), (Defeat::Outvoted, Refusal::Silent));
    assert_eq!(loss.answers[1].verdict, Verdict::Unknown(Cause::TimedOut));
    assert!(!loss.is_explicable && loss.fan_out.is_none(), "{loss:?}");
    assert!(token.release().is_some(), "the key may be there");
}

#[test]
fn refusals_are_to_be_explained_and_show_how_long_votes_take() {
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
fn a_grant_that_comes_too_late_needs_no_explanation() {
    let mut token = attempted(1);
    let loss = lost(token.on(answered(Asked::First, 0, &Answer::granted()), at(VALIDITY)));
    assert_eq!((loss.defeat, loss.is_explicable), (Defeat::TooLate, false));
}

#[test]
fn more_copies_are_waited_for_until_the_grace_is_over() {
    let options = HoldOptions { min_copies: Some(3), ..HoldOptions::default() };
    let mut token = Lifecycle::new(attempt(3, options, at(0)));
    first(&mut token, 0, &Answer::granted());
    let step = token.on(answered(Asked::First, 1, &Answer::granted()), at(9));
    assert_eq!(step, Step::AwaitCopies(ms(9)), "as long as the quorum took");
    assert!(matches!(token.on(Event::GraceEnded, at(18)), Step::Won(_)));
}

#[test]
fn grants_of_a_master_that_may_have_lost_its_data_are_ignored() {
    for event in [Event::Disowned as fn(usize, Cause) -> Event<'static>, Event::Suspected] {
        let mut token = attempted(3);
        first(&mut token, 0, &Answer::granted());
        assert_eq!(token.on(event(0, checked()), at(1)), Step::Wait);
        assert_eq!(first(&mut token, 1, &Answer::granted()), Step::Wait, "one of three");
        assert!(matches!(first(&mut token, 2, &Answer::granted()), Step::Won(_)));
    }
}

#[test]
fn a_plain_lock_asks_the_others_behind_its_meeting_point_without_a_ballot() {
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
fn the_next_ballot_goes_to_those_that_have_granted() {
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
fn without_a_further_ballot_the_attempt_is_lost() {
    let mut token = short_of_a_ballot();
    assert_eq!(lost(token.on(Event::Drawn(None), at(1))).defeat, Defeat::BallotRefused);
    let mut token = short_of_a_ballot();
    token.on(Event::Drawn(Some(ballot(9))), at(1));
    assert_eq!(token.on(Event::BallotsEnded, at(2)), Step::Wait, "there is time left");
    assert_eq!(lost(token.on(Event::BallotsEnded, at(60))).defeat, Defeat::BallotRefused);
}

#[test]
fn masters_that_would_refuse_the_next_ballot_are_not_asked() {
    let mut token = fenced(3, Some(7));
    first(&mut token, 0, &accepted());
    first(&mut token, 1, &too_small());
    assert_eq!(token.on(Event::Refusing(set([1])), at(1)), Step::Wait);
    let loss = lost(first(&mut token, 2, &held()));
    assert_eq!(loss.defeat, Defeat::BallotRefused, "one master is no quorum");
}

#[test]
fn a_master_that_refused_a_ballot_is_asked_for_its_score() {
    let mut token = fenced(3, Some(7));
    let refused = Answer::new(Verdict::BallotRefused).with_ballot(Balloted::Refused);
    first(&mut token, 0, &refused);
    assert_eq!(token.ask_scores(), set([0]));
    assert_eq!(token.ask_scores(), MasterSet::EMPTY, "once");
    let mut uncounted_one = fenced(3, Some(7));
    let event =
        Answered { to: Asked::First, master: 0, judged: uncounted(&refused), sent_at: at(0) };
    uncounted_one.on(Event::Answered(event), at(1));
    assert_eq!(uncounted_one.ask_scores(), set([0]), "also where it does not vote yet");
    first(&mut token, 1, &accepted());
    assert!(matches!(first(&mut token, 2, &accepted()), Step::Won(_)));
    let bid = Bid { ballot: ballot(7), member: redlock_core::Member::of(b"k") };
    let scored = Answer::granted().with_ballot(Balloted::Score(bid.ballot.score()));
    assert_eq!(lease(&token).ledger().hold_until(0), at(0), "it counts with its score");
    hold(token.on(answered(Asked::Score, 0, &scored), at(3)));
    assert_eq!(lease(&token).ledger().hold_until(0), at(VALIDITY));
}

#[test]
fn those_that_refused_are_asked_again_behind_the_meeting_point() {
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
    assert_eq!(token.on(Event::TakeAgain, at(2)), again, "with the ballot of the first request");
}

#[test]
fn a_copy_that_was_asked_for_is_released_and_shows_why_it_is_none_more() {
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
fn an_unwanted_attempt_is_released_wherever_its_key_may_be() {
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
fn a_grant_that_was_not_enough_is_released_though_all_have_answered() {
    let mut token = attempted(3);
    first(&mut token, 0, &Answer::granted());
    first(&mut token, 1, &held());
    lost(first(&mut token, 2, &held()));
    assert_eq!(token.release().map(Release::unacknowledged), Some(set([0])));
}

// While it is held.

#[test]
fn an_untaken_lease_is_released_unless_it_was_resumed() {
    assert_eq!(held_lock().on(Event::Untaken, at(2)), Step::Release);
    let mut token = resumed();
    for master in 0..2 {
        first(&mut token, master, &Answer::granted());
    }
    assert!(lease(&token).deadline().is_some());
    assert_eq!(token.clone().on(Event::Untaken, at(2)), Step::Gone);
    assert_eq!(token.clone().on(Event::HandOn(HoldOptions::default()), at(2)), Step::Wait);
    assert_eq!(token.on(Event::Returned { was_lost: false }, at(2)), Step::Release);
    let mut ours = held_lock();
    assert!(matches!(ours.on(Event::HandOn(HoldOptions::default()), at(2)), Step::HandedOn(_)));
    assert_eq!(ours.on(Event::GivenAway, at(2)), Step::Gone);
    assert!(ours.is_over());
}

#[test]
fn the_answers_to_extensions_move_the_lease() {
    let mut token = whole();
    let extend = kept(&mut token);
    for master in 0..2 {
        let granted = Answer::granted();
        let answer = Answered {
            to: Asked::Extension(extend.number),
            master,
            judged: (&granted).into(),
            sent_at: at(400),
        };
        hold(token.on(Event::Answered(answer), at(401)));
    }
    assert_eq!(lease(&token).deadline(), Some(at(400 + VALIDITY)));
}

#[test]
fn a_key_that_is_given_back_counts_when_the_master_has_it() {
    let mut token = whole();
    let extend = kept(&mut token);
    let to = Asked::Extension(extend.number);
    for master in 0..2 {
        hold(token.on(answered(to, master, &Answer::granted()), at(401)));
    }
    let step = hold(token.on(answered(to, 2, &not_ours()), at(401)));
    assert_eq!(step.readd, set([2]));
    let granted = Answer::granted();
    let judged = (&granted).into();
    let answer = Answered { to: Asked::Readd, master: 2, judged, sent_at: at(402) };
    hold(token.on(Event::Answered(answer), at(403)));
    assert_eq!(lease(&token).ledger().hold_until(2), at(402 + VALIDITY));
}

#[test]
fn masters_that_are_silent_are_written_down_as_such() {
    let mut token = held_lock();
    hold(token.on(Event::AttemptTimedOut, at(50)));
    assert_eq!(lease(&token).ledger().answer(2).verdict, Verdict::Unknown(Cause::TimedOut));
    let extend = hold(token.on(Event::Extend(timing(2 * TTL)), at(60))).extend.unwrap();
    assert_eq!(extend.masters, set([0, 1, 2]), "it asks for the longer time");
    let step = hold(token.on(Event::ExtensionTimedOut(extend.number), at(120)));
    assert_eq!(step.extended, Some((extend.number, Extended::NoQuorum)));
}

#[test]
fn copies_that_may_be_lost_end_the_lease_once_too_few_are_left() {
    let mut disowned = held_lock();
    hold(disowned.on(Event::Disowned(0, checked()), at(2)));
    assert_eq!(lease(&disowned).deadline(), None);
    assert_eq!(lease(&disowned).reason(), LostReason::DataLost);
    // A suspected master has time to prove that it has the key.
    let mut token = held_lock();
    hold(token.on(Event::Unproven(0), at(2)));
    hold(token.on(Event::Suspected(0, checked()), at(2)));
    assert_eq!(lease(&token).due(), Some(at(2)), "it is asked at once");
    assert!(lease(&token).deadline().is_some());
    hold(token.on(Event::Unproven(0), at(3)));
    assert_eq!(lease(&token).deadline(), None);
}

#[test]
fn a_master_is_asked_again_for_the_copy_that_it_has_or_may_have() {
    let mut token = whole();
    let step = hold(token.on(Event::Proven(1), at(2)));
    assert_eq!(step.extend.map(|extend| extend.masters), Some(set([1])));
    assert_eq!(hold(whole().on(Event::Proven(1), at(VALIDITY + 1))).extend, None, "it is over");
    // Its grant came when it did not vote.
    let mut token = held_lock();
    let granted = Answer::granted();
    let event =
        Answered { to: Asked::First, master: 2, judged: uncounted(&granted), sent_at: at(0) };
    hold(token.on(Event::Answered(event), at(2)));
    assert_eq!(hold(token.clone().on(Event::Proven(2), at(3))).extend, None, "none is known there");
    let step = hold(token.on(Event::Voting(2), at(3)));
    assert_eq!(step.extend.map(|extend| extend.masters), Some(set([2])));
}

#[test]
fn a_process_that_has_ended_keeps_the_key_for_one_expiry_at_most() {
    let mut token = held_lock();
    hold(first(&mut token, 2, &closed()));
    assert_eq!(token.left(at(10)).last(), Some(&(2, None)), "its request may be on the way");
    hold(token.on(Event::ProcessEnded(2), at(10)));
    assert_eq!(token.left(at(10)).last(), Some(&(2, Some(timing(TTL).expiry()))));
}

#[test]
fn the_keeper_begins_where_it_is_asked_for_and_extends_by_what_is_allowed() {
    let options = HoldOptions { auto_extend: false, ..HoldOptions::default() };
    let mut token = Lifecycle::new(attempt(1, options, at(0)));
    first(&mut token, 0, &Answer::granted());
    assert_eq!(lease(&token).due(), None);
    hold(token.on(Event::Kept, at(1)));
    assert!(lease(&token).due().is_some());
    hold(token.on(Event::Limited(timing(TTL / 2)), at(1)));
    assert_eq!(lease(&token).timing(), timing(TTL / 2));
}

// While it is released.

#[test]
fn a_release_is_sent_in_its_turn_and_ends_where_all_have_answered() {
    let mut token = released();
    assert_eq!(token.on(Event::Turn, at(2)), Step::SendRelease(set([0, 1, 2])));
    assert_eq!(token.on(answered(Asked::Release, 0, &Answer::granted()), at(3)), Step::Wait);
    let decided = token.on(answered(Asked::Release, 1, &Answer::granted()), at(3));
    assert_eq!(decided, Step::Released, "a quorum is free of it");
    // The late answer to the first request: it was never set there.
    assert_eq!(token.on(answered(Asked::First, 2, &held()), at(4)), Step::Released);
    assert!(token.is_over());
    assert_eq!(token.on(Event::ReturnedAgain, at(5)), Step::Wait, "it is done");
}

#[test]
fn a_release_that_no_master_can_execute_is_decided_in_turn() {
    let mut token = released();
    for master in 0..3 {
        token.on(Event::GivenUp(master), at(2));
    }
    assert_eq!(token.on(Event::Turn, at(2)), Step::Released);
}

#[test]
fn a_master_that_did_not_acknowledge_is_asked_again() {
    let mut token = released();
    token.on(Event::Turn, at(2));
    assert_eq!(token.on(Event::Retry(1), at(3)), Step::Wait, "it may still answer");
    token.on(answered(Asked::Release, 0, &Answer::granted()), at(3));
    token.on(answered(Asked::Release, 1, &closed()), at(3));
    assert_eq!(token.on(Event::ReleaseTimedOut, at(60)), Step::Released);
    assert_eq!(token.release().unwrap().outcome(), Some(Released::Unconfirmed));
    assert_eq!(token.clone().on(Event::ReturnedAgain, at(61)), Step::Release);
    assert_eq!(token.on(Event::Retry(1), at(61)), Step::SendRelease(set([1])));
}

#[test]
fn keys_that_have_expired_or_are_left_need_no_release() {
    let mut token = released();
    token.on(Event::Turn, at(2));
    for master in 0..2 {
        token.on(answered(Asked::Release, master, &Answer::granted()), at(3));
    }
    token.on(answered(Asked::Release, 2, &busy()), at(3));
    assert_eq!(token.on(Event::ReturnedAgain, at(4)), Step::Wait, "a quorum is free of it");
    assert_eq!(token.on(Event::Expired, at(4)), Step::Wait, "it may be there");
    let mut left = token.clone();
    assert_eq!(token.on(Event::Expired, at(60_000)), Step::Released);
    assert!(token.is_over());
    assert_eq!(left.on(Event::GivenUp(2), at(4)), Step::Released);
    assert!(left.is_over());
}

#[test]
fn an_exited_process_no_longer_sets_keys() {
    let mut token = released();
    assert_eq!(token.left(at(2)).last(), Some(&(2, None)));
    token.on(Event::ProcessEnded(2), at(2));
    assert_eq!(token.left(at(2)).last(), Some(&(2, Some(timing(TTL).expiry()))));
}
