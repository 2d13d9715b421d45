//! What these tests have in common: handles, patience, and a look at the masters behind the
//! library's back.

use std::future::Future;
use std::time::Duration;

use redlock_quorum::{Guard, NodeVote, Redlock, RedlockBuilder, Verdict, Votes};
use redlock_testkit::{FaultProxy, RedisServer, RedisServers};
use tokio::time::{Instant, sleep, timeout};

/// Longer than anything here takes: a test that waits for so long has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

pub(crate) fn masters() -> RedisServers {
    RedisServers::start(5).unwrap()
}

/// A handle whose keys live far longer than [`PATIENCE`], so that none of them is gone because it
/// has expired, and whose masters have all the time that a busy machine may take to answer.
pub(crate) fn patient(urls: impl IntoIterator<Item = String>) -> RedlockBuilder {
    Redlock::builder().nodes(urls).ttl(secs(30)).node_timeout(secs(5)).connect_timeout(secs(5))
}

/// The same, with masters that are given up quickly.
pub(crate) fn hasty(urls: impl IntoIterator<Item = String>) -> RedlockBuilder {
    patient(urls).node_timeout(ms(200))
}

pub(crate) fn urls_of(proxies: &[FaultProxy]) -> Vec<String> {
    proxies.iter().map(FaultProxy::url).collect()
}

/// Waits until something is so.
pub(crate) async fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "not in {PATIENCE:?}: {what}");
        sleep(ms(5)).await;
    }
}

/// Waits for what must come.
pub(crate) async fn in_time<F: Future>(future: F) -> F::Output {
    timeout(PATIENCE, future).await.expect("it comes in time")
}

/// That something does not happen can only be waited for.
pub(crate) async fn never(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + ms(300);
    while Instant::now() < end {
        assert!(!is_so(), "{what}");
        sleep(ms(5)).await;
    }
}

/// The keys on a master, without what the library keeps there for itself.
pub(crate) fn keys(server: &RedisServer) -> Vec<String> {
    let all: Vec<String> = text(server, &["KEYS", "*"]);
    all.into_iter().filter(|key| !key.starts_with("redlock-quorum:")).collect()
}

/// The master's answer to a command, as whatever the test wants it to be.
pub(crate) fn text<T: redis::FromRedisValue>(server: &RedisServer, words: &[&str]) -> T {
    redis::from_redis_value(server.command(words).unwrap()).unwrap()
}

pub(crate) fn value(server: &RedisServer, key: &str) -> Option<String> {
    text(server, &["GET", key])
}

/// How long a key still lives; negative when it is not there or never expires.
pub(crate) fn pttl(server: &RedisServer, key: &str) -> i64 {
    text(server, &["PTTL", key])
}

/// How often a master has carried out a command since it was started.
pub(crate) fn calls(server: &RedisServer, command: &str) -> u64 {
    let stats: String = text(server, &["INFO", "commandstats"]);
    let head = format!("cmdstat_{command}:calls=");
    let calls = stats.lines().find_map(|line| line.strip_prefix(&head)?.split(',').next());
    calls.map_or(0, |calls| calls.parse().unwrap())
}

/// Waits until no key is left on any master that can be asked.
pub(crate) async fn no_key_is_left(servers: &[RedisServer]) {
    let deadline = Instant::now() + PATIENCE;
    let can_be_asked = |server: &&RedisServer| server.is_running() && !server.is_paused();
    loop {
        let left: Vec<_> = servers.iter().filter(can_be_asked).map(keys).collect();
        if left.iter().all(Vec::is_empty) {
            return;
        }
        assert!(Instant::now() < deadline, "keys are left: {left:?}");
        sleep(ms(10)).await;
    }
}

/// A lock that every master holds. A master that was reached later than the others is asked with
/// the next attempt.
pub(crate) async fn everywhere(redlock: &Redlock, key: &str) -> Guard {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let guard = in_time(redlock.lock(key).into_future()).await.unwrap();
        let grace = Instant::now() + ms(200);
        while guard.copies() < guard.votes().len() && Instant::now() < grace {
            sleep(ms(1)).await;
        }
        if guard.copies() == guard.votes().len() {
            return guard;
        }
        assert!(Instant::now() < deadline, "some masters do not vote: {}", guard.votes());
        in_time(guard.release()).await.unwrap();
    }
}

/// Makes sure that a handle has reached all its masters.
pub(crate) async fn warm_up(redlock: &Redlock, servers: &[RedisServer]) {
    everywhere(redlock, "warm-up").await.release().await.unwrap();
    no_key_is_left(servers).await;
}

/// What one master said.
pub(crate) fn said<'a>(votes: &'a Votes, name: &str) -> &'a Verdict {
    let vote = votes.iter().find(|vote: &&NodeVote| &*vote.node == name);
    &vote.expect("every master has a vote").verdict
}

/// How many masters said nothing that counts.
pub(crate) fn unknown(votes: &Votes) -> usize {
    votes
        .iter()
        .filter(|vote| matches!(vote.verdict, Verdict::Unknown(_) | Verdict::Pending))
        .count()
}

/// The same lease once more, as a text that was read twice makes it.
pub(crate) fn again(lease: &redlock_quorum::Lease) -> redlock_quorum::Lease {
    redlock_quorum::Lease::new(lease.resource.clone(), lease.token.as_str(), lease.ttl).unwrap()
}
