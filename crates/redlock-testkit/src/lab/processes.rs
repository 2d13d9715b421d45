//! Processes and threads, as `/proc` shows them.

use std::fmt::Display;
use std::fs;
use std::path::Path;
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

/// Returns how long the threads of a process have waited for a processor so far. That time is the
/// machine's and not the process's: a test that bounds what a process does late allows it so much
/// more. Zero if the system does not measure it.
pub fn waited_for_processor(pid: impl Display) -> Duration {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    threads.map(|thread| waited(&thread.path()).unwrap_or_default()).sum()
}

fn waited(thread: &Path) -> Option<Duration> {
    // The fields: nanoseconds on a processor, nanoseconds in a queue for one, and how often.
    let measured = fs::read_to_string(thread.join("schedstat")).ok()?;
    Some(Duration::from_nanos(measured.split(' ').nth(1)?.parse().ok()?))
}

/// Returns the CPU time of the calling thread, which excludes the work of other threads.
pub fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    // Neither is below zero, and nanoseconds are fewer than those of a second.
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}
