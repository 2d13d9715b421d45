//! A contender: this program once more, so that a process is a process.

use std::io::{Write, stdout};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use redlock_quorum::{Quarantine, Redlock};
use rslock::LockManager;

use super::figures::Hold;
use super::ring;

pub const KEY: &str = "contended";
const TTL: Duration = Duration::from_secs(10);

/// The lock implementation of a contender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// This library.
    Redlock,
    /// This library, on masters that push nothing.
    Polling,
    Rslock,
    /// The floor between processes.
    Ring,
    /// This library, without the queue between processes.
    NoQueue,
}

impl Who {
    const ALL: [Self; 5] = [Self::Redlock, Self::Polling, Self::Rslock, Self::Ring, Self::NoQueue];

    pub fn name(self) -> &'static str {
        match self {
            Self::Redlock => "redlock",
            Self::Polling => "polling",
            Self::Rslock => "rslock",
            Self::Ring => "floor",
            Self::NoQueue => "no queue",
        }
    }
}

/// The task of a contender, passed in an environment variable.
#[derive(Clone, Copy, Debug)]
pub struct Orders {
    pub who: Who,
    /// The number of its first task.
    pub first: usize,
    /// How many tasks it has, of how many in all processes.
    pub tasks: usize,
    pub of: usize,
    pub hold_us: u64,
    /// When it begins and ends, on the common clock.
    pub begin: u64,
    pub end: u64,
    /// It ends with its first lock.
    pub is_short: bool,
}

/// The variable that makes this program a contender, and the one with its masters.
pub const ORDERS: &str = "REDLOCK_CONTENDER";
pub const MASTERS: &str = "REDLOCK_NODES";

impl Orders {
    pub fn words(&self) -> String {
        let Self { who, first, tasks, of, hold_us, begin, end, is_short } = self;
        format!(
            "{} {first} {tasks} {of} {hold_us} {begin} {end} {}",
            *who as u8,
            u8::from(*is_short)
        )
    }

    fn parse(words: &str) -> anyhow::Result<Self> {
        let numbers: Vec<u64> = words.split(' ').map(str::parse).collect::<Result<_, _>>()?;
        let [who, first, tasks, of, hold_us, begin, end, is_short] = numbers[..] else {
            anyhow::bail!("a contender needs eight numbers: {words}");
        };
        let who = *Who::ALL.get(who as usize).context("who")?;
        let [first, tasks, of] = [first, tasks, of].map(|number| number as usize);
        Ok(Self { who, first, tasks, of, hold_us, begin, end, is_short: is_short == 1 })
    }
}

/// Does as `orders` say, and prints each lock.
pub fn contend(orders: &str) -> anyhow::Result<()> {
    let orders = Orders::parse(orders)?;
    let masters = std::env::var(MASTERS)?;
    let masters: Vec<&str> = masters.split(',').collect();
    if orders.who == Who::Ring {
        return print(&ring::contend(orders, &masters)?);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let holds = runtime.block_on(async {
        match orders.who {
            Who::Redlock => run(Redlock::builder().nodes(masters).build()?, orders).await,
            Who::NoQueue => {
                run(Redlock::builder().nodes(masters).queue(false).build()?, orders).await
            }
            // Masters without pushes vote without ballots only if there is no quarantine.
            Who::Polling => {
                let builder = Redlock::builder().nodes(masters).prefix("polling:").fencing(false);
                run(builder.quarantine(Quarantine::Off).build()?, orders).await
            }
            _ => run(LockManager::new(masters), orders).await,
        }
    })?;
    print(&holds)
}

fn print(holds: &[Hold]) -> anyhow::Result<()> {
    let mut out = stdout().lock();
    for hold in holds {
        writeln!(out, "{hold}")?;
    }
    Ok(())
}

/// Something that waits for one key.
trait Waiter: Clone + 'static {
    /// Connects.
    async fn warm(&self);
    /// Waits for the key, and returns a function that releases it.
    async fn hold(&self) -> anyhow::Result<impl AsyncFnOnce()>;
}

impl Waiter for Redlock {
    async fn warm(&self) {
        self.status("warm").await;
    }

    async fn hold(&self) -> anyhow::Result<impl AsyncFnOnce()> {
        let guard = self.lock(KEY).ttl(TTL).wait_forever().await?;
        // An unconfirmed release continues by itself.
        Ok(async move || drop(guard.release().await))
    }
}

impl Waiter for LockManager {
    async fn warm(&self) {
        if let Ok(held) = self.lock(b"warm", TTL).await {
            self.unlock(&held).await;
        }
    }

    async fn hold(&self) -> anyhow::Result<impl AsyncFnOnce()> {
        // It gives up after some tries, so this loop retries as a user's loop would.
        let held = loop {
            if let Ok(held) = self.lock(KEY.as_bytes(), TTL).await {
                break held;
            }
        };
        let manager = self.clone();
        Ok(async move || manager.unlock(&held).await)
    }
}

async fn run<W: Waiter>(waiter: W, orders: Orders) -> anyhow::Result<Vec<Hold>> {
    if !orders.is_short {
        waiter.warm().await;
    }
    tokio::time::sleep(Duration::from_micros(orders.begin.saturating_sub(micros()))).await;
    let work = (0..orders.tasks).map(|task| work(&waiter, orders.first + task, orders));
    Ok(futures::future::try_join_all(work).await?.concat())
}

async fn work<W: Waiter>(
    waiter: &W,
    contender: usize,
    orders: Orders,
) -> anyhow::Result<Vec<Hold>> {
    let mut holds = Vec::new();
    while micros() < orders.end {
        let asked = micros();
        let release = waiter.hold().await?;
        let granted = micros();
        if orders.hold_us > 0 {
            // A timer of tokio is a millisecond coarse, and would be longer than that of the floor.
            let hold = Duration::from_micros(orders.hold_us);
            tokio::task::spawn_blocking(move || std::thread::sleep(hold)).await?;
        }
        let released = micros();
        release().await;
        holds.push(Hold { contender, asked, granted, released });
        if orders.is_short {
            break;
        }
    }
    Ok(holds)
}

/// Microseconds of the clock that all processes share.
pub fn micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}
