//! `Held`: the locks of the `redlock run`s around this command, which a command inherits.

use std::ffi::OsString;
use std::fmt::Write;

use redlock_quorum::{State, Status, Votes};

use crate::answers;
use crate::global::variable;

/// The locks that `REDLOCK_HELD` names: for each a KEY, percent-encoded, `=`, and its TOKEN;
/// separated by spaces, the outermost first.
///
/// A key says little, because it may be one of another prefix or of other masters. A token is
/// nobody else's: where a master has one of these under a key, the lock is one of those around us.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held(Vec<String>);

impl Held {
    /// The variable.
    pub(crate) const NAME: &str = "REDLOCK_HELD";

    /// Those around this command.
    pub(crate) fn around() -> Self {
        let list = variable(Self::NAME).unwrap_or_default();
        Self(
            list.to_string_lossy()
                .split(' ')
                .filter(|lock| is_lock(lock))
                .map(Into::into)
                .collect(),
        )
    }

    /// The same with one more, the innermost.
    pub(crate) fn and(mut self, key: &[u8], token: &str) -> Self {
        self.0.push(format!("{}={token}", encoded(key)));
        self
    }

    /// What a command inherits.
    pub(crate) fn variable(&self) -> OsString {
        self.0.join(" ").into()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a lock around this command has the key, by what masters have there.
    pub(crate) fn holds(&self, status: &Status) -> bool {
        matches!(&status.state, State::Held { token, .. } if self.has(token))
    }

    /// The same, by what masters said when they refused the lock.
    pub(crate) fn refuses(&self, votes: &Votes) -> bool {
        answers::holder(votes).is_some_and(|(token, _)| self.has(token))
    }

    fn has(&self, token: &str) -> bool {
        self.0.iter().filter_map(|lock| lock.split_once('=')).any(|(_, held)| held == token)
    }
}

/// What is something else is not passed on.
fn is_lock(text: &str) -> bool {
    text.split_once('=').is_some_and(|(key, token)| !key.is_empty() && !token.is_empty())
}

/// Percent-encoding, as RFC 3986 has it.
fn encoded(key: &[u8]) -> String {
    let mut text = String::with_capacity(key.len());
    for &byte in key {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            text.push(byte.into());
        } else {
            // Writing into a string cannot fail.
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_any_bytes_is_one_word_without_an_equals_sign() {
        assert_eq!(encoded(b"nightly-report_1.~"), "nightly-report_1.~");
        assert_eq!(encoded(b"orders:42 =%\n\xff"), "orders%3A42%20%3D%25%0A%FF");
    }

    #[test]
    fn a_lock_is_known_by_its_token() {
        let held = Held::default().and(b"a", "f00/x=y").and(b"b", "bar");
        assert_eq!(held.variable(), "a=f00/x=y b=bar");
        assert!(held.has("f00/x=y") && held.has("bar"));
        assert!(!held.has("a") && !held.has("f00/x") && !held.has(""));
    }
}
