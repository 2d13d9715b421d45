//! One lease, event by event.

mod copies;
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
fn extension_skips_masters_with_an_unanswered_first_request() {
    let mut lease = lease(3, 2, options(), at(0));
    lease.attempt_timed_out();
    assert_eq!(lease.ledger().answer(2).verdict, Verdict::Unknown(Cause::TimedOut));
    assert_eq!(lease.ledger().answer(1).verdict, Verdict::Granted);
    assert_eq!(keep(&mut lease, at(400)).masters, set([0, 1]));
}

#[test]
fn older_refusal_does_not_hide_a_pending_readd() {
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
fn extension_skips_masters_with_an_unanswered_readd() {
    let mut lease = lease(3, 3, options(), at(0));
    let first = keep(&mut lease, at(400)).number;
    all_answer(&mut lease, first, [0, 1], &Answer::granted(), at(400));
    all_answer(&mut lease, first, [2], &not_ours(), at(400));
    assert_eq!(keep(&mut lease, at(800)).masters, set([0, 1]));
    lease.readded(2, &closed(), at(400), at(810));
    assert_eq!(lease.unanswered(), set([0, 1]));
}

#[test]
fn first_extension_is_due_before_a_large_stop_margin() {
    let options = HoldOptions { stop_margin: ms(800), ..options() };
    let mut lease = lease(3, 3, options, at(0));
    assert_eq!(lease.deadline(), Some(at(VALIDITY - 800)));
    let due = lease.due().unwrap();
    assert!(due < lease.deadline().unwrap(), "{due:?}");
    assert!(lease.tick(due, 0.5).extend.is_some());
}

#[test]
fn earlier_vote_does_not_cancel_the_extension_after_lost_data() {
    let mut lease = lease(5, 5, options(), at(0));
    let first = keep(&mut lease, at(400)).number;
    all_answer(&mut lease, first, 0..4, &Answer::granted(), at(400));
    lease.disown(0, at(500));
    all_answer(&mut lease, first, [4], &Answer::granted(), at(500));
    assert_eq!(lease.due(), Some(at(500)));
}

#[test]
fn slow_master_does_not_delay_the_readd_elsewhere_for_long() {
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
fn invalid_grant_after_the_deadline_readds_no_key() {
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
fn invalid_grant_is_shown_as_unknown() {
    let mut lease = lease(3, 3, options(), at(0));
    let number = keep(&mut lease, at(400)).number;
    lease.extended(number, 0, uncounted(&Answer::granted()), at(400), at(407));
    let shown = lease.ledger().answer(0);
    assert_eq!((&shown.verdict, shown.latency), (&Verdict::Unknown(checked()), Some(ms(7))));
}

#[test]
fn copy_on_a_voting_master_is_confirmed_once() {
    let mut lease = lease(5, 3, options(), at(0));
    for master in [3, 4] {
        lease.acquired(master, uncounted(&Answer::granted()), at(0), at(1));
    }
    assert_eq!(lease.confirm_copy(0, at(10)), Step::default(), "that one is used");
    let Extend { number, masters } = lease.confirm_copy(3, at(10)).extend.unwrap();
    assert_eq!(masters, set([3]));
    assert_eq!(lease.confirm_copy(3, at(11)), Step::default(), "it is queried");
    let due = lease.due();
    lease.extended(number, 3, &Answer::granted(), at(10), at(12));
    assert_eq!((lease.ledger().hold_until(3), lease.due()), (at(10 + VALIDITY), due));
    lease.disown(0, at(20));
    assert_eq!(lease.deadline(), Some(at(VALIDITY)), "1, 2 and 3 hold it");
    let number = lease.confirm_copy(4, at(30)).extend.unwrap().number;
    assert_eq!(all_answer(&mut lease, number, [4], &held(), at(31))[0], Step::default());
    assert_eq!(lease.confirm_copy(4, at(40)), Step::default(), "it has another client's key");
}

#[test]
fn copies_are_not_confirmed_without_a_keeper() {
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
fn deadline_is_the_quorum_th_largest_confirmation() {
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
fn late_grant_is_valid_for_the_originally_requested_time() {
    for ttl in [400, 3_000] {
        let mut lease = lease(5, 3, options(), at(0));
        lease.extend(timing(ttl));
        lease.acquired(3, &Answer::granted(), at(0), at(60));
        assert_eq!(lease.ledger().hold_until(3), at(VALIDITY));
    }
}

#[test]
fn readded_key_is_valid_for_the_shortest_requested_time() {
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
fn extension_confirms_its_requested_time() {
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
fn no_answer_revives_an_expired_lease() {
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
fn late_readd_does_not_extend_the_lease() {
    let mut lease = lease(3, 3, options(), at(0));
    let number = keep(&mut lease, at(400)).number;
    all_answer(&mut lease, number, [0], &Answer::granted(), at(400));
    all_answer(&mut lease, number, [1], &not_ours(), at(400));
    assert_eq!(lease.tick(at(450), 0.5).readd, set([1]));
    lease.readded(1, &Answer::granted(), at(450), at(VALIDITY));
    assert_eq!(lease.deadline(), None);
}

#[test]
fn tick_detects_a_passed_deadline() {
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
fn first_reason_of_an_ended_lease_is_kept() {
    let mut lease = lease(3, 3, options(), at(0));
    lease.end(LostReason::Shutdown);
    lease.end(LostReason::Released);
    assert_eq!((lease.deadline(), lease.due()), (None, None));
    assert_eq!(lease.reason(), LostReason::Shutdown);
}

// The remaining life of the key.

#[test]
fn key_expires_one_ttl_after_the_last_answer() {
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
fn late_and_readded_copies_expire_after_one_ttl() {
    let mut lease = lease(3, 2, options(), at(0));
    assert_eq!(lease.left(2, at(0)), None);
    lease.acquired(2, &Answer::granted(), at(0), at(100));
    assert_eq!(lease.left(2, at(100)), Some(ms(1_100)));
    lease.readded(2, &Answer::granted(), at(100), at(200));
    assert_eq!(lease.left(2, at(200)), Some(ms(1_100)));
}

/// As a lease that is taken over gets it: the score comes with the refusal.
#[test]
fn late_refused_ballot_with_a_score_adds_a_copy() {
    let refused = Answer::new(Verdict::BallotRefused);
    let mut lease = lease(3, 2, options(), at(0));
    let mut unscored = lease.clone();
    let scored = refused.clone().with_ballot(redlock_core::Balloted::Score(95));
    lease.acquired(2, &scored, at(0), at(9));
    assert_eq!(lease.ledger().hold_until(2), at(VALIDITY));
    unscored.acquired(2, &refused, at(0), at(9));
    assert_eq!(unscored.ledger().hold_until(2), Instant::ORIGIN, "it has shown no ballots");
}
