//! `redlock dev`: throw-away masters, until somebody says stop.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener};

use anyhow::anyhow;
use redlock_testkit::{RedisServers, ServerOptions};

use crate::args::Dev;
use crate::exit::{Failure, UNAVAILABLE};
use crate::output;
use crate::signals::Signals;

pub(crate) async fn dev(args: &Dev) -> Result<u8, Failure> {
    // From here on Ctrl-C does not end this process but is remembered, so that the servers are
    // stopped in good order even while they start.
    let mut signals = Signals::new()?;
    for port in args.port..args.port + args.nodes {
        check(port)?;
    }
    let options = ServerOptions::new().first_port(args.port);
    let servers = match RedisServers::with(args.nodes.into(), &options) {
        Ok(servers) => servers,
        // The terminal tells the servers, too, and one that ends while it starts is an error.
        Err(_) if signals.has_come().await => return Ok(0),
        Err(error) => return Err(Failure::new(UNAVAILABLE, error)),
    };
    output::line(&format!("REDLOCK_NODES={}", servers.urls().join(",")))?;
    output::note("these masters keep nothing and end with this command: Ctrl-C");
    signals.next().await;
    Ok(0)
}

/// Says at once that a port is taken; the server would take its time over it.
fn check(port: u16) -> Result<(), Failure> {
    match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            let cause = anyhow!("port {port} is taken: choose other ports with --port");
            Err(Failure::new(UNAVAILABLE, cause))
        }
        // Whatever else there is, the server says it better.
        _ => Ok(()),
    }
}
