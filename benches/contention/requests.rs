//! How many requests masters receive from clients. `INFO commandstats` also includes commands of
//! scripts, so a monitor reads each command instead.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::thread::{self, JoinHandle};

use anyhow::Context;
use redlock_testkit::{RedisServer, RedisServers};

/// The commands of locks: of the two commands of a ballot, this is the second one. All other
/// commands belong to connections and to admission.
const OF_LOCKS: [&str; 8] =
    ["set", "get", "eval", "evalsha", "eval_ro", "evalsha_ro", "delex", "delifeq"];

/// Counts until the masters end.
pub struct Count(Vec<JoinHandle<Vec<u64>>>);

impl Count {
    pub fn begin(servers: &RedisServers) -> anyhow::Result<Self> {
        Ok(Self(servers.iter().map(monitor).collect::<anyhow::Result<_>>()?))
    }

    /// Stops the masters, and returns how many requests there were since this instant, in
    /// microseconds, when all contenders were connected.
    pub fn end(self, servers: RedisServers, since: u64) -> anyhow::Result<usize> {
        drop(servers);
        let requests = self.0.into_iter().map(|monitor| {
            let all = monitor.join().map_err(|_| anyhow::anyhow!("a monitor panicked"))?;
            Ok(all.into_iter().filter(|at| *at >= since).count())
        });
        requests.sum()
    }
}

/// The times of requests, in microseconds.
fn monitor(server: &RedisServer) -> anyhow::Result<JoinHandle<Vec<u64>>> {
    let mut stream = TcpStream::connect(server.name())?;
    stream.write_all(b"MONITOR\r\n")?;
    let mut lines = BufReader::new(stream).lines();
    let first = lines.next().context("a monitor")??;
    anyhow::ensure!(first == "+OK", "a master answered to MONITOR: {first}");
    let lines = lines.map_while(Result::ok);
    Ok(thread::spawn(move || lines.filter_map(|line| request(&line)).collect()))
}

/// When a request was made: `+1700000000.000000 [0 127.0.0.1:50000] "SET" ..`. Scripts call as
/// `[0 lua]`.
fn request(line: &str) -> Option<u64> {
    let line = line.to_ascii_lowercase();
    let mut words = line.splitn(4, ' ');
    let at = words.next()?.strip_prefix('+')?.replace('.', "");
    let (caller, command) = (words.nth(1)?, words.next()?);
    let is_look = command.starts_with("\"client\" \"caching\"");
    let is_of_locks = OF_LOCKS.contains(&command.split('"').nth(1)?);
    (caller != "lua]" && (is_look || is_of_locks)).then(|| at.parse().ok())?
}

/// Returns how many commands the master has executed since its start.
pub fn commands(server: &RedisServer) -> anyhow::Result<u64> {
    Ok(info(server, "stats", "total_commands_processed")? as u64)
}

/// Returns the CPU time of the master in seconds.
pub fn cpu(server: &RedisServer) -> anyhow::Result<f64> {
    Ok(info(server, "cpu", "used_cpu_user")? + info(server, "cpu", "used_cpu_sys")?)
}

fn info(server: &RedisServer, section: &str, name: &str) -> anyhow::Result<f64> {
    let info = match server.command(&["INFO", section])? {
        redis::Value::BulkString(bytes) => String::from_utf8(bytes)?,
        other => anyhow::bail!("INFO {section}: {other:?}"),
    };
    let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    Ok(value.with_context(|| format!("INFO {section}: {name}"))?.trim().parse()?)
}
