//! `redlock dev`: disposable masters that run until Ctrl-C.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::{env, fs, process};

use anyhow::{Context, anyhow};
use redlock_quorum::RedlockBuilder;
use redlock_testkit::{RedisServer, RedisServers, ServerOptions};
use rustix::process::Signal;

use crate::args::Dev;
use crate::exit::{Failure, UNAVAILABLE};
use crate::global::Global;
use crate::masters;
use crate::output;
use crate::signals::Signals;
use crate::stderr;

pub(crate) async fn dev(global: &Global, args: &Dev) -> Result<u8, Failure> {
    if !global.nodes.is_empty() {
        let cause = "`redlock dev` starts its own masters and does not accept --node; use \
            --nodes N to set how many";
        return Err(Failure::usage(anyhow!(cause)));
    }
    // From here on, Ctrl-C does not kill this process, but is remembered, so that the servers are
    // shut down gracefully even while they start.
    let mut signals = Signals::new()?;
    for port in args.port..args.port + args.nodes {
        check(port)?;
    }
    let servers = match start(global, args) {
        Ok(servers) => servers,
        // The terminal signals the servers as well, and a server that exits during its start is an
        // error.
        Err(_) if signals.come().await.is_some() => return Ok(0),
        Err(error) => return Err(Failure::new(UNAVAILABLE, error)),
    };
    output::line(&format!("REDLOCK_NODES={}", servers.urls().join(",")))?;
    stderr::note("these masters store nothing on disk; press Ctrl-C to stop them");
    watch(&servers, &mut signals).await
}

/// Starts the servers, admits them, and removes their directories immediately. They write nothing
/// there, and a killed `dev` could not clean up.
fn start(global: &Global, args: &Dev) -> anyhow::Result<RedisServers> {
    let scratch = Scratch::new()?;
    let max_ttl = global.max_ttl.unwrap_or(RedlockBuilder::MAX_TTL);
    let options = ServerOptions::new().first_port(args.port).directory(&scratch.0);
    let options = options.prefix(masters::prefix(global)).max_ttl(max_ttl);
    RedisServers::with(args.nodes.into(), &options)
}

/// Prints which masters have exited, until none is left or a signal arrives.
async fn watch(servers: &RedisServers, signals: &mut Signals) -> Result<u8, Failure> {
    signals.listen_to(Signal::CHILD)?;
    let mut ended = BTreeSet::new();
    loop {
        let gone = servers.iter().filter(|server| !server.is_running()).map(RedisServer::name);
        for name in gone {
            if ended.insert(name.clone()) {
                let left = servers.len() - ended.len();
                stderr::note(&format!(
                    "{name} exited; {left} of {} masters are still running",
                    servers.len()
                ));
            }
        }
        if ended.len() == servers.len() {
            return Err(Failure::new(UNAVAILABLE, anyhow!("all masters have exited")));
        }
        if signals.next().await != Signal::CHILD {
            return Ok(0);
        }
    }
}

/// Fails immediately if a port is in use. The server would take longer to report it.
fn check(port: u16) -> Result<(), Failure> {
    match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            let cause = anyhow!("port {port} is in use; choose another range with --port");
            Err(Failure::new(UNAVAILABLE, cause))
        }
        // The server reports other errors better.
        _ => Ok(()),
    }
}

/// A directory that goes away with the value.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> anyhow::Result<Self> {
        let path = env::temp_dir().join(format!("redlock-dev-{}", process::id()));
        fs::create_dir_all(&path).with_context(|| format!("making {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // It is in the directory for temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}
