//! Real masters that lose what they knew while a lock is held.

use std::sync::Arc;
use std::time::Duration;

use redlock_core::Clock;
use redlock_quorum::{Guard, InitError, Quarantine, Redlock, RedlockBuilder, Standing};
use redlock_testkit::{
    Direction, FaultProxy, History, Overlap, RedisServers, ServerOptions, check,
};
use tokio::time::Instant;

use crate::admission::{LENGTH, admitted, full, handle, handle_on, outlived, run};
use crate::lab::{eventually, in_time, ms, on_all, secs, text, urls_of};

const MASTERS: usize = 5;

/// One holder, cut off from all masters, and a client that arrives while the first lock is valid.
struct Contest {
    servers: RedisServers,
    proxies: Vec<FaultProxy>,
    quarantine: Quarantine,
    ttl: Duration,
    clock: Clock,
    history: Arc<History>,
}

impl Contest {
    async fn new(quarantine: Quarantine, ttl: Duration) -> Self {
        let servers = RedisServers::with(MASTERS, &ServerOptions::new().brand_new()).unwrap();
        let proxies = servers.proxied().await.unwrap();
        let clock = Clock::system();
        let history = Arc::new(History::new(clock.clone()));
        let contest = Self { servers, proxies, quarantine, ttl, clock, history };
        if quarantine == Quarantine::On {
            let person = contest.handle(contest.servers.urls()).build().unwrap();
            assert_eq!(person.init().await.unwrap().admitted(), MASTERS);
        }
        contest
    }

    fn handle(&self, urls: Vec<String>) -> RedlockBuilder {
        let builder = handle_on(urls).quarantine(self.quarantine).clock(self.clock.clone());
        builder.max_ttl(self.ttl).ttl(self.ttl)
    }

    /// The guard believes in its lock until the deadline that it has now.
    async fn cut_off(&self) -> Guard {
        let redlock = self.handle(urls_of(&self.proxies)).build().unwrap();
        let guard = full(&redlock, &self.servers).await;
        guard.extend(self.ttl).await.unwrap();
        for proxy in &self.proxies {
            proxy.drop(Direction::ToServer);
            proxy.drop(Direction::ToClient);
        }
        self.granted(0, &guard);
        guard
    }

    fn granted(&self, contender: usize, guard: &Guard) {
        let until = self.clock.now().saturating_add(guard.remaining());
        self.history.contender(contender, "a").granted("a token", until);
    }

    /// Empties this many masters, and returns the checker's result for the two holders. `None` if
    /// the first lock would have ended anyway.
    async fn judge(&self, forgetful: usize) -> Option<Result<Guard, Box<Overlap>>> {
        let first = self.cut_off().await;
        self.servers[..forgetful].iter().for_each(|server| server.kill());
        self.servers[..forgetful].iter().for_each(|server| server.restart_empty().unwrap());
        let second = self.handle(self.servers.urls()).build().unwrap();
        if !first.is_held() {
            return None;
        }
        let second = second.lock("a").wait(self.ttl * 3).await.unwrap();
        self.granted(1, &second);
        Some(check(&self.history.records()).map(|claims| {
            assert_eq!(claims, 2);
            second
        }))
    }
}

async fn are_forgiven(forgetful: usize) {
    outlived(async |ttl| {
        let contest = Contest::new(Quarantine::On, ttl).await;
        let begun = Instant::now();
        let judged = contest.judge(forgetful).await?;
        let second = judged.unwrap_or_else(|overlap| panic!("{overlap}"));
        eventually("all masters vote again", || second.copies() == MASTERS).await;
        assert!(begun.elapsed() >= ttl * 11 / 10, "{:?}", begun.elapsed());
        second.release().await.unwrap();
        Some(())
    })
    .await;
}

#[tokio::test]
async fn master_restarted_empty_makes_no_second_holder() {
    are_forgiven(1).await;
}

#[tokio::test]
async fn two_masters_restarted_empty_make_no_second_holder() {
    are_forgiven(2).await;
}

#[tokio::test]
async fn all_masters_restarted_empty_make_no_second_holder() {
    are_forgiven(MASTERS).await;
}

/// Without a quarantine, the fault that the tests above exclude does occur.
#[tokio::test]
async fn without_quarantine_an_empty_majority_makes_a_second_holder() {
    outlived(async |ttl| Contest::new(Quarantine::Off, ttl).await.judge(3).await?.err()).await;
}

/// One of the guards is never extended: only the push tells what became of its copy.
#[tokio::test]
async fn flush_of_one_master_ends_no_lock_and_its_copy_returns() {
    let (servers, redlock) = admitted(3).await;
    let guard = full(&redlock, &servers).await;
    let other = on_all(|| redlock.lock("b").auto_extend(false)).await;
    let begun = Instant::now();
    run(&servers[0], &["FLUSHALL"]);
    let disowned = || guard.copies() <= 2 && other.copies() <= 2;
    eventually("its copies are disowned", disowned).await;
    eventually("it has a copy that counts", || guard.copies() == 3).await;
    assert!(begun.elapsed() >= LENGTH, "{:?}", begun.elapsed());
    guard.check().unwrap();
    guard.release().await.unwrap();
}

#[tokio::test]
async fn deleted_ballots_are_noticed_by_the_next_connection() {
    let (servers, _) = admitted(3).await;
    let sets: Vec<String> = text(&servers[0], &["KEYS", "redlock-quorum:1:*"]);
    assert_eq!(sets.len(), 1, "{sets:?}");
    run(&servers[0], &["DEL", &sets[0]]);
    let redlock = handle(&servers).build().unwrap();
    let guard = redlock.lock("a").wait(secs(5)).await.unwrap();
    let deadline = Instant::now() + secs(10);
    while redlock.inspect().await[0].standing != Standing::Quarantine {
        assert!(Instant::now() < deadline, "{:?}", redlock.inspect().await[0]);
    }
    eventually("it votes again", || guard.copies() == 3).await;
    assert_eq!(text::<u32>(&servers[0], &["ZCARD", &sets[0]]), 1_024);
    guard.release().await.unwrap();
}

/// None of them stays for the length of a quarantine.
#[tokio::test]
async fn short_lived_clients_end_a_quarantine() {
    let (servers, _) = admitted(3).await;
    servers[0].kill();
    servers[0].restart_empty().unwrap();
    let run = || text::<Option<String>>(&servers[0], &["HGET", "redlock-quorum:1", "run"]);
    let (begun, mut visits) = (Instant::now(), 0);
    while run().is_none() {
        assert!(begun.elapsed() < LENGTH * 8, "{visits} visits");
        let visitor = handle(&servers).build().unwrap();
        // A visitor that does not reach two masters in time is also a visit.
        if let Ok(guard) = visitor.try_lock("a").await {
            let _ = guard.release().await;
            visits += 1;
        }
        let _ = visitor.shutdown(ms(500)).await;
        // No client is connected between two visits.
        tokio::time::sleep(ms(300)).await;
    }
    assert!(visits > 3 && begun.elapsed() >= LENGTH, "{visits} visits, {:?}", begun.elapsed());
}

/// Calls again if not all masters were read in time, as an operator would.
async fn called(caller: &Redlock) -> usize {
    loop {
        match caller.init().await {
            Err(InitError::Unread { .. }) => {}
            ended => return ended.unwrap().admitted(),
        }
    }
}

#[tokio::test]
async fn ten_concurrent_init_calls_agree_and_repeat_without_effect() {
    let servers = RedisServers::with(MASTERS, &ServerOptions::new().brand_new()).unwrap();
    let callers: Vec<_> = (0..10).map(|_| handle(&servers).build().unwrap()).collect();
    let record = |server| text::<Vec<String>>(server, &["HGETALL", "redlock-quorum:1"]);
    let records = || servers.iter().map(record).collect::<Vec<_>>();
    let mut before = None;
    for _ in 0..2 {
        let calls = callers.iter().map(called);
        assert_eq!(in_time(futures::future::join_all(calls)).await, [MASTERS; 10]);
        assert!(before.is_none_or(|before| before == records()), "the second call has written");
        before = Some(records());
    }
    callers[9].try_lock("a").await.unwrap().release().await.unwrap();
}
