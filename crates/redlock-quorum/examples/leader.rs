//! Leader election: of several instances one leads, and another takes over when it stops or dies.
//!
//! `REDLOCK_NODES=redis://..,redis://.. cargo run -p redlock-quorum --example leader` leads until
//! Ctrl-C. Without `REDLOCK_NODES`, it starts five disposable masters and three instances, each of
//! which leads for a moment.

use std::time::Duration;

use redlock_quorum::{Redlock, RunError};
use redlock_testkit::RedisServers;

/// Leads as soon as this instance can, until the work is done.
async fn serve(redlock: Redlock, address: &str, work: Duration) -> Result<(), RunError> {
    let election = redlock.election("scheduler").candidate(address);
    let lead = election.run(|hold| async move {
        println!("{address} leads with token {:?}", hold.fencing_token());
        tokio::time::sleep(work).await; // dropped, and run again later, if the leadership is lost
    });
    tokio::select! {
        outcome = lead => outcome,
        _ = tokio::signal::ctrl_c() => Ok(()), // dropping the run resigns
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    if std::env::var_os("REDLOCK_NODES").is_some() {
        let redlock = Redlock::from_env()?;
        serve(redlock.clone(), "10.0.0.7:8080", Duration::MAX).await?;
        // Waits until the masters have acknowledged that this instance no longer leads.
        return Ok(redlock.shutdown(Duration::from_secs(1)).await?);
    }
    let masters = RedisServers::start(5)?;
    let instance = |address| {
        let redlock = Redlock::connect(masters.urls());
        async move { anyhow::Ok(serve(redlock?, address, Duration::from_millis(50)).await?) }
    };
    tokio::try_join!(instance("a:1"), instance("b:1"), instance("c:1"))?;
    Ok(())
}

#[tokio::test]
async fn instances_lead_in_turn_and_all_see_it() -> anyhow::Result<()> {
    use futures_util::StreamExt;
    use redlock_quorum::Leader;

    let masters = RedisServers::start(5)?;
    let redlock = Redlock::connect(masters.urls())?;
    let mut leaders = redlock.election("scheduler").observe();
    let instance = |address| {
        let redlock = Redlock::connect(masters.urls());
        async move { anyhow::Ok(serve(redlock?, address, Duration::from_millis(2_500)).await?) }
    };
    let served = async { tokio::try_join!(instance("a:1"), instance("b:1")) };
    let seen = async {
        let mut seen = Vec::new();
        while seen.len() < 2 {
            match leaders.next().await {
                Some(Leader::Is { text, .. }) => seen.push(text),
                Some(_) => {}
                None => anyhow::bail!("the stream has ended"),
            }
        }
        Ok(seen)
    };
    let both = async { tokio::join!(served, seen) };
    let (served, seen) = tokio::time::timeout(Duration::from_secs(60), both).await?;
    served?;
    let mut seen = seen?;
    seen.sort();
    assert_eq!(seen, ["a:1", "b:1"]);
    Ok(())
}
