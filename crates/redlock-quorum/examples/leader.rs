//! A leader loop: one of several instances leads, and a different one takes over when it stops or
//! dies.
//!
//! The leader stops leading *before* the next one can begin, because `stop_margin` reports the loss
//! that much earlier than the lease ends.
//!
//! `REDLOCK_NODES=redis://..,redis://.. cargo run -p redlock-quorum --example leader` leads until
//! Ctrl-C or SIGTERM, and then immediately makes room for the next instance. Without
//! `REDLOCK_NODES`, it starts five disposable masters and plays three instances, each of which
//! leads for a moment.

use std::time::Duration;

use redlock_quorum::{Guard, Redlock, RunError};
use redlock_testkit::RedisServers;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// How long an instance needs to stop leading.
const TIME_TO_STOP: Duration = Duration::from_millis(500);

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let (log, mut events) = mpsc::unbounded_channel();
    if std::env::var_os("REDLOCK_NODES").is_some() {
        let redlock = Redlock::from_env()?;
        let mut terminate = signal(SignalKind::terminate())?;
        let stop = async move {
            tokio::select! {
                _ = tokio::signal::ctrl_c() => {}
                _ = terminate.recv() => {}
            }
        };
        return serve(redlock, stop).await;
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

/// Leads whenever it can, until `stop` resolves. Then it immediately makes room for the next
/// instance. An instance that is only killed makes the others wait until its lease ends.
async fn serve(redlock: Redlock, stop: impl Future<Output = ()>) -> anyhow::Result<()> {
    let leading = async {
        loop {
            println!("waiting to lead");
            let guard = stand_for_election(&redlock).await?;
            println!("leading");
            lead(&guard, Duration::MAX).await;
        }
    };
    let outcome = tokio::select! {
        // Dropping the work drops its guard, and with it the lock is released.
        outcome = leading => outcome,
        () = stop => Ok(()),
    };
    // The release runs in the background. This waits for it.
    redlock.shutdown(TIME_TO_STOP).await?;
    outcome
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
async fn a_stopped_instance_makes_room_immediately() -> anyhow::Result<()> {
    let masters = RedisServers::start(3)?;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let first = tokio::spawn(serve(Redlock::connect(masters.urls())?, async {
        let _ = stopped.await;
    }));
    let redlock = Redlock::connect(masters.urls())?;
    while redlock.status("leader").await.state == redlock_quorum::State::Free {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    stop.send(()).expect("it still leads");
    first.await??;
    // Long before a lease ends: nothing has to expire.
    let is_free = async {
        let free = |node: &redlock_quorum::NodeVote| node.verdict == redlock_quorum::Verdict::Free;
        while !redlock.status("leader").await.nodes.iter().all(free) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(5), is_free).await?;
    Ok(())
}

#[tokio::test]
async fn each_instance_leads_in_turn_and_never_two_together() -> anyhow::Result<()> {
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
