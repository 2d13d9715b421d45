//! Real throw-away masters: processes that are started, hurt and stopped by a test.

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

/// One throw-away server process on 127.0.0.1, with a directory of its own.
///
/// The process is killed and its directory removed when the value is dropped, also while a panic
/// unwinds. Where `setpriv` of util-linux is installed, the process also dies with the process that
/// started it, however that one ends; elsewhere a test that is killed leaves its servers behind. (A
/// killed test leaves the small directories behind in any case.)
///
/// While the value exists, no other `RedisServer` of any process takes its port, so a stopped
/// server is refused connections and never mistaken for another process's.
///
/// Every method **blocks** its thread, for milliseconds as a rule and for some seconds at most.
/// That is meant for tests, inside a runtime or outside; a runtime of one thread stands still
/// meanwhile, and so does a [`FaultProxy`](crate::FaultProxy) that runs on it.
#[derive(Debug)]
pub struct RedisServer {
    // The order of the fields is the order of dropping: the process ends before its directory (in
    // `launch`) is removed and its port is given back.
    process: Mutex<Option<Process>>,
    launch: Launch,
    namespace: Namespace,
    port: Port,
}

impl RedisServer {
    /// Starts one server with nothing but the defaults of [`ServerOptions`].
    ///
    /// # Errors
    ///
    /// When there is no server binary, or when it does not come to answer within 10 s.
    pub fn start() -> anyhow::Result<Self> {
        Self::with(&ServerOptions::new())
    }

    /// Starts one server.
    ///
    /// # Errors
    ///
    /// When there is no server binary, when the server does not come to answer within 10 s, or when
    /// the port of [`ServerOptions::first_port`] stays taken for 3 s.
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

    /// From now on [`init`](Self::init) records this set of masters there.
    fn join(&mut self, set: RecordedSet) {
        self.namespace.set = Some(set);
    }

    /// `redis://127.0.0.1:PORT`, with the password if [`ServerOptions::password`] set one.
    pub fn url(&self) -> String {
        format!("redis://{}{}", self.userinfo(), self.name())
    }

    /// `:PASSWORD@` as it stands in a URL, or nothing.
    pub(crate) fn userinfo(&self) -> String {
        self.launch.userinfo()
    }

    /// `127.0.0.1:PORT`.
    pub fn name(&self) -> String {
        format!("127.0.0.1:{}", self.port())
    }

    /// The TCP port; it stays the same over restarts.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// The process id of the running or paused server; `None` when it is stopped.
    pub fn pid(&self) -> Option<u32> {
        self.alive().as_ref().map(Process::pid)
    }

    /// Whether the process exists; a paused server is running.
    pub fn is_running(&self) -> bool {
        self.alive().is_some()
    }

    /// Whether the process exists and is stopped by a signal.
    pub fn is_paused(&self) -> bool {
        self.alive().as_ref().is_some_and(Process::is_paused)
    }

    /// Ends the server in good order (SIGTERM) and waits until it is gone.
    ///
    /// A paused server is resumed for it; a stopped one stays stopped.
    ///
    /// # Errors
    ///
    /// When the server is still there after 15 s; it is then killed.
    pub fn stop(&self) -> anyhow::Result<()> {
        match self.alive().take() {
            Some(process) => process.terminate().context(format!("stopping {}", self.name())),
            None => Ok(()),
        }
    }

    /// Ends the server as a crash does (SIGKILL) and waits until it is gone.
    ///
    /// Bytes that it did not read are lost; a stopped server stays stopped.
    pub fn kill(&self) {
        // Dropping a process kills it and waits.
        drop(self.alive().take());
    }

    /// Freezes the server (SIGSTOP) and returns when it really stands still.
    ///
    /// The kernel goes on accepting connections and bytes in its name: to a client this is a master
    /// that has become silent, and what was sent is executed after [`resume`](Self::resume).
    ///
    /// # Errors
    ///
    /// When the server is not running, or does not stop within 5 s.
    pub fn pause(&self) -> anyhow::Result<()> {
        self.with_process(Process::pause).context(format!("pausing {}", self.name()))
    }

    /// Lets a paused server go on (SIGCONT).
    ///
    /// # Errors
    ///
    /// When the server is not running.
    pub fn resume(&self) -> anyhow::Result<()> {
        self.with_process(Process::resume).context(format!("resuming {}", self.name()))
    }

    /// Starts the server again on its port and with its directory, stopping it first if need be.
    ///
    /// The files in the server's directory are loaded again: all keys with `--appendonly yes`, none
    /// with the defaults. For a crash call [`kill`](Self::kill) before.
    ///
    /// It is another process, so it is not admitted any more: clients with a quarantine do not
    /// count its votes for 1.1 times `max_ttl`, or until [`init`](Self::init).
    ///
    /// # Errors
    ///
    /// When the server does not stop, when the port stays taken for 3 s, or when the server does
    /// not come to answer within 10 s.
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
    /// options: the test states that no lock of a former incarnation is alive. The statistics of
    /// the server begin anew. A replica and a node of a cluster are left as they are.
    ///
    /// Every start does this, unless the options are [`ServerOptions::brand_new`]; a restart does
    /// not.
    ///
    /// # Errors
    ///
    /// When the server does not answer within 10 s or refuses to write.
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

    /// The process, unless it has ended.
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
