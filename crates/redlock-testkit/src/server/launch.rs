//! Starting a server on its own port. It is ours only once it answers with its process id.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};
use std::{env, thread};

use anyhow::{Context, anyhow, bail};

use super::options::ServerOptions;
use super::port::Port;
use super::probe;
use super::process::{Process, dying_with_us};
use super::scratch::Scratch;

/// All that is needed to start the same server again and again.
#[derive(Debug)]
pub(super) struct Launch {
    binary: PathBuf,
    arguments: Vec<String>,
    variables: Vec<(String, OsString)>,
    password: Option<String>,
    home: Scratch,
}

/// Why a start failed.
enum Failure {
    /// Another process has the port: another port, or a later time, may do.
    PortTaken(String),
    /// Trying again would not help.
    Broken(anyhow::Error),
}

impl Launch {
    pub(super) fn new(options: &ServerOptions) -> anyhow::Result<Self> {
        let parent = options.directory.clone().unwrap_or_else(env::temp_dir);
        let launch = Self {
            binary: options.find_binary()?,
            arguments: options.arguments.clone(),
            variables: options.variables.clone(),
            password: options.password.clone(),
            home: Scratch::new(&parent)?,
        };
        fs::create_dir(launch.data())?;
        Ok(launch)
    }

    /// Returns `:PASSWORD@` in the form that a URL has, or an empty text.
    pub(super) fn userinfo(&self) -> String {
        let escaped = |password: &String| {
            let bytes: String = password.bytes().map(escape).collect();
            format!(":{bytes}@")
        };
        self.password.as_ref().map(escaped).unwrap_or_default()
    }

    /// Empties the server's directory. The server must be down.
    pub(super) fn wipe(&self) -> anyhow::Result<()> {
        let data = self.data();
        fs::remove_dir_all(&data)
            .and_then(|()| fs::create_dir(&data))
            .with_context(|| format!("emptying {}", data.display()))
    }

    /// Starts the server on a free port.
    pub(super) fn start_anywhere(&self) -> anyhow::Result<(Port, Process)> {
        let mut last = String::from("all were taken by other servers of the test kit");
        for _ in 0..PORTS_TRIED {
            let Some(port) = Port::random() else { continue };
            match self.start_once(port.number()) {
                Ok(process) => return Ok((port, process)),
                Err(Failure::PortTaken(why)) => last = why,
                Err(Failure::Broken(error)) => return Err(error),
            }
        }
        bail!("no free port in {PORTS_TRIED} tries; at last: {last}")
    }

    /// Starts the server on this port, which its predecessor may still be about to leave.
    pub(super) fn start_on(&self, port: u16) -> anyhow::Result<Process> {
        let deadline = Instant::now() + PORT_PATIENCE;
        loop {
            match self.start_once(port) {
                Ok(process) => return Ok(process),
                Err(Failure::Broken(error)) => return Err(error),
                Err(Failure::PortTaken(why)) if Instant::now() > deadline => {
                    bail!("port {port} was taken for {PORT_PATIENCE:?}: {why}");
                }
                Err(Failure::PortTaken(_)) => thread::sleep(PORT_RETRY_INTERVAL),
            }
        }
    }

    fn start_once(&self, port: u16) -> Result<Process, Failure> {
        // Each start truncates the log, so its end never shows an older error.
        let log = File::create(self.log()).context("making the server's log");
        let command = log.and_then(|log| Ok(self.command(port, log)?)).map_err(Failure::Broken)?;
        let process = Process::spawn(command)
            .with_context(|| format!("starting {}", self.binary.display()))
            .map_err(Failure::Broken)?;
        self.await_ready(process, port)
    }

    fn command(&self, port: u16, log: File) -> io::Result<Command> {
        let mut command = dying_with_us(&self.binary);
        command.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", ""]);
        command.args(["--protected-mode", "no", "--daemonize", "no", "--dir"]).arg(self.data());
        if let Some(password) = &self.password {
            command.args(["--requirepass", password]);
        }
        command.args(&self.arguments);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.stdout(log.try_clone()?).stderr(log);
        Ok(command)
    }

    /// Waits until the answer on `port` comes from `process`, and from no other.
    fn await_ready(&self, mut process: Process, port: u16) -> Result<Process, Failure> {
        let url = format!("redis://{}127.0.0.1:{port}", self.userinfo());
        let deadline = Instant::now() + READY_PATIENCE;
        loop {
            match process.exit_status() {
                Ok(None) => {}
                Ok(Some(status)) => return Err(self.ended(&status.to_string())),
                Err(error) => return Err(Failure::Broken(error.into())),
            }
            match probe::process_id(&url) {
                Some(pid) if pid == process.pid() => return Ok(process),
                // Another process that answers has the port: our server is about to end with that
                // error.
                answer if Instant::now() > deadline => {
                    return Err(Failure::Broken(self.unready(port, answer, process.pid())));
                }
                _ => thread::sleep(READY_POLL_INTERVAL),
            }
        }
    }

    fn ended(&self, status: &str) -> Failure {
        let log = self.log_tail();
        let message = format!("{} ended ({status}): {log}", self.binary.display());
        if PORT_TAKEN_SIGNS.iter().any(|sign| log.contains(sign)) {
            Failure::PortTaken(message)
        } else {
            Failure::Broken(anyhow!(message))
        }
    }

    fn unready(&self, port: u16, answer: Option<u32>, expected: u32) -> anyhow::Error {
        let binary = self.binary.display();
        let trouble = match answer {
            Some(pid) => format!(
                "process {pid} answers on port {port}, not process {expected} that was started (a \
                 script has to `exec` the server)"
            ),
            None => format!("{binary} does not answer on port {port} after {READY_PATIENCE:?}"),
        };
        anyhow!("{trouble}: {}", self.log_tail())
    }

    fn log_tail(&self) -> String {
        let log = fs::read(self.log()).unwrap_or_default();
        let text = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = text.lines().collect();
        let tail = &lines[lines.len().saturating_sub(LOG_TAIL_LINES)..];
        format!("its log ends with\n{}", tail.join("\n"))
    }

    // The log is outside the data directory, so that emptying the directory keeps the log.
    fn log(&self) -> PathBuf {
        self.home.path().join("log")
    }

    fn data(&self) -> PathBuf {
        self.home.path().join("data")
    }
}

/// Encodes one byte of a password for a URL.
fn escape(byte: u8) -> String {
    if byte.is_ascii_alphanumeric() { char::from(byte).into() } else { format!("%{byte:02X}") }
}

// Both servers log one of these when the port, or the cluster bus's 10000 above it, is taken.
const PORT_TAKEN_SIGNS: [&str; 2] = ["Address already in use", "Failed listening on port"];
const PORTS_TRIED: usize = 100;
const PORT_PATIENCE: Duration = Duration::from_secs(3);
const PORT_RETRY_INTERVAL: Duration = Duration::from_millis(50);
const READY_PATIENCE: Duration = Duration::from_secs(10);
const READY_POLL_INTERVAL: Duration = Duration::from_millis(5);
const LOG_TAIL_LINES: usize = 12;
