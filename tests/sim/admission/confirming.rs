//! Copies on masters that did not vote when they were made.

use std::time::Duration;

use redlock_core::Verdict;
use redlock_quorum::{Guard, Redlock};
use redlock_testkit::SimNodes;
use tokio::time::{sleep, timeout};

use crate::admission::forgetting::{LENGTH, MAX_TTL, masters};
use crate::arena::{RESOURCE, count, is_extend, ms, settle};

/// Starts five masters, and a lock on the first, the third and the fourth. The second is in
/// quarantine and has a copy, which is not a vote, and the fifth is down.
async fn held() -> (SimNodes, Redlock, Guard) {
    let (masters, redlock) = masters(5);
    redlock.status(RESOURCE).await;
    masters[1].crash_and_restart(false);
    masters[4].down();
    settle().await;
    let guard = redlock.try_lock(RESOURCE).ttl(MAX_TTL).await.unwrap();
    settle().await;
    assert!(masters[1].holder(RESOURCE).is_some() && guard.copies() == 3);
    (masters, redlock, guard)
}

/// Waits until the second master votes.
async fn until_it_votes(redlock: &Redlock) {
    let votes = async {
        while redlock.status(RESOURCE).await.nodes[1].not_admitted.is_some() {
            sleep(ms(1)).await;
        }
    };
    timeout(LENGTH * 2, votes).await.expect("its quarantine ends");
}

#[tokio::test(start_paused = true)]
async fn copy_is_valid_as_soon_as_its_master_votes() {
    let (masters, redlock, guard) = held().await;
    until_it_votes(&redlock).await;
    let before = count(&masters[0], is_extend);
    settle().await;
    assert_eq!(guard.copies(), 4);
    assert_eq!(count(&masters[0], is_extend), before, "the others are not queried");
    masters[2].crash_and_restart(false);
    settle().await;
    assert_eq!(guard.check(), Ok(()), "three that vote have its key");
    sleep(Duration::from_secs(60)).await;
    assert_eq!(guard.check(), Ok(()));
}

/// They did not vote when the key was given to them, and have not confirmed it since.
#[tokio::test(start_paused = true)]
async fn loss_does_not_show_invalid_copies_as_granted() {
    let (masters, _redlock, guard) = held().await;
    sleep(MAX_TTL / 3 + ms(100)).await;
    masters[2].crash_and_restart(false);
    settle().await;
    let lost = guard.check().unwrap_err();
    let verdict = &lost.votes.iter().nth(1).unwrap().verdict;
    assert!(matches!(verdict, Verdict::Unknown(_)), "{verdict}");
}
