//! Real masters that lose what they knew while a lock is held.

use std::sync::Arc;
use std::time::Duration;

use redlock_core::Clock;
use redlock_quorum::{Guard, Quarantine, Redlock, RedlockBuilder, Standing};
use redlock_testkit::{
    Direction, FaultProxy, History, Overlap, RedisServers, ServerOptions, check,
};
use tokio::time::Instant;

use crate::admission::{admitted, full, handle, run};
use crate::lab::{eventually, in_time, ms, on_all, secs, text, urls_of};

/// How long a quarantine takes.
const LENGTH: Duration = ms(2_200);
const MASTERS: usize = 5;

/// One holder, cut off from all masters, and one that comes while the lock of the first is valid.
struct Contest {
    servers: RedisServers,
    proxies: Vec<FaultProxy>,
    quarantine: Quarantine,
    clock: Clock,
    history: Arc<History>,
}

impl Contest {
    async fn new(quarantine: Quarantine) -> Self {
        let servers = match quarantine {
            Quarantine::Off => {
                RedisServers::with(MASTERS, &ServerOptions::new().brand_new()).unwrap()
            }
            _ => admitted(MASTERS).await.0,
        };
        let proxies = servers.proxied().await.unwrap();
        let clock = Clock::system();
        let history = Arc::new(History::new(clock.clone()));
        Self { servers, proxies, quarantine, clock, history }
    }

    fn handle(&self) -> RedlockBuilder {
        handle(&self.servers).quarantine(self.quarantine).clock(self.clock.clone())
    }

    /// The guard believes in its lock until the deadline that it has now.
    async fn cut_off(&self) -> Guard {
        let redlock = Redlock::builder().nodes(urls_of(&self.proxies));
        let redlock = redlock.quarantine(self.quarantine).clock(self.clock.clone());
        let redlock = redlock.max_ttl(secs(2)).ttl(secs(2)).node_timeout(ms(400)).build().unwrap();
        let guard = full(&redlock, &self.servers).await;
        guard.extend(secs(2)).await.unwrap();
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

    /// So many masters die and come back with nothing. What the checker says of the two holders.
    async fn judge(&self, forgetful: usize) -> Result<Guard, Box<Overlap>> {
        let first = self.cut_off().await;
        self.servers[..forgetful].iter().for_each(|server| server.kill());
        self.servers[..forgetful].iter().for_each(|server| server.restart_empty().unwrap());
        assert!(first.is_held(), "it took too long: nothing is shown");
        let second = self.handle().build().unwrap();
        let second = in_time(second.lock("a").wait(secs(20)).into_future()).await.unwrap();
        self.granted(1, &second);
        let claims = check(&self.history.records())?;
        assert_eq!(claims, 2);
        Ok(second)
    }
}

async fn are_forgiven(forgetful: usize) {
    let contest = Contest::new(Quarantine::On).await;
    let begun = Instant::now();
    let second = contest.judge(forgetful).await.unwrap_or_else(|overlap| panic!("{overlap}"));
    eventually("all masters vote again", || second.copies() == MASTERS).await;
    assert!(begun.elapsed() >= LENGTH, "{:?}", begun.elapsed());
    second.release().await.unwrap();
}

#[tokio::test]
async fn a_master_that_comes_back_empty_makes_no_second_holder() {
    are_forgiven(1).await;
}

#[tokio::test]
async fn two_masters_that_come_back_empty_make_no_second_holder() {
    are_forgiven(2).await;
}

#[tokio::test]
async fn masters_that_all_come_back_empty_make_no_second_holder() {
    are_forgiven(MASTERS).await;
}

/// What the tests above show can be seen.
#[tokio::test]
async fn without_a_quarantine_a_majority_that_comes_back_empty_makes_a_second_holder() {
    let contest = Contest::new(Quarantine::Off).await;
    assert!(contest.judge(3).await.is_err());
}

/// One of the guards is never extended: only the push tells what became of its copy.
#[tokio::test]
async fn a_flush_of_one_master_ends_no_lock_and_its_copy_comes_back() {
    let (servers, redlock) = admitted(3).await;
    let guard = full(&redlock, &servers).await;
    let other = on_all(|| redlock.lock("b").auto_extend(false)).await;
    let begun = Instant::now();
    run(&servers[0], &["FLUSHALL"]);
    eventually("its copies are disowned", || (guard.copies(), other.copies()) == (2, 2)).await;
    eventually("it has a copy that counts", || guard.copies() == 3).await;
    assert!(begun.elapsed() >= LENGTH, "{:?}", begun.elapsed());
    guard.check().unwrap();
    guard.release().await.unwrap();
}

#[tokio::test]
async fn ballots_that_were_deleted_are_noticed_by_the_next_connection() {
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
async fn clients_that_live_a_moment_end_a_quarantine() {
    let (servers, _) = admitted(3).await;
    servers[0].kill();
    servers[0].restart_empty().unwrap();
    let run = || text::<Option<String>>(&servers[0], &["HGET", "redlock-quorum:1", "run"]);
    let (begun, mut visits) = (Instant::now(), 0);
    while run().is_none() {
        assert!(begun.elapsed() < secs(20), "{visits} visits");
        let visitor = handle(&servers).build().unwrap();
        visitor.try_lock("a").await.unwrap().release().await.unwrap();
        visitor.shutdown(ms(500)).await.unwrap();
        visits += 1;
        // Nobody is there between two visits.
        tokio::time::sleep(ms(300)).await;
    }
    assert!(visits > 3 && begun.elapsed() >= LENGTH, "{visits} visits, {:?}", begun.elapsed());
}

#[tokio::test]
async fn ten_that_call_init_at_once_agree_and_write_nothing_the_second_time() {
    let servers = RedisServers::with(MASTERS, &ServerOptions::new().brand_new()).unwrap();
    let callers: Vec<_> = (0..10).map(|_| handle(&servers).build().unwrap()).collect();
    let record = |server| text::<Vec<String>>(server, &["HGETALL", "redlock-quorum:1"]);
    let records = || servers.iter().map(record).collect::<Vec<_>>();
    let mut before = None;
    for _ in 0..2 {
        let calls = callers.iter().map(|caller| caller.init());
        for outcome in in_time(futures::future::join_all(calls)).await {
            assert_eq!(outcome.unwrap().admitted(), MASTERS);
        }
        assert!(before.is_none_or(|before| before == records()), "the second call has written");
        before = Some(records());
    }
    callers[9].try_lock("a").await.unwrap().release().await.unwrap();
}
