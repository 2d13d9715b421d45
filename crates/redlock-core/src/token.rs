//! `Token`: the value that signs one acquisition, and the `Label` it may carry.

use std::fmt;
use std::sync::Arc;

use uuid::Uuid;

/// The random value that signs one attempt to acquire: the value of the key on every master.
///
/// A UUID v4 from the operating system's generator (122 random bits, safe over a fork), as text,
/// then `/label` where a [`Label`] was set. Every attempt has a token of its own: with a reused
/// one, a late release of one attempt would delete the key of the next.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Token(Arc<str>);

/// Why a text cannot be a [`Token`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a token is 1 to {max} printable characters without spaces", max = Token::LEN_MAX)]
pub struct InvalidToken;

impl Token {
    /// The largest number of bytes in a token that is read back from text.
    pub const LEN_MAX: usize = 256;

    /// A token that has never been used before.
    pub fn random(label: Option<&Label>) -> Self {
        let mut buffer = Uuid::encode_buffer();
        let uuid: &str = Uuid::new_v4().hyphenated().encode_lower(&mut buffer);
        match label {
            None => Self(uuid.into()),
            Some(label) => Self(format!("{uuid}/{label}").into()),
        }
    }

    /// The token that a text stands for, such as one that another process printed.
    ///
    /// # Errors
    /// [`InvalidToken`] when the text is empty, too long or has spaces or control characters.
    pub fn parse(text: &str) -> Result<Self, InvalidToken> {
        let fits = (1..=Self::LEN_MAX).contains(&text.len());
        let clean = text.chars().all(|c| !c.is_control() && !c.is_whitespace());
        if fits && clean { Ok(Self(text.into())) } else { Err(InvalidToken) }
    }

    /// The whole token as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({self})")
    }
}

/// A name for people who ask who holds a lock; never compared, never trusted.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Label(Arc<str>);

/// Why a text cannot be a [`Label`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the label {0:?} is not 1 to {max} of A-Z a-z 0-9 . _ @ : -", max = Label::LEN_MAX)]
pub struct InvalidLabel(String);

impl Label {
    /// The largest number of characters in a label.
    pub const LEN_MAX: usize = 64;

    /// Checks a text and makes a label of it.
    ///
    /// # Errors
    /// [`InvalidLabel`] when it is empty, too long or has other characters.
    pub fn parse(text: &str) -> Result<Self, InvalidLabel> {
        let fits = (1..=Self::LEN_MAX).contains(&text.len());
        let clean = text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._@:-".contains(&b));
        if fits && clean { Ok(Self(text.into())) } else { Err(InvalidLabel(text.into())) }
    }

    /// The label as text.
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
    fn no_token_is_made_twice() {
        let tokens: HashSet<_> = (0..10_000).map(|_| Token::random(None)).collect();
        assert_eq!(tokens.len(), 10_000);
    }

    #[test]
    fn the_label_follows_the_uuid() {
        let label = Label::parse("web-1:4711").unwrap();
        let token = Token::random(Some(&label));
        assert_eq!(token.as_str().len(), 36 + 1 + 10);
        assert!(token.as_str().ends_with("/web-1:4711"));
        assert_eq!(Token::parse(token.as_str()), Ok(token));
    }

    #[test]
    fn bad_labels_and_tokens_are_refused() {
        for bad in ["", "a b", "caf\u{e9}", "a/b", &"x".repeat(65)] {
            assert!(Label::parse(bad).is_err(), "{bad:?}");
        }
        for bad in ["", "a b", "a\n", &"x".repeat(257)] {
            assert_eq!(Token::parse(bad), Err(InvalidToken), "{bad:?}");
        }
    }
}
