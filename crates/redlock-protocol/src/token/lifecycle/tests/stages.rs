//! The stages of a lifecycle, and what each knows of its token.

use redlock_core::Answer;

use super::*;
use crate::lab::*;
use crate::token::lease::extension::Extended;

pub(super) fn answered(to: Asked, master: usize, answer: &Answer) -> Event<'_> {
    Event::Answered(Answered { to, master, judged: answer.into(), sent_at: at(0) })
}

pub(super) fn attempted(masters: usize) -> Lifecycle {
    Lifecycle::new(attempt(masters, HoldOptions::default(), at(0)))
}

/// The first two of three masters have granted.
pub(super) fn held_lock() -> Lifecycle {
    let mut token = attempted(3);
    assert_eq!(token.on(answered(Asked::First, 0, &Answer::granted()), at(1)), Step::Wait);
    let won = token.on(answered(Asked::First, 1, &Answer::granted()), at(1));
    assert!(matches!(won, Step::Won(_)), "{won:?}");
    token
}

pub(super) fn released() -> Lifecycle {
    let mut token = held_lock();
    assert_eq!(token.on(Event::Returned { was_lost: false }, at(2)), Step::Release);
    token
}

pub(super) fn resumed() -> Lifecycle {
    let resumed = Attempt::new(3, Origin::Resumed, timing(TTL), HoldOptions::default(), at(0));
    Lifecycle::new(resumed)
}

pub(super) fn set(masters: impl IntoIterator<Item = usize>) -> MasterSet {
    masters.into_iter().collect()
}

#[test]
fn token_is_in_one_stage_at_a_time() {
    let shown = |token: &Lifecycle| {
        [token.attempt().is_some(), token.lease().is_some(), token.release().is_some()]
    };
    assert_eq!(shown(&attempted(3)), [true, false, false]);
    assert_eq!(shown(&held_lock()), [false, true, false]);
    assert_eq!(shown(&released()), [false, false, true]);
}

#[test]
fn token_is_over_when_every_master_acknowledged_or_refused() {
    let mut token = released();
    assert!(!attempted(3).is_over() && !held_lock().is_over() && !token.is_over());
    assert_eq!(token.on(Event::Turn, at(2)), Step::SendRelease(set([0, 1, 2])));
    token.on(answered(Asked::Release, 0, &Answer::granted()), at(3));
    token.on(answered(Asked::Release, 1, &Answer::granted()), at(3));
    assert!(!token.is_over(), "the third may have the key");
    token.on(answered(Asked::Release, 2, &not_ours()), at(3));
    assert!(token.is_over());

    let mut refused = attempted(1);
    let lost = refused.on(answered(Asked::First, 0, &held()), at(1));
    assert!(matches!(lost, Step::Lost(_)), "{lost:?}");
    assert!(refused.is_over(), "there is no key to release");
    assert_eq!(refused.pending(), MasterSet::EMPTY);
    assert_eq!((refused.left(at(1)), refused.expiry()), (vec![], Duration::ZERO));
}

#[test]
fn cancelled_resume_leaves_the_key_to_its_holder() {
    let mut token = resumed();
    assert!(token.is_resumed() && !attempted(3).is_resumed());
    token.on(answered(Asked::First, 0, &Answer::granted()), at(1));
    assert_eq!(token.on(Event::Cancelled, at(1)), Step::Gone);
    assert!(token.is_over());
    let mut ours = attempted(3);
    assert_eq!(ours.on(Event::Cancelled, at(1)), Step::Release);
}

#[test]
fn pending_masters_were_queried_and_have_not_answered() {
    let mut token = attempted(3);
    assert_eq!(token.pending(), set([0, 1, 2]));
    token.on(answered(Asked::First, 0, &Answer::granted()), at(1));
    assert_eq!(token.pending(), set([1, 2]));
    assert_eq!(held_lock().pending(), set([2]));
    assert_eq!(released().pending(), set([0, 1, 2]));
}

#[test]
fn the_remaining_keys_are_known_per_master() {
    let expiry = timing(TTL).expiry();
    // Nothing was answered: each may carry the request out at any time.
    assert_eq!(attempted(2).left(at(1)), [(0, None), (1, None)]);
    let mut refused = attempted(3);
    refused.on(answered(Asked::First, 1, &held()), at(1));
    assert_eq!(refused.left(at(1)), [(0, None), (2, None)]);
    let held = held_lock().left(at(101));
    assert_eq!(held.iter().map(|(master, _)| *master).collect::<Vec<_>>(), [0, 1, 2]);
    assert!(held[0].1 > Some(Duration::ZERO) && held[2].1.is_none(), "{held:?}");
    let mut given_back = released();
    given_back.on(Event::Turn, at(2));
    given_back.on(answered(Asked::Release, 1, &Answer::granted()), at(2));
    assert_eq!(given_back.left(at(102)), [(0, Some(expiry - ms(100))), (2, None)]);
    // Expired keys are not left over.
    assert_eq!(given_back.left(at(60_000)), [(2, None)]);
    for token in [attempted(3), held_lock(), released()] {
        assert_eq!(token.expiry(), expiry);
    }
}

#[test]
fn release_for_another_process_allows_any_expiry() {
    let mut token = Lifecycle::releasing(2, timing(TTL), at(0));
    assert!(token.release().is_some_and(Release::is_of_another));
    assert!(!released().release().unwrap().is_of_another());
    assert_eq!(token.pending(), set([0, 1]));
    token.on(Event::Allowed(ms(60_000)), at(1));
    assert_eq!(token.expiry(), ms(60_000));
    let mut ours = released();
    ours.on(Event::Allowed(ms(60_000)), at(1));
    assert_eq!(ours.expiry(), timing(TTL).expiry());
}

#[test]
fn ended_lease_sends_no_extension() {
    let mut token = held_lock();
    token.end(LostReason::NotOurs);
    assert_eq!(token.lease().unwrap().deadline(), None);
    let mut token = held_lock();
    let Step::Hold(step) = token.on(Event::Tick(0.5), at(400)) else { panic!("it is held") };
    assert!(step.extend.is_some(), "an extension is due");
    let called_off = token.call_off(step);
    assert!(called_off.extend.is_none(), "{called_off:?}");
    // The extension that its holder waits for is still answered.
    let extended = Some((1, Extended::Confirmed));
    let answered = lease::Step { extended, ..lease::Step::default() };
    assert_eq!(token.call_off(answered).extended, extended);
}

#[test]
fn an_event_names_its_master() {
    let why = || checked();
    for master in [0, 3] {
        let granted = Answer::granted();
        for event in [
            answered(Asked::First, master, &granted),
            Event::Disowned(master, why()),
            Event::Suspected(master, why()),
            Event::Unproven(master),
            Event::Proven(master),
            Event::Voting(master),
            Event::ProcessEnded(master),
        ] {
            assert_eq!(event.master(), Some(master), "{event:?}");
        }
    }
    assert_eq!(Event::Cancelled.master(), None);
    assert_eq!(Event::Retry(1).master(), None, "it does not come from a master");
}
