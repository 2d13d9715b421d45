//! Clients without a quarantine: together with clients that have one, and their reaction to a push.

use redlock_core::WhyNot;
use redlock_core::admission::Record;
use redlock_quorum::{Init, InitError};
use redlock_testkit::{Data, SimNodes};
use tokio::time::sleep;

use crate::admission::forgetting::{masters, other};
use crate::admission::short_lives::slow;
use crate::arena::{RESOURCE, TTL, copies, full, ms, settle, trusting, trusting_handle};

#[tokio::test(start_paused = true)]
async fn handle_without_quarantine_refuses_a_prefix_with_one() {
    let (masters, _) = masters(3);
    let redlock = trusting_handle(&masters).build().unwrap();
    let error = redlock.try_lock(RESOURCE).await.unwrap_err();
    assert!(
        error.to_string().contains("other clients use this prefix with a quarantine"),
        "{error}"
    );
    assert_eq!(copies(&masters), 0, "no key is left");
    assert_eq!(redlock.init().await.unwrap_err(), InitError::Off);
}

#[tokio::test(start_paused = true)]
async fn init_again_converts_a_prefix_either_way() {
    let (masters, on) = masters(3);
    let off = trusting_handle(&masters).build().unwrap();
    off.try_lock(RESOURCE).await.unwrap_err();
    let again = Init { again: true, ..Init::default() };
    assert_eq!(off.init_with(again).await.unwrap().admitted(), 3);
    off.try_lock(RESOURCE).await.unwrap().release().await.unwrap();
    assert!(masters.iter().all(|master| master.data().record == Record::default()));

    drop(on);
    let on = other(&masters);
    let error = on.try_lock(RESOURCE).await.unwrap_err();
    assert!(error.to_string().contains("redlock init --again`"), "{error}");
    assert!(matches!(on.init().await, Err(InitError::Refused { .. })));
    assert_eq!(on.init_with(again).await.unwrap().admitted(), 3);
    on.try_lock(RESOURCE).await.unwrap().release().await.unwrap();
    assert!(masters.iter().all(|master| master.data().off.is_none()));
}

/// A handle without lock requests writes nothing, and still learns of the others.
#[tokio::test(start_paused = true)]
async fn read_only_handle_reports_use_without_quarantine() {
    let masters = SimNodes::new(3, 0);
    let off = trusting_handle(&masters).build().unwrap();
    off.try_lock(RESOURCE).await.unwrap().release().await.unwrap();
    let on = other(&masters);
    let status = on.status(RESOURCE).await;
    let why = status.nodes.iter().map(|node| node.not_admitted.as_ref().unwrap().why);
    assert_eq!(why.collect::<Vec<_>>(), [WhyNot::UsedWithoutQuarantine; 3]);
    let reports = on.inspect().await;
    for report in reports {
        let cause = report.cause.unwrap().to_string();
        assert!(
            cause.contains("--quarantine off here too, or convert it with `redlock init --again`")
        );
        assert_eq!(report.server.unwrap().ballots, None, "it has no record");
    }
    let error = on.try_lock(RESOURCE).await.unwrap_err().to_string();
    assert!(!error.contains("if these masters are new"), "{error}");
}

fn shows_its_use(data: &Data) -> bool {
    data.record == Record::default() && data.sets.is_empty() && data.off.is_some()
}

/// It is removed during the first attempt, at no cost for that attempt.
#[tokio::test(start_paused = true)]
async fn handle_without_quarantine_removes_unadmitted_records() {
    let masters = SimNodes::new(3, 0);
    other(&masters).try_lock(RESOURCE).await.unwrap_err();
    assert!(masters.iter().all(|master| master.data().record.nonce.is_some()));
    let off = trusting_handle(&slow(&masters)).fencing(false).build().unwrap();
    let guard = off.try_lock(RESOURCE).min_copies(3).await.unwrap();
    sleep(ms(50)).await;
    assert_eq!((guard.copies(), guard.check()), (3, Ok(())));
    assert!(masters.iter().all(|master| shows_its_use(&master.data())));
    guard.release().await.unwrap();
}

/// It sends no ballots, so nothing else would show that it is there.
#[tokio::test(start_paused = true)]
async fn plain_handle_shows_its_use_to_clients_with_quarantine() {
    let masters = SimNodes::new(3, 0);
    let off = trusting_handle(&masters).fencing(false).build().unwrap();
    off.status(RESOURCE).await;
    off.inspect().await;
    assert!(masters.iter().all(|master| master.data() == Data::default()), "it only reads");
    off.try_lock(RESOURCE).await.unwrap().release().await.unwrap();
    assert!(masters.iter().all(|master| shows_its_use(&master.data())));
    let error = other(&masters).try_lock(RESOURCE).await.unwrap_err().to_string();
    assert!(error.contains("other clients use this prefix without a quarantine"), "{error}");
    off.try_lock(RESOURCE).await.unwrap().release().await.unwrap();
}

/// A master that restarted empty, under a prefix with a quarantine, must not be written to.
#[tokio::test(start_paused = true)]
async fn plain_handle_refusing_a_prefix_writes_nothing() {
    let (masters, on) = masters(3);
    drop(on);
    masters[0].crash_and_restart(false);
    let off = trusting_handle(&masters.another_client()).fencing(false).build().unwrap();
    off.try_lock(RESOURCE).await.unwrap_err();
    settle().await;
    assert!(masters.iter().all(|master| master.data().off.is_none()));
}

/// After a push, each master has its previous data, or none.
async fn copies_after_a_push(is_lost: bool, answers: bool) -> usize {
    let (masters, redlock) = trusting(3);
    let guard = full(&redlock, &masters).await;
    let token = masters[0].holder(RESOURCE).unwrap();
    masters[0].flush();
    if !is_lost {
        masters[0].put(RESOURCE, token, 60_000);
    }
    masters[0].lose_replies(!answers);
    sleep(ms(1)).await;
    assert!(guard.is_held());
    // The node timeout.
    sleep(TTL / 10).await;
    guard.copies()
}

#[tokio::test(start_paused = true)]
async fn without_a_record_the_key_proves_that_a_push_was_harmless() {
    assert_eq!(copies_after_a_push(false, true).await, 3);
    assert_eq!(copies_after_a_push(false, false).await, 2, "it did not answer in time");
}

#[tokio::test(start_paused = true)]
async fn without_a_record_a_missing_key_is_set_again() {
    assert_eq!(copies_after_a_push(true, true).await, 3);
    assert_eq!(copies_after_a_push(true, false).await, 2);
}

/// It is not extended, so nothing but the push tells what became of its copy.
#[tokio::test(start_paused = true)]
async fn without_a_record_an_unconfirmed_copy_is_disowned() {
    let (masters, redlock) = trusting(3);
    let guard = redlock.lock(RESOURCE).auto_extend(false).min_copies(3).await.unwrap();
    masters[0].flush();
    sleep(TTL / 5).await;
    assert_eq!((guard.copies(), guard.is_held()), (2, true));
    masters[1].flush();
    sleep(TTL / 5).await;
    assert!(!guard.is_held(), "no quorum is known to have it");
}
