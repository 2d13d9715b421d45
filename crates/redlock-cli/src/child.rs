//! `Child`: the command, in its own process group.

use std::cell::RefCell;
use std::ffi::OsString;
use std::io;
use std::process::ExitStatus;

use nix::sys::signal::SigSet;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, waitid};

use crate::environment::Environment;
use crate::group::{self, Sent};
use crate::launcher;
use crate::process::Process;
use crate::stderr;
use crate::terminal::Terminal;
use crate::watchdog::Watchdog;

/// A running command, and the processes that it started and that are still in its group.
///
/// Nothing else waits for the process. So until [`Child::reap`], no other process or group gets its
/// id.
pub(crate) struct Child {
    process: std::process::Child,
    terminal: Option<Terminal>,
    watchdog: Watchdog,
    /// Undelivered signals, each already reported.
    refused: RefCell<Vec<Signal>>,
}

/// A change in the state of the command.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// The command runs, as before.
    None,
    /// The command was stopped by this signal.
    Stopped(i32),
    /// The command has exited but was not reaped yet.
    Ended,
}

impl Child {
    /// Starts the command, with these signals blocked, to be killed at `kill_at` at the latest
    /// unless [`kill_at`](Self::kill_at) gives it more time. Must be called on the main thread: to
    /// the kernel the parent is the thread, and the command dies with it.
    pub(crate) fn start(
        command: &[OsString],
        environment: &Environment,
        blocked: SigSet,
        terminal: Option<Terminal>,
        kill_at: u64,
    ) -> io::Result<Self> {
        let (watchdog, word) = Watchdog::start()?;
        let in_foreground = terminal.as_ref().is_some_and(Terminal::is_for_the_command);
        let mut launcher = launcher::command(command, in_foreground, blocked, &word)?;
        environment.apply_to(&mut launcher);
        let process = launcher.spawn()?;
        let mut this = Self { process, terminal, watchdog, refused: RefCell::default() };
        // The command begins when the watchdog has heard of it.
        this.kill_at(kill_at);
        Ok(this)
    }

    /// Returns `true` if the command is part of a job that a shell can stop and continue.
    pub(crate) fn has_terminal(&self) -> bool {
        self.terminal.is_some()
    }

    fn group(&self) -> Pid {
        Pid::from_child(&self.process)
    }

    /// Sets the instant of [`watchdog::now`](crate::watchdog::now) at which the watchdog kills the
    /// group, even if this process is stopped by then.
    pub(crate) fn kill_at(&mut self, kill_at: u64) {
        self.watchdog.watch(self.group(), kill_at);
    }

    /// Sends a signal to the whole group. Reports once for each signal that it cannot be sent to
    /// all of the group.
    pub(crate) fn signal(&self, signal: Signal) -> Sent {
        let sent = group::signal(self.group(), signal);
        let mut refused = self.refused.borrow_mut();
        // SIGCONT only accompanies SIGTERM or SIGSTOP, whose failure was reported.
        if sent != Sent::Yes && signal != Signal::CONT && !refused.contains(&signal) {
            refused.push(signal);
            stderr::note_now(&group::undelivered(signal, self.group(), sent));
        }
        sent
    }

    /// The processes below the command that have left its group, and get no signals.
    pub(crate) fn strays(&self) -> Vec<Process> {
        group::strays(self.group())
    }

    /// Returns how many members of the group this process has no right to signal.
    pub(crate) fn refusing(&self) -> usize {
        group::refusing(self.group())
    }

    /// Sends SIGTERM to the group. A stopped process handles it only when it continues.
    pub(crate) fn ask_to_end(&self) {
        self.signal(Signal::TERM);
        self.signal(Signal::CONT);
    }

    /// Returns the change since the previous call.
    pub(crate) fn news(&mut self) -> News {
        let wait = |options| {
            let options = options | WaitIdOptions::NOHANG;
            waitid(WaitId::Pid(self.group()), options).ok().flatten()
        };
        if wait(WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).is_some() {
            return News::Ended;
        }
        let stopped = wait(WaitIdOptions::STOPPED).as_ref().and_then(WaitIdStatus::stopping_signal);
        self.reap_others();
        stopped.map_or(News::None, News::Stopped)
    }

    /// Reaps children that are not ours: process 1 of a container adopts every orphan there.
    pub(crate) fn reap_others(&mut self) {
        self.watchdog.reap();
        #[cfg(target_os = "linux")]
        while let Some(other) = ended_child()
            && ![self.process.id(), self.watchdog.id()].contains(&other.as_raw().cast_unsigned())
        {
            // It has exited, so this returns immediately.
            let _ = nix::sys::wait::waitpid(other, None);
        }
    }

    /// Returns `true` if `signal` stopped the command because it needs a terminal that this process
    /// can give it.
    pub(crate) fn asks_for_terminal(&self, signal: i32) -> bool {
        let asks = [Signal::TTIN, Signal::TTOU].iter().any(|s| s.as_raw() == signal);
        asks && self.terminal.as_ref().is_some_and(Terminal::is_ours)
    }

    /// Stops the whole job, as it would stop without this process, and returns when it continues.
    /// The command and its group are stopped first, including members that ignore Ctrl-Z. They are
    /// still stopped when this returns, unless another process continued them or the watchdog
    /// killed them.
    pub(crate) fn stop_job(&mut self) {
        let Some(terminal) = &self.terminal else { return };
        self.signal(Signal::STOP);
        terminal.take_back_from(self.group());
        self.watchdog.job_stops(true);
        terminal.stop_our_job();
        self.watchdog.job_stops(false);
    }

    /// Continues a stopped command, with the terminal if this process can give it.
    pub(crate) fn go_on(&self) {
        if let Some(terminal) = &self.terminal
            && terminal.is_ours()
        {
            terminal.give_to(self.group());
        }
        self.signal(Signal::CONT);
    }

    /// Returns how many processes of the group are left after the command itself has exited. Until
    /// it is reaped, no other group can get the id.
    pub(crate) fn left(&self) -> usize {
        group::members(self.group()).unwrap_or_default()
    }

    /// Takes the terminal back after the command has exited. Remaining processes continue in the
    /// background.
    pub(crate) fn take_terminal_back(&self) {
        if let Some(terminal) = &self.terminal {
            terminal.take_back_from(self.group());
        }
    }

    /// Ends whatever of the group is left.
    pub(crate) fn kill(&self) -> Sent {
        self.signal(Signal::KILL)
    }

    /// Takes the terminal back from a command that has ended, and returns how it ended.
    pub(crate) fn reap(self) -> io::Result<ExitStatus> {
        self.take_terminal_back();
        let Self { mut process, terminal: _, watchdog, refused: _ } = self;
        // From then on the id of the group can be another's.
        drop(watchdog);
        process.wait()
    }
}

/// A child that has ended and was not reaped, whichever it is.
#[cfg(target_os = "linux")]
fn ended_child() -> Option<nix::unistd::Pid> {
    use nix::sys::wait::{Id, WaitPidFlag, waitid};
    let options = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    waitid(Id::All, options).ok().and_then(|status| status.pid())
}
