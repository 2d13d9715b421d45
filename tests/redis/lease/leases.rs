//! Leases as data: handed from one handle to another, forgotten, taken up again.

use redlock_quorum::{Lease, Verdict};
use redlock_testkit::Direction;

use crate::lab::{
    again, calls, everywhere, hasty, masters, never, no_key_is_left, patient, pttl, said, secs,
    urls_of, value, warm_up,
};

#[tokio::test]
async fn lease_is_resumed_and_released_by_another_handle() {
    let servers = masters();
    let [first, second] = [(); 2].map(|()| patient(servers.urls()).build().unwrap());
    let lease = everywhere(&first, "handed on").await.into_lease();
    let token = lease.token.to_string();
    assert!(lease.validity > secs(20));
    first.shutdown(secs(5)).await.expect("a lease that was given away needs no release");
    let guard = second.resume(lease).await.unwrap();
    guard.check().unwrap();
    assert_eq!(value(&servers[0], "handed on"), Some(token));
    guard.release().await.unwrap();
    no_key_is_left(&servers).await;
}

#[tokio::test]
async fn lease_is_resumed_by_only_its_token() {
    let servers = masters();
    let redlock = patient(servers.urls()).build().unwrap();
    let token = redlock.lock("written down").await.unwrap().into_lease().token.to_string();
    let lease = Lease::new("written down", &token, secs(40)).unwrap();
    let guard = redlock.resume(lease).await.unwrap();
    assert!(guard.remaining() > secs(30));
    guard.release().await.unwrap();
    no_key_is_left(&servers).await;
}

#[tokio::test]
async fn released_lease_is_not_resumed() {
    let servers = masters();
    let redlock = patient(servers.urls()).build().unwrap();
    let lease = redlock.lock("over").await.unwrap().into_lease();
    redlock.release(again(&lease)).await.unwrap();
    no_key_is_left(&servers).await;
    redlock.resume(lease).await.unwrap_err();
    never("it is set again", || value(&servers[0], "over").is_some()).await;
}

#[tokio::test]
async fn forgotten_lock_is_not_extended_or_released() {
    let servers = masters();
    let redlock = patient(servers.urls()).ttl(secs(3)).node_timeout(secs(0) + secs(3) / 4);
    let redlock = redlock.build().unwrap();
    let guard = everywhere(&redlock, "forgotten").await;
    guard.forget();
    // A lock that was not granted on all masters at first was released and requested again.
    let touched = |server| calls(server, "pexpire") + calls(server, "del");
    let touches = || servers.iter().map(touched).collect::<Vec<_>>();
    let before_that = touches();
    let lives = || servers.iter().map(|server| pttl(server, "forgotten")).collect::<Vec<_>>();
    let before = lives();
    never("it is released", || lives().iter().any(|life| *life < 0)).await;
    let after = lives();
    assert!(after.iter().zip(&before).all(|(after, before)| after < before), "{after:?}");
    no_key_is_left(&servers).await;
    assert_eq!(touches(), before_that, "it was extended or deleted");
}

/// A master that could not be reached during the resume may still have the key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resumed_lease_is_released_on_masters_absent_at_the_resume() {
    let servers = masters();
    let proxies = servers.proxied().await.unwrap();
    let first = patient(servers.urls()).build().unwrap();
    let guard = everywhere(&first, "away").await;
    let lease = guard.into_lease();
    proxies[2].refuse(true);
    let second = patient(urls_of(&proxies)).build().unwrap();
    let guard = second.resume(lease).await.unwrap();
    let away = said(&guard.votes(), &proxies[2].name()).clone();
    assert!(matches!(away, Verdict::Unknown(_)), "{away}");
    guard.release().await.unwrap();
    proxies[2].refuse(false);
    no_key_is_left(&servers).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lease_is_not_resumed_without_a_quorum() {
    let servers = masters();
    let proxies = servers.proxied().await.unwrap();
    let redlock = hasty(urls_of(&proxies)).build().unwrap();
    warm_up(&redlock, &servers).await;
    let lease = everywhere(&redlock, "unproved").await.into_lease();
    proxies[..3].iter().for_each(|proxy| proxy.hold(Direction::ToServer));
    let refused = redlock.resume(again(&lease)).await.unwrap_err();
    assert!(refused.to_string().contains("no quorum to extend"), "{refused}");
    proxies.iter().for_each(|proxy| proxy.heal());
    redlock.resume(lease).await.unwrap().release().await.unwrap();
    no_key_is_left(&servers).await;
}
