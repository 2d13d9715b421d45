//! Locks with fencing tokens and locks without on one key: they exclude each other, and those with
//! one are in the order of their tokens. Needs a server on the PATH.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use redlock_quorum::{AcquireError, FencingToken, Guard, Redlock};
use redlock_testkit::{RedisServer, RedisServers};
use tokio::task::JoinSet;

use crate::exclusion::interop::COMPARE_AND_DELETE;
use crate::lab::{PATIENCE, eventually, masters, ms, no_key_is_left, patient, text};

const KEY: &str = "orders:42";

fn fenced(servers: &RedisServers) -> Redlock {
    patient(servers.urls()).build().unwrap()
}

fn plain(servers: &RedisServers) -> Redlock {
    patient(servers.urls()).fencing(false).build().unwrap()
}

fn token(guard: &Guard) -> FencingToken {
    guard.fencing_token().expect("a lock of a fenced handle has a token")
}

/// All that happens on a key while one handle holds it and another wants it.
async fn excludes(holder: &Redlock, other: &Redlock) {
    let guard = holder.lock(KEY).await.unwrap();
    let error = other.try_lock(KEY).await.unwrap_err();
    assert!(matches!(error, AcquireError::Held { .. }), "{error}");
    let waiting = tokio::spawn(other.lock(KEY).wait(PATIENCE).into_future());
    eventually("it waits", || other.stats().waiting == 1).await;
    guard.extend(ms(20_000)).await.unwrap();
    assert!(guard.is_held() && !waiting.is_finished());
    guard.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn plain_and_fenced_clients_exclude_each_other() {
    let servers = masters();
    let (plain, fenced) = (plain(&servers), fenced(&servers));
    excludes(&plain, &fenced).await;
    excludes(&fenced, &plain).await;
    let first = fenced.lock(KEY).await.unwrap();
    let before = token(&first);
    first.release().await.unwrap();
    let between = plain.lock(KEY).await.unwrap();
    assert_eq!((between.fencing_token(), between.hold().fencing_token()), (None, None));
    assert_eq!(between.into_lease().fencing_token, None);
    // It is released only by its token, so that only its time could distinguish it from another
    // lock.
    for server in servers.iter() {
        server.command(&["DEL", KEY]).unwrap();
    }
    let last = fenced.lock(KEY).await.unwrap();
    assert!(token(&last) > before, "{} after {before}", token(&last));
    last.release().await.unwrap();
}

#[tokio::test]
async fn plain_client_does_not_use_scores() {
    let servers = masters();
    let scores = |server: &RedisServer| -> Vec<String> {
        let sets: Vec<String> = text(server, &["KEYS", "redlock-quorum:1:ballots:*"]);
        text(server, &["ZRANGE", &sets[0], "0", "-1", "WITHSCORES"])
    };
    let before: Vec<_> = servers.iter().map(scores).collect();
    assert!(before.iter().all(|scores| scores.len() == 2 * 1_024));
    let redlock = plain(&servers);
    for _ in 0..10 {
        redlock.lock(KEY).await.unwrap().release().await.unwrap();
    }
    for (server, before) in servers.iter().zip(before) {
        assert_eq!(scores(server), before);
        assert_eq!(redlock_testkit::lab::calls(server, "zscore"), 0);
    }
}

/// redlock-py, as masters see it: SET on one after the other, and its script on all of them to
/// release, or to clean up.
struct Other {
    servers: Arc<RedisServers>,
    token: String,
}

impl Other {
    fn lock(&self) -> bool {
        let set = |server: &RedisServer| {
            let reply = server.command(&["SET", KEY, &self.token, "NX", "PX", "30000"]);
            matches!(reply, Ok(redis::Value::Okay))
        };
        let is_won = self.servers.iter().filter(|server| set(server)).count() >= 3;
        if !is_won {
            self.unlock();
        }
        is_won
    }

    fn unlock(&self) {
        for server in self.servers.iter() {
            let eval = ["EVAL", COMPARE_AND_DELETE, "1", KEY, &self.token];
            server.command(&eval).unwrap();
        }
    }
}

/// The protected section. It notices two holders at the same time, and records all tokens.
#[derive(Default)]
struct Room {
    is_taken: AtomicBool,
    visits: AtomicUsize,
    tokens: Mutex<Vec<FencingToken>>,
}

impl Room {
    fn enter(&self, token: Option<FencingToken>) {
        assert!(!self.is_taken.swap(true, Ordering::SeqCst), "two are inside");
        self.visits.fetch_add(1, Ordering::SeqCst);
        self.tokens.lock().unwrap().extend(token);
    }

    fn leave(&self) {
        assert!(self.is_taken.swap(false, Ordering::SeqCst), "two were inside");
    }
}

const VISITS: usize = 10;

async fn visit(redlock: Redlock, room: Arc<Room>) {
    for _ in 0..VISITS {
        let guard = redlock.lock(KEY).wait(PATIENCE).await.unwrap();
        room.enter(guard.fencing_token());
        tokio::time::sleep(ms(1)).await;
        room.leave();
        guard.release().await.unwrap();
        // The others poll: they get the lock in the pauses.
        tokio::time::sleep(ms(rand::random_range(0..40))).await;
    }
}

fn visit_as_another(servers: Arc<RedisServers>, room: &Room) {
    let end = Instant::now() + PATIENCE;
    for visit in 0..VISITS {
        let token = format!("another{visit:0>8}{:0>16x}", rand::random::<u64>());
        let other = Other { servers: servers.clone(), token };
        while !other.lock() {
            assert!(Instant::now() < end, "it never got the lock");
            thread::sleep(Duration::from_millis(rand::random_range(1..20)));
        }
        room.enter(None);
        thread::sleep(Duration::from_millis(1));
        room.leave();
        other.unlock();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_libraries_and_fenced_clients_exclude_each_other() {
    let servers = Arc::new(masters());
    let room = Arc::new(Room::default());
    let mut visitors = JoinSet::new();
    for _ in 0..2 {
        visitors.spawn(visit(fenced(&servers), room.clone()));
        visitors.spawn(visit(plain(&servers), room.clone()));
        let (servers, room) = (servers.clone(), room.clone());
        visitors.spawn_blocking(move || visit_as_another(servers, &room));
    }
    visitors.join_all().await;
    assert_eq!(room.visits.load(Ordering::SeqCst), 6 * VISITS);
    let tokens = room.tokens.lock().unwrap().clone();
    assert_eq!(tokens.len(), 2 * VISITS, "the numbers of the two fenced handles");
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
    no_key_is_left(&servers).await;
}
