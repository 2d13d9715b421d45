//! `Op`: one request to a master.

use std::fmt;
use std::sync::{Arc, OnceLock};

use crate::admission::AdmissionOp;
use crate::packed::Packed;
use crate::{Bid, Entry, Exit, Leaving, Mark, Member, Token};

/// A request to a master, about one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Set the key to the token, for `px` milliseconds, if there is no such key. With a
    /// [bid](Op::bid), raise the score of its member to its ballot, if that is larger, and read the
    /// key afterwards.
    Acquire {
        /// Milliseconds until the key expires.
        px: u64,
    },
    /// If the key's value is the token, set its expiry to at least `px` milliseconds from now.
    /// Never shortens the remaining time.
    Extend {
        /// Milliseconds until the key expires.
        px: u64,
    },
    /// If the key's value is the token, do what [`Extend`](Self::Extend) does, and then raise the
    /// score of the bid's member to its ballot, if that is larger, and read the score. Elsewhere
    /// nothing is written.
    Resume {
        /// Milliseconds until the key expires.
        px: u64,
    },
    /// Raise the score of the bid's member to its ballot, if that is larger, and then read the
    /// score and the key's value. Used for a second ballot for a granted key, or for the first one
    /// if the previous request set only the key.
    Ballot,
    /// Read the score of the member.
    Score,
    /// Set the key to the token, for `px` milliseconds, if there is no such key, and then read the
    /// score of the member. Adds a copy for a held lease.
    GiveBack {
        /// Milliseconds until the key expires.
        px: u64,
    },
    /// Delete the key if its value is the token.
    Release,
    /// Return the key's value and its remaining expiry.
    Inspect,
    /// [`Inspect`](Self::Inspect), and report the next change of the key once if [`Facts::tracks`],
    /// also when the key does not exist yet.
    ///
    /// [`Facts::tracks`]: crate::Facts::tracks
    Watch,
    /// Return the mark that the key holds, and the master's clock.
    ReadMark,
    /// Raise the mark that the key holds to the [mark](Op::mark) of the request: neither of its
    /// numbers ever falls. It expires after `px` milliseconds at the earliest.
    RaiseMark {
        /// Milliseconds until the key expires.
        px: u64,
    },
    /// Set the key to the token if it is reserved for the ticket of the [entry](Op::entry), or if
    /// there is no such key and no ticket precedes this one in the queue. Otherwise take a place in
    /// the queue, or renew the ticket's place. If there is no such key, reserve it for the first
    /// ticket of the queue, and call that ticket. Ballots as with [`Acquire`](Self::Acquire).
    Enter {
        /// Milliseconds until the key expires, or 0 if the request does not set the key.
        px: u64,
    },
    /// Delete the key if its value is the token, and give up the place in the queue if the
    /// [exit](Op::exit) says so. If the key is then free, or reserved for no ticket or for this
    /// handle's ticket, reserve it for the first ticket of the queue, and call that ticket.
    Leave {
        /// The reason for leaving.
        leaving: Leaving,
    },
    /// Set the key to the token, for `px` milliseconds, if there is no such key, or if it holds any
    /// reservation. A token is never replaced, not even by itself. Ballots as with
    /// [`Acquire`](Self::Acquire).
    Take {
        /// Milliseconds until the key expires.
        px: u64,
    },
    /// If the key's value is the token, replace it by a reservation that names no ticket.
    Reserve {
        /// Milliseconds until the reservation expires.
        px: u64,
    },
    /// Count the tickets in the queue. Its key is the key of the request.
    CountWaiters,
    /// Read or write what the master keeps for its [admission](crate::admission), as
    /// [`Op::admission_op`] describes. The request has no key.
    Admission,
}

/// One request, the same for every master it is sent to: cloning is cheap, and what a node has
/// encoded once serves all of them.
#[derive(Clone)]
pub struct Op {
    inner: Arc<Inner>,
    /// `true` for the [release](Self::without_exit) that belongs to a request to leave a queue.
    is_without_exit: bool,
}

struct Inner {
    verb: Verb,
    key: Arc<[u8]>,
    token: Option<Token>,
    bid: Option<Bid>,
    member: Option<Member>,
    more: More,
    /// The encoded release, for a request that leaves a queue. The request itself goes to only one
    /// master, and is not kept for others.
    #[cfg_attr(not(feature = "redis"), allow(dead_code, reason = "only a real master needs it"))]
    packed: OnceLock<Packed>,
}

/// Further parameters of some requests.
enum More {
    Nothing,
    Mark(Mark),
    Entry(Box<Entry>),
    // Most locks send one, so it must not need its own allocation.
    Exit(Exit),
    Admission(Box<AdmissionOp>),
}

impl Op {
    /// Acquire `key` for `px` milliseconds, signed with `token`.
    pub fn acquire(key: impl Into<Arc<[u8]>>, token: Token, px: u64) -> Self {
        Self::new(Verb::Acquire { px }, key.into(), Some(token))
    }

    /// Acquires `key` as [`acquire`](Self::acquire) does, followed by a ballot in the same write.
    pub fn acquire_fenced(key: impl Into<Arc<[u8]>>, token: Token, px: u64, bid: Bid) -> Self {
        Self::balloted(Verb::Acquire { px }, key.into(), token, Some(bid), bid.member)
    }

    /// Propose a ballot to a master that has granted `key` to `token`.
    pub fn ballot(key: impl Into<Arc<[u8]>>, token: Token, bid: Bid) -> Self {
        Self::balloted(Verb::Ballot, key.into(), token, Some(bid), bid.member)
    }

    /// Read the score of `member`, for the holder of `key`.
    pub fn score(key: impl Into<Arc<[u8]>>, token: Token, member: Member) -> Self {
        Self::balloted(Verb::Score, key.into(), token, None, member)
    }

    /// Acquires `key` again for a held lease, and then reads the score of `member`.
    pub fn give_back(key: impl Into<Arc<[u8]>>, token: Token, px: u64, member: Member) -> Self {
        Self::balloted(Verb::GiveBack { px }, key.into(), token, None, member)
    }

    /// Extend `key` to at least `px` milliseconds if `token` signed it.
    pub fn extend(key: impl Into<Arc<[u8]>>, token: Token, px: u64) -> Self {
        Self::new(Verb::Extend { px }, key.into(), Some(token))
    }

    /// Extend `key` to at least `px` milliseconds if `token` signed it, and propose a ballot where
    /// it has.
    pub fn resume(key: impl Into<Arc<[u8]>>, token: Token, px: u64, bid: Bid) -> Self {
        Self::balloted(Verb::Resume { px }, key.into(), token, Some(bid), bid.member)
    }

    /// Release `key` if `token` signed it.
    pub fn release(key: impl Into<Arc<[u8]>>, token: Token) -> Self {
        Self::new(Verb::Release, key.into(), Some(token))
    }

    /// Reads who holds `key`.
    pub fn inspect(key: impl Into<Arc<[u8]>>) -> Self {
        Self::new(Verb::Inspect, key.into(), None)
    }

    /// Reads who holds `key`, and has its next change reported as [`NodeEvent::KeyChanged`].
    ///
    /// [`NodeEvent::KeyChanged`]: crate::NodeEvent::KeyChanged
    pub fn watch(key: impl Into<Arc<[u8]>>) -> Self {
        Self::new(Verb::Watch, key.into(), None)
    }

    /// Reads the mark at `key`: see [`Mark::key`].
    pub fn read_mark(key: impl Into<Arc<[u8]>>) -> Self {
        Self::new(Verb::ReadMark, key.into(), None)
    }

    /// Raise the mark at `key` to `mark`, which then expires after `px` milliseconds at the
    /// earliest.
    pub fn raise_mark(key: impl Into<Arc<[u8]>>, mark: Mark, px: u64) -> Self {
        let inner = Inner::new(Verb::RaiseMark { px }, key.into(), None);
        Self::of(Inner { more: More::Mark(mark), ..inner })
    }

    /// Enters the queue of `key`, takes the key if it is this handle's turn, and with a `bid` sends
    /// a ballot in the same write. For the master where contenders of the key meet. On each
    /// connection, a node first subscribes once to the channel of the ticket.
    pub fn enter(key: impl Into<Arc<[u8]>>, entry: Entry, bid: Option<Bid>) -> Self {
        let (token, px) = entry.ask.clone().map_or((None, 0), |(token, px)| (Some(token), px));
        let (bid, member) = (bid.filter(|_| token.is_some()), bid.map(|bid| bid.member));
        let member = member.filter(|_| token.is_some());
        let more = More::Entry(Box::new(entry));
        let inner = Inner::new(Verb::Enter { px }, key.into(), token);
        Self::of(Inner { bid, member, more, ..inner })
    }

    /// Leaves `key`, or a place in its queue, to the next client. For the master where contenders
    /// of the key meet. A repetition, later or by another process, uses [`release`](Self::release).
    pub fn leave(key: impl Into<Arc<[u8]>>, exit: Exit) -> Self {
        let verb = Verb::Leave { leaving: exit.leaving };
        let inner = Inner::new(verb, key.into(), exit.token.clone());
        Self::of(Inner { more: More::Exit(exit), ..inner })
    }

    /// Returns the release of the key that [`leave`](Self::leave) leaves, for the masters that keep
    /// no queue for it. It shares the memory of that request.
    pub fn without_exit(&self) -> Self {
        let is_without_exit = matches!(self.inner.verb, Verb::Leave { .. });
        Self { inner: self.inner.clone(), is_without_exit }
    }

    /// Takes `key` for `px` milliseconds, signed with `token`, if it is free or reserved. Sent only
    /// after the meeting point of the key has granted it.
    pub fn take(key: impl Into<Arc<[u8]>>, token: Token, px: u64, bid: Option<Bid>) -> Self {
        let member = bid.map(|bid| bid.member);
        Self::of(Inner { bid, member, ..Inner::new(Verb::Take { px }, key.into(), Some(token)) })
    }

    /// Release `key` if `token` signed it, and keep it for the next one for `px` milliseconds: for
    /// the masters that keep no queue for it.
    pub fn reserve(key: impl Into<Arc<[u8]>>, token: Token, px: u64) -> Self {
        Self::new(Verb::Reserve { px }, key.into(), Some(token))
    }

    /// Count the tickets in a queue: see [`SharedQueue::key_of`](crate::SharedQueue::key_of).
    pub fn count_waiters(queue: impl Into<Arc<[u8]>>) -> Self {
        Self::new(Verb::CountWaiters, queue.into(), None)
    }

    /// Read or write what the master keeps for its [admission](crate::admission), in line with the
    /// requests: it sees what every SET before it has left.
    pub fn admission(op: AdmissionOp) -> Self {
        let inner = Inner::new(Verb::Admission, [].into(), None);
        Self::of(Inner { more: More::Admission(Box::new(op)), ..inner })
    }

    /// Returns the kind of the request.
    #[inline]
    pub fn verb(&self) -> Verb {
        if self.is_without_exit { Verb::Release } else { self.inner.verb }
    }

    /// Returns the key of the request.
    pub fn key(&self) -> &[u8] {
        &self.inner.key
    }

    /// Returns the token as bytes. Empty for requests without a token, which only read a key or are
    /// about a mark.
    pub fn token(&self) -> &[u8] {
        self.inner.token.as_ref().map_or(&[], |token| token.as_bytes())
    }

    /// Returns the ballot of the request. Only [`Verb::Acquire`], [`Verb::Resume`],
    /// [`Verb::Ballot`], [`Verb::Enter`] and [`Verb::Take`] have one.
    pub fn bid(&self) -> Option<Bid> {
        self.inner.bid
    }

    /// Returns the member of the ballot set whose score the request reads or raises, if any.
    pub fn member(&self) -> Option<Member> {
        self.inner.member
    }

    /// Returns the mark to raise the key's mark to. Only [`Verb::RaiseMark`] has one.
    pub fn mark(&self) -> Option<&Mark> {
        if let More::Mark(mark) = &self.inner.more { Some(mark) } else { None }
    }

    /// Returns the parameters of entering a queue. Only [`Verb::Enter`] has them.
    pub fn entry(&self) -> Option<&Entry> {
        if let More::Entry(entry) = &self.inner.more { Some(entry) } else { None }
    }

    /// Returns the parameters of leaving a queue. Only [`Verb::Leave`] has them.
    pub fn exit(&self) -> Option<&Exit> {
        match &self.inner.more {
            More::Exit(exit) if !self.is_without_exit => Some(exit),
            _ => None,
        }
    }

    /// Returns the request about admission. Only [`Verb::Admission`] has one.
    pub fn admission_op(&self) -> Option<&AdmissionOp> {
        if let More::Admission(op) = &self.inner.more { Some(op) } else { None }
    }

    /// Returns the encoded request, the same for every master. `encode` runs only the first time.
    #[cfg_attr(not(feature = "redis"), allow(dead_code, reason = "only a real master needs it"))]
    pub(crate) fn packed(&self, encode: impl FnOnce(&Self) -> Packed) -> &Packed {
        self.inner.packed.get_or_init(|| encode(self))
    }

    fn new(verb: Verb, key: Arc<[u8]>, token: Option<Token>) -> Self {
        Self::of(Inner::new(verb, key, token))
    }

    fn balloted(
        verb: Verb,
        key: Arc<[u8]>,
        token: Token,
        bid: Option<Bid>,
        member: Member,
    ) -> Self {
        let (token, member) = (Some(token), Some(member));
        let (more, packed) = (More::Nothing, OnceLock::new());
        Self::of(Inner { verb, key, token, bid, member, more, packed })
    }

    #[inline]
    fn of(inner: Inner) -> Self {
        Self { inner: Arc::new(inner), is_without_exit: false }
    }
}

impl Inner {
    #[inline]
    fn new(verb: Verb, key: Arc<[u8]>, token: Option<Token>) -> Self {
        let (bid, member, more) = (None, None, More::Nothing);
        Self { verb, key, token, bid, member, more, packed: OnceLock::new() }
    }
}

impl fmt::Debug for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", self.verb(), self.key().escape_ascii())
    }
}
