//! Restarted masters. Here they keep everything they granted, because each grant was on disk before
//! the reply. A client with a quarantine does not rely on that, but a client without one does.

use redlock_quorum::{AcquireError, Ended, Quarantine, Redlock};

use crate::lab::{
    LONG, NODE_TIMEOUT, admit, assert_taken, brisk, builder, eventually, everywhere,
    leaves_nothing, patient, reach_all, secs,
};
use crate::masters::{Master, Masters, heal, kill};

/// Creates a handle without a quarantine, with its own prefix.
fn trusting(masters: &Masters) -> Redlock {
    let builder = builder(masters).prefix("trusting:").quarantine(Quarantine::Off);
    builder.ttl(LONG).max_ttl(LONG).node_timeout(NODE_TIMEOUT).build().unwrap()
}

/// Checks that the lock survives `hurt` without an extension, and that its key is not set on a
/// master that has lost it.
async fn is_kept_while(key: &str, hurt: impl Fn(&[Master])) {
    let masters = Masters::take();
    let redlock = trusting(&masters);
    reach_all(&redlock).await;
    let guard = redlock.lock(key).await.unwrap();
    eventually("every master has granted", || guard.copies() == masters.len()).await;
    let (lease, full) = (guard.into_lease(), format!("trusting:{key}"));
    let token = lease.token.to_string();
    hurt(&masters);
    assert_eq!(masters.values(&full), vec![Some(token); masters.len()]);
    let other = trusting(&masters);
    reach_all(&other).await;
    assert_taken(&other, key).await;
    let guard = other.resume(lease).await.unwrap();
    guard.release().await.unwrap();
    leaves_nothing(other, &masters, &full).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_quarantine_a_restarted_master_keeps_its_locks() {
    is_kept_while("restart-1", |masters| masters[0].restart()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_quarantine_three_restarted_masters_keep_their_locks() {
    is_kept_while("restart-3", |masters| {
        masters[..3].iter().for_each(|master| master.restart());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_quarantine_five_crashed_masters_keep_their_locks() {
    is_kept_while("crash-5", |masters| {
        heal(kill(masters));
    })
    .await;
}

/// Creates a handle with a quarantine of 4.4 s and its own prefix.
fn short(masters: &Masters) -> Redlock {
    let builder = builder(masters).prefix("short:").ttl(secs(4)).node_timeout(secs(1));
    builder.build().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_masters_vote_again_after_their_quarantine() {
    let masters = Masters::take();
    admit(masters.urls(), "short:", secs(4));
    let redlock = short(&masters);
    reach_all(&redlock).await;
    let guard = redlock.lock("held").min_copies(masters.len()).await.unwrap();
    let dead = kill(&masters[3..]);
    eventually("dead masters count no more", || guard.copies() == 3).await;
    heal(dead);
    assert_taken(&short(&masters), "held").await;
    eventually("they count again", || guard.copies() == 5).await;
    guard.check().unwrap();
    guard.release().await.unwrap();
    leaves_nothing(redlock, &masters, "short:held").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarted_majority_ends_the_lock_without_a_second_holder() {
    let masters = Masters::take();
    let redlock = brisk(&masters);
    let (guard, token) = everywhere(&redlock, &masters, "majority").await;
    masters[..3].iter().for_each(|master| master.restart());
    assert!(matches!(guard.lost().await, Ended::Lost(_)));
    let error = patient(&masters).try_lock("majority").await.unwrap_err();
    assert!(matches!(error, AcquireError::NoQuorum { .. }), "{error}");
    assert!(error.retry_after().is_some_and(|wait| wait > secs(60)), "{error}");
    // An operator who knows that each grant was on disk admits the masters, and the existing keys
    // still exclude others.
    admit(masters.urls(), "", LONG);
    for value in masters.values("majority").into_iter().flatten() {
        assert_eq!(value, token);
    }
    drop(guard);
    eventually("the lock is free", || masters.values("majority") == vec![None; masters.len()])
        .await;
}
