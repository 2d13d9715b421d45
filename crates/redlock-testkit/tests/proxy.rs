//! The fault proxy before a real server. Needs `redis-server` or `valkey-server`.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says so what it expects")]

use std::io::ErrorKind;
use std::time::Duration;

use redis::Value;
use redlock_testkit::lab::{PATIENCE, eventually, value};
use redlock_testkit::{Direction, FaultProxy, RedisServer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

/// A server, a proxy before it, and a client's connection through the proxy.
async fn connected() -> (RedisServer, FaultProxy, TcpStream) {
    let server = RedisServer::start().unwrap();
    let proxy = FaultProxy::before(&server).await.unwrap();
    let client = connect(&proxy).await;
    (server, proxy, client)
}

/// A connection through the proxy that is known to work.
async fn connect(proxy: &FaultProxy) -> TcpStream {
    let mut client = TcpStream::connect(proxy.name()).await.unwrap();
    client.set_nodelay(true).unwrap();
    send(&mut client, "PING").await;
    expect(&mut client, "+PONG\r\n").await;
    client
}

async fn send(client: &mut TcpStream, command: &str) {
    client.write_all(format!("{command}\r\n").as_bytes()).await.unwrap();
}

async fn expect(client: &mut TcpStream, reply: &str) {
    let mut bytes = vec![0; reply.len()];
    timeout(PATIENCE, client.read_exact(&mut bytes)).await.expect("a reply in time").unwrap();
    assert_eq!(String::from_utf8(bytes).unwrap(), reply);
}

/// Checks that nothing arrives for a while. Only waiting can show that.
async fn expect_silence(client: &mut TcpStream) {
    let read = timeout(Duration::from_millis(100), client.read_u8()).await;
    assert!(read.is_err(), "expected silence, got {read:?}");
}

/// Returns the error of the next read.
async fn expect_error(client: &mut TcpStream) -> ErrorKind {
    timeout(PATIENCE, client.read_u8()).await.expect("an end in time").unwrap_err().kind()
}

#[tokio::test]
async fn a_delay_each_way_adds_up() {
    let (_server, proxy, mut client) = connected().await;
    proxy.delay(Direction::Both, Duration::from_millis(60));
    let start = Instant::now();
    send(&mut client, "PING").await;
    expect(&mut client, "+PONG\r\n").await;
    assert!(start.elapsed() >= Duration::from_millis(120), "{:?}", start.elapsed());
}

#[tokio::test]
async fn delay_is_not_multiplied_by_pending_commands() {
    let (_server, proxy, mut client) = connected().await;
    let delay = Duration::from_millis(300);
    proxy.delay(Direction::ToServer, delay);
    let start = Instant::now();
    for number in 0..20 {
        send(&mut client, &format!("RPUSH list {number}")).await;
        // The pause makes the proxy read each command separately.
        sleep(Duration::from_millis(2)).await;
    }
    for length in 1..=20 {
        expect(&mut client, &format!(":{length}\r\n")).await;
    }
    assert!(start.elapsed() >= delay && start.elapsed() < 10 * delay, "{:?}", start.elapsed());
}

#[tokio::test]
async fn healing_delivers_delayed_bytes() {
    let (_server, proxy, mut client) = connected().await;
    proxy.delay(Direction::ToClient, Duration::from_secs(3600));
    send(&mut client, "PING").await;
    expect_silence(&mut client).await;
    proxy.heal();
    expect(&mut client, "+PONG\r\n").await;
}

#[tokio::test]
async fn held_bytes_arrive_in_order_after_release() {
    let (server, proxy, mut client) = connected().await;
    proxy.hold(Direction::ToServer);
    for letter in ["a", "b", "c"] {
        send(&mut client, &format!("APPEND word {letter}")).await;
        sleep(Duration::from_millis(2)).await;
    }
    expect_silence(&mut client).await;
    assert_eq!(value(&server, "word"), None);
    proxy.release(Direction::ToServer);
    send(&mut client, "APPEND word d").await;
    expect(&mut client, ":1\r\n:2\r\n:3\r\n:4\r\n").await;
    assert_eq!(value(&server, "word"), Some("abcd".into()));
}

#[tokio::test]
async fn bytes_of_a_closed_connection_still_arrive() {
    let (server, proxy, mut client) = connected().await;
    proxy.hold(Direction::ToServer);
    send(&mut client, "SET late 1 NX PX 60000").await;
    drop(client);
    // Time for the command to be executed, were it not held.
    sleep(Duration::from_millis(100)).await;
    assert_eq!(value(&server, "late"), None);
    assert_eq!(proxy.connections(), 1);
    proxy.release(Direction::ToServer);
    eventually("the late SET is executed", || value(&server, "late").is_some()).await;
    eventually("the connection ends behind it", || proxy.connections() == 0).await;
}

#[tokio::test]
async fn bytes_of_a_reset_connection_never_arrive() {
    let (server, proxy, mut client) = connected().await;
    proxy.hold(Direction::ToServer);
    send(&mut client, "SET late 1").await;
    expect_silence(&mut client).await;
    proxy.reset();
    proxy.heal();
    eventually("the connection is gone", || proxy.connections() == 0).await;
    // Commands of a later connection would be executed after the held one.
    send(&mut connect(&proxy).await, "PING").await;
    assert_eq!(value(&server, "late"), None);
}

#[tokio::test]
async fn a_lost_reply_leaves_the_command_executed() {
    let (server, proxy, mut client) = connected().await;
    proxy.drop(Direction::ToClient);
    send(&mut client, "SET key 1").await;
    eventually("the command is executed", || value(&server, "key").is_some()).await;
    expect_silence(&mut client).await;
}

#[tokio::test]
async fn stream_with_lost_bytes_stays_silent() {
    let (server, proxy, mut client) = connected().await;
    proxy.drop(Direction::ToServer);
    send(&mut client, "SET lost 1").await;
    expect_silence(&mut client).await;
    proxy.heal();
    send(&mut client, "SET behind 1").await;
    expect_silence(&mut client).await;
    connect(&proxy).await;
    assert_eq!([value(&server, "lost"), value(&server, "behind")], [None, None]);
}

#[tokio::test]
async fn stream_without_lost_bytes_continues_after_a_partition() {
    let (_server, proxy, mut client) = connected().await;
    proxy.drop(Direction::Both);
    proxy.heal();
    send(&mut client, "PING").await;
    expect(&mut client, "+PONG\r\n").await;
}

#[tokio::test]
async fn dropping_also_drops_held_bytes() {
    let (server, proxy, mut client) = connected().await;
    proxy.hold(Direction::ToServer);
    send(&mut client, "SET held 1").await;
    expect_silence(&mut client).await;
    proxy.drop(Direction::ToServer);
    proxy.heal();
    expect_silence(&mut client).await;
    assert_eq!(value(&server, "held"), None);
}

#[tokio::test]
async fn a_reset_reaches_every_open_connection_and_no_later_one() {
    let (server, proxy, mut client) = connected().await;
    let mut other = connect(&proxy).await;
    assert_eq!(proxy.connections(), 2);
    proxy.reset();
    assert_eq!(expect_error(&mut client).await, ErrorKind::ConnectionReset);
    assert_eq!(expect_error(&mut other).await, ErrorKind::ConnectionReset);
    connect(&proxy).await;
    // One connection is left: the one that sends this query.
    eventually("the server's side is gone, too", || {
        let clients = server.command(&["CLIENT", "LIST"]).unwrap();
        redis::from_redis_value::<String>(clients).unwrap().lines().count() == 1
    })
    .await;
}

#[tokio::test]
async fn a_reply_is_cut_in_the_middle_once() {
    let (server, proxy, mut client) = connected().await;
    proxy.reset_after(Direction::ToClient, 10);
    send(&mut client, "PING").await;
    expect(&mut client, "+PONG\r\n").await;
    send(&mut client, "SET key 1").await;
    expect(&mut client, "+OK").await;
    assert_eq!(expect_error(&mut client).await, ErrorKind::ConnectionReset);
    assert_eq!(value(&server, "key"), Some("1".into()));
    connect(&proxy).await;
}

#[tokio::test]
async fn a_command_cut_at_its_first_byte_is_not_executed() {
    let (server, proxy, mut client) = connected().await;
    proxy.reset_after(Direction::ToServer, 0);
    send(&mut client, "SET key 1").await;
    assert_eq!(expect_error(&mut client).await, ErrorKind::ConnectionReset);
    assert_eq!(value(&server, "key"), None);
}

#[tokio::test]
async fn new_connections_are_refused_and_open_ones_kept() {
    let (_server, proxy, mut client) = connected().await;
    proxy.refuse(true);
    let mut refused = TcpStream::connect(proxy.name()).await.unwrap();
    assert_eq!(expect_error(&mut refused).await, ErrorKind::ConnectionReset);
    send(&mut client, "PING").await;
    expect(&mut client, "+PONG\r\n").await;
    proxy.refuse(false);
    connect(&proxy).await;
}

#[tokio::test]
async fn new_connections_get_no_answer_and_open_ones_are_kept() {
    let (_server, proxy, mut client) = connected().await;
    proxy.blackhole_new(true);
    let mut silent = TcpStream::connect(proxy.name()).await.unwrap();
    send(&mut silent, "PING").await;
    expect_silence(&mut silent).await;
    assert_eq!(proxy.connections(), 2);
    send(&mut client, "PING").await;
    expect(&mut client, "+PONG\r\n").await;
    proxy.heal();
    connect(&proxy).await;
    proxy.reset();
    assert_eq!(expect_error(&mut silent).await, ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn client_sees_the_end_and_the_return_of_a_server() {
    let (server, proxy, mut client) = connected().await;
    server.kill();
    let end = expect_error(&mut client).await;
    assert!(matches!(end, ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset), "{end:?}");
    let mut refused = TcpStream::connect(proxy.name()).await.unwrap();
    assert_eq!(expect_error(&mut refused).await, ErrorKind::ConnectionReset);
    server.restart().unwrap();
    connect(&proxy).await;
}

/// Each piece and each reply has its own deadline, because the speed depends on the machine.
#[tokio::test]
async fn a_full_queue_stops_the_sender_and_loses_nothing() {
    const PIECE: usize = 64 * 1024;
    // 64 MiB, which is more than the buffers of the kernel and the queue have room for.
    const PIECES_MAX: usize = 1024;
    let (server, proxy, mut client) = connected().await;
    proxy.hold(Direction::ToServer);
    let body = "x".repeat(PIECE);
    let append = format!("*3\r\n$6\r\nAPPEND\r\n$3\r\nkey\r\n${PIECE}\r\n{body}\r\n");
    let mut pieces = 0;
    let mut is_blocked = false;
    while !is_blocked {
        assert!(pieces < PIECES_MAX, "64 MiB were read while everything was held back");
        let write = client.write_all(append.as_bytes());
        tokio::pin!(write);
        pieces += 1;
        match timeout(Duration::from_millis(200), &mut write).await {
            Ok(written) => written.unwrap(),
            Err(_) => {
                is_blocked = true;
                proxy.release(Direction::ToServer);
                timeout(PATIENCE, write).await.expect("the rest goes out in time").unwrap();
            }
        }
    }
    for piece in 1..=pieces {
        expect(&mut client, &format!(":{}\r\n", piece * PIECE)).await;
    }
    let stored = server.command(&["STRLEN", "key"]).unwrap();
    assert_eq!(stored, Value::Int((pieces * PIECE) as i64));
}

#[tokio::test]
async fn a_dropped_proxy_closes_its_connections_and_its_port() {
    let (_server, proxy, mut client) = connected().await;
    let name = proxy.name();
    drop(proxy);
    let end = expect_error(&mut client).await;
    assert!(matches!(end, ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset), "{end:?}");
    // The tasks of the proxy end one after the other, and another program may use the port for a
    // moment.
    let is_refused = || {
        let attempt = std::net::TcpStream::connect(&name);
        attempt.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
    };
    eventually("the port is closed", is_refused).await;
}

#[tokio::test]
async fn a_proxy_before_each_server_has_its_password() {
    let options = redlock_testkit::ServerOptions::new().password("secret");
    let servers = redlock_testkit::RedisServers::with(2, &options).unwrap();
    let proxies = servers.proxied().await.unwrap();
    assert_eq!(proxies.len(), 2);
    for (proxy, server) in proxies.iter().zip(servers.iter()) {
        assert_eq!(proxy.url(), format!("redis://:secret@{}", proxy.name()));
        let mut client = TcpStream::connect(proxy.name()).await.unwrap();
        send(&mut client, "AUTH secret").await;
        send(&mut client, "CONFIG GET port").await;
        let port = server.port();
        expect(&mut client, &format!("+OK\r\n*2\r\n$4\r\nport\r\n$5\r\n{port}\r\n")).await;
    }
}

/// Of two clients that had a key tracked one loses the report of its change.
#[tokio::test]
async fn pushes_are_lost_without_the_replies_around_them() {
    let (_server, proxy, mut client) = connected().await;
    for command in ["HELLO 3", "CLIENT TRACKING ON"] {
        send(&mut client, command).await;
    }
    read_until(&mut client, "+OK\r\n").await;
    for (drops, push) in [(false, ">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n"), (true, "")] {
        if drops {
            proxy.drop_pushes();
        }
        for command in ["GET k", "SET k 1"] {
            send(&mut client, command).await;
        }
        let got = read_until(&mut client, &format!("+OK\r\n{push}")).await;
        assert_eq!(got.contains("invalidate"), !drops, "{got}");
    }
    send(&mut client, "PING").await;
    expect(&mut client, "+PONG\r\n").await;
}

/// All that comes, until it ends so.
async fn read_until(client: &mut TcpStream, end: &str) -> String {
    let mut got = Vec::new();
    while !got.ends_with(end.as_bytes()) {
        let byte = timeout(PATIENCE, client.read_u8()).await.expect("a reply in time").unwrap();
        got.push(byte);
    }
    String::from_utf8(got).unwrap()
}
