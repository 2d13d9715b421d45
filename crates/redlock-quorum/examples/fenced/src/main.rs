//! A table that rejects late writes, to show how fencing tokens work.
//!
//! Two hosts take parcels from a stock: each reads how many there are and writes the rest, under a
//! lock. The first is stopped between the two steps for longer than its lease, here by SIGSTOP,
//! elsewhere by a long garbage collection or a frozen virtual machine. The second gets the lock and
//! does its work. Then the first wakes up, in the middle of a step that was right when it began,
//! and writes.
//!
//! No lock can prevent this write. The store can: `stock.rs` has the condition.
//!
//! `REDLOCK_NODES=redis://..,redis://.. cargo run -p fenced`. Without `REDLOCK_NODES`, it starts
//! five disposable masters.

mod stock;

use std::env;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};
use redlock_quorum::blocking::Redlock;
use redlock_testkit::RedisServers;
use rustix::process::{Pid, Signal, getpid, kill_process};

use stock::{Stock, StockError};

const ITEM: &str = "nails";
/// Short, so that the second host does not wait for long. Use 10 s or more in production.
const TTL: Duration = Duration::from_secs(2);
const WAIT: Duration = Duration::from_secs(60);

fn main() -> anyhow::Result<()> {
    let words: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        [] => show(),
        ["play", store, file] => play(store, Path::new(file), &nodes()?),
        ["take", store, file, parcels, rest @ ..] => {
            let stock = Stock::open(Path::new(file))?;
            take(&stock, *store == "fenced", parcels.parse()?, rest.contains(&"stop"))
        }
        _ => anyhow::bail!("give no arguments"),
    }
}

/// Runs the story twice: with a store that trusts its writers, and with a store that checks their
/// tokens.
fn show() -> anyhow::Result<()> {
    let throw_away;
    let nodes = if let Ok(nodes) = nodes() {
        nodes
    } else {
        throw_away = RedisServers::start(5)?;
        throw_away.urls().join(",")
    };
    for store in ["trusting", "fenced"] {
        let file = Scratch(env::temp_dir().join(format!("{store}-{}.db", std::process::id())));
        println!("A {store} store. 100 nails; one host takes 30 and stands still, one takes 5.");
        play(store, &file.0, &nodes)?;
    }
    Ok(())
}

fn nodes() -> anyhow::Result<String> {
    env::var("REDLOCK_NODES").context("REDLOCK_NODES is not set")
}

/// Stops the first host before its write, and resumes it after the second has done its work.
fn play(store: &str, file: &Path, nodes: &str) -> anyhow::Result<()> {
    let stock = Stock::open(file)?;
    stock.add(ITEM, 100)?;
    let mut first = Host::start("first", nodes, &["take", store], file, &["30", "stop"])?;
    // From here on it holds the lock, or is stopped and has lost it.
    first.say_next()?;
    Host::start("second", nodes, &["take", store], file, &["5"])?.end()?;
    first.wake()?;
    first.end()?;
    let left = stock.count(ITEM)?;
    println!("  {left} are left; 65 should be\n");
    Ok(())
}

/// The work of each host. If the lock was lost, the work is repeated under a new lock.
fn take(stock: &Stock, is_fenced: bool, parcels: i64, stops: bool) -> anyhow::Result<()> {
    let nodes = nodes()?;
    let redlock = Redlock::builder().nodes(nodes.split(',')).ttl(TTL).wait(WAIT);
    let redlock = redlock.build_blocking()?;
    let mut stops = stops;
    loop {
        let guard = redlock.lock(format!("stock:{ITEM}")).acquire()?;
        let token = guard.fencing_token().context("locks of this handle have no token")?;
        let count = stock.read(ITEM, token)?;
        println!("token {token}, there are {count}");
        if guard.check().is_err() {
            continue;
        }
        // The lock was held a moment ago, and the next step is the write: now comes the pause.
        if std::mem::take(&mut stops) {
            kill_process(getpid(), Signal::STOP)?;
        }
        if !is_fenced {
            stock.write_without_fence(ITEM, count - parcels)?;
            println!("took {parcels}, {} are left", count - parcels);
            return Ok(());
        }
        match stock.write(ITEM, count - parcels, token) {
            Ok(()) => {
                println!("took {parcels}, {} are left", count - parcels);
                return Ok(guard.release()?);
            }
            Err(refused @ StockError::Refused { .. }) => println!("{refused}: once more"),
            Err(error) => return Err(error.into()),
        }
    }
}

/// A host: a separate process, killed at the end of the story.
struct Host {
    name: &'static str,
    process: Child,
    says: BufReader<ChildStdout>,
}

impl Host {
    fn start(
        name: &'static str,
        nodes: &str,
        words: &[&str],
        file: &Path,
        rest: &[&str],
    ) -> anyhow::Result<Self> {
        let mut command = Command::new(env::current_exe()?);
        command.args(words).arg(file).args(rest).env("REDLOCK_NODES", nodes);
        let mut process = command.stdout(Stdio::piped()).spawn()?;
        let says = process.stdout.take().context("its output is piped")?;
        Ok(Self { name, process, says: BufReader::new(says) })
    }

    fn say_next(&mut self) -> anyhow::Result<()> {
        let mut line = String::new();
        ensure!(self.says.read_line(&mut line)? > 0, "the {} host has ended", self.name);
        print!("  {}: {line}", self.name);
        Ok(())
    }

    fn wake(&self) -> anyhow::Result<()> {
        println!("  {}: wakes up", self.name);
        Ok(kill_process(Pid::from_child(&self.process), Signal::CONT)?)
    }

    fn end(mut self) -> anyhow::Result<()> {
        let mut rest = String::new();
        self.says.read_to_string(&mut rest)?;
        rest.lines().for_each(|line| println!("  {}: {line}", self.name));
        let status = self.process.wait()?;
        ensure!(status.success(), "the {} host ended with {status}", self.name);
        Ok(())
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // It has exited, unless the story was interrupted. In that case it might be stopped
        // forever.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A file that goes away with the story.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
