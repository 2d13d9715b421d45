//! Masters that repeatedly report that their data may be gone, as a server does whenever another of
//! its databases is flushed: the effect on their leases, and that an actual loss is noticed.

use std::time::Duration;

use redlock_quorum::{Guard, Redlock};
use redlock_testkit::{SimNode, SimNodes};
use tokio::time::sleep;

use crate::arena::{RESOURCE, admitted, count, handle, is_extend, ms, settle};

/// No keeper extends within these tests.
const TTL: Duration = ms(60_000);
/// Between two reports.
const OFTEN: Duration = ms(20);
/// For how long a master may leave unproven what it has.
const PROOF: Duration = ms(400);
const LEASES: usize = 40;

async fn held(count: usize) -> (SimNodes, Redlock, Vec<Guard>) {
    let masters = admitted(3, 0);
    let redlock = handle(&masters).ttl(TTL).node_timeout(PROOF / 2).build().unwrap();
    let mut guards = Vec::new();
    for n in 0..count {
        guards.push(redlock.lock(format!("{RESOURCE}:{n}")).min_copies(3).await.unwrap());
    }
    settle().await;
    (masters, redlock, guards)
}

fn extensions(masters: &SimNodes) -> Vec<usize> {
    masters.iter().map(|master| count(master, is_extend)).collect()
}

async fn report(master: &SimNode, times: u32) {
    for _ in 0..times {
        master.flush_another_database();
        sleep(OFTEN).await;
    }
}

/// One lease is extended there once a second, whatever the number of reports, and at no other
/// master at all.
#[tokio::test(start_paused = true)]
async fn frequent_reports_cause_at_most_one_extension_per_second() {
    let (masters, _redlock, guards) = held(LEASES).await;
    report(&masters[0], 250).await;
    sleep(ms(1_000)).await;
    let most = 7 * LEASES;
    let asked = extensions(&masters);
    assert!(asked[0] >= LEASES && asked[0] <= most, "{asked:?}: more than {most}");
    assert_eq!(asked[1..], [0, 0]);
    for guard in guards {
        assert_eq!((guard.check(), guard.copies()), (Ok(()), 3));
    }
}

/// The look that proves it comes first, and then the leases that are kept.
#[tokio::test(start_paused = true)]
async fn report_is_followed_by_a_probe_and_one_extension() {
    let (masters, redlock, guards) = held(1).await;
    let left = redlock.lock("left").auto_extend(false).min_copies(3).await.unwrap();
    let remaining = left.remaining();
    masters[0].delay(ms(0)..=ms(0), ms(30)..=ms(30));
    masters[0].flush_another_database();
    // The report comes, and the answer to the look has not come yet.
    sleep(ms(50)).await;
    assert_eq!(extensions(&masters), [0, 0, 0]);
    sleep(ms(50)).await;
    assert_eq!(extensions(&masters), [1, 0, 0]);
    assert_eq!((guards[0].copies(), left.copies()), (3, 3));
    assert!(left.remaining() < remaining);
}

/// The next report overtakes each look, so no look proves anything. Copies do not stay valid for
/// longer because there are more reports.
#[tokio::test(start_paused = true)]
async fn loss_is_detected_despite_continuous_reports() {
    let (masters, _redlock, guards) = held(1).await;
    masters[0].delay(ms(30)..=ms(30), ms(30)..=ms(30));
    masters[0].flush();
    report(&masters[0], (PROOF.as_millis() / OFTEN.as_millis()) as u32 + 5).await;
    assert_eq!((guards[0].check(), guards[0].copies()), (Ok(()), 2));
}
