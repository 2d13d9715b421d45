//! The public surface on real servers: its types, its runtimes, and who holds what. Needs a
//! `redis-server` on the PATH.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says so what it expects")]

use std::fmt::Debug;
use std::time::Duration;

use futures::FutureExt;
use redlock_quorum::{
    AcquireError, Election, Ended, ExtendError, Guard, Hold, InvalidRequest, Leader, Leaders,
    Leadership, Lease, LockRequest, Loss, Lost, LostReason, Permit, Permits, Redlock, ReleaseError,
    Resource, RunError, Semaphore, State, Status, Unreleased, Watch,
};
use redlock_testkit::{Direction, RedisServers, ServerOptions};
use tokio::runtime::{Builder, Runtime};

use crate::lab::{PATIENCE, again, eventually, everywhere, keys, ms, ordinary, secs, value};

fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn multi_thread() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

// The shape of the types.

#[test]
fn public_types_are_send_sync_and_clone_as_documented() {
    fn handle<T: Clone + Send + Sync + Debug + 'static>() {}
    fn guard<T: Send + Sync + Debug + 'static>() {}
    fn view<T: Clone + Send + Debug + 'static>() {}
    fn request<T>()
    where
        T: IntoFuture<Output = Result<Guard, AcquireError>> + Clone + Send + Debug + 'static,
        T::IntoFuture: Send + 'static,
    {
    }
    fn stream<T: futures::Stream<Item = I> + Send + Debug + 'static, I>() {}
    fn loss<T: Future<Output = Ended> + Clone + Send + Unpin + Debug + 'static>() {}
    fn error<T: std::error::Error + Clone + Send + Sync + 'static>() {}
    handle::<Redlock>();
    request::<LockRequest>();
    guard::<Guard>();
    view::<Hold>();
    guard::<Lease>();
    handle::<Semaphore>();
    guard::<Permit>();
    guard::<Permits>();
    handle::<Election>();
    guard::<Leadership>();
    stream::<Watch, Status>();
    stream::<Leaders, Leader>();
    loss::<Loss>();
    error::<AcquireError>();
    error::<ExtendError>();
    error::<ReleaseError>();
    error::<RunError>();
    error::<Lost>();
    error::<Unreleased>();
    error::<InvalidRequest>();
    error::<redlock_quorum::BuildError>();
}

/// Compiled and never run: every future may be spawned.
#[allow(dead_code, reason = "it is compiled, and that is the test")]
fn every_future_can_be_sent_to_another_thread(redlock: Redlock, guard: Guard, lease: Lease) {
    fn sent<T: Send>(future: T) -> T {
        future
    }
    fn owned<T: Send + 'static>(_: T) {}
    owned(redlock.lock("a").run(|hold| async move { hold.lost().await }));
    owned(redlock.try_lock("a").into_future());
    let (semaphore, election) = (redlock.semaphore("a", 2), redlock.election("a"));
    owned(semaphore.acquire().into_future());
    owned(semaphore.acquire_many(2).run(|hold| async move { hold.lost().await }));
    drop(sent(semaphore.status()));
    owned(election.campaign());
    owned(election.leader());
    owned(election.run(|hold| async move { hold.lost().await }));
    drop(sent(redlock.status("a")));
    drop(sent(redlock.resume(again(&lease))));
    drop(sent(redlock.release(lease)));
    drop(sent(guard.extend(Duration::ZERO)));
    owned(guard.lost());
    owned(guard.release());
    owned(redlock.shutdown(Duration::ZERO));
}

#[tokio::test]
#[expect(
    clippy::needless_borrows_for_generic_args,
    reason = "that a borrowed name is taken is the point"
)]
async fn resource_accepts_any_bytes() {
    let servers = RedisServers::start(1).unwrap();
    let redlock = ordinary(servers.urls()).build().unwrap();
    let resource = Resource::from("a");
    let requests = [
        redlock.lock("a"),
        redlock.lock(String::from("a")),
        redlock.lock(&String::from("a")),
        redlock.lock(b"a".to_vec()),
        redlock.lock(&b"a"[..]),
        redlock.lock(&resource),
        redlock.lock(resource),
    ];
    for request in requests {
        let guard = request.await.unwrap();
        assert_eq!(guard.resource().as_bytes(), b"a");
        assert!(value(&servers[0], "a").is_some());
        guard.release().await.unwrap();
    }
    let largest = vec![0xff; 512];
    redlock.lock(largest).await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn key_is_prefix_and_name_with_the_token_as_value() {
    let options = ServerOptions::new().prefix("locks:");
    let servers = RedisServers::with(3, &options).unwrap();
    let redlock = ordinary(servers.urls()).prefix("locks:").label("web-1").build().unwrap();
    let token = everywhere(&redlock, "orders:42").await.into_lease().token.to_string();
    assert!(token.ends_with("/web-1"), "{token}");
    for server in servers.iter() {
        assert_eq!(value(server, "locks:orders:42").as_ref(), Some(&token), "{}", server.name());
    }
}

// Runtimes.

async fn cycle(redlock: &Redlock) {
    let guard = redlock.lock("a").await.unwrap();
    assert!(guard.is_held() && guard.check().is_ok() && guard.remaining() > Duration::ZERO);
    assert!(matches!(redlock.try_lock("a").await, Err(AcquireError::Held { .. })));
    guard.release().await.unwrap();
}

#[test]
fn handle_works_on_successive_runtimes_of_each_kind() {
    let servers = RedisServers::start(3).unwrap();
    let redlock = ordinary(servers.urls()).build().unwrap();
    for runtime in [current_thread(), multi_thread(), current_thread(), multi_thread()] {
        runtime.block_on(cycle(&redlock));
        let other = redlock.clone();
        runtime.block_on(async { tokio::spawn(async move { cycle(&other).await }).await.unwrap() });
    }
}

#[test]
fn a_lock_outlives_the_runtime_it_was_acquired_on() {
    let servers = RedisServers::start(3).unwrap();
    let redlock = ordinary(servers.urls()).build().unwrap();
    let guard = current_thread().block_on(redlock.lock("a").into_future()).unwrap();
    assert!(guard.is_held(), "the runtime is gone, and the lease is not");
    current_thread().block_on(async {
        let other = redlock.try_lock("a").await;
        assert!(matches!(other, Err(AcquireError::Held { .. })), "{other:?}");
        guard.extend(ms(20_000)).await.unwrap();
        assert!(guard.remaining() > ms(10_000));
        guard.release().await.unwrap();
        redlock.lock("a").await.unwrap().release().await.unwrap();
    });
}

/// The output of a future that needs no runtime to be ready.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("nothing is waited for")
}

#[test]
fn error_names_a_missing_runtime() {
    let redlock = Redlock::connect(["redis://127.0.0.1:1"]).unwrap();
    let lease = || Lease::new("a", "token", ms(1_000)).unwrap();
    let says_so = |error: &dyn std::error::Error| {
        assert!(error.to_string().contains("no tokio runtime"), "{error}");
    };
    let acquired = at_once(redlock.lock("a").into_future()).unwrap_err();
    assert_eq!(acquired, AcquireError::Invalid(InvalidRequest::NoRuntime));
    says_so(&acquired);
    says_so(&at_once(redlock.resume(lease())).unwrap_err());
    says_so(&at_once(redlock.release(lease())).unwrap_err());
    let status = at_once(redlock.status("a"));
    assert_eq!(status.state, State::Undecided);
    assert!(format!("{status:?}").contains("no tokio runtime"), "{status:?}");
    assert_eq!(at_once(redlock.shutdown(PATIENCE)), Ok(()));
}

// Handles and guards that go away.

#[tokio::test]
async fn a_guard_keeps_its_lock_when_the_handle_is_dropped() {
    let servers = RedisServers::start(3).unwrap();
    let redlock = ordinary(servers.urls()).ttl(secs(4)).node_timeout(secs(1)).build().unwrap();
    let guard = redlock.lock("a").await.unwrap();
    drop(redlock);
    tokio::time::sleep(ms(8_400)).await;
    assert_eq!(guard.check(), Ok(()), "the keeper continues for two TTLs");
    guard.release().await.unwrap();
    eventually("all keys are gone", || servers.iter().all(|server| keys(server).is_empty())).await;
}

#[tokio::test]
async fn guard_dropped_inside_or_outside_a_runtime_releases() {
    let servers = RedisServers::start(3).unwrap();
    let redlock = ordinary(servers.urls()).ttl(ms(60_000)).build().unwrap();
    drop(redlock.lock("a").await.unwrap());
    eventually("the first drop is heard of", || servers.iter().all(|s| keys(s).is_empty())).await;
    let guard = redlock.lock("a").await.unwrap();
    assert!(servers.iter().filter(|server| keys(server).len() == 1).count() >= 2);
    std::thread::spawn(move || drop(guard)).join().unwrap();
    eventually("the second drop is heard of", || servers.iter().all(|s| keys(s).is_empty())).await;
}

#[tokio::test]
async fn unacknowledged_release_continues_without_a_handle() {
    let servers = RedisServers::start(3).unwrap();
    let proxies = servers.proxied().await.unwrap();
    let urls = proxies.iter().map(|proxy| proxy.url());
    let redlock = Redlock::builder().nodes(urls).ttl(ms(60_000)).build().unwrap();
    let guard = everywhere(&redlock, "a").await;
    eventually("the key is on every master", || servers.iter().all(|s| keys(s).len() == 1)).await;
    proxies[0].hold(Direction::ToServer);
    drop(guard);
    drop(redlock);
    eventually("two are free", || servers.iter().skip(1).all(|server| keys(server).is_empty()))
        .await;
    assert_eq!(keys(&servers[0]).len(), 1, "the release waits in the network");
    proxies[0].release(Direction::ToServer);
    eventually("the third is free", || keys(&servers[0]).is_empty()).await;
}

#[tokio::test]
async fn second_shutdown_does_not_interrupt_the_first() {
    let servers = RedisServers::start(3).unwrap();
    let proxies = servers.proxied().await.unwrap();
    let urls = proxies.iter().map(|proxy| proxy.url());
    let redlock =
        Redlock::builder().nodes(urls).ttl(ms(60_000)).node_timeout(ms(5_000)).build().unwrap();
    let guard = everywhere(&redlock, "a").await;
    proxies[0].drop(Direction::Both);
    guard.release().await.unwrap();
    let first = tokio::spawn(redlock.clone().shutdown(PATIENCE));
    tokio::time::sleep(ms(50)).await;
    assert!(!first.is_finished(), "one master has not acknowledged");
    let second = tokio::spawn(redlock.shutdown(PATIENCE));
    tokio::time::sleep(ms(50)).await;
    assert!(!second.is_finished(), "it waits for the same");
    proxies[0].heal();
    proxies[0].reset();
    assert_eq!((first.await.unwrap(), second.await.unwrap()), (Ok(()), Ok(())));
    assert_eq!(keys(&servers[0]).len(), 0);
}

#[tokio::test]
async fn a_closed_handle_refuses_everything_and_its_guards_are_lost() {
    let servers = RedisServers::start(3).unwrap();
    let redlock = ordinary(servers.urls()).build().unwrap();
    let guard = everywhere(&redlock, "a").await;
    let lease = redlock.lock("b").await.unwrap().into_lease();
    let left = redlock.clone().shutdown(PATIENCE).await.unwrap_err();
    let of_guard = left.keys().iter().filter(|key| key.resource.as_bytes() == b"a").count();
    assert_eq!(of_guard, 3, "{left}");
    assert_eq!(guard.check().unwrap_err().reason, LostReason::Shutdown);
    assert_eq!(redlock.lock("c").await.unwrap_err(), AcquireError::Shutdown);
    assert_eq!(redlock.resume(again(&lease)).await.unwrap_err(), ExtendError::Shutdown);
    assert_eq!(redlock.release(lease).await.unwrap_err(), ReleaseError::Shutdown);
    assert!(matches!(guard.extend(ms(9_000)).await, Err(ExtendError::Lost(_))));
    assert!(guard.release().await.is_err());
    assert_eq!(redlock.status("a").await.state, State::Undecided);
}

#[tokio::test]
async fn unused_handle_releases_a_lease() {
    let servers = RedisServers::start(3).unwrap();
    let lease = {
        let redlock = ordinary(servers.urls()).build().unwrap();
        redlock.lock("a").await.unwrap().into_lease()
    };
    let redlock = ordinary(servers.urls()).build().unwrap();
    assert_eq!(redlock.release(again(&lease)).await, Ok(()));
    let again = redlock.release(lease).await.unwrap_err();
    assert!(matches!(again, ReleaseError::NotOurs { .. }), "{again}");
}

#[tokio::test]
async fn lease_passes_between_handles() {
    let servers = RedisServers::start(3).unwrap();
    let lease = {
        let redlock = ordinary(servers.urls()).build().unwrap();
        redlock.lock("a").await.unwrap().into_lease()
    };
    let redlock = ordinary(servers.urls()).build().unwrap();
    let guard = redlock.resume(again(&lease)).await.unwrap();
    assert_eq!(guard.resource(), &lease.resource);
    assert!(matches!(redlock.try_lock("a").await, Err(AcquireError::Held { .. })));
    guard.release().await.unwrap();
    let gone = redlock.resume(lease).await.unwrap_err();
    assert!(matches!(gone, ExtendError::NotOurs { .. }), "{gone}");
}
