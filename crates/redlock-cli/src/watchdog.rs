//! `Watchdog`: a second process, which ends the command when this one cannot.
//!
//! A `redlock run` that is stopped, by Ctrl-Z or by SIGSTOP, looks at no clock. So it starts
//! `redlock __watchdog` and writes to its stdin, again after each extension, at what time the group
//! of the command must have ended. The watchdog has a session of its own and blocks every signal:
//! what reaches a job, a terminal's session or a whole service does not reach it. When its stdin
//! ends, `redlock run` was killed, and it ends the group at once.
//!
//! The command begins when the watchdog knows its group: the launcher waits for a byte that the
//! watchdog writes to its stdout with the first order. So there is no moment at which `redlock run`
//! can be killed and leave something of the command behind.

use std::ffi::OsString;
use std::io::{self, PipeReader, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::time::Duration;

use nix::sys::signal::{SigSet, SigmaskHow};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, getpgid, getppid, kill_process_group, setsid};
use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::launcher;
use crate::process::Process;

/// The first word of a command line that is meant for the watchdog.
const WORD: &str = "__watchdog";

/// The watchdog, as `redlock run` sees it. It ends when this is dropped, and does nothing more.
pub(crate) struct Watchdog {
    process: Child,
    stdin: ChildStdin,
    last: Option<Order>,
}

impl Watchdog {
    /// Starts it. It does nothing before the first call of [`watch`](Self::watch); then it writes
    /// its word into the pipe that is returned beside it. The pipe ends without a word when the
    /// watchdog does.
    pub(crate) fn start() -> io::Result<(Self, PipeReader)> {
        let (word, stdout) = io::pipe()?;
        let mut command = Command::new(launcher::this_program());
        command.arg0("redlock").arg(WORD).current_dir("/").env_clear();
        command.stdin(Stdio::piped()).stdout(stdout).stderr(Stdio::null());
        // It inherits this, and so no Ctrl-Z stops it before it has its own session.
        let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
        let spawned = command.spawn();
        before.thread_set_mask()?;
        let mut process = spawned?;
        let stdin = process.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
        // A watchdog that was stopped itself must not stop us.
        rustix::io::ioctl_fionbio(&stdin, true)?;
        Ok((Self { process, stdin, last: None }, word))
    }

    /// The group is ended in `within` from now, unless this is called again before.
    pub(crate) fn watch(&mut self, group: Pid, within: Duration) {
        /// What is less is the noise of two clocks.
        const CHANGE: u64 = 1_000_000;
        let (group, kill_at) = (group.as_raw_nonzero().get(), now().saturating_add(nanos(within)));
        let is_known = |last: Order| last.group == group && last.kill_at.abs_diff(kill_at) < CHANGE;
        if !self.last.is_some_and(is_known) {
            self.send(Order { group, is_job_stopped: false, kill_at });
        }
    }

    /// This process is about to stop, or goes on: when the command goes on alone, continued from
    /// elsewhere, the watchdog continues this process's group too.
    pub(crate) fn job_stops(&mut self, is_job_stopped: bool) {
        if let Some(last) = self.last {
            self.send(Order { is_job_stopped, ..last });
        }
    }

    fn send(&mut self, order: Order) {
        self.last = Some(order);
        // It fails when the watchdog was killed. Then the command has one guard less.
        let _ = self.stdin.write_all(&order.to_bytes());
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Reaps a watchdog that has ended before its time.
    pub(crate) fn reap(&mut self) {
        let _ = self.process.try_wait();
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        // It must be gone before its stdin ends, and before the id of the group can be another's.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What the watchdog goes by. The last one counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Order {
    group: i32,
    is_job_stopped: bool,
    /// On the clock of [`now`].
    kill_at: u64,
}

impl Order {
    /// Small enough for a pipe to take it whole or not at all.
    const SIZE: usize = 13;

    fn to_bytes(self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[..4].copy_from_slice(&self.group.to_ne_bytes());
        bytes[4] = self.is_job_stopped.into();
        bytes[5..].copy_from_slice(&self.kill_at.to_ne_bytes());
        bytes
    }

    fn from_bytes(bytes: [u8; Self::SIZE]) -> Self {
        let [a, b, c, d, is_job_stopped, kill_at @ ..] = bytes;
        Self {
            group: i32::from_ne_bytes([a, b, c, d]),
            is_job_stopped: is_job_stopped != 0,
            kill_at: u64::from_ne_bytes(kill_at),
        }
    }
}

/// Whether these words are for the watchdog.
pub(crate) fn is_meant(words: &[OsString]) -> bool {
    words.get(1).is_some_and(|word| word == WORD)
}

/// Is the watchdog, until its stdin ends.
pub(crate) fn watch() -> ExitCode {
    // It fails for the leader of a group alone, and this process was not started as one.
    let _ = setsid();
    let mut order = None;
    let mut is_due = false;
    loop {
        match receive(order.filter(|_| !is_due)) {
            Received::Nothing => {}
            Received::Order(next) => {
                if order.is_none() {
                    // It fails when the launcher has ended: there is no command to begin.
                    let _ = rustix::io::write(io::stdout(), b".");
                }
                (order, is_due) = (Some(next), false);
            }
            Received::End => break,
        }
        if let Some(order) = order.filter(|_| !is_due) {
            is_due = now() >= order.kill_at;
            carry_out(order, is_due);
        }
    }
    if let Some(order) = order {
        signal_group(order.group, Signal::KILL);
    }
    ExitCode::SUCCESS
}

fn carry_out(order: Order, is_due: bool) {
    if is_due {
        signal_group(order.group, Signal::KILL);
    } else if order.is_job_stopped
        && state(order.group).is_some_and(|state| "RSD".contains(state))
        && let Some(redlock) = getppid()
        && state(redlock.as_raw_nonzero().get()) == Some('T')
        && let Ok(job) = getpgid(Some(redlock))
    {
        signal_group(job.as_raw_nonzero().get(), Signal::CONT);
    }
}

enum Received {
    Nothing,
    Order(Order),
    End,
}

/// The next order, or nothing when it is time to look.
fn receive(order: Option<Order>) -> Received {
    /// Timers stand still while the machine is suspended, and the lease does not.
    const CHECK_AGAIN: Duration = Duration::from_secs(1);
    /// Nobody reports that a process of others was continued.
    const CHECK_JOB: Duration = Duration::from_millis(50);
    let timeout = order.map(|order| {
        let left = Duration::from_nanos(order.kill_at.saturating_sub(now()));
        let timeout = left.min(if order.is_job_stopped { CHECK_JOB } else { CHECK_AGAIN });
        Timespec { tv_sec: timeout.as_secs().cast_signed(), tv_nsec: timeout.subsec_nanos().into() }
    });
    let stdin = io::stdin();
    let stdin = stdin.as_fd();
    if poll(&mut [PollFd::new(&stdin, PollFlags::IN)], timeout.as_ref()) == Ok(0) {
        return Received::Nothing;
    }
    let mut bytes = [0; Order::SIZE];
    match rustix::io::read(stdin, &mut bytes) {
        Ok(Order::SIZE) => Received::Order(Order::from_bytes(bytes)),
        Err(rustix::io::Errno::INTR) => Received::Nothing,
        _ => Received::End,
    }
}

/// Nobody else than `redlock run` gives orders; but no mistake may signal all processes, which is
/// what 1 would mean.
fn signal_group(group: i32, signal: Signal) {
    if let Some(group) = Pid::from_raw(group).filter(|group| group.as_raw_nonzero().get() > 1) {
        // It fails when all of the group has ended.
        let _ = kill_process_group(group, signal);
    }
}

/// The letter of a process's state; none where the system has no such file.
fn state(pid: i32) -> Option<char> {
    Process::of(pid).map(|process| process.state)
}

/// The time in nanoseconds, on a clock that all processes share, and which goes on while the machine
/// is suspended.
pub(crate) fn now() -> u64 {
    #[cfg(target_os = "linux")]
    const CLOCK: ClockId = ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    const CLOCK: ClockId = ClockId::Monotonic;
    let now = clock_gettime(CLOCK);
    nanos(Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or_default()))
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_read_as_it_was_written() {
        let order = Order { group: 4_711, is_job_stopped: true, kill_at: u64::MAX - 3 };
        assert_eq!(Order::from_bytes(order.to_bytes()), order);
    }
}
