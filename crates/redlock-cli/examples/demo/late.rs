//! A late write: a holder that is paused for longer than its lease, and then continues.

use std::env;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use redlock_quorum::FencingToken;
use rustix::process::{Pid, Signal, getpid, kill_process};

use crate::store::Store;

/// Reads the number, pauses, and writes it back. The lock comes from `redlock acquire`, because
/// `redlock run` would kill the process in time.
pub(crate) fn host(file: &Path) -> Result<()> {
    let mut store = Store::open(file)?;
    let token = token()?;
    let Ok(number) = store.read(token)? else { anyhow::bail!("its lock was over at once") };
    println!("{number}");
    // A long garbage collection or a live migration of a virtual machine has the same effect.
    kill_process(getpid(), Signal::STOP)?;
    match store.write(number + 1, token)? {
        Ok(()) => println!("accepted"),
        Err(_) => println!("refused"),
    }
    Ok(())
}

/// The fencing token of the lock that this process runs under.
pub(crate) fn token() -> Result<FencingToken> {
    let text = env::var("REDLOCK_FENCING_TOKEN").context("there is no REDLOCK_FENCING_TOKEN")?;
    Ok(text.parse()?)
}

/// Plays the host that is late and two others, and says what became of the late write.
pub(crate) fn show(redlock: &Path, nodes: &str, file: &Path) -> Result<()> {
    let fence = acquire(redlock, nodes)?;
    let mut late = Late::start(file, &fence)?;
    let read = late.next()?;
    // The first addition waits for the end of the lease, because nothing extends it. There are two,
    // so that the late write would change the number.
    add(redlock, nodes, file)?;
    add(redlock, nodes, file)?;
    let number = Store::open(file)?.number()?;
    let outcome = late.wake()?;
    let kept = Store::open(file)?.number()?;
    println!("A host has read {read}, and stood still for longer than its lock lasts.");
    println!("Two others have made it {number}. The first wakes up and writes what it meant to:");
    println!(
        "  its late write was {outcome}, by fencing token {fence}; the file still says {kept}."
    );
    ensure!(outcome == "refused" && kept == number, "A LATE WRITE WAS ACCEPTED");
    Ok(())
}

/// A host that adds one, as all contenders do.
fn add(redlock: &Path, nodes: &str, file: &Path) -> Result<()> {
    let mut add = Command::new(redlock);
    add.args(["run", KEY, "--wait", "60s", "--"]).arg(env::current_exe()?).arg("add").arg(file);
    let added = add.env("REDLOCK_NODES", nodes).env("REDLOCK_CONFIG", "/dev/null").output()?;
    ensure!(added.status.success(), "{}", String::from_utf8_lossy(&added.stderr).trim());
    Ok(())
}

/// Takes the lock for a moment, and returns its fencing token.
fn acquire(redlock: &Path, nodes: &str) -> Result<String> {
    let mut acquire = Command::new(redlock);
    acquire.args(["acquire", KEY, "--ttl", "1s", "--wait", "60s"]).env("REDLOCK_NODES", nodes);
    let acquired = acquire.env("REDLOCK_CONFIG", "/dev/null").output()?;
    ensure!(acquired.status.success(), "{}", String::from_utf8_lossy(&acquired.stderr).trim());
    let line = String::from_utf8_lossy(&acquired.stdout).into_owned();
    Ok(line.split(' ').nth(1).context("no fencing token was printed")?.to_owned())
}

const KEY: &str = "demo";

/// The late host, as a separate process.
struct Late {
    process: Child,
    says: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Late {
    fn start(file: &Path, fence: &str) -> Result<Self> {
        let mut command = Command::new(env::current_exe()?);
        command.arg("late").arg(file).env("REDLOCK_FENCING_TOKEN", fence);
        let mut process = command.stdout(Stdio::piped()).spawn()?;
        let says = process.stdout.take().context("its output is piped")?;
        Ok(Self { process, says: BufReader::new(says).lines() })
    }

    fn next(&mut self) -> Result<String> {
        Ok(self.says.next().context("the late host has ended")??)
    }

    fn wake(mut self) -> Result<String> {
        kill_process(Pid::from_child(&self.process), Signal::CONT)?;
        self.next()
    }
}

impl Drop for Late {
    fn drop(&mut self) {
        // It has exited, unless the demo failed. In that case it might stay stopped forever.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
