//! Handles and patience.

use std::time::Duration;

use redlock_quorum::{AcquireError, Guard, Init, Redlock, RedlockBuilder, Verdict, Votes};
pub(crate) use redlock_testkit::lab::{PATIENCE, eventually, in_time, ms, secs};
use tokio::time::{Instant, sleep};

use crate::masters::{Master, Masters};

/// Longer than any other wait of a test. A result within this time did not wait for a silent
/// master, however busy the machine is.
pub(crate) const NODE_TIMEOUT: Duration = PATIENCE.saturating_mul(3);
/// Longer than any test takes: no key is gone because it has expired.
pub(crate) const LONG: Duration = Duration::from_secs(600);

/// A handle whose keys stay until they are released.
pub(crate) fn patient(masters: &Masters) -> Redlock {
    builder(masters).ttl(LONG).max_ttl(LONG).node_timeout(NODE_TIMEOUT).build().unwrap()
}

/// Creates a handle whose leases must be extended during a test.
pub(crate) fn brisk(masters: &Masters) -> Redlock {
    builder(masters).ttl(secs(4)).node_timeout(secs(1)).build().unwrap()
}

pub(crate) fn builder(masters: &Masters) -> RedlockBuilder {
    Redlock::builder().nodes(masters.urls())
}

/// Admits all masters for a prefix: the test asserts that no lock of another test is held. Blocks,
/// as every call of docker does.
pub(crate) fn admit(urls: Vec<String>, prefix: &str, max_ttl: Duration) {
    let builder = Redlock::builder().nodes(urls).prefix(prefix).max_ttl(max_ttl);
    let redlock = builder.ttl(max_ttl).node_timeout(NODE_TIMEOUT.min(max_ttl / 4));
    let redlock = redlock.build_blocking().unwrap();
    let report = redlock.init_with(Init { again: true, ..Init::default() }).unwrap();
    assert_eq!(report.admitted(), report.nodes.len(), "{report:?}");
    redlock.shutdown(PATIENCE).unwrap();
}

/// Waits until a handle has reached every master, so that the next request goes to all of them.
pub(crate) async fn reach_all(redlock: &Redlock) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let status = redlock.status("reached").await;
        if status.nodes.iter().all(|node| node.verdict == Verdict::Free) {
            return;
        }
        assert!(Instant::now() < deadline, "not every master is reached: {status:?}");
        sleep(ms(10)).await;
    }
}

/// A lock that every master holds, and its token.
pub(crate) async fn everywhere(redlock: &Redlock, masters: &Masters, key: &str) -> (Guard, String) {
    reach_all(redlock).await;
    let guard = redlock.lock(key).await.unwrap();
    eventually("every master has granted", || guard.copies() == masters.len()).await;
    let token = masters[0].value(key).expect("the key is there");
    assert_eq!(masters.values(key), vec![Some(token.clone()); masters.len()]);
    (guard, token)
}

/// All releases are acknowledged in the end: then no key is left on any master.
pub(crate) async fn leaves_nothing(redlock: Redlock, masters: &Masters, key: &str) {
    redlock.shutdown(PATIENCE).await.unwrap();
    assert_eq!(masters.values(key), vec![None; masters.len()]);
}

/// Checks that another client that requests the lock learns that it is held.
pub(crate) async fn assert_taken(redlock: &Redlock, key: &str) {
    match redlock.try_lock(key).await {
        Err(AcquireError::Held { .. }) => {}
        other => panic!("{key} is taken, and yet: {other:?}"),
    }
}

/// Returns one master's answer.
pub(crate) fn said(votes: &Votes, master: Master) -> Verdict {
    let vote = votes.iter().find(|vote| *vote.node == *master.node());
    vote.expect("every master has a vote").verdict.clone()
}
