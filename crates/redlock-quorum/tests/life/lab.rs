//! What these tests have in common: runtimes, masters, and a limit for everything.

use std::future::Future;
use std::panic::resume_unwind;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use redlock_core::admission::Identity;
use redlock_core::{Clock, Events, Node, Op, Verb, VoteSlot};
use redlock_quorum::{Guard, Redlock, RedlockBuilder};
use redlock_testkit::SimNode;
use tokio::runtime::{Builder, Runtime};

/// Longer than anything here takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
pub(crate) const MASTERS: usize = 5;

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

pub(crate) fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

pub(crate) fn multi_thread() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

pub(crate) const FLAVORS: [fn() -> Runtime; 2] = [current_thread, multi_thread];

/// Runs a test in a separate thread, and fails if it hangs.
pub(crate) fn bounded<T: Send + 'static>(test: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = channel();
    let thread = thread::spawn(move || drop(sender.send(test())));
    match receiver.recv_timeout(PATIENCE) {
        Ok(output) => output,
        Err(RecvTimeoutError::Timeout) => panic!("it hangs: nothing in {PATIENCE:?}"),
        Err(RecvTimeoutError::Disconnected) => resume_unwind(thread.join().unwrap_err()),
    }
}

/// Waits until something is so, by blocking the thread.
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE / 2;
    while !is_so() {
        assert!(Instant::now() < deadline, "not in {:?}: {what}", PATIENCE / 2);
        thread::sleep(ms(1));
    }
}

/// Polls a future on this thread, without any runtime.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        thread::park();
    }
}

/// Polls a future on a separate runtime.
pub(crate) fn elsewhere<F: Future>(future: F) -> F::Output {
    current_thread().block_on(future)
}

/// Five masters in real time, and what was done to their connections.
#[derive(Clone)]
pub(crate) struct Masters {
    pub(crate) nodes: Vec<Arc<Master>>,
    clock: Clock,
}

/// A simulated master whose connections are counted, and which can be made to panic.
pub(crate) struct Master {
    pub(crate) sim: Arc<SimNode>,
    pub(crate) drives: AtomicUsize,
    pub(crate) open: AtomicUsize,
    pub(crate) panics_on_submit: AtomicBool,
    pub(crate) panics_on_drive: AtomicBool,
    /// Whether a held server continues once a client connects to it again.
    goes_on_when_driven: AtomicBool,
}

impl Masters {
    pub(crate) fn new() -> Self {
        let clock = Clock::system();
        let master = |n: usize| {
            let sim = SimNode::new(format!("sim-{n}:6379"), n as u64, clock.clone());
            sim.init(RedlockBuilder::MAX_TTL);
            Master::new(sim)
        };
        Self { nodes: (0..MASTERS).map(master).collect(), clock }
    }

    /// The same masters, over separate connections.
    pub(crate) fn another_client(&self) -> Self {
        let nodes = self.nodes.iter().map(|node| Master::new(node.sim.another_client())).collect();
        Self { nodes, clock: self.clock.clone() }
    }

    /// A handle whose keys outlive any test.
    pub(crate) fn builder(&self) -> RedlockBuilder {
        let nodes = self.nodes.iter().map(|node| node.clone() as Arc<dyn Node>).collect();
        Redlock::builder().masters(nodes).clock(self.clock.clone()).ttl(secs(60))
    }

    pub(crate) fn handle(&self) -> Redlock {
        self.builder().build().unwrap()
    }

    /// Advances the clock of the handles but not the timers, like a suspension of the machine.
    pub(crate) fn suspend(&self, time: Duration) {
        self.clock.suspend(time);
    }

    /// How many keys there are, on all masters together.
    pub(crate) fn keys(&self) -> usize {
        self.nodes.iter().map(|node| node.sim.keys()).sum()
    }

    /// How many connections were made.
    pub(crate) fn drives(&self) -> usize {
        self.nodes.iter().map(|node| node.drives.load(Ordering::SeqCst)).sum()
    }

    /// How many connections are there. A driver that left its runtime has none.
    pub(crate) fn open(&self) -> usize {
        self.nodes.iter().map(|node| node.open.load(Ordering::SeqCst)).sum()
    }

    /// Returns how many extensions one master has carried out, for holders and for resumed leases.
    pub(crate) fn extensions(&self, master: usize) -> usize {
        let is_extension = |verb| matches!(verb, Verb::Extend { .. } | Verb::Resume { .. });
        self.nodes[master].sim.log().iter().filter(|executed| is_extension(executed.verb)).count()
    }

    pub(crate) fn hold(&self, masters: usize) {
        self.nodes[..masters].iter().for_each(|node| node.sim.hold());
    }

    pub(crate) fn go_on(&self) {
        self.nodes.iter().for_each(|node| node.sim.release());
    }

    /// Makes the masters continue when they are connected again, before the first request there.
    pub(crate) fn go_on_when_driven(&self) {
        let goes_on = |node: &Arc<Master>| node.goes_on_when_driven.store(true, Ordering::SeqCst);
        self.nodes.iter().for_each(goes_on);
    }
}

impl Master {
    fn new(sim: Arc<SimNode>) -> Arc<Self> {
        Arc::new(Self {
            sim,
            drives: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
            panics_on_submit: AtomicBool::new(false),
            panics_on_drive: AtomicBool::new(false),
            goes_on_when_driven: AtomicBool::new(false),
        })
    }
}

/// One connection, which is counted for as long as it is there.
struct Connection(Arc<Master>);

impl Connection {
    fn open(master: Arc<Master>) -> Self {
        master.drives.fetch_add(1, Ordering::SeqCst);
        master.open.fetch_add(1, Ordering::SeqCst);
        Self(master)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Node for Master {
    fn name(&self) -> &str {
        self.sim.name()
    }

    fn submit(&self, op: Op, slot: VoteSlot) {
        assert!(!self.panics_on_submit.load(Ordering::SeqCst), "this panic is part of the test");
        self.sim.submit(op, slot);
    }

    fn set_admitted(&self, run: Option<Identity>) {
        self.sim.set_admitted(run);
    }

    fn drive(self: Arc<Self>, events: Events) -> Option<BoxFuture<'static, ()>> {
        assert!(!self.panics_on_drive.load(Ordering::SeqCst), "this panic is part of the test");
        if self.goes_on_when_driven.load(Ordering::SeqCst) {
            self.sim.release();
        }
        let driven = self.sim.clone().drive(events)?;
        let connection = Connection::open(self);
        Some(Box::pin(async move {
            let _connection = connection;
            driven.await;
        }))
    }
}

/// A lock that every master holds.
pub(crate) async fn full(redlock: &Redlock, key: &str) -> Guard {
    redlock.lock(key).min_copies(MASTERS).await.unwrap()
}
