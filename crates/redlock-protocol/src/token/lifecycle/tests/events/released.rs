//! Events during a release.

use super::*;

#[test]
fn release_waits_its_turn_and_ends_when_all_have_answered() {
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
fn release_given_up_on_every_master_is_decided_in_turn() {
    let mut token = released();
    for master in 0..3 {
        token.on(Event::GivenUp(master), at(2));
    }
    assert_eq!(token.on(Event::Turn, at(2)), Step::Released);
}

#[test]
fn unacknowledged_release_is_retried() {
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
fn expired_or_abandoned_keys_need_no_release() {
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
