//! `SharedQueue`: the queue in which handles of many processes wait for one key, at the master
//! where they meet. See rule W4 of `docs/PROTOCOL.md`.
//!
//! The queue decides only *when* a handle tries, and never *who* holds. Its contents are not locks,
//! and losing them costs only time. A `Reservation`, a short-lived value that is not a token, keeps
//! a released key for the next ticket.

use std::fmt;
use std::sync::Arc;

use crate::{QueueTicket, Resource, Token};

/// The names on the wire of the queue of one key, as one handle uses it. Cloning is cheap.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct SharedQueue {
    key: Arc<[u8]>,
    channels: Arc<[u8]>,
    ticket: QueueTicket,
}

impl SharedQueue {
    /// The part of a queue's key between the prefix and the name. It never changes.
    pub const PREFIX: &'static str = "redlock-quorum:1:queue:";
    /// The part of a ticket's channel between the prefix and the ticket. It never changes.
    pub const CHANNEL: &'static str = "redlock-quorum:1:go:";
    /// How long a queue stays after the last ticket entered, in milliseconds.
    pub const EXPIRY_MS: u64 = 3_000;
    /// The largest number of tickets in one queue: further tickets are refused without a place.
    pub const LEN_MAX: u32 = 10_000;
    /// The largest number of tickets without a listener that one request drops.
    pub const DROPS_MAX: u32 = 64;

    /// Creates the queue of the resource `name` under `prefix`, for the handle with
    /// `ticket`.
    pub fn new(prefix: &[u8], name: &Resource, ticket: QueueTicket) -> Self {
        let key = Self::key_of(prefix, name);
        Self { key, channels: [prefix, Self::CHANNEL.as_bytes()].concat().into(), ticket }
    }

    /// Returns the key of the queue of `name`: a sorted set.
    pub fn key_of(prefix: &[u8], name: &Resource) -> Arc<[u8]> {
        [prefix, Self::PREFIX.as_bytes(), name.as_bytes()].concat().into()
    }

    /// Returns the key of the queue.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// Returns the beginning that the channels of all tickets of the prefix share.
    pub fn channels(&self) -> &[u8] {
        &self.channels
    }

    /// Returns the ticket of the handle.
    pub fn ticket(&self) -> QueueTicket {
        self.ticket
    }

    /// Returns the channel on which the handle is called.
    pub fn channel(&self) -> Vec<u8> {
        [&self.channels[..], self.ticket.to_string().as_bytes()].concat()
    }
}

impl fmt::Debug for SharedQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedQueue({} as {})", self.key.escape_ascii(), self.ticket)
    }
}

/// The parameters of entering a queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// The queue.
    pub queue: SharedQueue,
    /// The token for the key if it is this handle's turn, and its expiry in milliseconds. `None` to
    /// only take a place in the queue, or only to read.
    pub ask: Option<(Token, u64)>,
    /// For how long it has waited by its own clock, in microseconds: the longest wait is first.
    pub waited_us: u64,
    /// How long a reservation stays, in milliseconds, if another ticket is called.
    pub reservation_ms: u64,
}

/// The parameters of leaving a key or a queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Exit {
    /// The queue.
    pub queue: SharedQueue,
    /// The token with which the handle requested or holds the key. `None` if it never requested it.
    pub token: Option<Token>,
    /// Whether to also give up the handle's ticket, and a reservation for it.
    pub gives_up_place: bool,
    /// How long a reservation for the next ticket stays, in milliseconds.
    pub reservation_ms: u64,
    /// The reason for leaving.
    pub leaving: Leaving,
}

/// The state in which a handle leaves a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Leaving {
    /// A lease is over. The key is reserved for the next ticket, which gets the call. If another
    /// token has the key, the first ticket in the queue gets the call [try](Call::Try).
    Done,
    /// A lease is over. The key is free for every client, and the first ticket in the queue gets
    /// the call to [try](Call::Try).
    Open,
    /// An attempt is over without a lease. Same as [`Done`](Self::Done), except that no ticket is
    /// called if another token has the key.
    Undo,
}

impl Leaving {
    /// Returns the word in the request.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Open => "open",
            Self::Undo => "undo",
        }
    }
}

/// A master's answer about a shared queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Queued {
    /// How many tickets wait: after an entry that was granted all others, else all. After an exit
    /// it includes the one that was called. Tickets of handles that are gone count until they are
    /// dropped.
    pub waiters: u32,
    /// The number of tickets ahead of this handle. `None` if it has no place, such as after an
    /// exit, after a granted entry, and if the queue is full.
    pub rank: Option<u32>,
}

/// The purpose of a call to a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    /// The key is reserved for it.
    Go,
    /// The one before it was called, or has given up while the key was taken: it is the next.
    Next,
    /// The key may be free, and is not reserved.
    Try,
}

impl Call {
    /// Parses a message on the channel of a ticket into the call and its key. `None` for a message
    /// in another form.
    pub fn parse(message: &[u8]) -> Option<(Self, &[u8])> {
        [Self::Go, Self::Next, Self::Try].into_iter().find_map(|call| {
            let rest = message.strip_prefix(call.word().as_bytes())?.strip_prefix(b" ")?;
            Some((call, rest))
        })
    }

    /// Returns the word in the message.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Go => "go",
            Self::Next => "next",
            Self::Try => "try",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Reservation;

    #[test]
    fn a_message_is_a_word_and_the_whole_key() {
        assert_eq!(Call::parse(b"go orders: 42"), Some((Call::Go, &b"orders: 42"[..])));
        assert_eq!(Call::parse(b"next \xff"), Some((Call::Next, &b"\xff"[..])));
        assert_eq!(Call::parse(b"try k"), Some((Call::Try, &b"k"[..])));
        for other in [&b"go"[..], b"gone k", b"", b"GO k"] {
            assert_eq!(Call::parse(other), None, "{}", other.escape_ascii());
        }
    }

    #[test]
    fn queue_names_have_a_reserved_prefix() {
        let queue = SharedQueue::new(b"p:", &Resource::from("job"), QueueTicket::new(1));
        assert_eq!(queue.key(), b"p:redlock-quorum:1:queue:job");
        assert_eq!(queue.channel(), b"p:redlock-quorum:1:go:0000000000000001");
        for name in [queue.key(), queue.channels(), Reservation::PREFIX.as_bytes()] {
            assert!(Resource::is_reserved(name));
        }
    }
}
