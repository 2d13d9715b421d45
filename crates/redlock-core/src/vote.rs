//! `Vote`: what one master answered.

use std::fmt;
use std::time::Duration;

use crate::admission::AdmissionReply;
use crate::duration::spelled;
use crate::printable;
use crate::{Balloted, Cause, Instant, Marked, Queued, Reservation};

/// A master's verdict on one key. Everything that is not a clear answer is *unknown*.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Verdict {
    /// Acquire, enter, take: the key was free, or reserved for us, and is ours now. Extend: it is
    /// ours, and its expiry was extended. Release, leave, reserve: the key was ours, and no longer
    /// is. A mark: it was read or raised. Waiters: they were counted. Admission: it was answered.
    Granted,
    /// Acquire and ballot: the key is ours, but the ballot was refused, because the master has
    /// accepted an equal or larger ballot.
    BallotRefused,
    /// Another client holds the key, or it is [reserved](Self::reservation).
    Held {
        /// The value of the key as text, at most its first 512 bytes. `None` if the request does
        /// not read it, and if the key is of another type and so cannot be a lock.
        token: Option<String>,
        /// The time until the key expires. `None` if the request does not read it, or the key never
        /// expires.
        ttl: Option<Duration>,
    },
    /// Extend: there is no such key. Release, leave, reserve: the key is not ours.
    NotOurs,
    /// Inspect, enter: there is no such key, and it was not set.
    Free,
    /// The master may have done it or not, for the reason given.
    Unknown(Cause),
    /// There is no answer yet. No master casts it.
    Pending,
}

impl Verdict {
    /// A refusal without the holder of the key: the answer to `SET NX`.
    pub const HELD: Self = Self::Held { token: None, ttl: None };

    /// Returns the reservation in the key's value, if no client holds the key and it is kept for
    /// the next client in its [queue](crate::SharedQueue).
    pub fn reservation(&self) -> Option<Reservation> {
        match self {
            Self::Held { token: Some(value), .. } => Reservation::parse(value),
            _ => None,
        }
    }

    /// Returns `true` if the master answered that it did not carry out the request.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Held { .. } | Self::NotOurs)
    }

    /// Returns `true` if the master itself has answered, one way or the other.
    pub fn is_clear(&self) -> bool {
        !matches!(self, Self::Unknown(_) | Self::Pending)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Granted => f.write_str("granted"),
            Self::BallotRefused => f.write_str("granted but ballot refused"),
            Self::Held { .. } if self.reservation().is_some() => {
                f.write_str("reserved for the next waiter")
            }
            Self::Held { ttl: Some(ttl), .. } => write!(f, "held ({})", spelled(*ttl)),
            Self::Held { ttl: None, .. } => f.write_str("held"),
            Self::NotOurs => f.write_str("not ours"),
            Self::Free => f.write_str("free"),
            Self::Unknown(cause) => cause.fmt(f),
            Self::Pending => f.write_str("pending"),
        }
    }
}

/// A master's answer to one request, without the request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Answer {
    /// The master's answer.
    pub verdict: Verdict,
    /// `true` if the request may have reached the master. Only a node that *knows* that the request
    /// never reached a socket may set `false`, because then there is nothing to clean up.
    pub sent: bool,
    /// Its answer about the ballot or the score, if the request has one.
    pub balloted: Option<Balloted>,
    /// Its mark, if the request is about one.
    pub marked: Option<Box<Marked>>,
    /// Its answer about the shared queue, if the request is about one and was not answered with an
    /// error.
    pub queued: Option<Queued>,
    /// The key was set, or exists, although the verdict is *unknown*, because another part of the
    /// request failed. It must be released.
    pub key_set: bool,
    /// Its answer about its admission, if the request is about that.
    pub admission: Option<Box<AdmissionReply>>,
}

impl Answer {
    /// Creates the answer to a sent request.
    pub fn new(verdict: Verdict) -> Self {
        Self {
            verdict,
            sent: true,
            balloted: None,
            marked: None,
            queued: None,
            key_set: false,
            admission: None,
        }
    }

    /// Adds the master's answer about the ballot or the score.
    pub fn with_ballot(self, balloted: Balloted) -> Self {
        Self { balloted: Some(balloted), ..self }
    }

    /// Adds the master's mark.
    pub fn with_marked(self, marked: Marked) -> Self {
        Self { marked: Some(marked.into()), ..self }
    }

    /// Adds the master's answer about the shared queue.
    pub fn with_queued(self, queued: Queued) -> Self {
        Self { queued: Some(queued), ..self }
    }

    /// Marks the answer of a master that holds our key although the verdict is *unknown*.
    pub fn with_key_set(self) -> Self {
        Self { key_set: true, ..self }
    }

    /// Creates the answer to [`Op::admission`](crate::Op::admission).
    pub fn of_admission(reply: Result<AdmissionReply, Cause>) -> Self {
        match reply {
            Ok(reply) => Self { admission: Some(Box::new(reply)), ..Self::granted() },
            Err(cause) => Self::unknown(cause),
        }
    }

    /// Returns the answer to [`Op::admission`](crate::Op::admission). After an error, it is unknown
    /// whether the request was carried out. If [`Cause::is_error_reply`], nothing that matters was
    /// written.
    pub fn into_admission(self) -> Result<AdmissionReply, Cause> {
        match (self.admission, self.verdict) {
            (Some(reply), _) => Ok(*reply),
            (None, Verdict::Unknown(cause)) => Err(cause),
            (None, _) => Err(Cause::Unusable("unexpected reply to an admission request".into())),
        }
    }

    /// Creates the answer of a master that carried out the request.
    pub fn granted() -> Self {
        Self::new(Verdict::Granted)
    }

    /// Creates the answer of a master on which another client holds the key. Includes the key's
    /// value and remaining expiry if the request read them.
    pub fn held(value: Option<&[u8]>, ttl: Option<Duration>) -> Self {
        Self::new(Verdict::Held { token: value.map(readable), ttl })
    }

    /// Creates the answer for a submitted request with an unknown outcome.
    pub fn unknown(cause: Cause) -> Self {
        Self::new(Verdict::Unknown(cause))
    }

    /// Creates the answer for a request that was never sent and so has no effect.
    pub fn unsent(cause: Cause) -> Self {
        Self { sent: false, ..Self::unknown(cause) }
    }

    /// Returns `true` if the answer comes from the master itself, so that its latency is
    /// meaningful.
    pub fn is_reply(&self) -> bool {
        match &self.verdict {
            Verdict::Unknown(cause) => self.sent && cause.is_error_reply(),
            verdict => verdict.is_clear(),
        }
    }
}

/// Returns a key's value as text. Other clients can write any bytes.
fn readable(value: &[u8]) -> String {
    match str::from_utf8(value) {
        Ok(text) if !text.contains(printable::is_invisible) => text.to_owned(),
        _ => value.escape_ascii().to_string(),
    }
}

/// An [`Answer`] with all that is needed to count it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Vote {
    /// The place in the list of the master that voted.
    pub master: usize,
    /// The number of the request that it answers, given by the caller that submitted it.
    pub ticket: u128,
    /// Our clock before the request was handed to the socket.
    pub sent_at: Instant,
    /// Our clock when the reply was read, if the node has read the clock: it reads it once for all
    /// replies that it reads together.
    pub read_at: Option<Instant>,
    /// The master's answer.
    pub answer: Answer,
}

impl Vote {
    /// Creates the answer of `master` to a request that was made at `sent_at` and never submitted.
    pub fn new(master: usize, ticket: u128, sent_at: Instant, answer: Answer) -> Self {
        Self { master, ticket, sent_at, read_at: None, answer }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holder_of_any_bytes_is_escaped() {
        assert_eq!(readable(b"plain"), "plain");
        assert_eq!(readable(b"\xff\n"), "\\xff\\n");
    }
}
