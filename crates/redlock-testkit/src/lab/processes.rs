//! Processes and threads, as `/proc` shows them.

use std::fmt::Display;
use std::fs;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Whether a process runs: one that has ended, and that its parent has not asked about, does not.
pub fn is_alive(pid: impl Display) -> bool {
    state(pid).is_some_and(|state| state != 'Z' && state != 'X')
}

/// Whether a process was stopped by a signal.
pub fn is_stopped(pid: impl Display) -> bool {
    state(pid) == Some('T')
}

fn state(pid: impl Display) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// How long the calling thread has run. What else the machine does meanwhile is not in it.
pub fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    // Neither is below zero, and nanoseconds are fewer than those of a second.
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}
