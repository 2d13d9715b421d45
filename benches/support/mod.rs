//! Shared by all benches: masters, contestants on one runtime, and rounds in turn.

// Every bench uses its own part of this.
#![allow(dead_code, unreachable_pub, missing_docs)]

pub mod floor;
pub mod peers;
pub mod proxies;
pub mod stats;
pub mod svg;

use std::sync::Arc;
use std::time::{Duration, Instant};

use redlock_quorum::Redlock;
use rslock::LockManager;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};

use floor::Floor;
use stats::{Outcome, Rows, Samples, Stop, cpu};

/// The runtime of all contestants of an arena. Every report names it.
#[derive(Clone, Copy, Debug)]
pub enum Flavour {
    CurrentThread,
    MultiThread,
}

impl Flavour {
    pub fn name(self) -> &'static str {
        match self {
            Self::CurrentThread => "current_thread",
            Self::MultiThread => "multi_thread(2)",
        }
    }

    pub fn build(self) -> anyhow::Result<Runtime> {
        Ok(match self {
            Self::CurrentThread => Builder::new_current_thread().enable_all().build()?,
            Self::MultiThread => {
                Builder::new_multi_thread().worker_threads(2).enable_all().build()?
            }
        })
    }
}

/// The contestants, in the order of the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    Floor,
    Ours,
    Rslock,
}

impl Who {
    pub const ALL: [Self; 3] = [Self::Floor, Self::Ours, Self::Rslock];

    pub fn name(self) -> &'static str {
        match self {
            Self::Floor => "floor",
            Self::Ours => "redlock",
            Self::Rslock => "rslock",
        }
    }
}

/// All contestants, connected to the same masters, on one runtime.
pub struct Arena {
    pub runtime: Runtime,
    pub floor: Arc<Mutex<Floor>>,
    pub ours: Redlock,
    pub rslock: LockManager,
}

impl Arena {
    /// Connects every contestant to masters at `host:port`.
    pub fn new(flavour: Flavour, names: &[String]) -> anyhow::Result<Self> {
        let runtime = flavour.build()?;
        let floor = runtime.block_on(Floor::connect_fenced(names))?;
        let urls: Vec<String> = names.iter().map(|name| format!("redis://{name}")).collect();
        let ours = Redlock::builder().nodes(urls.clone()).build()?;
        let rslock = LockManager::new(urls);
        let arena = Self { runtime, floor: Arc::new(Mutex::new(floor)), ours, rslock };
        for who in Who::ALL {
            arena.round(who, 1, Stop::After(100))?;
        }
        Ok(arena)
    }

    /// Runs one round of one contestant.
    pub fn round(&self, who: Who, tasks: usize, stop: Stop) -> anyhow::Result<Outcome> {
        let (floor, ours, rslock) = (self.floor.clone(), self.ours.clone(), self.rslock.clone());
        // On a task, as a user's code: what `block_on` itself polls is treated differently.
        self.runtime.block_on(async {
            match who {
                Who::Floor => {
                    let run = async move { floor.lock().await.run(tasks, stop).await };
                    self.runtime.spawn(measured(run)).await?
                }
                Who::Ours => self.runtime.spawn(measured(peers::run(ours, tasks, stop))).await?,
                Who::Rslock => {
                    self.runtime.spawn(measured(peers::run(rslock, tasks, stop))).await?
                }
            }
        })
    }

    /// Runs rounds in turn, so that other work on the machine affects all contestants alike. Each
    /// lasts `length`, and the order changes from round to round.
    pub fn race(&self, tasks: usize, length: Duration, rounds: usize) -> anyhow::Result<Race> {
        let mut race = Race::default();
        for round in 0..=rounds {
            for turn in 0..Who::ALL.len() {
                let who = Who::ALL[(round + turn) % Who::ALL.len()];
                let outcome = self.round(who, tasks, Stop::At(Instant::now() + length))?;
                self.rest();
                // The first of all rounds is for warming up.
                if round > 0 {
                    race.outcomes[who as usize].push(outcome);
                }
            }
        }
        Ok(race)
    }

    /// Lets the timers of a round expire and its last replies arrive, so that the next contestant
    /// is not charged for them. Does not wait for silent masters.
    pub fn rest(&self) {
        const NODE_TIMEOUT: Duration = Duration::from_millis(50);
        let floor = self.floor.clone();
        self.runtime.block_on(async move {
            let mut floor = floor.lock().await;
            let settle = floor.settle();
            let (_, _) =
                tokio::join!(timeout(NODE_TIMEOUT * 4, settle), sleep(NODE_TIMEOUT * 6 / 5));
        });
    }
}

pub async fn measured(
    run: impl Future<Output = anyhow::Result<Samples>>,
) -> anyhow::Result<Outcome> {
    let (begin, before) = (Instant::now(), cpu());
    let samples = run.await?;
    Ok(Outcome { samples, wall: begin.elapsed(), cpu: cpu().saturating_sub(before) })
}

/// The outcomes of all rounds, by contestant.
#[derive(Default)]
pub struct Race {
    pub outcomes: [Vec<Outcome>; 3],
}

impl Race {
    /// Adds a row that compares one figure of every contestant.
    pub fn compare(
        &self,
        rows: &mut Rows,
        what: &str,
        unit: &str,
        figure: fn(&Outcome) -> f64,
    ) -> anyhow::Result<()> {
        rows.compare(what, unit, &self.figures(figure))
    }

    /// Returns one figure of every round, by contestant.
    pub fn figures(&self, figure: fn(&Outcome) -> f64) -> [Vec<f64>; 3] {
        self.outcomes.each_ref().map(|rounds| rounds.iter().map(figure).collect())
    }
}

/// The key of a client: the same length for every contestant. Writing it allocates nothing.
pub struct Key(pub char, pub usize);

impl Key {
    pub const LEN: usize = 14;
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "bench-{}:{:06}", self.0, self.1)
    }
}
