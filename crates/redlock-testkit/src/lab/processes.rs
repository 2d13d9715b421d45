//! Processes and threads, as `/proc` shows them.

use std::fmt::Display;
use std::fs;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Returns `true` if a process is running. A zombie is not.
pub fn is_alive(pid: impl Display) -> bool {
    state(pid).is_some_and(|state| state != 'Z' && state != 'X')
}

/// Returns `true` if a process was stopped by a signal.
pub fn is_stopped(pid: impl Display) -> bool {
    state(pid) == Some('T')
}

fn state(pid: impl Display) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Returns the CPU time of the calling thread, which excludes the work of other threads.
pub fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    // Neither is below zero, and nanoseconds are fewer than those of a second.
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}
