//! `Held`: the locks of the `redlock run`s around this command, which a command inherits.

use std::ffi::OsString;

use redlock_quorum::{NodeVote, State, Status, Votes, quorum};

use crate::answers;
use crate::global::variable;
use crate::key::encoded;
use crate::output;
use crate::place::Place;

/// The locks in `REDLOCK_HELD`: KEY, percent-encoded, `=`, and TOKEN for each, separated by spaces,
/// the outermost first. Two more variables have one word per lock in the same order: its fencing
/// token, and the place of its `redlock run`.
///
/// A key does not identify a lock, because it may have another prefix or other masters. A token
/// does: if a master has one of these tokens under a key, an enclosing `redlock run` holds the
/// lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held(Vec<Lock>);

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Lock {
    /// `KEY=TOKEN`.
    text: String,
    /// None with `--plain`.
    fencing_token: Option<u64>,
    /// The place of its `redlock run`, in one word. `-` if the system does not show it.
    place: String,
}

/// The word for an unknown place.
const UNKNOWN: &str = "-";
/// The place of locks whose command does not run yet: it finds out where it is itself.
const HERE: &str = ".";

/// A lock around this command that it may enter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) token: String,
    pub(crate) fencing_token: Option<u64>,
    /// The places of its `redlock run`, and of each `redlock run` between that one and this
    /// command.
    pub(crate) places: Vec<Option<Place>>,
}

impl Held {
    /// The variable.
    pub(crate) const NAME: &str = "REDLOCK_HELD";
    /// The one with their fencing tokens, `-` where there is none.
    pub(crate) const FENCING_TOKENS: &str = "REDLOCK_HELD_FENCING_TOKENS";
    /// The variable with the places, which only `redlock` reads.
    pub(crate) const PLACES: &str = "REDLOCK_HELD_PLACES";

    /// Those around this command.
    pub(crate) fn around() -> Self {
        let of = |name| variable(name).unwrap_or_default().to_string_lossy().into_owned();
        Self::parse(&of(Self::NAME), &of(Self::FENCING_TOKENS), &of(Self::PLACES))
    }

    /// A list that has not a word for each lock says nothing: which is whose is not known.
    fn parse(locks: &str, fencing_tokens: &str, places: &str) -> Self {
        let locks: Vec<_> = locks.split(' ').collect();
        let words = |list| words(list, locks.len());
        let others = words(fencing_tokens).into_iter().zip(words(places));
        let lock = |(text, (fencing_token, place)): (&str, (Option<&str>, Option<&str>))| Lock {
            text: text.into(),
            fencing_token: fencing_token.and_then(|word| word.parse().ok()),
            place: place.unwrap_or(UNKNOWN).into(),
        };
        let all = locks.iter().copied().zip(others);
        Self(all.filter(|(text, _)| is_lock(text)).map(lock).collect())
    }

    /// The same with one more, the innermost, whose command does not run yet.
    pub(crate) fn and(mut self, key: &[u8], token: &str, fencing_token: Option<u64>) -> Self {
        let text = format!("{}={token}", encoded(key));
        self.0.push(Lock { text, fencing_token, place: HERE.into() });
        self
    }

    /// Returns the variables for a command. The command itself finds out its own place.
    pub(crate) fn variables(&self) -> [(&'static str, OsString); 3] {
        let list =
            |word: fn(&Lock) -> String| self.0.iter().map(word).collect::<Vec<_>>().join(" ");
        [
            (Self::NAME, list(|lock| lock.text.clone()).into()),
            (Self::FENCING_TOKENS, list(|lock| output::fence(lock.fencing_token)).into()),
            (Self::PLACES, list(|lock| lock.place.clone()).into()),
        ]
    }

    /// Returns the places for a command, once this process knows its own.
    pub(crate) fn places_with_this_command() -> OsString {
        let here = Place::of_this_command().map_or_else(|| UNKNOWN.into(), |here| here.to_string());
        let mut held = Self::around();
        let new = held.0.iter_mut().filter(|lock| lock.place == HERE);
        new.for_each(|lock| lock.place.clone_from(&here));
        let [.., (_, places)] = held.variables();
        places
    }

    /// The lock around this command that has the key, by what masters have there.
    pub(crate) fn entry(&self, status: &Status) -> Option<Entry> {
        let is_there = |lock: &Lock| lock.token().is_some_and(|token| is_on_quorum(token, status));
        let from = self.0.iter().position(is_there)?;
        let token = self.0[from].token().unwrap_or_default();
        let mut places: Vec<_> =
            self.0[from..].iter().map(|lock| Place::parse(&lock.place)).collect();
        // Locks that one `redlock run` has taken together have the same.
        places.dedup();
        let fencing_token = self.0[from].fencing_token;
        Some(Entry { token: token.to_owned(), fencing_token, places })
    }

    /// Returns `true` if an enclosing lock may hold the key, although not all masters answered or
    /// voted.
    pub(crate) fn may_hold(&self, status: &Status) -> bool {
        let is_others = |node: &&NodeVote| {
            let has_ours = answers::token(node).is_some_and(|token| self.has(token));
            node.verdict.is_clear() && node.is_admitted() && !has_ours
        };
        let (masters, others) = (&status.nodes, status.nodes.iter().filter(is_others).count());
        !self.is_empty() && masters.len() - others >= quorum(masters.len())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns `true` if a lock around this command has the key, by what masters have there.
    pub(crate) fn holds(&self, status: &Status) -> bool {
        matches!(&status.state, State::Held { token, .. } if self.has(token))
    }

    /// The same, by what masters said when they refused the lock.
    pub(crate) fn refuses(&self, votes: &Votes) -> bool {
        answers::holder(votes).is_some_and(|(token, _)| self.has(token))
    }

    fn has(&self, token: &str) -> bool {
        self.0.iter().any(|lock| lock.token() == Some(token))
    }
}

impl Lock {
    fn token(&self) -> Option<&str> {
        self.text.split_once('=').map(|(_, token)| token)
    }
}

/// Returns `true` if a quorum of masters has the token. Recorded sets that do not fit the list change
/// nothing, because the enclosing `redlock run` extends the lock despite them.
fn is_on_quorum(token: &str, status: &Status) -> bool {
    let is_counted = |node: &&NodeVote| {
        node.not_admitted.as_ref().is_none_or(|not_admitted| not_admitted.why.is_wrong_list())
    };
    let counted = status.nodes.iter().filter(is_counted);
    let having = counted.filter(|node| answers::token(node) == Some(token)).count();
    having >= quorum(status.nodes.len())
}

/// Returns `count` words of a list. Each is `None` if the list has more or fewer.
fn words(list: &str, count: usize) -> Vec<Option<&str>> {
    let words: Vec<_> = list.split(' ').map(Some).collect();
    if words.len() == count { words } else { vec![None; count] }
}

/// Words that are not locks are not passed on.
fn is_lock(text: &str) -> bool {
    text.split_once('=').is_some_and(|(key, token)| !key.is_empty() && !token.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(held: &Held) -> [String; 3] {
        held.variables().map(|(_, list)| list.into_string().unwrap())
    }

    #[test]
    fn a_lock_is_known_by_its_token() {
        let held = Held::default().and(b"a", "f00/x=y", Some(7)).and(b"b", "bar", None);
        assert_eq!(said(&held), ["a=f00/x=y b=bar", "7 -", ". ."]);
        assert!(held.has("f00/x=y") && held.has("bar"));
        assert!(!held.has("a") && !held.has("f00/x") && !held.has(""));
    }

    #[test]
    fn each_lock_keeps_its_fencing_token_and_its_place() {
        let lists = ["a=x b=y", "- 7", "1:2:3 4:5:6"];
        let held = Held::parse(lists[0], lists[1], lists[2]);
        assert_eq!(said(&held), lists);
        assert_eq!(said(&held.and(b"c", "z", Some(8))), ["a=x b=y c=z", "- 7 8", "1:2:3 4:5:6 ."]);
        let broken = Held::parse("junk a=x b=y", "7 8", "1:2:3 4:5:6");
        assert_eq!(
            said(&broken),
            ["a=x b=y", "- -", "- -"],
            "the tokens cannot be matched to keys"
        );
        let junk = Held::parse("junk a=x b=y", "1 2 3", "1:1:1 2:2:2 -");
        assert_eq!(said(&junk), ["a=x b=y", "2 3", "2:2:2 -"]);
        assert!(Held::parse("", "", "").is_empty());
    }
}
