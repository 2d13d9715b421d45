//! `init` and reports of a handle: which masters they admit, and what they show.

use redlock_quorum::{Init, InitError, Redlock, Standing};
use redlock_testkit::SimNodes;
use tokio::time::sleep;

use crate::admission::forgetting::{LENGTH, MAX_TTL, full, handle, masters, other};
use crate::arena::{RESOURCE, ms, settle};

// Init.

#[tokio::test(start_paused = true)]
async fn init_admits_new_masters_once_and_is_refused_after_a_restart() {
    let masters = SimNodes::new(3, 0);
    // A quarantine takes longer than a refused call.
    let redlock = handle(&masters).max_ttl(ms(10_000)).build().unwrap();
    let report = redlock.init().await.unwrap();
    assert!(report.floor.is_some());
    for node in &report.nodes {
        assert_eq!((node.was, node.now, &node.cause), (Standing::None, Standing::Admitted, &None));
        assert_eq!(node.run_id.as_ref().unwrap().len(), 40);
    }
    redlock.try_lock(RESOURCE).await.unwrap().release().await.unwrap();
    let levelled = redlock.init().await.unwrap();
    assert_eq!((levelled.admitted(), levelled.floor), (3, None), "all members have one score");
    let before: Vec<_> = masters.iter().map(|master| master.data()).collect();
    let again = redlock.init().await.unwrap();
    assert_eq!((again.admitted(), again.floor), (3, None));
    assert!(masters.iter().map(|master| master.data()).eq(before), "the next call writes nothing");

    masters[0].crash_and_restart(false);
    settle().await;
    let begun = masters.clock().now();
    let error = redlock.init().await.unwrap_err();
    assert!(matches!(error, InitError::Refused { .. }), "{error}");
    let took = masters.clock().now().saturating_since(begun);
    assert!(took >= ms(3_000) && took < ms(3_200), "another init may be at work: {took:?}");
}

/// An operator should not have to confirm that no lock is held because another `init` takes its
/// time.
#[tokio::test(start_paused = true)]
async fn init_waits_for_a_master_being_probed() {
    let long = ms(10_000);
    let masters = SimNodes::new(3, 0);
    masters.init(long);
    let redlock = handle(&masters).max_ttl(long).build().unwrap();
    full(&redlock, &masters).await.release().await.unwrap();
    // It reports that its data is gone, and the requests about that are lost.
    masters[1].lose_requests(true);
    masters[1].flush();
    masters[0].crash_and_restart(false);
    settle().await;
    let begun = masters.clock().now();
    let refused = redlock.init().await.unwrap_err();
    assert!(refused.to_string().contains("call init again shortly"), "{refused}");
    let took = masters.clock().now().saturating_since(begun);
    assert!(took >= ms(6_000) && took < ms(7_500), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn init_again_ends_a_quarantine() {
    let (masters, redlock) = masters(3);
    redlock.try_lock(RESOURCE).await.unwrap().release().await.unwrap();
    masters[..2].iter().for_each(|master| master.crash_and_restart(false));
    settle().await;
    redlock.try_lock(RESOURCE).await.unwrap_err();
    let report = redlock.init_with(Init { again: true, ..Init::default() }).await.unwrap();
    let was: Vec<_> = report.nodes.iter().map(|node| node.was).collect();
    assert_eq!(was, [Standing::Quarantine, Standing::Quarantine, Standing::Admitted]);
    redlock.try_lock(RESOURCE).await.unwrap().release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn init_writes_nothing_if_fewer_than_a_quorum_answer() {
    let masters = SimNodes::new(3, 0);
    masters[..2].iter().for_each(|master| master.down());
    let redlock = handle(&masters).build().unwrap();
    let error = redlock.init().await.unwrap_err();
    assert!(matches!(error, InitError::NoQuorum { .. }), "{error}");
    assert!(masters.iter().all(|master| master.data() == Default::default()));
    masters[0].up();
    settle().await;
    let again = Init { again: true, ..Init::default() };
    let report = redlock.init_with(again).await.unwrap();
    assert_eq!(report.admitted(), 2);
    assert_eq!(report.nodes[1].now, Standing::Unreachable);
}

#[tokio::test(start_paused = true)]
async fn concurrent_init_calls_agree() {
    let masters = SimNodes::new(5, 0);
    let callers: Vec<Redlock> = (0..10).map(|_| other(&masters)).collect();
    for outcome in futures::future::join_all(callers.iter().map(|caller| caller.init())).await {
        assert_eq!(outcome.unwrap().admitted(), 5);
    }
    for caller in &callers {
        caller.try_lock(RESOURCE).await.unwrap().release().await.unwrap();
    }
}

// Reports.

#[tokio::test(start_paused = true)]
async fn report_shows_each_master_and_writes_nothing() {
    let masters = SimNodes::new(3, 0);
    masters[0].init(MAX_TTL);
    masters[1].step_clock(500);
    masters[2].down();
    let before: Vec<_> = masters.iter().map(|master| master.data()).collect();
    let redlock = handle(&masters).build().unwrap();
    let reports = redlock.inspect().await;
    let standing: Vec<_> = reports.iter().map(|report| report.standing).collect();
    assert_eq!(standing, [Standing::Admitted, Standing::None, Standing::Unreachable]);
    let server = |nth: usize| reports[nth].server.clone().unwrap();
    assert_eq!((server(0).max_ttl, server(0).ballots), (Some(MAX_TTL), Some(1_024)));
    assert_eq!(server(0).admitted_as, Some(server(0).run_id));
    assert_eq!((server(0).clock_offset_ms, server(1).clock_offset_ms), (Some(0), Some(500)));
    assert!(reports[2].server.is_none());
    sleep(LENGTH * 2).await;
    assert!(masters.iter().map(|master| master.data()).eq(before));
}
