//! Events of a held lock.

use super::*;

#[test]
fn an_untaken_lease_is_released_unless_it_was_resumed() {
    assert_eq!(held_lock().on(Event::Untaken, at(2)), Step::Release);
    let mut token = resumed();
    for master in 0..2 {
        first(&mut token, master, &Answer::granted());
    }
    assert!(lease(&token).deadline().is_some());
    assert_eq!(token.clone().on(Event::Untaken, at(2)), Step::Gone);
    assert_eq!(token.clone().on(Event::HandOn(HoldOptions::default()), at(2)), Step::Wait);
    assert_eq!(token.on(Event::Returned { was_lost: false }, at(2)), Step::Release);
    let mut ours = held_lock();
    assert!(matches!(ours.on(Event::HandOn(HoldOptions::default()), at(2)), Step::HandedOn(_)));
    assert_eq!(ours.on(Event::GivenAway, at(2)), Step::Gone);
    assert!(ours.is_over());
}

#[test]
fn answers_to_extensions_move_the_deadline() {
    let mut token = whole();
    let extend = kept(&mut token);
    for master in 0..2 {
        let granted = Answer::granted();
        let answer = Answered {
            to: Asked::Extension(extend.number),
            master,
            judged: (&granted).into(),
            sent_at: at(400),
        };
        hold(token.on(Event::Answered(answer), at(401)));
    }
    assert_eq!(lease(&token).deadline(), Some(at(400 + VALIDITY)));
}

#[test]
fn readded_key_is_valid_after_the_master_confirms() {
    let mut token = whole();
    let extend = kept(&mut token);
    let to = Asked::Extension(extend.number);
    for master in 0..2 {
        hold(token.on(answered(to, master, &Answer::granted()), at(401)));
    }
    let step = hold(token.on(answered(to, 2, &not_ours()), at(401)));
    assert_eq!(step.readd, set([2]));
    let granted = Answer::granted();
    let judged = (&granted).into();
    let answer = Answered { to: Asked::Readd, master: 2, judged, sent_at: at(402) };
    hold(token.on(Event::Answered(answer), at(403)));
    assert_eq!(lease(&token).ledger().hold_until(2), at(402 + VALIDITY));
}

#[test]
fn silent_masters_are_recorded_as_timed_out() {
    let mut token = held_lock();
    hold(token.on(Event::AttemptTimedOut, at(50)));
    assert_eq!(lease(&token).ledger().answer(2).verdict, Verdict::Unknown(Cause::TimedOut));
    let extend = hold(token.on(Event::Extend(timing(2 * TTL)), at(60))).extend.unwrap();
    assert_eq!(extend.masters, set([0, 1, 2]), "it requests the longer time");
    let step = hold(token.on(Event::ExtensionTimedOut(extend.number), at(120)));
    assert_eq!(step.extended, Some((extend.number, Extended::NoQuorum)));
}

#[test]
fn lease_ends_if_too_few_certain_copies_are_left() {
    let mut disowned = held_lock();
    hold(disowned.on(Event::Disowned(0, checked()), at(2)));
    assert_eq!(lease(&disowned).deadline(), None);
    assert_eq!(lease(&disowned).reason(), LostReason::DataLost);
    // A suspected master has time to prove that it has the key.
    let mut token = held_lock();
    hold(token.on(Event::Unproven(0), at(2)));
    hold(token.on(Event::Suspected(0, checked()), at(2)));
    assert_eq!(lease(&token).due(), Some(at(2)), "it is queried immediately");
    assert!(lease(&token).deadline().is_some());
    hold(token.on(Event::Unproven(0), at(3)));
    assert_eq!(lease(&token).deadline(), None);
}

#[test]
fn proven_or_voting_master_is_queried_for_its_copy() {
    let mut token = whole();
    let step = hold(token.on(Event::Proven(1), at(2)));
    assert_eq!(step.extend.map(|extend| extend.masters), Some(set([1])));
    assert_eq!(hold(whole().on(Event::Proven(1), at(VALIDITY + 1))).extend, None, "it is over");
    // Its grant came when it did not vote.
    let mut token = held_lock();
    let granted = Answer::granted();
    let event =
        Answered { to: Asked::First, master: 2, judged: uncounted(&granted), sent_at: at(0) };
    hold(token.on(Event::Answered(event), at(2)));
    assert_eq!(hold(token.clone().on(Event::Proven(2), at(3))).extend, None, "none is known there");
    let step = hold(token.on(Event::Voting(2), at(3)));
    assert_eq!(step.extend.map(|extend| extend.masters), Some(set([2])));
}

#[test]
fn exited_process_keeps_the_key_for_one_expiry_at_most() {
    let mut token = held_lock();
    hold(first(&mut token, 2, &closed()));
    assert_eq!(token.left(at(10)).last(), Some(&(2, None)), "its request may be on the way");
    hold(token.on(Event::ProcessEnded(2), at(10)));
    assert_eq!(token.left(at(10)).last(), Some(&(2, Some(timing(TTL).expiry()))));
}

#[test]
fn keeper_starts_on_request_and_extends_within_the_limit() {
    let options = HoldOptions { auto_extend: false, ..HoldOptions::default() };
    let mut token = Lifecycle::new(attempt(1, options, at(0)));
    first(&mut token, 0, &Answer::granted());
    assert_eq!(lease(&token).due(), None);
    hold(token.on(Event::Kept, at(1)));
    assert!(lease(&token).due().is_some());
    hold(token.on(Event::Limited(timing(TTL / 2)), at(1)));
    assert_eq!(lease(&token).timing(), timing(TTL / 2));
}
