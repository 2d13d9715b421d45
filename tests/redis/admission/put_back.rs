//! Real masters that keep running and get an old copy of their data.

use std::time::Duration;

use redlock_quorum::{AcquireError, NotAdmitted, Redlock, RedlockBuilder, Standing, WhyNot};
use redlock_testkit::{RedisServer, RedisServers, ServerOptions};
use tokio::time::Instant;

use crate::admission::{AGAIN, handle, run, until};
use crate::lab::{has_setting, in_time, secs};

/// Long enough that the first lock is alive to the end, on any machine.
const TTL: Duration = secs(60);

fn client(servers: &RedisServers) -> RedlockBuilder {
    handle(servers).max_ttl(TTL).ttl(TTL)
}

async fn admitted() -> (RedisServers, Redlock) {
    let servers = RedisServers::with(3, &ServerOptions::new().brand_new()).unwrap();
    let redlock = client(&servers).build().unwrap();
    assert_eq!(redlock.init().await.unwrap().admitted(), 3);
    (servers, redlock)
}

/// All keys of the server, and what `DUMP` makes of each.
struct Copy(Vec<(String, Vec<u8>)>);

impl Copy {
    fn of(server: &RedisServer) -> Self {
        let mut outsider = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
        let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut outsider).unwrap();
        let mut dump = |key: String| {
            let dump: Vec<u8> = redis::cmd("DUMP").arg(&key).query(&mut outsider).unwrap();
            (key, dump)
        };
        Self(keys.into_iter().map(&mut dump).collect())
    }

    /// In one step, as a reload of the data is one.
    fn put_back(&self, server: &RedisServer) {
        let mut outsider = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
        let mut writes = redis::pipe();
        writes.atomic().cmd("FLUSHALL").ignore();
        for (key, dump) in &self.0 {
            writes.cmd("RESTORE").arg(key).arg(0).arg(&dump[..]).ignore();
        }
        writes.query::<()>(&mut outsider).unwrap();
    }
}

fn copies(servers: &RedisServers) -> Vec<Copy> {
    servers.iter().map(Copy::of).collect()
}

fn put_back(servers: &RedisServers, copies: &[Copy]) {
    servers.iter().zip(copies).for_each(|(server, copy)| copy.put_back(server));
}

/// Another client locks now, and dies.
async fn locked(servers: &RedisServers) -> Instant {
    let holder = client(servers).build().unwrap();
    let held = Instant::now();
    in_time(holder.lock("a").into_future()).await.unwrap().forget();
    holder.shutdown(secs(1)).await.unwrap();
    held
}

/// It gets no lock, and says why, while the first lock is valid.
async fn is_refused(redlock: &Redlock, held: Instant) {
    let refused = in_time(redlock.lock("a").wait(secs(2)).into_future()).await;
    assert!(held.elapsed() < TTL * 9 / 10, "it took too long: nothing is shown");
    let Err(AcquireError::NoQuorum { votes, .. }) = refused else { panic!("{refused:?}") };
    let why = |not: &NotAdmitted| not.why;
    let whys: Vec<_> = votes.iter().map(|vote| vote.not_admitted.as_ref().map(why)).collect();
    let says = |why: &Option<WhyNot>| {
        // A quarantine starts immediately, and its record does not show more than that.
        matches!(why, Some(WhyNot::Outdated | WhyNot::Restarted | WhyNot::Checked))
    };
    assert!(whys.iter().all(says), "{votes}");
}

#[tokio::test]
async fn restored_record_makes_no_second_holder() {
    let (servers, redlock) = admitted().await;
    let copies = copies(&servers);
    let held = locked(&servers).await;
    servers.iter().for_each(|server| run(server, &["FLUSHALL"]));
    for at in 0..3 {
        // No client has requested a lock yet, so no quarantine starts.
        until(&redlock, at, Standing::None).await;
    }
    put_back(&servers, &copies);
    is_refused(&redlock, held).await;
}

#[tokio::test]
async fn record_older_than_the_latest_init_makes_no_second_holder() {
    let (servers, redlock) = admitted().await;
    let copies = copies(&servers);
    servers.iter().for_each(|server| run(server, &["FLUSHALL"]));
    assert_eq!(redlock.init_with(AGAIN).await.unwrap().admitted(), 3);
    let held = locked(&servers).await;
    put_back(&servers, &copies);
    is_refused(&redlock, held).await;
}

/// Servers from 7.0 on reload only if their configuration allowed it at the start.
fn reloadable() -> RedisServers {
    const SETTING: &str = "enable-debug-command";
    let mut options = ServerOptions::new().brand_new();
    if has_setting(&RedisServer::start().unwrap(), SETTING) {
        options = options.arguments([&format!("--{SETTING}"), "local"]);
    }
    RedisServers::with(3, &options).unwrap()
}

/// The last snapshot becomes the data of the process that runs.
fn reload(servers: &RedisServers) {
    servers.iter().for_each(|server| run(server, &["DEBUG", "RELOAD", "NOSAVE"]));
}

#[tokio::test]
async fn snapshot_older_than_a_read_record_makes_no_second_holder() {
    for again in [false, true] {
        let servers = reloadable();
        let redlock = client(&servers).build().unwrap();
        assert_eq!(redlock.init().await.unwrap().admitted(), 3);
        servers.iter().for_each(|server| run(server, &["SAVE"]));
        let mut held = Instant::now();
        if !again {
            held = locked(&servers).await;
        }
        servers.iter().for_each(|server| run(server, &["FLUSHALL"]));
        if again {
            assert_eq!(redlock.init_with(AGAIN).await.unwrap().admitted(), 3);
            held = locked(&servers).await;
        } else {
            for at in 0..3 {
                until(&redlock, at, Standing::None).await;
            }
        }
        reload(&servers);
        is_refused(&redlock, held).await;
    }
}

/// `docs/SAFETY.md` states that this is not noticed.
#[tokio::test]
async fn snapshot_with_the_present_record_makes_a_second_holder() {
    let servers = reloadable();
    let redlock = client(&servers).build().unwrap();
    assert_eq!(redlock.init().await.unwrap().admitted(), 3);
    servers.iter().for_each(|server| run(server, &["SAVE"]));
    let held = locked(&servers).await;
    reload(&servers);
    let second = in_time(redlock.lock("a").wait(secs(5)).into_future()).await.unwrap();
    assert!(held.elapsed() < TTL * 9 / 10, "it took too long: nothing is shown");
    second.release().await.unwrap();
}
