//! A master: its key, and what it does with a request.

use super::broken::Broken;
use super::part::Part;
use super::wire::{Kind, Reply, Value};

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Master {
    /// Whose key is there, and until when by the clock of the master.
    pub(crate) key: Option<(Value, u8)>,
    /// How many ticks its clock has gained.
    pub(crate) gained: u8,
}

impl Master {
    /// Removes a key that has expired.
    pub(crate) fn expire(&mut self, now: u8) {
        let clock = now + self.gained;
        self.key = self.key.filter(|(_, until)| *until > clock);
    }

    pub(crate) fn holds(&self, value: Value) -> bool {
        self.key.is_some_and(|(own, _)| own == value)
    }

    /// Whether it would grant such a request now.
    pub(crate) fn grants(&self, kind: Kind, value: Value) -> bool {
        match kind {
            Kind::Acquire | Kind::Readd => self.key.is_none(),
            Kind::Extend(_) | Kind::Release => self.holds(value),
        }
    }

    pub(crate) fn execute(&mut self, part: &Part, kind: Kind, value: Value, now: u8) -> Reply {
        let until = now + self.gained + part.ttl;
        let compares = part.broken != Some(Broken::ReleaseWithoutCompare);
        match (kind, self.key) {
            (Kind::Acquire | Kind::Readd, None) => {
                self.key = Some((value, until));
                Reply::Granted
            }
            (Kind::Acquire | Kind::Readd, Some(_)) => Reply::Held,
            (Kind::Extend(_), Some((own, before))) if own == value => {
                self.key = Some((value, until.max(before)));
                Reply::Granted
            }
            (Kind::Release, Some((own, _))) if own == value || !compares => {
                self.key = None;
                Reply::Granted
            }
            (Kind::Extend(_), Some(_)) => Reply::Held,
            (Kind::Extend(_) | Kind::Release, _) => Reply::NotOurs,
        }
    }
}
