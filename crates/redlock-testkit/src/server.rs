//! Real, disposable masters: processes that a test starts, disturbs and stops.

mod admit;
mod launch;
mod options;
mod port;
mod probe;
mod process;
mod scratch;
mod servers;

pub use options::ServerOptions;
pub use servers::RedisServers;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail};
use redlock_core::admission::RecordedSet;

use admit::{Namespace, admit};
use launch::Launch;
use port::Port;
use process::Process;

/// One disposable server process on 127.0.0.1, with its own directory.
///
/// When the value is dropped, also during a panic, the process is killed and its directory removed.
/// If `setpriv` of util-linux is installed, the process also dies with the process that started it.
/// Otherwise a killed test leaves its servers running. A killed test always leaves the small
/// directories.
///
/// While the value exists, no other `RedisServer` of any process takes its port. A stopped server
/// therefore refuses connections, and no other process's server answers on its port.
///
/// Every method **blocks** its thread, usually for milliseconds and at most for some seconds. That
/// is intended for tests, inside a runtime or outside. A single-threaded runtime stops during that
/// time, and so does a [`FaultProxy`](crate::FaultProxy) on it.
#[derive(Debug)]
pub struct RedisServer {
    // Fields are dropped in this order: the process exits before its directory (in `launch`) is
    // removed and its port is released.
    process: Mutex<Option<Process>>,
    launch: Launch,
    namespace: Namespace,
    port: Port,
}

impl RedisServer {
    /// Starts one server with the defaults of [`ServerOptions`].
    ///
    /// # Errors
    ///
    /// Fails if there is no server binary, or if the server does not answer within 10 s.
    pub fn start() -> anyhow::Result<Self> {
        Self::with(&ServerOptions::new())
    }

    /// Starts one server.
    ///
    /// # Errors
    ///
    /// Fails if there is no server binary, if the server does not answer within 10 s, or if the
    /// port of [`ServerOptions::first_port`] stays in use for 3 s.
    pub fn with(options: &ServerOptions) -> anyhow::Result<Self> {
        let server = Self::launch(options)?;
        if !options.is_brand_new {
            server.init()?;
        }
        Ok(server)
    }

    /// Starts one server and admits it nowhere.
    fn launch(options: &ServerOptions) -> anyhow::Result<Self> {
        let launch = Launch::new(options)?;
        let (port, process) = match options.first_port {
            Some(number) => (Port::fixed(number), launch.start_on(number)?),
            None => launch.start_anywhere()?,
        };
        let namespace = options.namespace();
        Ok(Self { process: Mutex::new(Some(process)), launch, namespace, port })
    }

    /// Makes [`init`](Self::init) record this set of masters there from now on.
    fn join(&mut self, set: RecordedSet) {
        self.namespace.set = Some(set);
    }

    /// `redis://127.0.0.1:PORT`, with the password if [`ServerOptions::password`] set one.
    pub fn url(&self) -> String {
        format!("redis://{}{}", self.userinfo(), self.name())
    }

    /// Returns `:PASSWORD@` in the form that a URL has, or an empty text.
    pub(crate) fn userinfo(&self) -> String {
        self.launch.userinfo()
    }

    /// `127.0.0.1:PORT`.
    pub fn name(&self) -> String {
        format!("127.0.0.1:{}", self.port())
    }

    /// Returns the TCP port, which stays the same over restarts.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Returns the process id of the running or paused server. `None` if it is stopped.
    pub fn pid(&self) -> Option<u32> {
        self.alive().as_ref().map(Process::pid)
    }

    /// Returns `true` if the process exists. A paused server is running.
    pub fn is_running(&self) -> bool {
        self.alive().is_some()
    }

    /// Returns `true` if the process exists and is stopped by a signal.
    pub fn is_paused(&self) -> bool {
        self.alive().as_ref().is_some_and(Process::is_paused)
    }

    /// Shuts the server down gracefully (SIGTERM) and waits until it has exited.
    ///
    /// A paused server is resumed first. A stopped server stays stopped.
    ///
    /// # Errors
    ///
    /// Fails if the server is still running after 15 s. It is then killed.
    pub fn stop(&self) -> anyhow::Result<()> {
        match self.alive().take() {
            Some(process) => process.terminate().context(format!("stopping {}", self.name())),
            None => Ok(()),
        }
    }

    /// Kills the server (SIGKILL) as a crash would, and waits until it has exited.
    ///
    /// Bytes that it did not read are lost. A stopped server stays stopped.
    pub fn kill(&self) {
        // Dropping a process kills it and waits.
        drop(self.alive().take());
    }

    /// Pauses the server (SIGSTOP), and returns once it has stopped.
    ///
    /// The kernel still accepts connections and bytes for it. To a client, the master is silent,
    /// and it executes the requests after [`resume`](Self::resume).
    ///
    /// # Errors
    ///
    /// Fails if the server is not running, or does not stop within 5 s.
    pub fn pause(&self) -> anyhow::Result<()> {
        self.with_process(Process::pause).context(format!("pausing {}", self.name()))
    }

    /// Resumes a paused server (SIGCONT).
    ///
    /// # Errors
    ///
    /// Fails if the server is not running.
    pub fn resume(&self) -> anyhow::Result<()> {
        self.with_process(Process::resume).context(format!("resuming {}", self.name()))
    }

    /// Starts the server again on its port and with its directory. Stops it first if necessary.
    ///
    /// The server loads the files in its directory: all keys with `--appendonly yes`, none with the
    /// defaults. To simulate a crash, call [`kill`](Self::kill) first.
    ///
    /// The new process is not admitted. With clients that use a quarantine, it does not vote for
    /// 1.1 times `max_ttl`, or until [`init`](Self::init).
    ///
    /// # Errors
    ///
    /// Fails if the server does not stop, if the port stays in use for 3 s, or if the server does
    /// not answer within 10 s.
    pub fn restart(&self) -> anyhow::Result<()> {
        self.stop()?;
        let started = self.launch.start_on(self.port()).context("restarting")?;
        *self.alive() = Some(started);
        Ok(())
    }

    /// Starts the server again on its port with nothing in its directory: a master that lost all.
    ///
    /// # Errors
    ///
    /// As [`restart`](Self::restart), or when the directory cannot be emptied.
    pub fn restart_empty(&self) -> anyhow::Result<()> {
        self.stop()?;
        self.launch.wipe()?;
        self.restart()
    }

    /// Admits the server as `redlock init --again` does, for the prefix and `max_ttl` of its
    /// options. The test asserts that no lock of a previous process is held. Resets the statistics
    /// of the server. Replicas and cluster nodes are not changed.
    ///
    /// Every start does this, except with [`ServerOptions::brand_new`]. A restart does not.
    ///
    /// # Errors
    ///
    /// Fails if the server does not answer within 10 s, or rejects writes.
    pub fn init(&self) -> anyhow::Result<()> {
        let admitted = admit(&self.url(), &self.namespace);
        admitted.with_context(|| format!("admitting {}", self.name()))?;
        // A server whose options rename the command keeps its statistics.
        let _ = self.command(&["CONFIG", "RESETSTAT"]);
        Ok(())
    }

    /// Sends one command over a fresh connection, like a client outside the library that reads the
    /// keys.
    ///
    /// # Errors
    ///
    /// When the server refuses the command, or does not answer within 3 s.
    pub fn command(&self, words: &[&str]) -> anyhow::Result<redis::Value> {
        probe::command(&self.url(), words, COMMAND_PATIENCE)
            .with_context(|| format!("{} at {}", words.join(" "), self.name()))
    }

    fn with_process(&self, act: fn(&mut Process) -> anyhow::Result<()>) -> anyhow::Result<()> {
        match self.alive().as_mut() {
            Some(process) => act(process),
            None => bail!("the server is not running"),
        }
    }

    /// Returns the process, unless it has exited.
    fn alive(&self) -> MutexGuard<'_, Option<Process>> {
        // A test that panicked while it held the process has not broken it.
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        if process.as_mut().is_some_and(Process::has_exited) {
            *process = None;
        }
        process
    }
}

const COMMAND_PATIENCE: Duration = Duration::from_secs(3);
