//! Masters that push nothing: a loss of data is seen by what is read, and by nothing else.

use redlock_core::WhyNot;
use redlock_quorum::{AcquireError, Redlock, Standing};
use redlock_testkit::SimNodes;

use crate::admission::forgetting::{MAX_TTL, handle, other};
use crate::arena::{RESOURCE, ms, settle};

/// Starts three masters, on which one client has a lock that nothing ends, and another client of
/// them.
async fn held() -> (SimNodes, Redlock) {
    let masters = SimNodes::new(3, 0);
    masters.init(MAX_TTL);
    masters.iter().for_each(|master| master.set_tracking(false));
    other(&masters).try_lock(RESOURCE).ttl(MAX_TTL).await.unwrap().forget();
    let second = other(&masters);
    second.try_lock("another").await.unwrap().release().await.unwrap();
    (masters, second)
}

async fn begins_quarantines(masters: &SimNodes, redlock: &Redlock) {
    let error = redlock.try_lock(RESOURCE).await.unwrap_err();
    assert!(matches!(error, AcquireError::NoQuorum { .. }), "{error}");
    settle().await;
    let quarantined = |data: redlock_testkit::Data| data.record.quarantine.is_some();
    assert!(masters.iter().all(|master| quarantined(master.data())), "immediately");
}

#[tokio::test(start_paused = true)]
async fn flush_read_by_a_report_makes_no_second_holder() {
    let (masters, second) = held().await;
    masters.iter().for_each(|master| master.flush());
    for report in second.inspect().await {
        assert_ne!(report.standing, Standing::Admitted, "{report:?}");
    }
    begins_quarantines(&masters, &second).await;
}

/// A client reads the records of the others because one master needs a quarantine.
#[tokio::test(start_paused = true)]
async fn flush_read_by_begin_makes_no_second_holder() {
    let (masters, second) = held().await;
    masters[1..].iter().for_each(|master| master.flush());
    masters[0].crash_and_restart(false);
    settle().await;
    begins_quarantines(&masters, &second).await;
}

/// Nothing was read: the ballot finds no member, and has the master looked at.
#[tokio::test(start_paused = true)]
async fn unread_flush_makes_no_second_holder() {
    let (masters, second) = held().await;
    masters.iter().for_each(|master| master.flush());
    begins_quarantines(&masters, &second).await;
}

/// Waiting does not help, so the request does not wait.
#[tokio::test(start_paused = true)]
async fn without_ballots_untracked_masters_do_not_vote() {
    let (masters, _) = held().await;
    let plain = || handle(&masters.another_client()).fencing(false);
    let begun = masters.clock().now();
    let error = plain().build().unwrap().lock("k").wait_forever().await.unwrap_err();
    assert!(masters.clock().now().saturating_since(begun) < ms(1_000));
    assert!(matches!(error, AcquireError::NoQuorum { .. }), "{error}");
    let votes = error.votes().unwrap().iter();
    let why: Vec<_> = votes.filter_map(|vote| Some(vote.not_admitted.as_ref()?.why)).collect();
    assert_eq!(why, [WhyNot::ReportsNoLoss; 3], "{error}");
    masters[0].set_tracking(true);
    masters[1].set_tracking(true);
    plain().build().unwrap().try_lock("k").await.unwrap().release().await.unwrap();
}
