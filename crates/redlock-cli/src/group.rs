//! Which processes a group has.

use std::fs;

use rustix::process::Pid;

use crate::process::Process;

/// How many processes of the group are left, without those that have ended and wait to be reaped.
/// `None` if the system does not list its processes in `/proc`.
pub(crate) fn members(group: Pid) -> Option<usize> {
    let group = group.as_raw_nonzero().get();
    let processes = fs::read_dir("/proc").ok()?.filter_map(Result::ok);
    let stats = processes.filter_map(|process| {
        let is_process = process.file_name().to_string_lossy().bytes().all(|b| b.is_ascii_digit());
        // One that has ended meanwhile is none.
        is_process.then(|| fs::read_to_string(process.path().join("stat")).ok())?
    });
    Some(stats.filter(|stat| is_member(stat, group)).count())
}

/// Whether this system says which processes a group has, and which process is below which.
pub(crate) fn is_countable() -> bool {
    Process::this().is_some()
}

fn is_member(stat: &str, group: i32) -> bool {
    Process::parse(stat).is_some_and(|process| !process.has_ended() && process.group == group)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_one_that_runs() {
        let rest = "0 -1 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20";
        let is_member = |start: &str, group| is_member(&format!("{start} {rest}"), group);
        assert!(is_member("12 (a) S 1 77 77", 77));
        assert!(!is_member("12 (a) S 1 77 77", 1), "that is its parent");
        assert!(!is_member("12 (a) Z 1 77 77", 77));
        assert!(!is_member("12 (a) X 1 77 77", 77));
    }

    #[test]
    fn this_process_is_a_member_of_its_group() {
        if is_countable() {
            assert!(members(rustix::process::getpgrp()).unwrap() >= 1);
        }
    }
}
