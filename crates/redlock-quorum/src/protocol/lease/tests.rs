//! One lease, event by event.

use super::super::lab::*;
use super::*;

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

/// What the keeper sends at `now`.
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
