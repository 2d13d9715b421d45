//! Callers of one process that change without a request, on real servers.

use futures::future::join_all;
use redlock_testkit::RedisServers;

use crate::lab::{calls, eventually, no_key_is_left, patient, warm_up};

/// The number of callers of one lease: its first holder, and one for each number after its ballot.
const CALLERS: u64 = 32;

/// They take turns as fast as they can. A lease is passed on for 100 ms, so each stall of the
/// machine costs one more lease, but never a request per caller.
#[tokio::test]
async fn local_callers_share_a_lease_with_separate_tokens() {
    let servers = RedisServers::start(5).unwrap();
    let redlock = patient(servers.urls()).build().unwrap();
    warm_up(&redlock, &servers).await;
    let (before, won) = (calls(&servers[0], "set"), redlock.stats().outcomes.won);
    let callers = (0..CALLERS * 4).map(|_| async {
        let guard = redlock.lock("shared").wait_forever().await.unwrap();
        let token = guard.fencing_token().unwrap();
        guard.release().await.unwrap();
        token
    });
    let tokens = join_all(callers).await;
    assert!(tokens.is_sorted_by(|before, behind| before < behind), "{tokens:?}");
    let stats = redlock.stats();
    let leases = stats.outcomes.won - won;
    assert!((4..=CALLERS * 2).contains(&leases), "{leases} leases");
    assert_eq!(stats.handed_over, CALLERS * 4 - leases);
    assert!(calls(&servers[0], "set") - before < CALLERS * 4, "{stats:?}");
    no_key_is_left(&servers).await;
    eventually("the numbers are written", || redlock.stats().held == 0).await;
}
