//! Reservations: who may replace, extend or release the key of the next client.

use redlock_core::{Call, Exit, Leaving, Reservation};

use super::queues::{granted, left_nothing_of_ours, place, reserved_for, token, waiters};
use super::*;

#[tokio::test]
async fn expired_reservation_passes_to_the_next() {
    let backend = Backend::start().await;
    let [mut a, mut b, mut c] = waiters(&backend).await;
    a.enter(&token("a")).await;
    b.enter(&token("b")).await;
    c.enter(&token("c")).await;
    let (queue, token_of_a) = (a.queue.clone(), Some(token("a")));
    let exit = Exit {
        queue,
        token: token_of_a,
        gives_up_place: false,
        reservation_ms: 100,
        leaving: Leaving::Done,
    };
    assert_eq!(a.asker.ask(Op::leave(KEY, exit)).await, granted(2));
    backend.pass(Duration::from_millis(150)).await;
    assert_eq!(a.value().await, None);
    let late = b.enter(&token("b2")).await;
    assert_eq!(late.verdict.reservation(), Some(Reservation { ticket: Some(c.queue.ticket()) }));
    assert_eq!((c.called().await, c.called().await), (Call::Next, Call::Go));
    assert_eq!(c.enter(&token("c2")).await, granted(1), "who was late has a place again");
}

#[tokio::test]
async fn reserve_after_the_successors_take_does_nothing() {
    let backend = Backend::start().await;
    let [mut a, mut b] = waiters(&backend).await;
    assert_eq!(a.take(&token("a")).await, Answer::granted());
    assert_eq!(a.reserve(&token("a")).await, Answer::granted());
    assert_eq!(a.value().await.as_deref(), Some(Reservation::PREFIX));
    assert_eq!(b.take(&token("b")).await, Answer::granted());
    assert_eq!(a.reserve(&token("a")).await, not_ours(), "traps 1 and 2");
    assert_eq!(a.value().await.as_deref(), Some("b"));
}

#[tokio::test]
async fn repeated_reserve_has_no_effect() {
    let backend = Backend::start().await;
    let [mut a] = waiters(&backend).await;
    a.take(&token("a")).await;
    a.reserve(&token("a")).await;
    backend.pass(Duration::from_millis(50)).await;
    let left = a.asker.left().await;
    assert_eq!(a.reserve(&token("a")).await, not_ours(), "trap 2");
    assert!(a.asker.left().await <= left, "its time was extended");
}

#[tokio::test]
async fn take_replaces_no_token() {
    let backend = Backend::start().await;
    let [mut a, mut b] = waiters(&backend).await;
    a.take(&token("a")).await;
    for asked in ["a", "b"] {
        let refused = b.take(&token(asked)).await;
        assert!(held_by(&token("a"), &refused), "trap 3: {refused:?}");
        assert!(holder(&refused).1.is_some());
    }
    b.asker.release(&token("a")).await;
    backend.put_other_type(KEY, LONG).await;
    let refused = b.take(&token("b")).await;
    assert_eq!(holder(&refused).0, None, "a key of another type belongs to another program");
    assert_eq!(b.reserve(&token("b")).await, not_ours());
    let queued = b.enter(&token("b")).await;
    assert_eq!((holder(&queued).0, place(&queued)), (None, (1, Some(0))));
    assert_eq!(b.leave(&token("b"), Leaving::Done).await, left_nothing_of_ours(1));
}

#[tokio::test]
async fn reservation_cannot_be_extended_or_released() {
    let backend = Backend::start().await;
    let [mut a, mut b] = waiters(&backend).await;
    a.enter(&token("a")).await;
    b.enter(&token("b")).await;
    a.leave(&token("a"), Leaving::Done).await;
    let reserved = reserved_for(&b);
    assert!(Token::parse(&reserved.clone().unwrap()).is_err(), "trap 24");
    assert_eq!(a.asker.release(&token("a")).await, not_ours());
    let refused = a.asker.extend(&token("a"), LONG).await;
    assert_eq!(holder(&refused).0.map(str::to_owned), reserved);
}

#[tokio::test]
async fn plain_reservation_passes_to_a_waiter() {
    let backend = Backend::start().await;
    let [mut a, mut b, mut c] = waiters(&backend).await;
    a.take(&token("a")).await;
    a.reserve(&token("a")).await;
    let queued = b.enter(&token("b")).await;
    assert_eq!(queued.verdict.reservation(), Some(Reservation { ticket: None }));
    assert_eq!(c.leave(&token("c"), Leaving::Undo).await, left_nothing_of_ours(1));
    assert_eq!((b.called().await, b.value().await), (Call::Go, reserved_for(&b)));
}
