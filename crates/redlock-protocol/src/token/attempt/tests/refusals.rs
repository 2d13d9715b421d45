//! The refusal that an attempt reports when it is over.

use super::*;
use crate::lab::*;

/// An attempt on as many masters as there are answers, each of which has come.
fn answered(answers: &[Answer]) -> Attempt {
    let mut attempt = attempt(answers.len(), HoldOptions::default(), at(0));
    for (master, answer) in answers.iter().enumerate() {
        attempt.vote(master, answer, at(0), at(1));
    }
    attempt
}

/// An attempt that has queried only the meeting point, which has given this answer, if any.
fn first(answer: Option<&Answer>) -> Attempt {
    let mut attempt = attempt(5, HoldOptions::default(), at(0)).asking_first(1);
    if let Some(answer) = answer {
        attempt.vote(1, answer, at(0), at(1));
    }
    attempt
}

fn refusal(answers: [Answer; 5]) -> Refusal {
    answered(&answers).outcome().refusal(Defeat::Outvoted)
}

#[test]
fn refusal_is_held_by_a_quorum_or_if_no_master_granted() {
    let granted = Answer::granted;
    assert_eq!(refusal([held(), held(), held(), granted(), granted()]), Refusal::Held);
    assert_eq!(refusal([held(), closed(), closed(), closed(), closed()]), Refusal::Held);
    // No master is known to have granted us anything.
    assert_eq!(refusal([held(), held(), closed(), closed(), closed()]), Refusal::Held);
}

#[test]
fn grants_and_refusals_forming_a_quorum_are_a_split_vote() {
    let granted = Answer::granted;
    assert_eq!(refusal([granted(), granted(), held(), closed(), closed()]), Refusal::Split);
    assert_eq!(refusal([granted(), held(), held(), closed(), closed()]), Refusal::Split);
    assert_eq!(refusal([granted(), granted(), held(), held(), closed()]), Refusal::Split);
}

#[test]
fn too_few_answers_or_late_grants_are_silence() {
    let granted = Answer::granted;
    assert_eq!(refusal([granted(), held(), closed(), closed(), closed()]), Refusal::Silent);
    assert_eq!(refusal([granted(), granted(), closed(), closed(), closed()]), Refusal::Silent);
    assert_eq!(refusal([closed(), closed(), closed(), closed(), closed()]), Refusal::Silent);
    let late = answered(&[held(), held(), held(), held(), held()]);
    assert_eq!(late.outcome().refusal(Defeat::TooLate), Refusal::Silent);
}

#[test]
fn refusal_or_silence_of_only_the_meeting_point() {
    assert_eq!(first(Some(&held())).outcome().refusal(Defeat::Outvoted), Refusal::Held);
    assert_eq!(first(Some(&closed())).outcome().refusal(Defeat::Outvoted), Refusal::Silent);
    assert_eq!(first(None).outcome().silent_first(), Some(1));
    assert_eq!(first(Some(&closed())).outcome().silent_first(), Some(1));
    assert_eq!(first(Some(&held())).outcome().silent_first(), None);
    assert_eq!(
        answered(&[closed(), held(), held()]).outcome().silent_first(),
        None,
        "all were queried"
    );
}

#[test]
fn fan_out_is_measured_by_several_refusals_only() {
    assert!(answered(&[held(), held(), closed()]).outcome().is_refused());
    assert!(!answered(&[held(), closed(), closed()]).outcome().is_refused(), "silence decided");
    assert!(!answered(&[Answer::granted(), held(), closed()]).outcome().is_refused());
    assert!(!first(Some(&held())).outcome().is_refused(), "one master is not a fan-out");
}
