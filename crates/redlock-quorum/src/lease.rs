//! `Lease`: a held lock as plain data.

use std::time::Duration;

use redlock_core::{FencingToken, InvalidToken, Resource, Token};

/// A held lock as plain data, to be kept in a file or handed to another process.
///
/// It proves nothing by itself: [`Redlock::resume`](crate::Redlock::resume) proves it, by extending
/// it on a quorum of masters, and gets a new, larger fencing token. Its validity and its fencing
/// token are from when it was made, and are for information only.
///
/// It stands for *one* hold, so it is not `Clone`. A lease that is written down can be read back
/// twice all the same, and the first holder may still use it. The guards of one lease share it: the
/// extensions of each succeed, nothing excludes one from the other, and a store that checks tokens
/// refuses all but the one with the largest. A release by any of them ends it for all, and the
/// others learn of it only when they extend. So resume a lease only once, when its holder has ended
/// or has given it away, and never a token that was read from
/// [`Redlock::status`](crate::Redlock::status).
///
/// A resume takes the lease, and one that fails does not give it back. A caller that wants
/// to try again, after an outage that was shorter than the lease, makes it anew from its parts.
///
/// ```no_run
/// # use std::time::{Duration, Instant};
/// use redlock_quorum::{ExtendError, Guard, Lease, Redlock};
///
/// # async fn example(redlock: Redlock, lease: Lease) -> anyhow::Result<Guard> {
/// let until = Instant::now() + lease.ttl; // nothing is left of it then
/// loop {
///     let again = Lease::new(lease.resource.clone(), lease.token.as_str(), lease.ttl)?;
///     match redlock.resume(again).await {
///         Err(ExtendError::NoQuorum { .. }) if Instant::now() < until => {
///             tokio::time::sleep(Duration::from_millis(100)).await;
///         }
///         outcome => return Ok(outcome?),
///     }
/// }
/// # }
/// ```
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lease {
    /// The resource of the lock.
    pub resource: Resource,
    /// The token that signs it.
    pub token: Token,
    /// How long it lasts from its last extension.
    pub ttl: Duration,
    /// Its fencing token when this was written, where it had one.
    pub fencing_token: Option<FencingToken>,
    /// How long its holder could count on it when this was written.
    pub validity: Duration,
}

impl Lease {
    /// The lease that `token` signs on `resource`, to be extended by `ttl`.
    ///
    /// # Errors
    /// [`InvalidToken`] when the text cannot be a token.
    pub fn new(
        resource: impl Into<Resource>,
        token: &str,
        ttl: Duration,
    ) -> Result<Self, InvalidToken> {
        let (resource, token) = (resource.into(), Token::parse(token)?);
        Ok(Self { resource, token, ttl, fencing_token: None, validity: Duration::ZERO })
    }
}

#[cfg(feature = "serde")]
mod plain {
    //! The form in which a lease is written down: names of any bytes, durations in milliseconds.

    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::*;

    #[derive(Serialize, Deserialize)]
    struct Plain {
        resource: Name,
        token: String,
        ttl_ms: u64,
        validity_ms: u64,
        /// Leases that were written down before locks had one have none.
        #[serde(default)]
        fencing_token: Option<FencingToken>,
    }

    /// A name as text if it is UTF-8, so that people can read it; otherwise as its bytes.
    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    enum Name {
        Text(String),
        Bytes(Vec<u8>),
    }

    impl From<&Resource> for Name {
        fn from(resource: &Resource) -> Self {
            match str::from_utf8(resource.as_bytes()) {
                Ok(text) => Self::Text(text.to_owned()),
                Err(_) => Self::Bytes(resource.as_bytes().to_vec()),
            }
        }
    }

    impl From<Name> for Resource {
        fn from(name: Name) -> Self {
            match name {
                Name::Text(text) => text.into(),
                Name::Bytes(bytes) => bytes.into(),
            }
        }
    }

    fn millis(duration: Duration) -> u64 {
        u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
    }

    impl Serialize for Lease {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let plain = Plain {
                resource: Name::from(&self.resource),
                token: self.token.to_string(),
                ttl_ms: millis(self.ttl),
                validity_ms: millis(self.validity),
                fencing_token: self.fencing_token,
            };
            plain.serialize(serializer)
        }
    }

    impl<'de> Deserialize<'de> for Lease {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            let plain = Plain::deserialize(deserializer)?;
            let ttl = Duration::from_millis(plain.ttl_ms);
            let lease = Self::new(Resource::from(plain.resource), &plain.token, ttl)
                .map_err(D::Error::custom)?;
            let validity = Duration::from_millis(plain.validity_ms);
            Ok(Self { validity, fencing_token: plain.fencing_token, ..lease })
        }
    }
}
