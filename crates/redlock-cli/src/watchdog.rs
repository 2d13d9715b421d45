//! `Watchdog`: a second process, which kills the command when this process cannot.
//!
//! Ctrl-Z or SIGSTOP can stop `redlock run`, and then it cannot check its clock. So it starts
//! `redlock __watchdog`, and writes the deadline of the command's group to its stdin, again after
//! each extension. The watchdog has its own session and blocks every signal, so signals to a job,
//! to a terminal's session or to a whole service do not affect it. If its stdin ends, `redlock run`
//! was killed, and the watchdog kills the group immediately.
//!
//! The command starts after the watchdog knows its group: the launcher waits for a byte that the
//! watchdog writes to its stdout after the first order. So `redlock run` can be killed at any
//! moment without leaving a part of the command running.

use std::ffi::OsString;
use std::io::{self, PipeReader, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::time::Duration;

use nix::sys::signal::{SigSet, SigmaskHow};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, getpgid, getppid, kill_process_group, setsid};
use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::group::{self, Sent};
use crate::launcher;
use crate::process::Process;
use crate::stderr;

/// The first word of a command line that is meant for the watchdog.
const WORD: &str = "__watchdog";

/// The watchdog, as `redlock run` sees it. It ends when this is dropped, and does nothing more.
pub(crate) struct Watchdog {
    process: Child,
    stdin: ChildStdin,
    last: Option<Order>,
}

impl Watchdog {
    /// Starts the watchdog. It does nothing before the first call of [`watch`](Self::watch), and
    /// then writes its byte into the returned pipe. If the watchdog exits, the pipe ends without a
    /// byte.
    pub(crate) fn start() -> io::Result<(Self, PipeReader)> {
        let (word, stdout) = io::pipe()?;
        let mut command = Command::new(launcher::this_program());
        command.arg0("redlock").arg(WORD).current_dir("/").env_clear();
        command.stdin(Stdio::piped()).stdout(stdout);
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

    /// Orders the end of the group at `kill_at`, on the clock of [`now`], unless this is called
    /// again before.
    pub(crate) fn watch(&mut self, group: Pid, kill_at: u64) {
        /// Smaller changes are noise between two clocks.
        const CHANGE: u64 = 1_000_000;
        let group = group.as_raw_nonzero().get();
        let is_known = |last: Order| last.group == group && last.kill_at.abs_diff(kill_at) < CHANGE;
        if !self.last.is_some_and(is_known) {
            self.send(Order { group, is_job_stopped: false, kill_at });
        }
    }

    /// Reports that this process is about to stop, or continues. If another process continues only
    /// the command, the watchdog continues this process's group as well.
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

/// The current order for the watchdog. A new order replaces it.
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

    /// After how long to look at it, if no alarm tells when.
    fn check_within(self, has_alarm: bool) -> Option<Timespec> {
        /// Timers stop while the machine is suspended, but the lease continues.
        const CHECK_AGAIN: Duration = Duration::from_secs(1);
        /// Nothing reports that a process which is not a child was continued.
        const CHECK_JOB: Duration = Duration::from_millis(50);
        let left = Duration::from_nanos(self.kill_at.saturating_sub(now()));
        let within = match (self.is_job_stopped, has_alarm) {
            (true, _) => left.min(CHECK_JOB),
            (false, true) => return None,
            (false, false) => left.min(CHECK_AGAIN),
        };
        Some(timespec(within))
    }

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

/// Returns `true` if these words are for the watchdog.
pub(crate) fn is_meant(words: &[OsString]) -> bool {
    words.get(1).is_some_and(|word| word == WORD)
}

/// Runs as the watchdog until its stdin ends.
pub(crate) fn watch() -> ExitCode {
    // Fails only for the leader of a group, which this process is not.
    let _ = setsid();
    let alarm = Alarm::new();
    let mut order = None;
    let mut is_due = false;
    loop {
        match receive(&alarm, order.filter(|_| !is_due)) {
            Received::Nothing => {}
            Received::Order(next) => {
                if order.is_none() {
                    // Fails if the launcher has exited. In that case no command will start.
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
        end_group(order.group, true);
    }
    ExitCode::SUCCESS
}

fn carry_out(order: Order, is_due: bool) {
    if is_due {
        let redlock = getppid().map(|redlock| redlock.as_raw_nonzero().get());
        // A running `redlock` reports it itself.
        end_group(order.group, redlock.and_then(state) == Some('T'));
    } else if order.is_job_stopped
        && state(order.group).is_some_and(|state| "RSD".contains(state))
        && let Some(redlock) = getppid()
        && state(redlock.as_raw_nonzero().get()) == Some('T')
        && let Ok(job) = getpgid(Some(redlock))
    {
        // The group has this process's parent, which runs as the same user.
        let _ = kill_process_group(job, Signal::CONT);
    }
}

enum Received {
    Nothing,
    Order(Order),
    End,
}

/// Waits for the next order. Returns nothing when it is time to look at the last one.
fn receive(alarm: &Alarm, order: Option<Order>) -> Received {
    let is_set = alarm.set(order.map(|order| order.kill_at));
    let timeout = order.and_then(|order| order.check_within(is_set));
    let stdin = io::stdin();
    let stdin = stdin.as_fd();
    let fds = [Some(stdin), alarm.fd()];
    let mut ready: Vec<_> = fds.iter().flatten().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
    if poll(&mut ready, timeout.as_ref()).is_err() || ready[0].revents().is_empty() {
        return Received::Nothing;
    }
    let mut bytes = [0; Order::SIZE];
    match rustix::io::read(stdin, &mut bytes) {
        Ok(Order::SIZE) => Received::Order(Order::from_bytes(bytes)),
        Err(rustix::io::Errno::INTR) => Received::Nothing,
        _ => Received::End,
    }
}

/// A timer that expires at an instant of [`now`]. A timeout of `poll` would not be enough: after a
/// stop of the process, the kernel continues with the time that was left before, and the command
/// would outlive its lock by the length of the stop.
struct Alarm(Option<OwnedFd>);

#[cfg(target_os = "linux")]
impl Alarm {
    fn new() -> Self {
        use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
        Self(timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC).ok())
    }

    /// Sets it, or stops it. Returns whether it will expire.
    fn set(&self, at: Option<u64>) -> bool {
        use rustix::time::{Itimerspec, TimerfdTimerFlags, timerfd_settime};
        let Some(timer) = &self.0 else { return false };
        // Zero would stop it, and an instant that has passed makes it expire immediately.
        let at = at.map_or(Duration::ZERO, |at| Duration::from_nanos(at.max(1)));
        let spec = Itimerspec { it_interval: timespec(Duration::ZERO), it_value: timespec(at) };
        timerfd_settime(timer, TimerfdTimerFlags::ABSTIME, &spec).is_ok() && !at.is_zero()
    }
}

#[cfg(not(target_os = "linux"))]
impl Alarm {
    fn new() -> Self {
        Self(None)
    }

    fn set(&self, _: Option<u64>) -> bool {
        false
    }
}

impl Alarm {
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.0.as_ref().map(AsFd::as_fd)
    }
}

fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: time.subsec_nanos().into(),
    }
}

/// Ends the group, and reports on stderr if some of it could not be ended and `redlock run` cannot
/// report that. Only `redlock run` gives orders, but no mistake may signal all processes, which is
/// what 1 would mean.
fn end_group(group: i32, reports: bool) {
    let group = Pid::from_raw(group).filter(|group| group.as_raw_nonzero().get() > 1);
    let Some(group) = group else { return };
    let sent = group::signal(group, Signal::KILL);
    if reports && sent != Sent::Yes {
        stderr::note_now(&group::undelivered(Signal::KILL, group, sent));
    }
}

/// Returns the state letter of a process. `None` if the system has no such file.
fn state(pid: i32) -> Option<char> {
    Process::of(pid).map(|process| process.state)
}

/// Returns the time in nanoseconds, on a clock that all processes share and that continues while
/// the machine is suspended.
pub(crate) fn now() -> u64 {
    #[cfg(target_os = "linux")]
    const CLOCK: ClockId = ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    const CLOCK: ClockId = ClockId::Monotonic;
    let now = clock_gettime(CLOCK);
    nanos(Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or_default()))
}

/// Returns the instant of [`now`] that is this much later than `instant`.
pub(crate) fn later(instant: u64, by: Duration) -> u64 {
    instant.saturating_add(nanos(by))
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watchdog_order_survives_a_round_trip() {
        let order = Order { group: 4_711, is_job_stopped: true, kill_at: u64::MAX - 3 };
        assert_eq!(Order::from_bytes(order.to_bytes()), order);
    }
}
