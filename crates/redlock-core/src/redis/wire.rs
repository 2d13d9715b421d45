//! The traffic to a master: bytes to send, and requests without an answer. See rules C5 and C6 of
//! `docs/PROTOCOL.md`.
//!
//! `pending` has the requests without an answer, `admission` requests about admission, and `parts`
//! requests of several commands.

mod admission;
mod parts;
mod pending;
mod releases;

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

use redis::Value;

pub(super) use self::pending::Settled;
use self::pending::{Form, Pending};
use self::releases::Releases;
use super::ballots::Replies;
use super::encode::{self, Loaded, Native};
use super::facts;
use super::handshake;
use super::namespace::{Namespace, Set};
use super::queues;
use super::reply;
use super::resp::{self, Garbage};
use super::stream::not_connected;
use crate::server_error::ServerError;
use crate::slot::Batch;
use crate::{Answer, Cause, Facts, Instant, NodeEvent, Op, QueueTicket, Verb, VoteSlot};

/// The state that submitters and the connection share.
pub(super) struct Wire {
    state: State,
    /// Encoded requests that no socket has yet.
    out: Vec<u8>,
    /// Requests that were handed over, in the order in which the master will answer.
    in_flight: VecDeque<Pending>,
    /// The scripts that this connection has loaded.
    loaded: Loaded,
    /// The server's native command for a release, if it has one and the user may run it.
    native: Option<Native>,
    /// Whether the server pushes changes of watched keys.
    tracks: bool,
    /// Whether requests of an earlier connection can no longer be carried out.
    has_barrier: bool,
    /// The ballot set. `None` until the master is admitted.
    set: Option<Set>,
    /// The replies so far to the oldest request, if it has several commands.
    replies: Replies,
    /// Why no shared queue can be used, see [`Facts::no_queue`].
    no_queue: Option<String>,
    /// Whether locks can be released.
    releases: Releases,
    /// On whose channel this connection listens.
    listens_for: Option<QueueTicket>,
    /// Why the server takes no ballots, from its answer when the connection was made.
    no_ballots: Option<String>,
    /// How many reads about the master were made, and the number of the read that was reported
    /// last.
    reads: u64,
    reported: u64,
    namespace: Option<Arc<Namespace>>,
    /// Wakes the connection when there is something to send, and the pause before one.
    waker: Option<Waker>,
    /// Whether pauses before a connection must be short.
    is_urgent: bool,
    /// The latest server processes that a connection was up to, each with the server's number for
    /// the last one. The latest is at the end.
    served_by: VecDeque<(String, i64)>,
}

/// Whether there is a connection.
#[derive(Clone, Debug)]
pub(super) enum State {
    /// The first one is being made.
    Connecting,
    Up,
    /// There is none, for the reason given.
    Down(Cause),
}

/// The largest number of unanswered requests on one connection. A master with so many does not keep
/// up, and more of them would only take memory.
const IN_FLIGHT_MAX: usize = 16_384;

/// The number of server processes to remember. There can be several, because a proxy can alternate
/// between servers.
const PROCESSES_MAX: usize = 8;

impl Wire {
    pub(super) fn new(namespace: Option<Arc<Namespace>>) -> Self {
        Self {
            state: State::Down(not_connected("")),
            out: Vec::new(),
            in_flight: VecDeque::new(),
            loaded: Loaded::default(),
            native: None,
            tracks: false,
            has_barrier: true,
            set: None,
            replies: Replies::default(),
            no_queue: None,
            releases: Releases::default(),
            listens_for: None,
            no_ballots: None,
            reads: 0,
            reported: 0,
            namespace,
            waker: None,
            is_urgent: false,
            served_by: VecDeque::new(),
        }
    }

    pub(super) fn state(&self) -> State {
        self.state.clone()
    }

    /// Returns `true` if something can be sent now.
    fn is_open(&self) -> bool {
        matches!(self.state, State::Up) && self.in_flight.len() < IN_FLIGHT_MAX
    }

    /// Returns why nothing can be sent now, or `None` if something can.
    pub(super) fn obstacle(&self) -> Option<Cause> {
        match &self.state {
            _ if self.is_open() => None,
            State::Up => Some(too_many()),
            State::Connecting => Some(not_connected("still connecting")),
            State::Down(cause) => Some(cause.clone()),
        }
    }

    /// Accepts a request. The caller must wake the returned waker, if any, after unlocking.
    pub(super) fn push(&mut self, op: Op, slot: VoteSlot) -> Option<Waker> {
        if op.verb() == Verb::Admission {
            self.send_admission(op, slot);
            return self.waker.take();
        }
        self.track_next(&op, slot.sent_at());
        self.listen(&op, slot.sent_at());
        let form = if op.member().is_some() {
            self.write_balloted(&op)
        } else if let Some(native) = self.native.filter(|_| op.verb() == Verb::Release) {
            encode::natively(&op, native, &mut self.out);
            Form::Native
        } else {
            self.write_script(&op)
        };
        self.in_flight.push_back(Pending::Request(op, slot, form));
        self.waker.take()
    }

    fn track_next(&mut self, op: &Op, sent_at: Instant) {
        if self.tracks && op.verb() == Verb::Watch {
            self.out.extend_from_slice(encode::TRACK_NEXT);
            self.in_flight.push_back(Pending::TrackNext(sent_at));
        }
    }

    /// Subscribes before a client enters a queue, because it must hear when it is called.
    fn listen(&mut self, op: &Op, sent_at: Instant) {
        let Some(queue) = op.entry().map(|entry| &entry.queue) else { return };
        if self.listens_for.replace(queue.ticket()) != Some(queue.ticket()) {
            self.out.extend_from_slice(&resp::pack(&[b"SUBSCRIBE", &queue.channel()]));
            self.in_flight.push_back(Pending::Subscribe(sent_at));
        }
    }

    /// Handles the push that confirms `SUBSCRIBE`, which gets no reply.
    pub(super) fn subscribed(&mut self) {
        let is_it = |pending: &Pending| matches!(pending, Pending::Subscribe(_));
        if let Some(at) = self.in_flight.iter().position(is_it) {
            self.in_flight.remove(at);
        }
    }

    /// Handles the reply that refuses `SUBSCRIBE`. Nothing else is a reply to it.
    fn settle_subscribe(&mut self, reply: Value) -> Settled {
        self.listens_for = None;
        match &reply {
            Value::ServerError(error) if resp::kind(error).lasts() => {
                let why = format!("SUBSCRIBE was rejected: {}", resp::message(error));
                self.no_queue = Some(why.clone());
                Settled::event(NodeEvent::NoQueue(why), None)
            }
            Value::ServerError(_) => Settled::More,
            _ => Settled::Unasked(reply),
        }
    }

    fn vote(&mut self, op: &Op, slot: VoteSlot, answer: Answer) -> Settled {
        self.learn_of_releases(op, &answer, slot.sent_at());
        match queues::denial(op, &answer) {
            Some(why) => {
                self.no_queue = Some(why.clone());
                Settled::event(NodeEvent::NoQueue(why), Some((slot, answer)))
            }
            None => Settled::vote(slot, answer),
        }
    }

    /// Moves unsent bytes into `buffer`, and registers `waker` for when there is more. Returns when
    /// the oldest unanswered request was made.
    pub(super) fn take(&mut self, buffer: &mut Vec<u8>, waker: &Waker) -> Option<Instant> {
        if buffer.is_empty() {
            std::mem::swap(buffer, &mut self.out);
        } else {
            buffer.append(&mut self.out);
        }
        if !self.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
            self.waker = Some(waker.clone());
        }
        self.in_flight.front().map(Pending::sent_at)
    }

    /// Requests the server's role, in line with the other requests.
    pub(super) fn ask_role(&mut self, now: Instant) {
        self.out.extend_from_slice(&facts::info("replication").get_packed_command());
        self.in_flight.push_back(Pending::Role(now));
    }

    /// Sets whether a new connection is urgent. The caller must wake the returned waker, if any,
    /// after unlocking.
    pub(super) fn set_urgent(&mut self, urgent: bool) -> Option<Waker> {
        let was_urgent = std::mem::replace(&mut self.is_urgent, urgent);
        if urgent && !was_urgent { self.waker.take() } else { None }
    }

    /// Returns `true` if a new connection is urgent. If not, `waker` is woken when it becomes
    /// urgent.
    pub(super) fn is_urgent(&mut self, waker: &Waker) -> bool {
        if !self.is_urgent {
            self.waker = Some(waker.clone());
        }
        self.is_urgent
    }

    /// Takes the oldest request, if `bytes` begin with all that answers it, in one of the ways in
    /// which nearly every request is answered, and adds its vote to `batch`. Returns how long the
    /// answer is. This needs no parser.
    pub(super) fn at_once(
        &mut self,
        bytes: &[u8],
        batch: &mut Batch,
        now: Instant,
    ) -> Option<usize> {
        let Some(Pending::Request(op, slot, form)) = self.in_flight.front_mut() else {
            return None;
        };
        let (plain, len) = match form {
            Form::Parts | Form::PartsAgain => self.replies.at_once(op, bytes)?,
            Form::Alone => return None,
            _ => reply::granted(op.verb(), bytes)?,
        };
        batch.add(slot, plain.answer(), now);
        self.in_flight.pop_front();
        Some(len)
    }

    /// Counts a reply as the answer to the oldest request.
    pub(super) fn settle(&mut self, reply: Value) -> Settled {
        let (op, slot, form) = match self.in_flight.pop_front() {
            Some(Pending::Request(
                op,
                slot,
                form @ (Form::Parts | Form::PartsAgain | Form::Alone),
            )) => return self.settle_part(op, slot, form, reply),
            Some(Pending::Request(op, slot, form)) => (op, slot, form),
            // Without tracking a watch still reads the key.
            Some(Pending::TrackNext(_)) => return Settled::More,
            Some(Pending::Subscribe(_)) => return self.settle_subscribe(reply),
            Some(Pending::Role(_)) => return Settled::Role(reply),
            Some(Pending::Release(_)) => return self.settle_release_test(&reply),
            Some(Pending::Admission(in_hand)) => return self.settle_admission(in_hand, reply),
            Some(Pending::Count(counting)) => return self.settle_count(*counting, &reply),
            Some(Pending::Members(_, run)) => {
                // No ballots of clients without a quarantine: there is nothing to report.
                let is_news = |members: &u32| run.is_some() || *members > 0;
                let members = super::admission::members(&reply).filter(is_news);
                let news = |members| Settled::event(NodeEvent::Members(members), None);
                return members.map_or(Settled::More, news);
            }
            None => return Settled::Unasked(reply),
        };
        let is_denied = form == Form::Native && is_denied(&reply);
        if is_denied {
            self.native = None;
        }
        // The resent request follows requests submitted after it. That is safe if `may_repeat` is
        // true, and rare: after `SCRIPT FLUSH`, and for the first call without a right to EVALSHA.
        if (is_denied || self.is_refused(&reply))
            && form != Form::Text
            && self.may_repeat(&op)
            && let Some(text) = encode::by_text(&op, self.set.as_ref())
        {
            self.track_next(&op, slot.sent_at());
            self.out.extend_from_slice(&text);
            self.in_flight.push_back(Pending::Request(op, slot, Form::Text));
            return Settled::More;
        }
        match self.answer_of(&op, reply) {
            Ok(answer) => self.vote(&op, slot, answer),
            Err(Garbage) => Settled::Garbage(slot),
        }
    }

    /// Returns `true` if the server did not run a script by its digest.
    fn is_refused(&mut self, reply: &Value) -> bool {
        let Value::ServerError(error) = reply else { return false };
        self.loaded.is_refused(&resp::message(error))
    }

    /// Marks the connection to the server `identity` as usable.
    ///
    /// The members of its ballot set are counted after the handshake, and nothing waits for the
    /// result.
    pub(super) fn up(&mut self, server: handshake::Identity, now: Instant) -> Facts {
        let handshake::Identity { facts, client_id, native, no_release } = server;
        self.releases = Releases::new(no_release);
        self.native = native;
        (self.tracks, self.has_barrier) = (facts.tracks, facts.has_barrier);
        self.no_ballots.clone_from(&facts.no_ballots);
        self.no_queue.clone_from(&facts.no_queue);
        if self.count_members(&facts) {
            let run = facts.record.as_ref().ok().and_then(|record| record.run);
            self.in_flight.push_back(Pending::Members(now, run));
        }
        self.served_by.retain(|(run_id, _)| *run_id != facts.run_id);
        if self.served_by.len() == PROCESSES_MAX {
            self.served_by.pop_front();
        }
        self.served_by.push_back((facts.run_id.clone(), client_id));
        self.state = State::Up;
        facts
    }

    /// Ends the connection, or starts the first one. Returns the slots of all unanswered requests.
    /// The caller must drop them after unlocking, which casts *unknown*.
    #[must_use]
    pub(super) fn end(&mut self, state: State) -> impl Sized + use<> {
        self.state = state;
        self.out.clear();
        // The server behind the next connection may be admitted with another identity.
        self.name_set(None);
        self.loaded = Loaded::default();
        self.replies = Replies::default();
        self.listens_for = None;
        self.waker = None;
        std::mem::take(&mut self.in_flight)
    }

    /// Returns the client id of the previous connection to the same server process, if any. That
    /// connection must be closed before this one is used.
    pub(super) fn predecessor(&self, run_id: &str) -> Option<i64> {
        let before = self.served_by.iter().find(|(served_by, _)| served_by == run_id);
        before.map(|(_, client_id)| *client_id)
    }
}

fn too_many() -> Cause {
    let limit = format!("too many unanswered requests to this master (limit {IN_FLIGHT_MAX})");
    Cause::NotSent(limit.into())
}

/// Returns `true` if the server has the command but the user is not allowed to run it. The script
/// does the same.
fn is_denied(reply: &Value) -> bool {
    matches!(reply, Value::ServerError(error) if resp::kind(error) == ServerError::Denied)
}
