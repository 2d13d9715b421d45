//! Answers that come too late, and leases that have lapsed: neither makes a holder.

use redlock_quorum::{AcquireError, Ended, LostReason, Redlock};
use redlock_testkit::{Direction, FaultProxy, RedisServers};
use tokio::time::sleep;

use crate::lab::{
    eventually, in_time, masters, ms, never, no_key_is_left, patient, pttl, secs, urls_of, value,
    warm_up,
};

async fn proxied(servers: &RedisServers) -> (Vec<FaultProxy>, Redlock) {
    let proxies = servers.proxied().await.unwrap();
    let redlock = patient(urls_of(&proxies)).node_timeout(ms(150)).build().unwrap();
    warm_up(&redlock, servers).await;
    (proxies, redlock)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_after_the_end_of_the_lease_yield_no_guard() {
    let servers = masters();
    let (proxies, redlock) = proxied(&servers).await;
    proxies[..3].iter().for_each(|proxy| proxy.hold(Direction::ToClient));
    let refused = in_time(redlock.try_lock("late").ttl(ms(600)).into_future()).await.unwrap_err();
    let AcquireError::NoQuorum { votes, .. } = refused else { panic!("{refused}") };
    assert_eq!(votes.granted(), 2);
    sleep(ms(700)).await;
    proxies.iter().for_each(|proxy| proxy.heal());
    no_key_is_left(&servers).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_answers_leave_no_long_lived_key() {
    let servers = masters();
    let (proxies, redlock) = proxied(&servers).await;
    proxies[..3].iter().for_each(|proxy| proxy.hold(Direction::ToClient));
    in_time(redlock.try_lock("late").into_future()).await.unwrap_err();
    proxies.iter().for_each(|proxy| proxy.heal());
    no_key_is_left(&servers).await;
}

/// The grants of the first attempt come while a later one is being counted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_answers_are_invalid_for_the_next_attempt() {
    let servers = masters();
    let (proxies, redlock) = proxied(&servers).await;
    proxies[..3].iter().for_each(|proxy| proxy.hold(Direction::ToClient));
    let waiting = tokio::spawn(redlock.lock("late").wait(secs(10)).into_future());
    sleep(ms(500)).await;
    assert!(!waiting.is_finished(), "two masters of five are not a quorum");
    proxies.iter().for_each(|proxy| proxy.heal());
    let guard = in_time(waiting).await.unwrap().unwrap();
    let token = guard.into_lease().token.to_string();
    let ours = servers.iter().filter(|server| value(server, "late").as_deref() == Some(&*token));
    assert!(ours.count() >= 3, "a quorum has the key with its token");
}

/// A grant with a short expiry does not become valid for longer because the lock was extended
/// before the grant was known.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_grant_is_valid_only_for_its_requested_time() {
    let servers = masters();
    let (proxies, redlock) = proxied(&servers).await;
    proxies[3].hold(Direction::ToClient);
    servers[4].kill();
    let guard = redlock.lock("late").ttl(secs(2)).await.unwrap();
    // The two masters without a part in the extension: one is cut off, and the grant of the other
    // is held back.
    proxies[2].drop(Direction::Both);
    proxies[3].hold(Direction::ToServer);
    guard.extend(secs(30)).await.unwrap_err();
    proxies[3].release(Direction::ToClient);
    never("two extensions of five are none", || guard.remaining() > secs(2)).await;
    drop(guard);
    proxies.iter().for_each(|proxy| proxy.heal());
    proxies.iter().for_each(|proxy| proxy.reset());
    no_key_is_left(&servers).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lapsed_guard_stays_lapsed_and_its_keys_expire() {
    let servers = masters();
    let (proxies, redlock) = proxied(&servers).await;
    let guard = redlock.lock("lapsed").ttl(ms(600)).await.unwrap();
    proxies[..3].iter().for_each(|proxy| proxy.hold(Direction::Both));
    let Ended::Lost(lost) = in_time(guard.lost()).await else { panic!("it was not released") };
    assert_eq!(lost.reason, LostReason::NotExtended);
    assert!(!guard.is_held());
    proxies.iter().for_each(|proxy| proxy.heal());
    never("a guard that is revived", || guard.is_held()).await;
    assert_eq!(guard.check().unwrap_err().reason, LostReason::NotExtended);
    // The guard still lives, so nothing but their expiry can have removed them.
    no_key_is_left(&servers).await;
    assert!(!guard.is_held());
    let released = in_time(guard.release()).await.unwrap_err();
    assert!(
        released.to_string().contains("was already lost, or was never held by this token"),
        "{released}"
    );
}

/// The extensions were on their way in time, and their answers come when it is over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn extensions_confirmed_too_late_revive_nothing() {
    let servers = masters();
    let (proxies, redlock) = proxied(&servers).await;
    let guard = redlock.lock("late").ttl(secs(4)).auto_extend(false).await.unwrap();
    proxies[..3].iter().for_each(|proxy| proxy.hold(Direction::ToClient));
    guard.extend(secs(30)).await.unwrap_err();
    eventually("all masters have it for long", || {
        servers.iter().all(|server| pttl(server, "late") > 20_000)
    })
    .await;
    eventually("it is over", || !guard.is_held()).await;
    proxies.iter().for_each(|proxy| proxy.heal());
    never("a guard that is revived", || guard.is_held()).await;
    drop(guard);
    no_key_is_left(&servers).await;
}
