//! Warnings about a peer, or a state of the masters, that weakens the guarantees of admission.

use redlock_testkit::SimNodes;
use tracing::level_filters::LevelFilter;

use crate::admission::forgetting::{LENGTH, MAX_TTL, handle, masters};
use crate::arena::{RESOURCE, ms, settle};
use crate::reports::log::Log;

const LIVES_TOO_LONG: &str =
    "found a lock that outlives max_ttl; its client uses a different max_ttl";
const FLOOR_BY_CLOCK: &str = "could not read ballots from enough admitted masters; this master's \
    fencing tokens continue from the masters' clocks";

fn hold_elsewhere(masters: &SimNodes, px: u64) {
    masters.iter().for_each(|master| master.put(RESOURCE, "another", px));
}

/// A quarantine may end before such a lock does.
#[tokio::test(start_paused = true)]
async fn peer_exceeding_max_ttl_is_reported() {
    let (log, _recording) = Log::begin(LevelFilter::WARN);
    let (masters, redlock) = masters(3);
    let longest = u64::try_from(LENGTH.as_millis()).unwrap();
    hold_elsewhere(&masters, longest);
    redlock.try_lock(RESOURCE).await.unwrap_err();
    assert_eq!(log.warnings(LIVES_TOO_LONG).len(), 0, "the TTL and its guard");
    hold_elsewhere(&masters, longest + 2);
    redlock.try_lock(RESOURCE).await.unwrap_err();
    assert_eq!(log.warnings(LIVES_TOO_LONG).len(), 3);
}

/// So many masters of three forget; how many of them are admitted by the clocks.
async fn by_clock(forgetful: usize) -> usize {
    let (log, _recording) = Log::begin(LevelFilter::WARN);
    let (masters, redlock) = masters(3);
    redlock.try_lock(RESOURCE).await.unwrap().release().await.unwrap();
    masters[..forgetful].iter().for_each(|master| master.crash_and_restart(false));
    settle().await;
    let guard = redlock.lock(RESOURCE).wait(MAX_TTL * 10).min_copies(3).await.unwrap();
    guard.release().await.unwrap();
    log.warnings(FLOOR_BY_CLOCK).len()
}

#[tokio::test(start_paused = true)]
async fn floor_derived_from_clocks_is_logged() {
    assert_eq!(by_clock(1).await, 0, "two others are admitted");
    assert!(by_clock(2).await > 0);
    // N = 1: there is no other master.
    let (log, _recording) = Log::begin(LevelFilter::WARN);
    let alone = SimNodes::new(1, 0);
    let redlock = handle(&alone).build().unwrap();
    redlock.lock(RESOURCE).wait(LENGTH + ms(2_000)).await.unwrap().release().await.unwrap();
    assert_eq!(log.warnings(FLOOR_BY_CLOCK).len(), 1);
    assert!(alone[0].data().record.floor.unwrap() > 1_000_000);
}
