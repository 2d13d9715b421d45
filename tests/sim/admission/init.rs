//! Masters that cannot be read when `init` is typed, or when a quarantine begins.

use std::future::IntoFuture;

use redlock_core::Node;
use redlock_quorum::{Init, InitError, Quarantine, Standing};
use redlock_testkit::{SimNode, SimNodes};
use tokio::time::sleep;

use crate::admission::forgetting::{full, masters, other};
use crate::arena::{RESOURCE, ms};

/// The ways in which a master can be away whose record would show that the prefix is in use.
const AWAY: [fn(&SimNode); 2] = [SimNode::hold, SimNode::down];

fn back(master: &SimNode) {
    master.release();
    master.up();
}

/// The records of two are gone, like the records of new masters. The third one shows that they are
/// not new.
#[tokio::test(start_paused = true)]
async fn init_with_an_unreadable_record_writes_nothing() {
    for away in AWAY {
        let (masters, holder) = masters(3);
        full(&holder, &masters).await.forget();
        let stranger = other(&masters);
        masters.iter().for_each(|master| master.partition());
        away(&masters[2]);
        masters[..2].iter().for_each(|master| master.crash_and_restart(false));
        let error = stranger.init().await.unwrap_err();
        assert!(matches!(error, InitError::Unread { .. }), "{error}");
        let text = error.to_string();
        let named = format!("record of {}", masters[2].name());
        assert!(text.contains(&named) && text.contains("nothing was written"), "{text}");
        assert!(masters[..2].iter().all(|master| master.data() == Default::default()));
        stranger.try_lock(RESOURCE).await.unwrap_err();
        // An operator knows more.
        let again = Init { again: true, ..Init::default() };
        let report = stranger.init_with(again).await.unwrap();
        assert!(report.nodes[..2].iter().all(|node| node.now == Standing::Admitted));
        back(&masters[2]);
    }
}

/// The limit of the third one is known three seconds after the quarantine of the others started.
#[tokio::test(start_paused = true)]
async fn quarantine_is_extended_for_a_returning_master() {
    let masters = SimNodes::new(3, 0);
    masters.init(ms(120_000));
    let client = masters.another_client();
    let handle = || crate::arena::handle(&client).quarantine(Quarantine::On).build().unwrap();
    let (stays, comes) = (handle(), handle());
    masters[2].down();
    masters[..2].iter().for_each(|master| master.crash_and_restart(false));
    let begun = masters.clock().now();
    let waiting = tokio::spawn(stays.lock(RESOURCE).wait_forever().into_future());
    sleep(ms(3_000)).await;
    let until = |master: &SimNode| master.data().record.quarantine.map(|found| found.until);
    let before = until(&masters[0]).expect("it has begun");
    masters[2].up();
    sleep(ms(2_000)).await;
    assert_eq!(until(&masters[0]), Some(before + 66_000), "once");
    assert_eq!(masters[0].data().record.max_ttl, Some(120_000));
    let retry_after = comes.try_lock(RESOURCE).await.unwrap_err().retry_after();
    assert!(retry_after.is_some_and(|wait| wait >= ms(126_000)), "{retry_after:?}");
    let guard = waiting.await.unwrap().unwrap();
    let took = masters.clock().now().saturating_since(begun);
    assert!(took >= ms(132_000) && took < ms(136_000), "{took:?}");
    guard.release().await.unwrap();
}
