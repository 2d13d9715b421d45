//! `Place`: the position of an enclosing `redlock run`, and whether it kills this command when its
//! lock is lost.
//!
//! A process that reuses the lock of another process must end with that lock. A token on the
//! masters does not guarantee this, because `--keep` leaves a token, and so does a command that
//! exits while its background processes continue. Only the process group that `redlock run` created
//! for its command ends with the lock, and only while that command exists. If there are other
//! `redlock run`s in between, each is in the group of the one around it, and ends its own group as
//! well.

use std::fmt::{self, Display, Formatter};

use crate::process::{Process, Users};

/// A `redlock run` and its command, which leads its own process group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    redlock: i32,
    command: i32,
    /// When the command began: an id can be another's later, or in another container.
    began: u64,
}

impl Place {
    /// That of the command that this process is. `None` if the system does not say it.
    pub(crate) fn of_this_command() -> Option<Self> {
        let Process { id, parent, began, .. } = Process::this()?;
        Some(Self { redlock: parent, command: id, began })
    }

    /// Reads what `Display` has written.
    pub(crate) fn parse(word: &str) -> Option<Self> {
        let mut numbers = word.split(':');
        let place = Self {
            redlock: numbers.next()?.parse().ok()?,
            command: numbers.next()?.parse().ok()?,
            began: numbers.next()?.parse().ok()?,
        };
        numbers.next().is_none().then_some(place)
    }
}

impl Display for Place {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.redlock, self.command, self.began)
    }
}

/// A reason why this command would continue after the lock is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stray {
    /// The command of that `redlock run` has exited, or this process is no longer its descendant.
    Left,
    /// The process is in its own process group.
    Group,
    /// The process belongs to another user.
    User,
}

impl Stray {
    /// Describes the problem and the fix.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Left => {
                "the outer `redlock run` or its command has exited (--keep leaves the lock to \
                    expire), or does not wait for this command, so nothing would stop it if the lock \
                    were lost; start it as a child that the outer command waits for, or drop \
                    --reentrant once the lock has expired"
            }
            Self::Group => {
                "this command is not in the process group that `redlock run` kills when the lock is \
                 lost: start it without setsid and without job control (`set +m`)"
            }
            Self::User => {
                "this command runs as a different user, so the outer `redlock run` cannot kill \
                    it when the lock is lost; run both as the same user, or the outer one as root"
            }
        }
    }
}

/// Checks that the first of these nested `redlock run`s, from the outside, ends this process when
/// its lock is lost.
pub(crate) fn is_ended_by(places: &[Option<Place>]) -> Result<(), Stray> {
    let may_signal = |redlock, inner| {
        let users = Users::of(redlock).zip(Users::of(inner));
        users.is_some_and(|(redlock, inner)| redlock.may_signal(inner))
    };
    judge(places, Process::this(), Process::of, may_signal)
}

/// Judges from the inside to the outside: each step goes from a process to the `redlock run` that
/// ends it.
fn judge(
    places: &[Option<Place>],
    this: Option<Process>,
    find: impl Fn(i32) -> Option<Process>,
    may_signal: impl Fn(i32, i32) -> bool,
) -> Result<(), Stray> {
    let mut inner = this.ok_or(Stray::Left)?;
    for place in places.iter().rev() {
        let place = place.ok_or(Stray::Left)?;
        let command = above(inner, place.command, &find).ok_or(Stray::Left)?;
        let is_that = command.began == place.began && command.parent == place.redlock;
        if !is_that || command.has_ended() {
            return Err(Stray::Left);
        }
        if inner.group != command.id {
            return Err(Stray::Group);
        }
        if !may_signal(place.redlock, inner.id) {
            return Err(Stray::User);
        }
        inner = find(place.redlock).filter(|redlock| !redlock.has_ended()).ok_or(Stray::Left)?;
    }
    Ok(())
}

/// The process itself or the one above it that has this id. A process that ends while this looks
/// takes the way to those above it with it.
fn above(from: Process, id: i32, find: impl Fn(i32) -> Option<Process>) -> Option<Process> {
    /// More than processes are ever nested: the ids of a system that changes may form a ring.
    const STEPS: usize = 10_000;
    let mut process = from;
    for _ in 0..STEPS {
        if process.id == id {
            return Some(process);
        }
        process = find(process.parent)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTER: Place = Place { redlock: 10, command: 11, began: 1_100 };
    const INNER: Place = Place { redlock: 20, command: 21, began: 2_100 };

    /// Process 10 runs 11, below which 20 runs 21, below which is 30. Each began at 100 times its
    /// id.
    fn processes() -> Vec<Process> {
        [
            (1, 0, 1),
            (10, 1, 10),
            (11, 10, 11),
            (12, 11, 11),
            (20, 12, 11),
            (21, 20, 21),
            (30, 21, 21),
        ]
        .map(|(id, parent, group): (i32, i32, i32)| {
            let began = 100 * u64::from(id.unsigned_abs());
            Process { id, state: 'S', parent, group, began }
        })
        .into()
    }

    fn judged(places: &[Option<Place>], this: i32, processes: &[Process]) -> Result<(), Stray> {
        let find = |id| processes.iter().find(|process| process.id == id).copied();
        judge(places, find(this), find, |_, _| true)
    }

    fn changed(id: i32, change: impl Fn(&mut Process)) -> Vec<Process> {
        let mut processes = processes();
        processes.iter_mut().filter(|process| process.id == id).for_each(change);
        processes
    }

    #[test]
    fn place_survives_a_round_trip() {
        assert_eq!(Place::parse(&OUTER.to_string()), Some(OUTER));
        for broken in ["", "-", "1", "1:2", "1:2:3:4", "1:2:-3", "a:2:3"] {
            assert_eq!(Place::parse(broken), None, "{broken:?}");
        }
    }

    #[test]
    fn process_in_the_commands_group_ends_with_the_lock() {
        let all = processes();
        assert_eq!(judged(&[Some(OUTER)], 12, &all), Ok(()));
        assert_eq!(judged(&[Some(OUTER)], 11, &all), Ok(()), "the command itself");
        assert_eq!(judged(&[Some(INNER)], 30, &all), Ok(()));
        assert_eq!(judged(&[Some(OUTER), Some(INNER)], 30, &all), Ok(()));
    }

    #[test]
    fn separate_process_group_is_refused() {
        let all = processes();
        assert_eq!(
            judged(&[Some(OUTER)], 30, &all),
            Err(Stray::Group),
            "the one between is unknown"
        );
        let both = [Some(OUTER), Some(INNER)];
        let own = |process: &mut Process| process.group = process.id;
        assert_eq!(judged(&both, 30, &changed(30, own)), Err(Stray::Group));
        assert_eq!(judged(&both, 30, &changed(20, own)), Err(Stray::Group));
    }

    #[test]
    fn run_that_no_longer_supervises_its_command_is_refused() {
        let both = [Some(OUTER), Some(INNER)];
        let left =
            |processes: &[Process]| assert_eq!(judged(&both, 30, processes), Err(Stray::Left));
        left(&changed(30, |process| process.parent = 1));
        left(&changed(30, |process| process.parent = 10));
        left(&changed(11, |process| process.parent = 1));
        left(&changed(20, |process| process.parent = 1));
        left(&changed(11, |process| process.state = 'Z'));
        left(&changed(10, |process| process.state = 'Z'));
        left(&changed(21, |process| process.began += 1));
        left(&changed(12, |process| process.id = 13));
        let all = processes();
        assert_eq!(judged(&[None, Some(INNER)], 30, &all), Err(Stray::Left));
        assert_eq!(judged(&[Some(OUTER), None], 30, &all), Err(Stray::Left));
    }

    /// A process 1 of a container adopts what daemonized below it.
    #[test]
    fn adopted_process_is_not_the_runs_command() {
        let adopted = Process { id: 40, state: 'S', parent: 10, group: 11, began: 4_000 };
        let leader = Process { group: 40, ..adopted };
        for process in [adopted, leader] {
            let all: Vec<_> = processes().into_iter().chain([process]).collect();
            assert_eq!(judged(&[Some(OUTER)], 40, &all), Err(Stray::Left));
        }
    }

    #[test]
    fn processes_in_between_must_be_signalable() {
        let all = processes();
        let find = |id| all.iter().find(|process| process.id == id).copied();
        let both = [Some(OUTER), Some(INNER)];
        for forbidden in [(20, 30), (10, 20)] {
            let may = |redlock, inner| (redlock, inner) != forbidden;
            assert_eq!(judge(&both, find(30), find, may), Err(Stray::User), "{forbidden:?}");
        }
    }

    #[test]
    fn a_ring_of_parents_ends() {
        let all = changed(1, |process| process.parent = 30);
        assert_eq!(judged(&[Some(Place { command: 99, ..OUTER })], 30, &all), Err(Stray::Left));
    }
}
