//! A database migration that every instance of a service wants to do when it starts, and one does.
//!
//! The others wait until it is done and find nothing left to do. If the lock is lost, the migration
//! is stopped at its next await point, and each step checks the lock before it begins.
//!
//! `REDLOCK_NODES=redis://..,redis://.. cargo run -p redlock-quorum --example migration`. Without
//! `REDLOCK_NODES`, it starts five disposable masters and plays four instances.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Context;
use redlock_quorum::{Hold, Redlock};
use redlock_testkit::RedisServers;
use tokio::task::JoinSet;

/// The state of the database. A real database would have a table of versions.
type Schema = Arc<Mutex<Vec<&'static str>>>;

const STEPS: [&str; 3] = ["create orders", "add orders.paid_at", "index orders.paid_at"];

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let schema = Schema::default();
    if std::env::var_os("REDLOCK_NODES").is_some() {
        let redlock = Redlock::from_env()?;
        println!("{} steps done", migrate(redlock, schema).await?);
        return Ok(());
    }
    let masters = RedisServers::start(5)?;
    let mut instances = JoinSet::new();
    for _ in 0..4 {
        instances.spawn(migrate(Redlock::connect(masters.urls())?, schema.clone()));
    }
    while let Some(steps) = instances.join_next().await {
        println!("an instance has done {} steps", steps??);
    }
    Ok(())
}

/// Brings the schema up to date, alone, and says how many steps that took.
async fn migrate(redlock: Redlock, schema: Schema) -> anyhow::Result<usize> {
    let migration = redlock
        .lock("migrations")
        // Longer than the longest migration: the others wait for it to end.
        .wait(Duration::from_secs(300))
        .run(|hold| apply(hold, schema));
    migration.await.context("the migration was not done under the lock")?
}

async fn apply(hold: Hold, schema: Schema) -> anyhow::Result<usize> {
    let mut done = 0;
    for step in STEPS {
        hold.check()?;
        // One step in one transaction, with its entry in the table of versions.
        tokio::time::sleep(Duration::from_millis(5)).await;
        let mut schema = schema.lock().map_err(|_| anyhow::anyhow!("a step has panicked"))?;
        if !schema.contains(&step) {
            schema.push(step);
            done += 1;
        }
    }
    Ok(done)
}

#[tokio::test]
async fn each_step_runs_once_on_one_of_four_instances() -> anyhow::Result<()> {
    let masters = RedisServers::start(5)?;
    let schema = Schema::default();
    let mut instances = JoinSet::new();
    for _ in 0..4 {
        instances.spawn(migrate(Redlock::connect(masters.urls())?, schema.clone()));
    }
    let done: Vec<usize> = instances.join_all().await.into_iter().collect::<anyhow::Result<_>>()?;
    assert_eq!(done.iter().sum::<usize>(), STEPS.len());
    assert_eq!(done.iter().filter(|steps| **steps > 0).count(), 1, "{done:?}");
    assert_eq!(*schema.lock().unwrap(), STEPS);
    Ok(())
}
