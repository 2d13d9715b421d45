//! Masters that lose ballots.

use std::time::{Duration, Instant};

use futures::future::join_all;
use redlock_quorum::{Guard, Quarantine, Standing, Verdict};
use redlock_testkit::lab::WallClocks;
use redlock_testkit::{Direction, FaultProxy, RedisServer, RedisServers, ServerOptions, TokenRule};

use super::{LENGTH, Tape, complete, newcomer, sets, until};
use crate::admission::clocks::HOUR;
use crate::admission::{admitted, handle_on, outlived, run};
use crate::lab::{eventually, in_time, said, text, urls_of};

const MASTERS: usize = 3;

/// Whatever it was given, it is only a copy.
fn has_no_vote_of(guard: &Guard, server: &RedisServer) {
    let verdict = said(&guard.votes(), &server.name()).clone();
    assert!(matches!(verdict, Verdict::Unknown(_) | Verdict::Pending), "{}", guard.votes());
}

/// A holder that is cut off from all masters, and believes in its lock until its deadline.
struct CutOff {
    clocks: WallClocks,
    servers: Vec<RedisServer>,
    guard: Guard,
    tape: Tape,
    quarantine: Quarantine,
    ttl: Duration,
    /// Through them the holder would reach its masters.
    _proxies: Vec<FaultProxy>,
}

impl CutOff {
    async fn new(quarantine: Quarantine, ttl: Duration) -> Self {
        let clocks = WallClocks::new(&[0; MASTERS]);
        let options = ServerOptions::new().brand_new();
        let server = |place| RedisServer::with(&clocks.on(place, options.clone())).unwrap();
        let servers: Vec<RedisServer> = (0..MASTERS).map(server).collect();
        let handle = |urls: Vec<String>| {
            handle_on(urls).quarantine(quarantine).max_ttl(ttl).ttl(ttl).build().unwrap()
        };
        if quarantine == Quarantine::On {
            let person = handle(servers.iter().map(RedisServer::url).collect());
            assert_eq!(person.init().await.unwrap().admitted(), MASTERS);
        }
        let mut proxies = Vec::new();
        for server in &servers {
            proxies.push(FaultProxy::before(server).await.unwrap());
        }
        let redlock = handle(urls_of(&proxies));
        let tape = Tape::default();
        let contender = tape.begin();
        let guard = redlock.lock(super::KEY).min_copies(MASTERS).await.unwrap();
        eventually("all masters hold it", || guard.copies() == MASTERS).await;
        tape.note(&contender, &guard);
        in_time(guard.extend(ttl)).await.unwrap();
        for proxy in &proxies {
            proxy.drop(Direction::ToServer);
            proxy.drop(Direction::ToClient);
        }
        Self { clocks, servers, guard, tape, quarantine, ttl, _proxies: proxies }
    }

    /// Restarts a majority empty, with clocks an hour behind. `None` if the first lock ended
    /// before.
    fn lose(self) -> Option<Self> {
        (0..MASTERS).for_each(|place| self.clocks.set(place, -HOUR));
        for server in &self.servers[..2] {
            server.kill();
            server.restart_empty().unwrap();
        }
        if self.guard.is_held() {
            return Some(self);
        }
        // One token has no order.
        std::mem::forget(self.tape);
        None
    }

    /// A lock of a handle that knows nothing of what was before.
    async fn second(&self) -> Guard {
        let builder = handle_on(self.servers.iter().map(RedisServer::url));
        let builder = builder.quarantine(self.quarantine).max_ttl(self.ttl).ttl(self.ttl);
        let redlock = builder.wait(self.ttl * 3).build().unwrap();
        let contender = self.tape.begin();
        let guard = redlock.lock(super::KEY).await.unwrap();
        self.tape.note(&contender, &guard);
        guard
    }
}

/// No voting master has had a correct clock, so only the ballots of the master that stayed are
/// left.
#[tokio::test]
async fn forgetful_majority_makes_no_second_holder_or_smaller_token() {
    outlived(async |ttl| {
        let lab = CutOff::new(Quarantine::On, ttl).await.lose()?;
        let loss = lab.guard.lost();
        let second = lab.second().await;
        assert!(!lab.guard.is_held(), "the first holder is gone by then");
        in_time(loss).await;
        second.release().await.unwrap();
        Some(())
    })
    .await;
}

/// Without a quarantine, the fault that the test above excludes does occur, and the order of tokens
/// is not promised.
#[tokio::test]
async fn without_quarantine_a_second_holder_has_a_smaller_token() {
    outlived(async |ttl| {
        let lab = CutOff::new(Quarantine::Off, ttl).await.lose()?;
        let second = lab.second().await;
        let are_two = lab.guard.is_held() && second.is_held();
        let disorder = lab.tape.check().expect_err("the second token is smaller");
        assert_eq!(disorder.rule, TokenRule::RealTime, "{disorder}");
        second.release().await.unwrap();
        // It would be judged once more.
        std::mem::forget(lab.tape);
        are_two.then_some(())
    })
    .await;
}

#[tokio::test]
async fn tokens_are_in_order_if_masters_are_flushed_under_locks() {
    join_all((1..=MASTERS).map(flushed_under_a_held_lock)).await;
}

async fn flushed_under_a_held_lock(flushed: usize) {
    let ((servers, redlock), tape) = (admitted(MASTERS).await, Tape::default());
    tape.visit(&redlock).await;
    let guard = tape.lock(&redlock).await.unwrap();
    let begun = Instant::now();
    servers[..flushed].iter().for_each(|server| run(server, &["FLUSHALL"]));
    if flushed > 1 {
        in_time(guard.lost()).await;
        assert!(redlock.try_lock(super::KEY).await.is_err());
    } else {
        in_time(guard.release()).await.unwrap();
    }
    tape.visit(&redlock).await;
    assert!(flushed == 1 || begun.elapsed() >= LENGTH, "{:?}", begun.elapsed());
    for at in 0..MASTERS {
        until(&redlock, at, Standing::Admitted).await;
        complete(&servers[at]);
    }
    tape.visit(&newcomer(&servers)).await;
}

/// It has old ballots, under a name that no client queries any longer.
#[tokio::test]
async fn master_with_an_old_snapshot_accepts_no_ballots() {
    let ((servers, redlock), tape) = (admitted(MASTERS).await, Tape::default());
    run(&servers[0], &["SAVE"]);
    let old = complete(&servers[0]);
    tape.visit(&redlock).await;
    let guard = tape.lock(&redlock).await.unwrap();
    servers[0].kill();
    servers[0].restart().unwrap();
    until(&redlock, 0, Standing::Quarantine).await;
    assert!(sets(&servers[0]).is_empty(), "{:?}", sets(&servers[0]));
    guard.release().await.unwrap();
    let guard = tape.lock(&redlock).await.unwrap();
    has_no_vote_of(&guard, &servers[0]);
    assert!(sets(&servers[0]).is_empty(), "a ballot makes no set");
    let floor = until(&redlock, 0, Standing::Admitted).await.server.unwrap().floor.unwrap();
    assert!(floor >= tape.last(), "{floor}");
    assert_ne!(complete(&servers[0]), old);
    eventually("its copy counts", || guard.copies() == 3).await;
    guard.release().await.unwrap();
    servers[1].kill();
    tape.visit(&newcomer(&servers)).await;
}

#[tokio::test]
async fn former_replica_gets_its_floor_from_the_others() {
    let options = ServerOptions::new().brand_new().arguments(["--repl-diskless-sync-delay", "0"]);
    let servers = RedisServers::with(MASTERS, &options).unwrap();
    let (redlock, tape) = (newcomer(&servers), Tape::default());
    assert_eq!(redlock.init().await.unwrap().admitted(), MASTERS);
    let guard = tape.lock(&redlock).await.unwrap();
    run(&servers[0], &["REPLICAOF", "127.0.0.1", &servers[1].port().to_string()]);
    let is_up = || text::<String>(&servers[0], &["INFO", "replication"]).contains("status:up");
    eventually("the replica has all", is_up).await;
    assert_eq!(
        complete(&servers[0]),
        complete(&servers[1]),
        "it is a copy of another client's key"
    );
    run(&servers[0], &["REPLICAOF", "NO", "ONE"]);
    guard.release().await.unwrap();
    until(&redlock, 0, Standing::Quarantine).await;
    let guard = tape.lock(&redlock).await.unwrap();
    has_no_vote_of(&guard, &servers[0]);
    until(&redlock, 0, Standing::Admitted).await;
    guard.release().await.unwrap();
    let report = redlock.inspect().await.remove(0).server.unwrap();
    assert!(report.floor.unwrap() >= tape.last() && report.ballots == Some(1_024));
    servers[1].kill();
    tape.visit(&newcomer(&servers)).await;
}
