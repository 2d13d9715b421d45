//! The driver's wake-up protocol in every interleaving of up to three preemptions: no work is left
//! while the driver sleeps.
//!
//! This is the very file of the driver, with the types of a model checker.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says so what it expects")]

#[path = "../src/driver/doorbell.rs"]
mod doorbell;

mod sync {
    pub(super) use loom::sync::atomic::{AtomicBool, Ordering};

    /// That of the model checker takes the waker under another name.
    pub(super) struct AtomicWaker(loom::future::AtomicWaker);

    impl AtomicWaker {
        pub(super) fn new() -> Self {
            Self(loom::future::AtomicWaker::new())
        }

        pub(super) fn register(&self, waker: &std::task::Waker) {
            self.0.register_by_ref(waker);
        }

        pub(super) fn wake(&self) {
            self.0.wake();
        }
    }
}

use std::sync::atomic::AtomicBool;
use std::task::{Wake, Waker};

use loom::sync::atomic::{AtomicU32, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;

use self::doorbell::Doorbell;

/// The order in which the driver goes to sleep.
#[derive(Clone, Copy)]
enum Order {
    /// As it is.
    RingsThenChecks,
    /// The opposite order. The test must find its fault.
    ChecksThenRings,
}

/// The parts of the mailbox: letters in a mutex, and a bit for each woken link.
struct Mailbox {
    letters: Mutex<u32>,
    links: AtomicU32,
    doorbell: Doorbell,
    order: Order,
}

impl Mailbox {
    fn new(order: Order) -> Arc<Self> {
        Arc::new(Self {
            letters: Mutex::new(0),
            links: AtomicU32::new(0),
            doorbell: Doorbell::new(),
            order,
        })
    }

    fn post(&self) {
        *self.letters.lock().unwrap() += 1;
        self.doorbell.ring();
    }

    fn wake_link(&self, bit: u32) {
        self.links.fetch_or(bit, Ordering::SeqCst);
        self.doorbell.ring();
    }

    fn take(&self) {
        *self.letters.lock().unwrap() = 0;
        self.links.swap(0, Ordering::SeqCst);
    }

    fn is_idle(&self) -> bool {
        self.links.load(Ordering::SeqCst) == 0 && *self.letters.lock().unwrap() == 0
    }

    fn may_sleep(&self) -> bool {
        match self.order {
            Order::RingsThenChecks => self.doorbell.may_sleep(|| self.is_idle()),
            Order::ChecksThenRings => {
                let is_idle = self.is_idle();
                self.doorbell.may_sleep(|| is_idle)
            }
        }
    }
}

/// Remembers that the driver was woken since the beginning of its last turn.
#[derive(Default)]
struct Alarm(AtomicBool);

impl Wake for Alarm {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// The driver takes turn after turn until it may sleep.
fn drive(mailbox: &Mailbox, alarm: &std::sync::Arc<Alarm>) {
    let waker = Waker::from(alarm.clone());
    loop {
        alarm.0.store(false, Ordering::SeqCst);
        mailbox.doorbell.begin(&waker);
        mailbox.take();
        if mailbox.may_sleep() {
            return;
        }
    }
}

fn no_work_is_left(order: Order) {
    let mut model = loom::model::Builder::new();
    // More preemptions take minutes, and fewer suffice to find the wrong order.
    model.preemption_bound = Some(3);
    model.check(move || {
        let (mailbox, alarm) = (Mailbox::new(order), std::sync::Arc::<Alarm>::default());
        let (caller, link) = (mailbox.clone(), mailbox.clone());
        let others =
            [thread::spawn(move || caller.post()), thread::spawn(move || link.wake_link(1))];
        drive(&mailbox, &alarm);
        others.into_iter().for_each(|other| other.join().unwrap());
        let is_woken = alarm.0.load(Ordering::SeqCst);
        assert!(is_woken || mailbox.is_idle(), "the driver sleeps and work is left");
    });
}

#[test]
fn driver_never_sleeps_while_there_is_work() {
    no_work_is_left(Order::RingsThenChecks);
}

#[test]
#[should_panic(expected = "the driver sleeps and work is left")]
fn checking_before_announcing_sleep_misses_work() {
    no_work_is_left(Order::ChecksThenRings);
}
