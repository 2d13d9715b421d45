//! Follows who holds a lock, for example to show it on a dashboard.
//!
//! `REDLOCK_NODES=redis://..,redis://.. cargo run -p redlock-quorum --example watch -- deploy`
//! prints each change until Ctrl-C. Without `REDLOCK_NODES`, it starts five disposable masters and
//! follows one lock that is acquired and released.

use std::time::Duration;

use anyhow::Context;
use futures_util::StreamExt;
use redlock_quorum::{Redlock, State, Watch};
use redlock_testkit::RedisServers;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    if std::env::var_os("REDLOCK_NODES").is_some() {
        let key = std::env::args().nth(1).context("the name of a lock is missing")?;
        let mut changes = Redlock::from_env()?.watch(key);
        while let Some(status) = changes.next().await {
            println!("{status}");
        }
        return Ok(());
    }
    for state in one_deployment().await? {
        println!("{state:?}");
    }
    Ok(())
}

/// The states of a lock that one client acquires and releases, as another client sees them.
async fn one_deployment() -> anyhow::Result<Vec<State>> {
    let masters = RedisServers::start(5)?;
    let (host, dashboard) = (Redlock::connect(masters.urls())?, Redlock::connect(masters.urls())?);
    let mut changes = dashboard.watch("deploy");
    let mut states = vec![next(&mut changes).await?];
    let guard = host.lock("deploy").label("web-1").await?;
    states.push(next(&mut changes).await?);
    let _ = guard.release().await; // repeated in the background if no quorum confirms it
    states.push(next(&mut changes).await?);
    Ok(states)
}

async fn next(changes: &mut Watch) -> anyhow::Result<State> {
    let status = tokio::time::timeout(Duration::from_secs(10), changes.next()).await?;
    Ok(status.context("the stream has ended")?.state)
}

#[tokio::test]
async fn each_change_of_the_lock_is_seen() -> anyhow::Result<()> {
    let states = one_deployment().await?;
    assert!(
        matches!(states.as_slice(), [State::Free, State::Held { .. }, State::Free]),
        "{states:?}"
    );
    let State::Held { token, .. } = &states[1] else { anyhow::bail!("{states:?}") };
    assert!(token.ends_with("/web-1"), "{token}");
    Ok(())
}
