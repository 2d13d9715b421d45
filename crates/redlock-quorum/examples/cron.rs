//! A cron job installed on many hosts that runs on one of them.
//!
//! Every host starts this at about the same time, and the host that gets the lock does the work.
//! The others wait for it, and then find that the job was completed. So does a host that comes
//! hours later.
//!
//! `REDLOCK_NODES=redis://..,redis://.. cargo run -p redlock-quorum --example cron`. Without
//! `REDLOCK_NODES`, it starts five disposable masters and plays three hosts.

use std::time::Duration;

use anyhow::Context;
use redlock_quorum::{Once, Redlock};
use redlock_testkit::RedisServers;

const HOUR: Duration = Duration::from_secs(3_600);

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    if std::env::var_os("REDLOCK_NODES").is_some() {
        let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "host".into());
        return nightly_report(&Redlock::from_env()?, &host).await.map(drop);
    }
    let masters = RedisServers::start(5)?;
    for host in ["web-1", "web-2", "web-3"] {
        nightly_report(&Redlock::connect(masters.urls())?, host).await?;
    }
    Ok(())
}

/// Returns `true` if this host did the work.
async fn nightly_report(redlock: &Redlock, host: &str) -> anyhow::Result<bool> {
    // Hosts may come early: the period is shorter than the day between two runs. The wait is longer
    // than the work: who waits does it when the host that did it dies.
    let report = redlock.once("nightly-report").within(12 * HOUR).wait(2 * HOUR).label(host);
    let outcome = report.try_run(|hold| async move {
        println!("{host}: doing the report");
        hold.check().context("the report was not finished under the lock")
    });
    match outcome.await.with_context(|| format!("{host}: it is not known whether it was done"))? {
        Once::Ran(()) => Ok(true),
        Once::Done { by, .. } => {
            println!("{host}: it was done by {}", by.unwrap_or_default());
            Ok(false)
        }
    }
}

#[tokio::test]
async fn only_one_of_three_hosts_writes_the_report() -> anyhow::Result<()> {
    let masters = RedisServers::start(5)?;
    let mut done = 0;
    for host in ["web-1", "web-2", "web-3"] {
        let redlock = Redlock::connect(masters.urls())?;
        done += usize::from(nightly_report(&redlock, host).await?);
    }
    assert_eq!(done, 1);
    Ok(())
}
