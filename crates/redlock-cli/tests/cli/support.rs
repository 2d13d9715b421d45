//! Starting the command, and waiting for what it does.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use redlock_testkit::{RedisServer, RedisServers};
use rustix::process::{Pid, Signal, kill_process};

/// What one command has answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Answer {
    /// The single line on stderr that tells the cause.
    pub(crate) fn cause(&self) -> &str {
        let causes: Vec<_> = self.err.lines().filter(|l| l.starts_with("redlock:")).collect();
        assert_eq!(causes.len(), 1, "one line with the cause: {self:?}");
        causes[0]
    }

    /// What was printed, after a success without complaints.
    pub(crate) fn success(&self) -> &str {
        assert_eq!(self.code, 0, "{self:?}");
        assert!(!self.err.contains("redlock:"), "{self:?}");
        self.out.trim_end()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        assert_eq!(self.out.lines().count(), 1, "{self:?}");
        serde_json::from_str(&self.out).unwrap()
    }
}

impl From<Output> for Answer {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let code = output.status.code().unwrap_or_else(|| panic!("{:?}", output.status));
        Self { code, out: text(output.stdout), err: text(output.stderr) }
    }
}

/// A command with nothing of the surroundings that could change what it does. The node timeout is
/// long: a busy machine is no fault of a master.
pub(crate) fn bare<const N: usize>(words: [&str; N]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_redlock"));
    for (name, _) in env::vars_os() {
        if name.to_string_lossy().starts_with("REDLOCK_") {
            command.env_remove(name);
        }
    }
    command.env("REDLOCK_NODE_TIMEOUT", "500ms");
    command.args(words).stdin(Stdio::null());
    command
}

/// A command on these masters.
pub(crate) fn redlock<const N: usize>(servers: &RedisServers, words: [&str; N]) -> Command {
    let mut command = bare(words);
    command.env("REDLOCK_NODES", servers.urls().join(","));
    command
}

/// The answer of a command on these masters.
pub(crate) fn ask<const N: usize>(servers: &RedisServers, words: [&str; N]) -> Answer {
    redlock(servers, words).output().unwrap().into()
}

/// A command that runs beside the test, and is killed with it.
pub(crate) struct Running(Child);

impl Running {
    pub(crate) fn start(mut command: Command) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Self(command.spawn().unwrap())
    }

    /// The same, printing into something else than a pipe.
    pub(crate) fn start_into(command: &mut Command, stdout: Stdio) -> Self {
        Self(command.stdout(stdout).stderr(Stdio::piped()).spawn().unwrap())
    }

    pub(crate) fn pid(&self) -> i32 {
        Pid::from_child(&self.0).as_raw_nonzero().get()
    }

    /// The next lines it prints.
    pub(crate) fn lines(&mut self) -> Lines {
        Lines(BufReader::new(self.0.stdout.take().unwrap()))
    }

    pub(crate) fn type_in(&mut self, text: &str) {
        self.0.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some()
    }

    pub(crate) fn status(mut self) -> ExitStatus {
        let status = poll("the command ends", || self.0.try_wait().unwrap());
        self.0.stdout.take();
        status
    }

    /// Waits for its end. What it still prints must fit into a pipe.
    pub(crate) fn answer(mut self) -> Answer {
        let status = poll("the command ends", || self.0.try_wait().unwrap());
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        if let Some(mut pipe) = self.0.stdout.take() {
            pipe.read_to_end(&mut stdout).unwrap();
        }
        self.0.stderr.take().unwrap().read_to_end(&mut stderr).unwrap();
        Output { status, stdout, stderr }.into()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) struct Lines(BufReader<ChildStdout>);

impl Lines {
    pub(crate) fn next(&mut self) -> String {
        let mut line = String::new();
        assert_ne!(self.0.read_line(&mut line).unwrap(), 0, "a line was expected");
        line.trim_end().to_owned()
    }
}

/// Looks again and again until there is something to see.
pub(crate) fn poll<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    const PATIENCE: Duration = Duration::from_secs(30);
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a process runs: one that has ended and that nobody has asked about does not.
pub(crate) fn is_alive(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| state != 'Z' && state != 'X')
}

/// Whether a process was stopped by a signal.
pub(crate) fn is_stopped(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
}

pub(crate) fn send(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

/// The value of a key on one master, as text.
pub(crate) fn value(server: &RedisServer, key: &str) -> Option<String> {
    let value = format!("{:?}", server.command(&["GET", key]).unwrap());
    let text = value.strip_prefix("bulk-string('\"").and_then(|text| text.strip_suffix("\"')"));
    text.map(String::from)
}

/// On how many of the masters that answer there is a key.
pub(crate) fn copies(servers: &RedisServers, key: &str) -> usize {
    let awake = servers.iter().filter(|server| server.is_running() && !server.is_paused());
    awake.filter(|server| value(server, key).is_some()).count()
}

/// A directory that goes away with the test.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Self {
        let unique = format!("redlock-cli-{}-{name}", std::process::id());
        let path = env::temp_dir().join(unique);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
