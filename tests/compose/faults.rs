//! Dead, silent or unreachable masters: a minority has no effect, and a majority is reported.

use redlock_quorum::{AcquireError, Cause, Verdict};

use crate::lab::{
    assert_taken, brisk, eventually, everywhere, in_time, leaves_nothing, patient, reach_all, said,
};
use crate::masters::{Masters, heal, kill};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lock_is_on_all_masters_until_its_release() {
    let masters = Masters::take();
    let (redlock, other) = (patient(&masters), patient(&masters));
    let (guard, _) = everywhere(&redlock, &masters, "five").await;
    assert_taken(&other, "five").await;
    guard.release().await.unwrap();
    other.lock("five").await.unwrap().release().await.unwrap();
    leaves_nothing(other, &masters, "five").await;
    leaves_nothing(redlock, &masters, "five").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_work_with_two_masters_killed() {
    let masters = Masters::take();
    let redlock = patient(&masters);
    reach_all(&redlock).await;
    let dead = kill(&masters[..2]);
    // One handle has lost two connections, the other never made them.
    for redlock in [redlock, patient(&masters)] {
        let guard = in_time(redlock.lock("two-killed").into_future()).await.unwrap();
        eventually("each master that lives has granted", || guard.copies() == 3).await;
        in_time(assert_taken(&patient(&masters), "two-killed")).await;
        in_time(guard.release()).await.unwrap();
    }
    heal(dead);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_killed_masters_are_listed_in_the_error() {
    let masters = Masters::take();
    let dead = kill(&masters[1..4]);
    let redlock = patient(&masters);
    let error = redlock.try_lock("three-killed").await.unwrap_err();
    assert!(matches!(error, AcquireError::NoQuorum { .. }), "{error}");
    let votes = error.votes().expect("masters were asked");
    for master in &masters[1..4] {
        assert_eq!(said(votes, *master), Verdict::Unknown(Cause::ConnectionRefused));
        let cause = master.node() + " connection refused";
        assert!(error.to_string().contains(&cause), "{error}");
    }
    for master in [masters[0], masters[4]] {
        // The scores are up to three seconds ahead of the clocks after an earlier test's `init`, so
        // the first ballot may be too small. Without a quorum, there is no second one.
        let is_granted = matches!(said(votes, master), Verdict::Granted | Verdict::BallotRefused);
        assert!(is_granted, "{error}");
    }
    heal(dead);
    leaves_nothing(redlock, &masters, "three-killed").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn paused_master_is_not_awaited_and_cleaned_up_later() {
    let masters = Masters::take();
    let redlock = patient(&masters);
    reach_all(&redlock).await;
    let silent = masters[2].pause();
    // Both are there before the node timeout is over.
    let guard = in_time(redlock.lock("paused").into_future()).await.unwrap();
    let votes = guard.votes();
    in_time(guard.release()).await.unwrap();
    // The request is in its buffers, and it executes the request when it resumes.
    assert_eq!(said(&votes, masters[2]), Verdict::Pending, "{votes}");
    silent.heal();
    leaves_nothing(redlock, &masters, "paused").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lock_survives_a_paused_master_and_returns_to_it() {
    let masters = Masters::take();
    let redlock = brisk(&masters);
    let (guard, token) = everywhere(&redlock, &masters, "held-paused").await;
    let silent = masters[2].pause();
    eventually("the paused master counts no more", || guard.copies() == 4).await;
    silent.heal();
    eventually("it counts again", || guard.copies() == 5).await;
    assert_eq!(masters[2].value("held-paused"), Some(token));
    guard.check().unwrap();
    guard.release().await.unwrap();
    leaves_nothing(redlock, &masters, "held-paused").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lock_survives_a_partitioned_master_and_returns_to_it() {
    let masters = Masters::take();
    let redlock = brisk(&masters);
    let (guard, token) = everywhere(&redlock, &masters, "cut-off").await;
    let cut = masters[3].disconnect();
    eventually("the key has expired there", || masters[3].value("cut-off").is_none()).await;
    eventually("it counts no more", || guard.copies() == 4).await;
    assert_taken(&patient(&masters), "cut-off").await;
    cut.heal();
    eventually("it counts again", || guard.copies() == 5).await;
    assert_eq!(masters[3].value("cut-off"), Some(token));
    guard.check().unwrap();
    guard.release().await.unwrap();
    leaves_nothing(redlock, &masters, "cut-off").await;
}
