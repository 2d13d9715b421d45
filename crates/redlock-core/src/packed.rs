//! `Packed`: a request as bytes.

use std::fmt;
use std::ops::Deref;

/// The buffer to which a request is written.
pub(crate) trait Room {
    /// Adds bytes at the end.
    fn extend(&mut self, more: &[u8]);

    /// Adds these bytes at the end if that is quickly done. Returns whether it was.
    fn extend_three(&mut self, head: &[u8; 5], part: &[u8], end: &[u8]) -> bool;
}

impl Room for Vec<u8> {
    #[inline]
    fn extend(&mut self, more: &[u8]) {
        self.extend_from_slice(more);
    }

    #[inline]
    fn extend_three(&mut self, head: &[u8; 5], part: &[u8], end: &[u8]) -> bool {
        self.reserve(head.len() + part.len() + end.len());
        self.extend_from_slice(head);
        self.extend_from_slice(part);
        self.extend_from_slice(end);
        true
    }
}

/// Bytes that are assembled once, in one part or in two. Short content is stored inline: nearly
/// every request fits, and an allocation would cost more than writing the bytes.
pub(crate) struct Packed {
    /// The start of the second part.
    split: usize,
    /// How many bytes there are, while they fit.
    len: usize,
    short: [u8; SHORT],
    /// All bytes, once they exceed the inline storage.
    long: Vec<u8>,
}

/// Room for an acquire with its ballot, or a release, of a key of some 50 bytes.
const SHORT: usize = 240;

impl Packed {
    pub(crate) const fn new() -> Self {
        Self { split: 0, len: 0, short: [0; SHORT], long: Vec::new() }
    }

    /// Starts the second part.
    pub(crate) fn split(&mut self) {
        self.split = self.len();
    }

    /// Returns the part before the [split](Self::split).
    #[inline]
    pub(crate) fn first(&self) -> &[u8] {
        &self[..self.split]
    }

    #[inline]
    pub(crate) fn second(&self) -> &[u8] {
        &self[self.split..]
    }

    #[cold]
    fn outgrow(&mut self, more: &[u8]) {
        if self.long.is_empty() {
            self.long.extend_from_slice(&self.short[..self.len]);
        }
        self.long.extend_from_slice(more);
    }
}

impl Room for Packed {
    #[inline]
    fn extend(&mut self, more: &[u8]) {
        match self.short.get_mut(self.len..self.len + more.len()) {
            Some(room) if self.long.is_empty() => {
                room.copy_from_slice(more);
                self.len += more.len();
            }
            _ => self.outgrow(more),
        }
    }

    #[inline]
    fn extend_three(&mut self, head: &[u8; 5], part: &[u8], end: &[u8]) -> bool {
        let len = head.len() + part.len() + end.len();
        let room = self.short.get_mut(self.len..self.len + len);
        let Some(room) = room.filter(|_| self.long.is_empty()) else { return false };
        let (before, room) = room.split_at_mut(head.len());
        let (within, behind) = room.split_at_mut(part.len());
        before.copy_from_slice(head);
        within.copy_from_slice(part);
        behind.copy_from_slice(end);
        self.len += len;
        true
    }
}

impl Deref for Packed {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        if self.long.is_empty() { &self.short[..self.len] } else { &self.long }
    }
}

impl PartialEq for Packed {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl fmt::Debug for Packed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_beyond_the_inline_capacity_are_kept() {
        for len in [0, 1, SHORT - 1, SHORT, SHORT + 1, 3 * SHORT] {
            let whole: Vec<u8> = (0..len).map(|at| at as u8).collect();
            for part in [1, 7, SHORT, len.max(1)] {
                let mut packed = Packed::new();
                whole.chunks(part).for_each(|part| packed.extend(part));
                assert_eq!(*packed, *whole, "{len} bytes, {part} at a time");
                assert_eq!(packed.long.is_empty(), len <= SHORT);
            }
        }
    }

    #[test]
    fn three_pieces_are_added_together_or_not_at_all() {
        let part = [b'b'; 10];
        for (len, fits) in [(0, true), (SHORT - 17, true), (SHORT - 16, false), (SHORT + 1, false)]
        {
            let mut packed = Packed::new();
            packed.extend(&vec![b'a'; len]);
            assert_eq!(packed.extend_three(b"$10\r\n", &part, b"\r\n"), fits, "{len} bytes");
            assert_eq!(packed.len(), len + if fits { 17 } else { 0 });
            assert_eq!(packed.ends_with(b"$10\r\nbbbbbbbbbb\r\n"), fits, "{len} bytes");
        }
    }

    #[test]
    fn each_part_has_the_bytes_of_its_side_of_the_split() {
        for [first, second] in [[0, 0], [0, 9], [9, 0], [SHORT, 1], [SHORT + 1, 1], [1, SHORT]] {
            let mut packed = Packed::new();
            packed.extend(&vec![b'a'; first]);
            packed.split();
            packed.extend(&vec![b'b'; second]);
            assert_eq!(packed.first(), vec![b'a'; first]);
            assert_eq!(packed.second(), vec![b'b'; second]);
        }
    }
}
