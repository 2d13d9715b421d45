//! Processes that wait while too few masters vote: they cause each other no work, and are served
//! soon after a quorum votes again.

use super::*;
use crate::arena::{GUARD, TTL};
use redlock_testkit::SimNode;

/// Why all masters but one do not vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Without {
    Dead,
    Stopped,
    Error(&'static str),
}

const STATES: [Without; 4] = [
    Without::Dead,
    Without::Stopped,
    Without::Error("NOREPLICAS Not enough good replicas to write."),
    Without::Error("OOM command not allowed when used memory > 'maxmemory'."),
];
/// The first pauses are short.
const SHORT_PAUSES: Duration = ms(500);
/// A request is up to six commands, and a waiter may cause 200 commands a second.
const REQUESTS_A_SECOND: usize = 33;

fn begin(masters: &[Arc<SimNode>], state: Without) {
    match state {
        Without::Dead => masters.iter().for_each(|master| master.down()),
        Without::Stopped => hold(masters),
        Without::Error(error) => masters.iter().for_each(|it| it.error_replies(Some(error))),
    }
}

fn end(masters: &[Arc<SimNode>], state: Without) {
    match state {
        Without::Dead => masters.iter().for_each(|master| master.up()),
        Without::Stopped => let_go(masters),
        Without::Error(_) => masters.iter().for_each(|master| master.error_replies(None)),
    }
}

/// So many processes wait, and `left` masters vote.
async fn waiters_without_a_quorum(n: usize, left: usize, waiters: u64, state: Without) {
    let (masters, holder) = masters(n);
    let guard = holder.lock(RESOURCE).await.unwrap();
    let served = Served::default();
    let waiting: Vec<_> =
        (1..=waiters).map(|number| wait(&masters, number, ms(0), &served)).collect();
    sleep(ms(100)).await;
    let at = meeting_point(&masters);
    let others: Vec<_> = (0..n).filter(|master| *master != at).collect();
    let lost: Vec<_> = others[left - 1..].iter().map(|master| masters[*master].clone()).collect();
    begin(&lost, state);
    // Its key on the remaining master is gone as well.
    drop(guard);
    sleep(TTL + GUARD + SHORT_PAUSES).await;
    let before = masters[at].log().len();
    sleep(ms(2_000)).await;
    let most = 2 * REQUESTS_A_SECOND * usize::try_from(waiters).unwrap();
    let took = masters[at].log().len() - before;
    assert!(took <= most, "{n} masters, {waiters} waiters, {state:?}: {took} requests");
    assert!(served.lock().unwrap().is_empty());
    end(&lost, state);
    let begun = masters.clock().now();
    all_served(waiting).await;
    let took = masters.clock().now().saturating_since(begun);
    assert!(waiters > 16 || took <= ms(300), "{n}, {waiters}, {state:?}: {took:?}");
}

/// The first lock goes to any of them, because no process knows of the others yet. A few of the
/// others swap places, because they query all masters before they queue again.
#[test]
fn lost_quorum_mostly_keeps_the_order_of_waiters() {
    seeds::each("lost_quorum_mostly_keeps_the_order_of_waiters", 0..40, |seed| async move {
        for state in STATES {
            lost_quorum(seed, state).await;
        }
        Ok(())
    });
}

async fn lost_quorum(seed: u64, state: Without) {
    let masters = admitted(5, seed);
    let (_client, holder) = process(&masters, seed * 1_000 + 100);
    let guard = holder.lock(RESOURCE).await.unwrap();
    let (served, mut waiting) = (Served::default(), Vec::new());
    for number in 1..=8 {
        waiting.push(wait(&masters, seed * 1_000 + number, ms(1_000), &served));
        sleep(ms(50)).await;
    }
    let lost = &masters[..3];
    begin(lost, state);
    drop(guard);
    sleep(ms(3_000)).await;
    end(lost, state);
    all_served(waiting).await;
    let order: Vec<u64> = served.lock().unwrap().iter().map(|(one, _)| *one % 1_000).collect();
    let sorted: Vec<u64> = (1..=8).filter(|number| *number != order[0]).collect();
    for (place, number) in order[1..].iter().enumerate() {
        let came = sorted.iter().position(|other| other == number).unwrap();
        assert!(came.abs_diff(place) <= 2, "{state:?}, seed {seed}: {order:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn waiters_without_a_quorum_cause_each_other_no_work() {
    for state in STATES {
        for waiters in [1, 2, 8, 16, 64] {
            for (n, left) in [(3, 1), (5, 1), (5, 2)] {
                waiters_without_a_quorum(n, left, waiters, state).await;
            }
        }
    }
}
