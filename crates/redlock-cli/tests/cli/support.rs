//! Starting the command, and waiting for what it does.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};
use std::{env, fs, thread};

pub(crate) use redlock_testkit::lab::{
    PATIENCE, copies, is_alive, is_stopped, poll, value, waited_for_processor,
};
use redlock_testkit::{RedisServers, ServerOptions};
use rustix::process::{Pid, Signal, kill_process};

/// The output of one command.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Answer {
    /// Returns the single line on stderr with the cause.
    pub(crate) fn cause(&self) -> &str {
        let causes: Vec<_> = self.err.lines().filter(|l| l.starts_with("redlock:")).collect();
        assert_eq!(causes.len(), 1, "one line with the cause: {self:?}");
        causes[0]
    }

    /// Returns stdout after a success without complaints.
    pub(crate) fn success(&self) -> &str {
        assert_eq!(self.code, 0, "{self:?}");
        assert!(!self.err.contains("redlock:"), "{self:?}");
        self.out.trim_end()
    }

    /// Returns `true` if the cause shows three masters as held. Two refusals are enough, so a busy
    /// machine may still be connecting to the third.
    pub(crate) fn shows_three_as_held(&self) -> bool {
        let late = "not connected: still connecting";
        let is_one_late = self.cause().matches(late).count() == 1;
        self.cause().ends_with("3 masters: held") || self.shows_two_as_held() && is_one_late
    }

    /// Returns `true` if the cause shows two of three masters as held, by their names.
    pub(crate) fn shows_two_as_held(&self) -> bool {
        let rest = self.cause().split_once("2 masters (").map(|(_, rest)| rest);
        rest.and_then(|rest| rest.split_once(')'))
            .is_some_and(|(_, said)| said.starts_with(": held"))
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

/// Starts a program with every signal's default action. A process inherits ignored signals, and
/// `nohup` or a shell's `&` ignore signals that tests send.
pub(crate) fn undisturbed(program: &str) -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal", program]);
    command
}

/// The node timeout of tests. If the machine stalls for most of a second, that is not a fault of a
/// master.
pub(crate) const NODE_TIMEOUT: &str = "1200ms";

/// A command without settings from the environment of the test or a file of this host. The node timeout is long, but no
/// longer than a short TTL allows.
pub(crate) fn bare<const N: usize>(words: [&str; N]) -> Command {
    let mut command = undisturbed(env!("CARGO_BIN_EXE_redlock"));
    for (name, _) in env::vars_os() {
        if name.to_string_lossy().starts_with("REDLOCK_") {
            command.env_remove(name);
        }
    }
    let longest = if words.contains(&"--ttl") { "500ms" } else { NODE_TIMEOUT };
    command.env("REDLOCK_NODE_TIMEOUT", longest).env("REDLOCK_CONFIG", "/dev/null");
    command.args(words).stdin(Stdio::null());
    command
}

/// So many masters that are admitted for a prefix.
pub(crate) fn prefixed(count: usize, prefix: &str) -> RedisServers {
    RedisServers::with(count, &ServerOptions::new().prefix(prefix)).unwrap()
}

/// A command on these masters.
pub(crate) fn redlock<const N: usize>(servers: &RedisServers, words: [&str; N]) -> Command {
    let mut command = bare(words);
    command.env("REDLOCK_NODES", servers.urls().join(","));
    command
}

/// The answer of a command on these masters.
pub(crate) fn ask<const N: usize>(servers: &RedisServers, words: [&str; N]) -> Answer {
    answer_of(&mut redlock(servers, words))
}

/// The answer of a command that reads nothing.
pub(crate) fn answer_of(command: &mut Command) -> Answer {
    Running::start_into(command.stdin(Stdio::null()), Stdio::piped()).answer()
}

/// The times during which this process was stalled, and with it the machine or the whole test run.
/// A thread records each of its sleeps that took far too long.
#[derive(Debug)]
pub(crate) struct Stalls(Arc<Mutex<Vec<[SystemTime; 2]>>>);

impl Stalls {
    pub(crate) fn watch() -> Self {
        const TICK: Duration = Duration::from_millis(10);
        let seen = Arc::new(Mutex::new(Vec::new()));
        let stalls = Arc::downgrade(&seen);
        thread::spawn(move || {
            while let Some(stalls) = stalls.upgrade() {
                let began = SystemTime::now();
                thread::sleep(TICK);
                let ended = SystemTime::now();
                if ended.duration_since(began).is_ok_and(|took| took > TICK * 10) {
                    stalls.lock().unwrap().push([began, ended]);
                }
            }
        });
        Self(seen)
    }

    /// Returns `true` if everything was stalled from `end` until just before `last`.
    pub(crate) fn explain(&self, end: SystemTime, last: SystemTime) -> bool {
        const AWAKE: Duration = Duration::from_millis(250);
        let stalls = self.0.lock().unwrap();
        stalls.iter().any(|[from, to]| *from <= end + AWAKE && last <= *to + AWAKE)
    }

    /// Returns `true` if everything was stalled until a moment ago.
    pub(crate) fn explain_now(&self) -> bool {
        // The thread may have had no chance to note it yet.
        thread::sleep(Duration::from_millis(50));
        let now = SystemTime::now();
        self.explain(now, now)
    }
}

/// A command that runs in parallel with the test, and is killed with it.
pub(crate) struct Running {
    process: Child,
    stderr: Receiver<Vec<u8>>,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Self {
        Self::start_into(&mut command, Stdio::piped())
    }

    /// The same, printing into something else than a pipe.
    pub(crate) fn start_into(command: &mut Command, stdout: Stdio) -> Self {
        let mut process = command.stdout(stdout).stderr(Stdio::piped()).spawn().unwrap();
        let stderr = all_of(process.stderr.take().unwrap());
        Self { process, stderr }
    }

    pub(crate) fn pid(&self) -> i32 {
        Pid::from_child(&self.process).as_raw_nonzero().get()
    }

    /// The next lines it prints.
    pub(crate) fn lines(&mut self) -> Lines {
        Lines::of(self.process.stdout.take().unwrap())
    }

    pub(crate) fn type_in(&mut self, text: &str) {
        self.process.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.process.try_wait().unwrap().is_some()
    }

    /// Waits for its end and for that of its output.
    pub(crate) fn answer(mut self) -> Answer {
        let stdout = self.process.stdout.take().map(all_of);
        let status = poll("the command ends", || self.process.try_wait().unwrap());
        let end = |output: &Receiver<_>| output.recv_timeout(PATIENCE).expect("its output ends");
        let stdout = stdout.as_ref().map(end).unwrap_or_default();
        Output { status, stdout, stderr: end(&self.stderr) }.into()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Reads a pipe in a separate thread, because its end may never come.
fn all_of(mut pipe: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        pipe.read_to_end(&mut bytes).unwrap();
        // After the end of the test, there is no receiver.
        let _ = sender.send(bytes);
    });
    receiver
}

pub(crate) struct Lines(Receiver<String>);

impl Lines {
    pub(crate) fn of(output: impl Read + Send + 'static) -> Self {
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || {
            let mut lines = BufReader::new(output).lines().map_while(Result::ok);
            while lines.next().is_some_and(|line| sender.send(line).is_ok()) {}
        });
        Self(receiver)
    }

    pub(crate) fn next(&mut self) -> String {
        self.next_or_end().expect("a line was expected")
    }

    pub(crate) fn next_or_end(&mut self) -> Option<String> {
        self.0.recv_timeout(PATIENCE).ok()
    }
}

pub(crate) fn send(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
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
