//! `Lists`: the recorded set of masters and the list of a client.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use crate::admission::{Names, RecordedSet, printable};

/// The set of masters that `redlock init` has recorded on a master, and the list of a client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Lists {
    /// The set that the record of the master names; `None` if it names none.
    pub set: Option<RecordedSet>,
    /// The masters that the client lists, without duplicate addresses.
    pub list: Names,
    /// Further addresses of servers that the client already lists.
    pub duplicates: Names,
    /// `true` if `redlock init` records this list only with `--again`, because a recorded set
    /// differs from it by more than one master.
    pub needs_again: bool,
}

/// A list of masters that works and may be wrong.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct ListWarning {
    /// The reason for the doubt.
    pub doubt: ListDoubt,
    /// The master that shows it: `host:port`, or the path of its socket.
    pub node: Arc<str>,
    /// The set that this master belongs to, or the set of the others if it belongs to none, and the
    /// list.
    pub lists: Lists,
}

/// The reason why a working list of masters may be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ListDoubt {
    /// The recorded set has one master more or one less than the list.
    Size,
    /// One master belongs to another set than the others.
    OtherSet,
    /// The recorded set contains some names of the list, but lacks several others, or the name of a
    /// master that shows no set. Another spelling of an address looks the same.
    Names,
}

impl ListWarning {
    /// Makes the warning that this master shows.
    pub fn new(doubt: ListDoubt, node: Arc<str>, lists: Lists) -> Self {
        Self { doubt, node, lists }
    }
}

impl Lists {
    /// Compares a set with a list without duplicate addresses.
    pub fn new(set: Option<RecordedSet>, list: Names) -> Self {
        Self { set, list, duplicates: Names::default(), needs_again: false }
    }

    /// Adds the duplicate addresses of the list.
    #[must_use]
    pub fn with_duplicates(self, duplicates: Names) -> Self {
        Self { duplicates, ..self }
    }

    /// Sets whether `redlock init` needs `--again` for this list.
    #[must_use]
    pub fn with_again(self, needs_again: bool) -> Self {
        Self { needs_again, ..self }
    }

    /// Returns the listed masters that the set does not name. Empty if the set has no names.
    pub fn unrecorded(&self) -> Vec<&str> {
        let names = self.names();
        self.list.iter().filter(|name| names.is_some_and(|names| !names.contains(name))).collect()
    }

    /// Returns the masters of the set that the client does not list, as they are shown.
    pub fn unlisted(&self) -> Vec<Cow<'_, str>> {
        let is_listed = |name: &&str| self.list.contains(name) || self.duplicates.contains(name);
        let names = self.names().into_iter().flat_map(Names::iter);
        names.filter(|name| !is_listed(name)).map(printable).collect()
    }

    /// Returns `true` if the set has exactly the listed names.
    pub fn are_equal(&self) -> bool {
        let is_list = |set: &RecordedSet| {
            usize::from(set.size) == self.list.len() && set.names.are_those_of(&self.list)
        };
        self.set.as_ref().is_some_and(is_list)
    }

    fn names(&self) -> Option<&Names> {
        self.set.as_ref().map(|set| &set.names).filter(|names| !names.is_empty())
    }

    /// Returns the number of listed masters and their names, for messages:
    /// `2 (10.0.0.1:6379, 10.0.0.2:6379) and 1 duplicate address (redis-1:6379)`.
    pub fn listed(&self) -> String {
        let named = |names: &Names| {
            if names.is_empty() { String::new() } else { format!(" ({names})") }
        };
        let listed = format!("{}{}", self.list.len(), named(&self.list));
        let duplicates = named(&self.duplicates);
        match self.duplicates.len() {
            0 => listed,
            1 => format!("{listed} and 1 duplicate address{duplicates}"),
            many => format!("{listed} and {many} duplicate addresses{duplicates}"),
        }
    }

    /// Returns the set of the master, for messages: `it belongs to a set of 2 masters (..)`.
    pub fn membership(&self) -> String {
        match &self.set {
            Some(set) if self.are_equal() => {
                format!(
                    "it belongs to set {}, one of several sets with the same names: {set}",
                    set.id
                )
            }
            Some(set) => format!("it belongs to a set of {set}"),
            None => "its record names no set".to_owned(),
        }
    }
}

/// Both lists. The text follows the name of a master.
impl fmt::Display for Lists {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, and this client lists {}", self.membership(), self.listed())
    }
}

/// Completes the sentence "the list of masters may be wrong: ...".
impl fmt::Display for ListDoubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Size => "it differs from the recorded set by one master",
            Self::OtherSet => "one master belongs to another set",
            Self::Names => "the recorded set lacks names of this list",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::SetId;

    fn lists(set: &[&str], list: &[&str]) -> Lists {
        let names = Names::new(set.to_vec());
        let set = RecordedSet { id: SetId(1), size: 3, names };
        Lists::new(Some(set), Names::new(list.to_vec()))
    }

    #[test]
    fn names_that_differ_are_found_on_both_sides() {
        let lists = lists(&["a", "b", "c"], &["c", "d", "a"]);
        assert_eq!((lists.unrecorded(), lists.unlisted()), (vec!["d"], vec!["b".into()]));
        let lists = lists.with_duplicates(Names::new(["b"]));
        assert!(lists.unlisted().is_empty(), "it is listed, although it is not counted");
    }

    #[test]
    fn recorded_names_are_shown_in_one_line() {
        let lists = lists(&["a", "x\nredlock: b is gone"], &["a"]);
        assert_eq!(lists.unlisted(), ["x%0Aredlock:%20b%20is%20gone"]);
    }

    #[test]
    fn sets_with_the_same_names_differ_by_their_id() {
        let said = lists(&["a", "b", "c"], &["c", "b", "a"]).to_string();
        let wanted = "it belongs to set 0000000000000001, one of several sets with the same names: \
                      3 masters (a, b, c), and this client lists 3 (c, b, a)";
        assert_eq!(said, wanted);
    }

    #[test]
    fn records_without_names_show_no_difference() {
        for lists in [lists(&[], &["a"]), Lists::new(None, Names::new(["a"]))] {
            assert!(lists.unrecorded().is_empty() && lists.unlisted().is_empty(), "{lists}");
        }
    }

    #[test]
    fn duplicate_addresses_are_shown_apart_from_the_masters() {
        let with = |duplicates: &[&str]| {
            lists(&["a"], &["a", "b"]).with_duplicates(Names::new(duplicates.to_vec())).listed()
        };
        assert_eq!(with(&[]), "2 (a, b)");
        assert_eq!(with(&["c"]), "2 (a, b) and 1 duplicate address (c)");
        assert_eq!(with(&["c", "d"]), "2 (a, b) and 2 duplicate addresses (c, d)");
        let none = Lists::new(None, Names::default());
        assert_eq!(none.to_string(), "its record names no set, and this client lists 0");
    }
}
