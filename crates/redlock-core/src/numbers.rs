//! The numbers that masters keep, and how they are read.

/// Milliseconds: a length, an instant of this process's clock, or a master's TIME since 1970.
pub type Millis = u64;

/// A score of a ballot set.
pub type Score = u64;

/// Scores below this are ours. Doubles are exact up to here.
pub const SCORE_END: Score = 1 << 53;

/// Decimal digits only, below 2^53: scripts count in doubles.
pub(crate) fn number(digits: &str) -> Option<u64> {
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|number| is_plain && *number < SCORE_END)
}

/// Parses 16 lower-case hex digits.
pub(crate) fn sixteen_digits(text: &str) -> Option<u64> {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let is_one = text.len() == 16 && text.bytes().all(is_digit);
    u64::from_str_radix(text, 16).ok().filter(|_| is_one)
}
