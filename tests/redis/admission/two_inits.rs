//! Two parallel calls of `init`, on real masters.

use redlock_quorum::InitError;
use redlock_testkit::{RedisServer, RedisServers};

use crate::admission::{AGAIN, admitted, handle, handle_on};
use crate::lab::{in_time, secs, text};

const ROUNDS: usize = 10;

fn max_ttls(servers: &RedisServers) -> Vec<u64> {
    let max_ttl = |server: &RedisServer| text(server, &["HGET", "redlock-quorum:1", "max_ttl"]);
    servers.iter().map(max_ttl).collect()
}

/// Each set has its own id, so at most one of two different lists is recorded everywhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_inits_with_different_lists_record_one_or_fail() {
    let (servers, _) = admitted(5).await;
    let set = |server: &RedisServer| text::<String>(server, &["HGET", "redlock-quorum:1", "set"]);
    for round in 0..ROUNDS {
        let calls = [4, 5].map(|length| {
            let urls = servers.urls().into_iter().take(length);
            let redlock = handle_on(urls).build().unwrap();
            tokio::spawn(async move { (length, redlock.init_with(AGAIN).await) })
        });
        let mut claimed = Vec::new();
        for call in calls {
            match in_time(call).await.unwrap() {
                (length, Ok(_)) => claimed.push(length),
                (_, Err(InitError::Moved { .. } | InitError::MaxTtl { .. })) => {}
                (_, Err(error)) => panic!("{error}"),
            }
        }
        let held: Vec<_> = servers.iter().map(set).collect();
        // The later of two that succeed has the last word.
        let is_held = |length: &usize| held[..*length].iter().all(|one| *one == held[0]);
        assert!(claimed.is_empty() || claimed.iter().any(is_held), "round {round}: {held:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_concurrent_max_ttl_changes_agree_or_fail() {
    let (servers, _) = admitted(5).await;
    for round in 0..ROUNDS {
        let calls = [20, 40].map(|seconds| {
            let redlock = handle(&servers).max_ttl(secs(seconds)).build().unwrap();
            tokio::spawn(async move { (seconds * 1_000, redlock.init_with(AGAIN).await) })
        });
        let (mut claimed, mut said) = (Vec::new(), Vec::new());
        for call in calls {
            let (max_ttl, outcome) = in_time(call).await.unwrap();
            match &outcome {
                Ok(_) => claimed.push(max_ttl),
                Err(error) => assert!(matches!(error, InitError::MaxTtl { .. }), "{error}"),
            }
            said.push(outcome.map(|report| report.nodes.len()).map_err(|error| error.to_string()));
        }
        let held = max_ttls(&servers);
        let is_held = |max_ttl: &u64| held.iter().all(|held| held == max_ttl);
        let is_right = claimed.is_empty() || claimed.iter().any(is_held);
        assert!(is_right, "round {round}: {held:?}, {said:?}");
    }
}
