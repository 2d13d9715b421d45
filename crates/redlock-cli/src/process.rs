//! `Process`: what `/proc` says of one.

use std::fmt::Display;
use std::fs;

/// A snapshot of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) id: i32,
    /// A letter: `R` runs, `T` is stopped, `Z` has ended and waits to be reaped.
    pub(crate) state: char,
    pub(crate) parent: i32,
    pub(crate) group: i32,
    /// The start time in kernel ticks. A process keeps it when it executes another program, and a
    /// later process with the same id has another start time.
    pub(crate) began: u64,
}

impl Process {
    /// Returns this process. `None` if the system has no such file.
    pub(crate) fn this() -> Option<Self> {
        Self::at("self")
    }

    /// Returns the process with this id, while there is one.
    pub(crate) fn of(id: i32) -> Option<Self> {
        Self::at(id)
    }

    fn at(name: impl Display) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{name}/stat")).ok()?)
    }

    /// Parses the line of a process, `ID (NAME) STATE PARENT GROUP ...`. A name has any bytes.
    pub(crate) fn parse(stat: &str) -> Option<Self> {
        /// The number of unused fields between the two used ones.
        const AFTER_GROUP: usize = 16;
        let (id, rest) = stat.split_once(" (")?;
        let (_, rest) = rest.rsplit_once(") ")?;
        let mut fields = rest.split(' ');
        Some(Self {
            id: id.parse().ok()?,
            state: fields.next()?.chars().next()?,
            parent: fields.next()?.parse().ok()?,
            group: fields.next()?.parse().ok()?,
            began: fields.nth(AFTER_GROUP)?.parse().ok()?,
        })
    }

    /// Returns `true` if it still runs, and no other process has its id.
    pub(crate) fn is_running(&self) -> bool {
        Self::of(self.id).is_some_and(|now| now.began == self.began && !now.has_ended())
    }

    /// Returns `true` if it is there only for its parent to learn how it ended.
    pub(crate) fn has_ended(&self) -> bool {
        "ZXx".contains(self.state)
    }
}

/// The users of a process: its real, its effective and its saved one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Users([u32; 3]);

impl Users {
    /// Those of the process with this id.
    pub(crate) fn of(id: i32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{id}/status")).ok()?)
    }

    fn parse(status: &str) -> Option<Self> {
        let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
        let users: Vec<u32> = line.split_whitespace().filter_map(|id| id.parse().ok()).collect();
        users.get(..3)?.try_into().ok().map(Self)
    }

    /// Returns `true` if the kernel lets a process of these users signal one of the others.
    pub(crate) fn may_signal(self, Self([real, _, saved]): Self) -> bool {
        let Self([sender, effective, _]) = self;
        effective == 0 || [sender, effective].iter().any(|id| [real, saved].contains(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_is_read_with_any_name() {
        let stat = "12 (a) S 5 (b)) S 1 77 78 0 -1 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20 21";
        let process = Process { id: 12, state: 'S', parent: 1, group: 77, began: 4711 };
        assert_eq!(Process::parse(stat), Some(process));
        for broken in ["", "12", "12 (a) S 1 77", "12 (a S 1 77 78 0", "x (a) S 1 77 78 0"] {
            assert_eq!(Process::parse(broken), None, "{broken:?}");
        }
    }

    #[test]
    fn this_process_is_found_by_its_id() {
        let Some(this) = Process::this() else { return };
        assert_eq!(this.id.cast_unsigned(), std::process::id());
        assert_eq!(this.group, rustix::process::getpgrp().as_raw_nonzero().get());
        assert_eq!(Process::of(this.id).map(|same| same.began), Some(this.began));
        assert!(!this.has_ended());
        let users = Users::of(this.id).unwrap();
        assert!(users.may_signal(users));
    }

    #[test]
    fn a_signal_needs_root_or_a_user_in_common() {
        let users = |text| Users::parse(&format!("Name:\ta\nUid:\t{text}\nGid:\t1 1 1 1")).unwrap();
        assert!(users("0 0 0 0").may_signal(users("5 5 5 5")));
        assert!(users("5 5 5 5").may_signal(users("5 0 0 0")), "its real one is the same");
        assert!(users("6 5 6 6").may_signal(users("1 1 5 1")));
        assert!(!users("5 5 5 5").may_signal(users("0 0 0 0")));
        assert!(!users("5 5 5 5").may_signal(users("6 5 6 6")), "an effective one does not count");
    }
}
