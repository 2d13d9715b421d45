//! `Link`: one client's connection to a simulated master, and what is on its way there.

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use redlock_core::admission::Identity;
use redlock_core::{Answer, Cause, Events, Instant, NodeEvent, Op, QueueTicket, VoteSlot};

/// The ballot set that a request names, by the identity that the client was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Set {
    /// It knows no prefix, so it queries only the key.
    Unknown,
    /// The set of a master that was admitted with this identity.
    Of(Identity),
    /// The set of the clients without quarantine.
    Off,
}

/// How long one way takes.
pub(super) type Delay = RangeInclusive<Duration>;

/// A request on its way. If its connection broke, it no longer has a slot, but it may still arrive.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) op: Op,
    pub(super) set: Set,
    pub(super) slot: Option<VoteSlot>,
    pub(super) due: Instant,
}

/// A reply or a push on its way.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) back: Back,
    pub(super) due: Instant,
}

#[derive(Debug)]
pub(super) enum Back {
    Answer(VoteSlot, Answer),
    Push(NodeEvent),
}

impl Back {
    fn slot(self) -> Option<VoteSlot> {
        match self {
            Self::Answer(slot, _) => Some(slot),
            Self::Push(_) => None,
        }
    }
}

pub(super) struct Link {
    /// Its own random choices; `None` if it shares those of the master.
    draws: Option<StdRng>,
    pub(super) request_delay: Delay,
    pub(super) reply_delay: Delay,
    pub(super) lose_requests: bool,
    pub(super) lose_replies: bool,
    pub(super) partitioned: bool,
    pub(super) connected: bool,
    pub(super) requests: VecDeque<Request>,
    pub(super) replies: VecDeque<Reply>,
    /// Requests whose answers will never come over this connection.
    pub(super) swallowed: Vec<VoteSlot>,
    /// Keys whose next change the server pushes.
    pub(super) watched: HashSet<Vec<u8>>,
    /// On whose channel the connection listens.
    pub(super) listens_for: Option<QueueTicket>,
    /// The identity with which the server is admitted, by the belief of the client.
    pub(super) admitted: Option<Identity>,
    /// Requests of an earlier connection may still arrive.
    pub(super) lacks_barrier: bool,
    /// The client has a quarantine.
    pub(super) has_quarantine: bool,
    /// Receivers of events, by number.
    pub(super) listeners: Vec<(u64, Events)>,
    /// The last reported reason for a missing connection.
    pub(super) reported: Option<Cause>,
}

impl Link {
    pub(super) fn new(draws: Option<StdRng>) -> Self {
        let at_once = Duration::ZERO..=Duration::ZERO;
        Self {
            draws,
            request_delay: at_once.clone(),
            reply_delay: at_once,
            lose_requests: false,
            lose_replies: false,
            partitioned: false,
            connected: true,
            requests: VecDeque::new(),
            replies: VecDeque::new(),
            swallowed: Vec::new(),
            watched: HashSet::new(),
            listens_for: None,
            admitted: None,
            lacks_barrier: false,
            has_quarantine: true,
            listeners: Vec::new(),
            reported: None,
        }
    }

    /// Returns `true` if bytes pass in both directions, so that a connection can be made.
    pub(super) fn passable(&self) -> bool {
        !(self.partitioned || self.lose_requests || self.lose_replies)
    }

    /// Sends a request. The first request in the queue delays the following ones, because requests
    /// on one connection keep their order.
    pub(super) fn send(&mut self, op: Op, slot: VoteSlot, now: Instant, rng: &mut StdRng) {
        if self.lose_requests {
            self.swallowed.push(slot);
            return;
        }
        let due = now.saturating_add(pick(&self.request_delay, self.draws.as_mut().unwrap_or(rng)));
        let (set, slot) = (self.set(), Some(slot));
        self.requests.push_back(Request { op, set, slot, due });
    }

    /// Sends a reply, after the replies that were sent earlier in the same way.
    pub(super) fn reply(&mut self, back: Back, now: Instant, rng: &mut StdRng) {
        if self.lose_replies {
            self.swallowed.extend(back.slot());
            return;
        }
        let due = now.saturating_add(pick(&self.reply_delay, self.draws.as_mut().unwrap_or(rng)));
        self.replies.push_back(Reply { back, due });
    }

    /// An event for each listener.
    pub(super) fn report(&self, event: &NodeEvent) -> impl Iterator<Item = (Events, NodeEvent)> {
        self.listeners.iter().map(|(_, events)| (events.clone(), event.clone()))
    }

    /// Ends the connection, and returns the slots of all unanswered requests. The requests stay on
    /// their way.
    #[must_use]
    pub(super) fn cut(&mut self) -> Vec<VoteSlot> {
        self.connected = false;
        self.admitted = None;
        let replies = self.replies.drain(..);
        let mut unanswered: Vec<_> = replies.filter_map(|reply| reply.back.slot()).collect();
        unanswered.append(&mut self.swallowed);
        unanswered.extend(self.requests.iter_mut().filter_map(|request| request.slot.take()));
        unanswered
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("connected", &self.connected)
            .field("requests", &self.requests.len())
            .field("replies", &self.replies.len())
            .finish_non_exhaustive()
    }
}

fn pick(delay: &Delay, rng: &mut StdRng) -> Duration {
    if delay.start() < delay.end() { rng.random_range(delay.clone()) } else { *delay.start() }
}
