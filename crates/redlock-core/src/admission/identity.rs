//! The identity of a master: its process, and the history of its data. See rule D7 of
//! `docs/PROTOCOL.md`.

use std::fmt;
use std::str::FromStr;

/// The process of a server, which Redis calls `run_id`: 40 hex digits, new with every start.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId([u8; BYTES]);

/// A replication history, which Redis calls `master_replid`: 40 hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplId([u8; BYTES]);

/// The identity with which a master is admitted. Its text is the 40 digits of the process. If there
/// is a history, a colon and its 40 digits follow.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    /// The process.
    pub run: RunId,
    /// The history of the data, reported while `second_repl_offset` is not -1. A master with one
    /// was a replica, or was started from a replica's snapshot. In both cases it keeps its
    /// `run_id`.
    pub replid: Option<ReplId>,
}

/// The text is neither 40 lower-case hex digits, nor 40 of them, a colon and 40 more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no identity of a server: it must be 40 lower-case hex digits")]
pub struct InvalidIdentity;

const BYTES: usize = 20;

impl RunId {
    /// Creates the id of a process from its digits, two per byte.
    pub const fn new(bytes: [u8; BYTES]) -> Self {
        Self(bytes)
    }

    /// Returns the digits, two per byte.
    pub const fn bytes(self) -> [u8; BYTES] {
        self.0
    }
}

impl ReplId {
    /// Creates the id of a history from its digits, two per byte.
    pub const fn new(bytes: [u8; BYTES]) -> Self {
        Self(bytes)
    }
}

impl Identity {
    /// Creates the identity of a master that was never a replica.
    pub const fn of(run: RunId) -> Self {
        Self { run, replid: None }
    }

    /// Returns `true` if a record made for `self` is valid for a master whose current identity is
    /// `present`.
    ///
    /// A server stops reporting that it was a replica after `repl-backlog-ttl`. Therefore `R:X`
    /// covers `R`, `R` never covers `R:X`, and no history covers another one.
    pub fn covers(self, present: Self) -> bool {
        self.run == present.run && (present.replid.is_none() || self.replid == present.replid)
    }

    /// Returns the name of the ballot set of a master with this identity: the first 16 digits of
    /// the process. If there is a history, a dot and the first 16 of its digits follow.
    pub fn set_name(self) -> String {
        let digits = |text: String| text[..SET_DIGITS].to_owned();
        let run = digits(self.run.to_string());
        match self.replid {
            None => run,
            Some(replid) => format!("{run}.{}", digits(replid.to_string())),
        }
    }
}

/// 64 random bits are enough to distinguish the processes of one master.
const SET_DIGITS: usize = 16;

impl FromStr for RunId {
    type Err = InvalidIdentity;

    fn from_str(text: &str) -> Result<Self, InvalidIdentity> {
        read(text).map(Self)
    }
}

impl FromStr for ReplId {
    type Err = InvalidIdentity;

    fn from_str(text: &str) -> Result<Self, InvalidIdentity> {
        read(text).map(Self)
    }
}

impl FromStr for Identity {
    type Err = InvalidIdentity;

    fn from_str(text: &str) -> Result<Self, InvalidIdentity> {
        match text.split_once(':') {
            None => text.parse().map(Self::of),
            Some((run, replid)) => Ok(Self { run: run.parse()?, replid: Some(replid.parse()?) }),
        }
    }
}

fn read(text: &str) -> Result<[u8; BYTES], InvalidIdentity> {
    let mut bytes = [0; BYTES];
    if text.len() != 2 * BYTES {
        return Err(InvalidIdentity);
    }
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte = 16 * digit(pair[0])? + digit(pair[1])?;
    }
    Ok(bytes)
}

fn digit(digit: u8) -> Result<u8, InvalidIdentity> {
    match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        _ => Err(InvalidIdentity),
    }
}

fn write(bytes: &[u8; BYTES], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(&self.0, f)
    }
}

impl fmt::Display for ReplId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(&self.0, f)
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.run.fmt(f)?;
        self.replid.map_or(Ok(()), |replid| write!(f, ":{replid}"))
    }
}

impl fmt::Debug for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for ReplId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = "0123456789abcdef0123456789abcdef01234567";
    const REPLID: &str = "fedcba9876543210fedcba9876543210fedcba98";

    #[test]
    fn identity_survives_a_round_trip() {
        for text in [RUN.to_owned(), format!("{RUN}:{REPLID}")] {
            let identity: Identity = text.parse().unwrap();
            assert_eq!(identity.to_string(), text);
        }
    }

    #[test]
    fn other_texts_are_not_identities() {
        let long = format!("{RUN}0");
        let (signed, upper) = (RUN.replacen('0', "+", 1), RUN.to_uppercase());
        let halves = [format!("{RUN}:"), format!("{RUN}:{}", &REPLID[1..]), format!(":{REPLID}")];
        for text in ["", "abc", &RUN[1..], &long, &signed, &upper].into_iter() {
            assert_eq!(text.parse::<Identity>(), Err(InvalidIdentity), "{text}");
        }
        for text in halves {
            assert_eq!(text.parse::<Identity>(), Err(InvalidIdentity), "{text}");
        }
    }

    #[test]
    fn a_ballot_set_is_named_by_the_first_digits() {
        let name = |text: &str| text.parse::<Identity>().unwrap().set_name();
        assert_eq!(name(RUN), "0123456789abcdef");
        assert_eq!(name(&format!("{RUN}:{REPLID}")), "0123456789abcdef.fedcba9876543210");
    }
}
