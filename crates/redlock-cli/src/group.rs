//! Which processes a group has.

use std::fs;

use rustix::process::Pid;

/// How many processes of the group are left, without those that have ended and wait to be reaped.
/// None where the system does not list its processes in `/proc`.
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

/// Whether members can be counted on this system.
pub(crate) fn is_countable() -> bool {
    fs::metadata("/proc/self/stat").is_ok()
}

/// By the line of a process in `/proc`: `PID (NAME) STATE PARENT GROUP ...`. A name has any bytes.
fn is_member(stat: &str, group: i32) -> bool {
    let Some((_, rest)) = stat.rsplit_once(") ") else { return false };
    let mut fields = rest.split(' ');
    let has_ended = matches!(fields.next(), Some("Z" | "X" | "x") | None);
    !has_ended && fields.nth(1).and_then(|field| field.parse().ok()) == Some(group)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_one_that_runs_whatever_its_name_is() {
        assert!(is_member("12 (a) S 5 (b)) S 1 77 77 0 -1", 77));
        assert!(!is_member("12 (a) S 1 77 77 0 -1", 1), "that is its parent");
        assert!(!is_member("12 (a) Z 1 77 77 0 -1", 77));
        assert!(!is_member("12 (a) X 1 77 77 0 -1", 77));
        assert!(!is_member("12", 77));
    }

    #[test]
    fn this_process_is_a_member_of_its_group() {
        if is_countable() {
            assert!(members(rustix::process::getpgrp()).unwrap() >= 1);
        }
    }
}
