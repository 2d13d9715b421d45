//! The driver: a task of the library's own that sends requests, keeps time and cleans up.
//!
//! Callers leave a message and wait; votes are counted in place, where replies are read. All that
//! is left for the driver is listed in [`Message`] and [`Due`](timers::Due). In reading order:
//! `task` (the task and its life), `attempt` (from a request to a lease or an error), `keep`
//! (extending what is held), `debts` (releases until they are acknowledged), `close` (the end).

mod attempt;
mod census;
mod close;
mod debts;
mod keep;
mod task;
mod timers;

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::Duration;

use futures::future::BoxFuture;
use rand::SeedableRng;
use rand::rngs::StdRng;
use redlock_core::{Instant, Node, NodeState, Op, Resource, VoteSlot};
use tokio::sync::oneshot;

use crate::claim::{Claim, Context, Terms};
use crate::farewell::{Farewell, ReleaseReply};
use crate::guard::Guard;
use crate::redlock::Inner;
use crate::round::{ExtendReply, Round};
use crate::settings::Timing;
use crate::{AcquireError, Lease};
use census::{Asker, Census};
use debts::Debts;
use timers::{Due, Timers};

pub(crate) use crate::claim::Defeat;
pub(crate) use attempt::as_extension;
pub(crate) use census::StatusReply;
pub(crate) use close::CloseReply;
pub(crate) use task::Slot;

/// Attempts whose vote may be open at one time. Those beyond wait in line, first come first
/// served, so that a burst cannot fill the masters' queues with requests that time out there.
const VOTING_MAX: usize = 4_096;

/// One caller's wish for a lock, through all its attempts.
pub(crate) struct Request {
    pub(crate) resource: Resource,
    pub(crate) key: Arc<[u8]>,
    pub(crate) timing: Timing,
    pub(crate) terms: Terms,
    pub(crate) label: Option<redlock_core::Label>,
    /// When to stop trying; none for never.
    pub(crate) until: Option<Instant>,
    /// Not acquire anew, but take over this.
    pub(crate) lease: Option<Lease>,
    pub(crate) reply: oneshot::Sender<Result<Guard, AcquireError>>,
    pub(crate) handle: Arc<Inner>,
    /// Attempts that were lost.
    pub(crate) failures: u32,
}

/// What the driver is told.
pub(crate) enum Message {
    /// A caller wants a lock, or a lease proved.
    Acquire(Box<Request>),
    /// An attempt was lost: clean up, then try again or give up.
    Defeated { claim: Arc<Claim>, request: Box<Request>, defeat: Defeat },
    /// All that an error can tell is known: answer the caller.
    Final { claim: Arc<Claim>, request: Box<Request>, defeat: Defeat },
    /// A quorum is there; wait a little for more copies.
    Grace(Arc<Claim>),
    /// The holder wants more time.
    Extend { claim: Arc<Claim>, timing: Timing, reply: ExtendReply },
    /// A master has lost the key of a lease that is held.
    Missing { round: Arc<Round>, master: usize },
    /// The holder is done.
    Release { claim: Arc<Claim>, reply: Option<ReleaseReply> },
    /// Whatever a lease says is to be released.
    ReleaseLease { lease: Lease, key: Arc<[u8]>, timing: Timing, reply: ReleaseReply },
    /// A master has not acknowledged a release.
    Debt { farewell: Arc<Farewell>, master: usize },
    /// A caller asks who holds a resource.
    Status { key: Arc<[u8]>, node_timeout: Duration, reply: StatusReply },
    /// The state of a connection has changed.
    Changed(usize),
    /// The handle is closed.
    Close { within: Duration, reply: Option<CloseReply> },
}

/// Everything the driver knows. It outlives the task that works on it: when a runtime goes away,
/// the next use of the handle goes on with this on another one.
pub(crate) struct Driver {
    context: Arc<Context>,
    masters: Arc<[Arc<dyn Node>]>,
    connect_timeout: Duration,
    links: Vec<Option<Link>>,
    /// The incarnation in which each master was last seen.
    seen: Vec<Option<u64>>,
    timers: Timers,
    inbox: Vec<Message>,
    /// The last messages were several at a time.
    is_busy: bool,
    /// Requests that wait for the first connections, or for their turn.
    line: VecDeque<Box<Request>>,
    /// Questions, and what concerns locks from before, that wait for the first connections.
    early: Vec<Message>,
    start: Start,
    debts: Debts,
    rng: StdRng,
    closing: Option<close::Closing>,
}

/// The input and output of one master, with the waker that tells us it has something to do.
struct Link {
    drive: BoxFuture<'static, ()>,
    waker: Waker,
}

/// Whether requests go out yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    /// The first connections are being made, since then.
    Connecting(Instant),
    /// A quorum is connected; the others have until then.
    Lingering,
    /// Whoever is not connected now answers *unknown*.
    Done,
}

impl Driver {
    pub(crate) fn new(
        context: Arc<Context>,
        masters: Arc<[Arc<dyn Node>]>,
        connect_timeout: Duration,
        seed: u64,
    ) -> Self {
        let debts = Debts::new(masters.len());
        Self {
            seen: vec![None; masters.len()],
            context,
            masters,
            connect_timeout,
            links: Vec::new(),
            timers: Timers::default(),
            inbox: Vec::new(),
            is_busy: false,
            line: VecDeque::new(),
            early: Vec::new(),
            start: Start::Done,
            debts,
            rng: StdRng::seed_from_u64(seed),
            closing: None,
        }
    }

    /// Does what there is to do, once. Ready when the handle is closed and nothing is left to do.
    ///
    /// What comes in meanwhile is left for the next turn, after the other tasks of the runtime had
    /// theirs: then requests of many tasks go out in one write. It is a must, too: a socket that
    /// has used up what the runtime lets one task do at a time says "pending, but look again", and
    /// would be looked at for ever.
    fn work(&mut self, cx: &mut TaskContext<'_>) -> Poll<()> {
        self.context.mailbox.begin(cx.waker());
        self.read_inbox();
        self.drive_links();
        self.read_inbox();
        self.fire_timers();
        self.attend_to_early();
        self.advance_line();
        if self.is_closed() {
            return Poll::Ready(());
        }
        if !self.context.mailbox.may_sleep() {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    fn read_inbox(&mut self) {
        let mut inbox = std::mem::take(&mut self.inbox);
        self.context.mailbox.take(&mut inbox);
        if !inbox.is_empty() {
            self.is_busy = inbox.len() > 1;
        }
        for message in inbox.drain(..) {
            self.handle(message);
        }
        self.inbox = inbox;
    }

    /// The first connections are made: what came before them goes out.
    fn attend_to_early(&mut self) {
        if self.start == Start::Done {
            for message in std::mem::take(&mut self.early) {
                self.handle(message);
            }
        }
    }

    fn handle(&mut self, message: Message) {
        match message {
            Message::Status { .. }
            | Message::ReleaseLease { .. }
            | Message::Release { .. }
            | Message::Extend { .. }
                if self.start != Start::Done =>
            {
                self.early.push(message);
            }
            Message::Acquire(request) => self.enqueue(request),
            Message::Defeated { claim, request, defeat } => self.defeated(&claim, request, defeat),
            Message::Final { claim, request, defeat } => attempt::fail(&claim, *request, defeat),
            Message::Grace(claim) => self.grace(claim),
            Message::Extend { claim, timing, reply } => self.extend(claim, timing, reply),
            Message::Missing { round, master } => self.readd(&round, master),
            Message::Release { claim, reply } => self.release(&claim, reply),
            Message::ReleaseLease { lease, key, timing, reply } => {
                self.release_lease(lease, key, timing, reply);
            }
            Message::Debt { farewell, master } => self.owe(farewell, master),
            Message::Status { key, node_timeout, reply } => self.ask(key, node_timeout, reply),
            Message::Changed(master) => self.changed(master),
            Message::Close { within, reply } => self.close(within, reply),
        }
    }

    /// Polls the links that were woken, and no others.
    fn drive_links(&mut self) {
        let woken = self.context.mailbox.take_links();
        for (master, link) in self.links.iter_mut().enumerate() {
            if woken & 1 << master != 0
                && let Some(open) = link
                && open.drive.as_mut().poll(&mut TaskContext::from_waker(&open.waker)).is_ready()
            {
                *link = None;
            }
        }
    }

    fn fire_timers(&mut self) {
        let now = self.now();
        while let Some(due) = self.timers.pop(now) {
            match due {
                Due::Attempt(claim) => self.attempt_due(&claim),
                Due::Grace(claim) => claim.end_grace(),
                Due::Retry(request) => self.enqueue(request),
                Due::Keep(claim) => self.keep(claim),
                Due::Round(round) => self.round_due(&round),
                Due::Farewell(farewell) => self.farewell_due(&farewell),
                Due::Census(census) => census.time_out(),
                Due::Debts => self.ask_debtors(),
                Due::Start => self.start = Start::Done,
                Due::Close => self.give_up_closing(),
            }
        }
    }

    /// The connection to `master` was made, or lost.
    fn changed(&mut self, master: usize) {
        if let NodeState::Up { incarnation } = self.masters[master].state() {
            let before = self.seen[master].replace(incarnation);
            if before.is_some_and(|before| before != incarnation) {
                self.restarted(master);
            }
            self.pay(master);
        }
        self.consider_start();
    }

    /// Another process answers for `master`: it may have forgotten every key. What it still has
    /// it confirms with the next extension.
    fn restarted(&mut self, master: usize) {
        for due in self.timers.iter() {
            match due {
                Due::Attempt(claim) => {
                    if let Some(claim) = claim.upgrade() {
                        claim.disown(master);
                    }
                }
                Due::Keep(claim) => claim.disown(master),
                Due::Round(round) => round.claim.disown(master),
                _ => {}
            }
        }
    }

    /// Sends the same request to every master whose bit is set.
    fn send(&self, op: &Op, masters: u32, slot: impl Fn(usize) -> VoteSlot) {
        for (master, node) in self.masters.iter().enumerate() {
            if masters & 1 << master != 0 {
                node.submit(op.clone(), slot(master));
            }
        }
    }

    fn all(&self) -> u32 {
        (1 << self.masters.len()) - 1
    }

    fn now(&self) -> Instant {
        self.context.clock.now()
    }
}
