//! The masters, and how they are hurt and healed.

use std::env;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use anyhow::{Context, ensure};

use crate::lab::{LONG, PATIENCE, admit, ms};

const NETWORK: &str = "redlock";
const FIRST_PORT: u16 = 7101;
const COUNT: u16 = 5;

/// There are five masters in all, so one test has them at a time.
static TURN: Mutex<()> = Mutex::new(());

/// All five masters, for one test. They are whole when it gets them.
pub(crate) struct Masters {
    all: Vec<Master>,
    _turn: MutexGuard<'static, ()>,
}

impl Masters {
    pub(crate) fn take() -> Self {
        // A test that has failed has healed what it broke.
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let all: Vec<_> = (0..COUNT).map(|index| Master { index }).collect();
        let masters = Self { all, _turn: turn };
        // Only these names show that a test may disturb those containers.
        assert!(
            env::var("REDLOCK_NODES").is_ok_and(|nodes| nodes == masters.urls().join(",")),
            "these tests kill, pause and cut off the masters of docker-compose.yml, and \
             REDLOCK_NODES does not name them: run `make test-compose`, which starts them, names \
             them and takes them down",
        );
        masters.all.iter().for_each(|master| master.wait_until_whole().unwrap());
        admit(masters.urls(), "", LONG);
        masters
    }

    pub(crate) fn urls(&self) -> Vec<String> {
        self.all.iter().map(|master| format!("redis://{}", master.node())).collect()
    }

    /// Returns the value of a key on every master.
    pub(crate) fn values(&self, key: &str) -> Vec<Option<String>> {
        self.all.iter().map(|master| master.value(key)).collect()
    }
}

impl std::ops::Deref for Masters {
    type Target = [Master];

    fn deref(&self) -> &[Master] {
        &self.all
    }
}

/// One master, in its own container.
#[derive(Clone, Copy)]
pub(crate) struct Master {
    index: u16,
}

impl Master {
    /// Its name in votes.
    pub(crate) fn node(self) -> String {
        format!("127.0.0.1:{}", FIRST_PORT + self.index)
    }

    fn container(self) -> String {
        format!("redlock-master-{}", self.index + 1)
    }

    /// Ends the server as a crash does; healing starts it again.
    pub(crate) fn kill(self) -> Fault {
        self.hurt(&["kill"], &["start"])
    }

    /// Freezes the server: connections are accepted, and nothing is answered.
    pub(crate) fn pause(self) -> Fault {
        self.hurt(&["pause"], &["unpause"])
    }

    /// Takes the server out of its network: connections break and new ones are refused.
    pub(crate) fn disconnect(self) -> Fault {
        self.hurt(&["network", "disconnect", NETWORK], &["network", "connect", NETWORK])
    }

    fn hurt(self, hurt: &'static [&'static str], cure: &'static [&'static str]) -> Fault {
        // Created first, so that an incomplete change is undone as well.
        let fault = Fault { master: self, cure, is_healed: false };
        self.docker(hurt).unwrap();
        fault
    }

    /// Shuts the server down gracefully and starts it again.
    pub(crate) fn restart(self) {
        self.docker(&["restart"]).unwrap();
        self.wait_until_whole().unwrap();
    }

    /// Returns the value of a key, read from inside the container, without the network.
    pub(crate) fn value(self, key: &str) -> Option<String> {
        let value = self.redis_cli(&["get", key]).unwrap();
        (!value.is_empty()).then_some(value)
    }

    fn redis_cli(self, words: &[&str]) -> anyhow::Result<String> {
        let container = self.container();
        let exec = ["exec", &container, "redis-cli"];
        docker(&[&exec[..], words].concat())
    }

    /// Waits until it answers, in its container and through its published port.
    fn wait_until_whole(self) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while let Err(error) = self.answers() {
            ensure!(Instant::now() < deadline, "{}: {error:#}", self.container());
            thread::sleep(ms(20));
        }
        Ok(())
    }

    fn answers(self) -> anyhow::Result<()> {
        let inside = self.redis_cli(&["ping"])?;
        ensure!(inside == "PONG", "it answers {inside:?} to a ping");
        let client = redis::Client::open(format!("redis://{}", self.node()))?;
        let mut connection = client.get_connection_with_timeout(ms(1_000))?;
        connection.set_read_timeout(Some(ms(1_000)))?;
        redis::cmd("PING").query(&mut connection).context("a ping through its port")
    }

    fn docker(self, words: &[&str]) -> anyhow::Result<()> {
        docker(&[words, &[self.container().as_str()]].concat()).map(drop)
    }
}

/// The fault of one master, until it is healed or dropped, also by a panic.
#[must_use = "it is healed when it is dropped"]
pub(crate) struct Fault {
    master: Master,
    cure: &'static [&'static str],
    is_healed: bool,
}

impl Fault {
    /// Makes the master whole, and waits until it answers.
    pub(crate) fn heal(mut self) {
        self.cure().unwrap();
    }

    fn cure(&mut self) -> anyhow::Result<()> {
        self.is_healed = true;
        self.master.docker(self.cure)?;
        self.master.wait_until_whole()
    }
}

impl Drop for Fault {
    fn drop(&mut self) {
        if self.is_healed {
            return;
        }
        // If a panic is unwinding, it must be the reported one. The next test reports this error.
        if let Err(error) = self.cure() {
            eprintln!("{} is not healed: {error:#}", self.master.container());
        }
    }
}

/// Ends several servers, so that they are dead at the same time.
pub(crate) fn kill(masters: &[Master]) -> Vec<Fault> {
    masters.iter().map(|master| master.kill()).collect()
}

pub(crate) fn heal(faults: Vec<Fault>) {
    faults.into_iter().for_each(Fault::heal);
}

fn docker(words: &[&str]) -> anyhow::Result<String> {
    let output = Command::new("docker").args(words).output().context("docker")?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "docker {}: {}", words.join(" "), error.trim_end());
    Ok(String::from_utf8(output.stdout)?.trim_end().to_owned())
}
