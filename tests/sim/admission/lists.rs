//! A handle whose list of masters does not fit the recorded set, and a handle that runs while the
//! set changes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use redlock_core::admission::Identity;
use redlock_core::{Events, Node, Op, VoteSlot};
use redlock_quorum::{
    AcquireError, Cause, ExtendError, Init, NodeVote, Redlock, RedlockBuilder, State, Verdict,
    Votes, WhyNot,
};
use redlock_testkit::SimNodes;
use tokio::time::{Instant, sleep};

use crate::admission::forgetting::MAX_TTL;
use crate::arena::{RESOURCE, heal, ms, partition};

/// Longer than a reading of a master is trusted.
const STALE: Duration = ms(80_000);
const AGAIN: Init = Init { again: true, floor: None, far_floor: false };

/// A handle on these masters.
fn on(masters: &SimNodes, list: &[usize]) -> RedlockBuilder {
    let nodes = masters.another_client().nodes();
    let nodes = list.iter().map(|place| nodes[*place].clone()).collect();
    Redlock::builder().masters(nodes).clock(masters.clock()).max_ttl(MAX_TTL).ttl(MAX_TTL)
}

fn five() -> SimNodes {
    let masters = SimNodes::new(5, 0);
    masters.init(MAX_TTL);
    masters
}

fn whys(votes: &Votes) -> Vec<Option<WhyNot>> {
    let why = |vote: &NodeVote| match &vote.verdict {
        Verdict::Unknown(Cause::NotAdmitted(not)) => Some(not.why),
        _ => None,
    };
    votes.iter().map(why).collect()
}

async fn refused(redlock: &Redlock) -> Votes {
    match redlock.lock(RESOURCE).wait(ms(60_000)).await {
        Err(AcquireError::NoQuorum { votes, .. }) => votes,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn wrong_lists_are_refused_as_data_and_leave_no_key() {
    let masters = five();
    for list in [&[0][..], &[0, 1], &[0, 1, 2]] {
        let redlock = on(&masters, list).build().unwrap();
        let began = Instant::now();
        let votes = refused(&redlock).await;
        assert!(began.elapsed() < ms(2_000), "waiting does not help");
        assert_eq!(whys(&votes), vec![Some(WhyNot::SetSize); list.len()]);
        let vote = votes.iter().next().unwrap();
        let Verdict::Unknown(Cause::NotAdmitted(not)) = &vote.verdict else { panic!("{vote:?}") };
        let lists = not.lists.clone().unwrap();
        assert_eq!((lists.set.unwrap().size, lists.list.len()), (5, list.len()));
        assert_eq!(redlock.list_warning(), None);
        let status = redlock.status(RESOURCE).await;
        assert_eq!((status.state, status.set.unwrap().size), (State::Undecided, 5));
    }
    let log: Vec<_> = (0..5).flat_map(|one| masters[one].log()).collect();
    let is_unsigned = log.iter().all(|one| one.token.is_empty());
    assert!(!log.is_empty() && is_unsigned, "no master got a request for a key: {log:?}");
}

#[tokio::test(start_paused = true)]
async fn one_master_fewer_or_one_more_is_a_warning() {
    let masters = SimNodes::new(6, 0);
    let five = on(&masters, &[0, 1, 2, 3, 4]).build().unwrap();
    five.init().await.unwrap();
    masters[5].init(MAX_TTL);
    for list in [&[0, 1, 2, 3][..], &[0, 1, 2, 3, 4, 5]] {
        let redlock = on(&masters, list).build().unwrap();
        redlock.try_lock(RESOURCE).await.unwrap().release().await.unwrap();
        let lists = redlock.list_warning().unwrap().lists;
        assert_eq!((lists.set.unwrap().size, lists.list.len()), (5, list.len()));
    }
    five.try_lock(RESOURCE).await.unwrap().release().await.unwrap();
    assert_eq!(five.list_warning(), None);
}

#[tokio::test(start_paused = true)]
async fn running_clients_learn_of_a_set_and_keep_their_locks() {
    let masters = SimNodes::new(5, 0);
    let three = on(&masters, &[0, 1, 2]).build().unwrap();
    three.init().await.unwrap();
    let guard = three.try_lock("held").await.unwrap();
    on(&masters, &[0, 1, 2, 3, 4]).build().unwrap().init_with(AGAIN).await.unwrap();
    sleep(STALE).await;
    assert_eq!(whys(&refused(&three).await), [Some(WhyNot::SetSize); 3]);
    for _ in 0..5 {
        sleep(STALE).await;
        guard.check().unwrap();
    }
    guard.extend(MAX_TTL).await.unwrap();
    assert_eq!(guard.copies(), 3);
    let lease = guard.into_lease();
    let resumed = three.resume(lease).await;
    assert!(matches!(resumed, Err(ExtendError::NoQuorum { .. })), "{resumed:?}");
    on(&masters, &[0, 1, 2]).build().unwrap().init_with(AGAIN).await.unwrap();
    // It probes masters that it refuses each second.
    sleep(ms(1_500)).await;
    three.try_lock(RESOURCE).await.unwrap().release().await.unwrap();
    assert_eq!(three.list_warning(), None);
}

#[tokio::test(start_paused = true)]
async fn reconnected_clients_learn_of_a_set_and_keep_their_locks() {
    let masters = SimNodes::new(5, 0);
    let client = masters.another_client();
    let three = Redlock::builder().masters(client.nodes()[..3].to_vec()).clock(masters.clock());
    let three = three.max_ttl(MAX_TTL).ttl(MAX_TTL).build().unwrap();
    three.init().await.unwrap();
    let guard = three.try_lock("held").await.unwrap();
    on(&masters, &[0, 1, 2, 3, 4]).build().unwrap().init_with(AGAIN).await.unwrap();
    three.try_lock(RESOURCE).await.unwrap().release().await.unwrap();
    partition(&client[..3]);
    sleep(ms(1)).await;
    heal(&client[..3]);
    sleep(ms(100)).await;
    assert_eq!(whys(&refused(&three).await), [Some(WhyNot::SetSize); 3]);
    guard.extend(MAX_TTL).await.unwrap();
    assert_eq!(guard.copies(), 3);
}

/// Two sets differ for a moment while `init` writes. This may pass, so callers wait.
#[tokio::test(start_paused = true)]
async fn callers_wait_while_the_sets_differ() {
    let masters = five();
    on(&masters, &[3, 4]).build().unwrap().init_with(AGAIN).await.unwrap();
    let redlock = on(&masters, &[0, 1, 2, 3, 4]).build().unwrap();
    match redlock.lock(RESOURCE).wait(ms(500)).await {
        Err(AcquireError::NoQuorum { votes, .. }) => {
            let (one, other) = (Some(WhyNot::SetsDiffer), Some(WhyNot::SetSize));
            assert_eq!(whys(&votes), [one, one, one, other, other]);
        }
        other => panic!("{other:?}"),
    }
    // Those of the set of two stay away: the majority waits until the sets fit.
    let waiting = tokio::spawn(redlock.lock(RESOURCE).wait(ms(60_000)).into_future());
    sleep(ms(3_000)).await;
    assert!(!waiting.is_finished());
    on(&masters, &[0, 1, 2, 3, 4]).build().unwrap().init_with(AGAIN).await.unwrap();
    let began = Instant::now();
    waiting.await.unwrap().unwrap().release().await.unwrap();
    assert!(began.elapsed() < ms(2_000), "{:?}", began.elapsed());
}

/// A master that restarts empty gets the set of the others with its admission.
#[tokio::test(start_paused = true)]
async fn restarted_masters_get_the_set_of_the_others_back() {
    let masters = five();
    let redlock = on(&masters, &[0, 1, 2, 3, 4]).build().unwrap();
    redlock.try_lock(RESOURCE).await.unwrap().release().await.unwrap();
    let before = masters[1].data().record.set;
    masters[0].crash_and_restart(false);
    redlock.try_lock(RESOURCE).await.unwrap().release().await.unwrap();
    let deadline = Instant::now() + 3 * MAX_TTL + ms(5_000);
    while masters[0].data().record.run.is_none() {
        assert!(Instant::now() < deadline, "{:?}", masters[0].data().record);
        assert_eq!(masters[0].data().record.set, None);
        sleep(ms(100)).await;
    }
    assert!(before.is_some());
    assert_eq!(masters[0].data().record.set, before);
}

/// A master that counts the requests of its client by their kind.
struct Counted(Arc<dyn Node>, Arc<Mutex<BTreeMap<String, usize>>>);

impl Node for Counted {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn submit(&self, op: Op, slot: VoteSlot) {
        let kind = match op.admission_op() {
            Some(op) => format!("{op:?}"),
            None => format!("{:?}", op.verb()),
        };
        *self.1.lock().unwrap().entry(kind).or_default() += 1;
        self.0.submit(op, slot);
    }

    fn set_admitted(&self, run: Option<Identity>) {
        self.0.set_admitted(run);
    }

    fn drive(self: Arc<Self>, events: Events) -> Option<BoxFuture<'static, ()>> {
        self.0.clone().drive(events)
    }

    fn is_in_virtual_time(&self) -> bool {
        true
    }
}

/// The set comes with the record, which is read on each connection and about once a minute.
#[tokio::test(start_paused = true)]
async fn recorded_set_costs_no_request() {
    const MINUTES: usize = 20;
    let mut counts = Vec::new();
    for has_set in [true, false] {
        let masters = five();
        if !has_set {
            (0..5).for_each(|one| masters[one].edit_data(|data| data.record.set = None));
        }
        let counted = Arc::new(Mutex::new(BTreeMap::new()));
        let count = |node: &Arc<dyn Node>| -> Arc<dyn Node> {
            Arc::new(Counted(node.clone(), counted.clone()))
        };
        let nodes = masters.another_client().nodes().iter().map(count).collect();
        let redlock = Redlock::builder().masters(nodes).clock(masters.clock()).seed(1);
        let redlock = redlock.max_ttl(MAX_TTL).ttl(MAX_TTL).build().unwrap();
        for _ in 0..MINUTES {
            redlock.try_lock(RESOURCE).await.unwrap().release().await.unwrap();
            sleep(ms(60_000)).await;
        }
        assert_eq!(masters[0].data().record.set.is_some(), has_set);
        counts.push(counted.lock().unwrap().clone());
    }
    assert_eq!(counts[0], counts[1]);
    let reads = counts[0]["ReadFacts"] / 5;
    assert!(reads <= 20 * MINUTES / 15, "a pause is at least 45 s: {counts:?}");
}

/// A master whose first connection takes some time.
struct Late(Arc<dyn Node>, Duration);

impl Node for Late {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn submit(&self, op: Op, slot: VoteSlot) {
        self.0.submit(op, slot);
    }

    fn set_admitted(&self, run: Option<Identity>) {
        self.0.set_admitted(run);
    }

    fn drive(self: Arc<Self>, events: Events) -> Option<BoxFuture<'static, ()>> {
        Some(Box::pin(async move {
            sleep(self.1).await;
            if let Some(drive) = self.0.clone().drive(events) {
                drive.await;
            }
        }))
    }

    fn is_in_virtual_time(&self) -> bool {
        true
    }
}

/// Lists of these masters and of late addresses: a duplicate of each master in `duplicates`, and
/// masters of their own.
fn with_late(
    masters: &SimNodes,
    list: &[usize],
    duplicates: &[usize],
    others: &[usize],
    after: Duration,
) -> RedlockBuilder {
    let client = masters.another_client();
    let mut nodes: Vec<Arc<dyn Node>> =
        list.iter().map(|place| client.nodes()[*place].clone()).collect();
    let aliases = duplicates.iter().map(|place| client[*place].alias(format!("again-{place}")));
    let others = others.iter().map(|place| client[*place].clone());
    nodes.extend(aliases.chain(others).map(|node| Arc::new(Late(node, after)) as Arc<dyn Node>));
    Redlock::builder().masters(nodes).clock(masters.clock()).max_ttl(MAX_TTL).ttl(MAX_TTL)
}

/// Five servers and two duplicates are five masters, also while the duplicates are being connected.
#[tokio::test(start_paused = true)]
async fn late_connections_may_be_duplicates() {
    let masters = five();
    for (duplicates, after) in [(&[0, 1][..], 1), (&[0, 1], 300), (&[0], 300), (&[2, 3, 4], 900)] {
        let list = with_late(&masters, &[0, 1, 2, 3, 4], duplicates, &[], ms(after));
        let redlock = list.build().unwrap();
        let guard = redlock.try_lock(RESOURCE).await;
        guard
            .unwrap_or_else(|error| panic!("{duplicates:?} {after}: {error:?}"))
            .release()
            .await
            .unwrap();
        assert_eq!(redlock.list_warning(), None, "{duplicates:?} after {after} ms");
        sleep(ms(1_000)).await;
        assert_eq!(redlock.list_warning(), None, "{duplicates:?} after {after} ms");
    }
}

/// A list that is too long stays refused, whether its other addresses are connected late or never.
#[tokio::test(start_paused = true)]
async fn late_addresses_do_not_make_a_long_list_fit() {
    let masters = SimNodes::new(7, 0);
    on(&masters, &[0, 1, 2, 3, 4]).build().unwrap().init().await.unwrap();
    let never = ms(3_600_000);
    for after in [ms(0), ms(300), ms(900), never] {
        let redlock = with_late(&masters, &[0, 1, 2, 3, 4], &[], &[5, 6], after).build().unwrap();
        match redlock.try_lock(RESOURCE).await {
            Err(AcquireError::NoQuorum { votes, .. }) => {
                assert_eq!(whys(&votes)[..5], [Some(WhyNot::SetSize); 5], "after {after:?}");
            }
            other => panic!("after {after:?}: {other:?}"),
        }
    }
    let log: Vec<_> = (0..5).flat_map(|one| masters[one].log()).collect();
    assert!(log.iter().all(|one| one.token.is_empty()), "no master of the set got a request");
}
