//! Events that give a real server another identity, and events that do not.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use redlock_quorum::{NodeReport, Redlock, Standing};
use redlock_testkit::{RedisServer, RedisServers, ServerOptions};
use tokio::time::{Instant, sleep};

use crate::admission::{full, handle, run};
use crate::lab::{eventually, ms, secs, text};

/// Replicas are served immediately.
fn options() -> ServerOptions {
    ServerOptions::new().brand_new().arguments(["--repl-diskless-sync-delay", "0"])
}

async fn admitted() -> (RedisServers, Redlock) {
    let servers = RedisServers::with(3, &options()).unwrap();
    let redlock = handle(&servers).build().unwrap();
    assert_eq!(redlock.init().await.unwrap().admitted(), 3);
    (servers, redlock)
}

async fn follow(replica: &RedisServer, master: &RedisServer) {
    run(replica, &["REPLICAOF", "127.0.0.1", &master.port().to_string()]);
    let is_up = || text::<String>(replica, &["INFO", "replication"]).contains("link_status:up");
    eventually("the replica has all", is_up).await;
}

/// Does the same as `redis-cli --rdb`.
pub(crate) fn back_up(master: &RedisServer) {
    let mut stream = TcpStream::connect(master.name()).unwrap();
    stream.set_read_timeout(Some(secs(10))).unwrap();
    stream.write_all(b"REPLCONF rdb-only 1\r\n").unwrap();
    read_up_to(&mut stream, b"OK\r\n");
    stream.write_all(b"SYNC\r\n").unwrap();
    // The snapshots of Redis and Valkey contain it.
    read_up_to(&mut stream, b"repl-id");
}

fn read_up_to(stream: &mut TcpStream, end: &[u8]) {
    let (mut answer, mut some) = (Vec::new(), [0; 4_096]);
    while !answer.windows(end.len()).any(|window| window == end) {
        let read = match stream.read(&mut some) {
            // The process was stopped and continued.
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            read => read.unwrap(),
        };
        assert!(read > 0, "it has hung up after {} bytes", answer.len());
        answer.extend_from_slice(&some[..read]);
    }
}

fn record(server: &RedisServer) -> Vec<String> {
    text(server, &["HGETALL", "redlock-quorum:1"])
}

async fn standing(redlock: &Redlock, wanted: Standing) -> NodeReport {
    let deadline = Instant::now() + secs(20);
    loop {
        let report = redlock.inspect().await.remove(0);
        if report.standing == wanted {
            return report;
        }
        assert!(Instant::now() < deadline, "{report:?}");
        sleep(ms(5)).await;
    }
}

/// Returns the state of all masters as soon as all of them are reached. A busy machine may need more
/// time for a connection than an inspection has.
async fn standings(redlock: &Redlock) -> Vec<Standing> {
    let deadline = Instant::now() + secs(20);
    loop {
        let reports = redlock.inspect().await.into_iter();
        let found: Vec<_> = reports.map(|report| report.standing).collect();
        if !found.contains(&Standing::Unreachable) || Instant::now() > deadline {
            return found;
        }
        sleep(ms(5)).await;
    }
}

#[tokio::test]
async fn backup_or_temporary_replica_begins_no_quarantine() {
    let (servers, redlock) = admitted().await;
    let guard = full(&redlock, &servers).await;
    let before = record(&servers[0]);
    let replica = RedisServer::with(&options()).unwrap();
    follow(&replica, &servers[0]).await;
    run(&replica, &["REPLICAOF", "NO", "ONE"]);
    back_up(&servers[0]);
    let newcomer = handle(&servers).build().unwrap();
    newcomer.try_lock("b").await.unwrap().release().await.unwrap();
    assert_eq!(standings(&newcomer).await, [Standing::Admitted; 3]);
    assert_eq!(record(&servers[0]), before);
    eventually("its copies count", || guard.copies() == 3).await;
    guard.release().await.unwrap();
}

/// It keeps its process, and what it then has is another's.
#[tokio::test]
async fn master_that_was_briefly_a_replica_is_in_quarantine() {
    let (servers, redlock) = admitted().await;
    let guard = full(&redlock, &servers).await;
    let before = standing(&redlock, Standing::Admitted).await.server.unwrap();
    follow(&servers[0], &servers[1]).await;
    run(&servers[0], &["REPLICAOF", "NO", "ONE"]);
    standing(&redlock, Standing::Quarantine).await;
    guard.check().unwrap();
    let after = standing(&redlock, Standing::Admitted).await.server.unwrap();
    assert_eq!(after.run_id, before.run_id);
    assert_ne!(after.admitted_as, before.admitted_as);
    eventually("its copy counts again", || guard.copies() == 3).await;
    guard.release().await.unwrap();
}
