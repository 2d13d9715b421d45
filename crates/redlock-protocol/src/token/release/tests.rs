//! One release, answer by answer.

use redlock_core::admission::Names;
use redlock_core::{Lists, NotAdmitted, WhyNot};

use super::*;
use crate::lab::*;

fn ledger(answers: &[Answer]) -> Ledger {
    let mut ledger = Ledger::new(answers.len());
    for (master, answer) in answers.iter().enumerate() {
        ledger.write(master, answer.into(), Duration::ZERO);
        ledger.acquired(master, answer);
    }
    ledger
}

/// The release of a lease of five masters, of which the first `copies` granted and the others
/// refused.
fn release_of(copies: usize, was_lost: bool) -> Release {
    let answer = |master| if master < copies { Answer::granted() } else { held() };
    let answers: Vec<Answer> = (0..5).map(answer).collect();
    Release::new(ledger(&answers), MasterSet::EMPTY, ms(1_100), was_lost, at(0))
}

fn valid(answer: &Answer) -> Judged<'_> {
    Judged { answer, counts: &Counts::Yes }
}

fn vote(release: &mut Release, master: usize, answer: &Answer) -> Option<Released> {
    release.vote(master, valid(answer), ms(1), at(1))
}

/// Computes the expected result from all answers together.
fn expected(held: usize, answers: &[Answer], was_lost: bool) -> Released {
    let count = |verdict: &Verdict| answers.iter().filter(|one| one.verdict == *verdict).count();
    let absent = 5 - held + count(&Verdict::NotOurs);
    if absent + count(&Verdict::Granted) < 3 {
        Released::Unconfirmed
    } else if was_lost || absent >= 3 {
        Released::NotOurs
    } else {
        Released::Done
    }
}

fn combinations(len: usize) -> impl Iterator<Item = Vec<Answer>> {
    let kinds = [Answer::granted(), not_ours(), closed(), busy(), unsent()];
    let total = kinds.len().pow(u32::try_from(len).unwrap());
    (0..total).map(move |mut code| {
        let mut next = || {
            let kind = kinds[code % kinds.len()].clone();
            code /= kinds.len();
            kind
        };
        (0..len).map(|_| next()).collect()
    })
}

#[test]
fn every_combination_of_answers_has_one_outcome() {
    for (copies, was_lost) in [(5, false), (5, true), (4, false), (3, false), (3, true)] {
        for answers in combinations(copies) {
            let mut release = release_of(copies, was_lost);
            assert_eq!(release.send(), MasterSet::all(copies));
            let outcomes: Vec<Released> = answers
                .iter()
                .enumerate()
                .filter_map(|(master, answer)| vote(&mut release, master, answer))
                .collect();
            let expected = expected(copies, &answers, was_lost);
            assert_eq!(outcomes, [expected], "{answers:?}");
            assert_eq!(release.outcome(), Some(expected));
            assert_eq!(release.time_out(), None);
            assert_left(&mut release, &answers);
        }
    }
}

/// Checks that exactly the masters without an acknowledgment are queried again.
fn assert_left(release: &mut Release, answers: &[Answer]) {
    let has_failed = |master: &usize| matches!(answers[*master].verdict, Verdict::Unknown(_));
    let failed: MasterSet = (0..answers.len()).filter(has_failed).collect();
    assert_eq!(release.unacknowledged(), failed);
    assert_eq!(release.is_over(), failed.is_empty());
    for master in 0..5 {
        assert_eq!(release.has_failed(master), failed.contains(master));
        assert_eq!(release.send_again(master), failed.contains(master));
        assert!(!release.has_failed(master) && !release.send_again(master));
    }
    for master in failed.iter() {
        assert!(!release.is_over());
        assert_eq!(vote(release, master, &not_ours()), None);
    }
    assert!(release.is_over() && release.unacknowledged().is_empty());
}

#[test]
fn it_is_done_as_soon_as_a_quorum_has_deleted_the_key() {
    let mut release = release_of(5, false);
    release.send();
    assert_eq!(vote(&mut release, 0, &Answer::granted()), None);
    assert_eq!(vote(&mut release, 1, &Answer::granted()), None);
    assert_eq!(vote(&mut release, 2, &Answer::granted()), Some(Released::Done));
    assert!(!release.is_over());
    assert_eq!(vote(&mut release, 3, &not_ours()), None);
    assert_eq!(vote(&mut release, 4, &Answer::granted()), None);
    assert!(release.is_over());
}

#[test]
fn late_release_is_answered_after_all_masters() {
    let mut release = release_of(5, true);
    release.send();
    for master in 0..4 {
        assert_eq!(vote(&mut release, master, &Answer::granted()), None);
    }
    assert_eq!(vote(&mut release, 4, &Answer::granted()), Some(Released::NotOurs));
}

#[test]
fn release_is_unconfirmed_after_the_node_timeout() {
    let mut release = release_of(5, false);
    release.send();
    vote(&mut release, 0, &Answer::granted());
    assert_eq!(release.time_out(), Some(Released::Unconfirmed));
    assert_eq!(release.answers()[1], LastAnswer::unknown(Cause::TimedOut));
    assert_eq!(release.answers()[0].latency, Some(ms(1)));
    assert!(!release.has_failed(1), "the request is still on its way");
}

#[test]
fn two_of_four_masters_without_the_key_mean_not_ours() {
    let mut release = Release::new(
        ledger(&[Answer::granted(), Answer::granted(), Answer::granted(), held()]),
        MasterSet::EMPTY,
        ms(1_100),
        false,
        at(0),
    );
    release.send();
    vote(&mut release, 0, &Answer::granted());
    vote(&mut release, 1, &Answer::granted());
    assert_eq!(vote(&mut release, 2, &not_ours()), Some(Released::NotOurs));
}

#[test]
fn a_master_that_refused_has_nothing_to_release() {
    let mut release = release_of(3, false);
    assert!(release.is_waiting());
    assert_eq!(release.send(), MasterSet::all(3));
    assert!(!release.is_waiting());
    assert_eq!(release.send(), MasterSet::EMPTY, "once");
    assert_eq!(release.left(4, at(0)), Some(Duration::ZERO));
    assert_eq!(release.answers()[4].verdict, Verdict::NotOurs);
}

// The late answer to the attempt.

#[test]
fn late_refusal_completes_the_release() {
    for answer in [held(), busy(), demoted(), unsent()] {
        let mut release = Release::new(Ledger::new(1), MasterSet::all(1), ms(1_100), false, at(0));
        assert_eq!(release.acquired(0, &answer), Some(Released::NotOurs), "{answer:?}");
        assert!(release.is_over() && !release.is_waiting());
        assert_eq!(release.acquired(0, &answer), None);
    }
}

#[test]
fn late_grant_or_silence_still_needs_a_release() {
    for answer in [Answer::granted(), closed()] {
        let mut release = Release::new(Ledger::new(1), MasterSet::all(1), ms(1_100), false, at(0));
        release.send();
        assert_eq!(release.acquired(0, &answer), None);
        assert_eq!(release.unacknowledged(), MasterSet::all(1), "{answer:?}");
        assert_eq!(vote(&mut release, 0, &Answer::granted()), Some(Released::Done));
    }
}

// Until when a key may be left.

/// A release that one master, which may still have a request in its buffers, did not get.
fn unsettled() -> Release {
    let mut release = Release::new(Ledger::new(1), MasterSet::EMPTY, ms(1_100), false, at(0));
    release.send();
    vote(&mut release, 0, &closed());
    assert_eq!(release.left(0, at(5_000)), None);
    release
}

#[test]
fn unsettled_key_has_no_known_expiry() {
    let mut release = unsettled();
    release.expire(at(100_000));
    assert!(release.has_failed(0));
    assert_eq!((release.left(0, at(100_000)), release.expiry()), (None, ms(1_100)));
}

#[test]
fn an_error_reply_shows_that_nothing_is_left_in_the_buffers() {
    let mut release = unsettled();
    release.send_again(0);
    release.vote(0, valid(&busy()), ms(1), at(200));
    assert_eq!(release.left(0, at(300)), Some(ms(1_000)));
    release.send_again(0);
    release.vote(0, valid(&busy()), ms(1), at(400));
    assert_eq!(release.left(0, at(500)), Some(ms(800)), "the first reply applies");
    release.send_again(0);
    release.vote(0, valid(&closed()), ms(1), at(600));
    assert_eq!(release.left(0, at(700)), Some(ms(600)), "silence changes nothing");
    release.expire(at(1_300));
    assert!(release.has_failed(0), "until then and no longer");
    release.expire(at(1_301));
    assert!(release.is_over());
}

#[test]
fn an_error_reply_after_the_key_has_expired_ends_it() {
    let mut release = release_of(5, false);
    release.send();
    assert_eq!(release.left(0, at(0)), Some(ms(1_100)));
    release.vote(0, valid(&busy()), ms(1), at(1_100));
    assert!(release.has_failed(0));
    release.send_again(0);
    release.vote(0, valid(&busy()), ms(1), at(1_101));
    assert!(!release.unacknowledged().contains(0));
}

#[test]
fn an_exited_process_no_longer_executes_requests() {
    let mut release = unsettled();
    release.process_ended(0, at(200));
    release.process_ended(0, at(900));
    assert_eq!(release.left(0, at(300)), Some(ms(1_000)), "the first end applies");
    let mut waiting = Release::new(Ledger::new(2), MasterSet::EMPTY, ms(1_100), false, at(0));
    waiting.process_ended(0, at(200));
    assert_eq!(waiting.left(0, at(300)), Some(ms(1_000)));
    waiting.send();
    waiting.process_ended(1, at(200));
    assert_eq!(waiting.left(1, at(300)), Some(ms(1_000)));
    assert_eq!(waiting.left(0, at(300)), Some(ms(1_000)));
    vote(&mut waiting, 0, &not_ours());
    waiting.process_ended(0, at(500));
    assert_eq!(waiting.left(0, at(500)), Some(Duration::ZERO));
}

#[test]
fn pending_releases_do_not_expire_and_abandoned_ones_end() {
    let mut release = release_of(5, false);
    release.expire(at(5_000));
    assert!(release.is_waiting());
    release.send();
    release.expire(at(5_000));
    assert_eq!(release.unacknowledged(), MasterSet::all(5));
    release.give_up(2);
    assert!(!release.unacknowledged().contains(2) && !release.send_again(2));
}

#[test]
fn only_an_error_is_a_denial() {
    assert!(is_denial(&busy()) && is_denial(&demoted()));
    assert!(!is_denial(&closed()) && !is_denial(&not_ours()) && !is_denial(&unsent()));
}

#[test]
fn lock_that_another_could_have_acquired_was_not_ours() {
    let granted = Answer::granted;
    let ledger = ledger(&[granted(), granted(), granted(), held(), held()]);
    let mut release = Release::new(ledger, MasterSet::EMPTY, ms(1_100), false, at(0));
    release.send();
    release.vote(0, valid(&granted()), ms(1), at(1));
    release.vote(1, valid(&granted()), ms(1), at(1));
    let released = release.vote(2, valid(&not_ours()), ms(1), at(1));
    assert_eq!(released, Some(Released::NotOurs), "three of five were free for another");
}

#[test]
fn masters_that_refused_are_known_free_of_the_key() {
    let granted = Answer::granted;
    let ledger = ledger(&[granted(), granted(), granted(), held(), held()]);
    let mut release = Release::new(ledger, MasterSet::EMPTY, ms(1_100), false, at(0));
    release.send();
    release.vote(0, valid(&granted()), ms(1), at(1));
    assert_eq!(
        release.vote(1, valid(&granted()), ms(1), at(1)),
        None,
        "another client may have had it"
    );
    assert_eq!(release.time_out(), Some(Released::Done));
}

#[test]
fn key_expires_on_a_master_that_got_no_later_request() {
    let mut ledger = ledger(&[Answer::granted()]);
    ledger.write(0, (&unsent()).into(), Duration::ZERO);
    let mut release = Release::new(ledger, MasterSet::EMPTY, ms(1_100), false, at(0));
    release.send();
    release.vote(0, valid(&unsent()), ms(0), at(0));
    assert_eq!(release.left(0, at(100)), Some(ms(1_000)));
}

/// Its runtime went away with the answer.
#[test]
fn reopened_release_waits_for_unacknowledged_masters() {
    let mut release = release_of(5, false);
    release.send();
    for master in 0..5 {
        let answer = if master < 2 { Answer::granted() } else { closed() };
        vote(&mut release, master, &answer);
    }
    assert_eq!(release.outcome(), Some(Released::Unconfirmed));
    assert!(release.reopen(), "they must be queried again");
    assert_eq!(release.outcome(), None);
    assert!(!release.reopen(), "they should already be queried");
    assert_eq!(release.send(), [2, 3, 4].into_iter().collect());
    assert_eq!(vote(&mut release, 2, &Answer::granted()), Some(Released::Done));
    assert!(!release.reopen(), "none has failed");
    assert_eq!(release.outcome(), Some(Released::Done));
}

#[test]
fn waiters_proceed_after_a_quorum_of_answers() {
    let mut release = release_of(5, false);
    release.send();
    for master in 0..5 {
        assert_eq!(release.is_answered(), master >= 3, "{master}");
        vote(&mut release, master, &closed());
    }
}

/// The driver's runtime went away after the request. The caller tries again, and keys that the
/// first request deleted no longer exist.
#[test]
fn key_possibly_deleted_by_the_first_request_was_ours() {
    let mut release = release_of(5, false);
    release.send();
    (0..5).for_each(|master| _ = vote(&mut release, master, &closed()));
    assert_eq!(release.outcome(), Some(Released::Unconfirmed));
    assert!(release.reopen());
    release.send();
    let answers = [not_ours(), not_ours(), not_ours(), Answer::granted(), Answer::granted()];
    let outcomes = answers.iter().enumerate();
    let outcomes: Vec<_> =
        outcomes.filter_map(|(master, answer)| vote(&mut release, master, answer)).collect();
    assert_eq!(outcomes, [Released::Done]);

    // A request that never left has deleted nothing.
    let mut release = release_of(5, false);
    release.send();
    (0..5).for_each(|master| _ = vote(&mut release, master, &unsent()));
    release.reopen();
    release.send();
    (0..5).for_each(|master| _ = vote(&mut release, master, &not_ours()));
    assert_eq!(release.outcome(), Some(Released::NotOurs));
}

#[test]
fn key_of_another_process_may_last_for_the_largest_max_ttl() {
    let mut release = release_of(3, false).of_another();
    release.masters_allow(ms(5_000));
    // A shorter one, and the same one, change nothing.
    for expiry in [300, 5_000] {
        release.masters_allow(ms(expiry));
        assert_eq!(release.expiry(), ms(5_000));
        assert_eq!(release.left(0, at(100)), Some(ms(4_900)));
    }
    // A failed request is measured from the same instant.
    release.send();
    vote(&mut release, 1, &closed());
    release.masters_allow(ms(6_000));
    assert_eq!([0, 1].map(|master| release.left(master, at(0))), [Some(ms(6_000)); 2]);
    assert_eq!(release.left(4, at(0)), Some(Duration::ZERO));
    let mut ours = release_of(3, false);
    ours.masters_allow(ms(5_000));
    assert_eq!((ours.expiry(), ours.left(0, at(0))), (ms(1_100), Some(ms(1_100))));
}

#[test]
fn release_waits_for_possible_holders_until_the_timeout() {
    let mut release = release_of(3, false);
    assert_eq!(release.pending(), MasterSet::all(3));
    release.send();
    vote(&mut release, 1, &Answer::granted());
    assert_eq!(release.pending(), MasterSet::from_iter([0, 2]));
    release.time_out();
    assert_eq!(release.pending(), MasterSet::EMPTY);
}

/// A quorum of a list that is too short has deleted the key, and others may still have it.
#[test]
fn masters_of_a_longer_list_do_not_confirm_a_release_by_token() {
    let lists = Lists::new(None, Names::default());
    let why = NotAdmitted::wrong_list(WhyNot::SetSize, lists);
    let counts = Counts::Not(Cause::NotAdmitted(why.into()));
    for (is_of_another, wanted) in [(true, Released::Unconfirmed), (false, Released::Done)] {
        let release = release_of(5, false);
        let mut release = if is_of_another { release.of_another() } else { release };
        release.send();
        let answer = Answer::granted();
        for master in 0..5 {
            release.vote(master, Judged { answer: &answer, counts: &counts }, ms(1), at(1));
        }
        assert_eq!(release.outcome(), Some(wanted));
        assert!(release.is_over(), "the keys are deleted");
        let is_shown = matches!(release.answers()[0].verdict, Verdict::Unknown(_));
        assert_eq!(is_shown, is_of_another);
    }
}
