//! Resumed leases whose resuming client goes away. Such a lease is never released for it.

use std::sync::Arc;
use std::time::Duration;

use redlock_core::Member;
use redlock_quorum::{ExtendError, Guard, Lease, Redlock, ReleaseError};
use redlock_testkit::{SimNode, SimNodes};
use tokio::time::{sleep, timeout};

use crate::arena::{
    NODE_TIMEOUT, RESOURCE, TTL, again, copies, count, full, handle, heal, hold, is_extend, let_go,
    masters, ms, partition, settle,
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
        let is_ours = |master: &Arc<SimNode>| master.holder(RESOURCE).as_deref() == Some(token);
        assert!(self.masters.iter().all(is_ours), "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn dropped_resume_takes_nothing_from_the_holder() {
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
async fn resume_during_shutdown_takes_nothing_from_the_holder() {
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
async fn failed_resume_takes_nothing_from_the_holder() {
    let shared = Shared::new().await;
    partition(&shared.links[..3]);
    let error = shared.other.resume(shared.lease()).await.unwrap_err();
    assert!(matches!(error, ExtendError::NoQuorum { .. }), "{error}");
    heal(&shared.links[..3]);
    shared.assert_held("no quorum").await;
}

/// A resume takes the lease over, and its parts make another.
#[tokio::test(start_paused = true)]
async fn a_lease_is_resumed_after_a_short_outage() {
    let (masters, redlock) = masters(5);
    let guard = full(&redlock, &masters).await;
    let (fence, token) = (guard.fencing_token(), guard.token().clone());
    let lease = guard.into_lease();
    let links = masters.another_client();
    let other = handle(&links).node_timeout(NODE_TIMEOUT).build().unwrap();
    partition(&links[..3]);
    let error = other.resume(again(&lease)).await.unwrap_err();
    assert!(matches!(error, ExtendError::NoQuorum { .. }), "{error}");
    heal(&links[..3]);
    settle().await;
    let resumed = other.resume(again(&lease)).await.unwrap();
    assert!(resumed.is_held() && fence.is_some() && fence < resumed.fencing_token());
    assert_eq!(resumed.token(), &token);
    resumed.release().await.unwrap();
    assert_eq!(copies(&masters), 0);
}

/// Its caller looks when nothing of the lease is left, but the holder has extended it in the
/// meantime.
#[tokio::test(start_paused = true)]
async fn resume_polled_too_late_takes_nothing_from_the_holder() {
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

/// The client wins by masters 0 and 1. Its request to master 2 arrives after another client has
/// held and released the lock. Its key is then on 1 and 2, and 2 knows a larger token than its own.
#[tokio::test(start_paused = true)]
async fn lapsed_lease_is_resumed_with_a_larger_token() {
    let (masters, redlock) = masters(3);
    let late = masters.another_client();
    late[2].delay(TTL * 13 / 10..=TTL * 13 / 10, ms(0)..=ms(0));
    let first = handle(&late).build().unwrap();
    let guard = first.lock(RESOURCE).auto_extend(false).await.unwrap();
    let before = guard.fencing_token();
    sleep(TTL / 2).await;
    partition(&late[..1]);
    let error = guard.extend(TTL).await.unwrap_err();
    assert!(matches!(error, ExtendError::NoQuorum { .. }), "{error}");
    let lease = guard.into_lease();

    sleep(TTL * 65 / 100).await;
    let between = redlock.try_lock(RESOURCE).await.unwrap();
    let theirs = between.fencing_token();
    between.release().await.unwrap();
    sleep(TTL / 4).await;
    let holders: Vec<_> = masters.iter().map(|master| master.holder(RESOURCE)).collect();
    let ours = Some(lease.token.to_string());
    assert_eq!(holders, [None, ours.clone(), ours], "its last request has arrived");

    let resumed = redlock.resume(lease).await.unwrap();
    assert!(before.is_some() && before < theirs);
    assert!(theirs < resumed.fencing_token(), "{theirs:?} {:?}", resumed.fencing_token());
}

/// Raises the scores of these masters above every due ballot, as other clients could have.
fn raise(masters: &[Arc<SimNode>], score: u64) {
    let member = Member::of(RESOURCE.as_bytes());
    for master in masters {
        master.edit_data(|data| {
            let run = data.record.run.unwrap();
            assert!(data.accept(run, member, score));
        });
    }
}

#[tokio::test(start_paused = true)]
async fn resume_with_a_refused_ballot_proposes_another() {
    let (masters, redlock) = masters(5);
    let lease = full(&redlock, &masters).await.into_lease();
    let largest = 2_000_000_000_000_000 + 31;
    raise(&masters[..3], largest);
    let other = handle(&masters.another_client()).build().unwrap();
    let guard = other.resume(lease).await.unwrap();
    assert!(guard.fencing_token().is_some_and(|token| token.get() > largest));
    assert_eq!((other.stats().attempts, other.stats().second_ballots), (1, 1));
    assert_eq!(guard.copies(), 5);
}

/// The lease is extended and gets no token. It stays with its holder.
#[tokio::test(start_paused = true)]
async fn resume_without_a_usable_ballot_leaves_the_holders_lock() {
    let shared = Shared::new().await;
    raise(&shared.masters[..3], (1 << 53) - 1);
    let error = shared.other.resume(shared.lease()).await.unwrap_err();
    let ExtendError::NoQuorum { votes, .. } = &error else { panic!("{error}") };
    assert!(votes.is_outbid() && error.to_string().contains("larger ballots"), "{error}");
    shared.assert_held("no ballot").await;
}

/// A master that has not been admitted is extended, and has no say in the token.
#[tokio::test(start_paused = true)]
async fn resume_also_extends_on_non_voting_masters() {
    let (masters, redlock) = masters(3);
    let lease = full(&redlock, &masters).await.into_lease();
    masters[2].crash_and_restart(true);
    let other = handle(&masters.another_client()).build().unwrap();
    let guard = other.resume(again(&lease)).await.unwrap();
    assert!(lease.fencing_token < guard.fencing_token());
    assert_eq!(guard.copies(), 2);
    assert_eq!(count(&masters[2], is_extend), 1);
    masters[1].crash_and_restart(true);
    let error = handle(&masters.another_client()).build().unwrap().resume(lease).await.unwrap_err();
    assert!(matches!(error, ExtendError::NoQuorum { .. }), "two of three do not vote: {error}");
}

/// The new holder has it: from then on it is his to release.
#[tokio::test(start_paused = true)]
async fn dropped_resumed_guard_releases() {
    let shared = Shared::new().await;
    drop(shared.other.resume(shared.lease()).await.unwrap());
    sleep(ms(100)).await;
    assert_eq!(copies(&shared.masters), 0);
}

#[tokio::test(start_paused = true)]
async fn lease_left_by_a_dropped_resume_can_be_released() {
    for millis in 0..20 {
        let (masters, _) = masters(5);
        masters.iter().for_each(|master| master.delay(ms(3)..=ms(9), ms(3)..=ms(9)));
        let redlock = handle(&masters).ttl(LONG).node_timeout(NODE_TIMEOUT).build().unwrap();
        let lease = full(&redlock, &masters).await.into_lease();
        hold(&masters[..1]);
        match timeout(ms(millis), redlock.resume(again(&lease))).await {
            Ok(resumed) => resumed.unwrap().forget(),
            Err(_) => settle().await,
        }
        let_go(&masters[..1]);
        assert_eq!(copies(&masters), 5, "after {millis} ms");
        assert_eq!(redlock.release(lease).await, Ok::<(), ReleaseError>(()));
    }
}
