//! Wakers and masters of the user that use the handle while they are called. If the library called
//! them under a lock, they would wait for it forever, so these tests have a time limit.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, OnceLock};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::future::BoxFuture;
use futures_util::task::AtomicWaker;
use redlock_core::admission::Identity;
use redlock_core::{Clock, Events, Node, Op, VoteSlot};
use redlock_quorum::{Ended, Guard, Hold, Redlock, RedlockBuilder};
use redlock_testkit::SimNode;
use tokio::runtime::{Handle, RuntimeFlavor};

use crate::lab::{FLAVORS, MASTERS, Masters, bounded, elsewhere, full, secs};

/// More often than any test needs: what a master is sent for a meddler calls a meddler again.
const TIMES_MAX: usize = 50;

/// Uses every face of a handle.
#[derive(Default)]
struct Meddler {
    redlock: OnceLock<Redlock>,
    holds: Mutex<Vec<Hold>>,
    /// Dropped one after the other.
    guards: Mutex<Vec<Guard>>,
    times: AtomicUsize,
}

impl Meddler {
    fn of(redlock: &Redlock) -> Arc<Self> {
        Arc::new(Self { redlock: redlock.clone().into(), ..Self::default() })
    }

    fn meddle(&self) {
        if self.times.fetch_add(1, Ordering::SeqCst) >= TIMES_MAX {
            return;
        }
        let holds = self.holds.lock().unwrap().clone();
        for hold in holds {
            let is_held = hold.is_held();
            assert!(is_held || hold.check().is_err());
            assert_eq!(hold.votes().len(), MASTERS);
            assert!(!format!("{hold:?}").is_empty());
        }
        let guard = self.guards.lock().unwrap().pop();
        drop(guard);
        if let Some(redlock) = self.redlock.get() {
            once(redlock.clone().try_lock("meddled").into_future());
            once(redlock.lock("held").wait_forever().into_future());
        }
    }

    /// Watches this guard, and drops others.
    async fn attend(&self, guard: &Guard, masters: &Masters) {
        self.holds.lock().unwrap().push(guard.hold());
        for number in 0..3 {
            let spare = masters.another_client().handle();
            let guard = full(&spare, &format!("spare-{number}")).await;
            self.guards.lock().unwrap().push(guard);
        }
    }

    fn has_meddled(&self) -> bool {
        self.times.swap(0, Ordering::SeqCst) > 0
    }
}

/// Begins something, and drops it.
fn once<F: Future>(future: F) {
    let _ = Box::pin(future).as_mut().poll(&mut Context::from_waker(Waker::noop()));
}

/// A future whose waker meddles. After each poll it is polled again only once its waker was called,
/// so it cannot find an answer earlier.
struct Meddled<F> {
    future: Pin<Box<F>>,
    waker: Arc<MeddlingWaker>,
}

fn meddled<F: Future>(
    meddler: &Arc<Meddler>,
    future: impl IntoFuture<IntoFuture = F>,
) -> Meddled<F> {
    let future = Box::pin(future.into_future());
    Meddled { future, waker: MeddlingWaker::of(meddler) }
}

impl<F: Future> Future for Meddled<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.waker.waker.register(cx.waker());
        if !self.waker.may_poll.swap(false, Ordering::SeqCst) {
            return Poll::Pending;
        }
        let waker = Waker::from(self.waker.clone());
        self.future.as_mut().poll(&mut Context::from_waker(&waker))
    }
}

/// Polls it once. From here on its waker is stored.
async fn is_pending(future: &mut (impl Future + Unpin)) -> bool {
    poll_fn(|cx| Poll::Ready(Pin::new(&mut *future).poll(cx).is_pending())).await
}

/// Sends a request with a meddling waker, which is stored before the driver can answer.
async fn asked<F: Future>(
    meddler: &Arc<Meddler>,
    future: impl IntoFuture<IntoFuture = F>,
) -> F::Output {
    let mut future = meddled(meddler, future);
    let busy = Busy::threads();
    assert!(is_pending(&mut future).await);
    drop(busy);
    future.await
}

/// Keeps the other threads of this runtime from polling tasks until it is dropped.
struct Busy {
    may_go: Arc<Barrier>,
}

impl Busy {
    fn threads() -> Self {
        let runtime = Handle::current();
        let others = match runtime.runtime_flavor() {
            RuntimeFlavor::CurrentThread => 0,
            _ => runtime.metrics().num_workers(),
        };
        let barrier = || Arc::new(Barrier::new(others + 1));
        let (are_busy, may_go) = (barrier(), barrier());
        for _ in 0..others {
            let (is_busy, may_go) = (are_busy.clone(), may_go.clone());
            runtime.spawn(async move {
                is_busy.wait();
                may_go.wait();
            });
        }
        are_busy.wait();
        Self { may_go }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.may_go.wait();
    }
}

struct MeddlingWaker {
    meddler: Arc<Meddler>,
    /// It was called since the last poll, or there was none.
    may_poll: AtomicBool,
    waker: AtomicWaker,
}

impl MeddlingWaker {
    fn of(meddler: &Arc<Meddler>) -> Arc<Self> {
        let (may_poll, waker) = (AtomicBool::new(true), AtomicWaker::new());
        Arc::new(Self { meddler: meddler.clone(), may_poll, waker })
    }
}

impl Wake for MeddlingWaker {
    fn wake(self: Arc<Self>) {
        self.meddler.meddle();
        self.may_poll.store(true, Ordering::SeqCst);
        self.waker.wake();
    }
}

#[test]
fn callers_are_answered_under_no_lock() {
    for flavor in FLAVORS {
        bounded(move || {
            let masters = Masters::new();
            let redlock = masters.handle();
            let meddler = Meddler::of(&redlock);
            flavor().block_on(async {
                let guard = asked(&meddler, redlock.lock("held")).await.unwrap();
                assert!(meddler.has_meddled(), "granted");
                meddler.attend(&guard, &masters).await;
                asked(&meddler, redlock.try_lock("held")).await.unwrap_err();
                assert!(meddler.has_meddled(), "refused");
                asked(&meddler, guard.extend(secs(50))).await.unwrap();
                assert!(meddler.has_meddled(), "extended");
                asked(&meddler, redlock.status("held")).await;
                assert!(meddler.has_meddled(), "asked");
                asked(&meddler, guard.release()).await.unwrap();
                assert!(meddler.has_meddled(), "released");
                asked(&meddler, redlock.clone().shutdown(secs(5))).await.unwrap();
                assert!(meddler.has_meddled(), "closed");
            });
        });
    }
}

/// How a lease ends while a caller waits for its end.
#[derive(Clone, Copy, Debug)]
enum End {
    Released,
    Taken,
    Lapsed,
}

#[test]
fn the_end_of_a_lease_is_reported_under_no_lock() {
    for (flavor, end) in FLAVORS
        .into_iter()
        .flat_map(|flavor| [End::Released, End::Taken, End::Lapsed].map(|end| (flavor, end)))
    {
        bounded(move || {
            let masters = Masters::new();
            let redlock = masters.handle();
            let meddler = Meddler::of(&redlock);
            flavor().block_on(async {
                let request = redlock.lock("watched").ttl(secs(3)).min_copies(MASTERS);
                let guard = request.auto_extend(matches!(end, End::Taken)).await.unwrap();
                meddler.attend(&guard, &masters).await;
                let mut loss = meddled(&meddler, guard.lost());
                assert!(is_pending(&mut loss).await);
                match end {
                    End::Released => guard.release().await.unwrap(),
                    End::Taken => {
                        let taken = |node: &_| take(node);
                        masters.nodes.iter().map(|node| &node.sim).for_each(taken);
                    }
                    End::Lapsed => {}
                }
                let ended = loss.await;
                assert_eq!(matches!(ended, Ended::Released), matches!(end, End::Released));
                assert!(meddler.has_meddled(), "{end:?}");
            });
        });
    }
}

fn take(master: &Arc<SimNode>) {
    master.put("watched", "a stranger", 60_000);
}

#[test]
fn ending_runtime_wakes_waiters_under_no_lock() {
    for flavor in FLAVORS {
        bounded(move || {
            let masters = Masters::new();
            let redlock = masters.handle();
            let meddler = Meddler::of(&redlock);
            let runtime = flavor();
            let guard = runtime.block_on(full(&redlock, "held"));
            runtime.block_on(meddler.attend(&guard, &masters));
            let mut loss = meddled(&meddler, guard.lost());
            assert!(runtime.block_on(is_pending(&mut loss)));
            drop(runtime);
            assert!(meddler.has_meddled(), "another one may drive the handle");
            elsewhere(guard.release()).unwrap();
        });
    }
}

/// A master that uses the handle it belongs to.
struct MeddlingNode {
    sim: Arc<SimNode>,
    meddler: Arc<Meddler>,
}

impl Node for MeddlingNode {
    fn name(&self) -> &str {
        self.meddler.meddle();
        self.sim.name()
    }

    fn submit(&self, op: Op, slot: VoteSlot) {
        self.meddler.meddle();
        self.sim.submit(op, slot);
        self.meddler.meddle();
    }

    fn set_admitted(&self, run: Option<Identity>) {
        self.meddler.meddle();
        self.sim.set_admitted(run);
    }

    fn drive(self: Arc<Self>, events: Events) -> Option<BoxFuture<'static, ()>> {
        self.meddler.meddle();
        let (meddler, driven) = (self.meddler.clone(), self.sim.clone().drive(events)?);
        Some(Box::pin(async move {
            meddler.meddle();
            driven.await;
        }))
    }

    fn set_urgent(&self, _is_urgent: bool) {
        self.meddler.meddle();
    }
}

#[test]
fn masters_are_used_under_no_lock() {
    for flavor in FLAVORS {
        bounded(move || {
            let clock = Clock::system();
            let meddler = Arc::new(Meddler::default());
            let node = |n: u64| -> Arc<dyn Node> {
                let sim = SimNode::new(format!("sim-{n}:6379"), n, clock.clone());
                sim.init(RedlockBuilder::MAX_TTL);
                Arc::new(MeddlingNode { sim, meddler: meddler.clone() })
            };
            let builder = Redlock::builder().masters((0..5).map(node).collect());
            let redlock = builder.clock(clock.clone()).ttl(secs(60)).build().unwrap();
            meddler.redlock.set(redlock.clone()).unwrap();
            flavor().block_on(async {
                let guard = full(&redlock, "watched").await;
                meddler.holds.lock().unwrap().push(guard.hold());
                assert!(meddler.has_meddled());
                guard.extend(secs(50)).await.unwrap();
                guard.release().await.unwrap();
                assert!(meddler.has_meddled());
                redlock.shutdown(secs(5)).await.unwrap();
            });
        });
    }
}
