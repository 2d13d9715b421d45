//! A driver that runs late. Unprocessed input does not become late by that.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::future::{BoxFuture, join_all};
use redlock_core::{Answer, Cause, Clock, Events, Facts, Node, NodeEvent, Op, Verb, VoteSlot};
use redlock_quorum::{AcquireError, Guard, Quarantine, Redlock};
use redlock_testkit::SimNodes;
use tokio::task::yield_now;
use tokio::time::{Sleep, advance, sleep};

use crate::arena::{NODE_TIMEOUT, RESOURCE, TTL, count, masters, ms};

/// The time from when a request is written to when its answer can be read.
const AWAY: Duration = ms(20);
/// The length of the pause.
const STOPPED: Duration = ms(60);

/// A master that grants everything. As with a socket, a request leaves when the link is polled, and
/// nothing knows of the answer before the runtime looks.
struct Remote {
    name: String,
    run_id: String,
    state: Mutex<(Vec<VoteSlot>, Option<Waker>)>,
}

impl Node for Remote {
    fn name(&self) -> &str {
        &self.name
    }

    fn submit(&self, op: Op, slot: VoteSlot) {
        if op.verb() == Verb::Admission {
            return slot
                .cast(Answer::unsent(Cause::NotSent("this node knows no admission".into())));
        }
        let waker = {
            let mut state = self.state.lock().unwrap();
            state.0.push(slot);
            state.1.take()
        };
        waker.into_iter().for_each(Waker::wake);
    }

    fn drive(self: Arc<Self>, events: Events) -> Option<BoxFuture<'static, ()>> {
        events.report(NodeEvent::Up(Facts::master(&self.run_id)));
        let mut written = VecDeque::new();
        Some(Box::pin(poll_fn(move |cx| self.exchange(&mut written, cx))))
    }
}

impl Remote {
    fn exchange(
        &self,
        written: &mut VecDeque<(Pin<Box<Sleep>>, VoteSlot)>,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        let submitted = {
            let mut state = self.state.lock().unwrap();
            state.1 = Some(cx.waker().clone());
            std::mem::take(&mut state.0)
        };
        written.extend(submitted.into_iter().map(|slot| (Box::pin(sleep(AWAY)), slot)));
        while let Some((answered, _)) = written.front_mut()
            && answered.as_mut().poll(cx).is_ready()
        {
            written.pop_front().into_iter().for_each(|(_, slot)| slot.cast(Answer::granted()));
        }
        Poll::Pending
    }
}

async fn handle() -> Redlock {
    let remote = |nth: u8| -> Arc<dyn Node> {
        let (name, run_id) = (format!("master-{nth}"), format!("{nth:040}"));
        Arc::new(Remote { name, run_id, state: Mutex::default() })
    };
    let masters = (0..3).map(remote).collect();
    let builder = Redlock::builder().masters(masters).clock(Clock::paused()).ttl(TTL).seed(0);
    let builder = builder.node_timeout(NODE_TIMEOUT).quarantine(Quarantine::Off).fencing(false);
    let redlock = builder.build().unwrap();
    redlock.lock("first").await.unwrap().release().await.unwrap();
    redlock
}

async fn poll_once<F: Future + Unpin>(mut future: F) -> Poll<F::Output> {
    poll_fn(|cx| Poll::Ready(Pin::new(&mut future).poll(cx))).await
}

/// Time passes, and the runtime does not look at anything.
async fn stand_still() {
    // The first poll moves the clock. The second one would wait for the runtime.
    let _ = poll_once(pin!(advance(STOPPED))).await;
}

/// The other tasks that are ready run, and the runtime does not look at anything.
async fn let_others_run() {
    let mut is_over = false;
    poll_fn(|cx| {
        cx.waker().wake_by_ref();
        if std::mem::replace(&mut is_over, true) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// Runs in a separate task, because a runtime processes all events before it polls the blocked-on
/// future.
async fn in_a_task(test: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(test).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn readable_answer_is_not_late_after_a_process_pause() {
    in_a_task(async {
        let redlock = handle().await;
        // From here on the runtime looks at nothing for a while.
        yield_now().await;
        let mut lock = pin!(redlock.try_lock("a").into_future());
        assert!(poll_once(&mut lock).await.is_pending());
        let_others_run().await;
        stand_still().await;
        // The driver has something to do, and its node timeout has passed.
        let mut other = pin!(redlock.try_lock("b").into_future());
        assert!(poll_once(&mut other).await.is_pending());
        let_others_run().await;
        let _guard = lock.await.expect("the answers were there in time");
        let _other = other.await.unwrap();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn node_timeout_of_a_queued_request_starts_when_it_is_written() {
    /// The smallest window.
    const WINDOW: usize = 128;
    in_a_task(async {
        let redlock = handle().await;
        let lock = |nth: usize| {
            let redlock = redlock.clone();
            tokio::spawn(async move {
                let guard = redlock.try_lock(format!("{nth}")).await;
                if nth == 0 {
                    // The answers have made room for the last one, and it was not written yet.
                    stand_still().await;
                }
                guard
            })
        };
        let guards = join_all((0..=WINDOW).map(lock)).await;
        let failed: Vec<_> = guards.into_iter().filter_map(|guard| guard.unwrap().err()).collect();
        assert!(failed.is_empty(), "{failed:?}");
    })
    .await;
}

/// Creates a thousand callers whose waits are over before the driver sees their requests.
async fn a_thousand_late(redlock: &Redlock, wait: Duration) -> Vec<Result<Guard, AcquireError>> {
    let ask = |_| redlock.lock(RESOURCE).wait(wait).into_future();
    let mut asking: Vec<_> = (0..1_000).map(ask).collect();
    for caller in &mut asking {
        assert!(poll_once(caller).await.is_pending());
    }
    stand_still().await;
    join_all(asking).await
}

/// Returns how often all masters got a request for the lock, and a status query.
fn asked(masters: &SimNodes) -> [usize; 2] {
    let of =
        |kind: fn(&Verb) -> bool| masters.iter().map(|master| count(master, kind)).sum::<usize>();
    [of(|verb| matches!(verb, Verb::Acquire { .. })), of(|verb| *verb == Verb::Inspect)]
}

/// Previously, each caller sent two requests to all masters: for the lock, and for its holder.
#[tokio::test(start_paused = true)]
async fn expired_callers_share_an_attempt_and_a_query() {
    for is_free in [true, false] {
        in_a_task(async move {
            let (masters, redlock) = masters(5);
            redlock.status(RESOURCE).await;
            if !is_free {
                masters.iter().for_each(|master| master.put(RESOURCE, "stranger", 100_000));
            }
            let before = asked(&masters);
            let (got, failed): (Vec<_>, Vec<_>) =
                a_thousand_late(&redlock, ms(10)).await.into_iter().partition(Result::is_ok);
            assert_eq!(got.len(), usize::from(is_free), "the first caller");
            let held = |error: &_| matches!(error, Err(AcquireError::Held { .. }));
            assert!(failed.iter().all(held), "{:?}", failed.iter().find(|error| !held(error)));
            let after = asked(&masters);
            let [attempts, questions] = [0, 1].map(|kind| after[kind] - before[kind]);
            assert!(attempts <= 2 * 5, "{attempts} requests for the lock");
            assert!(questions <= 2 * 5, "{questions} queries for the holder");
        })
        .await;
    }
}

/// Each try is a separate attempt, however late the driver sees it.
#[tokio::test(start_paused = true)]
async fn try_locks_seen_late_are_still_separate_attempts() {
    in_a_task(async {
        let (masters, redlock) = masters(5);
        redlock.status(RESOURCE).await;
        masters.iter().for_each(|master| master.put(RESOURCE, "stranger", 100_000));
        let [before, _] = asked(&masters);
        let failed = a_thousand_late(&redlock, Duration::ZERO).await;
        assert!(failed.iter().all(Result::is_err));
        assert_eq!(asked(&masters)[0] - before, 5 * 1_000);
    })
    .await;
}

/// The first caller may stay in line until its wait is over, with others after it.
#[tokio::test(start_paused = true)]
async fn caller_whose_wait_ends_in_line_gets_one_attempt() {
    /// The smallest window.
    const WINDOW: usize = 128;
    let (masters, redlock) = masters(5);
    masters.iter().for_each(|master| master.delay(ms(5)..=ms(5), ms(5)..=ms(5)));
    redlock.status(RESOURCE).await;
    masters.iter().for_each(|master| master.put(RESOURCE, "stranger", 100_000));
    let before = redlock.stats().attempts;
    let ask = |nth: usize| redlock.try_lock(format!("{nth}")).into_future();
    let crowd = join_all((0..WINDOW).map(ask));
    let wait = || redlock.lock(RESOURCE).wait(ms(2)).into_future();
    let (_, waited) = tokio::join!(crowd, join_all([wait(), wait()]));
    assert!(waited.iter().all(Result::is_err));
    assert_eq!(redlock.stats().attempts - before, WINDOW as u64 + 1, "one for the first");
}
