//! The cost of many locks and many waiters.

use std::future::{IntoFuture, pending};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use redlock_core::{Answer, Cause, Events, Facts, Node, NodeEvent, Op, Verb, VoteSlot};
use redlock_quorum::{Quarantine, Redlock};
use redlock_testkit::lab::thread_time;

use crate::arena::{RESOURCE, masters, settle};

/// A master that grants everything; or everything but releases.
struct Prompt {
    name: String,
    run_id: String,
    denies: bool,
}

impl Node for Prompt {
    fn name(&self) -> &str {
        &self.name
    }

    fn submit(&self, op: Op, slot: VoteSlot) {
        slot.cast(match op.verb() {
            Verb::Release if self.denies => {
                Answer::unknown(Cause::ErrorReply("NOPERM no scripts".into()))
            }
            Verb::Admission => {
                Answer::unsent(Cause::NotSent("this node knows no admission".into()))
            }
            _ => Answer::granted(),
        });
    }

    fn drive(self: Arc<Self>, events: Events) -> Option<BoxFuture<'static, ()>> {
        events.report(NodeEvent::Up(Facts::master(&self.run_id)));
        None
    }
}

fn one_of_three_denies() -> Redlock {
    let prompt = |nth: u8| -> Arc<dyn Node> {
        Arc::new(Prompt {
            name: format!("master-{nth}"),
            run_id: format!("{nth:040}"),
            denies: nth == 0,
        })
    };
    let builder = Redlock::builder().masters((0..3).map(prompt).collect());
    // The nodes take no orders and no ballots.
    builder.quarantine(Quarantine::Off).fencing(false).build().unwrap()
}

/// The time for which this thread, which does all the work, runs for so many locks.
async fn locks(redlock: &Redlock, count: usize) -> Duration {
    let begun = thread_time();
    for nth in 0..count {
        redlock.lock(format!("{nth}")).await.unwrap().release().await.unwrap();
    }
    thread_time() - begun
}

/// Returns the fastest of several parts, because other work on the machine also slows down memory.
async fn fastest(redlock: &Redlock) -> Duration {
    let mut fastest = Duration::MAX;
    for _ in 0..10 {
        fastest = fastest.min(locks(redlock, 200).await);
    }
    fastest
}

#[tokio::test]
async fn unacknowledged_releases_cost_neither_time_nor_memory() {
    /// The maximum number of unacknowledged releases per master.
    const LIMIT: usize = 10_000;
    let redlock = one_of_three_denies();
    let begin = fastest(&redlock).await;
    locks(&redlock, LIMIT).await;
    let end = fastest(&redlock).await;
    assert!(end < begin * 3, "{end:?}, not {begin:?}");
    let unreleased = redlock.shutdown(Duration::ZERO).await.unwrap_err();
    assert!(unreleased.keys().len() <= LIMIT, "{} are kept", unreleased.keys().len());
}

/// Returns the CPU time of this thread per caller, for this many callers that wait for one key and
/// leave in any order. No trace of them is left.
async fn wait_and_leave(redlock: &Redlock, callers: usize) -> Duration {
    let begun = thread_time();
    let mut waiting: Vec<_> =
        (0..callers).map(|_| redlock.lock(RESOURCE).wait_forever().into_future()).collect();
    waiting.iter_mut().for_each(|caller| assert!(caller.now_or_never().is_none()));
    settle().await;
    assert_eq!(redlock.stats().waiting, callers as u64);
    waiting.shuffle(&mut StdRng::seed_from_u64(0));
    for some in waiting.chunks_mut(callers / 100) {
        some.iter_mut().for_each(|caller| drop(std::mem::replace(caller, pending().boxed())));
        settle().await;
    }
    assert_eq!(redlock.stats().waiting, 0);
    (thread_time() - begun) / u32::try_from(callers).unwrap()
}

/// With a search for each of them among all that wait, a hundred thousand took minutes.
#[tokio::test(start_paused = true)]
async fn cost_per_leaving_waiter_is_constant() {
    let (masters, redlock) = masters(3);
    masters.iter().for_each(|master| master.put(RESOURCE, "stranger", 100_000_000));
    let few = wait_and_leave(&redlock, 5_000).await;
    let many = wait_and_leave(&redlock, 100_000).await;
    assert!(many < few * 5, "{many:?} each, and {few:?} each where they are few");
}
