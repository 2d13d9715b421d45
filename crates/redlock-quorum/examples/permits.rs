//! Backups that load a shared network: at most two hosts run one at a time.
//!
//! `REDLOCK_NODES=redis://..,redis://.. cargo run -p redlock-quorum --example permits` runs one
//! backup. Without `REDLOCK_NODES`, it starts five disposable masters and six hosts.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Context;
use redlock_quorum::Redlock;
use redlock_testkit::RedisServers;
use tokio::task::JoinSet;

const PERMITS: u32 = 2;

/// Runs one backup, as soon as fewer than [`PERMITS`] run.
async fn back_up(redlock: Redlock, running: Arc<AtomicUsize>) -> anyhow::Result<usize> {
    let backups = redlock.semaphore("backups", PERMITS);
    let permit = backups.acquire().wait(Duration::from_secs(60)).await?;
    let number = running.fetch_add(1, Ordering::SeqCst) + 1;
    println!("backing up with permit {}, {number} at a time", permit.slot());
    tokio::time::sleep(Duration::from_millis(50)).await;
    running.fetch_sub(1, Ordering::SeqCst);
    permit.check().context("the backup was not protected to its end")?;
    // An unconfirmed release does not affect the backup. The permit expires by itself.
    let _ = permit.release().await;
    Ok(number)
}

async fn six_hosts() -> anyhow::Result<Vec<usize>> {
    let masters = RedisServers::start(5)?;
    let (mut hosts, running) = (JoinSet::new(), Arc::default());
    for _ in 0..6 {
        hosts.spawn(back_up(Redlock::connect(masters.urls())?, Arc::clone(&running)));
    }
    hosts.join_all().await.into_iter().collect()
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    if std::env::var_os("REDLOCK_NODES").is_some() {
        back_up(Redlock::from_env()?, Arc::default()).await?;
        return Ok(());
    }
    let most = six_hosts().await?.into_iter().max();
    println!("at most {} backups ran at a time", most.unwrap_or_default());
    Ok(())
}

#[tokio::test]
async fn six_hosts_run_their_backups_two_at_a_time() -> anyhow::Result<()> {
    let numbers = six_hosts().await?;
    assert_eq!(numbers.len(), 6);
    assert!(numbers.iter().all(|number| *number <= PERMITS as usize), "{numbers:?}");
    Ok(())
}
