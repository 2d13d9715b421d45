//! `Packed`: a request as bytes.

use std::fmt;
use std::ops::Deref;

/// The buffer to which a request is written.
pub(crate) trait Room {
    /// Adds bytes at the end.
    fn extend(&mut self, more: &[u8]);

    /// Adds a part of a command at the end, with the line before it and its line end, where that is
    /// quickly done. Says whether it was.
    fn extend_short(&mut self, part: &[u8]) -> bool;
}

/// The line before a part, and its line end, where the part has 10 to 99 bytes.
const AROUND: usize = 7;

impl Room for Vec<u8> {
    #[inline]
    fn extend(&mut self, more: &[u8]) {
        self.extend_from_slice(more);
    }

    #[inline]
    fn extend_short(&mut self, part: &[u8]) -> bool {
        let Some(head) = head(part.len()) else { return false };
        self.reserve(part.len() + AROUND);
        self.extend_from_slice(&head);
        self.extend_from_slice(part);
        self.extend_from_slice(b"\r\n");
        true
    }
}

/// The line before a part of `len` bytes, where that has two digits.
#[inline]
fn head(len: usize) -> Option<[u8; 5]> {
    // A number below 100 has no more than two digits, each of which is a byte.
    let digit = |number: usize| b'0' + (number % 10) as u8;
    (10..100).contains(&len).then(|| [b'$', digit(len / 10), digit(len), b'\r', b'\n'])
}

/// Bytes that are put together once, in one part or in two. Few take no memory of their own: nearly
/// every request fits where it is kept, and an allocation would cost more than all that is written.
pub(crate) struct Packed {
    /// Where the second part begins.
    split: usize,
    /// How many bytes there are, while they fit.
    len: usize,
    short: [u8; SHORT],
    /// All of them, once they do not fit any more.
    long: Vec<u8>,
}

/// Room for an acquire with its ballot, or a release, of a key of some 50 bytes.
const SHORT: usize = 240;

impl Packed {
    pub(crate) const fn new() -> Self {
        Self { split: 0, len: 0, short: [0; SHORT], long: Vec::new() }
    }

    /// What follows is the second part.
    pub(crate) fn split(&mut self) {
        self.split = self.len();
    }

    /// The part before the [split](Self::split).
    #[inline]
    pub(crate) fn first(&self) -> &[u8] {
        &self[..self.split]
    }

    /// The part behind it.
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
    fn extend_short(&mut self, part: &[u8]) -> bool {
        let Some(head) = head(part.len()).filter(|_| self.long.is_empty()) else { return false };
        let Some(room) = self.short.get_mut(self.len..self.len + part.len() + AROUND) else {
            return false;
        };
        let (before, room) = room.split_at_mut(head.len());
        let (within, behind) = room.split_at_mut(part.len());
        before.copy_from_slice(&head);
        within.copy_from_slice(part);
        behind.copy_from_slice(b"\r\n");
        self.len += part.len() + AROUND;
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
    fn nothing_is_lost_where_the_room_ends() {
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
    fn a_part_in_one_piece_is_what_it_is_in_three() {
        for (len, is_short) in [(0, false), (9, false), (10, true), (99, true), (100, false)] {
            let part = vec![b'a'; len];
            let (mut packed, mut bytes) = (Packed::new(), Vec::new());
            assert_eq!([packed.extend_short(&part), bytes.extend_short(&part)], [is_short; 2]);
            let whole = [format!("${len}\r\n").as_bytes(), &part, b"\r\n"].concat();
            let whole = if is_short { whole } else { Vec::new() };
            assert_eq!((&*packed, &bytes), (&*whole, &whole), "{len} bytes");
        }
        let mut full = Packed::new();
        full.extend(&[b'a'; SHORT - AROUND - 9]);
        assert!(!full.extend_short(&[b'b'; 10]), "it would not fit");
        assert_eq!(full.len(), SHORT - AROUND - 9);
    }

    #[test]
    fn each_part_is_what_was_written_on_its_side_of_the_split() {
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
