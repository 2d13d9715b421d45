//! Callers that wait while fewer masters vote than a quorum.

use redlock_testkit::lab::calls;
use redlock_testkit::{RedisServers, ServerOptions};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::admission::{LENGTH, handle};
use crate::lab::{no_key_is_left, secs};

/// At the rate of contention, each caller would query ten times a second.
#[tokio::test]
async fn fifty_callers_waiting_for_a_quarantine_are_all_served() {
    const CALLERS: u64 = 50;
    let servers = RedisServers::with(3, &ServerOptions::new().brand_new()).unwrap();
    let redlock = handle(&servers).build().unwrap();
    let begun = Instant::now();
    let mut waiting = JoinSet::new();
    for caller in 0..CALLERS {
        let request = redlock.lock(format!("waited-for-{caller}")).wait(secs(20));
        waiting.spawn(async move { request.await.unwrap().release().await.unwrap() });
    }
    while let Some(served) = waiting.join_next().await {
        served.unwrap();
    }
    let took = begun.elapsed();
    assert!(took >= LENGTH, "{took:?}: there was no quarantine");
    // The first attempt and the last, one for each second, and some that a lost vote takes.
    let each = 4.0 + took.as_secs_f64() * 4.0 / 3.0;
    for server in servers.iter() {
        let (asked, most) = (calls(server, "set"), each * CALLERS as f64);
        assert!((asked as f64) < most, "{asked} requests in {took:?}, more than {most}");
    }
    no_key_is_left(&servers).await;
}
