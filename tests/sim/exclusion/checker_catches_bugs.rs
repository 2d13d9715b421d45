//! The checker and the nemesis are worth what they find: lockers with one flaw each must be
//! caught, and the same locker without a flaw must pass the same campaigns.

use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use redlock_core::Clock;
use redlock_testkit::{Contender, Fault, History, Nemesis, Record, SimNodes, check, no_residue};
use tokio::time::sleep;

use crate::exclusion::locker::{Flaw, GUARD, Locker, NODE_TIMEOUT, TTL};
use crate::seeds;

const SEEDS: u64 = 60;
const LENGTH: Duration = Duration::from_secs(30);
const CONTENDERS: usize = 3;
const RESOURCE: &str = "orders:42";

/// The faults that a correct locker must survive: two of five masters with a fault, replies as late
/// as the node timeout, clocks that jump by as much as the guard.
fn nemesis(seed: u64) -> Nemesis {
    Nemesis::new(seed).at_most(2).delay_max(NODE_TIMEOUT / 2).clock_step_max(GUARD)
}

/// The result of a campaign.
struct Outcome {
    history: Vec<Record>,
    masters: SimNodes,
}

impl Outcome {
    /// Returns how many claims were judged.
    async fn judge(self) -> anyhow::Result<usize> {
        let claims = check(&self.history)?;
        // A release that did not reach its master left a key there to run out.
        sleep(TTL + GUARD * 2).await;
        no_residue(self.masters.keys())?;
        Ok(claims)
    }
}

async fn campaign(seed: u64, flaw: Option<Flaw>, nemesis: Nemesis) -> Outcome {
    let masters = SimNodes::new(5, seed);
    let clients: Vec<_> = (0..CONTENDERS).map(|_| masters.another_client()).collect();
    let history = Arc::new(History::new(masters.clock()));
    let work = clients.iter().enumerate().map(|(contender, client)| {
        let locker = Locker::new(client.nodes(), client.clock(), flaw);
        let rng = StdRng::seed_from_u64(seed * 1_000 + contender as u64);
        contend(locker, history.contender(contender, RESOURCE), client.clock(), rng)
    });
    tokio::join!(futures::future::join_all(work), nemesis.run(&clients, LENGTH));
    Outcome { history: history.records(), masters }
}

/// Takes the lock again and again, uses it for a while, and sometimes falls asleep over it.
async fn contend(locker: Locker, log: Contender, clock: Clock, mut rng: StdRng) {
    while clock.now().as_nanos() < LENGTH.as_nanos() as u64 {
        log.invoke();
        let Some(mut lease) = locker.acquire(RESOURCE).await else {
            log.refused();
            sleep(Duration::from_millis(rng.random_range(1..100))).await;
            continue;
        };
        let token = lease.token.to_string();
        log.granted(&token, lease.until);
        for _ in 0..rng.random_range(0..4) {
            sleep(TTL.mul_f64(rng.random_range(0.0..1.5))).await;
            if !locker.extend(RESOURCE, &mut lease).await {
                log.lost(&token);
                break;
            }
            log.granted(&token, lease.until);
        }
        if rng.random() {
            locker.sleep_until(lease.until).await;
        }
        log.released(&token);
        locker.release(RESOURCE, &lease.token).await;
    }
}

/// Returns the seed that showed the flaw. If none does, there is no seed to replay.
fn caught(flaw: Option<Flaw>, nemesis: impl Fn(u64) -> Nemesis) -> u64 {
    for seed in 0..SEEDS {
        let run = async { campaign(seed, flaw, nemesis(seed)).await.judge().await };
        if let Err(found) = seeds::simulate(run) {
            assert!(found.to_string().starts_with("two holders of"), "seed {seed}: {found}");
            println!("caught by seed {seed}: {found}");
            return seed;
        }
    }
    panic!("{flaw:?} was not caught by any of {SEEDS} seeds");
}

#[test]
fn correct_locker_passes() {
    seeds::each("correct_locker_passes", 0..SEEDS, |seed| async move {
        let claims = campaign(seed, None, nemesis(seed)).await.judge().await?;
        ensure!(claims >= 10, "only {claims} claims: a locker that never locks proves nothing");
        Ok(())
    });
}

#[test]
fn run_is_reproducible_to_the_nanosecond() {
    let run = |seed| {
        let outcome = seeds::simulate(campaign(seed, None, nemesis(seed)));
        // Tokens are random in every run, and decide nothing.
        let seen = |record: &Record| (record.at, record.contender, record.event);
        outcome.history.iter().map(seen).collect::<Vec<_>>()
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn without_faults_releases_leave_no_keys() {
    let left = |seed, flaw| {
        let calm = Nemesis::new(seed).faults([]);
        no_residue(seeds::simulate(campaign(seed, flaw, calm)).masters.keys())
    };
    for seed in 0..10 {
        assert_eq!(left(seed, None), Ok(()), "immediately, not at its expiry: seed {seed}");
    }
    let found = (0..10).any(|seed| left(seed, Some(Flaw::ReusesItsToken)).is_err());
    assert!(found, "a client without clean-up must be caught");
}

#[test]
fn half_of_the_masters_as_a_quorum_is_caught() {
    caught(Some(Flaw::HalfIsEnough), nemesis);
}

#[test]
fn treating_silence_as_consent_is_caught() {
    caught(Some(Flaw::CountsUnknown), nemesis);
}

#[test]
fn a_release_without_compare_is_caught() {
    caught(Some(Flaw::ReleasesWithoutCompare), nemesis);
}

#[test]
fn validity_measured_from_replies_is_caught() {
    caught(Some(Flaw::ValidityFromReplies), nemesis);
}

#[test]
fn validity_that_eats_the_clock_guard_is_caught() {
    caught(Some(Flaw::ValidityWithGuard), nemesis);
}

#[test]
fn a_lease_revived_after_its_end_is_caught() {
    caught(Some(Flaw::RevivesWhatIsGone), nemesis);
}

#[test]
fn a_reused_token_without_clean_up_is_caught() {
    caught(Some(Flaw::ReusesItsToken), nemesis);
}

/// Without a quarantine, no locker survives masters that lose data.
#[test]
fn forgetful_masters_break_even_a_correct_locker() {
    caught(None, |seed| nemesis(seed).faults([Fault::KillAndLoseData, Fault::Partition]));
}

/// No locker survives clocks that jump by more than the guard on many masters.
#[test]
fn clock_jumps_beyond_the_guard_break_even_a_correct_locker() {
    caught(None, |seed| nemesis(seed).faults([Fault::ClockStep]).clock_step_max(TTL * 2));
}
