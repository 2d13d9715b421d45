//! The life cycle of disposable servers. Needs `redis-server` or `valkey-server`.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says so what it expects")]

use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{self, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, io, panic, thread};

use io::BufRead;
use redis::Value;
use redlock_testkit::lab::{
    Paused, calls, copies, is_alive, is_stopped, keys, poll, put, text, value,
};
use redlock_testkit::{RedisServer, RedisServers, ServerOptions};

/// Waits until something is so.
fn eventually(what: &str, is_so: impl Fn() -> bool) {
    poll(what, || is_so().then_some(()));
}

fn new_directory(name: &str) -> PathBuf {
    let directory = env::temp_dir().join(format!("redlock-testkit-{name}-{}", process::id()));
    fs::create_dir(&directory).unwrap();
    directory
}

fn port_is_closed(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).is_err()
}

#[test]
fn five_servers_are_five_separate_processes() {
    let servers = RedisServers::start(5).unwrap();
    let mut pids: Vec<u32> = servers.iter().filter_map(RedisServer::pid).collect();
    pids.sort_unstable();
    pids.dedup();
    assert_eq!(pids.len(), 5);
    for (place, server) in servers.iter().enumerate() {
        server.command(&["SET", "place", &place.to_string()]).unwrap();
    }
    for (place, server) in servers.iter().enumerate() {
        assert_eq!(value(server, "place"), Some(place.to_string()));
        assert_eq!(servers.urls()[place], format!("redis://127.0.0.1:{}", server.port()));
    }
}

#[test]
fn sets_started_concurrently_do_not_collide() {
    let sets: Vec<RedisServers> = thread::scope(|scope| {
        let starts = [(); 3].map(|()| scope.spawn(|| RedisServers::start(5).unwrap()));
        starts.map(|start| start.join().unwrap()).into()
    });
    // The threads that started the servers have exited, and the servers have not.
    let servers: Vec<&RedisServer> = sets.iter().flat_map(|set| set.iter()).collect();
    let mut ports: Vec<u16> = servers.iter().map(|server| server.port()).collect();
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), 15);
    for server in servers {
        let info: String = text(server, &["INFO", "server"]);
        assert!(info.contains(&format!("process_id:{}\r\n", server.pid().unwrap())));
    }
}

#[test]
fn paused_server_executes_queued_requests_after_resume() {
    let server = RedisServer::start().unwrap();
    assert!(!server.is_paused());
    server.pause().unwrap();
    assert!(server.is_paused() && server.is_running());
    let mut connection = TcpStream::connect(server.name()).unwrap();
    io::Write::write_all(&mut connection, b"SET late 1\r\n").unwrap();
    connection.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let silence = io::Read::read(&mut connection, &mut [0; 16]).unwrap_err();
    assert_eq!(silence.kind(), io::ErrorKind::WouldBlock);
    drop(connection);
    server.resume().unwrap();
    assert!(!server.is_paused());
    eventually("the late SET is executed", || value(&server, "late").is_some());
}

#[test]
fn a_command_to_a_paused_server_fails_in_time() {
    let server = RedisServer::start().unwrap();
    server.pause().unwrap();
    let start = Instant::now();
    assert!(server.command(&["GET", "key"]).is_err());
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}

#[test]
fn all_threads_of_a_paused_server_are_stopped() {
    let server = RedisServer::start().unwrap();
    server.pause().unwrap();
    for thread in fs::read_dir(format!("/proc/{}/task", server.pid().unwrap())).unwrap() {
        let stat = fs::read_to_string(thread.unwrap().path().join("stat")).unwrap();
        assert_eq!(stat.rsplit(") ").next().unwrap().chars().next(), Some('T'), "{stat}");
    }
}

#[test]
fn a_paused_server_can_be_stopped_and_killed() {
    let servers = RedisServers::start(2).unwrap();
    for server in servers.iter() {
        server.pause().unwrap();
    }
    servers[0].stop().unwrap();
    servers[1].kill();
    for server in servers.iter() {
        assert!(!server.is_running() && !server.is_paused());
        assert_eq!(server.pid(), None);
        assert!(port_is_closed(server.port()));
    }
}

#[test]
fn a_server_without_persistence_forgets_its_keys_at_a_restart() {
    let server = RedisServer::start().unwrap();
    let (pid, port) = (server.pid(), server.port());
    server.command(&["SET", "key", "1"]).unwrap();
    server.restart().unwrap();
    assert_eq!(server.port(), port);
    assert_ne!(server.pid(), pid);
    assert_eq!(value(&server, "key"), None);
}

#[test]
fn server_with_fsync_keeps_its_keys_after_a_crash() {
    let options =
        ServerOptions::new().arguments(["--appendonly", "yes", "--appendfsync", "always"]);
    let server = RedisServer::with(&options).unwrap();
    server.command(&["SET", "key", "1"]).unwrap();
    server.kill();
    assert!(!server.is_running());
    assert!(server.command(&["PING"]).is_err());
    server.restart().unwrap();
    assert_eq!(value(&server, "key"), Some("1".into()));
    server.restart_empty().unwrap();
    assert_eq!(value(&server, "key"), None);
}

#[test]
fn exited_server_is_not_running_and_can_be_restarted() {
    let server = RedisServer::start().unwrap();
    // The server closes the connection instead of answering.
    assert!(server.command(&["SHUTDOWN", "NOSAVE"]).is_err());
    eventually("the server has ended", || !server.is_running());
    assert!(server.pause().is_err());
    server.restart().unwrap();
    assert!(server.is_running());
}

#[test]
fn a_password_is_part_of_the_url() {
    let server = RedisServer::with(&ServerOptions::new().password("p/ss:w@rd")).unwrap();
    assert_eq!(server.url(), format!("redis://:p%2Fss%3Aw%40rd@{}", server.name()));
    server.command(&["SET", "key", "1"]).unwrap();
    let stranger = redis::Client::open(format!("redis://{}", server.name())).unwrap();
    let refused =
        redis::cmd("GET").arg("key").query::<Value>(&mut stranger.get_connection().unwrap());
    assert_eq!(refused.unwrap_err().code(), Some("NOAUTH"));
}

#[test]
fn fixed_ports_follow_each_other() {
    // Below the ports given at random, and different for tests that run at the same time.
    let first = 12_000 + (process::id() % 3_000) as u16 * 2;
    let servers = RedisServers::with(2, &ServerOptions::new().first_port(first)).unwrap();
    assert_eq!([servers[0].port(), servers[1].port()], [first, first + 1]);
    assert_eq!(servers[1].url(), format!("redis://127.0.0.1:{}", first + 1));
    servers[1].command(&["PING"]).unwrap();
    assert!(RedisServers::with(2, &ServerOptions::new().first_port(u16::MAX)).is_err());
}

#[test]
fn occupied_fixed_port_is_named_in_the_error() {
    let taken = RedisServer::start().unwrap();
    let error = RedisServer::with(&ServerOptions::new().first_port(taken.port())).unwrap_err();
    let message = format!("{error:#}");
    assert!(message.contains(&format!("port {} was taken", taken.port())), "{message}");
    assert!(taken.is_running());
}

#[test]
fn refused_option_is_an_error_with_the_servers_message() {
    let options = ServerOptions::new().arguments(["--no-such-option", "1"]);
    let message = format!("{:#}", RedisServer::with(&options).unwrap_err());
    assert!(message.contains("no-such-option"), "{message}");
}

#[test]
fn missing_binary_is_named_in_the_error() {
    let options = ServerOptions::new().binary("/no/such/server");
    let message = format!("{:#}", RedisServer::with(&options).unwrap_err());
    assert!(message.contains("/no/such/server"), "{message}");
}

#[test]
fn directories_are_removed_with_the_servers() {
    let parent = new_directory("parent");
    let servers = RedisServers::with(2, &ServerOptions::new().directory(&parent)).unwrap();
    assert_eq!(fs::read_dir(&parent).unwrap().count(), 2);
    drop(servers);
    // Fails unless the directory is empty.
    fs::remove_dir(&parent).unwrap();
}

#[test]
fn a_panic_stops_the_servers() {
    let ports = std::sync::Mutex::new(Vec::new());
    let panicked = panic::catch_unwind(|| {
        let servers = RedisServers::start(2).unwrap();
        servers[1].pause().unwrap();
        ports.lock().unwrap().extend(servers.iter().map(|server| server.port()));
        panic!("a test fails");
    });
    assert!(panicked.is_err());
    let ports = ports.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    assert_eq!(ports.len(), 2);
    assert!(ports.into_iter().all(port_is_closed));
}

/// Plays two parts: as a child it starts servers in the directory it is given and waits for its
/// end.
#[test]
fn servers_are_killed_with_their_process() {
    const CHILD_DIRECTORY: &str = "REDLOCK_TESTKIT_CHILD_DIRECTORY";
    if let Some(directory) = env::var_os(CHILD_DIRECTORY) {
        let options = ServerOptions::new().directory(directory);
        let start = move || RedisServers::with(2, &options).unwrap();
        let servers = thread::spawn(start).join().unwrap();
        servers[1].pause().unwrap();
        println!("\nports {} {}", servers[0].port(), servers[1].port());
        loop {
            thread::park();
        }
    }
    // The child does not get to remove its servers' directories.
    let directory = new_directory("child");
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "servers_are_killed_with_their_process", "--nocapture"])
        .env(CHILD_DIRECTORY, &directory)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = io::BufReader::new(child.stdout.take().unwrap()).lines();
    let line = output.map_while(Result::ok).find(|line| line.starts_with("ports ")).unwrap();
    let ports: Vec<u16> = line.split(' ').skip(1).map(|port| port.parse().unwrap()).collect();
    assert_eq!(ports.iter().filter(|&&port| !port_is_closed(port)).count(), 2);
    child.kill().unwrap();
    child.wait().unwrap();
    for port in ports {
        eventually("the server is gone (needs setpriv of util-linux)", || port_is_closed(port));
    }
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn pause_ends_when_its_value_is_dropped_by_a_panic() {
    let servers = RedisServers::start(2).unwrap();
    let panicked = panic::catch_unwind(|| {
        let _paused = Paused::all(&*servers);
        assert!(servers.iter().all(|server| is_stopped(server.pid().unwrap())));
        assert_eq!(copies(&servers, "key"), 0, "a paused master is not queried");
        panic!("as a test that fails");
    });
    assert!(panicked.is_err());
    for server in servers.iter() {
        assert!(is_alive(server.pid().unwrap()));
        put(server, "key", "value", 60_000);
        assert_eq!(keys(server), ["key"]);
    }
    assert_eq!(copies(&servers, "key"), 2);
}

/// Returns a server's admission data under the prefix.
fn record(server: &RedisServer, prefix: &str) -> Vec<String> {
    text(server, &["HMGET", &format!("{prefix}redlock-quorum:1"), "run", "max_ttl", "floor"])
}

#[test]
fn servers_are_admitted_until_a_restart() {
    let options = ServerOptions::new().prefix("locks:").max_ttl(Duration::from_secs(2));
    let servers = RedisServers::with(2, &options).unwrap();
    for server in servers.iter() {
        let record = record(server, "locks:");
        assert_eq!(record, [run_id(server), "2000".into(), "31".into()]);
        assert_eq!(keys(server), Vec::<String>::new(), "no key of a test");
        assert_eq!(calls(server, "hset"), 0, "no statistics");
    }
    servers[0].restart().unwrap();
    assert_eq!(
        text::<usize>(&servers[0], &["DBSIZE"]),
        0,
        "data that was not written to disk is gone"
    );
}

#[test]
fn uninitialized_server_has_no_record() {
    let server = RedisServer::with(&ServerOptions::new().brand_new()).unwrap();
    assert_eq!(text::<usize>(&server, &["DBSIZE"]), 0);
    let server = RedisServer::start().unwrap();
    assert_eq!(record(&server, "")[0], run_id(&server));
}

fn run_id(server: &RedisServer) -> String {
    let info: String = text(server, &["INFO", "server"]);
    info.lines().find_map(|line| line.strip_prefix("run_id:")).unwrap().trim().to_owned()
}
