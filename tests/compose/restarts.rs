//! Masters that come back: what they granted they still know, because each grant was on disk
//! before it was answered.

use crate::lab::{assert_taken, brisk, eventually, everywhere, leaves_nothing, patient, reach_all};
use crate::masters::{Master, Masters, heal, kill};

/// The lock is a lease meanwhile: it is not extended, and its key is not set on a master that
/// has lost it.
async fn is_kept_while(key: &str, hurt: impl Fn(&[Master])) {
    let masters = Masters::take();
    let redlock = patient(&masters);
    let (guard, token) = everywhere(&redlock, &masters, key).await;
    let lease = guard.into_lease();
    hurt(&masters);
    assert_eq!(masters.values(key), vec![Some(token); masters.len()]);
    let other = patient(&masters);
    reach_all(&other).await;
    assert_taken(&other, key).await;
    let guard = other.resume(lease).await.unwrap();
    guard.release().await.unwrap();
    leaves_nothing(other, &masters, key).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_is_restarted_keeps_its_locks() {
    is_kept_while("restart-1", |masters| masters[0].restart()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_masters_that_are_restarted_keep_their_locks() {
    is_kept_while("restart-3", |masters| {
        masters[..3].iter().for_each(|master| master.restart());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_masters_that_crash_at_once_keep_their_locks() {
    is_kept_while("crash-5", |masters| {
        heal(kill(masters));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_is_held_while_two_masters_are_killed_and_started_again() {
    let masters = Masters::take();
    let redlock = brisk(&masters);
    let (guard, token) = everywhere(&redlock, &masters, "held-killed").await;
    let dead = kill(&masters[3..]);
    eventually("dead masters count no more", || guard.copies() == 3).await;
    assert_taken(&patient(&masters), "held-killed").await;
    heal(dead);
    eventually("they count again", || guard.copies() == 5).await;
    assert_eq!(masters.values("held-killed"), vec![Some(token); masters.len()]);
    guard.check().unwrap();
    guard.release().await.unwrap();
    leaves_nothing(redlock, &masters, "held-killed").await;
}
