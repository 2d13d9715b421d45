//! Helpers of the tests of the real lock over simulated masters.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use redlock_core::{Instant, Verb, Verdict};
use redlock_quorum::{Ended, Guard, Quarantine, Redlock, RedlockBuilder};
use redlock_testkit::{SimNode, SimNodes};
use tokio::time::{sleep, timeout};

pub(crate) const RESOURCE: &str = "orders:42";
pub(crate) const TTL: Duration = Duration::from_millis(1_000);
/// The time added to the expiry on the masters: the default, a tenth of the TTL.
pub(crate) const GUARD: Duration = Duration::from_millis(100);
/// The default for this TTL.
pub(crate) const NODE_TIMEOUT: Duration = Duration::from_millis(50);
/// The validity of a lock: the TTL less 1% and 2 ms.
pub(crate) const VALIDITY: Duration = Duration::from_millis(988);

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A handle over these masters, in virtual time. Each of a test has another seed: its ticket in the
/// queues of waiters follows from that.
pub(crate) fn handle(masters: &SimNodes) -> RedlockBuilder {
    thread_local!(static HANDLES: Cell<u64> = const { Cell::new(0) });
    let seed = HANDLES.replace(HANDLES.get() + 1);
    crate::replay::record();
    Redlock::builder().masters(masters.nodes()).clock(masters.clock()).ttl(TTL).seed(seed)
}

/// So many masters that are admitted for the default `max_ttl`.
pub(crate) fn admitted(n: usize, seed: u64) -> SimNodes {
    let masters = SimNodes::new(n, seed);
    masters.init(RedlockBuilder::MAX_TTL);
    masters
}

/// So many masters, and a handle on them.
pub(crate) fn masters(n: usize) -> (SimNodes, Redlock) {
    let masters = admitted(n, 0);
    let redlock = handle(&masters).build().unwrap();
    (masters, redlock)
}

/// Starts this many masters, and a handle that trusts them to lose no data. If one does, it is
/// still queried as before.
pub(crate) fn trusting(n: usize) -> (SimNodes, Redlock) {
    let masters = SimNodes::new(n, 0);
    let redlock = trusting_handle(&masters).build().unwrap();
    (masters, redlock)
}

/// Such a handle over these masters.
pub(crate) fn trusting_handle(masters: &SimNodes) -> RedlockBuilder {
    masters.iter().for_each(|master| master.set_quarantine(false));
    handle(masters).quarantine(Quarantine::Off)
}

/// A lock with a copy on every master.
pub(crate) async fn full(redlock: &Redlock, masters: &SimNodes) -> Guard {
    let guard = redlock.lock(RESOURCE).min_copies(masters.len()).await.unwrap();
    assert_eq!(guard.copies(), masters.len());
    guard
}

/// How the lock came to its end, which must not take long.
pub(crate) async fn ended(guard: &Guard) -> Ended {
    timeout(TTL * 10, guard.lost()).await.expect("the lock is lost")
}

/// Lets everything happen that needs no time.
pub(crate) async fn settle() {
    sleep(ms(1)).await;
}

/// How many masters hold the resource for any client.
pub(crate) fn copies(masters: &SimNodes) -> usize {
    masters.iter().filter(|master| master.holder(RESOURCE).is_some()).count()
}

/// Waits until no master has a key, and returns how long that took.
pub(crate) async fn until_free(masters: &SimNodes, within: Duration) -> Duration {
    let begin = masters.clock().now();
    let free = async {
        while masters.iter().any(|master| master.keys() > 0) {
            sleep(ms(1)).await;
        }
    };
    let freed = timeout(within, free).await;
    assert!(freed.is_ok(), "keys are left after {within:?}: {:?}", masters.keys());
    masters.clock().now().saturating_since(begin)
}

/// Returns when each acquire was executed on a master, with its token and verdict. Includes
/// requests that set the holder's key again.
pub(crate) fn acquires(master: &SimNode) -> Vec<(Instant, String, Verdict)> {
    let log = master.log().into_iter();
    let acquires = log.filter(|executed| is_asking(executed.verb));
    acquires.map(|executed| (executed.at, executed.token, executed.verdict)).collect()
}

/// Returns `true` if it requests the key.
pub(crate) fn is_asking(verb: Verb) -> bool {
    use Verb::{Acquire, Enter, GiveBack, Take};
    matches!(verb, Acquire { .. } | GiveBack { .. } | Enter { .. } | Take { .. })
}

/// How many requests of one kind a master has carried out.
pub(crate) fn count(master: &SimNode, is_wanted: fn(&Verb) -> bool) -> usize {
    master.log().iter().filter(|executed| is_wanted(&executed.verb)).count()
}

pub(crate) fn is_extend(verb: &Verb) -> bool {
    matches!(verb, Verb::Extend { .. })
}

pub(crate) fn hold(masters: &[Arc<SimNode>]) {
    masters.iter().for_each(|master| master.hold());
}

pub(crate) fn let_go(masters: &[Arc<SimNode>]) {
    masters.iter().for_each(|master| master.release());
}

pub(crate) fn partition(masters: &[Arc<SimNode>]) {
    masters.iter().for_each(|master| master.partition());
}

pub(crate) fn heal(masters: &[Arc<SimNode>]) {
    masters.iter().for_each(|master| master.heal());
}

/// The same lease once more, as a text that was read twice makes it.
pub(crate) fn again(lease: &redlock_quorum::Lease) -> redlock_quorum::Lease {
    redlock_quorum::Lease::new(lease.resource.clone(), lease.token.as_str(), lease.ttl).unwrap()
}

/// Returns the number of all requests to masters so far.
pub(crate) fn requests(masters: &SimNodes) -> usize {
    masters.iter().map(|master| master.log().len()).sum()
}

/// Polls a future so many times at most, and drops it.
pub(crate) async fn drop_after<F: Future>(future: F, polls: usize) {
    let mut future = pin!(future);
    let mut left = polls;
    poll_fn(|cx| {
        if left == 0 || future.as_mut().poll(cx).is_ready() || left == 1 {
            return Poll::Ready(());
        }
        left -= 1;
        Poll::Pending
    })
    .await;
}
