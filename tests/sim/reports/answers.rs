//! The handling of masters' answers: by an extension, by clients that lost, and if an address leads
//! to another server.

use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use redlock_core::admission::Identity;
use redlock_core::{Answer, Cause, Events, Facts, Instant, Node, NodeEvent, Op, Verb, VoteSlot};
use redlock_quorum::{AcquireError, BuildError, ExtendError, LockRequest, Quarantine, Redlock};
use redlock_testkit::SimNode;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use crate::arena::{
    NODE_TIMEOUT, RESOURCE, TTL, VALIDITY, acquires, copies, count, ended, full, handle, hold,
    let_go, masters, ms, settle,
};

fn is_release(verb: &Verb) -> bool {
    matches!(verb, Verb::Release)
}

// Extensions.

#[tokio::test(start_paused = true)]
async fn extension_is_not_ours_only_if_no_quorum_can_hold_the_key() {
    let (masters, redlock) = crate::arena::trusting(5);
    let guard = full(&redlock, &masters).await;
    // Two deny, one is silent: the three others may hold it.
    masters[..2].iter().for_each(|master| master.flush());
    hold(&masters[2..3]);
    let error = guard.extend(TTL).await.unwrap_err();
    assert!(matches!(error, ExtendError::NoQuorum { .. }), "{error}");
    guard.check().unwrap();
    sleep(TTL * 2).await;
    guard.check().unwrap();
    let_go(&masters[2..3]);
    guard.extend(TTL).await.unwrap();
    settle().await;
    assert_eq!(guard.copies(), 5);
}

#[tokio::test(start_paused = true)]
async fn extension_denied_by_more_than_a_minority_is_not_ours() {
    let (masters, redlock) = crate::arena::trusting(5);
    let lease = full(&redlock, &masters).await.into_lease();
    masters[..3].iter().for_each(|master| master.flush());
    let error = redlock.resume(lease).await.unwrap_err();
    assert!(matches!(error, ExtendError::NotOurs { .. }), "{error}");
}

// The label of the holder.

/// Requests to simulated masters are the same on every machine.
#[tokio::test(start_paused = true)]
async fn lock_of_simulated_masters_has_a_label_only_if_one_is_given() {
    let (masters, redlock) = masters(3);
    let label = async |request: LockRequest| {
        let guard = request.await.unwrap();
        let token = guard.token().clone();
        guard.release().await.unwrap();
        token.label().map(str::to_owned)
    };
    assert_eq!(label(redlock.lock(RESOURCE)).await, None);
    assert_eq!(label(redlock.lock(RESOURCE).label("web-1")).await.as_deref(), Some("web-1"));
    let named = handle(&masters.another_client()).label("web-2").build().unwrap();
    assert_eq!(label(named.lock(RESOURCE)).await.as_deref(), Some("web-2"));
    assert_eq!(label(named.lock(RESOURCE).no_label()).await, None);
}

// The clock of the simulation.

/// With the system's clock no lease of theirs would ever end.
#[tokio::test(start_paused = true)]
async fn handle_on_simulated_masters_is_not_built_without_their_clock() {
    let (masters, _) = masters(3);
    let refused = Redlock::builder().masters(masters.nodes()).build().unwrap_err();
    assert_eq!(refused, BuildError::NoClock { node: "sim-0:6379".into() });
    let said = "sim-0:6379: a simulated master needs the clock of its simulation; call ";
    assert!(refused.to_string().starts_with(said), "{refused}");
}

/// A caller that has the guard itself would wait for itself.
#[tokio::test(start_paused = true)]
async fn lock_held_by_this_process_is_reported_as_such() {
    let (masters, redlock) = masters(3);
    let other = handle(&masters.another_client()).build().unwrap();
    let guard = full(&redlock, &masters).await;
    let here = |error: AcquireError| (error.votes().unwrap().is_held_here(), error.to_string());
    let (is_here, said) = here(redlock.try_lock(RESOURCE).await.unwrap_err());
    assert!(is_here && said.contains("is held by another caller in this process: "), "{said}");
    let (is_here, said) = here(redlock.clone().lock(RESOURCE).wait(TTL).await.unwrap_err());
    assert!(is_here, "also at the end of a wait: {said}");
    let (is_here, said) = here(other.try_lock(RESOURCE).await.unwrap_err());
    assert!(!is_here && said.contains("is held by another client: "), "{said}");
    guard.release().await.unwrap();
    let _other = full(&other, &masters).await;
    let (is_here, said) = here(redlock.try_lock(RESOURCE).await.unwrap_err());
    assert!(!is_here, "{said}");
}

// Clients that lost.

#[tokio::test(start_paused = true)]
async fn lost_attempt_is_released_only_where_its_key_may_be() {
    let (masters, redlock) = masters(5);
    masters[..3].iter().for_each(|master| master.put(RESOURCE, "stranger", 60_000));
    redlock.try_lock(RESOURCE).await.unwrap_err();
    settle().await;
    let releases: Vec<_> = masters.iter().map(|master| count(master, is_release)).collect();
    assert_eq!(releases, [0, 0, 0, 1, 1]);
    assert_eq!(copies(&masters), 3);
}

/// A master without an answer in time also gets a release, because it may execute the request.
#[tokio::test(start_paused = true)]
async fn lost_attempt_releases_on_silent_masters() {
    let (masters, redlock) = masters(5);
    masters[..3].iter().for_each(|master| master.put(RESOURCE, "stranger", 100));
    hold(&masters[4..]);
    redlock.try_lock(RESOURCE).await.unwrap_err();
    sleep(ms(100)).await;
    let_go(&masters[4..]);
    settle().await;
    let releases: Vec<_> = masters.iter().map(|master| count(master, is_release)).collect();
    assert_eq!(releases, [0, 0, 0, 1, 1]);
    assert_eq!(copies(&masters), 0);
}

// Servers that move.

/// An address whose server can be exchanged.
struct Address {
    name: String,
    server: Mutex<Arc<SimNode>>,
    moved: Notify,
}

impl Address {
    fn new(name: &str, server: Arc<SimNode>) -> Arc<Self> {
        Arc::new(Self { name: name.into(), server: Mutex::new(server), moved: Notify::new() })
    }

    fn server(&self) -> Arc<SimNode> {
        self.server.lock().unwrap().clone()
    }

    /// From now on another server answers here.
    async fn lead_to(&self, server: &SimNode) {
        *self.server.lock().unwrap() = server.alias(self.name.clone());
        self.moved.notify_one();
        settle().await;
    }
}

impl Node for Address {
    fn name(&self) -> &str {
        &self.name
    }

    fn submit(&self, op: Op, slot: VoteSlot) {
        self.server().submit(op, slot);
    }

    fn set_admitted(&self, run: Option<Identity>) {
        self.server().set_admitted(run);
    }

    fn drive(self: Arc<Self>, events: Events) -> Option<BoxFuture<'static, ()>> {
        Some(Box::pin(async move {
            loop {
                let driven = self.server().drive(events.clone()).unwrap();
                tokio::select! { () = driven => {}, () = self.moved.notified() => {} }
            }
        }))
    }
}

#[tokio::test(start_paused = true)]
async fn addresses_that_swap_servers_vote_again() {
    let servers = crate::arena::admitted(3, 0);
    let addresses = [0, 1, 2].map(|n| Address::new(&format!("address-{n}"), servers[n].clone()));
    let nodes = addresses.iter().map(|address| address.clone() as Arc<dyn Node>).collect();
    let redlock = Redlock::builder().masters(nodes).clock(servers.clock()).build().unwrap();
    full(&redlock, &servers).await.release().await.unwrap();
    addresses[0].lead_to(&servers[1]).await;
    let guard = redlock.lock(RESOURCE).min_copies(3).await.unwrap();
    assert_eq!(guard.copies(), 2, "one server is one master: {}", guard.votes());
    assert!(
        guard.votes().to_string().contains("duplicate address of address-1"),
        "{}",
        guard.votes()
    );
    guard.release().await.unwrap();
    addresses[1].lead_to(&servers[0]).await;
    let guard = full(&redlock, &servers).await;
    guard.release().await.unwrap();
}

// Answers that come late.

/// A master that answers when the test tells it to, with the time that the test chooses.
#[derive(Default)]
struct Delayed {
    asked: Mutex<Vec<(Verb, VoteSlot)>>,
}

impl Node for Delayed {
    fn name(&self) -> &str {
        "delayed"
    }

    fn submit(&self, op: Op, slot: VoteSlot) {
        match op.verb() {
            Verb::Acquire { .. } | Verb::Release => slot.cast(Answer::granted()),
            Verb::Admission => {
                slot.cast(Answer::unsent(Cause::NotSent("this node knows no admission".into())))
            }
            verb => self.asked.lock().unwrap().push((verb, slot)),
        }
    }

    fn drive(self: Arc<Self>, events: Events) -> Option<BoxFuture<'static, ()>> {
        events.report(NodeEvent::Up(Facts::master("1".repeat(40))));
        None
    }
}

/// The driver takes the time at which an answer was read, but the holder has read the clock in the
/// meantime. The answer to the holder stays, and the driver no longer extends its lease.
#[tokio::test(start_paused = true)]
async fn lease_seen_as_lapsed_is_not_extended() {
    let (node, clock) = (Arc::new(Delayed::default()), redlock_core::Clock::paused());
    let nodes = vec![node.clone() as Arc<dyn Node>];
    let builder = Redlock::builder().masters(nodes).clock(clock.clone()).ttl(TTL).seed(0);
    // The node takes no orders and no ballots.
    let redlock = builder.quarantine(Quarantine::Off).fencing(false).build().unwrap();
    let guard = redlock.lock(RESOURCE).await.unwrap();
    ended(&guard).await;
    let before_the_end = Instant::from_nanos(clock.now().as_nanos() - 1_000_000);
    let asked = std::mem::take(&mut *node.asked.lock().unwrap());
    assert_eq!(asked.len(), 1, "an extension was requested and not answered");
    asked.into_iter().for_each(|(_, slot)| slot.cast_at(Answer::granted(), before_the_end));
    sleep(VALIDITY * 3).await;
    assert!(!guard.is_held());
    let asked = node.asked.lock().unwrap().len();
    assert_eq!(asked, 0, "it is extended for a holder that knows that it is lost");
}

/// The masters' time to answer ends with the lock.
#[tokio::test(start_paused = true)]
async fn ended_lock_is_settled() {
    for released in [true, false] {
        let (masters, _) = masters(3);
        let redlock = handle(&masters).node_timeout(NODE_TIMEOUT).build().unwrap();
        hold(&masters[..1]);
        let guard = redlock.lock(RESOURCE).await.unwrap();
        let settled = guard.settled();
        if released {
            guard.release().await.unwrap();
        } else {
            drop(guard);
        }
        timeout(NODE_TIMEOUT, settled).await.expect("nothing is waited for any more");
        assert!(acquires(&masters[0]).is_empty());
    }
}
