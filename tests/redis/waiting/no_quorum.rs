//! Many processes that wait while too few masters vote: the load on the remaining masters, and how
//! soon the waiters are served once a quorum votes again.

use std::time::Duration;

use redlock_quorum::Redlock;
use redlock_testkit::{RedisServer, RedisServers};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::lab::{everywhere, in_time, ms, release, secs, text};

/// Commands that a waiter may cause at a master in a second.
const COMMANDS_A_SECOND: f64 = 200.0;
const MEASURED_FOR: Duration = secs(2);
/// The first pauses are short.
const SETTLE: Duration = ms(700);
const SERVED_WITHIN: Duration = ms(300);
const ROUNDS: usize = 5;
const KEY: &str = "wanted";

/// Why masters do not vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Without {
    Dead,
    Stopped,
    Replicas,
    Memory,
}

fn set(server: &RedisServer, name: &str, value: &str) {
    server.command(&["CONFIG", "SET", name, value]).unwrap();
}

impl Without {
    fn begin(self, server: &RedisServer) {
        match self {
            Self::Dead => server.kill(),
            Self::Stopped => server.pause().unwrap(),
            Self::Replicas => set(server, "min-replicas-to-write", "1"),
            Self::Memory => set(server, "maxmemory", "1"),
        }
    }

    fn end(self, server: &RedisServer) {
        match self {
            Self::Dead => unreachable!("it first returns through a quarantine"),
            Self::Stopped => server.resume().unwrap(),
            Self::Replicas => set(server, "min-replicas-to-write", "0"),
            Self::Memory => set(server, "maxmemory", "0"),
        }
    }
}

fn commands(server: &RedisServer) -> u64 {
    let stats: String = text(server, &["INFO", "stats"]);
    let line = stats.lines().find_map(|line| line.strip_prefix("total_commands_processed:"));
    line.unwrap().parse().unwrap()
}

/// Each of these processes waits for the key, and gives it back as soon as it has it.
fn wait(handles: &[Redlock]) -> JoinSet<()> {
    let mut waiting = JoinSet::new();
    for handle in handles {
        let request = handle.lock(KEY).wait_forever();
        waiting.spawn(async move { release(request.await.unwrap()).await });
    }
    waiting
}

/// Waits until all of them have had the key, and returns how long that took.
async fn served(mut waiting: JoinSet<()>) -> Duration {
    let begun = Instant::now();
    while let Some(served) = in_time(waiting.join_next()).await {
        served.unwrap();
    }
    begun.elapsed()
}

/// So many processes that have reached all masters.
async fn processes(servers: &RedisServers, waiters: usize) -> Vec<Redlock> {
    let handles: Vec<_> =
        (0..waiters).map(|_| Redlock::builder().nodes(servers.urls()).build().unwrap()).collect();
    for handle in &handles {
        release(everywhere(handle, "warm-up").await).await;
    }
    handles
}

/// How many commands a second each master that is left carries out for each waiter, at most.
async fn cost(n: usize, waiters: usize, state: Without) -> f64 {
    let servers = RedisServers::start(n).unwrap();
    let (left, lost) = servers.split_at(n / 2);
    let handles = processes(&servers, waiters).await;
    lost.iter().for_each(|server| state.begin(server));
    let mut waiting = wait(&handles);
    sleep(SETTLE).await;
    let (begun, before) = (Instant::now(), left.iter().map(commands).collect::<Vec<_>>());
    sleep(MEASURED_FOR).await;
    let took = left.iter().zip(before).map(|(server, before)| commands(server) - before);
    let most = took.max().unwrap() as f64 / begun.elapsed().as_secs_f64() / waiters as f64;
    assert!(waiting.try_join_next().is_none(), "there is no quorum");
    if state == Without::Stopped {
        lost.iter().for_each(|server| state.end(server));
    }
    most
}

#[tokio::test]
async fn waiters_without_a_quorum_load_masters_little() {
    for (n, waiters) in [(3, 1), (3, 16), (5, 16), (3, 64)] {
        for state in [Without::Dead, Without::Stopped, Without::Replicas, Without::Memory] {
            let each = cost(n, waiters, state).await;
            assert!(each <= COMMANDS_A_SECOND, "{n}, {waiters}, {state:?}: {each:.0} a second");
        }
    }
}

/// How long these processes take for a key that is held for a while and then released, as long as
/// all masters vote.
async fn usual(handles: &[Redlock]) -> Duration {
    let held = in_time(handles[0].lock(KEY).wait_forever().into_future()).await.unwrap();
    let waiting = wait(&handles[1..]);
    sleep(SETTLE).await;
    release(held).await;
    served(waiting).await
}

/// A short stall of the machine disturbs one of the rounds, and a busy machine is as slow with a
/// quorum.
#[tokio::test]
async fn waiters_are_served_soon_after_a_quorum_votes_again() {
    for state in [Without::Stopped, Without::Replicas, Without::Memory] {
        let servers = RedisServers::start(3).unwrap();
        let handles = processes(&servers, 16).await;
        let mut took = Vec::new();
        let within = SERVED_WITHIN.max(usual(&handles).await * 2);
        while took.iter().all(|took| *took > within) && took.len() < ROUNDS {
            servers[1..].iter().for_each(|server| state.begin(server));
            let waiting = wait(&handles);
            sleep(SETTLE).await;
            servers[1..].iter().for_each(|server| state.end(server));
            took.push(served(waiting).await);
        }
        assert!(took.iter().any(|took| *took <= within), "{state:?}: {took:?}, not {within:?}");
    }
}
