//! A cron job that is installed on many hosts and runs on one.
//!
//! Every host starts this at the same minute; the one that gets the lock does the work. Clocks of
//! hosts differ by seconds, so the lock is not released when the work is done: it is left to
//! expire, and a host that comes late finds it held.
//!
//! `REDLOCK_NODES=redis://..,redis://.. cargo run -p redlock-quorum --example cron`; without
//! `REDLOCK_NODES` it starts five throw-away masters and plays three hosts.

use std::time::Duration;

use anyhow::Context;
use redlock_quorum::{AcquireError, Redlock};
use redlock_testkit::RedisServers;

/// Longer than the clocks of the hosts differ, shorter than the time to the next run.
const SLACK: Duration = Duration::from_secs(30);

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

/// Says whether it was this host that did the work.
async fn nightly_report(redlock: &Redlock, host: &str) -> anyhow::Result<bool> {
    match redlock.try_lock("nightly-report").ttl(SLACK).label(host).await {
        Ok(guard) => {
            println!("{host}: doing the report");
            guard.check().context("the report was not finished under the lock")?;
            guard.forget();
            Ok(true)
        }
        Err(AcquireError::Held { votes, .. }) => {
            println!("{host}: another host does it ({votes})");
            Ok(false)
        }
        Err(error) => Err(error).context(format!("{host}: it is not known which host does it")),
    }
}

#[tokio::test]
async fn one_of_three_hosts_does_the_report_however_late_the_others_come() -> anyhow::Result<()> {
    let masters = RedisServers::start(5)?;
    let mut done = 0;
    for host in ["web-1", "web-2", "web-3"] {
        let redlock = Redlock::connect(masters.urls())?;
        done += usize::from(nightly_report(&redlock, host).await?);
    }
    assert_eq!(done, 1);
    Ok(())
}
