//! Subscribers that use the handle or panic, and a master that stays away.

use std::future::IntoFuture;
use std::sync::{Arc, Mutex};

use futures::FutureExt;
use futures::future::BoxFuture;
use redlock_core::{Answer, Events, Node, NodeEvent, Op, VoteSlot};
use redlock_quorum::{Cause, Guard, Redlock};
use tokio::time::sleep;
use tracing::level_filters::LevelFilter;
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

use super::log::{Line, Log, record};
use crate::arena::{RESOURCE, TTL, full, hold, let_go, masters, ms};

thread_local! {
    static IS_MEDDLING: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// A subscriber that uses the handle on every line.
struct Meddler {
    redlock: Redlock,
    guard: Mutex<Option<Guard>>,
    lines: Arc<Mutex<usize>>,
}

impl Meddler {
    fn meddle(&self) {
        *self.lines.lock().unwrap() += 1;
        assert!(self.redlock.stats().nodes.len() == 3);
        // Each of these locks whatever the handle has that can be locked.
        let _ = self.redlock.try_lock("meddling").into_future().now_or_never();
        let _ = Box::pin(self.redlock.status("meddling")).now_or_never();
        let taken = self.guard.lock().unwrap().take();
        if let Some(guard) = taken {
            let _ = (guard.is_held(), guard.votes(), guard.copies(), guard.check());
            let _ = guard.lost().now_or_never();
            *self.guard.lock().unwrap() = Some(guard);
        }
    }
}

impl<S: Subscriber> Layer<S> for Meddler {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut line = Line { level: Level::TRACE, message: String::new(), fields: Vec::new() };
        event.record(&mut line);
        // Its actions are logged as well, immediately or by the driver.
        if line.field("resource") != Some("meddling") && !IS_MEDDLING.replace(true) {
            self.meddle();
            IS_MEDDLING.set(false);
        }
    }
}

/// Runs in a separate thread, because a double lock hangs, and no timer of a runtime ends that.
#[test]
fn subscriber_can_use_the_handle() {
    let (done, outcome) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().start_paused(true).build().unwrap().block_on(meddle_with_everything());
        done.send(()).unwrap();
    });
    outcome.recv_timeout(ms(60_000)).expect("nothing hangs, and nothing fails");
}

async fn meddle_with_everything() {
    let (masters, redlock) = masters(3);
    let guard = full(&redlock, &masters).await;
    let lines = Arc::new(Mutex::new(0));
    let meddler =
        Meddler { redlock: redlock.clone(), guard: Mutex::new(Some(guard)), lines: lines.clone() };
    let subscriber = tracing_subscriber::registry().with(meddler);
    let recording = record(subscriber);
    let work = async {
        let other = redlock.lock("other").await.unwrap();
        let waiting = tokio::spawn(redlock.lock("other").wait_forever().into_future());
        sleep(TTL / 2).await;
        other.release().await.unwrap();
        waiting.await.unwrap().unwrap().release().await.unwrap();
        masters[0].down();
        hold(&masters[1..]);
        sleep(TTL * 2).await;
        masters[0].up();
        let_go(&masters[1..]);
        sleep(TTL * 2).await;
        redlock.lock("other").await.unwrap().release().await.unwrap();
    };
    tokio::time::timeout(TTL * 30, work).await.expect("nothing hangs");
    drop(recording);
    assert!(*lines.lock().unwrap() > 50, "it was called on each of them");
}

/// A master that is tried again and again, and never reached.
struct Dead;

impl Node for Dead {
    fn name(&self) -> &str {
        "dead:6379"
    }

    fn submit(&self, _: Op, slot: VoteSlot) {
        slot.cast(Answer::unsent(Cause::ConnectionRefused));
    }

    fn drive(self: Arc<Self>, events: Events) -> Option<BoxFuture<'static, ()>> {
        Some(Box::pin(async move {
            loop {
                events.report(NodeEvent::Down {
                    cause: Cause::ConnectionRefused,
                    retries_now: false,
                });
                sleep(ms(1_000)).await;
            }
        }))
    }
}

#[tokio::test(start_paused = true)]
async fn unreachable_master_is_logged_once() {
    let (log, _recording) = Log::begin(LevelFilter::TRACE);
    let masters = crate::arena::admitted(2, 0);
    let nodes = [masters.nodes(), vec![Arc::new(Dead) as Arc<dyn Node>]].concat();
    let builder = Redlock::builder().masters(nodes).clock(masters.clock());
    let redlock = builder.build().unwrap();
    let guard = redlock.lock(RESOURCE).await.unwrap();
    sleep(ms(20_500)).await;
    guard.release().await.unwrap();
    assert_eq!(log.warnings("master down").len(), 1);
    let still = log.lines().into_iter().filter(|line| line.message == "master still down");
    assert_eq!(still.count(), 20);
}

/// Panics at each line, and whenever a callsite checks whether it is enabled.
struct Panics;

impl<S: Subscriber> Layer<S> for Panics {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        assert!(metadata.is_span() || metadata.is_event(), "this panic is part of the test");
        true
    }

    fn on_event(&self, _: &Event<'_>, _: Context<'_, S>) {
        panic!("this panic is part of the test");
    }
}

#[tokio::test(start_paused = true)]
async fn panicking_subscriber_ends_no_lease_or_handle() {
    let _panicking = record(tracing_subscriber::registry().with(Panics));
    let (masters, redlock) = masters(5);
    let guard = full(&redlock, &masters).await;
    masters[0].down();
    redlock.try_lock(RESOURCE).await.unwrap_err();
    let waiting = tokio::spawn(redlock.lock(RESOURCE).wait_forever().into_future());
    sleep(TTL * 5).await;
    guard.check().unwrap();
    masters[0].up();
    guard.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
}
