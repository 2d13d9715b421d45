//! Other processes, as `/proc` shows them.

use std::fs;

/// Whether a process runs: one that has ended, and that its parent has not asked about, does not.
pub fn is_alive(pid: u32) -> bool {
    state(pid).is_some_and(|state| state != 'Z' && state != 'X')
}

/// Whether a process was stopped by a signal.
pub fn is_stopped(pid: u32) -> bool {
    state(pid) == Some('T')
}

fn state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}
