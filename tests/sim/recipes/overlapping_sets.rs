//! Clients that lock overlapping sets, with a nemesis. Recipes with a flaw are caught.

use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use redlock_core::Clock;
use redlock_quorum::{Guard, Redlock};
use redlock_testkit::{Contender, History, Nemesis, SimNodes, check, no_residue};
use tokio::time::{sleep, timeout};

use crate::arena::{GUARD, NODE_TIMEOUT, TTL, ms, trusting_handle};
use crate::seeds;

/// How a client locks several resources. Only one way is correct.
#[derive(Clone, Copy)]
enum Recipe {
    Ours,
    /// One after the other, in the order in which they are named.
    InAnyOrder,
    /// It continues with the locks that it got.
    Some,
}

const KEYS: [&str; 6] = ["1", "2", "3", "4", "5", "6"];

impl Recipe {
    fn lock<'a>(
        self,
        redlock: &'a Redlock,
        keys: &'a [&'static str],
    ) -> BoxFuture<'a, Option<Vec<Guard>>> {
        match self {
            // Taken apart so that all recipes return the same.
            Self::Ours => async move {
                let set = redlock.lock_all(keys.iter().copied()).wait_forever().await.ok()?;
                Some(set.into_iter().collect())
            }
            .boxed(),
            Self::InAnyOrder => async move {
                let mut guards = Vec::new();
                for key in keys {
                    guards.push(redlock.lock(*key).wait_forever().await.ok()?);
                }
                Some(guards)
            }
            .boxed(),
            Self::Some => async move {
                let attempts =
                    keys.iter().map(|key| redlock.lock(*key).wait(ms(100)).into_future());
                let guards = join_all(attempts).await.into_iter().flatten().collect();
                Some(guards)
            }
            .boxed(),
        }
    }
}

/// The record of one client.
struct Client {
    redlock: Redlock,
    recipe: Recipe,
    rng: StdRng,
    clock: Clock,
    history: Arc<History>,
    number: usize,
}

impl Client {
    /// Locks random sets until the time is over; how many it had.
    async fn work(mut self, length: Duration) -> anyhow::Result<usize> {
        let mut sets = 0;
        while self.clock.now().as_nanos() < length.as_nanos() as u64 {
            let mut keys = KEYS.to_vec();
            keys.shuffle(&mut self.rng);
            keys.truncate(self.rng.random_range(1..=4));
            // Longer than any fault lasts: a client that gets nothing for so long is stuck.
            let locked = timeout(TTL * 25, self.recipe.lock(&self.redlock, &keys)).await;
            let guards = locked.context("a client is stuck")?.context("the handle is open")?;
            let logs: Vec<_> = guards.iter().map(|guard| self.log(guard)).collect();
            if guards.iter().all(Guard::is_held) {
                ensure!(guards.len() == keys.len(), "{keys:?} in part: {guards:?}");
                sets += 1;
            }
            let pause = ms(self.rng.random_range(0..200));
            sleep(pause).await;
            for (guard, log) in guards.iter().zip(&logs) {
                let token = guard.token().to_string();
                if guard.is_held() { log.released(&token) } else { log.lost(&token) }
            }
            drop(guards);
        }
        Ok(sets)
    }

    fn log(&self, guard: &Guard) -> Contender {
        let log = self.history.contender(self.number, &guard.resource().to_string());
        let until = self.clock.now().saturating_add(guard.remaining());
        if guard.is_held() {
            log.granted(&guard.token().to_string(), until);
        }
        log
    }
}

/// Runs clients that lock random sets of six keys, with a nemesis. The checker judges each key, no
/// client is stuck, and each has all its requested locks.
async fn campaign(seed: u64, recipe: Recipe) -> anyhow::Result<()> {
    const LENGTH: Duration = ms(10_000);
    let masters = SimNodes::new(5, seed);
    let history = Arc::new(History::new(masters.clock()));
    let handles: Vec<_> = (0..8).map(|_| masters.another_client()).collect();
    let clients = handles.iter().enumerate().map(|(number, client)| {
        let own = seed * 10 + number as u64;
        let redlock = trusting_handle(client).seed(own).build().unwrap();
        let (clock, history) = (masters.clock(), history.clone());
        let rng = StdRng::seed_from_u64(own);
        Client { redlock, recipe, rng, clock, history, number }.work(LENGTH)
    });
    let nemesis = Nemesis::new(seed).at_most(2).delay_max(NODE_TIMEOUT);
    let (done, ()) = tokio::join!(join_all(clients), nemesis.run(&handles, LENGTH));
    let sets = done.into_iter().collect::<anyhow::Result<Vec<usize>>>()?;
    check(&history.records())?;
    ensure!(sets.iter().all(|sets| *sets > 0), "a client was never served: {sets:?}");
    sleep((TTL + GUARD) * 2).await;
    Ok(no_residue(masters.keys())?)
}

#[test]
fn overlapping_sets_are_served_all_or_none() {
    let test = "overlapping_sets_are_served_all_or_none";
    seeds::each(test, 0..20, |seed| campaign(seed, Recipe::Ours));
    for (recipe, flaw) in [(Recipe::InAnyOrder, "waits in any order"), (Recipe::Some, "takes some")]
    {
        let caught =
            (0..10).filter(|seed| seeds::simulate(campaign(*seed, recipe)).is_err()).count();
        assert!(caught >= 9, "a recipe that {flaw} was caught in {caught} of 10 campaigns");
    }
}
