//! `Ballot`: the number that an attempt proposes to every master, and `FencingToken`: the number
//! that a holder gets when a majority accepted its ballot. See rule F1 of `docs/PROTOCOL.md`.
//!
//! Each master keeps one sorted set of 1,024 members. The score of a member is the largest accepted
//! ballot for any resource of that [`Member`]. [`admission`](crate::admission) decides the name of
//! the set and who writes its members.

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

use crate::admission::{MEMBERS, SCORE_END};

/// The numbers that belong to one ballot: its token, and 31 more for leases passed on to other
/// callers.
const STRIDE: u64 = 32;

/// A number that grows with every lease of a resource, for stores that refuse smaller ones.
///
/// It is not a timestamp, though it is about the microseconds since 1970: only its order means
/// anything, and only among tokens of one prefix on one set of masters.
/// It is below 2^53, so that it is exact in a double, in JSON and in a signed 64-bit column.
///
/// A store uses it so: it accepts a write only when the token is not smaller than the largest one
/// it has seen, tests and writes in one step, and has the token of a new holder installed before
/// that holder reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "u64", into = "u64"))]
pub struct FencingToken(u64);

/// The number is not a fencing token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidFencingToken {
    /// The number is out of range.
    #[error("a fencing token is a whole number from 0 to {max}", max = FencingToken::MAX.get())]
    OutOfRange,
    /// The text is not a decimal number.
    #[error("a fencing token is a decimal number: {0}")]
    NotANumber(#[from] ParseIntError),
}

impl FencingToken {
    /// The largest one: 2^53 - 1.
    pub const MAX: Self = Self(SCORE_END - 1);

    /// Creates the token with this number. `None` from 2^53 on.
    pub const fn new(number: u64) -> Option<Self> {
        if number < SCORE_END { Some(Self(number)) } else { None }
    }

    /// Returns the number, below 2^53.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for FencingToken {
    type Err = InvalidFencingToken;

    /// Reads decimal digits.
    fn from_str(text: &str) -> Result<Self, InvalidFencingToken> {
        Self::try_from(text.parse::<u64>()?)
    }
}

impl TryFrom<u64> for FencingToken {
    type Error = InvalidFencingToken;

    fn try_from(number: u64) -> Result<Self, InvalidFencingToken> {
        Self::new(number).ok_or(InvalidFencingToken::OutOfRange)
    }
}

impl TryFrom<i64> for FencingToken {
    type Error = InvalidFencingToken;

    fn try_from(number: i64) -> Result<Self, InvalidFencingToken> {
        let number = u64::try_from(number).map_err(|_| InvalidFencingToken::OutOfRange)?;
        Self::try_from(number)
    }
}

impl From<FencingToken> for u64 {
    fn from(token: FencingToken) -> Self {
        token.0
    }
}

impl From<FencingToken> for i64 {
    fn from(token: FencingToken) -> Self {
        token.0.cast_signed()
    }
}

/// The number that one attempt proposes to every master: `32 n + 31`, below 2^53. Any ballot is
/// safe. A master accepts a ballot larger than the score it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ballot(u64);

impl Ballot {
    /// The largest `n`.
    pub const NUMBER_MAX: u64 = SCORE_END / STRIDE - 1;

    /// Creates the ballot `32 n + 31`. `None` if that is not below 2^53.
    pub const fn new(n: u64) -> Option<Self> {
        if n <= Self::NUMBER_MAX { Some(Self(n * STRIDE + STRIDE - 1)) } else { None }
    }

    /// Returns the smallest ballot above `score`. `None` if there is none below 2^53.
    pub const fn above(score: u64) -> Option<Self> {
        match score.checked_add(1) {
            Some(next) => Self::new(next / STRIDE),
            None => None,
        }
    }

    /// Returns its `n`.
    pub const fn number(self) -> u64 {
        self.0 / STRIDE
    }

    /// Returns the score of a member that has accepted this ballot.
    pub const fn score(self) -> u64 {
        self.0
    }

    /// Returns the fencing token of the holder: `32 n`.
    pub const fn token(self) -> FencingToken {
        FencingToken(self.0 - (STRIDE - 1))
    }

    /// Returns the fencing token of the caller that receives the lease in the hand-over with this
    /// number: `32 n + hand_overs`. `None` after the 31st, because that number is the token of a
    /// different ballot.
    pub const fn token_behind(self, hand_overs: u8) -> Option<FencingToken> {
        let behind = hand_overs as u64;
        if behind < STRIDE { Some(FencingToken(self.token().0 + behind)) } else { None }
    }
}

/// The member of the ballot sets that a resource uses: CRC-16/XMODEM of its name, without the
/// prefix, modulo 1,024. Resources that share a member make each other's tokens larger, and have no
/// other effect on each other. All clients must agree on it, so it never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Member(u16);

impl Member {
    /// Returns the member of a resource, from its name without the prefix.
    pub fn of(resource: &[u8]) -> Self {
        Self(resource.iter().fold(0, crc16) % MEMBERS as u16)
    }

    /// Creates the member with this number. `None` from 1,024 on.
    pub const fn new(number: u16) -> Option<Self> {
        if (number as u32) < MEMBERS { Some(Self(number)) } else { None }
    }

    /// Returns its name in the set, as a number: 0 to 1,023.
    pub fn number(self) -> u16 {
        self.0
    }
}

/// Adds one byte to a CRC-16/XMODEM: polynomial 0x1021, nothing reflected.
fn crc16(crc: u16, byte: &u8) -> u16 {
    CRC16[usize::from((crc >> 8) as u8 ^ byte)] ^ crc << 8
}

/// What each byte adds.
const CRC16: [u16; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut crc, mut bit) = ((byte as u16) << 8, 0);
        while bit < 8 {
            crc = crc << 1 ^ if crc & 0x8000 == 0 { 0 } else { 0x1021 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

/// A ballot, and the member that it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bid {
    /// The proposed ballot.
    pub ballot: Ballot,
    /// For which member.
    pub member: Member,
}

/// A master's answer about a ballot, in addition to its answer about the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Balloted {
    /// The ballot was accepted, and the key was ours afterwards.
    Accepted,
    /// The ballot was refused, and the score was not read yet.
    Refused,
    /// The score of the member, read after the other parts of the request. If a ballot was sent, it
    /// was not accepted.
    Score(u64),
    /// The master has no such member: it is not admitted, or lost its fencing data.
    NoMember,
    /// The score is not a value that a client writes: 2^53 or more, or not a whole number.
    Foreign,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_is_the_first_number_of_its_ballot() {
        let ballot = Ballot::new(3).unwrap();
        assert_eq!((ballot.score(), ballot.number(), ballot.token().get()), (127, 3, 96));
        let last = Ballot::new(Ballot::NUMBER_MAX).unwrap();
        assert_eq!(last.score(), SCORE_END - 1);
        assert_eq!(Ballot::new(Ballot::NUMBER_MAX + 1), None);
    }

    #[test]
    fn ballot_above_a_score_is_the_next_until_the_last() {
        let above = |score| Ballot::above(score).map(Ballot::score);
        for (score, next) in [(0, 31), (30, 31), (31, 63), (32, 63), (62, 63), (63, 95)] {
            assert_eq!(above(score), Some(next), "above {score}");
        }
        assert_eq!(above(SCORE_END - 33), Some(SCORE_END - 1));
        for last in [SCORE_END - 1, SCORE_END, u64::MAX] {
            assert_eq!(above(last), None);
        }
    }

    #[test]
    fn members_are_equal_for_all_clients() {
        // The check value of CRC-16/XMODEM is 0x31C3.
        assert_eq!(b"123456789".iter().fold(0, crc16), 0x31C3);
        assert_eq!(Member::of(b"123456789").number(), 0x31C3 % 1024);
        assert_eq!(Member::of(b"").number(), 0);
    }

    #[test]
    fn a_token_is_read_and_written_as_a_number_below_two_to_the_53() {
        let token = FencingToken::new(1_700_000_000_000_000).unwrap();
        assert_eq!(token.to_string().parse(), Ok(token));
        assert_eq!(FencingToken::try_from(i64::from(token)), Ok(token));
        assert_eq!(FencingToken::try_from(u64::from(token)), Ok(token));
        assert_eq!(FencingToken::try_from(-1_i64), Err(InvalidFencingToken::OutOfRange));
        assert_eq!(FencingToken::new(SCORE_END), None);
        assert_eq!("9007199254740991".parse(), Ok(FencingToken::MAX));
        let limit = "9007199254740992".parse::<FencingToken>().unwrap_err();
        assert_eq!(
            limit.to_string(),
            "a fencing token is a whole number from 0 to 9007199254740991"
        );
        assert!(matches!("x".parse::<FencingToken>(), Err(InvalidFencingToken::NotANumber(_))));
    }
}
