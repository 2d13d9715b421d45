//! `Lease`: a held lock as plain data.

use std::time::Duration;

use redlock_core::{FencingToken, InvalidToken, Resource, Token};

/// A held lock as plain data, to store in a file or pass to another process.
///
/// A lease by itself proves nothing. [`Redlock::resume`](crate::Redlock::resume) extends it on a
/// quorum of masters, which proves that it is still held, and gets a new, larger fencing token. The
/// validity and the fencing token in the lease were correct when it was created, and are
/// informational.
///
/// A lease represents *one* hold, so it is not `Clone`. However, a stored lease can be read twice,
/// and its first holder may still use it. All guards of one lease share the lock: each can extend
/// it, and they do not exclude each other. Only a store that checks fencing tokens rejects all but
/// the guard with the largest token. A release by any of them ends the lock for all, and the others
/// learn of it only at their next extension. So resume a lease only once, after its holder has
/// exited or passed it on, and never resume a token read from
/// [`Redlock::status`](crate::Redlock::status).
///
/// [`resume`](crate::Redlock::resume) consumes the lease, even if it fails. To retry after an
/// outage shorter than the lease, create it again from its parts:
///
/// ```no_run
/// # use std::time::{Duration, Instant};
/// use redlock_quorum::{ExtendError, Guard, Lease, Redlock};
///
/// # async fn example(redlock: Redlock, lease: Lease) -> anyhow::Result<Guard> {
/// let until = Instant::now() + lease.ttl; // it expires by then
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
    /// The token of the lock: the value of its key on every master.
    pub token: Token,
    /// How long the lock lasts after its last extension.
    pub ttl: Duration,
    /// The fencing token when the lease was created. `None` if there was none.
    pub fencing_token: Option<FencingToken>,
    /// How long the holder could rely on the lock when the lease was created.
    pub validity: Duration,
}

impl Lease {
    /// Creates the lease of `token` on `resource`, which will be extended by `ttl`.
    ///
    /// # Errors
    /// Returns [`InvalidToken`] if the text cannot be a token.
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
    //! The serialized form of a lease: names of any bytes, durations in milliseconds.

    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::*;

    #[derive(Serialize, Deserialize)]
    struct Plain {
        resource: Name,
        token: String,
        ttl_ms: u64,
        validity_ms: u64,
        /// Absent from leases serialized before locks had fencing tokens.
        #[serde(default)]
        fencing_token: Option<FencingToken>,
    }

    /// A readable string if the name is UTF-8, otherwise its bytes.
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
