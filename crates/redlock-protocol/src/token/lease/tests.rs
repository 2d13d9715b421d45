//! One lease, event by event.

mod hand_over;
mod keeper;

use redlock_core::{Answer, Cause};

use super::*;
use crate::lab::*;

fn options() -> HoldOptions {
    HoldOptions::default()
}

/// Every master of `masters` answers the extension `number`, sent and answered at `now`.
fn all_answer(
    lease: &mut HeldLease,
    number: u32,
    masters: impl IntoIterator<Item = usize>,
    answer: &Answer,
    now: Instant,
) -> Vec<Step> {
    let vote = |master| lease.extended(number, master, answer, now, now);
    masters.into_iter().map(vote).collect()
}

/// The extension that the keeper sends at `now`.
fn keep(lease: &mut HeldLease, now: Instant) -> Extend {
    lease.tick(now, 0.5).extend.expect("an extension is due")
}

fn set(masters: impl IntoIterator<Item = usize>) -> MasterSet {
    masters.into_iter().collect()
}

#[test]
fn a_master_that_has_not_answered_the_first_request_is_not_asked_again() {
    let mut lease = lease(3, 2, options(), at(0));
    lease.attempt_timed_out();
    assert_eq!(lease.ledger().answer(2).verdict, Verdict::Unknown(Cause::TimedOut));
    assert_eq!(lease.ledger().answer(1).verdict, Verdict::Granted);
    assert_eq!(keep(&mut lease, at(400)).masters, set([0, 1]));
}

#[test]
fn an_older_refusal_does_not_hide_that_the_key_is_being_given_back() {
    let mut lease = lease(3, 3, options(), at(0));
    let first = keep(&mut lease, at(400)).number;
    let second = lease.extend(timing(TTL)).number;
    all_answer(&mut lease, first, [0, 1], &Answer::granted(), at(401));
    let steps = all_answer(&mut lease, first, [2], &not_ours(), at(401));
    assert_eq!(steps[0].readd, set([2]));
    let steps = all_answer(&mut lease, second, [2], &not_ours(), at(402));
    assert_eq!(steps[0].readd, MasterSet::EMPTY);
    assert!(lease.ledger().may_hold().contains(2), "the key is on its way there");
    assert!(lease.unanswered().contains(2));
    let steps = all_answer(&mut lease, second, [0, 1], &Answer::granted(), at(402));
    assert_eq!(steps[1].readd, MasterSet::EMPTY, "it is on its way already");
}

#[test]
fn a_master_that_has_not_answered_to_its_key_is_not_asked_again() {
    let mut lease = lease(3, 3, options(), at(0));
    let first = keep(&mut lease, at(400)).number;
    all_answer(&mut lease, first, [0, 1], &Answer::granted(), at(400));
    all_answer(&mut lease, first, [2], &not_ours(), at(400));
    assert_eq!(keep(&mut lease, at(800)).masters, set([0, 1]));
    lease.readded(2, &closed(), at(400), at(810));
    assert_eq!(lease.unanswered(), set([0, 1]));
}

#[test]
fn a_margin_to_stop_does_not_outlast_the_first_extension() {
    let options = HoldOptions { stop_margin: ms(800), ..options() };
    let mut lease = lease(3, 3, options, at(0));
    assert_eq!(lease.deadline(), Some(at(VALIDITY - 800)));
    let due = lease.due().unwrap();
    assert!(due < lease.deadline().unwrap(), "{due:?}");
    assert!(lease.tick(due, 0.5).extend.is_some());
}

#[test]
fn the_extension_behind_lost_data_is_not_called_off_by_an_earlier_vote() {
    let mut lease = lease(5, 5, options(), at(0));
    let first = keep(&mut lease, at(400)).number;
    all_answer(&mut lease, first, 0..4, &Answer::granted(), at(400));
    lease.disown(0, at(500));
    all_answer(&mut lease, first, [4], &Answer::granted(), at(500));
    assert_eq!(lease.due(), Some(at(500)));
}

#[test]
fn a_slow_master_does_not_keep_the_key_from_one_that_lost_its_data() {
    let mut lease = lease(5, 4, options(), at(0));
    lease.acquired(4, &unsent(), at(0), at(0));
    lease.disown(0, at(100));
    let extend = keep(&mut lease, at(100));
    let steps = all_answer(&mut lease, extend.number, [0, 4], &not_ours(), at(101));
    assert_eq!(steps[1].readd, MasterSet::EMPTY);
    all_answer(&mut lease, extend.number, [1, 2], &Answer::granted(), at(102));
    assert_eq!(lease.tick(at(100 + NODE_TIMEOUT), 0.5).readd, set([0, 4]));
}

/// A lease that lapses at 988. Its holder requested an extension at 980, which only master 2 has
/// not answered. Master 0 has no key.
fn extended_late() -> (HeldLease, u32) {
    let mut lease = lease(3, 3, HoldOptions { auto_extend: false, ..options() }, at(0));
    let number = lease.extend(timing(TTL)).number;
    assert_eq!(lease.extended(number, 0, &not_ours(), at(980), at(981)).readd, set([]));
    assert_eq!(lease.extended(number, 1, &busy(), at(980), at(986)).readd, set([]));
    (lease, number)
}

#[test]
fn a_grant_that_does_not_count_gives_no_key_back_after_the_deadline() {
    let (mut lease, number) = extended_late();
    let step = lease.extended(number, 2, uncounted(&Answer::granted()), at(980), at(990));
    assert_eq!((step.readd, lease.deadline()), (set([]), None));
}

#[test]
fn a_cancelled_extension_is_neither_awaited_nor_timed_out() {
    let mut lease = lease(3, 3, options(), at(0));
    let number = keep(&mut lease, at(400)).number;
    all_answer(&mut lease, number, 0..2, &Answer::granted(), at(400));
    let step = all_answer(&mut lease, number, [2], &not_ours(), at(400))[0];
    assert_eq!((step.readd, lease.unanswered()), (set([2]), set([2])));
    assert_eq!(lease.call_off(step), Step::default());
    assert!(lease.unanswered().is_empty());
    let due = lease.due().unwrap();
    let step = lease.tick(due, 0.5);
    assert!(step.extend.is_some());
    assert_eq!(lease.call_off(step), Step::default());
    assert!(lease.unanswered().is_empty());
}

#[test]
fn a_grant_that_does_not_count_is_shown_as_what_it_counts_as() {
    let mut lease = lease(3, 3, options(), at(0));
    let number = keep(&mut lease, at(400)).number;
    lease.extended(number, 0, uncounted(&Answer::granted()), at(400), at(407));
    let shown = lease.ledger().answer(0);
    assert_eq!((&shown.verdict, shown.latency), (&Verdict::Unknown(checked()), Some(ms(7))));
}

#[test]
fn a_copy_on_a_master_that_votes_again_is_confirmed_there_alone_and_once() {
    let mut lease = lease(5, 3, options(), at(0));
    for master in [3, 4] {
        lease.acquired(master, uncounted(&Answer::granted()), at(0), at(1));
    }
    assert_eq!(lease.confirm_copy(0, at(10)), Step::default(), "that one counts");
    let Extend { number, masters } = lease.confirm_copy(3, at(10)).extend.unwrap();
    assert_eq!(masters, set([3]));
    assert_eq!(lease.confirm_copy(3, at(11)), Step::default(), "it is asked");
    let due = lease.due();
    lease.extended(number, 3, &Answer::granted(), at(10), at(12));
    assert_eq!((lease.ledger().hold_until(3), lease.due()), (at(10 + VALIDITY), due));
    lease.disown(0, at(20));
    assert_eq!(lease.deadline(), Some(at(VALIDITY)), "1, 2 and 3 hold it");
    let number = lease.confirm_copy(4, at(30)).extend.unwrap().number;
    assert_eq!(all_answer(&mut lease, number, [4], &held(), at(31))[0], Step::default());
    assert_eq!(lease.confirm_copy(4, at(40)), Step::default(), "it has another's");
}

#[test]
fn a_lease_without_a_keeper_is_not_confirmed_either() {
    let switched_off = HoldOptions { auto_extend: false, ..options() };
    let over = HoldOptions { max_hold: Some(ms(5)), ..options() };
    for options in [switched_off, over] {
        let mut lease = lease(3, 2, options, at(0));
        lease.acquired(2, uncounted(&Answer::granted()), at(0), at(1));
        assert_eq!(lease.confirm_copy(2, at(10)), Step::default());
    }
    let mut lease = lease(3, 2, options(), at(0));
    lease.acquired(2, uncounted(&Answer::granted()), at(0), at(1));
    assert_eq!(lease.confirm_copy(2, at(VALIDITY)), Step::default(), "it is over");
}

// The deadline.

#[test]
fn the_deadline_is_the_time_of_the_quorum_th_largest_confirmation() {
    let mut lease = lease(5, 3, options(), at(0));
    assert_eq!(lease.deadline(), Some(at(VALIDITY)));
    let number = lease.extend(timing(TTL)).number;
    lease.extended(number, 0, &Answer::granted(), at(100), at(101));
    lease.extended(number, 1, &Answer::granted(), at(200), at(201));
    assert_eq!(lease.deadline(), Some(at(VALIDITY)), "two have confirmed");
    lease.extended(number, 2, &Answer::granted(), at(150), at(202));
    assert_eq!(lease.deadline(), Some(at(100 + VALIDITY)));
}

#[test]
fn a_late_grant_counts_for_as_long_as_it_was_asked_for() {
    for ttl in [400, 3_000] {
        let mut lease = lease(5, 3, options(), at(0));
        lease.extend(timing(ttl));
        lease.acquired(3, &Answer::granted(), at(0), at(60));
        assert_eq!(lease.ledger().hold_until(3), at(VALIDITY));
    }
}

#[test]
fn a_key_that_is_given_back_counts_for_the_shortest_time_that_was_asked_for() {
    for (ttl, validity) in [(400, 394), (3_000, VALIDITY)] {
        let mut lease = lease(3, 3, options(), at(0));
        let number = lease.extend(timing(ttl)).number;
        all_answer(&mut lease, number, [0, 1], &Answer::granted(), at(10));
        assert_eq!(all_answer(&mut lease, number, [2], &not_ours(), at(10))[0].readd, set([2]));
        lease.readded(2, &Answer::granted(), at(10), at(20));
        assert_eq!(lease.ledger().hold_until(2), at(10 + validity));
    }
}

#[test]
fn an_extension_confirms_the_time_that_it_asked_for() {
    let mut lease = lease(3, 3, options(), at(0));
    let short = lease.extend(timing(TTL)).number;
    let long = lease.extend(timing(3_000)).number;
    all_answer(&mut lease, short, 0..3, &Answer::granted(), at(100));
    assert_eq!(lease.deadline(), Some(at(100 + VALIDITY)));
    all_answer(&mut lease, long, 0..3, &Answer::granted(), at(100));
    assert_eq!(lease.deadline(), Some(at(100 + 2_968)));
    assert_eq!((lease.timing(), lease.expiry()), (timing(3_000), ms(3_300)));
    lease.extend(timing(TTL));
    assert_eq!((lease.timing(), lease.expiry()), (timing(TTL), ms(3_300)));
}

#[test]
fn no_answer_revives_a_lease_whose_deadline_has_passed() {
    let mut lease = lease(3, 3, options(), at(0));
    let number = keep(&mut lease, at(400)).number;
    all_answer(&mut lease, number, [0], &Answer::granted(), at(500));
    let steps = all_answer(&mut lease, number, [1, 2], &Answer::granted(), at(VALIDITY));
    assert_eq!((lease.deadline(), lease.due()), (None, None));
    assert_eq!(lease.reason(), LostReason::NotExtended);
    assert!(steps.iter().all(|step| *step == Step::default()));
    lease.readded(1, &Answer::granted(), at(VALIDITY), at(VALIDITY));
    lease.acquired(2, &Answer::granted(), at(VALIDITY), at(VALIDITY));
    lease.end(LostReason::Released);
    assert_eq!((lease.deadline(), lease.reason()), (None, LostReason::NotExtended));
}

#[test]
fn a_key_that_is_given_back_too_late_does_not_count() {
    let mut lease = lease(3, 3, options(), at(0));
    let number = keep(&mut lease, at(400)).number;
    all_answer(&mut lease, number, [0], &Answer::granted(), at(400));
    all_answer(&mut lease, number, [1], &not_ours(), at(400));
    assert_eq!(lease.tick(at(450), 0.5).readd, set([1]));
    lease.readded(1, &Answer::granted(), at(450), at(VALIDITY));
    assert_eq!(lease.deadline(), None);
}

#[test]
fn a_tick_finds_that_the_deadline_has_passed() {
    let mut lease = lease(3, 3, options(), at(0));
    assert_eq!(lease.tick(at(VALIDITY - 1), 0.5).extend.map(|one| one.masters), Some(set(0..3)));
    assert_eq!(lease.tick(at(VALIDITY), 0.5), Step::default());
    assert_eq!((lease.deadline(), lease.reason()), (None, LostReason::NotExtended));
}

#[test]
fn the_margin_is_taken_off_every_deadline() {
    let options = HoldOptions { stop_margin: ms(300), ..options() };
    let mut lease = lease(3, 3, options, at(0));
    assert_eq!((lease.deadline(), lease.stop_margin()), (Some(at(VALIDITY - 300)), ms(300)));
    let number = lease.extend(timing(TTL)).number;
    all_answer(&mut lease, number, 0..3, &Answer::granted(), at(100));
    assert_eq!(lease.deadline(), Some(at(VALIDITY - 200)));
}

#[test]
fn a_lease_that_is_given_up_stays_so_for_the_first_reason() {
    let mut lease = lease(3, 3, options(), at(0));
    lease.end(LostReason::Shutdown);
    lease.end(LostReason::Released);
    assert_eq!((lease.deadline(), lease.due()), (None, None));
    assert_eq!(lease.reason(), LostReason::Shutdown);
}

// Evidence.

#[test]
fn a_refusal_and_a_demotion_disown_and_an_unknown_answer_changes_nothing() {
    for (answer, counts) in [
        (not_ours(), false),
        (held(), false),
        (demoted(), false),
        (busy(), true),
        (closed(), true),
        (unsent(), true),
    ] {
        let mut lease = lease(3, 3, options(), at(0));
        let number = keep(&mut lease, at(400)).number;
        all_answer(&mut lease, number, [0], &answer, at(401));
        let until = if counts { at(VALIDITY) } else { Instant::ORIGIN };
        assert_eq!(lease.ledger().hold_until(0), until, "{answer:?}");
        assert_eq!(lease.deadline(), Some(at(VALIDITY)), "two are left");
        all_answer(&mut lease, number, [1], &answer, at(402));
        let lost = (lease.deadline(), lease.reason());
        let expected = match counts {
            true => (Some(at(VALIDITY)), LostReason::NotExtended),
            false => (None, LostReason::NotOurs),
        };
        assert_eq!(lost, expected, "{answer:?}");
    }
}

#[test]
fn lost_data_moves_the_deadline_and_extends_immediately() {
    let mut lease = lease(5, 4, options(), at(0));
    lease.acquired(4, &unsent(), at(0), at(1));
    let number = lease.extend(timing(TTL)).number;
    all_answer(&mut lease, number, 0..3, &Answer::granted(), at(100));
    assert_eq!(lease.deadline(), Some(at(100 + VALIDITY)));
    lease.disown(0, at(150));
    assert_eq!((lease.deadline(), lease.due()), (Some(at(VALIDITY)), Some(at(150))));
    lease.disown(1, at(160));
    assert_eq!((lease.deadline(), lease.reason()), (None, LostReason::DataLost));
}

#[test]
fn lost_data_does_not_hurry_a_keeper_that_has_asked_or_is_off() {
    let mut asked = lease(3, 3, options(), at(0));
    keep(&mut asked, at(400));
    asked.disown(0, at(410));
    assert_eq!(asked.due(), Some(at(400 + NODE_TIMEOUT)));
    let mut off = lease(3, 3, HoldOptions { auto_extend: false, ..options() }, at(0));
    off.disown(0, at(10));
    assert_eq!(off.due(), None);
}

#[test]
fn the_masters_that_may_hold_the_key_are_those_that_did_not_refuse_it_last() {
    let mut lease = lease(5, 3, options(), at(0));
    lease.acquired(3, &held(), at(0), at(1));
    lease.acquired(4, &closed(), at(0), at(1));
    assert_eq!(lease.ledger().may_hold(), set([0, 1, 2, 4]));
    let number = lease.extend(timing(TTL)).number;
    all_answer(&mut lease, number, [0, 1, 2], &Answer::granted(), at(2));
    assert_eq!(all_answer(&mut lease, number, [3], &not_ours(), at(2))[0].readd, set([3]));
    all_answer(&mut lease, number, [4], &held(), at(2));
    assert_eq!(lease.ledger().may_hold(), set([0, 1, 2, 3]));
    lease.readded(3, &held(), at(2), at(3));
    assert_eq!(lease.ledger().may_hold(), set([0, 1, 2, 3]), "an earlier request may have set it");
}

// Keys added again on masters that lost them.

#[test]
fn keys_are_given_back_once_it_is_certain_that_the_lease_lasts() {
    let mut lease = lease(3, 3, options(), at(0));
    let number = keep(&mut lease, at(400)).number;
    assert_eq!(all_answer(&mut lease, number, [0], &not_ours(), at(401))[0].readd, set([]));
    assert_eq!(all_answer(&mut lease, number, [1], &Answer::granted(), at(401))[0].readd, set([]));
    let steps = all_answer(&mut lease, number, [2], &Answer::granted(), at(401));
    assert_eq!(steps[0].readd, set([0]));
    assert!(lease.ledger().may_hold().contains(0));
}

#[test]
fn a_lease_that_is_lost_with_the_next_answer_gives_nothing_back() {
    let mut lease = lease(3, 3, options(), at(0));
    let number = keep(&mut lease, at(400)).number;
    let steps = all_answer(&mut lease, number, 0..3, &not_ours(), at(401));
    assert!(steps.iter().all(|step| step.readd.is_empty()));
    assert!(lease.ledger().may_hold().is_empty());
}

#[test]
fn a_master_that_another_holds_is_not_given_our_key() {
    let mut lease = lease(3, 3, options(), at(0));
    let number = keep(&mut lease, at(400)).number;
    all_answer(&mut lease, number, [0], &held(), at(401));
    let steps = all_answer(&mut lease, number, 1..3, &Answer::granted(), at(401));
    assert!(steps.iter().all(|step| step.readd.is_empty()));
}

#[test]
fn a_key_that_was_given_back_can_be_lost_and_given_back_again() {
    let mut lease = lease(3, 3, options(), at(0));
    for now in [400, 800] {
        let number = keep(&mut lease, at(now)).number;
        all_answer(&mut lease, number, 0..2, &Answer::granted(), at(now));
        assert_eq!(all_answer(&mut lease, number, [2], &not_ours(), at(now))[0].readd, set([2]));
        lease.readded(2, &Answer::granted(), at(now), at(now + 1));
        assert_eq!(lease.ledger().hold_until(2), at(now + VALIDITY));
        assert!(lease.unanswered().is_empty());
    }
}

#[test]
fn a_key_that_is_given_back_can_move_the_lease_and_with_it_the_next_extension() {
    let mut lease = lease(3, 3, options(), at(0));
    let number = keep(&mut lease, at(400)).number;
    all_answer(&mut lease, number, [0], &Answer::granted(), at(400));
    all_answer(&mut lease, number, [1], &not_ours(), at(400));
    assert_eq!(lease.tick(at(450), 0.5).readd, set([1]));
    lease.readded(1, &Answer::granted(), at(450), at(460));
    assert_eq!(lease.deadline(), Some(at(400 + VALIDITY)));
    assert_eq!(lease.due(), Some(at(400 + TTL / 3).saturating_add(ms(1) / 3)));
}

// The remaining life of the key.

#[test]
fn the_key_lives_for_one_life_from_when_a_master_has_answered_last() {
    let mut lease = lease(3, 3, options(), at(0));
    let left = |lease: &HeldLease, now| [0, 1, 2].map(|master| lease.left(master, at(now)));
    assert_eq!(left(&lease, 100), [Some(ms(1_000)); 3]);
    assert_eq!(left(&lease, 1_100), [Some(ms(0)); 3]);
    let number = lease.extend(timing(TTL)).number;
    assert_eq!(left(&lease, 200), [None; 3], "they may set it later");
    lease.extended(number, 0, &Answer::granted(), at(200), at(300));
    lease.extended(number, 1, &closed(), at(200), at(310));
    assert_eq!(left(&lease, 410), [Some(ms(1_000)), None, None]);
    lease.extended(number, 2, &Answer::granted(), at(200), at(320));
    lease.process_ended(1, at(500));
    assert_eq!(left(&lease, 600), [Some(ms(1_000)); 3]);
    lease.end(LostReason::NotExtended);
    assert_eq!(left(&lease, 1_600), [Some(ms(0)); 3]);
}

#[test]
fn a_late_copy_and_one_that_was_given_back_live_for_one_life_too() {
    let mut lease = lease(3, 2, options(), at(0));
    assert_eq!(lease.left(2, at(0)), None);
    lease.acquired(2, &Answer::granted(), at(0), at(100));
    assert_eq!(lease.left(2, at(100)), Some(ms(1_100)));
    lease.readded(2, &Answer::granted(), at(100), at(200));
    assert_eq!(lease.left(2, at(200)), Some(ms(1_100)));
}

/// As a lease that is taken over gets it: the score comes with the refusal.
#[test]
fn a_late_refusal_of_a_ballot_that_shows_its_score_is_one_more_copy() {
    let refused = Answer::new(Verdict::BallotRefused);
    let mut lease = lease(3, 2, options(), at(0));
    let mut unscored = lease.clone();
    let scored = refused.clone().with_ballot(redlock_core::Balloted::Score(95));
    lease.acquired(2, &scored, at(0), at(9));
    assert_eq!(lease.ledger().hold_until(2), at(VALIDITY));
    unscored.acquired(2, &refused, at(0), at(9));
    assert_eq!(unscored.ledger().hold_until(2), Instant::ORIGIN, "it has shown no ballots");
}
