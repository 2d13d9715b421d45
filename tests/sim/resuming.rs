//! Leases that are taken over, and those that take them over and go away: a lease that was only
//! to be taken over is never released for them.

use std::time::Duration;

use redlock_quorum::{ExtendError, Guard, Lease, Redlock, ReleaseError};
use redlock_testkit::SimNodes;
use tokio::time::{sleep, timeout};

use crate::arena::{
    NODE_TIMEOUT, RESOURCE, TTL, copies, full, handle, heal, hold, let_go, masters, ms, partition,
    settle,
};

const LONG: Duration = Duration::from_secs(60);

/// A holder, and another client that has a copy of its lease.
struct Shared {
    masters: SimNodes,
    guard: Guard,
    links: SimNodes,
    other: Redlock,
}

impl Shared {
    async fn new() -> Self {
        let (masters, redlock) = masters(5);
        let guard = full(&redlock, &masters).await;
        let links = masters.another_client();
        links.iter().for_each(|link| link.delay(ms(3)..=ms(9), ms(3)..=ms(9)));
        let other = handle(&links).node_timeout(NODE_TIMEOUT).build().unwrap();
        Self { masters, guard, links, other }
    }

    fn lease(&self) -> Lease {
        Lease::new(RESOURCE, self.guard.token().as_str(), TTL).unwrap()
    }

    /// The holder still has the lock, on every master, and keeps it.
    async fn assert_held(&self, what: &str) {
        sleep(TTL * 2).await;
        assert_eq!(self.guard.check(), Ok(()), "{what}");
        assert_eq!(copies(&self.masters), 5, "{what}: its keys are gone");
        let token = self.guard.token().as_str();
        let is_ours = |master: &std::sync::Arc<redlock_testkit::SimNode>| {
            master.holder(RESOURCE).as_deref() == Some(token)
        };
        assert!(self.masters.iter().all(is_ours), "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_resumption_that_is_dropped_takes_nothing_from_the_holder() {
    for millis in 0..30 {
        let shared = Shared::new().await;
        match timeout(ms(millis), shared.other.resume(shared.lease())).await {
            Ok(resumed) => resumed.unwrap().forget(),
            Err(_) => settle().await,
        }
        shared.assert_held(&format!("dropped after {millis} ms")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_resumption_in_a_handle_that_is_closed_takes_nothing_from_the_holder() {
    for millis in 0..12 {
        let shared = Shared::new().await;
        let resuming = {
            let (other, lease) = (shared.other.clone(), shared.lease());
            tokio::spawn(async move { other.resume(lease).await.map(Guard::forget) })
        };
        sleep(ms(millis)).await;
        let _ = shared.other.clone().shutdown(ms(100)).await;
        let outcome = resuming.await.unwrap();
        assert!(matches!(outcome, Ok(()) | Err(ExtendError::Shutdown)), "{outcome:?}");
        shared.assert_held(&format!("closed after {millis} ms")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_resumption_that_fails_takes_nothing_from_the_holder() {
    let shared = Shared::new().await;
    partition(&shared.links[..3]);
    let error = shared.other.resume(shared.lease()).await.unwrap_err();
    assert!(matches!(error, ExtendError::NoQuorum { .. }), "{error}");
    heal(&shared.links[..3]);
    shared.assert_held("no quorum").await;
}

/// A resume takes the lease; its parts make another.
#[tokio::test(start_paused = true)]
async fn a_lease_is_resumed_with_its_fencing_token_after_a_short_outage() {
    let (masters, redlock) = masters(5);
    let guard = full(&redlock, &masters).await;
    let (fence, token) = (guard.fencing_token(), guard.token().clone());
    let lease = guard.into_lease();
    let again = || {
        let mut again =
            Lease::new(lease.resource.clone(), lease.token.as_str(), lease.ttl).unwrap();
        again.fencing_token = lease.fencing_token;
        again
    };
    let links = masters.another_client();
    let other = handle(&links).node_timeout(NODE_TIMEOUT).build().unwrap();
    partition(&links[..3]);
    let error = other.resume(again()).await.unwrap_err();
    assert!(matches!(error, ExtendError::NoQuorum { .. }), "{error}");
    heal(&links[..3]);
    settle().await;
    let resumed = other.resume(again()).await.unwrap();
    assert!(resumed.is_held() && fence.is_some());
    assert_eq!((resumed.fencing_token(), resumed.token()), (fence, &token));
    resumed.release().await.unwrap();
    assert_eq!(copies(&masters), 0);
}

/// Its caller looks when nothing of the lease is left there any more; the holder has extended it
/// meanwhile.
#[tokio::test(start_paused = true)]
async fn a_resumption_that_is_noticed_too_late_takes_nothing_from_the_holder() {
    let shared = Shared::new().await;
    let mut resuming = Box::pin(shared.other.resume(shared.lease()));
    assert!(timeout(ms(1), &mut resuming).await.is_err());
    // It is confirmed, and its caller does not get to run.
    sleep(ms(50)).await;
    partition(&shared.links);
    sleep(TTL * 2).await;
    let error = resuming.await.unwrap_err();
    assert!(matches!(error, ExtendError::TooLate { .. }), "{error}");
    heal(&shared.links);
    shared.assert_held("too late").await;
}

/// The new holder has it: from then on it is his to release.
#[tokio::test(start_paused = true)]
async fn a_guard_that_was_resumed_and_dropped_releases() {
    let shared = Shared::new().await;
    drop(shared.other.resume(shared.lease()).await.unwrap());
    sleep(ms(100)).await;
    assert_eq!(copies(&shared.masters), 0);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_a_dropped_resumption_left_can_be_released() {
    for millis in 0..20 {
        let (masters, _) = masters(5);
        masters.iter().for_each(|master| master.delay(ms(3)..=ms(9), ms(3)..=ms(9)));
        let redlock = handle(&masters).ttl(LONG).node_timeout(NODE_TIMEOUT).build().unwrap();
        let lease = full(&redlock, &masters).await.into_lease();
        hold(&masters[..1]);
        match timeout(ms(millis), redlock.resume(crate::arena::again(&lease))).await {
            Ok(resumed) => resumed.unwrap().forget(),
            Err(_) => settle().await,
        }
        let_go(&masters[..1]);
        assert_eq!(copies(&masters), 5, "after {millis} ms");
        assert_eq!(redlock.release(lease).await, Ok::<(), ReleaseError>(()));
    }
}
