//! Evidence that a master lost its copy, and keys added again.

use super::*;

#[test]
fn refusals_and_demotions_disown_and_unknown_answers_do_not() {
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
fn lost_data_does_not_hurry_a_busy_or_disabled_keeper() {
    let mut asked = lease(3, 3, options(), at(0));
    keep(&mut asked, at(400));
    asked.disown(0, at(410));
    assert_eq!(asked.due(), Some(at(400 + NODE_TIMEOUT)));
    let mut off = lease(3, 3, HoldOptions { auto_extend: false, ..options() }, at(0));
    off.disown(0, at(10));
    assert_eq!(off.due(), None);
}

#[test]
fn masters_may_hold_the_key_unless_they_refused_it_last() {
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
fn keys_are_readded_after_a_quorum_confirms_the_lease() {
    let mut lease = lease(3, 3, options(), at(0));
    let number = keep(&mut lease, at(400)).number;
    assert_eq!(all_answer(&mut lease, number, [0], &not_ours(), at(401))[0].readd, set([]));
    assert_eq!(all_answer(&mut lease, number, [1], &Answer::granted(), at(401))[0].readd, set([]));
    let steps = all_answer(&mut lease, number, [2], &Answer::granted(), at(401));
    assert_eq!(steps[0].readd, set([0]));
    assert!(lease.ledger().may_hold().contains(0));
}

#[test]
fn lost_lease_readds_no_keys() {
    let mut lease = lease(3, 3, options(), at(0));
    let number = keep(&mut lease, at(400)).number;
    let steps = all_answer(&mut lease, number, 0..3, &not_ours(), at(401));
    assert!(steps.iter().all(|step| step.readd.is_empty()));
    assert!(lease.ledger().may_hold().is_empty());
}

#[test]
fn key_is_not_readded_where_another_holds_it() {
    let mut lease = lease(3, 3, options(), at(0));
    let number = keep(&mut lease, at(400)).number;
    all_answer(&mut lease, number, [0], &held(), at(401));
    let steps = all_answer(&mut lease, number, 1..3, &Answer::granted(), at(401));
    assert!(steps.iter().all(|step| step.readd.is_empty()));
}

#[test]
fn readded_key_can_be_lost_and_readded_again() {
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
fn readded_key_moves_the_deadline_and_the_next_extension() {
    let mut lease = lease(3, 3, options(), at(0));
    let number = keep(&mut lease, at(400)).number;
    all_answer(&mut lease, number, [0], &Answer::granted(), at(400));
    all_answer(&mut lease, number, [1], &not_ours(), at(400));
    assert_eq!(lease.tick(at(450), 0.5).readd, set([1]));
    lease.readded(1, &Answer::granted(), at(450), at(460));
    assert_eq!(lease.deadline(), Some(at(400 + VALIDITY)));
    assert_eq!(lease.due(), Some(at(400 + TTL / 3).saturating_add(ms(1) / 3)));
}
