//! Mutual exclusion, with many contenders and masters that fall away under them.

mod dead_masters;
pub(crate) mod interop;
mod storm;
mod strangers;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use redlock_core::Clock;
use redlock_quorum::Redlock;
use redlock_testkit::{History, RedisServers, check};
use tokio::task::{JoinSet, yield_now};
use tokio::time::{Instant, sleep};

use crate::lab::{hasty, masters, ms, no_key_is_left, secs};

const HANDLES: usize = 5;
const CONTENDERS: usize = 50;
const SECTIONS_EACH: usize = 2;

/// A section that only one contender may enter at a time.
struct Section {
    inside: AtomicUsize,
    /// Read and written in two steps, as a careless program would.
    total: AtomicUsize,
}

impl Section {
    async fn work(&self) {
        assert_eq!(
            self.inside.fetch_add(1, Ordering::SeqCst),
            0,
            "another holder is already inside"
        );
        let total = self.total.load(Ordering::SeqCst);
        yield_now().await;
        sleep(ms(1)).await;
        self.total.store(total + 1, Ordering::SeqCst);
        self.inside.fetch_sub(1, Ordering::SeqCst);
    }
}

struct Contest {
    clock: Clock,
    history: Arc<History>,
    section: Arc<Section>,
    contenders: JoinSet<()>,
}

impl Contest {
    /// Fifty contenders with five handles set out for the same key.
    fn start(servers: &RedisServers) -> Self {
        let clock = Clock::system();
        let history = Arc::new(History::new(clock.clone()));
        let section = Section { inside: AtomicUsize::new(0), total: AtomicUsize::new(0) };
        let (section, contenders) = (Arc::new(section), JoinSet::new());
        let mut contest = Self { clock, history, section, contenders };
        for _ in 0..HANDLES {
            let redlock = hasty(servers.urls()).clock(contest.clock.clone()).build().unwrap();
            for _ in 0..CONTENDERS / HANDLES {
                contest.enter(redlock.clone());
            }
        }
        contest
    }

    fn enter(&mut self, redlock: Redlock) {
        let number = self.contenders.len();
        let log = self.history.contender(number, "the one");
        let (clock, section) = (self.clock.clone(), self.section.clone());
        self.contenders.spawn(async move {
            for round in 0..SECTIONS_EACH {
                log.invoke();
                let guard = redlock.lock("the one").wait(secs(60)).await.unwrap();
                let token = format!("{number}/{round}");
                log.granted(&token, clock.now().saturating_add(guard.remaining()));
                section.work().await;
                log.released(&token);
                // A slow machine may not confirm it in time. The history shows the result.
                let _ = guard.release().await;
            }
        });
    }

    fn total(&self) -> usize {
        self.section.total.load(Ordering::SeqCst)
    }

    async fn past(&self, total: usize) {
        let deadline = Instant::now() + secs(60);
        while self.total() < total {
            assert!(Instant::now() < deadline, "{} sections of {total}", self.total());
            sleep(ms(1)).await;
        }
    }

    async fn finish(mut self) {
        while let Some(contender) = self.contenders.join_next().await {
            contender.unwrap();
        }
        assert_eq!(self.total(), CONTENDERS * SECTIONS_EACH, "an update was lost");
        let claims = check(&self.history.records()).unwrap_or_else(|overlap| panic!("{overlap}"));
        assert_eq!(claims, CONTENDERS * SECTIONS_EACH);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_one_of_fifty_contenders_holds_the_lock() {
    let servers = masters();
    Contest::start(&servers).finish().await;
    no_key_is_left(&servers).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_holder_while_masters_die_or_fall_silent() {
    let servers = masters();
    let contest = Contest::start(&servers);
    contest.past(20).await;
    servers[1].kill();
    contest.past(40).await;
    servers[3].pause().unwrap();
    contest.past(60).await;
    servers[3].resume().unwrap();
    contest.finish().await;
    no_key_is_left(&servers).await;
}
