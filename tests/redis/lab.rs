//! Helpers of these tests: handles, timeouts, and access to the masters without the library.

use redlock_quorum::{
    Guard, LockRequest, NodeVote, Redlock, RedlockBuilder, ReleaseError, Verdict, Votes,
};
pub(crate) use redlock_testkit::lab::{
    PATIENCE, calls, eventually, has_setting, in_time, keys, ms, never, no_key_is_left, pttl, put,
    secs, text, value,
};
use redlock_testkit::{FaultProxy, RedisServer, RedisServers};
use tokio::time::{Instant, sleep};

/// Returns `true` if the server was built with TLS. Otherwise reports that the test is skipped.
pub(crate) fn has_tls() -> bool {
    let has = has_setting(&RedisServer::start().unwrap(), "tls-port");
    if !has {
        println!("skipped: the server was built without TLS");
    }
    has
}

pub(crate) fn masters() -> RedisServers {
    RedisServers::start(5).unwrap()
}

/// A handle whose keys live far longer than [`PATIENCE`], so that none of them is gone because it
/// has expired, and whose masters have all the time that a busy machine may take to answer.
pub(crate) fn patient(urls: impl IntoIterator<Item = String>) -> RedlockBuilder {
    Redlock::builder().nodes(urls).ttl(secs(30)).node_timeout(secs(5)).connect_timeout(secs(5))
}

/// A handle with the defaults, but for a node timeout that a machine which is busy with other
/// tests can keep.
pub(crate) fn ordinary(urls: impl IntoIterator<Item = String>) -> RedlockBuilder {
    Redlock::builder().nodes(urls).node_timeout(secs(1))
}

/// The same as [`patient`], but with short timeouts for masters. A busy machine needs more time than
/// a shorter one allows.
pub(crate) fn hasty(urls: impl IntoIterator<Item = String>) -> RedlockBuilder {
    patient(urls).node_timeout(ms(500))
}

pub(crate) fn urls_of(proxies: &[FaultProxy]) -> Vec<String> {
    proxies.iter().map(FaultProxy::url).collect()
}

/// A lock that every master holds.
pub(crate) async fn everywhere(redlock: &Redlock, key: &str) -> Guard {
    on_all(|| redlock.lock(key)).await
}

/// The same for any request. A master that connected later than the others takes part in the next
/// attempt. `min_copies` would wait for it only briefly, and a busy machine uses up that time.
pub(crate) async fn on_all(request: impl Fn() -> LockRequest) -> Guard {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let guard = in_time(request().into_future()).await.unwrap();
        in_time(guard.settled()).await;
        let grace = Instant::now() + ms(200);
        while guard.copies() < guard.votes().len() && Instant::now() < grace {
            sleep(ms(1)).await;
        }
        if guard.copies() == guard.votes().len() {
            return guard;
        }
        assert!(Instant::now() < deadline, "some masters do not vote: {}", guard.votes());
        release(guard).await;
    }
}

/// Releases a lock. A busy machine may not confirm that within the node timeout, but nothing else
/// may fail.
pub(crate) async fn release(guard: Guard) {
    match in_time(guard.release()).await {
        Ok(()) | Err(ReleaseError::Unconfirmed { .. }) => {}
        Err(error) => panic!("{error}"),
    }
}

/// Makes sure that a handle has reached all its masters.
pub(crate) async fn warm_up(redlock: &Redlock, servers: &[RedisServer]) {
    everywhere(redlock, "warm-up").await.release().await.unwrap();
    no_key_is_left(servers).await;
}

/// Returns one master's answer.
pub(crate) fn said<'a>(votes: &'a Votes, name: &str) -> &'a Verdict {
    let vote = votes.iter().find(|vote: &&NodeVote| &*vote.node == name);
    &vote.expect("every master has a vote").verdict
}

/// Returns how many masters gave no valid answer.
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

/// An error is one line that ends the sentence of a caller: no line break, no full stop.
pub(crate) fn assert_one_line(text: &str) {
    assert!(!text.is_empty() && !text.contains(['\n', '\r']), "not one line: {text:?}");
    assert!(!text.ends_with(['.', ' ', ',']), "an error has no end: {text:?}");
}
