//! Fencing tokens on real servers that lose what they knew, refuse, or go by wrong clocks.

mod ballot_set;
mod ballots;
mod clocks;
mod kills;
mod losses;
mod rights;
mod steps;
mod two_modes;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};

use redlock_core::Clock;
use redlock_quorum::{AcquireError, Guard, Redlock};
use redlock_testkit::{Contender, Disorder, History, RedisServer, check_tokens};

use crate::admission::{LENGTH, handle_on, until};
use crate::lab::{in_time, secs, text};

const KEY: &str = "orders:42";

/// The tokens handed out for one resource, and when each was requested.
struct Tape {
    clock: Clock,
    history: Arc<History>,
    locks: AtomicUsize,
    last: AtomicU64,
}

impl Default for Tape {
    fn default() -> Self {
        let clock = Clock::system();
        let history = Arc::new(History::new(clock.clone()));
        Self { clock, history, locks: AtomicUsize::default(), last: AtomicU64::default() }
    }
}

impl Tape {
    /// A lock of [`KEY`], which waits as long as a quarantine takes and some more.
    async fn lock(&self, redlock: &Redlock) -> Result<Guard, AcquireError> {
        let contender = self.begin();
        let guard = in_time(redlock.lock(KEY).wait(secs(15)).into_future()).await?;
        self.note(&contender, &guard);
        Ok(guard)
    }

    /// Records that a new contender requests a lock.
    fn begin(&self) -> Contender {
        let contender = self.history.contender(self.locks.fetch_add(1, Relaxed), KEY);
        contender.invoke();
        contender
    }

    fn note(&self, contender: &Contender, guard: &Guard) {
        let token = guard.fencing_token().expect("a lock of a fenced handle has a token").get();
        let until = self.clock.now().saturating_add(guard.remaining());
        contender.fenced(guard.token().as_str(), token, until);
        self.last.fetch_max(token, Relaxed);
    }

    /// Acquires a lock and releases it immediately.
    async fn visit(&self, redlock: &Redlock) {
        let guard = self.lock(redlock).await.unwrap();
        in_time(guard.release()).await.unwrap();
    }

    /// The largest token so far.
    fn last(&self) -> u64 {
        self.last.load(Relaxed)
    }

    fn check(&self) -> Result<usize, Box<Disorder>> {
        check_tokens(&self.history.records())
    }
}

impl Drop for Tape {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let tokens = self.check().unwrap_or_else(|disorder| panic!("{disorder}"));
            assert!(tokens > 1, "nothing is shown");
        }
    }
}

/// Creates a handle without earlier requests.
fn newcomer(servers: &[RedisServer]) -> Redlock {
    handle_on(servers.iter().map(RedisServer::url)).build().unwrap()
}

/// The names of the ballot sets that a server has.
fn sets(server: &RedisServer) -> Vec<String> {
    text(server, &["KEYS", "redlock-quorum:1:ballots*"])
}

/// The name of its only one, and that it is complete.
fn complete(server: &RedisServer) -> String {
    let mut sets = sets(server);
    assert_eq!(sets.len(), 1, "{sets:?}");
    assert_eq!(text::<u32>(server, &["ZCARD", &sets[0]]), 1_024);
    sets.remove(0)
}
