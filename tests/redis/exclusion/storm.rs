//! Mutual exclusion while the network fails in every way at random, and leases lapse for real.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redlock_core::Clock;
use redlock_quorum::{Guard, Redlock};
use redlock_testkit::{Contender, Direction, FaultProxy, History, RedisServer, check};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::lab::{masters, ms, no_key_is_left, secs, urls_of};

const KEY: &str = "the one";
/// How long it lasts at least, and at most if the machine is too busy for some locks in that time.
const STORM: Duration = secs(6);
const LONGEST_STORM: Duration = secs(40);
/// How many locks have to be acquired in it.
const LOCKS: usize = 5;

/// A storm, and how many locks were acquired in it.
struct Storm {
    begun: Instant,
    locks: AtomicUsize,
}

impl Storm {
    fn is_over(&self) -> bool {
        let lasted = self.begun.elapsed();
        let is_enough = self.locks.load(Ordering::Relaxed) >= LOCKS;
        lasted >= STORM && (is_enough || lasted >= LONGEST_STORM)
    }
}

fn handle(proxies: &[FaultProxy], clock: &Clock) -> Redlock {
    let builder = Redlock::builder().nodes(urls_of(proxies)).clock(clock.clone());
    // Short enough for a fault to outlive it.
    builder.ttl(ms(400)).node_timeout(ms(60)).connect_timeout(ms(200)).build().unwrap()
}

/// Hurts one master after the other and heals them again, two or three of five at a time.
async fn rage(servers: &[RedisServer], proxies: &[FaultProxy], storm: &Storm) {
    let mut is_hurt = vec![false; servers.len()];
    while !storm.is_over() {
        let victim = rand::random_range(0..servers.len());
        let (server, proxy) = (&servers[victim], &proxies[victim]);
        if is_hurt[victim] {
            heal(server, proxy);
        } else {
            hurt(server, proxy);
        }
        is_hurt[victim] = !is_hurt[victim];
        sleep(ms(rand::random_range(0..150))).await;
    }
    servers.iter().zip(proxies).for_each(|(server, proxy)| heal(server, proxy));
}

fn hurt(server: &RedisServer, proxy: &FaultProxy) {
    match rand::random_range(0..6) {
        0 => proxy.hold(Direction::ToServer),
        1 => proxy.hold(Direction::ToClient),
        2 => proxy.delay(Direction::Both, ms(rand::random_range(0..100))),
        3 => proxy.reset_after(Direction::Both, rand::random_range(0..200)),
        4 => proxy.drop(Direction::Both),
        _ => server.pause().unwrap(),
    }
}

fn heal(server: &RedisServer, proxy: &FaultProxy) {
    server.resume().unwrap();
    proxy.heal();
    if rand::random() {
        proxy.reset();
    }
}

/// Holds the lock for some time, and says all the while until when it believes to hold it.
async fn hold(guard: Guard, clock: &Clock, log: &Contender) {
    let token = guard.token().to_string();
    // Most are done soon; some hold it for longer than a lease lasts.
    let longest = if rand::random_range(0..4) == 0 { 1_500 } else { 50 };
    let end = Instant::now() + ms(rand::random_range(0..longest));
    loop {
        // The clock is read first, so the recorded time is not later than the believed one.
        let now = clock.now();
        match guard.check() {
            Ok(()) => log.granted(&token, now.saturating_add(guard.remaining())),
            Err(_) => return log.lost(&token),
        }
        if Instant::now() >= end {
            break;
        }
        sleep(ms(3)).await;
    }
    log.released(&token);
    if rand::random() {
        // This test does not check the confirmation.
        let _ = guard.release().await;
    }
}

async fn contend(redlock: Redlock, clock: Clock, log: Contender, storm: Arc<Storm>) {
    while !storm.is_over() {
        log.invoke();
        match redlock.lock(KEY).wait(ms(1_000)).await {
            Ok(guard) => {
                storm.locks.fetch_add(1, Ordering::Relaxed);
                hold(guard, &clock, &log).await;
            }
            Err(_) => log.refused(),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_holder_under_network_faults() {
    let servers = masters();
    let proxies = servers.proxied().await.unwrap();
    let clock = Clock::system();
    let history = Arc::new(History::new(clock.clone()));
    let handles = [(); 3].map(|()| handle(&proxies, &clock));
    let storm = Arc::new(Storm { begun: Instant::now(), locks: AtomicUsize::default() });
    let mut contenders = JoinSet::new();
    for number in 0..9 {
        let (redlock, log) = (handles[number % 3].clone(), history.contender(number, KEY));
        contenders.spawn(contend(redlock, clock.clone(), log, storm.clone()));
    }
    rage(&servers, &proxies, &storm).await;
    while let Some(contender) = contenders.join_next().await {
        contender.unwrap();
    }
    let claims = check(&history.records()).unwrap_or_else(|overlap| panic!("{overlap}"));
    assert!(claims >= LOCKS, "a storm in which {claims} locks were acquired shows nothing");
    no_key_is_left(&servers).await;
}
