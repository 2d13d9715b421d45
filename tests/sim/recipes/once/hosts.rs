//! Hosts with clocks that are minutes apart, which come late, and are killed in the middle, on
//! masters that are away or come back empty: no fire is completed twice.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use redlock_testkit::{Contender, History, check, check_fires};

use super::recipe::{Flaw, Recipe};
use super::*;
use crate::arena::{hold, let_go};
use crate::seeds;

/// The time between two fires.
const DAY: Duration = Duration::from_secs(3 * 3_600);
const DAYS: u64 = 6;
const MINUTE: Duration = Duration::from_secs(60);
/// The work takes a while, and a host may be killed during it or before it.
const WORK_MAX: Duration = Duration::from_secs(20 * 60);
const HOSTS: usize = 3;

/// The host that does the work.
#[derive(Clone, Copy)]
enum By {
    Library,
    Other(Option<Flaw>),
}

/// The result of a campaign.
struct Outcome {
    history: Arc<History>,
    /// The days on which some host was not killed.
    served: u64,
}

/// A claim that ends when the work is dropped.
struct Claim<'a>(&'a Contender, String);

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.0.released(&self.1);
    }
}

async fn once(redlock: &Redlock, fire: u64, work: Duration, log: &Contender) {
    let request = redlock.once(NAME).fire(fire).wait(2 * HOUR);
    let Ok(Begun::Run(guard)) = request.begin().await else { return };
    let claim = Claim(log, guard.token().to_string());
    log.granted(&claim.1, redlock_core::Instant::from_nanos(u64::MAX));
    tokio::select! {
        _ = guard.lost() => return,
        () = sleep(work) => {}
    }
    drop(claim);
    if guard.complete().await.is_ok() {
        log.completed(fire);
    }
}

/// One host on one day. Says whether it was killed.
async fn come(masters: &SimNodes, by: By, fire: u64, mut rng: StdRng, log: &Contender) -> bool {
    let client = masters.another_client();
    let skew = MINUTE.mul_f64(rng.random_range(0.0..6.0));
    sleep(skew + MINUTE.mul_f64(rng.random_range(0.0..10.0))).await;
    let redlock = handle(&client).ttl(10 * TTL).seed(rng.random()).build().unwrap();
    let work = WORK_MAX.mul_f64(rng.random_range(0.0..1.0));
    let is_killed = rng.random_bool(0.3);
    let life = if is_killed { WORK_MAX.mul_f64(rng.random_range(0.0..1.2)) } else { DAY };
    let run = async {
        match by {
            By::Library => once(&redlock, fire, work, log).await,
            By::Other(flaw) => {
                Recipe::new(redlock.clone(), &client, flaw).once(fire, work, log).await;
            }
        }
        if is_killed {
            std::future::pending().await
        }
    };
    let _ = timeout(life, run).await;
    // Messages that a killed process has not sent are never sent.
    partition(&client);
    is_killed
}

/// Two of five masters at most are away, each for a while; and one comes back empty.
async fn trouble(masters: &SimNodes, day: u64, mut rng: StdRng) {
    let first = rng.random_range(0..5);
    let away = [first, (first + rng.random_range(1..5)) % 5];
    let empties = (day as usize) % 5;
    for master in away {
        if rng.random_bool(0.7) {
            sleep(MINUTE.mul_f64(rng.random_range(0.0..15.0))).await;
            hold(&masters[master..=master]);
            sleep(MINUTE.mul_f64(rng.random_range(0.0..15.0))).await;
            let_go(&masters[master..=master]);
        }
    }
    sleep(DAY / 2).await;
    masters[empties].crash_and_restart(false);
}

async fn campaign(seed: u64, by: By) -> Outcome {
    let masters = admitted(5, seed);
    let history = Arc::new(History::new(masters.clock()));
    let mut served = 0;
    // A client keeps a handle, so that returning masters are admitted again.
    let resident = handle(&masters).build().unwrap();
    for day in 1..=DAYS {
        let begin = masters.clock().now();
        let logs: Vec<_> = (0..HOSTS).map(|host| history.contender(host, NAME)).collect();
        let rng = |nth: u64| StdRng::seed_from_u64((seed * DAYS + day) * 10 + nth);
        let hosts = logs.iter().zip(0..).map(|(log, nth)| come(&masters, by, day, rng(nth), log));
        let (killed, ()) =
            tokio::join!(futures::future::join_all(hosts), trouble(&masters, day, rng(9)));
        served += u64::from(killed.iter().any(|killed| !killed));
        sleep(DAY.saturating_sub(masters.clock().now().saturating_since(begin))).await;
        let _ = resident.try_lock("other").await;
    }
    Outcome { history, served }
}

/// Returns the number of completed scheduled runs.
fn judge(outcome: &Outcome) -> anyhow::Result<u64> {
    let records = outcome.history.records();
    check(&records)?;
    Ok(check_fires(&records)? as u64)
}

#[test]
fn each_fire_with_a_live_host_is_completed_once() {
    seeds::each("once::hosts", 0..6, |seed| async move {
        let outcome = campaign(seed, By::Library).await;
        let completed = judge(&outcome)?;
        anyhow::ensure!(completed >= outcome.served, "{completed} of {}", outcome.served);
        Ok(())
    });
}

#[test]
fn correct_recipe_passes_and_flawed_ones_are_caught() {
    let caught = |flaw| {
        let mut seeds = 0..40;
        seeds.any(|seed| {
            seeds::simulate(async move { judge(&campaign(seed, By::Other(flaw)).await).is_err() })
        })
    };
    for flaw in [Flaw::ReadsBeforeTheLock, Flaw::AsksOne, Flaw::TellsOne, Flaw::ReleasesFirst] {
        assert!(caught(Some(flaw)), "{flaw:?} is not caught");
    }
    for seed in 0..4 {
        let outcome = seeds::simulate(campaign(seed, By::Other(None)));
        judge(&outcome).unwrap();
    }
}
