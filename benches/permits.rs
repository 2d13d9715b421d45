//! Permits beside plain locks, with contenders that are processes.
//!
//! `together`: 32 processes for 8 permits, and beside it 4 processes for each of 8 locks. Each holds
//! for 5 ms, releases and comes again. `alone`: one process with one permit of 8, and with one lock,
//! in turn. Each line has the rate, and the smallest share of a process in that of an equal one.

use std::env;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use redlock_quorum::Redlock;
use redlock_testkit::RedisServers;

const PERMITS: u32 = 8;
const PROCESSES: u32 = 32;
const HOLD: Duration = Duration::from_millis(5);
const ROUND: Duration = Duration::from_secs(4);
/// Contenders start at this time after the parent, so that all of them are there.
const START: Duration = Duration::from_secs(2);
const CHILD: &str = "REDLOCK_BENCH_PERMITS";

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    if let Ok(task) = env::var(CHILD) {
        return contend(&task).await;
    }
    let rounds = env::var("ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(3);
    for round in 0..rounds {
        // Whoever comes first finds the machine as the other leaves it.
        let kinds = if round % 2 == 0 { ["permits", "locks"] } else { ["locks", "permits"] };
        for kind in kinds {
            together(kind)?;
        }
    }
    for _ in 0..rounds {
        alone().await?;
    }
    Ok(())
}

/// One round of all processes.
fn together(kind: &str) -> anyhow::Result<()> {
    let masters = RedisServers::start(5)?;
    let child = |number: u32| {
        let mut command = Command::new(env::current_exe()?);
        command
            .env(CHILD, format!("{kind} {number}"))
            .env("REDLOCK_NODES", masters.urls().join(","));
        anyhow::Ok(command.stdout(Stdio::piped()).spawn()?)
    };
    let children = (0..PROCESSES).map(child).collect::<anyhow::Result<Vec<_>>>()?;
    let mut served = Vec::new();
    for child in children {
        let output = String::from_utf8(child.wait_with_output()?.stdout)?;
        served.push(output.trim().parse::<f64>().context("a contender has failed")?);
    }
    let all: f64 = served.iter().sum();
    let least = served.iter().copied().fold(f64::MAX, f64::min);
    let (rate, share) = (all / ROUND.as_secs_f64(), least * served.len() as f64 / all);
    println!("together {kind}: {rate:.0}/s, smallest share {share:.3}");
    Ok(())
}

/// One process of many: prints how often it was served.
async fn contend(task: &str) -> anyhow::Result<()> {
    let (kind, number) = task.split_once(' ').context("a kind and a number")?;
    let number: u32 = number.parse()?;
    let redlock = Redlock::builder()
        .nodes(env::var("REDLOCK_NODES")?.split(','))
        .node_timeout(Duration::from_secs(1))
        .build()?;
    let semaphore = redlock.semaphore("permits", PERMITS);
    let name = format!("lock:{}", number % PERMITS);
    // The connections are made.
    redlock.status("nobody").await;
    tokio::time::sleep(START).await;
    let until = Instant::now() + ROUND;
    let mut served = 0;
    while Instant::now() < until {
        if kind == "permits" {
            let permit = semaphore.acquire().wait_forever().await?;
            tokio::time::sleep(HOLD).await;
            permit.release().await?;
        } else {
            let guard = redlock.lock(&name).wait_forever().await?;
            tokio::time::sleep(HOLD).await;
            guard.release().await?;
        }
        served += 1;
    }
    println!("{served}");
    Ok(())
}

/// A permit and a lock in turn, without contenders.
async fn alone() -> anyhow::Result<()> {
    const TIMES: usize = 500;
    let masters = RedisServers::start(5)?;
    let redlock = Redlock::connect(masters.urls())?;
    let semaphore = redlock.semaphore("permits", PERMITS);
    let (mut permits, mut locks) = (Vec::new(), Vec::new());
    for _ in 0..TIMES {
        let begun = Instant::now();
        semaphore.acquire().await?.release().await?;
        permits.push(begun.elapsed());
        let begun = Instant::now();
        redlock.lock("lock").await?.release().await?;
        locks.push(begun.elapsed());
    }
    let median = |times: &mut Vec<Duration>| {
        times.sort_unstable();
        times[TIMES / 2].as_secs_f64() * 1e6
    };
    let (permit, lock) = (median(&mut permits), median(&mut locks));
    println!("alone: permit {permit:.0} us, lock {lock:.0} us, ratio {:.3}", permit / lock);
    Ok(())
}
