//! Decisions of the driver about a lease whose holder has seen the end before they are sent.

use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use redlock_core::{
    Answer, Cause, Clock, Events, Facts, Instant, Node, NodeEvent, Op, Verb, Verdict, VoteSlot,
};
use redlock_quorum::{Guard, Quarantine, Redlock};
use tokio::time::{advance, sleep};

use crate::arena::{RESOURCE, TTL, ms, settle};

/// A master whose answers the test gives.
struct Manual {
    name: String,
    run_id: String,
    asked: Mutex<Vec<(Verb, VoteSlot)>>,
}

impl Node for Manual {
    fn name(&self) -> &str {
        &self.name
    }

    fn submit(&self, op: Op, slot: VoteSlot) {
        if op.verb() == Verb::Admission {
            return slot
                .cast(Answer::unsent(Cause::NotSent("this node knows no admission".into())));
        }
        self.asked.lock().unwrap().push((op.verb(), slot));
    }

    fn drive(self: Arc<Self>, events: Events) -> Option<BoxFuture<'static, ()>> {
        events.report(NodeEvent::Up(Facts::master(&self.run_id)));
        None
    }
}

impl Manual {
    /// Answers the first open request.
    fn answer(&self, answer: Answer, read_at: Instant) {
        let (_, slot) = self.asked.lock().unwrap().remove(0);
        slot.cast_at(answer, read_at);
    }

    /// It never answers such requests.
    fn drop_all(&self, is_meant: impl Fn(&Verb) -> bool) {
        self.asked.lock().unwrap().retain(|(verb, _)| !is_meant(verb));
    }

    /// Returns the open requests.
    fn open(&self) -> Vec<Verb> {
        self.asked.lock().unwrap().iter().map(|(verb, _)| *verb).collect()
    }
}

/// Three masters, and a lock of all of them that nothing extends by itself, and for which no timer is set.
async fn held(clock: &Clock) -> (Vec<Arc<Manual>>, Redlock, Arc<Guard>) {
    let manual = |nth: u8| {
        let (name, run_id) = (format!("master-{nth}"), format!("{nth:040}"));
        Arc::new(Manual { name, run_id, asked: Mutex::default() })
    };
    let masters: Vec<_> = (0..3).map(manual).collect();
    let nodes = masters.iter().map(|one| one.clone() as Arc<dyn Node>).collect();
    let builder = Redlock::builder().masters(nodes).clock(clock.clone()).ttl(TTL).seed(0);
    let redlock = builder.quarantine(Quarantine::Off).fencing(false).build().unwrap();
    let locking = tokio::spawn(redlock.try_lock(RESOURCE).max_hold(ms(1)).into_future());
    settle().await;
    masters.iter().for_each(|master| master.answer(Answer::granted(), clock.now()));
    (masters, redlock, Arc::new(locking.await.unwrap().unwrap()))
}

/// The last answer to an extension was read in time, but is processed after the holder knows by its
/// own clock that the lease is over.
#[tokio::test(start_paused = true)]
async fn no_key_is_set_again_once_the_holder_has_seen_the_end() {
    let clock = Clock::paused();
    let (masters, _redlock, guard) = held(&clock).await;
    sleep(guard.remaining() - ms(8)).await;
    let holder = guard.clone();
    let extending = tokio::spawn(async move { holder.extend(TTL).await });
    settle().await;
    masters[0].answer(Answer::new(Verdict::NotOurs), clock.now());
    masters[1].answer(Answer::granted(), clock.now());
    settle().await;
    let read_at = clock.now();
    advance(ms(10)).await;
    assert!(!guard.is_held());
    masters[2].answer(Answer::granted(), read_at);
    settle().await;
    assert_eq!(masters[0].open(), []);
    extending.await.unwrap().unwrap_err();
}

/// The holder knows it first, and the driver learns of it with the next answer.
#[tokio::test(start_paused = true)]
async fn local_callers_retry_as_soon_as_the_driver_learns_of_the_end() {
    let clock = Clock::paused();
    let (masters, redlock, guard) = held(&clock).await;
    let _waiting = tokio::spawn(redlock.lock(RESOURCE).wait_forever().into_future());
    sleep(guard.remaining() - ms(8)).await;
    let asked = |verb: &Verb| matches!(verb, Verb::Acquire { .. } | Verb::Watch);
    // Its requests in the meantime were not answered.
    masters.iter().for_each(|master| master.drop_all(asked));
    let holder = guard.clone();
    let _extending = tokio::spawn(async move { holder.extend(TTL).await });
    settle().await;
    let read_at = clock.now();
    advance(ms(10)).await;
    assert!(!guard.is_held());
    masters[0].answer(Answer::granted(), read_at);
    settle().await;
    let open: Vec<Verb> = masters.iter().flat_map(|master| master.open()).collect();
    assert!(open.iter().any(asked), "{open:?}");
}
