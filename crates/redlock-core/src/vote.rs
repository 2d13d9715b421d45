//! `Vote`: what one master answered.

use std::fmt;
use std::time::Duration;

use crate::admission::AdmissionReply;
use crate::duration::spelled;
use crate::{Balloted, Cause, Instant, Marked, Queued, Reservation};

/// A master's verdict on one key. Everything that is not a clear answer is *unknown*.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Verdict {
    /// Acquire, enter, take: the key was free, or reserved for us, and is ours now. Extend: it is
    /// ours, and its expiry was extended. Release, leave, reserve: the key was ours, and is not any
    /// more. A mark: it was read or raised. Waiters: they were counted. Admission: it was answered.
    Granted,
    /// Acquire and ballot: the key is ours, and the ballot was refused, because the master has
    /// accepted one that is not smaller.
    BallotRefused,
    /// Another holds the key, or it is [reserved](Self::reservation).
    Held {
        /// The value of the key as text, its first 512 bytes at most; `None` if the master was not
        /// asked for it, and where the key is of another type and so cannot be a lock.
        token: Option<String>,
        /// How long until the key expires; `None` if that was not asked, or has no end.
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

    /// The reservation that the key's value is, where nobody holds it and it is kept for the next
    /// one in its [queue](crate::SharedQueue).
    pub fn reservation(&self) -> Option<Reservation> {
        match self {
            Self::Held { token: Some(value), .. } => Reservation::parse(value),
            _ => None,
        }
    }

    /// Whether the master answered that it did not carry out the request.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Held { .. } | Self::NotOurs)
    }

    /// Whether the master itself has answered, one way or the other.
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
    /// Whether the request may have reached the master. Only a node that *knows* it was never
    /// handed to a socket may set false: then there is nothing to clean up.
    pub sent: bool,
    /// Its answer about the ballot or the score, if it was asked for one.
    pub balloted: Option<Balloted>,
    /// Its mark, if it was asked for one.
    pub marked: Option<Box<Marked>>,
    /// Its answer about the shared queue, if it was asked about one and did not answer with an
    /// error.
    pub queued: Option<Queued>,
    /// The key was set, or is there, though the verdict is *unknown*: the rest of what was asked
    /// went wrong. It must be released.
    pub key_set: bool,
    /// Its answer about its admission, if it was asked about that.
    pub admission: Option<Box<AdmissionReply>>,
}

impl Answer {
    /// The answer of a master that was asked.
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

    /// Marks the answer as that of a master that holds our key although the verdict is *unknown*.
    pub fn with_key_set(self) -> Self {
        Self { key_set: true, ..self }
    }

    /// The answer to [`Op::admission`](crate::Op::admission).
    pub fn of_admission(reply: Result<AdmissionReply, Cause>) -> Self {
        match reply {
            Ok(reply) => Self { admission: Some(Box::new(reply)), ..Self::granted() },
            Err(cause) => Self::unknown(cause),
        }
    }

    /// The answer to [`Op::admission`](crate::Op::admission). With an error, it is not known
    /// whether the request was carried out, unless [`Cause::is_error_reply`], and then nothing was
    /// written that matters.
    pub fn into_admission(self) -> Result<AdmissionReply, Cause> {
        match (self.admission, self.verdict) {
            (Some(reply), _) => Ok(*reply),
            (None, Verdict::Unknown(cause)) => Err(cause),
            (None, _) => Err(Cause::Unusable("unexpected reply to an admission request".into())),
        }
    }

    /// The master did what it was asked.
    pub fn granted() -> Self {
        Self::new(Verdict::Granted)
    }

    /// Another holds the key. Its value and its remaining expiry follow if they were asked for.
    pub fn held(value: Option<&[u8]>, ttl: Option<Duration>) -> Self {
        Self::new(Verdict::Held { token: value.map(readable), ttl })
    }

    /// The request was handed over and its outcome is not known.
    pub fn unknown(cause: Cause) -> Self {
        Self::new(Verdict::Unknown(cause))
    }

    /// The request was never handed over: it has no effect.
    pub fn unsent(cause: Cause) -> Self {
        Self { sent: false, ..Self::unknown(cause) }
    }

    /// Whether the answer comes from the master itself: only then its latency counts.
    pub fn is_reply(&self) -> bool {
        match &self.verdict {
            Verdict::Unknown(cause) => self.sent && cause.is_error_reply(),
            verdict => verdict.is_clear(),
        }
    }
}

/// A key's value as text; other clients write any bytes.
fn readable(value: &[u8]) -> String {
    match str::from_utf8(value) {
        Ok(text) if !text.chars().any(char::is_control) => text.to_owned(),
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
    /// The answer of `master` to a request that was made at `sent_at` and never submitted.
    pub fn new(master: usize, ticket: u128, sent_at: Instant, answer: Answer) -> Self {
        Self { master, ticket, sent_at, read_at: None, answer }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_of_any_bytes_is_made_readable() {
        assert_eq!(readable(b"plain"), "plain");
        assert_eq!(readable(b"\xff\n"), "\\xff\\n");
    }
}
