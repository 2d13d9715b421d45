//! `Child`: the command, in a process group of its own.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, kill_process_group, waitid,
};

use crate::exit;
use crate::launcher;
use crate::terminal::Terminal;

/// A running command and all that it has started and that has not left its group.
///
/// Nobody else waits for the process: until [`Child::reap`] its id, which is that of the group,
/// cannot belong to anybody else.
pub(crate) struct Child {
    process: std::process::Child,
    terminal: Option<Terminal>,
}

/// What has become of the command.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// It runs, as before.
    None,
    /// It was stopped by this signal.
    Stopped(i32),
    /// It has ended and waits to be reaped.
    Ended,
}

impl Child {
    /// Starts the command, with these variables and without those that lead to the masters. Must be
    /// called on the main thread: to the kernel the parent is the thread, and the command dies with
    /// it.
    pub(crate) fn start(
        command: &[OsString],
        variables: [(&str, &OsStr); 3],
        terminal: Option<Terminal>,
    ) -> io::Result<Self> {
        let in_foreground = terminal.as_ref().is_some_and(Terminal::is_for_the_command);
        let mut launcher = launcher::command(command, in_foreground);
        for secret in SECRETS {
            launcher.env_remove(secret);
        }
        let process = launcher.envs(variables).spawn()?;
        Ok(Self { process, terminal })
    }

    /// Whether the command is part of a job that a shell can stop and continue.
    pub(crate) fn has_terminal(&self) -> bool {
        self.terminal.is_some()
    }

    fn group(&self) -> Pid {
        Pid::from_child(&self.process)
    }

    /// Sends a signal to the whole group.
    pub(crate) fn signal(&self, signal: Signal) {
        // It fails when all of the group has ended, or has become somebody whom we may not signal:
        // nothing can be done about either.
        let _ = kill_process_group(self.group(), signal);
    }

    /// Asks the group to end. Who is stopped takes note of it only when it goes on.
    pub(crate) fn ask_to_end(&self) {
        self.signal(Signal::TERM);
        self.signal(Signal::CONT);
    }

    /// What has happened since the last look.
    pub(crate) fn news(&self) -> News {
        let look = |options| {
            let options = options | WaitIdOptions::NOHANG;
            waitid(WaitId::Pid(self.group()), options).ok().flatten()
        };
        if look(WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).is_some() {
            return News::Ended;
        }
        let stopped = look(WaitIdOptions::STOPPED).as_ref().and_then(WaitIdStatus::stopping_signal);
        stopped.map_or(News::None, News::Stopped)
    }

    /// The command was stopped by `signal`: it gets the terminal if that is what it wanted, and
    /// else the whole job stops, as it would without us. Returns when the job goes on; the command
    /// is still stopped then.
    pub(crate) fn stop_with(&self, signal: i32) {
        let Some(terminal) = &self.terminal else { return };
        let wants_terminal = [Signal::TTIN, Signal::TTOU].iter().any(|s| s.as_raw() == signal);
        if !(wants_terminal && terminal.is_ours()) {
            terminal.take_back_from(self.group());
            terminal.stop_our_job();
        }
    }

    /// Lets a command that was stopped go on, with the terminal if it is ours to give.
    pub(crate) fn go_on(&self) {
        if let Some(terminal) = &self.terminal
            && terminal.is_ours()
        {
            terminal.give_to(self.group());
        }
        self.signal(Signal::CONT);
    }

    /// Ends whatever of the group is left.
    pub(crate) fn kill(&self) {
        self.signal(Signal::KILL);
    }

    /// Takes the terminal back from a command that has ended, and tells its exit code as shells do.
    pub(crate) fn reap(mut self) -> io::Result<u8> {
        if let Some(terminal) = &self.terminal {
            terminal.take_back_from(self.group());
        }
        self.process.wait().map(code)
    }
}

fn code(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        // The kernel keeps eight bits of it.
        (Some(code), _) => u8::try_from(code).unwrap_or(u8::MAX),
        (None, signal) => exit::signalled(signal.unwrap_or_default()),
    }
}

/// What a command must not inherit: where the masters are, and how to log in to them.
const SECRETS: [&str; 5] = [
    "REDLOCK_NODES",
    "REDLOCK_NODES_FILE",
    "REDLOCK_TLS_CA",
    "REDLOCK_TLS_CERT",
    "REDLOCK_TLS_KEY",
];
