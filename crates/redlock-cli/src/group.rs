//! The processes of a group, and signals to them.

use std::fs;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process};

use crate::process::Process;
use crate::signals;

/// The outcome of a signal to a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// The signal was delivered to all members, or all have exited.
    Yes,
    /// The number of members that this process cannot signal, because they run as another user.
    Partly(usize),
    /// No member may be signalled.
    Refused,
}

/// Signals a group. The kernel reports success if a single member may be signalled, so the others
/// are looked for.
pub(crate) fn signal(group: Pid, signal: Signal) -> Sent {
    match kill_process_group(group, signal) {
        // The same error occurs for a member that has exited.
        Err(Errno::PERM) if members(group) != Some(0) => Sent::Refused,
        Err(_) => Sent::Yes,
        Ok(()) => match refusing(group) {
            0 => Sent::Yes,
            count => Sent::Partly(count),
        },
    }
}

/// Describes a signal that was not delivered to all of a group, with the fix.
pub(crate) fn undelivered(signal: Signal, group: Pid, sent: Sent) -> String {
    let (name, group) = (signals::name(signal), group.as_raw_nonzero());
    let (to, keeps) = match sent {
        Sent::Partly(1) => {
            (" to 1 process of the command: it runs as another user".to_owned(), "keeps")
        }
        Sent::Partly(count) => {
            (format!(" to {count} processes of the command: they run as another user"), "keep")
        }
        _ => (": the command runs as another user".to_owned(), "keeps"),
    };
    if signal == Signal::KILL {
        format!(
            "{name} was not delivered{to} and {keeps} running, but the lock is lost and another \
             client may acquire it; kill process group {group} as that user or as root"
        )
    } else {
        format!(
            "{name} was not delivered{to}; signal process group {group} as that user or as root"
        )
    }
}

/// Returns how many members of the group this process has no right to signal.
pub(crate) fn refusing(group: Pid) -> usize {
    let id = group.as_raw_nonzero().get();
    let refuses = |process: &Process| {
        let pid = Pid::from_raw(process.id);
        process.group == id && pid.is_some_and(|pid| test_kill_process(pid) == Err(Errno::PERM))
    };
    running().unwrap_or_default().iter().filter(|process| refuses(process)).count()
}

/// Returns the descendants of the command that have left its group, for example by `setsid` or `su
/// -c`. The command must still exist, because its orphans are no longer its descendants.
pub(crate) fn strays(command: Pid) -> Vec<Process> {
    let command = command.as_raw_nonzero().get();
    let all = running().unwrap_or_default();
    let mut below = vec![command];
    let mut at = 0;
    while let Some(parent) = below.get(at).copied() {
        below.extend(all.iter().filter(|process| process.parent == parent).map(|child| child.id));
        at += 1;
    }
    let has_left = |process: &Process| process.group != command && below.contains(&process.id);
    all.into_iter().filter(has_left).collect()
}

/// Returns how many processes of the group are left, without zombies. `None` if the system does not
/// list its processes in `/proc`.
pub(crate) fn members(group: Pid) -> Option<usize> {
    let group = group.as_raw_nonzero().get();
    Some(running()?.iter().filter(|process| process.group == group).count())
}

/// The processes that run. `None` if the system does not list them in `/proc`.
fn running() -> Option<Vec<Process>> {
    let processes = fs::read_dir("/proc").ok()?.filter_map(Result::ok);
    let found = processes.filter_map(|process| {
        let is_process = process.file_name().to_string_lossy().bytes().all(|b| b.is_ascii_digit());
        // Skips processes that have exited in the meantime.
        let stat = is_process.then(|| fs::read_to_string(process.path().join("stat")).ok())??;
        Process::parse(&stat).filter(|process| !process.has_ended())
    });
    Some(found.collect())
}

/// Returns `true` if this system shows the group and the parent of each process.
pub(crate) fn is_countable() -> bool {
    Process::this().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn undelivered_signal_is_named_with_the_fix() {
        let group = Pid::from_raw(7).unwrap();
        let killed = undelivered(Signal::KILL, group, Sent::Refused);
        assert!(killed.starts_with("SIGKILL was not delivered: "), "{killed}");
        assert!(killed.contains("another client may acquire it; kill process group 7"), "{killed}");
        let asked = undelivered(Signal::TERM, group, Sent::Partly(2));
        assert!(asked.starts_with("SIGTERM was not delivered to 2 processes of the "), "{asked}");
        assert!(!asked.contains("lost"), "the lock is still held: {asked}");
    }

    #[test]
    fn exited_group_refuses_no_signal() {
        let mut process = std::process::Command::new("true").spawn().unwrap();
        let group = Pid::from_child(&process);
        process.wait().unwrap();
        assert_eq!((signal(group, Signal::TERM), refusing(group)), (Sent::Yes, 0));
    }

    #[test]
    fn this_process_is_a_member_of_its_group() {
        if is_countable() {
            assert!(members(rustix::process::getpgrp()).unwrap() >= 1);
        }
    }
}
