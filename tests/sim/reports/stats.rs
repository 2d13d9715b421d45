//! Each number of `Redlock::stats` moves for its reason, and for no other.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use redlock_quorum::{AcquireError, Cause, Redlock, Stats, Verdict};
use redlock_testkit::SimNodes;
use tokio::time::sleep;

use crate::arena::{
    NODE_TIMEOUT, RESOURCE, TTL, ended, full, handle, hold, let_go, masters, ms, partition, settle,
};

/// Creates a process whose actions are not part of the statistics.
fn another(masters: &SimNodes) -> (SimNodes, Redlock) {
    let client = masters.another_client();
    let redlock = handle(&client).build().unwrap();
    (client, redlock)
}

/// The sum of one kind of vote over all masters.
fn votes(stats: &Stats, name: &str) -> u64 {
    let named = stats.nodes.iter().flat_map(|node| node.votes.by_name());
    named.filter(|(kind, _)| *kind == name).map(|(_, votes)| votes).sum()
}

#[tokio::test(start_paused = true)]
async fn undisturbed_lock_is_one_attempt_in_one_round() {
    let (masters, redlock) = masters(5);
    assert_eq!(redlock.stats().attempts, 0);
    let guard = full(&redlock, &masters).await;
    let stats = redlock.stats();
    assert_eq!((stats.attempts, stats.rounds, stats.acquired, stats.failed), (1, 1, 1, 0));
    assert_eq!((stats.held, stats.waiting), (1, 0));
    assert_eq!((stats.waits.count, votes(&stats, "granted")), (1, 5));
    assert!(stats.nodes.iter().all(|node| node.is_up && node.connections == 1));
    guard.release().await.unwrap();
    settle().await;
    let stats = redlock.stats();
    assert_eq!((stats.held, votes(&stats, "granted")), (0, 10), "the releases are also granted");
    let quiet = [stats.watches, stats.polls, stats.pushes, stats.extensions, stats.margins.count];
    assert_eq!(quiet, [0; 5]);
    assert!(stats.losses.by_name().iter().all(|(_, lost)| *lost == 0));
}

/// Checks the sums that users may compute, while nothing is in progress.
fn assert_sums(stats: &Stats, requests: u64) {
    let outcomes: u64 = stats.outcomes.by_name().iter().map(|(_, attempts)| attempts).sum();
    assert_eq!(stats.attempts, outcomes, "{stats:?}");
    assert_eq!(stats.outcomes.won + stats.handed_over, stats.acquired, "{stats:?}");
    assert_eq!(stats.requests, stats.acquired + stats.failed + stats.cancelled, "{stats:?}");
    assert_eq!((stats.requests, stats.waiting), (requests, 0), "{stats:?}");
    assert_eq!(stats.waits.count, stats.acquired + stats.failed, "{stats:?}");
    assert!(stats.attempts <= stats.rounds && stats.rounds <= stats.attempts * 2, "{stats:?}");
}

/// One request, of any kind, whose caller may go away at any time.
async fn some_request(redlock: Redlock, mut rng: StdRng) {
    let request = redlock.lock(RESOURCE).wait(ms(rng.random_range(0..200)));
    let request = if rng.random_bool(0.3) { request.wait(ms(0)) } else { request };
    let request = if rng.random_bool(0.1) { request.ttl(TTL * 100) } else { request };
    let (hold, patience) = (ms(rng.random_range(0..20)), ms(rng.random_range(0..300)));
    let locked = tokio::time::timeout(patience, request.into_future()).await;
    if let Ok(Ok(guard)) = locked {
        sleep(hold).await;
        drop(guard);
    }
}

#[tokio::test(start_paused = true)]
async fn attempts_and_requests_are_counted_once() {
    const REQUESTS: u64 = 300;
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..10 {
        let masters = crate::arena::admitted(5, seed);
        masters.iter().for_each(|master| master.delay(ms(0)..=ms(3), ms(0)..=ms(3)));
        let redlocks = [another(&masters), another(&masters)];
        let mut work = tokio::task::JoinSet::new();
        let mut rng = StdRng::seed_from_u64(seed);
        for nth in 0..REQUESTS * 2 {
            let redlock = redlocks[nth as usize % 2].1.clone();
            work.spawn(some_request(redlock, StdRng::seed_from_u64(seed * 1_000 + nth)));
            sleep(ms(rng.random_range(0..4))).await;
            let victim = &masters[rng.random_range(0..5)];
            match rng.random_range(0..60) {
                0 => victim.partition(),
                1 => victim.hold(),
                2 => partition(&masters[..3]),
                3..20 => {
                    victim.heal();
                    victim.release();
                }
                // The fault lasts for longer than the time that masters have to answer.
                _ => {}
            }
        }
        for master in masters.iter() {
            master.heal();
            master.release();
        }
        let shut = redlocks[0].1.clone();
        let closed = tokio::spawn(async move { shut.shutdown(TTL).await });
        work.join_all().await;
        sleep(TTL).await;
        let _ = closed.await.unwrap();
        for (_, redlock) in &redlocks {
            let stats = redlock.stats();
            assert_sums(&stats, REQUESTS);
            let outcomes = stats.outcomes.by_name().into_iter();
            seen.extend(outcomes.filter(|(_, count)| *count > 0).map(|(outcome, _)| outcome));
            assert!(stats.cancelled > 0 && stats.failed > 0 && stats.acquired > 0, "{stats:?}");
        }
    }
    assert!(seen.is_superset(&["won", "held", "unanswered"].into()), "{seen:?}");
}

/// Each of two reaches two masters before the other, and the fifth is away.
#[tokio::test(start_paused = true)]
async fn split_votes_are_counted_by_each_contender() {
    let (masters, _) = masters(5);
    let contenders = [0, 2].map(|near| {
        let (client, redlock) = another(&masters);
        client[near..near + 2].iter().for_each(|master| master.delay(ms(1)..=ms(1), ms(1)..=ms(1)));
        client[2 - near..4 - near]
            .iter()
            .for_each(|master| master.delay(ms(9)..=ms(9), ms(1)..=ms(1)));
        client[4].down();
        (client, redlock)
    });
    for (_, redlock) in &contenders {
        redlock.status(RESOURCE).await;
    }
    let [first, second] = [0, 1].map(|nth| contenders[nth].1.try_lock(RESOURCE).into_future());
    let (first, second) = tokio::join!(first, second);
    assert!(first.is_err() && second.is_err());
    for (_, redlock) in &contenders {
        assert_eq!(redlock.stats().outcomes.split, 1, "{:?}", redlock.stats());
    }
}

#[tokio::test(start_paused = true)]
async fn wait_is_counted_with_its_length_and_cause() {
    let (masters, holder) = masters(5);
    let (_client, redlock) = another(&masters);
    let guard = holder.lock(RESOURCE).await.unwrap();
    let waiting = tokio::spawn(redlock.lock(RESOURCE).wait_forever().into_future());
    sleep(ms(250)).await;
    let before = redlock.stats();
    // It queries again after 100 ms, and after 200 more.
    assert_eq!((before.waiting, before.pushes), (1, 0));
    assert!(before.polls <= 2 && before.watches == before.polls + 1, "{before:?}");
    guard.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
    let after = redlock.stats();
    assert!(after.pushes > 0 && after.waiting == 0, "{after:?}");
    assert_eq!(after.polls, before.polls, "a push led to the attempt");
    assert_eq!((after.waits.count, after.attempts - before.attempts), (1, 1));
    assert_eq!(after.rounds - before.rounds, 1, "it was called, and queried all masters together");
    assert!((ms(250)..ms(300)).contains(&after.waits.sum), "{after:?}");
    assert_eq!(after.waits.buckets[8], 1, "above 200 ms, up to 500 ms");
}

#[tokio::test(start_paused = true)]
async fn failed_request_and_its_wait_are_counted() {
    let (masters, redlock) = masters(5);
    masters.iter().for_each(|master| master.put(RESOURCE, "stranger", 100_000));
    redlock.lock(RESOURCE).wait(ms(700)).await.unwrap_err();
    let stats = redlock.stats();
    assert_eq!((stats.acquired, stats.failed, stats.waits.count), (0, 1, 1));
    assert!(stats.waits.sum >= ms(700) && votes(&stats, "held") >= 5, "{stats:?}");
}

#[tokio::test(start_paused = true)]
async fn requests_caused_by_time_are_polls() {
    let (masters, _) = masters(5);
    masters.iter().for_each(|master| master.put(RESOURCE, "stranger", 100_000));
    let (client, redlock) = another(&masters);
    let waiting = tokio::spawn(redlock.lock(RESOURCE).wait_forever().into_future());
    sleep(ms(10_000)).await;
    let stats = redlock.stats();
    assert!((9..=18).contains(&stats.polls), "a question a second: {stats:?}");
    assert_eq!((stats.watches - stats.polls, stats.attempts - stats.polls), (1, 2));
    client.iter().for_each(|master| master.set_tracking(false));
    sleep(ms(10_000)).await;
    let blind = redlock.stats();
    assert!(blind.polls - stats.polls > 50, "without pushes it tries again: {blind:?}");
    assert!(blind.attempts - stats.attempts > 50, "{blind:?}");
    waiting.abort();
}

#[tokio::test(start_paused = true)]
async fn extensions_are_counted_with_the_remaining_time() {
    let (masters, redlock) = masters(5);
    let guard = full(&redlock, &masters).await;
    sleep(TTL * 3).await;
    let stats = redlock.stats();
    assert_eq!(stats.margins.count, stats.extensions, "each moved the lease: {stats:?}");
    assert!((8..=10).contains(&stats.extensions), "at a third of the TTL: {stats:?}");
    let margin = stats.margins.sum / u32::try_from(stats.margins.count).unwrap();
    assert!((TTL / 2..TTL * 2 / 3).contains(&margin), "{margin:?}");
    hold(&masters[..3]);
    sleep(TTL / 2).await;
    let stalled = redlock.stats();
    assert!(stalled.extensions > stats.extensions, "{stalled:?}");
    assert!(stalled.margins.count <= stats.margins.count + 1, "{stalled:?}");
    assert!(votes(&stalled, "timed_out") >= 3, "{stalled:?}");
    let_go(&masters[..3]);
    guard.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn extension_moving_the_deadline_twice_has_one_margin() {
    let (masters, redlock) = masters(5);
    let guard = redlock.lock(RESOURCE).min_copies(5).auto_extend(false).await.unwrap();
    // Two masters confirm the first extension, which does not move the deadline. The others are the
    // first to confirm the second one.
    sleep(ms(10)).await;
    masters[2..].iter().for_each(|master| master.lose_requests(true));
    guard.extend(TTL).await.unwrap_err();
    masters[2..].iter().for_each(|master| master.lose_requests(false));
    masters[..2].iter().for_each(|master| master.delay(ms(5)..=ms(5), ms(5)..=ms(5)));
    guard.extend(TTL).await.unwrap();
    sleep(ms(20)).await;
    let stats = redlock.stats();
    assert_eq!((stats.extensions, stats.margins.count), (2, 1), "{stats:?}");
}

#[tokio::test(start_paused = true)]
async fn a_loss_is_counted_once_by_its_reason() {
    let lost = |stats: &Stats| {
        let losses = stats.losses.by_name().into_iter();
        losses.filter(|(_, lost)| *lost > 0).collect::<Vec<_>>()
    };
    let (masters, redlock) = crate::arena::trusting(5);
    let guard = full(&redlock, &masters).await;
    masters.iter().for_each(|master| master.put(RESOURCE, "stranger", 100_000));
    ended(&guard).await;
    sleep(TTL).await;
    assert_eq!(lost(&redlock.stats()), [("not_ours", 1)]);
    assert_eq!(redlock.stats().held, 0, "its guard still exists");
    drop(guard);
    settle().await;
    masters.iter().for_each(|master| master.flush());

    let request = || redlock.lock(RESOURCE).min_copies(5);
    let guard = request().auto_extend(false).await.unwrap();
    ended(&guard).await;
    drop(guard);
    settle().await;
    assert_eq!(lost(&redlock.stats()), [("not_extended", 1), ("not_ours", 1)]);

    let guard = request().max_hold(ms(1)).await.unwrap();
    ended(&guard).await;
    drop(guard);
    settle().await;
    assert_eq!(lost(&redlock.stats()), [("not_extended", 1), ("not_ours", 1), ("max_hold", 1)]);

    let guard = request().await.unwrap();
    masters.iter().for_each(|master| master.crash_and_restart(false));
    ended(&guard).await;
    drop(guard);
    settle().await;
    assert_eq!(redlock.stats().losses.data_lost, 1);

    let _guard = request().await.unwrap();
    redlock.clone().shutdown(ms(100)).await.unwrap_err();
    let stats = redlock.stats();
    assert_eq!((stats.losses.shutdown, stats.held), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn released_or_detached_lock_is_not_a_loss() {
    let (masters, redlock) = masters(5);
    full(&redlock, &masters).await.release().await.unwrap();
    drop(full(&redlock, &masters).await);
    settle().await;
    let lease = full(&redlock, &masters).await.into_lease();
    settle().await;
    redlock.resume(lease).await.unwrap().forget();
    settle().await;
    let stats = redlock.stats();
    assert_eq!((stats.acquired, stats.held), (4, 0));
    assert!(stats.losses.by_name().iter().all(|(_, lost)| *lost == 0), "{stats:?}");
}

#[tokio::test(start_paused = true)]
async fn unreachable_master_shows_in_its_own_stats() {
    let (masters, redlock) = masters(5);
    full(&redlock, &masters).await.release().await.unwrap();
    masters[4].hold();
    let guard = redlock.lock(RESOURCE).await.unwrap();
    sleep(NODE_TIMEOUT * 2).await;
    guard.release().await.unwrap();
    let stats = redlock.stats();
    assert_eq!(stats.nodes[4].votes.timed_out, 1, "{stats:?}");
    assert!(stats.nodes[..4].iter().all(|node| node.votes.timed_out == 0), "{stats:?}");
    masters[4].down();
    sleep(NODE_TIMEOUT).await;
    let stats = redlock.stats();
    assert_eq!((stats.nodes[4].is_up, stats.nodes[3].is_up), (false, true));
    assert_eq!((stats.nodes[4].unacknowledged, stats.nodes[3].unacknowledged), (1, 0));
    masters[4].release();
    masters[4].up();
    sleep(Duration::from_secs(3)).await;
    let stats = redlock.stats();
    assert_eq!((stats.nodes[4].is_up, stats.nodes[4].unacknowledged), (true, 0));
    assert_eq!((stats.nodes[4].connections, stats.nodes[3].connections), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn stats_serialize_to_json() {
    let (masters, redlock) = masters(3);
    drop(full(&redlock, &masters).await);
    let written = serde_json::to_value(redlock.stats()).unwrap();
    assert_eq!(written["attempts"], 1);
    assert_eq!(written["nodes"][2]["node"], "sim-2:6379");
    assert_eq!(written["nodes"][2]["votes"]["granted"], 1);
    assert!(written["waits"]["sum_seconds"].is_f64() && written["waits"]["count"] == 1);
}

#[tokio::test(start_paused = true)]
async fn status_shows_masters_that_report_no_changes() {
    let (masters, redlock) = masters(3);
    masters[1].set_tracking(false);
    masters[2].down();
    let status = redlock.status(RESOURCE).await;
    let tracks: Vec<_> = status.nodes.iter().map(|node| node.tracks).collect();
    assert_eq!(tracks, [Some(true), Some(false), None]);
}

/// A wait ends immediately if an operator has to change something before any quorum can answer.
#[tokio::test(start_paused = true)]
async fn hopeless_wait_ends_immediately() {
    for (denied, away) in [(5, 0), (3, 0), (3, 2)] {
        let (masters, redlock) = masters(5);
        let denying = &masters[5 - denied..];
        masters[..away].iter().for_each(|master| master.down());
        denying.iter().for_each(|master| master.error_replies(Some("NOPERM no")));
        let begin = masters.clock().now();
        let request = redlock.lock(RESOURCE).wait_forever().into_future();
        let ended = tokio::time::timeout(ms(60_000), request).await;
        let error = ended.expect("the wait ends").unwrap_err();
        let waited = masters.clock().now().saturating_since(begin);
        assert!(waited <= ms(1_000), "{denied} {away}: {waited:?}");
        let is_denial = |verdict: &Verdict| match verdict {
            Verdict::Unknown(cause @ Cause::ErrorReply(_)) => !cause.is_curable(),
            _ => false,
        };
        let votes = error.votes().expect("masters were asked").iter();
        assert_eq!(votes.filter(|vote| is_denial(&vote.verdict)).count(), denied, "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn wait_continues_while_a_quorum_may_return() {
    for error in ["NOPERM no", "LOADING the data"] {
        let (masters, redlock) = masters(5);
        let denied = if error.starts_with("NOPERM") { 2 } else { 5 };
        let denying = &masters[..denied];
        denying.iter().for_each(|master| master.error_replies(Some(error)));
        hold(&masters[4..]);
        let waiting = tokio::spawn(redlock.lock(RESOURCE).wait_forever().into_future());
        sleep(ms(5_000)).await;
        assert!(!waiting.is_finished(), "{error}");
        let_go(&masters[4..]);
        if denied == 5 {
            denying.iter().for_each(|master| master.error_replies(None));
        }
        waiting.await.unwrap().unwrap().release().await.unwrap();
    }
}

/// The number of attempts is the sum of their outcomes, also if a handle is shut down in between.
#[tokio::test(start_paused = true)]
async fn attempt_ended_by_shutdown_is_counted_as_aborted() {
    let (masters, redlock) = masters(5);
    redlock.status(RESOURCE).await;
    hold(&masters);
    let waiting = tokio::spawn(redlock.lock(RESOURCE).wait_forever().into_future());
    sleep(ms(1)).await;
    let observer = redlock.clone();
    // The masters are silent, so the key may be left.
    let _ = redlock.shutdown(ms(10)).await;
    assert!(matches!(waiting.await.unwrap(), Err(AcquireError::Shutdown)));
    let stats = observer.stats();
    assert_eq!((stats.attempts, stats.outcomes.aborted), (1, 1));
}
