//! A lease passes from caller to caller.

use redlock_core::Ballot;

use super::*;
use crate::ballot::proposals::Proof;
use crate::token::lease::hand_over::HAND_OVERS_MAX;

/// A lease of three masters that was granted at 0, with a ballot that may be handed out until
/// `until`.
fn proven(until: u64) -> HeldLease {
    let ballot = Ballot::new(5).unwrap();
    let proof = Some(Proof { ballot, until: at(until) });
    HeldLease { handing: Handing::new(at(0), proof), ..lease(3, 3, options(), at(0)) }
}

fn numbers(lease: &mut HeldLease, times: u8, now: Instant) -> Vec<u64> {
    let next = |_| lease.hand_on(options(), now).expect("it is handed on");
    (0..times).map(next).map(|it| it.token().unwrap().get()).collect()
}

#[test]
fn callers_get_consecutive_tokens_and_the_32nd_none() {
    let mut lease = proven(VALIDITY);
    let tokens = numbers(&mut lease, HAND_OVERS_MAX, at(10));
    assert_eq!(tokens, (5 * 32 + 1..=5 * 32 + 31).collect::<Vec<u64>>());
    assert_eq!(lease.hand_on(options(), at(10)), None, "the next number is another ballot's token");
    assert!(lease.deadline().is_some(), "it continues for the present holder");
}

#[test]
fn lease_is_handed_over_for_a_tenth_of_a_second() {
    let mut lease = proven(VALIDITY);
    assert!(lease.hand_on(options(), at(99)).is_some());
    assert_eq!(lease.hand_on(options(), at(100)), None);
}

#[test]
fn a_lost_lease_is_not_passed_on() {
    for end in [LostReason::Shutdown, LostReason::NotOurs] {
        let mut lease = proven(VALIDITY);
        lease.end(end);
        assert_eq!(lease.hand_on(options(), at(10)), None);
        assert_eq!(lease.reason(), end);
    }
    let mut lost = proven(VALIDITY);
    lost.disown(0, at(1));
    lost.disown(1, at(1));
    assert_eq!(lost.hand_on(options(), at(1)), None, "one of three masters is left");
    let mut lapsed = HeldLease { timing: timing(50), ..proven(VALIDITY) };
    lapsed.state = State::Valid(at(48));
    assert_eq!(lapsed.hand_on(options(), at(48)), None, "its time is over");
    assert_eq!(lapsed.reason(), LostReason::NotExtended);
}

#[test]
fn ballot_with_expired_acceptances_is_not_handed_over() {
    let mut lease = proven(20);
    assert!(lease.hand_on(options(), at(19)).is_some());
    assert_eq!(lease.hand_on(options(), at(20)), None);
}

#[test]
fn next_caller_gets_half_of_the_time_and_its_own_margin() {
    let margin = |stop_margin| HoldOptions { stop_margin: ms(stop_margin), ..options() };
    let left = VALIDITY - TTL / 2;
    let mut lease = proven(VALIDITY);
    assert_eq!(lease.hand_on(margin(left - 9), at(10)), None);
    assert!(lease.hand_on(margin(left - 10), at(10)).is_some());
    assert_eq!(lease.deadline(), Some(at(VALIDITY - left + 10)));
    assert!(lease.hand_on(options(), at(10)).is_some(), "the margin was the former holder's");
    assert_eq!(lease.deadline(), Some(at(VALIDITY)));
}

#[test]
fn next_caller_gets_its_min_copies() {
    let copies = |least| HoldOptions { min_copies: Some(least), ..options() };
    let mut lease = lease(3, 2, options(), at(0));
    assert_eq!(lease.hand_on(copies(3), at(1)), None);
    assert!(lease.hand_on(copies(2), at(1)).is_some());
}

#[test]
fn next_caller_is_extended_by_its_own_options() {
    let limited = |max_hold| HoldOptions { max_hold: Some(ms(max_hold)), ..options() };
    let mut lease = proven(VALIDITY);
    assert!(lease.hand_on(limited(300), at(50)).is_some());
    let due = lease.due().unwrap();
    assert!(lease.tick(due, 0.5).extend.is_some(), "{due:?} is not 300 ms after its beginning");
    let unkept = HoldOptions { auto_extend: false, ..options() };
    let mut lease = proven(VALIDITY);
    assert!(lease.hand_on(unkept, at(50)).is_some());
    assert_eq!(lease.due(), None);
    assert!(lease.hand_on(options(), at(50)).is_some());
    assert!(lease.due().is_some());
}
