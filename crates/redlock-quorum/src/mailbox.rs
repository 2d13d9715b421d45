//! `Mailbox`: how the driver is told what to do, and woken no more often than needed.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};

use futures::task::AtomicWaker;

use crate::driver::Message;

/// Messages for the driver, and which of its links have something to do.
///
/// While the driver is at work it looks in here before it goes to sleep, so nobody needs to wake
/// it: votes are counted, replies read and requests sent in one turn, with one wake-up.
#[derive(Default)]
pub(crate) struct Mailbox {
    messages: Mutex<Vec<Message>>,
    /// Nobody reads messages any more.
    closed: AtomicBool,
    /// One bit for each link that was woken.
    links: AtomicU32,
    /// The driver will look in again before it sleeps.
    awake: AtomicBool,
    driver: AtomicWaker,
}

impl Mailbox {
    /// Leaves a message. Never blocks for long: nothing is done while the lock is held. Once
    /// closed it drops the message, and so tells whoever waits for a reply.
    pub(crate) fn post(&self, message: Message) {
        let mut messages = self.messages();
        if self.closed.load(Ordering::SeqCst) {
            drop(messages);
            return drop(message);
        }
        messages.push(message);
        drop(messages);
        self.rouse();
    }

    /// Drops what was left, and whatever will be.
    pub(crate) fn close(&self) {
        let mut messages = self.messages();
        self.closed.store(true, Ordering::SeqCst);
        let left = std::mem::take(&mut *messages);
        drop(messages);
        drop(left);
    }

    /// A waker for the link of `master`.
    pub(crate) fn link_waker(self: &Arc<Self>, master: usize) -> Waker {
        Waker::from(Arc::new(LinkWaker { mailbox: self.clone(), bit: 1 << master }))
    }

    /// The driver begins its turn, and wants `waker` woken once it sleeps.
    pub(crate) fn begin(&self, waker: &Waker) {
        self.driver.register(waker);
        self.awake.store(true, Ordering::SeqCst);
    }

    /// Everything that was left so far goes into `into`.
    pub(crate) fn take(&self, into: &mut Vec<Message>) {
        std::mem::swap(&mut *self.messages(), into);
    }

    /// The links that were woken since the last call, a bit each.
    pub(crate) fn take_links(&self) -> u32 {
        self.links.swap(0, Ordering::SeqCst)
    }

    /// Whether there is nothing left to do, so that the driver may sleep.
    ///
    /// First it says that it sleeps and then it looks: whoever leaves something does it the other
    /// way round, so one of the two always sees the other.
    pub(crate) fn may_sleep(&self) -> bool {
        self.awake.store(false, Ordering::SeqCst);
        let idle = self.links.load(Ordering::SeqCst) == 0 && self.messages().is_empty();
        if !idle {
            self.awake.store(true, Ordering::SeqCst);
        }
        idle
    }

    fn rouse(&self) {
        if !self.awake.swap(true, Ordering::SeqCst) {
            self.driver.wake();
        }
    }

    /// No code that holds this lock can panic half-way through a change.
    fn messages(&self) -> MutexGuard<'_, Vec<Message>> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct LinkWaker {
    mailbox: Arc<Mailbox>,
    bit: u32,
}

impl Wake for LinkWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.mailbox.links.fetch_or(self.bit, Ordering::SeqCst);
        self.mailbox.rouse();
    }
}
