//! `Vote`: what one master answered, and the slot it is cast into.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::Instant;

/// One of three answers. Everything that is not a clear yes or no is *unknown*.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Acquire: the key was free and is ours now. Extend: it is ours and lives longer.
    /// Release: it was ours and is gone. Inspect: nobody holds it.
    Granted,
    /// Acquire, inspect: the key is taken. Extend, release: it is not ours.
    Refused,
    /// The master may have done it or not.
    Unknown(Cause),
}

/// Why an answer is unknown, in the words that errors and the command use.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// No answer within the node timeout; the request may still be carried out.
    TimedOut,
    /// Nobody listens at the address.
    ConnectionRefused,
    /// The connection broke, with the request on its way.
    ConnectionClosed,
    /// There is no connection, for the reason given.
    NotConnected(Cow<'static, str>),
    /// The master answered with an error.
    ErrorReply(String),
    /// The master may not vote: a replica, a cluster node, and what later checks find.
    NotAdmitted(Cow<'static, str>),
    /// The same server as the master named here, which votes already.
    TwinOf(String),
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimedOut => f.write_str("timed out"),
            Self::ConnectionRefused => f.write_str("connection refused"),
            Self::ConnectionClosed => f.write_str("connection closed"),
            Self::NotConnected(why) if why.is_empty() => f.write_str("not connected"),
            Self::NotConnected(why) => write!(f, "not connected: {why}"),
            Self::ErrorReply(error) => write!(f, "error reply: {error}"),
            Self::NotAdmitted(why) => write!(f, "not admitted: {why}"),
            Self::TwinOf(name) => write!(f, "twin of {name}"),
        }
    }
}

/// What a master said to one request, before it is known whose request it was.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Answer {
    /// Yes, no, or unknown.
    pub verdict: Verdict,
    /// The value of the key where the master told it: who holds the resource.
    pub holder: Option<Vec<u8>>,
    /// How long that key still lives where the master told it.
    pub ttl: Option<Duration>,
    /// The master's counter, where the protocol keeps one.
    pub counter: Option<u64>,
    /// Whether the request may have reached the master. Only a node that *knows* it was never
    /// handed to a socket may say no: then there is nothing to clean up.
    pub sent: bool,
}

impl Answer {
    /// The master did what it was asked.
    pub fn granted() -> Self {
        Self::new(Verdict::Granted, true)
    }

    /// The master refused.
    pub fn refused() -> Self {
        Self::new(Verdict::Refused, true)
    }

    /// The request was handed over and its outcome is not known.
    pub fn unknown(cause: Cause) -> Self {
        Self::new(Verdict::Unknown(cause), true)
    }

    /// The request was never handed over: it cannot have had an effect.
    pub fn unsent(cause: Cause) -> Self {
        Self::new(Verdict::Unknown(cause), false)
    }

    /// The same answer, with the key's value and remaining life.
    #[must_use]
    pub fn held_by(mut self, holder: Vec<u8>, ttl: Option<Duration>) -> Self {
        self.holder = Some(holder);
        self.ttl = ttl;
        self
    }

    /// Whether the master itself has said so: only then does it mean anything how long it took.
    pub fn is_reply(&self) -> bool {
        match &self.verdict {
            Verdict::Granted | Verdict::Refused => true,
            Verdict::Unknown(cause) => self.sent && matches!(cause, Cause::ErrorReply(_)),
        }
    }

    fn new(verdict: Verdict, sent: bool) -> Self {
        Self { verdict, holder: None, ttl: None, counter: None, sent }
    }
}

/// An [`Answer`] with all that is needed to count it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Vote {
    /// Which master voted: its place in the list of masters.
    pub master: usize,
    /// Which attempt it voted in. A vote of an earlier one never counts in a later one.
    pub attempt: u32,
    /// Our clock before the request was handed to the socket.
    pub sent_at: Instant,
    /// Our clock when the reply was read, where the node has looked: several replies are read at
    /// a time, and the clock once for all of them.
    pub read_at: Option<Instant>,
    /// What it said.
    pub answer: Answer,
}

/// Counts votes, in place, where they are cast.
///
/// `cast` runs where replies are read, on whatever thread that is: it must not block, and it must
/// not call back into the node.
pub trait Ballot: Send + Sync {
    /// Takes one vote. Called once for every [`VoteSlot`].
    fn cast(self: Arc<Self>, vote: Vote);
}

/// The right to cast one vote in one ballot.
///
/// A slot that is dropped uncast casts *unknown*: no way through the code can lose a vote.
pub struct VoteSlot {
    ballot: Option<Arc<dyn Ballot>>,
    master: usize,
    attempt: u32,
    sent_at: Instant,
}

impl VoteSlot {
    /// A slot for the vote of `master` in `attempt`, for a request that is handed over no earlier
    /// than `sent_at`.
    pub fn new(ballot: Arc<dyn Ballot>, master: usize, attempt: u32, sent_at: Instant) -> Self {
        Self { ballot: Some(ballot), master, attempt, sent_at }
    }

    /// When the request was made, on our clock.
    pub fn sent_at(&self) -> Instant {
        self.sent_at
    }

    /// Casts the vote, whether or not anybody still waits for it.
    pub fn cast(mut self, answer: Answer) {
        self.deliver(answer, None);
    }

    /// The same for an answer that was read at `read_at`, a moment ago.
    pub fn cast_at(mut self, answer: Answer, read_at: Instant) {
        self.deliver(answer, Some(read_at));
    }

    fn deliver(&mut self, answer: Answer, read_at: Option<Instant>) {
        if let Some(ballot) = self.ballot.take() {
            let (master, attempt, sent_at) = (self.master, self.attempt, self.sent_at);
            ballot.cast(Vote { master, attempt, sent_at, read_at, answer });
        }
    }
}

impl Drop for VoteSlot {
    fn drop(&mut self) {
        self.deliver(Answer::unknown(Cause::ConnectionClosed), None);
    }
}

impl fmt::Debug for VoteSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VoteSlot")
            .field("master", &self.master)
            .field("attempt", &self.attempt)
            .field("sent_at", &self.sent_at)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[derive(Default)]
    struct Urn(Mutex<Vec<Vote>>);

    impl Ballot for Urn {
        fn cast(self: Arc<Self>, vote: Vote) {
            self.0.lock().unwrap().push(vote);
        }
    }

    #[test]
    fn a_slot_casts_once() {
        let urn = Arc::new(Urn::default());
        VoteSlot::new(urn.clone(), 3, 7, Instant::ORIGIN).cast(Answer::granted());
        let votes = urn.0.lock().unwrap();
        assert_eq!(votes.len(), 1);
        assert_eq!((votes[0].master, votes[0].attempt), (3, 7));
        assert_eq!(votes[0].answer, Answer::granted());
    }

    #[test]
    fn a_slot_dropped_uncast_casts_unknown() {
        let urn = Arc::new(Urn::default());
        drop(VoteSlot::new(urn.clone(), 0, 0, Instant::ORIGIN));
        let votes = urn.0.lock().unwrap();
        assert_eq!(votes.len(), 1);
        assert_eq!(votes[0].answer, Answer::unknown(Cause::ConnectionClosed));
        assert!(votes[0].answer.sent, "a lost request may have had its effect");
    }

    #[test]
    fn causes_are_told_in_the_words_of_the_command() {
        let told: Vec<_> = [
            Cause::TimedOut,
            Cause::ConnectionRefused,
            Cause::ConnectionClosed,
            Cause::NotConnected("".into()),
            Cause::ErrorReply("OOM".into()),
            Cause::NotAdmitted("it is a replica".into()),
            Cause::TwinOf("a:1".into()),
        ]
        .map(|cause| cause.to_string())
        .into();
        assert_eq!(
            told,
            [
                "timed out",
                "connection refused",
                "connection closed",
                "not connected",
                "error reply: OOM",
                "not admitted: it is a replica",
                "twin of a:1",
            ]
        );
    }
}
