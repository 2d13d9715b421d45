//! Masters that refused are queried again if the meeting point has granted.

use super::*;
use crate::lab::*;

/// Five masters, of which the first is the meeting point: it grants, and three refuse.
fn refused() -> (Attempt, MasterSet) {
    let mut attempt = attempt(5, HoldOptions::default(), at(0)).entering(0);
    assert_eq!(attempt.vote(0, &Answer::granted(), at(0), at(0)), Step::Wait);
    assert_eq!(attempt.vote(1, &held(), at(0), at(0)), Step::Wait);
    assert_eq!(attempt.vote(2, &held(), at(0), at(0)), Step::Wait);
    assert_eq!(attempt.vote(3, &held(), at(0), at(0)), Step::TakeAgain);
    (attempt, MasterSet::from_iter([1, 2, 3]))
}

#[test]
fn repeated_requests_can_win_an_attempt() {
    let (mut attempt, refused) = refused();
    assert_eq!(attempt.take_again(), (refused, None));
    assert_eq!(attempt.take_again().0, MasterSet::EMPTY, "once a step");
    assert_eq!(attempt.vote(1, &Answer::granted(), at(1), at(2)), Step::Wait);
    assert_eq!(attempt.vote(2, &Answer::granted(), at(1), at(2)), Step::Won);
}

/// The pauses before repeated requests last about a fan-out. An attempt whose repeats counted would
/// make the next pauses longer, and so on.
#[test]
fn repeats_are_not_part_of_the_fan_out() {
    let (mut lost, _) = refused();
    lost.vote(4, &held(), at(0), at(0));
    for time in 1..=4 {
        let (asked, _) = lost.take_again();
        for master in asked.iter() {
            lost.vote(master, &held(), at(time), at(time * 5));
        }
    }
    assert!(lost.outcome().is_refused());
    assert_eq!(lost.outcome().fan_out(), ms(0));
    let (mut won, refused) = refused();
    won.take_again();
    for master in refused.iter() {
        won.vote(master, &Answer::granted(), at(1), at(9));
    }
    assert_eq!(won.outcome().fan_out(), ms(0));
}

/// The earlier refusal does not answer the request that is on its way now.
#[test]
fn repeated_request_needs_a_release_until_refused() {
    let (mut attempt, refused) = refused();
    assert_eq!(attempt.ledger().may_hold(), MasterSet::from_iter([0, 4]));
    attempt.take_again();
    assert_eq!(attempt.ledger().may_hold(), MasterSet::all(5));
    assert!(refused.iter().all(|master| attempt.ledger().unsettled().contains(master)));
    attempt.vote(1, &held(), at(1), at(2));
    assert!(!attempt.ledger().may_hold().contains(1));
    assert!(attempt.ledger().may_hold().contains(2));
}

#[test]
fn requests_are_repeated_four_times_and_not_after_the_timeout() {
    let (mut attempt, _) = refused();
    attempt.vote(4, &held(), at(0), at(0));
    for time in 1..=4 {
        let (asked, _) = attempt.take_again();
        let steps: Vec<Step> =
            asked.iter().map(|master| attempt.vote(master, &held(), at(time), at(time))).collect();
        let wanted = if time < 4 { Step::TakeAgain } else { Step::Lost(Defeat::Outvoted) };
        assert!(steps.contains(&wanted), "{time}: {steps:?}");
    }
    let (mut late, _) = refused();
    assert_eq!(late.time_out(at(50)), Step::Lost(Defeat::Outvoted));
    assert_eq!(late.take_again().0, MasterSet::EMPTY);
}

#[test]
fn silent_masters_get_no_repeated_request() {
    let mut silent = attempt(5, HoldOptions::default(), at(0)).entering(0);
    silent.vote(0, &Answer::granted(), at(0), at(0));
    silent.vote(1, &held(), at(0), at(0));
    silent.vote(2, &closed(), at(0), at(0));
    // The last one may still answer.
    assert_eq!(silent.vote(3, &closed(), at(0), at(0)), Step::TakeAgain);
    assert_eq!(silent.vote(4, &closed(), at(0), at(0)), Step::Wait);
    assert_eq!(silent.take_again().0, MasterSet::from_iter([1]));
    assert_eq!(silent.vote(1, &held(), at(1), at(1)), Step::Lost(Defeat::Outvoted));
}

/// Its answer decides where to wait.
#[test]
fn lost_attempt_waits_for_its_meeting_point() {
    let mut attempt = attempt(3, HoldOptions::default(), at(0)).entering(2);
    assert_eq!(attempt.vote(0, &held(), at(0), at(0)), Step::Wait);
    assert_eq!(attempt.vote(1, &held(), at(0), at(0)), Step::Wait, "it is lost");
    assert_eq!(attempt.vote(2, &held(), at(0), at(0)), Step::Lost(Defeat::Outvoted));
}
