//! Masters that forget, with quarantine: what they granted before is safe, and they come back.

use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use redlock_core::{Answer, Cause, Events, Node, Op, Verb, Verdict, VoteSlot};
use redlock_quorum::{
    AcquireError, Ended, Guard, Lease, LostReason, Quarantine, Redlock, RedlockBuilder, State,
};
use redlock_testkit::{Executed, SimNodes};
use tokio::time::{sleep, timeout};

use crate::admission::short_lives::slow;
use crate::arena::{NODE_TIMEOUT, RESOURCE, TTL, copies, ms, settle};

/// The longest TTL, and how long a quarantine takes.
pub(crate) const MAX_TTL: Duration = ms(2_000);

pub(crate) const LENGTH: Duration = ms(2_200);

pub(crate) fn handle(masters: &SimNodes) -> RedlockBuilder {
    crate::arena::handle(masters).max_ttl(MAX_TTL).quarantine(Quarantine::On)
}

/// Starts this many admitted masters, and a handle on them.
pub(crate) fn masters(n: usize) -> (SimNodes, Redlock) {
    let masters = SimNodes::new(n, 0);
    masters.init(MAX_TTL);
    let redlock = handle(&masters).build().unwrap();
    (masters, redlock)
}

pub(crate) async fn full(redlock: &Redlock, masters: &SimNodes) -> Guard {
    let guard = redlock.lock(RESOURCE).min_copies(masters.len()).await.unwrap();
    assert_eq!(guard.copies(), masters.len());
    guard
}

/// Creates another process with its own connections.
pub(crate) fn other(masters: &SimNodes) -> Redlock {
    handle(&masters.another_client()).build().unwrap()
}

pub(super) fn not_admitted(error: &AcquireError) -> Vec<String> {
    let votes = error.votes().unwrap().iter();
    let cause = votes.filter_map(|vote| match &vote.verdict {
        Verdict::Unknown(cause @ Cause::NotAdmitted(_)) => Some(cause.to_string()),
        _ => None,
    });
    cause.collect()
}

// Voting masters.

#[tokio::test(start_paused = true)]
async fn admitted_masters_vote_immediately() {
    let (masters, redlock) = masters(5);
    let guard = full(&redlock, &masters).await;
    guard.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn new_masters_wait_for_a_quarantine_or_init() {
    let masters = SimNodes::new(3, 0);
    let redlock = handle(&masters).build().unwrap();
    let error = redlock.try_lock(RESOURCE).await.unwrap_err();
    assert!(matches!(error, AcquireError::NoQuorum { .. }), "{error}");
    let text = error.to_string();
    for word in [
        "new, or lost its data, in quarantine; votes again in 2.2 s",
        "if these masters are new, run `redlock init`",
    ] {
        assert!(text.contains(word), "{word} in {text}");
    }
    assert_eq!(error.retry_after(), Some(LENGTH));
    sleep(LENGTH - ms(20)).await;
    redlock.try_lock(RESOURCE).await.unwrap_err();
    sleep(ms(1_100)).await;
    redlock.try_lock(RESOURCE).await.unwrap().release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_waiting_lock_is_served_when_the_quarantine_ends() {
    for seed in 0..10 {
        let masters = SimNodes::new(3, 0);
        let redlock = handle(&masters).seed(seed).build().unwrap();
        let begun = masters.clock().now();
        let guard = redlock.lock(RESOURCE).wait(LENGTH * 2).await.unwrap();
        let took = masters.clock().now().saturating_since(begun);
        // It does not sleep on: the pause between attempts is longer.
        assert!(took >= LENGTH && took < LENGTH + ms(10), "{seed}: {took:?}");
        drop(guard);
    }
}

/// Its answer would come late, and is not a vote.
#[tokio::test(start_paused = true)]
async fn non_voting_master_is_not_awaited() {
    let (masters, redlock) = masters(3);
    redlock.try_lock(RESOURCE).await.unwrap().release().await.unwrap();
    masters[0].crash_and_restart(false);
    settle().await;
    masters[0].hold();
    let begun = masters.clock().now();
    let guard = redlock.try_lock(RESOURCE).min_copies(3).await.unwrap();
    assert_eq!((guard.copies(), masters.clock().now()), (2, begun));
    masters[0].release();
    guard.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn waiting_lock_is_served_after_init_by_another_client() {
    let masters = SimNodes::new(3, 0);
    let redlock = handle(&masters).build().unwrap();
    let waiting = tokio::spawn(redlock.lock(RESOURCE).wait_forever().into_future());
    sleep(ms(300)).await;
    assert!(!waiting.is_finished());
    masters.init(MAX_TTL);
    let guard = timeout(ms(1_100), waiting).await.unwrap().unwrap().unwrap();
    guard.release().await.unwrap();
}

// Masters that forget.

#[tokio::test(start_paused = true)]
async fn restarted_empty_master_votes_after_a_quarantine() {
    let (masters, redlock) = masters(3);
    let guard = full(&redlock, &masters).await;
    masters[0].crash_and_restart(false);
    settle().await;
    assert_eq!(guard.copies(), 2, "its copy is gone, and its new copy is not used");
    sleep(ms(500)).await;
    assert_eq!((guard.copies(), copies(&masters)), (2, 3), "it has a copy again");
    sleep(LENGTH + TTL).await;
    assert_eq!(guard.copies(), 3, "it is used again");
    guard.release().await.unwrap();
}

/// The holder is cut off, and a majority loses its data.
#[tokio::test(start_paused = true)]
async fn no_second_holder_before_the_first_lease_ends() {
    for n in [1, 3, 5] {
        let (masters, redlock) = masters(n);
        let guard = full(&redlock, &masters).await;
        let second = other(&masters);
        // It is connected, so it sees them go.
        drop(second.try_lock("another").await);
        masters.iter().for_each(|master| master.partition());
        let away = masters.another_client();
        away.iter().take(n / 2 + 1).for_each(|master| master.crash_and_restart(false));
        let lost = async {
            let ended = guard.lost().await;
            assert!(matches!(ended, Ended::Lost(_)));
            masters.clock().now()
        };
        let won = async {
            let guard = second.lock(RESOURCE).wait(LENGTH * 3).await.unwrap();
            (masters.clock().now(), guard)
        };
        let (lost, (won, _second)) = tokio::join!(lost, won);
        assert!(won >= lost, "{n} masters: {won:?} before {lost:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn flushed_majority_ends_the_lease_and_admits_no_client() {
    let (masters, redlock) = masters(5);
    let guard = full(&redlock, &masters).await;
    masters[..3].iter().for_each(|master| master.flush());
    settle().await;
    let lost = guard.check().unwrap_err();
    assert!(matches!(lost.reason, LostReason::DataLost | LostReason::NotOurs), "{lost}");
    let error = other(&masters).try_lock("another").await.unwrap_err();
    assert_eq!(not_admitted(&error).len(), 3, "{error}");
}

/// Simulates FLUSHDB of another database: the push arrives, and the data is unchanged.
#[tokio::test(start_paused = true)]
async fn harmless_push_ends_no_lease() {
    let (masters, redlock) = masters(3);
    let guard = full(&redlock, &masters).await;
    for master in masters.iter() {
        let data = master.data();
        let token = master.holder(RESOURCE).unwrap();
        master.flush();
        master.edit_data(|mine| *mine = data);
        master.put(RESOURCE, token, 60_000);
    }
    sleep(TTL * 3).await;
    assert_eq!(guard.copies(), 3);
    guard.release().await.unwrap();
}

/// Answers to requests after the look are valid as soon as it has shown that nothing is lost.
#[tokio::test(start_paused = true)]
async fn harmless_push_costs_no_attempt() {
    let (masters, redlock) = masters(3);
    redlock.try_lock(RESOURCE).await.unwrap().release().await.unwrap();
    settle().await;
    for master in masters.iter() {
        let data = master.data();
        master.flush();
        master.edit_data(|mine| *mine = data);
        master.delay(ms(5)..=ms(5), ms(5)..=ms(5));
    }
    settle().await;
    redlock.try_lock(RESOURCE).await.unwrap().release().await.unwrap();
}

/// The look after a push is not answered, so the data of the master may be gone.
#[tokio::test(start_paused = true)]
async fn unproven_copies_are_disowned_after_their_deadline() {
    let (masters, redlock) = masters(3);
    keeps_copies_for(2 * NODE_TIMEOUT, &masters, &redlock).await;
}

/// Without a quarantine no look proves anything, only the extension sent immediately, which has its
/// own time limit.
#[tokio::test(start_paused = true)]
async fn without_quarantine_copies_need_proof_within_a_node_timeout() {
    let (masters, redlock) = crate::arena::trusting(3);
    keeps_copies_for(NODE_TIMEOUT, &masters, &redlock).await;
}

/// A master that was flushed and answers nothing has its copies for so long.
async fn keeps_copies_for(time: Duration, masters: &SimNodes, redlock: &Redlock) {
    let guard = full(redlock, masters).await;
    masters[0].flush();
    masters[0].lose_replies(true);
    sleep(time - ms(10)).await;
    assert_eq!(guard.copies(), 3, "it has {time:?}");
    sleep(ms(20)).await;
    assert_eq!(guard.copies(), 2);
    masters[0].lose_replies(false);
    drop(guard);
}

#[tokio::test(start_paused = true)]
async fn master_with_deleted_ballots_does_not_vote() {
    let (masters, _) = masters(3);
    masters[0].edit_data(|data| data.sets.clear());
    let redlock = other(&masters);
    let guard = redlock.lock(RESOURCE).await.unwrap();
    settle().await;
    assert_eq!(guard.copies(), 2);
    sleep(LENGTH + ms(1_100)).await;
    assert_eq!(guard.copies(), 3);
}

/// Locks on them come too late, but requests for their admission do not.
#[tokio::test(start_paused = true)]
async fn distant_masters_are_still_admitted() {
    let (masters, _) = masters(3);
    masters[0].crash_and_restart(false);
    let client = masters.another_client();
    client.iter().for_each(|master| master.delay(ms(40)..=ms(40), ms(40)..=ms(40)));
    let redlock = handle(&client).build().unwrap();
    let nodes = redlock.inspect().await;
    assert!(nodes.iter().all(|node| node.server.is_some()), "{nodes:?}");
    redlock.try_lock(RESOURCE).await.unwrap_err();
    sleep(LENGTH + ms(1_500)).await;
    assert!(masters[0].data().record.run.is_some(), "{:?}", masters[0].data().record);
}

/// A user's own node, which reports nothing about a connection.
struct Mute;

impl Node for Mute {
    fn name(&self) -> &str {
        "mute:6379"
    }

    fn submit(&self, _: Op, slot: VoteSlot) {
        slot.cast(Answer::unsent(Cause::TimedOut));
    }

    fn drive(self: Arc<Self>, _: Events) -> Option<BoxFuture<'static, ()>> {
        None
    }
}

/// A handle on these masters and one such node.
pub(super) fn beside_a_mute_node(masters: &SimNodes) -> Redlock {
    let nodes = [masters.nodes(), vec![Arc::new(Mute) as Arc<dyn Node>]].concat();
    let builder = Redlock::builder().masters(nodes).clock(masters.clock()).max_ttl(MAX_TTL);
    builder.ttl(TTL).quarantine(Quarantine::On).build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn silent_node_delays_no_quarantine() {
    let (masters, _) = masters(2);
    masters[0].crash_and_restart(false);
    let redlock = beside_a_mute_node(&masters);
    redlock.try_lock(RESOURCE).await.unwrap_err();
    sleep(RedlockBuilder::CONNECT_TIMEOUT + LENGTH + ms(2_500)).await;
    redlock.try_lock(RESOURCE).await.unwrap().release().await.unwrap();
}

/// Otherwise the key of the released lock would stay on the only master that has it.
#[tokio::test(start_paused = true)]
async fn releases_do_not_wait_for_admissions() {
    let (masters, holder) = masters(3);
    let guard = full(&holder, &masters).await;
    let lease = Lease::new(RESOURCE, guard.token().as_str(), TTL).unwrap();
    guard.forget();
    masters[..2].iter().for_each(|master| master.crash_and_restart(false));
    let redlock = handle(&slow(&masters)).build().unwrap();
    let attempt = redlock.try_lock("other").into_future();
    let (_lost, _released) = tokio::join!(attempt, redlock.release(lease));
    let log = masters[2].log();
    let at = |key: &str, is_it: fn(&Verb) -> bool| {
        let wanted = |executed: &&Executed| executed.key == key.as_bytes() && is_it(&executed.verb);
        log.iter().find(wanted).unwrap().at
    };
    let released = at(RESOURCE, |verb| matches!(verb, Verb::Release));
    let attempted = at("other", |verb| matches!(verb, Verb::Acquire { .. }));
    assert!(attempted.saturating_since(released) >= ms(20), "{log:?}");
}

/// A status query is answered even if a lock request preceded it. A caller that queues after
/// another one is answered when its own wait is over.
#[tokio::test(start_paused = true)]
async fn queries_do_not_wait_for_admissions() {
    let masters = SimNodes::new(2, 0);
    let redlock = beside_a_mute_node(&masters);
    let timed = async |question: BoxFuture<'static, ()>| {
        question.await;
        masters.clock().now()
    };
    let begun = masters.clock().now();
    let (attempt, other) = (redlock.try_lock(RESOURCE), redlock.lock(RESOURCE).wait(ms(100)));
    let (lock, behind) = (redlock.lock(RESOURCE).wait(ms(100)), redlock.clone());
    let status = async move { drop(behind.status(RESOURCE).await) };
    let (attempted, _, waited, asked) = tokio::join!(
        timed(Box::pin(async { drop(attempt.await.unwrap_err()) })),
        timed(Box::pin(async { drop(other.await.unwrap_err()) })),
        timed(Box::pin(async { drop(lock.await.unwrap_err()) })),
        timed(Box::pin(status)),
    );
    let took = [attempted, waited, asked].map(|at| at.saturating_since(begun));
    assert_eq!(took, [RedlockBuilder::CONNECT_TIMEOUT, ms(100), ms(10)]);
}

// Messages.

#[tokio::test(start_paused = true)]
async fn status_shows_but_ignores_keys_of_non_voting_masters() {
    let (masters, redlock) = masters(3);
    let guard = full(&redlock, &masters).await;
    masters[..2].iter().for_each(|master| master.crash_and_restart(false));
    settle().await;
    drop(guard);
    sleep(TTL * 2).await;
    let status = redlock.status(RESOURCE).await;
    assert_eq!(status.state, State::Undecided, "two of the free ones do not vote");
    for node in &status.nodes[..2] {
        assert_eq!((&node.verdict, node.is_admitted()), (&Verdict::Free, false));
        let left = node.votes_again().unwrap();
        assert!(left <= LENGTH && left > ms(0), "{left:?}");
    }
    assert!(status.nodes[2].is_admitted());
}
