//! Work that is done once a period, or once a fire.

mod hosts;
mod kept;
mod recipe;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use redlock_core::{Label, Mark, Verb};
use redlock_quorum::{
    AcquireError, Begun, InvalidRequest, LostReason, MarkError, Once, Redlock, RunError,
};
use redlock_testkit::{SimNode, SimNodes};
use tokio::time::{sleep, timeout};
use tracing::level_filters::LevelFilter;

use crate::arena::{TTL, admitted, copies, handle, heal, masters, ms, partition, settle};
use crate::reports::log::Log;

/// The name of the work.
const NAME: &str = crate::arena::RESOURCE;
const HOUR: Duration = Duration::from_secs(3_600);

fn key() -> Arc<[u8]> {
    Mark::key(b"", &NAME.into())
}

/// Returns the mark on each master.
fn marks(masters: &SimNodes) -> Vec<Option<String>> {
    masters.iter().map(|master| master.holder(key())).collect()
}

/// Sets the mark on one master without notifying any client.
fn put(master: &SimNode, mark: &str) {
    master.put(key(), mark, 1_000_000);
}

/// Returns the time of the masters' clocks, in milliseconds since 1970.
fn millis(masters: &SimNodes) -> u64 {
    masters[0].time_us() / 1_000
}

fn time(millis: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + ms(millis)
}

/// Several hosts on the same masters, each with its name as its label.
fn hosts<const N: usize>(masters: &SimNodes) -> [Redlock; N] {
    std::array::from_fn(|i| {
        handle(&masters.another_client()).label(format!("host-{i}")).build().unwrap()
    })
}

#[tokio::test(start_paused = true)]
async fn only_one_of_successive_hosts_does_the_work() {
    let masters = admitted(5, 0);
    let [first, second, third] = hosts(&masters);
    let at = millis(&masters);
    assert_eq!(first.once(NAME).within(12 * HOUR).run(|_| async { 7 }).await, Ok(Once::Ran(7)));
    assert_eq!(copies(&masters), 0, "the lock is released");
    assert_eq!(marks(&masters), vec![Some(format!("{at} 0 host-0")); 5]);
    for host in [second, third, first] {
        sleep(ms(600_000)).await;
        let done = host.once(NAME).within(12 * HOUR).run(|_| async { 8 }).await;
        assert_eq!(done, Ok(Once::Done { at: time(at), by: Some("host-0".into()) }));
        assert_eq!(copies(&masters), 0, "the lock is released");
    }
}

#[tokio::test(start_paused = true)]
async fn waiting_host_finds_the_work_done() {
    let masters = admitted(5, 0);
    let [first, second] = hosts(&masters);
    let once = |host: &Redlock| host.once(NAME).within(HOUR).wait(HOUR).run(|_| sleep(HOUR / 2));
    let (ran, done) = tokio::join!(once(&first), async {
        settle().await;
        once(&second).await
    });
    assert_eq!(ran, Ok(Once::Ran(())));
    assert!(matches!(done, Ok(Once::Done { .. })), "{done:?}");
}

#[tokio::test(start_paused = true)]
async fn period_starts_with_the_run_and_then_it_runs_again() {
    let masters = admitted(5, 0);
    let [first, second] = hosts(&masters);
    let ran = first.once(NAME).within(2 * HOUR).run(|_| sleep(HOUR)).await;
    assert_eq!(ran, Ok(Once::Ran(())));
    sleep(HOUR - ms(1_000)).await;
    let early = second.once(NAME).within(2 * HOUR).run(|_| async {}).await;
    assert!(matches!(early, Ok(Once::Done { .. })), "{early:?}");
    sleep(ms(1_000)).await;
    let ran = second.once(NAME).within(2 * HOUR).run(|_| async {}).await;
    assert_eq!(ran, Ok(Once::Ran(())));
}

#[tokio::test(start_paused = true)]
async fn completed_fire_and_earlier_ones_are_done() {
    let (masters, redlock) = masters(5);
    let once = |fire| redlock.once(NAME).fire(fire).run(|_| async {});
    assert_eq!(once(20).await, Ok(Once::Ran(())));
    for done in [20, 19, 1] {
        assert!(matches!(once(done).await, Ok(Once::Done { by: None, .. })), "{done}");
    }
    sleep(ms(5)).await;
    let at = millis(&masters);
    assert_eq!(once(21).await, Ok(Once::Ran(())));
    assert_eq!(marks(&masters), vec![Some(format!("{at} 21 -")); 5]);
    // A run of a period leaves the fire as it is.
    sleep(ms(5)).await;
    let within = redlock.once(NAME).within(ms(1)).run(|_| async {}).await;
    assert_eq!(within, Ok(Once::Ran(())));
    assert_eq!(marks(&masters), vec![Some(format!("{} 21 -", at + 5)); 5]);
    let last = redlock.last_run(NAME).await.unwrap().unwrap();
    assert_eq!((last.at, last.fire, last.by), (time(at + 5), Some(21), None));
    assert_eq!(redlock.last_run("other").await, Ok(None));
}

#[tokio::test(start_paused = true)]
async fn failed_or_dropped_work_leaves_no_mark() {
    let (masters, redlock) = masters(5);
    let once = || redlock.once(NAME).within(HOUR);
    let failed = once().try_run(|_| async { Err::<(), _>(anyhow::anyhow!("no paper")) }).await;
    assert_eq!(failed.unwrap_err().to_string(), "no paper");
    assert!(timeout(ms(500), once().run(|_| sleep(HOUR))).await.is_err());
    settle().await;
    let task = tokio::spawn(once().run(|_| async { panic!("it is on fire") }));
    assert!(task.await.is_err());
    settle().await;
    assert_eq!((copies(&masters), marks(&masters)), (0, vec![None; 5]));
    let ran: anyhow::Result<_> = once().try_run(|_| async { Ok(1) }).await;
    assert_eq!(ran.unwrap(), Once::Ran(1));
    assert_eq!(marks(&masters).iter().flatten().count(), 5);
}

#[tokio::test(start_paused = true)]
async fn work_whose_lock_was_lost_leaves_no_mark() {
    let (masters, redlock) = masters(5);
    let stopped = redlock.once(NAME).within(HOUR).run(|_| async {
        partition(&masters[..3]);
        sleep(HOUR).await;
    });
    match stopped.await {
        Err(RunError::Lost { lost, output: None }) => {
            assert_eq!(lost.reason, LostReason::NotExtended);
        }
        outcome => panic!("{outcome:?}"),
    }
    heal(&masters);
    settle().await;
    assert_eq!(marks(&masters), vec![None; 5]);
}

#[tokio::test(start_paused = true)]
async fn nothing_runs_if_too_few_marks_are_readable() {
    let (masters, redlock) = masters(5);
    masters[..3].iter().for_each(|master| put(master, "no mark"));
    let refused = redlock.once(NAME).within(HOUR).run(|_| async { panic!("it must not run") });
    let error = refused.await.unwrap_err();
    assert!(matches!(error, RunError::Acquire(AcquireError::NoQuorum { .. })), "{error}");
    assert!(error.to_string().contains("the mark is malformed"), "{error}");
    assert_eq!(copies(&masters), 0, "the lock is released");
    let error = redlock.last_run(NAME).await.unwrap_err();
    assert!(matches!(error, AcquireError::NoQuorum { .. }), "{error}");
    // Two masters are enough of a fault to be borne.
    masters[..3].iter().for_each(|master| master.put(key(), "", 0));
    sleep(ms(5)).await;
    masters[..2].iter().for_each(|master| put(master, "no mark"));
    assert_eq!(redlock.once(NAME).within(HOUR).run(|_| async {}).await, Ok(Once::Ran(())));
}

#[tokio::test(start_paused = true)]
async fn mark_without_a_quorum_is_logged_and_the_lock_expires() {
    let masters = admitted(5, 0);
    let [first, second] = hosts(&masters);
    let (log, _recording) = Log::begin(LevelFilter::WARN);
    let ran = first.once(NAME).within(HOUR).run(|_| async {
        masters[..3].iter().for_each(|master| put(master, "no mark"));
        7
    });
    assert_eq!(ran.await, Ok(Once::Ran(7)), "the output is never lost");
    let warnings = log.warnings("the work is done, but too few masters keep a mark of it");
    assert_eq!(warnings.len(), 1);
    assert_eq!(copies(&masters), 5, "no host repeats it immediately");
    let other = second.once(NAME).within(HOUR).wait(Duration::ZERO).begin().await;
    assert!(matches!(other, Err(RunError::Acquire(AcquireError::Held { .. }))), "{other:?}");
    sleep(TTL * 2).await;
    assert_eq!(copies(&masters), 0);
    // Two masters have the mark, which is enough as long as they answer.
    masters[..3].iter().for_each(|master| master.put(key(), "", 0));
    sleep(ms(5)).await;
    let done = second.once(NAME).within(HOUR).run(|_| async {}).await;
    assert!(matches!(done, Ok(Once::Done { .. })), "{done:?}");
}

/// Masters that are away for a moment when the work ends cost nothing but that moment.
#[tokio::test(start_paused = true)]
async fn mark_is_written_again_until_a_quorum_has_it() {
    let (masters, redlock) = masters(5);
    let Ok(Begun::Run(guard)) = redlock.once(NAME).fire(7).begin().await else {
        panic!("it was never done")
    };
    let complete = tokio::spawn({
        partition(&masters[..3]);
        guard.complete()
    });
    sleep(ms(400)).await;
    heal(&masters);
    assert_eq!(complete.await.unwrap(), Ok(()));
    assert_eq!(copies(&masters), 0);
    assert!(marks(&masters).iter().flatten().count() >= 3);

    // No longer than the lock is held.
    let Ok(Begun::Run(guard)) = redlock.once(NAME).fire(8).begin().await else {
        panic!("it was never done")
    };
    partition(&masters[..3]);
    let begin = masters.clock().now();
    let error = guard.complete().await.unwrap_err();
    assert!(matches!(error, MarkError::NoQuorum { .. }), "{error}");
    assert!(masters.clock().now().saturating_since(begin) <= TTL + ms(100));
}

#[tokio::test(start_paused = true)]
async fn lock_lost_before_the_end_is_not_a_completion() {
    let (masters, redlock) = masters(5);
    let begun = redlock.once(NAME).fire(7).auto_extend(false).begin().await;
    let Ok(Begun::Run(guard)) = begun else { panic!("it was never done") };
    sleep(TTL).await;
    assert!(matches!(guard.complete().await, Err(MarkError::Lost(_))));
    assert_eq!(marks(&masters), vec![None; 5]);
}

#[tokio::test(start_paused = true)]
async fn mark_ahead_of_the_masters_clocks_is_ignored() {
    let (masters, redlock) = masters(5);
    let ahead = |by| format!("{} 0 other", millis(&masters) + by);
    masters.iter().for_each(|master| put(master, &ahead(60_000)));
    let done = redlock.once(NAME).within(HOUR).run(|_| async {}).await;
    assert!(matches!(done, Ok(Once::Done { .. })), "{done:?}");
    masters.iter().for_each(|master| put(master, &ahead(61_000)));
    assert_eq!(redlock.once(NAME).within(HOUR).run(|_| async {}).await, Ok(Once::Ran(())));
    // On one master it hides nothing of what the others have.
    masters[1..].iter().for_each(|master| put(master, &format!("{} 0 other", millis(&masters))));
    let done = redlock.once(NAME).within(HOUR).run(|_| async {}).await;
    assert!(matches!(done, Ok(Once::Done { .. })), "{done:?}");
}

#[tokio::test(start_paused = true)]
async fn largest_mark_is_used_and_written_back() {
    let (masters, redlock) = masters(5);
    let at = millis(&masters) - 1_000;
    put(&masters[4], &format!("{at} 9 other"));
    put(&masters[3], &format!("{} 10 older", at - 1));
    let done = redlock.once(NAME).fire(10).run(|_| async {}).await;
    assert_eq!(done, Ok(Once::Done { at: time(at), by: Some("other".into()) }));
    assert_eq!(marks(&masters), vec![Some(format!("{at} 10 other")); 5]);
    let raised =
        |master: &SimNode| master.log().iter().any(|e| matches!(e.verb, Verb::RaiseMark { .. }));
    let before: Vec<usize> = masters.iter().map(|master| master.log().len()).collect();
    assert!(masters.iter().all(|master| raised(master)));
    let _ = redlock.once(NAME).fire(10).run(|_| async {}).await;
    for (master, before) in masters.iter().zip(before) {
        let log = master.log();
        let again = log[before..].iter().any(|e| matches!(e.verb, Verb::RaiseMark { .. }));
        assert!(!again, "a mark that every master has is not written again");
    }
}

#[tokio::test(start_paused = true)]
async fn values_out_of_range_are_refused_before_sending() {
    let (masters, redlock) = masters(5);
    let day = 24 * HOUR;
    let once = || redlock.once(NAME);
    for (request, refused) in [
        (once(), InvalidRequest::NeitherPeriodNorFire),
        (once().within(Duration::ZERO), InvalidRequest::Period),
        (once().within(3_651 * day), InvalidRequest::Period),
        (once().fire(0), InvalidRequest::Fire),
        (once().fire(1 << 53), InvalidRequest::Fire),
    ] {
        let error = request.run(|_| async {}).await.unwrap_err();
        assert_eq!(error, RunError::Acquire(AcquireError::Invalid(refused)));
    }
    assert!(masters.iter().all(|master| master.log().is_empty()));
    assert!(once().within(ms(1)).run(|_| async {}).await.is_ok());
    assert!(once().fire((1 << 53) - 1).run(|_| async {}).await.is_ok());
    assert!(redlock.once("redlock-quorum:x").fire(1).run(|_| async {}).await.is_err());
}

/// An error of a job, as users define it.
#[derive(Debug, PartialEq)]
enum Failed {
    Work,
    Lock,
}

impl<T> From<RunError<T>> for Failed {
    fn from(_: RunError<T>) -> Self {
        Self::Lock
    }
}

#[tokio::test(start_paused = true)]
async fn try_run_returns_lock_errors_as_the_works_error_type() {
    let (masters, redlock) = masters(5);
    let once = || redlock.once(NAME).within(HOUR).wait(Duration::ZERO);
    let guard = redlock.lock(NAME).await.unwrap();
    let held = once().try_run(|_| async { Ok::<_, Failed>(()) }).await;
    assert_eq!(held, Err(Failed::Lock));
    guard.release().await.unwrap();
    let failed = once().try_run(|_| async { Err::<Infallible, _>(Failed::Work) }).await;
    assert!(matches!(failed, Err(Failed::Work)));
    let lost = once().try_run(|_| async {
        partition(&masters);
        sleep(HOUR).await;
        Ok::<_, Failed>(())
    });
    assert_eq!(lost.await, Err(Failed::Lock));
}

/// A period is measured by the lower median of the clocks of the masters that answer. It is wrong
/// if more of them are wrong than right, and the work may run again. A fire needs no clock.
#[tokio::test(start_paused = true)]
async fn fast_clock_majority_ends_a_period_early_but_not_a_fire() {
    let masters = admitted(5, 0);
    masters[..2].iter().for_each(|master| master.step_clock(2 * 3_600_000));
    let [first] = hosts(&masters);
    let client = masters.another_client();
    let second = handle(&client).build().unwrap();
    let within = |redlock: &Redlock| redlock.once(NAME).within(HOUR);
    let fire = |redlock: &Redlock| redlock.once("fire").fire(7);
    assert_eq!(within(&first).run(|_| async {}).await, Ok(Once::Ran(())));
    assert_eq!(fire(&first).run(|_| async {}).await, Ok(Once::Ran(())));
    sleep(ms(100)).await;
    let again = within(&second).run(|_| async {}).await;
    assert!(matches!(again, Ok(Once::Done { .. })), "three right clocks decide: {again:?}");
    partition(&client[3..]);
    assert_eq!(within(&second).run(|_| async {}).await, Ok(Once::Ran(())), "as documented");
    let again = fire(&second).run(|_| async {}).await;
    assert!(matches!(again, Ok(Once::Done { .. })), "{again:?}");
}

/// The label of a mark comes from the run, and is checked like the label of a lock.
#[tokio::test(start_paused = true)]
async fn mark_has_the_label_of_the_request() {
    let (masters, redlock) = masters(3);
    let ran = redlock.once(NAME).fire(1).label("me@web-1:7").run(|_| async {}).await;
    assert_eq!(ran, Ok(Once::Ran(())));
    let mark = Mark::parse(marks(&masters)[0].as_ref().unwrap().as_bytes()).unwrap();
    assert_eq!(mark.by, Some(Label::parse("me@web-1:7").unwrap()));
    assert!(redlock.once(NAME).fire(2).label("a b").run(|_| async {}).await.is_err());
}
