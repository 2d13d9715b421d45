//! `Packed`: a request as bytes.

use std::fmt;
use std::ops::Deref;

/// Bytes that are put together once. Few take no memory of their own: nearly every request fits
/// where it is kept, and an allocation would cost more than all that is written.
pub(crate) enum Packed {
    Short { len: usize, bytes: [u8; SHORT] },
    Long(Vec<u8>),
}

/// Room for the longest part of an acquire or a release of a key of some 70 bytes.
const SHORT: usize = 192;

impl Packed {
    pub(crate) const fn new() -> Self {
        Self::Short { len: 0, bytes: [0; SHORT] }
    }

    pub(crate) fn extend(&mut self, more: &[u8]) {
        self.room(more.len()).copy_from_slice(more);
    }

    /// Makes so many bytes more, to be written to.
    pub(crate) fn room(&mut self, more: usize) -> &mut [u8] {
        if let Self::Short { len, bytes } = self
            && *len + more > SHORT
        {
            *self = Self::Long(bytes[..*len].to_vec());
        }
        match self {
            Self::Short { len, bytes } => {
                let begin = std::mem::replace(len, *len + more);
                &mut bytes[begin..begin + more]
            }
            Self::Long(bytes) => {
                let begin = bytes.len();
                bytes.resize(begin + more, 0);
                &mut bytes[begin..]
            }
        }
    }
}

impl Deref for Packed {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Short { len, bytes } => &bytes[..*len],
            Self::Long(bytes) => bytes,
        }
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
                assert_eq!(matches!(packed, Packed::Short { .. }), len <= SHORT);
            }
        }
    }
}
