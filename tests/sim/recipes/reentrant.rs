//! An owner that takes its lock again while it holds it.

use std::future::IntoFuture;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, ensure};
use futures::future::join_all;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use redlock_core::Instant;
use redlock_quorum::{AcquireError, Guard, InvalidRequest, Redlock, Reentrant, ReentrantGuard};
use redlock_quorum::{RedlockBuilder, RunError};
use redlock_testkit::{Contender, History, Nemesis, SimNodes, check};
use tokio::time::{sleep, timeout};

use crate::arena::{
    NODE_TIMEOUT, RESOURCE, TTL, acquires, copies, drop_after, handle, heal, masters, ms,
    partition, requests, settle, trusting_handle, until_free,
};
use crate::seeds;

#[tokio::test(start_paused = true)]
async fn reentering_a_lock_sends_nothing() {
    let (masters, redlock) = masters(5);
    let owner = redlock.reentrant(RESOURCE);
    let outer = owner.lock().min_copies(5).await.unwrap();
    let sent = requests(&masters);
    let inner = owner.lock().await.unwrap();
    let innermost = owner.clone().try_lock().await.unwrap();
    assert_eq!(requests(&masters), sent, "nothing is sent");
    assert_eq!((owner.depth(), inner.token()), (3, outer.token()));
    assert_eq!(inner.fencing_token(), outer.fencing_token());
    assert_eq!(inner.remaining(), outer.remaining());

    innermost.release().await.unwrap();
    drop(outer);
    settle().await;
    assert_eq!((requests(&masters), owner.depth()), (sent, 1), "the remaining guard holds it");
    assert!(inner.is_held());
    inner.release().await.unwrap();
    assert_eq!((copies(&masters), owner.depth()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn last_dropped_guard_releases() {
    let (masters, redlock) = masters(5);
    let owner = redlock.reentrant(RESOURCE);
    let guards = [owner.lock().await.unwrap(), owner.lock().await.unwrap()];
    drop(guards);
    until_free(&masters, NODE_TIMEOUT).await;
}

#[tokio::test(start_paused = true)]
async fn owners_are_separate_contenders() {
    let (_masters, redlock) = masters(5);
    let (one, other) = (redlock.reentrant(RESOURCE), redlock.reentrant(RESOURCE));
    let guard = one.lock().await.unwrap();
    let refused = other.try_lock().await.unwrap_err();
    assert!(matches!(refused, AcquireError::Held { .. }), "{refused}");
    assert!(redlock.try_lock(RESOURCE).await.is_err());
    guard.release().await.unwrap();
    other.try_lock().await.unwrap().release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn longer_inner_ttl_extends_the_lock_before_returning() {
    let (masters, redlock) = masters(5);
    let owner = redlock.reentrant(RESOURCE);
    let outer = owner.lock().await.unwrap();
    let (before, sent) = (outer.remaining(), requests(&masters));
    let shorter = owner.lock().ttl(TTL / 2).await.unwrap();
    assert_eq!((outer.remaining(), requests(&masters)), (before, sent));
    let longer = owner.lock().ttl(TTL * 10).await.unwrap();
    assert!(outer.remaining() > TTL * 9, "{:?}", outer.remaining());
    assert_eq!(outer.ttl(), TTL * 10);
    drop((shorter, longer));
    assert!(outer.remaining() > TTL * 9, "leaving shortens nothing");
}

#[tokio::test(start_paused = true)]
async fn unconfirmed_longer_ttl_leaves_the_lock_unchanged() {
    let (masters, redlock) = masters(5);
    let owner = redlock.reentrant(RESOURCE);
    let outer = owner.lock().await.unwrap();
    partition(&masters[..3]);
    let error = owner.lock().ttl(TTL * 10).await.unwrap_err();
    assert!(matches!(error, AcquireError::NoQuorum { .. }), "{error}");
    assert_eq!(owner.depth(), 1);
    assert!(outer.is_held());
    let refused = owner.lock().ttl(Duration::from_secs(1_000_000)).await.unwrap_err();
    assert!(matches!(refused, AcquireError::Invalid(InvalidRequest::Ttl(_))), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn calls_during_the_first_attempt_share_it() {
    let (masters, redlock) = masters(5);
    masters.iter().for_each(|master| master.delay(ms(5)..=ms(5), ms(5)..=ms(5)));
    let owner = redlock.reentrant(RESOURCE);
    let calls = join_all((0..100).map(|_| owner.lock().into_future())).await;
    let guards: Vec<_> = calls.into_iter().collect::<Result<_, _>>().unwrap();
    assert_eq!(owner.depth(), 100);
    assert!(guards.iter().all(|guard| guard.token() == guards[0].token()));
    settle().await;
    assert_eq!(acquires(&masters[0]).len(), 1, "one attempt");
    drop(guards);
    until_free(&masters, NODE_TIMEOUT).await;
}

#[tokio::test(start_paused = true)]
async fn concurrent_calls_have_their_own_waits() {
    let (masters, redlock) = masters(5);
    let other = handle(&masters).build().unwrap();
    let held = other.lock(RESOURCE).await.unwrap();
    let owner = redlock.reentrant(RESOURCE);
    let begin = masters.clock().now();
    let waited = |outcome: Result<ReentrantGuard, AcquireError>| {
        (outcome, masters.clock().now().saturating_since(begin))
    };
    let impatient = async { waited(owner.lock().wait(ms(100)).await) };
    let patient = async { waited(owner.lock().wait(ms(5_000)).await) };
    let release = async {
        sleep(ms(1_000)).await;
        held.release().await.unwrap();
    };
    let (impatient, patient, ()) = tokio::join!(impatient, patient, release);
    assert!(matches!(impatient.0, Err(AcquireError::Held { .. })), "{impatient:?}");
    assert!(impatient.1 < ms(100) + NODE_TIMEOUT * 2, "{:?}", impatient.1);
    patient.0.unwrap().release().await.unwrap();
    assert!((ms(1_000)..ms(2_200)).contains(&patient.1), "{:?}", patient.1);
}

#[tokio::test(start_paused = true)]
async fn lost_lease_is_not_reentered_or_released_with_the_next() {
    let (masters, redlock) = masters(5);
    let owner = redlock.reentrant(RESOURCE);
    let lost = owner.lock().await.unwrap();
    partition(&masters[..3]);
    timeout(TTL * 3, lost.lost()).await.expect("it is lost");
    heal(&masters[..3]);
    let next = owner.lock().await.unwrap();
    assert_ne!(next.token(), lost.token());
    assert_eq!(owner.depth(), 1);
    assert!(lost.check().is_err() && next.is_held());
    drop(lost);
    sleep(NODE_TIMEOUT * 2).await;
    assert!(next.is_held() && copies(&masters) >= 3);
    next.release().await.unwrap();
    until_free(&masters, ms(1_000)).await;
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_never_leaves_is_stopped_at_the_limit() {
    let (_masters, redlock) = masters(3);
    let owner = redlock.reentrant(RESOURCE);
    let mut guards = Vec::new();
    for _ in 0..Reentrant::DEPTH_MAX {
        guards.push(owner.lock().await.unwrap());
    }
    let error = owner.lock().await.unwrap_err();
    assert!(matches!(error, AcquireError::Invalid(InvalidRequest::Depth { .. })), "{error}");
    assert!(error.to_string().contains("65535"), "{error}");
    guards.pop();
    guards.push(owner.lock().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn work_in_work_runs_under_one_lock_and_a_loss_stops_both() {
    let (masters, redlock) = masters(5);
    let owner = redlock.reentrant(RESOURCE);
    let output = owner.lock().run(|outer| {
        let owner = owner.clone();
        async move {
            let inner = owner.lock().run(|inner| async move { inner.token().clone() }).await;
            assert_eq!(inner.unwrap(), *outer.token());
            assert!(outer.is_held());
            7
        }
    });
    assert_eq!(output.await.unwrap(), 7);
    until_free(&masters, NODE_TIMEOUT).await;

    let work = owner.lock().run(|_| owner.lock().run(|_| std::future::pending::<()>()));
    let cut_off = async {
        sleep(TTL).await;
        partition(&masters[..3]);
    };
    let (outcome, ()) = tokio::join!(timeout(TTL * 4, work), cut_off);
    assert!(matches!(outcome.expect("it is stopped"), Err(RunError::Lost { .. })));
}

#[tokio::test(start_paused = true)]
async fn call_dropped_at_any_poll_does_not_affect_others() {
    for polls in 0..8 {
        for ttl in [TTL, TTL * 20] {
            let (masters, redlock) = masters(5);
            masters.iter().for_each(|master| master.delay(ms(1)..=ms(4), ms(1)..=ms(4)));
            let owner = redlock.reentrant(RESOURCE);
            let dropped = drop_after(owner.lock().ttl(ttl).into_future(), polls);
            let (other, ()) = tokio::join!(owner.lock().into_future(), dropped);
            let other = other.unwrap();
            drop_after(owner.lock().ttl(ttl).into_future(), polls).await;
            assert!(other.is_held() && owner.depth() == 1, "{polls} polls");
            drop_after(other.release(), polls).await;
            until_free(&masters, ms(1_000)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn dropped_single_call_leaves_no_key() {
    for polls in 0..8 {
        let (masters, redlock) = masters(5);
        let owner = redlock.reentrant(RESOURCE);
        drop_after(owner.lock().into_future(), polls).await;
        sleep(NODE_TIMEOUT).await;
        until_free(&masters, ms(1_000)).await;
        assert_eq!(owner.depth(), 0);
    }
}

/// How an owner is created. The second way is wrong.
#[derive(Clone)]
enum Recipe {
    Ours(Reentrant),
    /// The first of its guards that leaves releases, and the others believe that they hold it.
    LeavesEarly(Redlock, Arc<Mutex<Believed>>),
}

/// The guard, and until when callers that enter believe that they hold the lock.
type Believed = Option<(Arc<Guard>, Instant)>;

/// One period in which an owner is in its lock, and its validity.
struct Inside {
    until: Instant,
    token: String,
    guard: Option<ReentrantGuard>,
}

impl Recipe {
    async fn enter(&self, now: impl Fn() -> Instant) -> Option<Inside> {
        match self {
            Self::Ours(owner) => {
                let guard = owner.lock().wait(ms(1_000)).await.ok()?;
                let (until, token) = (now().saturating_add(guard.remaining()), guard.token());
                Some(Inside { until, token: token.to_string(), guard: Some(guard) })
            }
            Self::LeavesEarly(redlock, entered) => {
                let current = entered.lock().unwrap().clone();
                let (guard, until) = match current {
                    Some(entered) => entered,
                    None => {
                        let guard = redlock.lock(RESOURCE).wait(ms(1_000)).await.ok()?;
                        let until = now().saturating_add(guard.remaining());
                        let both = (Arc::new(guard), until);
                        *entered.lock().unwrap() = Some(both.clone());
                        both
                    }
                };
                let token = guard.token().to_string();
                Some(Inside { until, token, guard: None })
            }
        }
    }

    fn depth(&self) -> u16 {
        match self {
            Self::Ours(owner) => owner.depth(),
            Self::LeavesEarly(..) => 1,
        }
    }

    async fn leave(&self, inside: Inside) {
        match (self, inside.guard) {
            (Self::Ours(_), Some(guard)) => drop(guard.release().await),
            (Self::LeavesEarly(_, entered), _) => drop(entered.lock().unwrap().take()),
            (Self::Ours(_), None) => unreachable!("it has a guard"),
        }
    }
}

/// Runs owners with two tasks each that enter and leave their lock, two or three levels deep, with
/// a nemesis. Returns how many claims were judged.
async fn campaign(seed: u64, is_ours: bool) -> anyhow::Result<usize> {
    const LENGTH: Duration = ms(8_000);
    let masters = SimNodes::new(5, seed);
    let history = Arc::new(History::new(masters.clock()));
    let clients: Vec<_> = (0..3).map(|_| masters.another_client()).collect();
    let owners = clients.iter().enumerate().map(|(number, client)| {
        let builder: RedlockBuilder = trusting_handle(client);
        let redlock = builder.seed(seed * 10 + number as u64).build().unwrap();
        let recipe = match is_ours {
            true => Recipe::Ours(redlock.reentrant(RESOURCE)),
            false => Recipe::LeavesEarly(redlock, Arc::default()),
        };
        (number, recipe)
    });
    let tasks = owners.flat_map(|(number, recipe)| {
        let (masters, history) = (&masters, &history);
        (0..2).map(move |task| {
            let rng = StdRng::seed_from_u64(seed * 100 + number as u64 * 2 + task);
            let log = history.contender(number, RESOURCE);
            go_in_and_out(recipe.clone(), log, masters.clone(), rng, LENGTH)
        })
    });
    let nemesis = Nemesis::new(seed).at_most(2).delay_max(NODE_TIMEOUT);
    let (done, ()) = tokio::join!(join_all(tasks), nemesis.run(&clients, LENGTH));
    done.into_iter().collect::<anyhow::Result<Vec<()>>>()?;
    Ok(check(&history.records())?)
}

async fn go_in_and_out(
    recipe: Recipe,
    log: Contender,
    masters: SimNodes,
    mut rng: StdRng,
    length: Duration,
) -> anyhow::Result<()> {
    let clock = masters.clock();
    while clock.now().as_nanos() < length.as_nanos() as u64 {
        log.invoke();
        let mut inside = Vec::new();
        for _ in 0..rng.random_range(1..4) {
            let Some(entered) = recipe.enter(|| clock.now()).await else { break };
            log.granted(&entered.token, entered.until);
            inside.push(entered);
            sleep(ms(rng.random_range(0..150))).await;
        }
        // An existing lease is on a majority, however often its owner has left it.
        while let Some(entered) = inside.pop() {
            if let Some(guard) = entered.guard.as_ref() {
                ensure!(!guard.is_held() || copies(&masters) > 2, "held, and on a minority");
                if !guard.is_held() {
                    log.lost(&entered.token);
                }
            }
            if recipe.depth() == 1 {
                log.released(&entered.token);
            }
            recipe.leave(entered).await;
            sleep(ms(rng.random_range(0..100))).await;
        }
        sleep(ms(rng.random_range(0..200))).await;
    }
    Ok(())
}

#[test]
fn owners_exclude_each_other_and_an_early_release_is_caught() {
    let test = "owners_exclude_each_other_and_an_early_release_is_caught";
    seeds::each(test, 0..40, |seed| async move {
        let claims = campaign(seed, true).await?;
        ensure!(claims > 0, "no claim at all");
        Ok(())
    });
    let caught = (0..40).filter(|seed| seeds::simulate(campaign(*seed, false)).is_err()).count();
    assert!(caught > 20, "a recipe with a flaw was caught in {caught} of 40 campaigns");
}

#[tokio::test(start_paused = true)]
async fn lock_after_shutdown_is_a_shutdown_error() -> anyhow::Result<()> {
    let (_masters, redlock) = masters(3);
    let owner = redlock.reentrant(RESOURCE);
    owner.lock().await?.release().await?;
    redlock.shutdown(ms(100)).await?;
    let error = owner.lock().await.err().context("it is closed")?;
    ensure!(matches!(error, AcquireError::Shutdown), "{error}");
    Ok(())
}
