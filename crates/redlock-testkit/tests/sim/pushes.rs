//! Reports of changed keys.

use std::sync::Arc;

use redlock_core::{NodeEvent, Op};
use tokio::time::sleep;

use crate::{KEY, Seen, acquire, ms, one};

#[tokio::test(start_paused = true)]
async fn a_push_follows_the_reply_and_takes_as_long() {
    let (node, seen) = (one(0), Arc::<Seen>::default());
    let _driving = seen.drive(&node);
    assert!(seen.up().tracks);
    seen.submit(&node, 0, Op::watch(KEY));
    node.delay(ms(0)..=ms(0), ms(50)..=ms(50));
    seen.submit(&node, 1, acquire(1_000));
    sleep(ms(49)).await;
    assert_eq!((seen.tickets().len(), seen.events()), (1, vec![]));
    sleep(ms(2)).await;
    assert_eq!(seen.tickets(), [0, 1]);
    assert_eq!(seen.events(), [NodeEvent::KeyChanged(KEY.into())]);
}

#[tokio::test(start_paused = true)]
async fn expiry_is_pushed_when_a_request_finds_it() {
    let (node, seen) = (one(0), Arc::<Seen>::default());
    let _driving = seen.drive(&node);
    node.put(KEY, "stranger", 1_000);
    seen.submit(&node, 0, Op::watch(KEY));
    seen.up();
    sleep(ms(5_000)).await;
    assert_eq!(seen.events(), [], "as late as on a busy server");
    seen.submit(&node, 1, Op::inspect(KEY));
    assert_eq!(seen.events(), [NodeEvent::KeyChanged(KEY.into())]);
}

#[test]
fn server_without_tracking_pushes_nothing() {
    let (node, seen) = (one(0), Arc::<Seen>::default());
    let _driving = seen.drive(&node);
    node.set_tracking(false);
    let up = seen.events().pop();
    assert!(matches!(up, Some(NodeEvent::Up(facts)) if !facts.tracks));
    seen.submit(&node, 0, Op::watch(KEY));
    seen.submit(&node, 1, acquire(1_000));
    node.flush();
    assert_eq!(seen.events(), []);
}

#[test]
fn a_new_connection_watches_nothing() {
    let (node, seen) = (one(0), Arc::<Seen>::default());
    let _driving = seen.drive(&node);
    seen.submit(&node, 0, Op::watch(KEY));
    node.crash_and_restart(false);
    node.partition();
    node.flush();
    node.heal();
    seen.events();
    seen.submit(&node, 1, acquire(1_000));
    assert_eq!(seen.events(), []);
}
