//! The set of masters that `init` has written into a record: an id, a number, and names. See rule
//! S1 of `docs/PROTOCOL.md`.
//!
//! On the server it is two fields of the record. `set` is the id, a space and the number of
//! masters. `names` has the masters as the writer lists them, separated by spaces. Bytes of a name
//! outside of `!` to `~`, and `%`, are percent-encoded.
//!
//! Clients compare ids and numbers. They don't compare names, because one address has several
//! spellings. A malformed `set` makes the record unusable, as every other malformed field does.
//! Names that are malformed or too long are not shown, and nothing else follows from that.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::numbers::{number, sixteen_digits};
use crate::printable;

/// The id of a set of masters: 16 random hex digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SetId(pub u64);

/// The set that a record names.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RecordedSet {
    /// The id of the set.
    pub id: SetId,
    /// The number of masters, 1 to 255.
    pub size: u8,
    /// The names of the masters. Empty if the record does not name them.
    pub names: Names,
}

/// The names of masters: `host:port` or the path of a socket, without user and password.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Names(Arc<[Arc<str>]>);

/// The text is not a set: not 16 lower-case hex digits, a space and a number from 1 to 255.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a set of masters: it must be 16 lower-case hex digits, a space and 1 to 255")]
pub struct InvalidSet;

/// The most bytes of one encoded name. A longer name is cut.
const NAME_MAX: usize = 256;
/// The most bytes of the field `names`. More are not read.
const NAMES_MAX: usize = 256 * (NAME_MAX + 1);

impl RecordedSet {
    /// Reads the set from these fields of a record.
    ///
    /// # Errors
    ///
    /// If `set` is malformed. Malformed `names` become none.
    pub fn read(set: &str, names: Option<&str>) -> Result<Self, InvalidSet> {
        let (id, size) = set.split_once(' ').ok_or(InvalidSet)?;
        let (digits, size) = (size, number(size).and_then(|size| u8::try_from(size).ok()));
        // Scripts compare the text, so each set has exactly one.
        let is_exact = |size: &u8| *size > 0 && size.to_string() == digits;
        let size = size.filter(is_exact).ok_or(InvalidSet)?;
        let names = names.and_then(Names::read).unwrap_or_default();
        Ok(Self { id: id.parse()?, size, names })
    }

    /// Returns the text of the field `set`.
    pub fn text(&self) -> String {
        format!("{} {}", self.id, self.size)
    }

    /// Returns the set that occurs most often among these, which are in the order of their masters.
    /// If two occur equally often, returns the earlier one.
    pub fn most_common<'a>(sets: impl IntoIterator<Item = &'a Self>) -> Option<&'a Self> {
        let sets: Vec<_> = sets.into_iter().collect();
        let count = |id: SetId| sets.iter().filter(|set| set.id == id).count();
        // `max_by_key` returns the last of several maxima, so the order is reversed.
        sets.iter().rev().max_by_key(|set| count(set.id)).copied()
    }
}

impl Names {
    /// Keeps these names in their order.
    pub fn new<N: Into<Arc<str>>>(names: impl IntoIterator<Item = N>) -> Self {
        Self(names.into_iter().map(Into::into).collect())
    }

    /// Returns the names, in the order of their writer.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|name| &**name)
    }

    /// Returns how many names there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns `true` if there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns `true` if one of the names is this one, as far as a record can hold it.
    pub fn contains(&self, name: &str) -> bool {
        let name = encode(name);
        self.iter().any(|known| encode(known) == name)
    }

    /// Returns `true` if both have the same names, in any order, as far as records can hold them.
    pub fn are_those_of(&self, other: &Self) -> bool {
        let sorted = |names: &Self| {
            let mut names: Vec<String> = names.iter().map(encode).collect();
            names.sort_unstable();
            names
        };
        sorted(self) == sorted(other)
    }

    /// Returns the text of the field `names`.
    pub fn text(&self) -> String {
        self.iter().map(encode).collect::<Vec<_>>().join(" ")
    }

    /// `None` if the text is too long, or malformed.
    fn read(text: &str) -> Option<Self> {
        if text.len() > NAMES_MAX {
            return None;
        }
        let names = text.split(' ').filter(|name| !name.is_empty()).map(decode);
        Some(Self(names.map(|name| name.map(Arc::from)).collect::<Option<_>>()?))
    }
}

/// Cuts only between characters, so that the result is text again.
fn encode(name: &str) -> String {
    let mut encoded = String::new();
    for character in name.chars() {
        let mut bytes = [0; 4];
        let bytes = character.encode_utf8(&mut bytes).bytes();
        let next: String = bytes.map(encoded_byte).collect();
        if encoded.len() + next.len() > NAME_MAX {
            break;
        }
        encoded.push_str(&next);
    }
    encoded
}

fn encoded_byte(byte: u8) -> String {
    match byte {
        b'%' => "%25".to_owned(),
        b'!'..=b'~' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    }
}

fn decode(name: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = str::from_utf8(rest.get(..2)?).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &rest[2..];
    }
    String::from_utf8(bytes).ok()
}

impl FromStr for SetId {
    type Err = InvalidSet;

    fn from_str(text: &str) -> Result<Self, InvalidSet> {
        sixteen_digits(text).map(Self).ok_or(InvalidSet)
    }
}

impl fmt::Display for SetId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// Returns a name as it is shown. A name with characters that change how the line looks is shown as
/// a record has it, because others may write records.
pub(crate) fn printable(name: &str) -> Cow<'_, str> {
    match name.contains(printable::is_invisible) {
        true => encode(name).into(),
        false => name.into(),
    }
}

/// The names as `printable` shows them, separated by commas.
impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, name) in self.iter().enumerate() {
            let separator = if place == 0 { "" } else { ", " };
            write!(f, "{separator}{}", printable(name))?;
        }
        Ok(())
    }
}

/// `5 masters (10.0.0.1:6379, ...)`.
impl fmt::Display for RecordedSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let masters = if self.size == 1 { "master" } else { "masters" };
        write!(f, "{} {masters}", self.size)?;
        if self.names.is_empty() { Ok(()) } else { write!(f, " ({})", self.names) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "00000000000000ff";

    fn read_back(names: &[&str]) -> Names {
        let set = RecordedSet { id: SetId(255), size: 3, names: Names::new(names.to_vec()) };
        let read = RecordedSet::read(&set.text(), Some(&set.names.text())).unwrap();
        assert_eq!((read.id, read.size), (SetId(255), 3));
        read.names
    }

    #[test]
    fn set_survives_a_round_trip() {
        let names = ["10.0.0.1:6379", "/run/redis 1/r%.sock", "[::1]:7001", "köln:1", "a,b\n"];
        assert_eq!(read_back(&names), Names::new(names));
        assert_eq!(read_back(&[]), Names::default());
    }

    #[test]
    fn malformed_sets_are_refused() {
        let long = format!("{ID} 256");
        for text in
            ["", ID, "ff 5", &long, &format!("{ID} 0"), &format!("{ID} +1"), &format!("{ID} 03")]
        {
            assert_eq!(RecordedSet::read(text, None), Err(InvalidSet), "{text}");
        }
        for text in [format!("{ID}  5"), format!("{ID} 5 "), format!("{} 5", ID.to_uppercase())] {
            assert_eq!(RecordedSet::read(&text, None), Err(InvalidSet), "{text}");
        }
    }

    #[test]
    fn malformed_names_are_only_omitted() {
        let set = format!("{ID} 5");
        let long = "a".repeat(NAMES_MAX + 1);
        for names in [None, Some("%"), Some("%4"), Some("%zz"), Some("%FF"), Some(&long)] {
            let read = RecordedSet::read(&set, names).unwrap();
            assert_eq!((read.size, read.names), (5, Names::default()), "{names:?}");
        }
    }

    #[test]
    fn long_names_are_cut_and_still_equal_themselves() {
        let long = format!("/{}", "ö".repeat(300));
        let names = read_back(&[&long]);
        let [cut] = names.iter().collect::<Vec<_>>()[..] else { panic!("{names:?}") };
        assert!(cut.len() < long.len() && names.text().len() <= NAME_MAX, "{names:?}");
        assert!(names.contains(&long) && names.are_those_of(&Names::new([long.as_str()])));
        let all: Names = read_back(&vec![long.as_str(); 255]);
        assert_eq!(all.len(), 255, "the names of the largest set can be read");
    }

    #[test]
    fn control_characters_of_names_are_not_printed() {
        let shown = Names::new(["köln:1", "a\nredlock: b\u{1b}[31m", "/run/r 1"]).to_string();
        assert_eq!(shown, "köln:1, a%0Aredlock:%20b%1B[31m, /run/r 1");
        for mark in ['\u{202a}', '\u{202e}', '\u{2066}', '\u{2069}', '\u{200f}', '\u{2028}'] {
            let shown = printable(&format!("a{mark}b")).into_owned();
            assert!(
                shown.is_ascii() && shown.starts_with("a%E2%80%") || shown.starts_with("a%E2%81%"),
                "{shown}"
            );
        }
    }

    #[test]
    fn names_are_compared_in_any_order() {
        let names = |names: &[&str]| Names::new(names.to_vec());
        assert!(names(&["a", "b"]).are_those_of(&names(&["b", "a"])));
        assert!(!names(&["a", "b"]).are_those_of(&names(&["a"])));
        assert!(!names(&["a", "a"]).are_those_of(&names(&["a", "b"])));
    }
}
