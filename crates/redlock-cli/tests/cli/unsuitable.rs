//! Servers and proxies that are no independent masters: what the command and `doctor` report.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use redlock_testkit::{RedisServer, ServerOptions};

use crate::doctor::findings;
use crate::support::{Running, Scratch, answer_of, bare, poll};

/// A wait that ends early only if waiting cannot help.
const FOREVER: &str = "forever";

/// A port that was free a moment ago.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn listens(port: u16) {
    poll("it listens", || TcpStream::connect(("127.0.0.1", port)).ok());
}

/// Returns the line of `acquire`, which must end before [`PATIENCE`](crate::support::PATIENCE), and the findings of `doctor` about this address.
fn verdicts(address: &str, wait: &str) -> (String, Vec<String>) {
    let url = format!("redis://{address}");
    let one = |words: &[&str]| {
        let mut command = bare([]);
        answer_of(command.env("REDLOCK_NODES", &url).args(words))
    };
    let acquired = one(&["acquire", "k", "--wait", wait, "--node-timeout", "500ms"]);
    assert_eq!(acquired.code, 69, "{acquired:?}");
    let examined = one(&["doctor", "--json"]);
    assert_eq!(examined.code, 1, "{examined:?}");
    (acquired.err, findings(&examined.json(), Some(address.to_owned())))
}

#[test]
fn a_sentinel_is_named_and_has_no_other_findings() {
    let (folder, port) = (Scratch::new("sentinel"), free_port());
    let file = folder.file("sentinel.conf");
    fs::write(&file, format!("port {port}\nbind 127.0.0.1\n")).unwrap();
    let _sentinel =
        Running::start_into(Command::new(server()).arg(&file).arg("--sentinel"), Stdio::null());
    listens(port);
    let (acquired, found) = verdicts(&format!("127.0.0.1:{port}"), FOREVER);
    let says = "it is a Sentinel, which stores no keys: use independent masters";
    assert!(acquired.contains(says), "{acquired}");
    assert_eq!(found, [format!("error: not connected: {says}")]);
    let url = format!("redis://127.0.0.1:{port}");
    let acl = answer_of(bare(["acl", "--check"]).env("REDLOCK_NODES", &url));
    assert!(acl.code == 69 && acl.cause().contains(says) && acl.out.is_empty(), "{acl:?}");
    let printed = answer_of(bare(["acl"]).env("REDLOCK_NODES", &url));
    assert!(printed.err.contains(says) && !printed.err.contains(" is for Redis"), "{printed:?}");
}

/// The server that the other tests start.
fn server() -> PathBuf {
    std::env::var_os("REDLOCK_SERVER_BIN").map_or_else(
        || {
            let path = std::env::var_os("PATH").unwrap();
            let named =
                |folder: PathBuf| ["redis-server", "valkey-server"].map(|name| folder.join(name));
            std::env::split_paths(&path).flat_map(named).find(|file| file.is_file()).unwrap()
        },
        PathBuf::from,
    )
}

#[test]
fn a_cluster_node_is_named() {
    let options = ServerOptions::new().arguments(["--cluster-enabled", "yes"]).brand_new();
    let cluster = RedisServer::with(&options).unwrap();
    let (acquired, found) = verdicts(&cluster.name(), FOREVER);
    let says = "not admitted: it is a cluster node; use independent masters";
    assert!(acquired.contains(says), "{acquired}");
    assert!(found[0].starts_with(&format!("error: {says}")), "{found:?}");
}

/// A fake: a relay to a real server that answers scripts with undeclared keys as Dragonfly does.
#[test]
fn a_server_with_strict_scripts_is_named() {
    let server = RedisServer::with(&ServerOptions::new().brand_new()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let name = listener.local_addr().unwrap().to_string();
    let to = server.port();
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            thread::spawn(move || {
                relay_strictly(&client, &TcpStream::connect(("127.0.0.1", to)).unwrap())
            });
        }
    });
    let (acquired, found) = verdicts(&name, FOREVER);
    assert!(acquired.contains("script tried accessing undeclared key"), "{acquired}");
    let says = "error: its scripts may not use keys that a call does not declare: ";
    assert!(found.iter().any(|found| found.starts_with(says)), "{found:?}");
    let plain = bare(["acquire", "k", "--quarantine", "off"])
        .env("REDLOCK_NODES", format!("redis://{name}"))
        .output();
    assert!(plain.unwrap().status.success(), "locks without a quarantine need no such script");
}

/// Passes all bytes on, but replaces each script that computes the names of its keys.
fn relay_strictly(client: &TcpStream, server: &TcpStream) {
    const COMPUTES: [&str; 2] = ["set_of", "'HGETALL', ARGV"];
    const ERROR: &str = "return redis.error_reply('ERR Error running script (call to f_1): script tried \
                         accessing undeclared key')";
    let (mut replies, mut to_client) = (server.try_clone().unwrap(), client.try_clone().unwrap());
    thread::spawn(move || std::io::copy(&mut replies, &mut to_client));
    let (mut requests, mut to_server) = (BufReader::new(client), server);
    while let Some(words) = command(&mut requests) {
        let script = words
            .get(1)
            .filter(|_| words[0] == b"EVAL")
            .map(|script| String::from_utf8_lossy(script));
        let is_strange = script.is_some_and(|script| COMPUTES.iter().any(|it| script.contains(it)));
        let words =
            if is_strange { vec![b"EVAL".to_vec(), ERROR.into(), b"0".to_vec()] } else { words };
        let mut packed = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            packed.extend(format!("${}\r\n", word.len()).bytes());
            packed.extend(word);
            packed.extend(b"\r\n");
        }
        if to_server.write_all(&packed).is_err() {
            return;
        }
    }
}

/// Reads a command. `None` if there are no more.
pub(crate) fn command(from: &mut impl BufRead) -> Option<Vec<Vec<u8>>> {
    let count = number(from)?;
    let word = |from: &mut dyn BufRead| {
        let mut word = vec![0; number(from)? + 2];
        from.read_exact(&mut word).ok()?;
        word.truncate(word.len() - 2);
        Some(word)
    };
    (0..count).map(|_| word(from)).collect()
}

fn number(from: &mut (impl BufRead + ?Sized)) -> Option<usize> {
    let mut line = String::new();
    from.read_line(&mut line).ok()?;
    line.trim_end().get(1..)?.parse().ok()
}

/// The program of a proxy, if `make test-servers` has fetched it.
fn fetched(name: &str) -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let folders = fs::read_dir(target.join("servers")).ok()?.flatten();
    let found = folders
        .map(|entry| entry.path())
        .find(|folder| folder.file_name().is_some_and(|it| it.to_string_lossy().starts_with(name)));
    if found.is_none() {
        println!("skipped: {name} is not fetched; make test-servers does");
    }
    Some(found?.join("server"))
}

#[test]
fn twemproxy_is_named() {
    let Some(program) = fetched("nutcracker-") else { return };
    let (folder, port, server) =
        (Scratch::new("twemproxy"), free_port(), RedisServer::start().unwrap());
    let file = folder.file("nutcracker.yml");
    let text = format!(
        "alpha:\n  listen: 127.0.0.1:{port}\n  redis: true\n  servers:\n   - {}:1\n",
        server.name()
    );
    fs::write(&file, text).unwrap();
    let statistics = free_port().to_string();
    let mut command = Command::new(program);
    command.arg("-c").arg(&file).args(["-s", &statistics, "-o"]).arg(folder.file("log"));
    let _proxy = Running::start_into(&mut command, Stdio::null());
    listens(port);
    let (acquired, found) = verdicts(&format!("127.0.0.1:{port}"), "0s");
    // The server might also be down, so a wait would not end.
    let says = "or be a proxy that does not pass on CLIENT and INFO (use the server's own address)";
    assert!(acquired.contains(says) && found[0].contains(says), "{acquired}: {found:?}");
}

#[test]
fn envoy_is_named() {
    let Some(program) = fetched("envoy-") else { return };
    let (folder, port, server) =
        (Scratch::new("envoy"), free_port(), RedisServer::start().unwrap());
    let file = folder.file("envoy.yaml");
    fs::write(&file, envoy_configuration(port, server.port())).unwrap();
    let mut command = Command::new(program);
    command.arg("-c").arg(&file).args(["--use-dynamic-base-id", "--concurrency", "1"]);
    let _proxy = Running::start_into(&mut command, Stdio::null());
    listens(port);
    let (acquired, found) = verdicts(&format!("127.0.0.1:{port}"), FOREVER);
    let says = "a proxy or a server older than Redis 5.0 answered CLIENT ID with \"ERR CLIENT \
                subcommand 'ID' is not supported by the proxy\": use the address of a newer server itself";
    assert!(acquired.contains(says), "{acquired}");
    assert_eq!(found, [format!("error: not connected: {says}")]);
}

fn envoy_configuration(port: u16, to: u16) -> String {
    let address =
        |port: u16| format!("{{ socket_address: {{ address: 127.0.0.1, port_value: {port} }} }}");
    format!(
        "static_resources:
  listeners:
  - name: one
    address: {}
    filter_chains:
    - filters:
      - name: envoy.filters.network.redis_proxy
        typed_config:
          '@type': type.googleapis.com/envoy.extensions.filters.network.redis_proxy.v3.RedisProxy
          stat_prefix: one
          settings: {{ op_timeout: 5s }}
          prefix_routes: {{ catch_all_route: {{ cluster: one }} }}
  clusters:
  - name: one
    connect_timeout: 1s
    type: STATIC
    lb_policy: MAGLEV
    load_assignment:
      cluster_name: one
      endpoints:
      - lb_endpoints:
        - endpoint: {{ address: {} }}
",
        address(port),
        address(to)
    )
}
