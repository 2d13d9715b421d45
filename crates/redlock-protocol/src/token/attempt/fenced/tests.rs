//! Ballots of one attempt, event by event.

mod orders;

use redlock_core::{Cause, NotAdmitted, WhyNot};

use super::super::Defeat;
use super::*;
use crate::lab::*;
use crate::terms::HoldOptions;

fn ballot(n: u64) -> Ballot {
    Ballot::new(n).unwrap()
}

fn accepted() -> Answer {
    Answer::granted().with_ballot(Balloted::Accepted)
}

/// The answer to the `SET` with a ballot.
fn refused() -> Answer {
    Answer::new(Verdict::BallotRefused).with_ballot(Balloted::Refused)
}

/// The answer to a ballot that is followed by its score.
fn too_small() -> Answer {
    Answer::new(Verdict::BallotRefused).with_ballot(Balloted::Score(95))
}

fn scored() -> Answer {
    Answer::granted().with_ballot(Balloted::Score(95))
}

fn no_member() -> Answer {
    let why = Cause::NotAdmitted(NotAdmitted::new(WhyNot::Incomplete).into());
    let mut answer = Answer::unknown(why).with_ballot(Balloted::NoMember);
    answer.key_set = true;
    answer
}

fn fenced(masters: usize, first: Option<u64>) -> Attempt {
    attempt(masters, HoldOptions::default(), at(0)).fenced(first.map(ballot))
}

fn set(masters: &[usize]) -> MasterSet {
    masters.iter().copied().collect()
}

fn vote(attempt: &mut Attempt, master: usize, answer: &Answer) -> Step {
    attempt.vote(master, answer, at(0), at(1))
}

#[test]
fn ballot_accepted_by_a_quorum_is_returned_with_the_key() {
    let mut attempt = fenced(5, Some(7));
    assert_eq!(vote(&mut attempt, 0, &accepted()), Step::Wait);
    assert_eq!(vote(&mut attempt, 1, &refused()), Step::Wait);
    assert_eq!(vote(&mut attempt, 2, &held()), Step::Wait);
    assert_eq!(vote(&mut attempt, 3, &accepted()), Step::Propose, "the other four are not needed");
    assert_eq!(vote(&mut attempt, 4, &accepted()), Step::Won, "one of them is enough");
    assert_eq!(attempt.fencing_token(), Some(ballot(7).token()));
}

#[test]
fn acceptances_of_different_ballots_never_add_up() {
    let mut attempt = fenced(3, Some(1));
    vote(&mut attempt, 0, &accepted());
    assert_eq!(vote(&mut attempt, 1, &refused()), Step::Propose);
    assert_eq!(attempt.propose(ballot(2)), Some((2, set(&[0, 1]))));
    assert_eq!(attempt.ballot_vote(2, 1, &accepted(), at(1), at(2)), Step::Wait, "0 took ballot 1");
    assert_eq!(attempt.ballot_vote(2, 0, &too_small(), at(1), at(2)), Step::Propose);
    assert_eq!(attempt.propose(ballot(9)), Some((3, set(&[0, 1]))));
    assert_eq!(attempt.ballot_vote(3, 0, &accepted(), at(2), at(3)), Step::Wait);
    assert_eq!(attempt.ballot_vote(3, 1, &accepted(), at(2), at(3)), Step::Won);
    assert_eq!(attempt.fencing_token(), Some(ballot(9).token()));
}

#[test]
fn a_master_whose_score_cannot_be_passed_is_proposed_no_ballot() {
    let mut attempt = fenced(3, Some(1));
    vote(&mut attempt, 0, &accepted());
    vote(&mut attempt, 1, &refused());
    attempt.set_refusing(set(&[1]));
    assert_eq!(vote(&mut attempt, 2, &refused()), Step::Propose, "two may accept another one");
    assert_eq!(attempt.propose(ballot(2)), Some((2, set(&[0, 2]))));
    attempt.set_refusing(set(&[1, 2]));
    let step = attempt.ballot_vote(2, 2, &too_small(), at(1), at(2));
    assert_eq!(step, Step::Lost(Defeat::BallotRefused), "and one is not a quorum");
    attempt.set_refusing(set(&[2]));
    let step = attempt.score_vote(1, &scored(), at(3));
    assert_eq!(step, Step::Join(set(&[1])), "its score is followed now");
}

#[test]
fn later_grant_gets_the_latest_ballot_and_can_decide_an_earlier() {
    let mut attempt = fenced(5, Some(1));
    vote(&mut attempt, 0, &accepted());
    vote(&mut attempt, 1, &accepted());
    assert_eq!(vote(&mut attempt, 2, &refused()), Step::Propose);
    assert_eq!(attempt.propose(ballot(2)), Some((2, set(&[0, 1, 2]))));
    let mut other = attempt.clone();
    assert_eq!(vote(&mut attempt, 3, &refused()), Step::Join(set(&[3])));
    assert_eq!(attempt.join(set(&[3])), Some((2, ballot(2))));
    for master in [0, 3] {
        assert_eq!(attempt.ballot_vote(2, master, &accepted(), at(1), at(2)), Step::Wait);
    }
    assert_eq!(attempt.ballot_vote(2, 2, &accepted(), at(1), at(2)), Step::Won);
    assert_eq!(vote(&mut other, 4, &accepted()), Step::Won);
    assert_eq!(other.fencing_token(), Some(ballot(1).token()));
}

#[test]
fn grant_is_valid_after_its_master_has_shown_a_score() {
    let mut attempt = fenced(3, Some(1));
    vote(&mut attempt, 0, &refused());
    assert_eq!(attempt.ledger().hold_until(0), Instant::ORIGIN);
    assert_eq!(attempt.ask_scores(), set(&[0]));
    assert!(attempt.ask_scores().is_empty());
    assert_eq!(attempt.score_vote(0, &scored(), at(2)), Step::Wait);
    assert_eq!(attempt.ledger().hold_until(0), at(VALIDITY), "from when the SET was sent");
    assert_eq!(vote(&mut attempt, 1, &refused()), Step::Propose);
    assert_eq!(attempt.score_vote(1, &no_member(), at(2)), Step::Wait);
    assert_eq!(attempt.ledger().hold_until(1), Instant::ORIGIN);
    assert!(attempt.ledger().may_hold().contains(1), "its key is still released");
    assert_eq!(attempt.ballots_until(), None, "a quorum is no longer possible");
    assert_eq!(attempt.answers()[1].verdict, no_member().verdict, "and an error shows why");
    assert_eq!(vote(&mut attempt, 2, &held()), Step::Lost(Defeat::Outvoted));
}

#[test]
fn key_lost_before_its_ballot_is_not_a_grant() {
    let mut attempt = fenced(3, Some(1));
    vote(&mut attempt, 0, &accepted());
    assert_eq!(vote(&mut attempt, 1, &refused()), Step::Propose);
    attempt.propose(ballot(2));
    assert_eq!(attempt.ballot_vote(2, 0, &not_ours(), at(1), at(2)), Step::Wait);
    assert_eq!(attempt.ledger().hold_until(0), Instant::ORIGIN);
    assert!(!attempt.ledger().may_hold().contains(0));
    let step = attempt.ballot_vote(2, 1, &accepted(), at(1), at(2));
    assert_eq!(step, Step::Wait, "a single master");
    assert_eq!(vote(&mut attempt, 2, &accepted()), Step::Join(set(&[2])), "of ballot 1");
    assert_eq!(attempt.join(set(&[2])), Some((2, ballot(2))));
    assert_eq!(attempt.ballot_vote(2, 2, &accepted(), at(2), at(3)), Step::Won);
}

#[test]
fn meeting_point_gets_its_ballot_after_the_key() {
    let attempt = attempt(3, HoldOptions::default(), at(0));
    let mut attempt = attempt.asking_first(1).fenced(None);
    assert_eq!(vote(&mut attempt, 1, &Answer::granted()), Step::AskOthers);
    assert_eq!(attempt.ask_others(Some(ballot(1))), set(&[0, 2]));
    assert!(attempt.ask_scores().is_empty(), "the ballot shows it");
    assert_eq!(attempt.ledger().hold_until(1), Instant::ORIGIN);
    assert_eq!(vote(&mut attempt, 0, &accepted()), Step::Wait, "its ballot is on its way");
    assert_eq!(attempt.ballot_vote(1, 1, &accepted(), at(1), at(2)), Step::Won);
    assert_eq!(attempt.ledger().hold_until(1), at(VALIDITY), "from when the SET was sent");
}

#[test]
fn ballots_end_one_node_timeout_after_a_quorum_granted() {
    let mut attempt = fenced(3, Some(1));
    vote(&mut attempt, 0, &refused());
    assert_eq!(attempt.vote(1, &refused(), at(0), at(40)), Step::Propose);
    attempt.propose(ballot(2));
    assert_eq!(attempt.ballots_until(), Some(at(40 + NODE_TIMEOUT)));
    assert_eq!(attempt.time_out(at(NODE_TIMEOUT)), Step::Wait, "the third is not needed");
    let mut late = attempt.clone();
    assert_eq!(attempt.end_ballots(at(39 + NODE_TIMEOUT)), Step::Wait);
    assert_eq!(attempt.end_ballots(at(40 + NODE_TIMEOUT)), Step::Lost(Defeat::BallotRefused));
    assert_eq!(attempt.outcome().refusal(Defeat::BallotRefused), crate::waiting::Refusal::Split);
    assert_eq!(attempt.answers()[0].verdict, Verdict::BallotRefused);
    let step = late.vote(2, &accepted(), at(0), at(60));
    assert_eq!(step, Step::Join(set(&[2])), "a late grant is used");
    assert_eq!(late.join(set(&[2])), Some((2, ballot(2))));
    assert_eq!(late.ballot_vote(2, 0, &accepted(), at(40), at(61)), Step::Wait);
    assert_eq!(late.ballot_vote(2, 1, &accepted(), at(40), at(61)), Step::Won);
}

#[test]
fn a_master_that_lost_its_data_has_accepted_nothing() {
    let mut attempt = fenced(3, Some(1));
    vote(&mut attempt, 0, &accepted());
    attempt.disown(0, checked(), at(1));
    assert_eq!(vote(&mut attempt, 1, &accepted()), Step::Wait);
    assert_eq!(vote(&mut attempt, 2, &refused()), Step::Propose);
    assert_eq!(attempt.propose(ballot(2)), Some((2, set(&[1, 2]))));
}

#[test]
fn masters_losing_data_twice_are_taken_back_once() {
    let mut attempt = fenced(3, Some(1));
    vote(&mut attempt, 0, &accepted());
    assert_eq!(attempt.disown(0, checked(), at(1)), Step::Wait);
    assert_eq!(attempt.disown(0, checked(), at(1)), Step::Wait);
    vote(&mut attempt, 1, &accepted());
    assert_eq!(vote(&mut attempt, 2, &accepted()), Step::Won);
}

#[test]
fn a_copy_accepts_nothing() {
    let why = || Cause::NotAdmitted(NotAdmitted::new(WhyNot::New).into());
    let mut attempt = fenced(3, Some(1));
    attempt.only_copies(vec![(2, why())], at(0));
    vote(&mut attempt, 0, &accepted());
    assert_eq!(vote(&mut attempt, 2, &accepted()), Step::Wait);
    assert_eq!(vote(&mut attempt, 1, &refused()), Step::Propose);
    assert_eq!(attempt.propose(ballot(2)), Some((2, set(&[0, 1]))));
}

#[test]
fn unsendable_ballots_end_the_attempt_immediately() {
    let mut attempt = fenced(3, Some(1));
    vote(&mut attempt, 0, &refused());
    assert_eq!(vote(&mut attempt, 1, &refused()), Step::Propose);
    attempt.propose(ballot(2));
    assert_eq!(attempt.ballot_vote(2, 0, &unsent(), at(1), at(1)), Step::Wait, "2 may grant");
    assert_eq!(vote(&mut attempt, 2, &held()), Step::Lost(Defeat::BallotRefused));
}

#[test]
fn min_copies_requires_keys_and_not_ballots() {
    let options = HoldOptions { min_copies: Some(4), ..HoldOptions::default() };
    let mut attempt = attempt(5, options, at(0)).fenced(Some(ballot(1)));
    vote(&mut attempt, 0, &accepted());
    vote(&mut attempt, 1, &accepted());
    assert_eq!(vote(&mut attempt, 2, &accepted()), Step::AwaitCopies);
    assert_eq!(vote(&mut attempt, 3, &refused()), Step::Wait, "its key is not used yet");
    assert_eq!(attempt.score_vote(3, &scored(), at(2)), Step::Won);
}

/// Both have a quorum, and the key is held as long for both.
#[test]
fn latest_of_two_accepted_ballots_is_returned() {
    let options = HoldOptions { min_copies: Some(3), ..HoldOptions::default() };
    let mut attempt = attempt(3, options, at(0)).fenced(Some(ballot(1)));
    vote(&mut attempt, 0, &accepted());
    assert_eq!(vote(&mut attempt, 1, &refused()), Step::Propose);
    assert_eq!(attempt.propose(ballot(2)), Some((2, set(&[0, 1]))));
    assert_eq!(vote(&mut attempt, 2, &accepted()), Step::AwaitCopies, "of the first ballot");
    attempt.ballot_vote(2, 0, &accepted(), at(1), at(2));
    assert_eq!(attempt.ballot_vote(2, 1, &accepted(), at(1), at(2)), Step::Won);
    assert_eq!(attempt.fencing_token(), Some(ballot(2).token()));
}

#[test]
fn grace_waits_for_copies_that_lack_only_a_score() {
    let options = HoldOptions { min_copies: Some(5), ..HoldOptions::default() };
    let mut attempt = attempt(5, options, at(0)).fenced(Some(ballot(1)));
    vote(&mut attempt, 0, &refused());
    for master in [1, 2] {
        vote(&mut attempt, master, &accepted());
    }
    assert_eq!(vote(&mut attempt, 3, &accepted()), Step::AwaitCopies);
    assert_eq!(vote(&mut attempt, 4, &refused()), Step::Wait, "all have voted");
    let mut silent = attempt.clone();
    assert_eq!(attempt.score_vote(0, &scored(), at(2)), Step::Wait);
    assert_eq!(attempt.score_vote(4, &scored(), at(2)), Step::Won);
    assert_eq!(silent.end_grace(at(2)), Step::Won, "and for no longer than the grace");
}

#[test]
fn token_is_not_returned_if_its_acceptors_may_have_lost_the_key() {
    let attempt = attempt(3, HoldOptions::default(), at(0));
    let mut attempt = attempt.asking_first(0).fenced(None);
    vote(&mut attempt, 0, &Answer::granted());
    attempt.ask_others(Some(ballot(1)));
    // The requests to the others were sent long after the first, whose key expires before theirs.
    assert_eq!(attempt.vote(1, &accepted(), at(500), at(501)), Step::Wait);
    let mut late = attempt.clone();
    assert_eq!(attempt.ballot_vote(1, 0, &accepted(), at(500), at(VALIDITY - 1)), Step::Won);
    assert_eq!(late.vote(2, &refused(), at(500), at(501)), Step::Wait);
    assert_eq!(late.score_vote(2, &scored(), at(502)), Step::Wait);
    assert!(late.ledger().valid_until() > at(VALIDITY));
    let step = late.ballot_vote(1, 0, &accepted(), at(500), at(VALIDITY));
    assert_eq!(step, Step::Lost(Defeat::TooLate));
}

fn resumed(masters: usize) -> Attempt {
    let options = HoldOptions::default();
    let attempt = Attempt::new(masters, Origin::Resumed, timing(TTL), options, at(0));
    attempt.fenced(Some(ballot(1)))
}

#[test]
fn lease_requests_a_score_that_the_attempt_did_not_get() {
    for answer in [no_member(), not_ours()] {
        let options = HoldOptions::default();
        let attempt = Attempt::new(3, Origin::Acquired, timing(TTL), options, at(0));
        let mut attempt = attempt.fenced(Some(ballot(1)));
        assert_eq!(vote(&mut attempt, 0, &refused()), Step::Wait);
        assert_eq!(attempt.ask_scores(), set(&[0]));
        assert_eq!(attempt.score_vote(0, &answer, at(1)), Step::Wait);
        assert_eq!(vote(&mut attempt, 1, &accepted()), Step::Wait);
        assert_eq!(vote(&mut attempt, 2, &accepted()), Step::Won);
        let mut lease = attempt.into_lease(at(2));
        assert_eq!(lease.ask_scores(), set(&[0]), "{answer:?}");
    }
}

#[test]
fn plain_resumed_lease_has_no_ballots() {
    let options = HoldOptions::default();
    let mut attempt = Attempt::new(1, Origin::Resumed, timing(TTL), options, at(0));
    assert_eq!(vote(&mut attempt, 0, &Answer::granted()), Step::Won);
    assert_eq!((attempt.is_fenced(), attempt.fencing_token()), (false, None));
}

#[test]
fn a_resumed_lease_gets_a_token_accepted_with_its_extension() {
    let mut attempt = resumed(3);
    assert_eq!(vote(&mut attempt, 0, &accepted()), Step::Wait, "one is not a quorum");
    assert_eq!(vote(&mut attempt, 1, &too_small()), Step::Propose);
    assert_eq!(attempt.ledger().hold_until(1), at(VALIDITY), "it is still extended");
    assert!(attempt.ask_scores().is_empty(), "it has shown its score");
    assert_eq!(attempt.propose(ballot(5)), Some((2, set(&[0, 1]))));
    assert_eq!(attempt.ballot_vote(2, 1, &accepted(), at(100), at(101)), Step::Wait);
    let mut lost = attempt.clone();
    assert_eq!(attempt.ballot_vote(2, 0, &accepted(), at(100), at(101)), Step::Won);
    assert_eq!(attempt.fencing_token(), Some(ballot(5).token()));
    assert_eq!(attempt.proof().unwrap().until, at(VALIDITY + 100));
    assert_eq!(
        lost.ballot_vote(2, 0, &held(), at(100), at(101)),
        Step::Wait,
        "it belongs to another client"
    );
    assert_eq!(lost.vote(2, &not_ours(), at(0), at(102)), Step::Lost(Defeat::Outvoted));
}

#[test]
fn no_later_extension_gives_an_acceptance_more_time() {
    let mut attempt = resumed(3);
    vote(&mut attempt, 0, &accepted());
    vote(&mut attempt, 1, &too_small());
    attempt.propose(ballot(5));
    for master in [0, 1] {
        attempt.ballot_vote(2, master, &too_small(), at(500), at(501));
    }
    assert_eq!(attempt.ledger().valid_until(), at(VALIDITY + 500));
    let mut late = attempt.clone();
    assert_eq!(attempt.vote(2, &accepted(), at(0), at(VALIDITY - 1)), Step::Won);
    assert_eq!(attempt.fencing_token(), Some(ballot(1).token()));
    let step = late.vote(2, &accepted(), at(0), at(VALIDITY));
    assert_eq!(step, Step::Lost(Defeat::TooLate), "0 and 2 accepted it too long ago");
}
