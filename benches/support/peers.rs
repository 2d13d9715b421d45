//! The contestants besides the floor: this library and `rslock`, each used as its own page shows.

use std::future::Future;
use std::time::{Duration, Instant};

use redlock_quorum::{Guard, Redlock, ReleaseError};
use rslock::{Lock, LockManager};
use tokio::task::JoinSet;

use super::Key;
use super::stats::{Samples, Stop};

const TTL: Duration = Duration::from_secs(10);

/// A client of a lock that many tasks share.
pub trait Client: Clone + Send + Sync + 'static {
    type Held: Send;
    /// The first character of its keys, so that no client finds a key of another.
    const MARK: char;

    fn acquire(&self, key: &str) -> impl Future<Output = anyhow::Result<Self::Held>> + Send;
    fn release(&self, held: Self::Held) -> impl Future<Output = anyhow::Result<()>> + Send;
}

impl Client for Redlock {
    type Held = Guard;
    const MARK: char = 'o';

    async fn acquire(&self, key: &str) -> anyhow::Result<Guard> {
        Ok(self.lock(key).ttl(TTL).await?)
    }

    async fn release(&self, held: Guard) -> anyhow::Result<()> {
        match held.release().await {
            // On a busy machine the masters may be too slow for once. The sample shows it.
            Ok(()) | Err(ReleaseError::Unconfirmed { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl Client for LockManager {
    type Held = Lock;
    const MARK: char = 'r';

    async fn acquire(&self, key: &str) -> anyhow::Result<Lock> {
        Ok(self.lock(key.as_bytes(), TTL).await?)
    }

    async fn release(&self, held: Lock) -> anyhow::Result<()> {
        self.unlock(&held).await;
        Ok(())
    }
}

/// Runs `tasks` tasks, each with its own key, that acquire and release until `stop`.
pub async fn run<C: Client>(client: C, tasks: usize, stop: Stop) -> anyhow::Result<Samples> {
    let mut running = JoinSet::new();
    for task in 0..tasks {
        running.spawn(work(client.clone(), task, stop));
    }
    let mut samples = Samples::default();
    while let Some(done) = running.join_next().await {
        samples.append(done??);
    }
    Ok(samples)
}

async fn work<C: Client>(client: C, task: usize, stop: Stop) -> anyhow::Result<Samples> {
    let key = Key(C::MARK, task).to_string();
    let mut samples = Samples::default();
    loop {
        let since = Instant::now();
        let held = client.acquire(&key).await?;
        let acquired = Instant::now();
        client.release(held).await?;
        let now = Instant::now();
        samples.push(since, acquired, now);
        if stop.is_over(samples.len(), now) {
            return Ok(samples);
        }
    }
}
