//! Marks whose masters lose their data, and work that is dropped at every point where it can be.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use redlock_testkit::{History, Repeat, SimNodes, check_fires};

use super::recipe::{Flaw, Recipe};
use super::*;
use crate::arena::{NODE_TIMEOUT, hold, let_go};

const DAY: Duration = Duration::from_secs(24 * 3_600);

/// Empties one master after the other, with a day in between, while a client queries the name
/// `asked` times a day. Returns whether the run of the first day is still known at the end.
async fn is_kept(asked: u32) -> bool {
    let (masters, redlock) = masters(5);
    assert_eq!(redlock.once(NAME).fire(7).run(|_| async {}).await, Ok(Once::Ran(())));
    for day in 0..7 {
        masters[day % 5].crash_and_restart(false);
        for _ in 0..asked {
            // The client queries it while a master is in quarantine, and afterwards.
            sleep(DAY / 1_000 / asked).await;
            let done = redlock.once(NAME).fire(7).run(|_| async {}).await;
            assert!(matches!(done, Ok(Once::Done { .. })), "day {day}: {done:?}");
        }
        sleep(DAY).await;
    }
    let last = redlock.last_run(NAME).await.unwrap();
    last.is_some_and(|last| last.fire == Some(7))
}

#[tokio::test(start_paused = true)]
async fn queried_mark_survives_masters_emptied_one_by_one() {
    assert!(is_kept(1).await && is_kept(3).await);
}

/// This is not promised, and shows that the test above is not trivial.
#[tokio::test(start_paused = true)]
async fn mark_that_is_never_queried_is_lost_with_its_masters() {
    assert!(!is_kept(0).await);
}

/// A recipe is queried once a day while masters are emptied one by one.
async fn asked_daily(flaw: Option<Flaw>) -> Result<usize, Box<Repeat>> {
    let (masters, redlock) = masters(5);
    let history = Arc::new(History::new(masters.clock()));
    let log = history.contender(0, NAME);
    let recipe = Recipe::new(redlock, &masters, flaw);
    for day in 0..7 {
        recipe.once(7, ms(5), &log).await;
        masters[day % 5].crash_and_restart(false);
        sleep(DAY / 10).await;
    }
    check_fires(&history.records())
}

#[tokio::test(start_paused = true)]
async fn a_recipe_that_writes_nothing_back_completes_a_fire_again() {
    assert_eq!(asked_daily(None).await, Ok(1));
    assert!(asked_daily(Some(Flaw::LosesDataWithTheMasters)).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn mark_is_kept_for_a_month_or_longer_for_a_longer_period() {
    let (masters, redlock) = masters(3);
    let _ = redlock.once(NAME).fire(7).run(|_| async {}).await.unwrap();
    let _ = redlock.once("other").within(40 * DAY).run(|_| async {}).await.unwrap();
    let has = |name: &str| masters[0].holder(Mark::key(b"", &name.into())).is_some();
    sleep(31 * DAY).await;
    assert!(has(NAME) && has("other"));
    sleep(2 * DAY).await;
    assert!(!has(NAME) && has("other"));
    sleep(46 * DAY).await;
    assert!(has("other"));
    sleep(2 * DAY).await;
    assert!(!has("other"));
}

/// A slow network, and two masters that do not answer.
fn troubled(seed: u64) -> (SimNodes, Redlock) {
    let masters = admitted(5, seed);
    masters.iter().for_each(|master| master.delay(ms(3)..=ms(9), ms(3)..=ms(9)));
    masters[0].hold();
    masters[1].partition();
    let redlock = handle(&masters).node_timeout(NODE_TIMEOUT).seed(seed).build().unwrap();
    (masters, redlock)
}

/// Whatever happened to the first run, it blocks no client, and the mark shows whether the job was
/// completed.
async fn assert_clean(masters: &SimNodes, redlock: &Redlock, ran: Option<Once<()>>) {
    let_go(masters);
    heal(masters);
    let next = redlock.once(NAME).fire(7).wait(TTL * 3).run(|_| async {}).await.unwrap();
    if let Some(Once::Ran(())) = ran {
        assert!(matches!(next, Once::Done { .. }), "{next:?}");
    }
    sleep(TTL * 2).await;
    assert_eq!(copies(masters), 0);
    assert_eq!(marks(masters).iter().flatten().count(), 5, "{:?}", marks(masters));
}

/// Polls a future so many times, and drops it where it is not ready by then.
async fn poll_times<F: Future>(future: F, polls: u64) -> Option<F::Output> {
    let (mut future, mut left) = (pin!(future), polls);
    poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            // This was the last poll, so the future is dropped now rather than at its wake-up.
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn work_dropped_at_any_poll_blocks_no_other_host() {
    for polls in 0..12 {
        let (masters, redlock) = troubled(polls);
        let ran = poll_times(redlock.once(NAME).fire(7).run(|_| sleep(ms(5))), polls).await;
        let ran = ran.map(Result::unwrap);
        assert!(polls < 10 || ran.is_some(), "it takes no more polls than are tried");
        assert_clean(&masters, &redlock, ran).await;
    }
}

#[tokio::test(start_paused = true)]
async fn work_dropped_at_any_millisecond_blocks_no_other_host() {
    for millis in (0..200).step_by(3) {
        let (masters, redlock) = troubled(millis);
        let once = redlock.once(NAME).fire(7).run(|_| sleep(ms(5)));
        let ran = timeout(ms(millis), once).await.ok().map(Result::unwrap);
        assert!(millis < 190 || ran.is_some(), "it takes no longer than is tried");
        assert_clean(&masters, &redlock, ran).await;
    }
}

/// While the mark is written, the lock is not released, so that no client repeats a job that may
/// have no mark.
#[tokio::test(start_paused = true)]
async fn dropped_completion_lets_the_lock_expire() {
    let (masters, redlock) = masters(5);
    let Ok(Begun::Run(guard)) = redlock.once(NAME).fire(7).begin().await else {
        panic!("it was never done")
    };
    hold(&masters);
    assert!(timeout(ms(20), guard.complete()).await.is_err());
    let_go(&masters);
    sleep(ms(100)).await;
    assert_eq!(copies(&masters), 5);
    sleep(TTL * 2).await;
    assert_eq!(copies(&masters), 0);
}
