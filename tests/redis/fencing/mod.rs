//! Fencing tokens on real servers that lose what they knew, refuse, or go by wrong clocks.

mod ballot_set;
mod clocks;
mod losses;
mod rights;
mod steps;

use std::sync::Mutex;
use std::time::{Duration, Instant};

use redlock_quorum::{AcquireError, FencingToken, Guard, NodeReport, Redlock, Standing};
use redlock_testkit::RedisServer;
use tokio::time::sleep;

use crate::admission::handle_on;
use crate::lab::{in_time, ms, secs, text};

const KEY: &str = "orders:42";
/// How long a quarantine takes.
const LENGTH: Duration = ms(2_200);

/// The tokens of one resource that were handed out, and when somebody has asked for them.
#[derive(Default)]
struct Tape(Mutex<Vec<Lock>>);

#[derive(Clone, Copy, Debug)]
struct Lock {
    begun: Instant,
    returned: Instant,
    token: FencingToken,
}

impl Tape {
    /// A lock of [`KEY`], which waits as long as a quarantine takes and some more.
    async fn lock(&self, redlock: &Redlock) -> Result<Guard, AcquireError> {
        let begun = Instant::now();
        let guard = in_time(redlock.lock(KEY).wait(secs(10)).into_future()).await?;
        self.note(begun, &guard);
        Ok(guard)
    }

    fn note(&self, begun: Instant, guard: &Guard) {
        let token = guard.fencing_token().expect("a lock of a fenced handle has a token");
        self.0.lock().unwrap().push(Lock { begun, returned: Instant::now(), token });
    }

    /// A lock that is given up at once.
    async fn visit(&self, redlock: &Redlock) {
        let guard = self.lock(redlock).await.unwrap();
        in_time(guard.release()).await.unwrap();
    }

    /// The largest token so far.
    fn last(&self) -> FencingToken {
        self.0.lock().unwrap().iter().map(|lock| lock.token).max().expect("there is one")
    }

    /// Tokens are unique, and one that was asked for after another had come is larger.
    fn check(&self) {
        let locks = self.0.lock().unwrap();
        assert!(locks.len() > 1, "nothing is shown");
        for (place, a) in locks.iter().enumerate() {
            for b in &locks[place + 1..] {
                assert!(a.token != b.token, "{a:?} and {b:?}");
                assert!(a.returned > b.begun || a.token < b.token, "{a:?} before {b:?}");
                assert!(b.returned > a.begun || b.token < a.token, "{b:?} before {a:?}");
            }
        }
    }
}

impl Drop for Tape {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.check();
        }
    }
}

/// A handle that was never asked before.
fn newcomer(servers: &[RedisServer]) -> Redlock {
    handle_on(servers.iter().map(RedisServer::url)).build().unwrap()
}

async fn until(redlock: &Redlock, at: usize, wanted: Standing) -> NodeReport {
    let deadline = Instant::now() + secs(20);
    loop {
        let report = redlock.inspect().await.remove(at);
        if report.standing == wanted {
            return report;
        }
        assert!(Instant::now() < deadline, "{report:?}");
        sleep(ms(5)).await;
    }
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
