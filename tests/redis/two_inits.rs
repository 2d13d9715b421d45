//! Two calls of `init` at once, on real masters.

use redlock_quorum::InitError;
use redlock_testkit::{RedisServer, RedisServers};

use crate::admission::{AGAIN, admitted, handle};
use crate::lab::{in_time, secs, text};

const ROUNDS: usize = 10;

fn max_ttls(servers: &RedisServers) -> Vec<u64> {
    let max_ttl = |server: &RedisServer| text(server, &["HGET", "redlock-quorum:1", "max_ttl"]);
    servers.iter().map(max_ttl).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_that_set_another_max_ttl_at_once_agree_or_say_that_they_failed() {
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
