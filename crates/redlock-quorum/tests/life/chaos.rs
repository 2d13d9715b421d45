//! Many runtimes that share one handle, begin, idle, panic and end at random: whatever happens,
//! every call ends, no lock has two holders, and no key is left.

use std::panic::{AssertUnwindSafe, catch_unwind, panic_any, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use redlock_quorum::{Guard, Redlock};
use tokio::runtime::Runtime;
use tokio::time::{sleep, timeout};

use crate::lab::{
    Masters, PATIENCE, bounded, current_thread, elsewhere, eventually, ms, multi_thread, secs,
};

const KEYS: usize = 3;

const PLANNED: &str = "this panic is part of the test";

#[derive(Default)]
struct Holders([AtomicUsize; KEYS]);

struct Actor {
    redlock: Redlock,
    holders: Arc<Holders>,
    rng: StdRng,
}

impl Actor {
    fn life(mut self, rounds: usize) {
        for _ in 0..rounds {
            let runtime = if self.rng.random() { current_thread() } else { multi_thread() };
            let worked = catch_unwind(AssertUnwindSafe(|| runtime.block_on(self.work())));
            if let Err(panic) = worked
                && panic.downcast_ref() != Some(&PLANNED)
            {
                resume_unwind(panic);
            }
            self.end(runtime);
        }
    }

    async fn work(&mut self) {
        for _ in 0..self.rng.random_range(1..4) {
            let key = self.rng.random_range(0..KEYS);
            let request = self.redlock.lock(format!("{key}")).wait(PATIENCE);
            let acquired = timeout(ms(self.rng.random_range(0..400)), request.into_future()).await;
            if let Ok(acquired) = acquired {
                self.hold(key, acquired.unwrap()).await;
            }
        }
    }

    async fn hold(&mut self, key: usize, guard: Guard) {
        let holders = self.holders.0[key].fetch_add(1, Ordering::SeqCst);
        assert_eq!(holders, 0, "two holders of {key}");
        let hold = guard.hold();
        let ways = self.rng.random_range(0..6);
        if ways == 0 {
            guard.extend(secs(60)).await.unwrap();
        } else if ways == 1 {
            sleep(ms(self.rng.random_range(0..20))).await;
        } else if ways == 2 {
            let _ = timeout(ms(5), guard.lost()).await;
        }
        hold.check().unwrap();
        self.holders.0[key].fetch_sub(1, Ordering::SeqCst);
        // Counts the guards that are still alive. It is dropped after the guard.
        let alive = self.holders.clone();
        match self.rng.random_range(0..6) {
            0 => drop(guard),
            1 => drop(timeout(ms(0), guard.release()).await),
            2 => drop(tokio::task::spawn_blocking(move || drop((guard, alive)))),
            3 => {
                let held = (guard, alive);
                tokio::spawn(async move {
                    std::future::pending::<()>().await;
                    drop(held);
                });
            }
            4 => panic_any(PLANNED),
            _ => guard.release().await.unwrap(),
        }
    }

    fn end(&mut self, runtime: Runtime) {
        match self.rng.random_range(0..4) {
            0 => runtime.shutdown_background(),
            1 => {
                thread::sleep(ms(self.rng.random_range(0..250)));
                drop(runtime);
            }
            _ => drop(runtime),
        }
    }
}

fn chaos(seed: u64) {
    let masters = Masters::new();
    let redlock = masters.builder().seed(seed).build().unwrap();
    let holders = Arc::new(Holders::default());
    let actors = [0, 1, 2, 3].map(|n| {
        let rng = StdRng::seed_from_u64(seed * 10 + n);
        let actor = Actor { redlock: redlock.clone(), holders: holders.clone(), rng };
        thread::spawn(move || actor.life(12))
    });
    actors.into_iter().for_each(|actor| actor.join().unwrap());
    // A runtime that ends in the background drops its tasks when it gets to it.
    eventually("every guard is dropped", || Arc::strong_count(&holders) == 1);
    elsewhere(async {
        // Locks dropped on the way are released by now, or by this call.
        assert_eq!(redlock.shutdown(secs(10)).await, Ok(()), "seed {seed}");
        assert_eq!(masters.keys(), 0, "seed {seed}");
    });
}

#[test]
fn changing_runtimes_leave_no_pending_call_or_key() {
    for seed in 0..4 {
        bounded(move || chaos(seed));
    }
}
