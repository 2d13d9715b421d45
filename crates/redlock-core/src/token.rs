//! `Token`: the value that signs one acquisition, and the `Label` it may carry.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use uuid::fmt::Hyphenated;
use uuid::{Builder, Uuid};

use crate::Reservation;
use crate::printable;

/// The random value that signs one attempt to acquire: the value of the key on every master.
///
/// A UUID v7 as text, then `/label` if a [`Label`] was set. Its 74 random bits are fresh from the
/// operating system's generator, safe over a fork. Its milliseconds show since when a lock is held,
/// and nothing relies on them. Every attempt has its own token, because with a reused token, a late
/// release of one attempt would delete the key of the next.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Token(Text);

/// A token without a label needs no allocation.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Text {
    /// Every text of this length.
    Short([u8; Hyphenated::LENGTH]),
    Long(Arc<str>),
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        match text.as_bytes().try_into() {
            Ok(short) => Self::Short(short),
            Err(_) => Self::Long(text.into()),
        }
    }
}

/// Why a text cannot be a [`Token`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a token is 1 to {max} printable characters without spaces, and does not begin with \"{next}\"",
    max = Token::LEN_MAX,
    next = Reservation::PREFIX
)]
pub struct InvalidToken;

impl Token {
    /// The largest number of bytes in a token that is read back from text.
    pub const LEN_MAX: usize = 256;

    /// Creates a token that has never been used before.
    pub fn random(label: Option<&Label>) -> Self {
        let mut buffer = Uuid::encode_buffer();
        let uuid: &str = unique().hyphenated().encode_lower(&mut buffer);
        match label {
            None => Self(uuid.into()),
            Some(label) => Self(labelled(uuid, label)),
        }
    }

    /// Parses a token, such as one printed by another process.
    ///
    /// # Errors
    /// Returns [`InvalidToken`] if the text is empty, too long, has spaces or control characters,
    /// or begins like a [`Reservation`], which no client holds and which must not be extended or
    /// released as a token.
    pub fn parse(text: &str) -> Result<Self, InvalidToken> {
        let fits = (1..=Self::LEN_MAX).contains(&text.len());
        let clean = text.chars().all(|c| !c.is_control() && !c.is_whitespace());
        let is_nobodys = Reservation::is_one(text.as_bytes());
        if fits && clean && !is_nobodys { Ok(Self(text.into())) } else { Err(InvalidToken) }
    }

    /// Returns the whole token as text.
    pub fn as_str(&self) -> &str {
        match &self.0 {
            // It was made of a text.
            Text::Short(bytes) => str::from_utf8(bytes).unwrap_or_default(),
            Text::Long(text) => text,
        }
    }

    /// Returns the token as bytes.
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Text::Short(bytes) => bytes,
            Text::Long(text) => text.as_bytes(),
        }
    }

    /// Returns the label of the client that made the token. `None` if it set none, or the token is
    /// not in the form of this library.
    pub fn label(&self) -> Option<&str> {
        let (_, label) = self.parts()?;
        label
    }

    /// Returns when the token was made, by the clock of the host that made it. This is about when
    /// its lock was acquired. `None` for a token without a time, from another kind of client or
    /// another UUID version.
    pub fn made_at(&self) -> Option<SystemTime> {
        let (uuid, _) = self.parts()?;
        // The first 48 bits of the sixteen bytes are the milliseconds.
        let millis = u64::try_from(uuid.as_u128() >> 80).ok()?;
        let is_timed = uuid.get_version_num() == 7;
        is_timed.then(|| UNIX_EPOCH + Duration::from_millis(millis))
    }

    /// Returns the UUID and the label that follows it. `None` for the token of another kind of
    /// client.
    fn parts(&self) -> Option<(Uuid, Option<&str>)> {
        let (uuid, label) = match self.as_str().split_once('/') {
            Some((uuid, label)) if Label::is_one(label) => (uuid, Some(label)),
            Some(_) => return None,
            None => (self.as_str(), None),
        };
        // Other forms of a UUID, without dashes or in braces, are values of other clients.
        let is_ours = uuid.len() == Hyphenated::LENGTH;
        Uuid::try_parse(uuid).ok().filter(|_| is_ours).map(|uuid| (uuid, label))
    }
}

/// Formats a new token with a label. Most tokens have a label, so the text is assembled on the
/// stack, and storing it is the only allocation.
fn labelled(uuid: &str, label: &Label) -> Text {
    let (slash, label) = (uuid.len(), label.as_str().as_bytes());
    let end = slash + 1 + label.len();
    let mut text = [b'/'; Hyphenated::LENGTH + 1 + Label::LEN_MAX];
    text[..slash].copy_from_slice(uuid.as_bytes());
    text[slash + 1..end].copy_from_slice(label);
    // It was made of texts.
    str::from_utf8(&text[..end]).unwrap_or_default().into()
}

/// Creates a UUID from the milliseconds of the host's clock, and random bits of one call.
fn unique() -> Uuid {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let millis = u64::try_from(now.as_millis()).unwrap_or_default();
    // A UUID v4 is sixteen bytes of the operating system's generator; version and variant overwrite
    // bits of the seventh and the ninth, and the others are as random as they came.
    let [a, b, c, d, e, f, _, g, _, h, i, j, ..] = Uuid::new_v4().into_bytes();
    Builder::from_unix_timestamp_millis(millis, &[a, b, c, d, e, f, g, h, i, j]).into_uuid()
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({self})")
    }
}

/// A display name for the holder of a lock. It is never compared and never trusted.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Label(Arc<str>);

/// The reason why a text is not a valid [`Label`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the label \"{0}\" is not 1 to {max} of A-Z a-z 0-9 . _ @ : -", max = Label::LEN_MAX)]
pub struct InvalidLabel(String);

impl Label {
    /// The largest number of characters in a label.
    pub const LEN_MAX: usize = 64;

    /// Checks a text and makes a label of it.
    ///
    /// # Errors
    /// Returns [`InvalidLabel`] if it is empty, too long or has other characters.
    pub fn parse(text: &str) -> Result<Self, InvalidLabel> {
        if Self::is_one(text) {
            Ok(Self(text.into()))
        } else {
            Err(InvalidLabel(printable::setting(text).into()))
        }
    }

    /// Returns the label nearest to a text: invalid characters become `-`, and a long text is cut
    /// off.
    ///
    /// # Errors
    /// Returns [`InvalidLabel`] if the text is empty.
    pub fn nearest(text: &str) -> Result<Self, InvalidLabel> {
        let one = |c: char| if Self::may_have(c) { c } else { '-' };
        Self::parse(&text.chars().map(one).take(Self::LEN_MAX).collect::<String>())
    }

    fn is_one(text: &str) -> bool {
        (1..=Self::LEN_MAX).contains(&text.len()) && text.chars().all(Self::may_have)
    }

    fn may_have(c: char) -> bool {
        c.is_ascii_alphanumeric() || "._@:-".contains(c)
    }

    /// Returns the label as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Label({self})")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn random_tokens_are_unique() {
        let tokens: HashSet<_> = (0..10_000).map(|_| Token::random(None)).collect();
        assert_eq!(tokens.len(), 10_000);
    }

    #[test]
    fn token_has_its_creation_time_and_74_random_bits() {
        let before = SystemTime::now() - Duration::from_millis(1);
        let tokens: Vec<_> = (0..1_000).map(|_| Token::random(None)).collect();
        let after = SystemTime::now();
        let (mut ones, mut zeros) = (0_u128, 0_u128);
        for token in &tokens {
            let (uuid, _) = token.parts().unwrap();
            assert_eq!(uuid.get_version_num(), 7, "{token}");
            assert_eq!(uuid.get_variant(), uuid::Variant::RFC4122, "{token}");
            let made_at = token.made_at().unwrap();
            assert!((before..=after).contains(&made_at), "{token}: {made_at:?}");
            ones |= uuid.as_u128();
            zeros |= !uuid.as_u128();
        }
        // Of a random bit, both values come up in a thousand draws.
        let below_the_time = (1_u128 << 80) - 1;
        assert_eq!((ones & zeros & below_the_time).count_ones(), 74);
    }

    #[test]
    fn time_and_label_are_read_only_from_our_tokens() {
        let read = |text: &str| {
            let token = Token::parse(text).unwrap();
            let millis = |at: SystemTime| at.duration_since(UNIX_EPOCH).unwrap().as_millis();
            (token.made_at().map(millis), token.label().map(str::to_owned))
        };
        let ann = Some("ann@web-1:7".to_owned());
        let v7 = "017f22e2-79b0-7cc3-98c4-dc0c0c07398f";
        assert_eq!(read(v7), (Some(1_645_557_742_000), None));
        assert_eq!(read(&format!("{v7}/ann@web-1:7")), (Some(1_645_557_742_000), ann.clone()));
        let v4 = "f81d4fae-7dec-41d0-a765-00a0c91e6bf6";
        assert_eq!(read(v4), (None, None));
        assert_eq!(read(&format!("{v4}/ann@web-1:7")), (None, ann));
        for other in ["0123456789abcdef", "017f22e279b07cc398c4dc0c0c07398f", "a/b"] {
            assert_eq!(read(other), (None, None), "{other}");
        }
        assert_eq!(read(&format!("{v7}/no/label")), (None, None));
    }

    #[test]
    fn the_label_follows_the_uuid() {
        let label = Label::parse("web-1:4711").unwrap();
        let token = Token::random(Some(&label));
        assert_eq!(token.as_str().len(), 36 + 1 + 10);
        assert!(token.as_str().ends_with("/web-1:4711"));
        assert_eq!(token.label(), Some("web-1:4711"));
        assert_eq!(Token::parse(token.as_str()), Ok(token));
        let longest = Label::parse(&"x".repeat(Label::LEN_MAX)).unwrap();
        assert_eq!(Token::random(Some(&longest)).label(), Some(longest.as_str()));
    }

    #[test]
    fn nearest_label_replaces_invalid_characters() {
        let nearest = |text: &str| Label::nearest(text).map(|label| label.as_str().to_owned());
        assert_eq!(nearest("web-1:4711_a.B@c").unwrap(), "web-1:4711_a.B@c");
        assert_eq!(nearest("by J\u{fc}rgen/1").unwrap(), "by-J-rgen-1");
        assert_eq!(nearest(&"\u{fc}".repeat(65)).unwrap(), "-".repeat(64));
        assert!(nearest("").is_err());
    }

    #[test]
    fn bad_labels_and_tokens_are_refused() {
        for bad in ["", "a b", "caf\u{e9}", "a/b", &"x".repeat(65)] {
            assert!(Label::parse(bad).is_err(), "{bad:?}");
        }
        let (reserved, long) = ("redlock-quorum:next:0123456789abcdef", "x".repeat(257));
        for bad in ["", "a b", "a\n", &long, reserved, Reservation::PREFIX] {
            assert_eq!(Token::parse(bad), Err(InvalidToken), "{bad:?}");
        }
    }
}
