//! `Key`: the name of a lock, as `--json` prints it, and its percent-encoding.

use std::fmt::{self, Display, Formatter, Write};

use redlock_quorum::Resource;
use serde::ser::{Serialize, SerializeMap, Serializer};

/// The KEY of an object, to be flattened into it. `key` is the key itself if it is UTF-8.
/// Otherwise `key` is null and `key_encoded` has it percent-encoded. Thus two keys never print
/// the same, and a program gets back the bytes that it used.
///
/// `Display` is for messages: it escapes control characters.
#[derive(Clone, Debug)]
pub(crate) struct Key(Resource);

impl From<&Resource> for Key {
    fn from(key: &Resource) -> Self {
        Self(key.clone())
    }
}

impl Display for Key {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for Key {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = str::from_utf8(self.0.as_bytes()).ok();
        let mut fields = serializer.serialize_map(None)?;
        fields.serialize_entry("key", &text)?;
        if text.is_none() {
            fields.serialize_entry("key_encoded", &encoded(self.0.as_bytes()))?;
        }
        fields.end()
    }
}

/// Percent-encodes a key as in RFC 3986.
pub(crate) fn encoded(key: &[u8]) -> String {
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
    use serde_json::json;

    use super::*;

    #[test]
    fn a_key_of_any_bytes_is_one_word_without_an_equals_sign() {
        assert_eq!(encoded(b"nightly-report_1.~"), "nightly-report_1.~");
        assert_eq!(encoded(b"orders:42 =%\n\xff"), "orders%3A42%20%3D%25%0A%FF");
    }

    #[test]
    fn two_keys_never_print_the_same() {
        let object = |key: &[u8]| serde_json::to_value(Key(Resource::from(key))).unwrap();
        for text in ["x\ny", r"x\ny", r"x\xffy", "é", "\u{7f}"] {
            assert_eq!(object(text.as_bytes()), json!({"key": text}));
        }
        assert_eq!(object(b"x\xffy"), json!({"key": null, "key_encoded": "x%FFy"}));
    }
}
