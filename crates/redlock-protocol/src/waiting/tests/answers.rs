//! The answers that the head receives, and the state that it reports.

use redlock_core::{Answer, QueueTicket, Queued, Reservation};

use super::*;

const OURS: QueueTicket = QueueTicket::new(7);

fn queued(answer: Answer, rank: Option<u32>) -> Option<QueueAnswer> {
    QueueAnswer::of(2, &answer.with_queued(Queued { waiters: 3, rank }), OURS)
}

fn reserved(ticket: Option<QueueTicket>) -> Answer {
    Answer::held(Some(Reservation { ticket }.to_string().as_bytes()), Some(ms(50)))
}

#[test]
fn the_answer_of_a_queue_says_the_place_and_who_has_the_key() {
    let said = |rank, is_free, is_reserved_for_us| {
        let (others_wait, reserved_for) = (true, None);
        let has_failed = false;
        Some(QueueAnswer {
            at: 2,
            rank,
            others_wait,
            is_free,
            is_reserved_for_us,
            reserved_for,
            has_failed,
        })
    };
    let for_another = |rank| {
        let reserved_for = Some(ms(50));
        said(rank, false, false).map(|answer| QueueAnswer { reserved_for, ..answer })
    };
    assert_eq!(queued(Answer::held(None, None), Some(1)), said(Some(1), false, false));
    assert_eq!(queued(Answer::new(Verdict::Free), Some(4)), said(Some(4), true, false));
    assert_eq!(queued(reserved(Some(OURS)), None), said(None, false, true));
    assert_eq!(queued(reserved(Some(QueueTicket::new(8))), Some(0)), for_another(Some(0)));
    // That is how a release leaves the masters that keep no queue for it.
    assert_eq!(queued(reserved(None), Some(0)), said(Some(0), false, false));
}

#[test]
fn the_only_head_with_a_place_learns_that_no_other_waits() {
    let waits = |waiters, rank| {
        let answer = Answer::held(None, None).with_queued(Queued { waiters, rank });
        QueueAnswer::of(2, &answer, OURS).unwrap().others_wait
    };
    assert!(!waits(1, Some(0)) && waits(2, Some(0)));
    assert!(!waits(0, None) && waits(1, None));
}

#[test]
fn reports_about_others_apply_to_attempts_lost_here_as_well() {
    for others_wait in [false, true] {
        let answer = QueueAnswer { others_wait, ..Place::First.answered(0) };
        let mut waiting = World::after(&[JOIN]).waiting;
        assert_eq!(waiting.lost_here(Some(answer), start(0.5)), Step::Wait);
        assert_eq!(waiting.is_contended(Instant::ORIGIN), others_wait);
        waiting.nobody_waits();
        assert!(!waiting.is_contended(Instant::ORIGIN));
    }
}

#[test]
fn a_head_let_in_or_without_a_queue_has_no_place() {
    assert_eq!(queued(Answer::granted(), None), None);
    assert_eq!(queued(Answer::unknown(Cause::TimedOut), Some(1)), None);
    assert_eq!(QueueAnswer::of(2, &Answer::held(None, None), OURS), None);
}

#[test]
fn a_head_asks_or_waits_for_a_release_or_does_neither() {
    let state = |events: &[Event]| {
        let waiting = World::after(events).waiting;
        (waiting.is_asking(), waiting.awaits_release())
    };
    assert_eq!(state(&[]), (false, false));
    assert_eq!(state(&[JOIN]), (false, false), "it makes an attempt");
    assert_eq!(state(&[JOIN_BEHIND_HOLDER]), (false, true));
    assert_eq!(state(&[JOIN, REFUSED, FIRST]), (true, false), "it watches");
    assert_eq!(state(&[JOIN, REFUSED, Event::Lost(Refusal::Alone)]), (true, false));
    assert_eq!(state(&[JOIN, REFUSED, FIRST, HELD]), (false, false), "it sleeps");
}

#[test]
fn only_the_master_that_was_asked_is_heard() {
    let mut waiting = World::after(&[JOIN, REFUSED, Event::Lost(Refusal::Alone)]).waiting;
    let before = waiting.clone();
    let first = Some(Place::First.answered(1));
    assert_eq!(waiting.queued(1, first, start(0.5)), Step::Wait);
    assert_eq!(waiting.silent(1, start(0.5)), Step::Wait);
    assert_eq!(waiting, before);
    // Without an answer its place is worth nothing.
    assert_eq!(waiting.clone().queued(0, None, start(0.5)), Step::Leave(0));
    let mut silent = before;
    assert_eq!(silent.silent(0, start(0.5)), Step::Leave(0));
    waiting.queued(0, None, start(0.5));
    assert_eq!((waiting.place(), waiting.is_asking()), (None, false));
    assert_eq!(waiting, silent);
    // A sleeping head has its answer.
    let mut asleep = asleep();
    let before = asleep.clone();
    assert_eq!((asleep.silent(0, start(0.5)), asleep), (Step::Wait, before));
}

fn asleep() -> Waiting<u32> {
    watching(Some(ms(5_000)), 0.5)
}

/// A push, and what follows it until the key is watched again; `holder` has it.
fn pushed(waiting: &mut Waiting<u32>, holder: Option<&str>) {
    assert_eq!(waiting.changed(0, start(0.5)), first(1));
    waiting.entering(0);
    let answer = Some(Place::First.answered(0));
    assert_eq!(waiting.lost(Refusal::Held, answer, start(0.5)), Step::Watch);
    waiting.watch_sent(Some(0), start(0.5));
    let held = Verdict::Held { token: holder.map(Into::into), ttl: None };
    assert_eq!(waiting.watch_answered(0, &held, start(0.5)), Step::Wait);
}

#[test]
fn third_push_about_one_holder_is_followed_but_not_the_fourth() {
    let mut waiting = asleep();
    (0..3).for_each(|_| pushed(&mut waiting, None));
    let mut of_another = waiting.clone();
    let mut watching = waiting.clone();
    let wakes = waiting.due();
    assert_eq!(waiting.changed(0, start(0.5)), Step::Wait);
    assert!(matches!(waiting.head, Head::Pausing { .. }), "{waiting:?}");
    assert_eq!(waiting.due(), wakes, "it continues as it would without a push");
    // The same where the push comes before the answer to its watch.
    watching.watch_sent(Some(0), start(0.5));
    assert_eq!(watching.changed(0, start(0.5)), Step::Wait);
    assert_eq!(watching.due(), Some(Instant::ORIGIN.saturating_add(WATCH_AGAIN / 2)));
    // Another holder has the key: its pushes are of use.
    let held = Verdict::Held { token: Some("b".into()), ttl: None };
    of_another.watch_sent(Some(0), start(0.5));
    of_another.watch_answered(0, &held, start(0.5));
    (0..3).for_each(|_| pushed(&mut of_another, Some("b")));
    assert_eq!(of_another.changed(0, start(0.5)), Step::Wait);
}

/// Its place goes to the next process, because the holder in this process queries no master.
#[test]
fn a_head_that_awaits_a_local_release_passes_a_call_on() {
    let mut waiting = World::after(&[JOIN, REFUSED, FIRST, HELD]).waiting;
    assert_eq!(waiting.lost_here(None, start(0.5)), Step::Wait);
    assert!(waiting.awaits_release() && waiting.place() == Some(0));
    assert_eq!(waiting.called(0, Call::Go, RESERVATION, start(0.5)), Step::Leave(0));
    for call in [Call::Try, Call::Next] {
        let mut elsewhere = behind(2, 0.5);
        let before = elsewhere.clone();
        assert_eq!(elsewhere.called(1, call, RESERVATION, start(0.5)), Step::Wait);
        assert_eq!(elsewhere, before, "it has no place there");
    }
}
