//! `Vote`: what one master answered, and the slot through which the answer is cast.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::node::{NodeEvent, Sink};
use crate::{Instant, NotAdmitted};

/// What a master said about one key. Everything that is not a clear answer is *unknown*.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Verdict {
    /// Acquire: the key was free and is ours now. Extend: it is ours and lives longer.
    /// Release: it was ours and is gone.
    Granted,
    /// Another holds the key.
    Held {
        /// The value of the key as text, its first 512 bytes at most; none where the master was
        /// not asked for it, and where the key is of another type and so cannot be a lock.
        token: Option<String>,
        /// How long the key still lives; none where that was not asked, or has no end.
        ttl: Option<Duration>,
    },
    /// Extend: there is no such key. Release: the key is not ours.
    NotOurs,
    /// Inspect: there is no such key.
    Free,
    /// The master may have done it or not, for the reason given.
    Unknown(Cause),
    /// There is no answer yet. No master casts it.
    Pending,
}

impl Verdict {
    /// A refusal that does not say who holds the key: the answer to `SET NX`.
    pub const HELD: Self = Self::Held { token: None, ttl: None };

    /// Whether the master said that it did not do what it was asked.
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
            Self::Held { ttl: Some(ttl), .. } => write!(f, "held ({ttl:?})"),
            Self::Held { ttl: None, .. } => f.write_str("held"),
            Self::NotOurs => f.write_str("not ours"),
            Self::Free => f.write_str("free"),
            Self::Unknown(cause) => cause.fmt(f),
            Self::Pending => f.write_str("pending"),
        }
    }
}

/// Why an answer is unknown, in the words that errors and the command use.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// No answer within the node timeout; the request may still be carried out.
    TimedOut,
    /// No server listens at the address.
    ConnectionRefused,
    /// The connection broke, with the request on its way.
    ConnectionClosed,
    /// There is no connection, for the reason given.
    NotConnected(Cow<'static, str>),
    /// There is no connection, because what is at the address is no master that can be used: no
    /// Redis, or one whose certificate is not trusted.
    Unusable(Cow<'static, str>),
    /// There is a connection, and the request was not sent over it, for the reason given.
    NotSent(Cow<'static, str>),
    /// The master answered with an error: it did not do what it was asked.
    ErrorReply(String),
    /// The master answered that it is no master any more: `READONLY`, `MASTERDOWN`, also where an
    /// old server wraps them into the error of a script.
    Demoted(String),
    /// The master does not count: it is a replica or a cluster node, or it is not admitted. It may
    /// have done what it was asked all the same.
    NotAdmitted(Box<NotAdmitted>),
    /// The same server as the master named here, which counts already.
    TwinOf(String),
}

impl Cause {
    /// The cause that an error reply stands for, from its text with the code in front. This is the
    /// one place that knows how a server says that it is no master any more.
    pub fn of_error_reply(text: String) -> Self {
        let code = text.split(' ').next();
        // Servers before 7.0 wrap the error of a command in a script into an error of the script.
        let is_wrapped = text.starts_with("ERR Error running script")
            && ["-READONLY ", "-MASTERDOWN "].iter().any(|error| text.contains(error));
        if is_wrapped || matches!(code, Some("READONLY" | "MASTERDOWN")) {
            Self::Demoted(text)
        } else {
            Self::ErrorReply(text)
        }
    }

    /// Whether waiting may cure it. It does not cure a wrong password, a right that is missing, a
    /// server that is no independent master, or one address too many: a person has to change
    /// something. It may cure silence, a server that loads its data, or a memory that is full.
    ///
    /// This is the one place that knows which errors of servers last.
    pub fn is_curable(&self) -> bool {
        match self {
            Self::TimedOut
            | Self::ConnectionRefused
            | Self::ConnectionClosed
            | Self::NotConnected(_)
            | Self::NotSent(_) => true,
            Self::ErrorReply(text) => !is_lasting_error(text),
            Self::NotAdmitted(why) => why.is_curable(),
            Self::Unusable(_) | Self::Demoted(_) | Self::TwinOf(_) => false,
        }
    }

    /// Whether the master itself has answered, with an error. Nothing was done then.
    pub fn is_error_reply(&self) -> bool {
        matches!(self, Self::ErrorReply(_) | Self::Demoted(_))
    }
}

/// Whether an error of a server comes again until a person changes something.
pub(crate) fn is_lasting_error(text: &str) -> bool {
    LASTING_ERRORS.iter().any(|error| begins(text, error))
}

/// Whether a text begins with these words, as a whole.
fn begins(text: &str, words: &str) -> bool {
    text.strip_prefix(words).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
}

/// How errors begin that come again until a person changes something.
const LASTING_ERRORS: [&str; 12] = [
    // Who we are, and what we may do.
    "WRONGPASS",
    "NOAUTH",
    "NOPERM",
    "ERR AUTH",
    "ERR Client sent AUTH,",
    "ERR invalid password",
    // Protected mode.
    "DENIED",
    // A node of a cluster.
    "MOVED",
    "ASK",
    // The URL names a database that the server does not have.
    "ERR invalid DB index",
    "ERR DB index",
    // The server knows SET under another name, or not at all.
    "ERR unknown command",
];

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimedOut => f.write_str("timed out"),
            Self::ConnectionRefused => f.write_str("connection refused"),
            Self::ConnectionClosed => f.write_str("connection closed"),
            Self::NotConnected(why) if why.is_empty() => f.write_str("not connected"),
            Self::NotConnected(why) | Self::Unusable(why) => write!(f, "not connected: {why}"),
            Self::NotSent(why) => write!(f, "not sent: {why}"),
            Self::ErrorReply(error) | Self::Demoted(error) => write!(f, "error reply: {error}"),
            Self::NotAdmitted(why) => write!(f, "not admitted: {why}"),
            Self::TwinOf(name) => write!(f, "twin of {name}"),
        }
    }
}

/// What a master said to one request, before it is known whose request it was.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Answer {
    /// What it said.
    pub verdict: Verdict,
    /// Whether the request may have reached the master. Only a node that *knows* it was never
    /// handed to a socket may say no: then there is nothing to clean up.
    pub sent: bool,
}

impl Answer {
    /// The answer of a master that was asked.
    pub fn new(verdict: Verdict) -> Self {
        Self { verdict, sent: true }
    }

    /// The master did what it was asked.
    pub fn granted() -> Self {
        Self::new(Verdict::Granted)
    }

    /// Another holds the key. Its value and its remaining life follow where they were asked for.
    pub fn held(value: Option<&[u8]>, ttl: Option<Duration>) -> Self {
        Self::new(Verdict::Held { token: value.map(readable), ttl })
    }

    /// The request was handed over and its outcome is not known.
    pub fn unknown(cause: Cause) -> Self {
        Self::new(Verdict::Unknown(cause))
    }

    /// The request was never handed over: it has no effect.
    pub fn unsent(cause: Cause) -> Self {
        Self { verdict: Verdict::Unknown(cause), sent: false }
    }

    /// Whether the master itself has said so: only then does it mean anything how long it took.
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
    /// Which master voted: its place in the list of masters.
    pub master: usize,
    /// Which request it answers, in the numbers of the caller that submitted it.
    pub ticket: u128,
    /// Our clock before the request was handed to the socket.
    pub sent_at: Instant,
    /// Our clock when the reply was read, where the node has looked: several replies are read at
    /// a time, and the clock once for all of them.
    pub read_at: Option<Instant>,
    /// What it said.
    pub answer: Answer,
}

impl Vote {
    /// The answer of `master` to a request that was made at `sent_at` and never submitted.
    pub fn new(master: usize, ticket: u128, sent_at: Instant, answer: Answer) -> Self {
        Self { master, ticket, sent_at, read_at: None, answer }
    }
}

/// The right to cast one vote.
///
/// A slot that is dropped uncast casts *unknown*: no way through the code can lose a vote.
pub struct VoteSlot {
    sink: Option<Arc<dyn Sink>>,
    master: usize,
    ticket: u128,
    sent_at: Instant,
}

impl VoteSlot {
    /// A slot for the answer of `master` to the request `ticket`, which is handed over no earlier
    /// than `sent_at`.
    #[inline]
    pub fn new(sink: Arc<dyn Sink>, master: usize, ticket: u128, sent_at: Instant) -> Self {
        Self { sink: Some(sink), master, ticket, sent_at }
    }

    /// When the request was made, on our clock.
    pub fn sent_at(&self) -> Instant {
        self.sent_at
    }

    /// Casts the vote, whether or not anything still waits for it.
    pub fn cast(mut self, answer: Answer) {
        self.deliver(answer, None);
    }

    /// The same for an answer that was read at `read_at`, a moment ago.
    pub fn cast_at(mut self, answer: Answer, read_at: Instant) {
        self.deliver(answer, Some(read_at));
    }

    fn deliver(&mut self, answer: Answer, read_at: Option<Instant>) {
        if let Some(sink) = self.sink.take() {
            let Self { master, ticket, sent_at, .. } = *self;
            sink.vote(Vote { master, ticket, sent_at, read_at, answer });
        }
    }
}

impl Drop for VoteSlot {
    #[inline]
    fn drop(&mut self) {
        if self.sink.is_some() {
            self.deliver(Answer::unknown(Cause::ConnectionClosed), None);
        }
    }
}

/// Votes that are cast together, because their replies were read together: the sink takes all of
/// them at a time. Those that are left when it is dropped are cast, too.
#[derive(Default)]
pub(crate) struct Batch {
    /// That of nearly all votes.
    sink: Option<Arc<dyn Sink>>,
    votes: Vec<Vote>,
    others: Vec<(Arc<dyn Sink>, Vote)>,
}

impl Batch {
    /// Adds the vote of `slot`, whose answer was read at `read_at`, a moment ago. Casts nothing: it
    /// may be called under a lock.
    pub(crate) fn add(&mut self, mut slot: VoteSlot, answer: Answer, read_at: Instant) {
        let Some(sink) = slot.sink.take() else { return };
        let VoteSlot { master, ticket, sent_at, .. } = slot;
        let vote = Vote { master, ticket, sent_at, read_at: Some(read_at), answer };
        if Arc::ptr_eq(self.sink.get_or_insert_with(|| sink.clone()), &sink) {
            self.votes.push(vote);
        } else {
            self.others.push((sink, vote));
        }
    }

    /// Casts what was added so far.
    pub(crate) fn cast(&mut self) {
        if let Some(sink) = self.sink.as_ref().filter(|_| !self.votes.is_empty()) {
            sink.votes(&mut self.votes);
        }
        self.others.drain(..).for_each(|(sink, vote)| sink.vote(vote));
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        self.cast();
    }
}

impl fmt::Debug for VoteSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VoteSlot")
            .field("master", &self.master)
            .field("ticket", &self.ticket)
            .field("sent_at", &self.sent_at)
            .finish_non_exhaustive()
    }
}

/// Where a node reports what happens to its connection.
#[derive(Clone)]
pub struct Events {
    sink: Arc<dyn Sink>,
    master: usize,
}

impl Events {
    /// Reports of `master` to `sink`.
    pub fn new(sink: Arc<dyn Sink>, master: usize) -> Self {
        Self { sink, master }
    }

    /// Reports one event.
    pub fn report(&self, event: NodeEvent) {
        self.sink.event(self.master, event);
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").field("master", &self.master).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::WhyNot;

    #[derive(Default)]
    struct Votes(Mutex<Vec<Vote>>);

    impl Sink for Votes {
        fn vote(&self, vote: Vote) {
            self.0.lock().unwrap().push(vote);
        }

        fn event(&self, _: usize, _: NodeEvent) {}
    }

    #[test]
    fn a_slot_casts_once() {
        let votes = Arc::new(Votes::default());
        VoteSlot::new(votes.clone(), 3, 7, Instant::ORIGIN).cast(Answer::granted());
        let votes = votes.0.lock().unwrap();
        assert_eq!(votes.len(), 1);
        assert_eq!((votes[0].master, votes[0].ticket), (3, 7));
        assert_eq!(votes[0].answer, Answer::granted());
    }

    #[test]
    fn a_batch_casts_all_in_order_each_where_it_belongs() {
        let (one, other) = (Arc::new(Votes::default()), Arc::new(Votes::default()));
        let mut batch = Batch::default();
        for (sink, ticket) in [(&one, 1), (&one, 2), (&other, 3), (&one, 4)] {
            let slot = VoteSlot::new(sink.clone(), 0, ticket, Instant::ORIGIN);
            batch.add(slot, Answer::granted(), Instant::from_nanos(5));
        }
        drop(batch);
        let tickets = |votes: &Votes| {
            votes.0.lock().unwrap().iter().map(|vote| vote.ticket).collect::<Vec<_>>()
        };
        assert_eq!((tickets(&one), tickets(&other)), (vec![1, 2, 4], vec![3]));
        assert_eq!(one.0.lock().unwrap()[0].read_at, Some(Instant::from_nanos(5)));
    }

    #[test]
    fn a_slot_dropped_uncast_casts_unknown() {
        let votes = Arc::new(Votes::default());
        drop(VoteSlot::new(votes.clone(), 0, 0, Instant::ORIGIN));
        let votes = votes.0.lock().unwrap();
        assert_eq!(votes.len(), 1);
        assert_eq!(votes[0].answer, Answer::unknown(Cause::ConnectionClosed));
        assert!(votes[0].answer.sent, "a lost request may have taken effect");
    }

    #[test]
    fn causes_read_in_the_words_of_the_command() {
        let text: Vec<_> = [
            Cause::TimedOut,
            Cause::ConnectionRefused,
            Cause::ConnectionClosed,
            Cause::NotConnected("".into()),
            Cause::Unusable("not a Redis".into()),
            Cause::NotSent("too many requests".into()),
            Cause::ErrorReply("OOM".into()),
            Cause::Demoted("READONLY".into()),
            Cause::NotAdmitted(NotAdmitted::new(WhyNot::Replica).into()),
            Cause::TwinOf("a:1".into()),
        ]
        .map(|cause| cause.to_string())
        .into();
        assert_eq!(
            text,
            [
                "timed out",
                "connection refused",
                "connection closed",
                "not connected",
                "not connected: not a Redis",
                "not sent: too many requests",
                "error reply: OOM",
                "error reply: READONLY",
                "not admitted: it is a replica, give independent masters",
                "twin of a:1",
            ]
        );
    }

    #[test]
    fn what_a_person_must_change_is_not_cured_by_waiting() {
        let reply = |error: &str| Cause::of_error_reply(error.into());
        for lasting in [
            reply("WRONGPASS invalid username-password pair or user is disabled."),
            reply("NOAUTH Authentication required."),
            reply("NOPERM this user has no permissions to run the 'set' command"),
            reply(
                "ERR AUTH <password> called without any password configured for the default user",
            ),
            reply("ERR Client sent AUTH, but no password is set"),
            reply("ERR invalid password"),
            reply("DENIED Redis is running in protected mode because protected mode is enabled"),
            reply("MOVED 1234 10.0.0.1:6379"),
            reply("ERR DB index is out of range"),
            reply("ERR unknown command 'SET', with args beginning with: "),
            reply("READONLY You can't write against a read only replica."),
            Cause::TwinOf("a:1".into()),
            Cause::NotAdmitted(NotAdmitted::new(WhyNot::Replica).into()),
            Cause::Unusable("not a Redis, it said \"HTTP/1.1\"".into()),
        ] {
            assert!(!lasting.is_curable(), "{lasting}");
        }
    }

    #[test]
    fn what_comes_and_goes_may_be_cured_by_waiting() {
        let reply = |error: &str| Cause::of_error_reply(error.into());
        for passing in [
            reply("LOADING Redis is loading the dataset in memory"),
            reply("OOM command not allowed when used memory > 'maxmemory'."),
            reply("MISCONF Errors writing to the AOF file"),
            reply("BUSY Redis is busy running a script."),
            reply("ERR max number of clients reached"),
            Cause::TimedOut,
            Cause::ConnectionRefused,
            Cause::ConnectionClosed,
            Cause::NotConnected("TLS: unexpected end of file".into()),
            Cause::NotSent("too many requests are unanswered".into()),
        ] {
            assert!(passing.is_curable(), "{passing}");
        }
    }

    #[test]
    fn a_holder_of_any_bytes_is_made_readable() {
        assert_eq!(readable(b"plain"), "plain");
        assert_eq!(readable(b"\xff\n"), "\\xff\\n");
    }
}
