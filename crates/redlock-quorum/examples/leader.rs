//! A leader loop: of several instances one leads, and another takes over when it stops or dies.
//!
//! The leader stops leading *before* another can begin: `stop_margin` makes the loss known that
//! much earlier than the lease ends.
//!
//! `REDLOCK_NODES=redis://..,redis://.. cargo run -p redlock-quorum --example leader` leads until
//! Ctrl-C; without `REDLOCK_NODES` it starts five throw-away masters and plays three instances,
//! each of which leads for a moment.

use std::time::Duration;

use redlock_quorum::{Guard, Redlock, RunError};
use redlock_testkit::RedisServers;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// How long an instance needs to stop leading.
const TIME_TO_STOP: Duration = Duration::from_millis(500);

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let (log, mut events) = mpsc::unbounded_channel();
    if let Ok(nodes) = std::env::var("REDLOCK_NODES") {
        let redlock = Redlock::connect(nodes.split(','))?;
        println!("waiting to lead");
        let guard = stand_for_election(&redlock).await?;
        println!("leading; stop me with Ctrl-C");
        lead(&guard, Duration::MAX).await;
        return Ok(());
    }
    let masters = RedisServers::start(5)?;
    let mut instances = JoinSet::new();
    for name in ["a", "b", "c"] {
        let term = Duration::from_millis(50);
        instances.spawn(one_term(Redlock::connect(masters.urls())?, name, term, log.clone()));
    }
    drop(log);
    while let Some(event) = events.recv().await {
        println!("{event}");
    }
    Ok(())
}

/// Waits to lead, leads for `term` or until the lock is lost, and makes room for the next.
async fn one_term(
    redlock: Redlock,
    name: &'static str,
    term: Duration,
    log: mpsc::UnboundedSender<String>,
) -> anyhow::Result<()> {
    let guard = stand_for_election(&redlock).await?;
    log.send(format!("{name} leads"))?;
    lead(&guard, term).await;
    log.send(format!("{name} stops"))?;
    guard.release().await?;
    Ok(())
}

async fn stand_for_election(redlock: &Redlock) -> Result<Guard, RunError> {
    Ok(redlock.lock("leader").wait_forever().stop_margin(TIME_TO_STOP).await?)
}

/// Does what a leader does, until its term or its lock is over.
async fn lead(guard: &Guard, term: Duration) {
    tokio::select! {
        ended = guard.lost() => eprintln!("not the leader any more: {ended:?}"),
        () = tokio::time::sleep(term) => {}
    }
}

#[tokio::test]
async fn each_instance_leads_in_turn_and_never_two_at_once() -> anyhow::Result<()> {
    let masters = RedisServers::start(5)?;
    let (log, mut events) = mpsc::unbounded_channel();
    let mut instances = JoinSet::new();
    for name in ["a", "b", "c"] {
        let term = Duration::from_millis(20);
        instances.spawn(one_term(Redlock::connect(masters.urls())?, name, term, log.clone()));
    }
    drop(log);
    let mut history = Vec::new();
    while let Some(event) = events.recv().await {
        history.push(event);
    }
    for outcome in instances.join_all().await {
        outcome?;
    }
    assert_eq!(history.len(), 6);
    for term in history.chunks(2) {
        let name = term[0].strip_suffix(" leads").expect("a term begins with leading");
        assert_eq!(term[1], format!("{name} stops"));
    }
    Ok(())
}
