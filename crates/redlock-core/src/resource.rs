//! `Resource`: the name of what a lock protects. See rule D2 of `docs/PROTOCOL.md`.

use std::fmt;
use std::sync::Arc;

use crate::printable;

/// The name of the thing that a lock protects: any bytes, up to [`Resource::LEN_MAX`] of them.
///
/// Every string and byte string converts into a resource, so that `redlock.lock("orders:42")` reads
/// well. The request for the lock checks the name, and returns [`InvalidResource`] if it is bad.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resource(Arc<[u8]>);

/// The reason why a name is not a valid [`Resource`]. Nothing was sent to any master.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidResource {
    /// The name has no bytes.
    #[error("the resource name is empty; it must have 1 to {max} bytes", max = Resource::LEN_MAX)]
    Empty,
    /// The name has too many bytes.
    #[error(
        "the resource name has {len} bytes; the limit is {max}: use a digest of long names",
        max = Resource::LEN_MAX
    )]
    TooLong {
        /// How many bytes it has.
        len: usize,
    },
    /// The name, or the prefix and the name together, contain a part that is reserved for the
    /// library's own keys.
    #[error(
        "the key contains \"{prefix}\", a reserved word; choose another name",
        prefix = Resource::RESERVED
    )]
    Reserved,
}

impl Resource {
    /// The largest number of bytes in a name. Longer ones cost every master memory and every
    /// command bandwidth, and are nearly always a mistake.
    pub const LEN_MAX: usize = 512;

    /// Keys that contain this are kept for the library's own data.
    pub const RESERVED: &'static str = "redlock-quorum:";

    /// Returns the bytes of the name.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Checks whether this name may be used.
    ///
    /// # Errors
    /// Returns [`InvalidResource`] if it is empty, too long or reserved.
    pub fn check(&self) -> Result<(), InvalidResource> {
        match self.0.len() {
            0 => Err(InvalidResource::Empty),
            len if len > Self::LEN_MAX => Err(InvalidResource::TooLong { len }),
            _ if Self::is_reserved(&self.0) => Err(InvalidResource::Reserved),
            _ => Ok(()),
        }
    }

    /// Returns `true` if a key, or a part of one, is reserved for the library's own data.
    pub fn is_reserved(key: &[u8]) -> bool {
        let reserved = Self::RESERVED.as_bytes();
        // Every request runs this check, and comparing the first byte nearly always decides it.
        key.windows(reserved.len()).any(|part| part[0] == reserved[0] && part == reserved)
    }

    /// Returns the Redis key of this resource under `prefix`.
    pub fn key(&self, prefix: &[u8]) -> Arc<[u8]> {
        if prefix.is_empty() { self.0.clone() } else { [prefix, &self.0].concat().into() }
    }
}

/// The name as text, with everything unprintable escaped: it goes into errors and logs.
impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match str::from_utf8(&self.0) {
            Ok(text) if !text.contains(printable::is_invisible) => f.write_str(text),
            _ => write!(f, "{}", self.0.escape_ascii()),
        }
    }
}

impl fmt::Debug for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Resource({self})")
    }
}

impl From<&[u8]> for Resource {
    fn from(name: &[u8]) -> Self {
        Self(name.into())
    }
}

impl From<Vec<u8>> for Resource {
    fn from(name: Vec<u8>) -> Self {
        Self(name.into())
    }
}

impl From<&str> for Resource {
    fn from(name: &str) -> Self {
        Self(name.as_bytes().into())
    }
}

impl From<String> for Resource {
    fn from(name: String) -> Self {
        Self(name.into_bytes().into())
    }
}

impl From<&String> for Resource {
    fn from(name: &String) -> Self {
        name.as_str().into()
    }
}

impl From<&Self> for Resource {
    fn from(name: &Self) -> Self {
        name.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_of_1_to_512_bytes_is_valid() {
        for name in [vec![b'x'], vec![0xff; 512], b"orders:42\0\r\n".to_vec()] {
            let resource = Resource::from(name.clone());
            assert_eq!(resource.check(), Ok(()));
            assert_eq!(resource.as_bytes(), name);
        }
    }

    #[test]
    fn empty_oversized_and_reserved_names_are_refused() {
        assert_eq!(Resource::from("").check(), Err(InvalidResource::Empty));
        let long = Resource::from(vec![b'x'; 513]).check().unwrap_err();
        assert!(long.to_string().contains("513 bytes; the limit is 512"), "{long}");
        let reserved = Resource::from("redlock-quorum:1").check();
        assert_eq!(reserved, Err(InvalidResource::Reserved));
        let inside = Resource::from("a redlock-quorum:1").check();
        assert_eq!(inside, Err(InvalidResource::Reserved));
    }

    #[test]
    fn the_key_is_the_name_after_the_prefix() {
        assert_eq!(*Resource::from("a").key(b"locks:"), *b"locks:a");
        assert_eq!(*Resource::from("a").key(b""), *b"a");
    }

    #[test]
    fn display_escapes_unprintable_names() {
        assert_eq!(Resource::from(&b"a\xff\n"[..]).to_string(), "a\\xff\\n");
        assert_eq!(Resource::from("caf\u{e9}").to_string(), "caf\u{e9}");
        assert_eq!(Resource::from("a\u{202e}b").to_string(), "a\\xe2\\x80\\xaeb");
    }
}
