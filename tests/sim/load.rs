//! Masters that answer at once, and one of them with errors: what that costs.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use redlock_core::{Answer, Cause, Events, Facts, Node, NodeEvent, Op, Verb, VoteSlot};
use redlock_quorum::{Quarantine, Redlock};
use redlock_testkit::lab::thread_time;

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

/// The fastest of a few parts counts: what else the machine does slows down memory, too.
async fn fastest(redlock: &Redlock) -> Duration {
    let mut fastest = Duration::MAX;
    for _ in 0..10 {
        fastest = fastest.min(locks(redlock, 200).await);
    }
    fastest
}

#[tokio::test]
async fn releases_that_are_never_acknowledged_cost_neither_time_nor_memory() {
    /// What one master may leave unacknowledged.
    const LIMIT: usize = 10_000;
    let redlock = one_of_three_denies();
    let begin = fastest(&redlock).await;
    locks(&redlock, LIMIT).await;
    let end = fastest(&redlock).await;
    assert!(end < begin * 3, "{end:?} and not {begin:?}");
    let unreleased = redlock.shutdown(Duration::ZERO).await.unwrap_err();
    assert!(unreleased.keys().len() <= LIMIT, "{} are kept", unreleased.keys().len());
}
