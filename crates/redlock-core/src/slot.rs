//! `VoteSlot`: how what a master answers, and what happens to its connection, gets to the one that
//! counts it.

use std::fmt;
use std::sync::Arc;

use crate::{Answer, Call, Cause, Facts, Instant, Vote};

/// The receiver of votes and node events, one for all masters of a handle.
///
/// It is called where replies are read, on any thread: it must not block, and it must not call
/// back into the node.
pub trait Sink: Send + Sync {
    /// Takes one vote. Every [`VoteSlot`] leads to one, here or in [`votes`](Self::votes).
    fn vote(&self, vote: Vote);

    /// Takes votes that came together, and leaves `votes` empty. Default: takes one by one.
    fn votes(&self, votes: &mut Vec<Vote>) {
        votes.drain(..).for_each(|vote| self.vote(vote));
    }

    /// Takes what happened to the connection of `master`.
    fn event(&self, master: usize, event: NodeEvent);
}

/// An event of a node's connection.
///
/// On each connection the order is: [`Up`](Self::Up), then votes and pushes in the order in which
/// the server sent them, then *unknown* votes for all unanswered requests, then
/// [`Down`](Self::Down).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodeEvent {
    /// There is a connection, and its server reported these facts.
    Up(Facts),
    /// There is no connection.
    Down {
        /// Why.
        cause: Cause,
        /// A new connection is being made without a pause.
        retries_now: bool,
    },
    /// The server pushed that a watched key has changed.
    KeyChanged(Arc<[u8]>),
    /// The handle was called from the [shared queue](crate::SharedQueue) of this key. It may be a
    /// call for an earlier wait.
    Called(Call, Arc<[u8]>),
    /// The shared queue can no longer be used over this connection, with the server's reason: a
    /// right was taken away, or `SUBSCRIBE` was refused. See [`Facts::no_queue`].
    NoQueue(String),
    /// The data of the server may be gone: it pushed `invalidate` without a key, or a ballot found
    /// no member.
    DataLost,
    /// The number of members in the ballot set of the `run` of [`Facts::record`]. Without a `run`,
    /// a client with a quarantine counts the set of clients without one, if there is one. Requested
    /// on each new connection after the handshake. Nothing waits for it.
    Members(u32),
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
    /// Creates a slot for the answer of `master` to the request `ticket`, which is submitted no
    /// earlier than `sent_at`.
    #[inline]
    pub fn new(sink: Arc<dyn Sink>, master: usize, ticket: u128, sent_at: Instant) -> Self {
        Self { sink: Some(sink), master, ticket, sent_at }
    }

    /// Returns when the request was made, by this process's clock.
    pub fn sent_at(&self) -> Instant {
        self.sent_at
    }

    /// Casts the vote, whether or not anything still waits for it.
    pub fn cast(mut self, answer: Answer) {
        self.deliver(answer, None);
    }

    /// Casts an answer that was read at `read_at`, a moment ago.
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

/// Votes that are cast together, because their replies were read together and the sink should
/// receive them in one call. Dropping it casts the remaining votes.
#[derive(Default)]
#[cfg_attr(not(feature = "redis"), allow(dead_code, reason = "only a real master needs it"))]
pub(crate) struct Batch {
    /// The sink of nearly all votes.
    sink: Option<Arc<dyn Sink>>,
    votes: Vec<Vote>,
    others: Vec<(Arc<dyn Sink>, Vote)>,
}

#[cfg_attr(not(feature = "redis"), allow(dead_code, reason = "only a real master needs it"))]
impl Batch {
    /// Adds the vote of `slot`, whose answer was read at `read_at`, a moment ago. Casts nothing: it
    /// may be called under a lock.
    #[inline]
    pub(crate) fn add(&mut self, slot: &mut VoteSlot, answer: Answer, read_at: Instant) {
        let Some(sink) = slot.sink.take() else { return };
        let VoteSlot { master, ticket, sent_at, .. } = *slot;
        let vote = Vote { master, ticket, sent_at, read_at: Some(read_at), answer };
        if Arc::ptr_eq(self.sink.get_or_insert_with(|| sink.clone()), &sink) {
            self.votes.push(vote);
        } else {
            self.others.push((sink, vote));
        }
    }

    /// Casts the votes added so far.
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

/// The channel through which a node reports the state of its connection.
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
    fn batch_casts_in_order_to_each_sink() {
        let (one, other) = (Arc::new(Votes::default()), Arc::new(Votes::default()));
        let mut batch = Batch::default();
        for (sink, ticket) in [(&one, 1), (&one, 2), (&other, 3), (&one, 4)] {
            let mut slot = VoteSlot::new(sink.clone(), 0, ticket, Instant::ORIGIN);
            batch.add(&mut slot, Answer::granted(), Instant::from_nanos(5));
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
}
