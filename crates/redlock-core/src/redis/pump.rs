//! One connection in use: moves bytes between the wire and the socket.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use redis::Value;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Interval, MissedTickBehavior, Sleep, interval_at, sleep};

use super::RedisNode;
use super::dial::cause;
use super::facts;
use super::reply::{self, Aside};
use super::resp::{self, Garbage};
use super::stall::Stall;
use super::stream::{LAST_WORDS, Stream, not_connected};
use super::wire::Settled;
use crate::admission::AdmissionReply;
use crate::slot::Batch;
use crate::{Answer, Cause, Events, NodeEvent, Role, Verdict, VoteSlot};

/// So few written bytes are not worth removing from the buffer before the rest is written.
const COMPACT_MIN: usize = 1 << 16;
/// Room for replies. It grows if a reply needs more. A reply cut off at the end takes a slower
/// path, so the buffer is large enough that few are.
const READING_MIN: usize = 1 << 14;

/// Work that is done after the votes, once the wire is unlocked.
struct Deferred {
    events: Vec<NodeEvent>,
    /// Passed on after the events, because the data might be gone, or queues might have become
    /// unusable.
    vote: Option<(VoteSlot, Answer)>,
}

pub(super) struct Pump<'a> {
    node: &'a RedisNode,
    events: &'a Events,
    stream: Box<dyn Stream>,
    writing: Vec<u8>,
    written: usize,
    reading: Vec<u8>,
    filled: usize,
    /// Votes that are cast once the wire is free again.
    batch: Batch,
    stall: Option<Stall>,
    /// The role of the server when the connection was made, and the next time to read it again.
    /// `None` for a master, whose own answers show when it stops being one.
    other: Option<(Role, Interval)>,
    /// Why no more can be sent, and how long there may still be something to read.
    broken: Option<(Cause, Pin<Box<Sleep>>)>,
}

impl<'a> Pump<'a> {
    /// Creates the pump of a connection to a server in this role. The last bytes read have not been
    /// processed yet.
    pub(super) fn new(
        node: &'a RedisNode,
        events: &'a Events,
        (stream, mut read): (Box<dyn Stream>, Vec<u8>),
        role: Role,
    ) -> Self {
        let filled = read.len();
        read.resize(filled.max(READING_MIN), 0);
        Self {
            node,
            events,
            stream,
            writing: Vec::new(),
            written: 0,
            reading: read,
            filled,
            batch: Batch::default(),
            stall: None,
            other: (role != Role::Master).then(|| (role, pace())),
            broken: None,
        }
    }

    /// Serves the connection until it can no longer be used, and returns the reason.
    pub(super) async fn run(mut self) -> Cause {
        match self.hear() {
            Ok(()) => poll_fn(|cx| self.poll(cx)).await,
            Err(cause) => cause,
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Cause> {
        loop {
            self.ask_role_again(cx);
            let oldest = self.take(cx);
            if self.broken.is_none()
                && let Err(error) = self.write(cx)
            {
                self.broken = Some((cause(&error), Box::pin(sleep(LAST_WORDS))));
            }
            match (self.read(cx), &mut self.broken) {
                (Poll::Ready(Ok(())), _) => {}
                (Poll::Ready(Err(cause)), _) => return Poll::Ready(cause),
                (Poll::Pending, None) => return self.watch(cx, oldest),
                (Poll::Pending, Some((cause, timer))) => {
                    ready!(timer.as_mut().poll(cx));
                    return Poll::Ready(cause.clone());
                }
            }
        }
    }

    fn ask_role_again(&mut self, cx: &mut Context<'_>) {
        if let Some((_, pace)) = &mut self.other {
            while pace.poll_tick(cx).is_ready() {
                self.node.wire().ask_role(self.node.clock.now());
            }
        }
    }

    fn take(&mut self, cx: &mut Context<'_>) -> Option<crate::Instant> {
        compact(&mut self.writing, &mut self.written);
        self.node.wire().take(&mut self.writing, cx.waker())
    }

    fn write(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        while self.written < self.writing.len() {
            let rest = &self.writing[self.written..];
            match Pin::new(&mut self.stream).poll_write(cx, rest) {
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::BrokenPipe.into()),
                Poll::Ready(Ok(len)) => self.written += len,
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Pending => return Ok(()),
            }
        }
        match Pin::new(&mut self.stream).poll_flush(cx) {
            Poll::Ready(Err(error)) => Err(error),
            Poll::Ready(Ok(())) | Poll::Pending => Ok(()),
        }
    }

    /// Reads once, and counts the replies that have come. Ready when there may be more to do.
    fn read(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Cause>> {
        if self.filled == self.reading.len() {
            self.reading.resize(self.filled * 2, 0);
        }
        let mut buffer = ReadBuf::new(&mut self.reading[self.filled..]);
        let read = ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer));
        let len = buffer.filled().len();
        Poll::Ready(match read {
            Err(error) => Err(cause(&error)),
            Ok(()) if len == 0 => Err(Cause::ConnectionClosed),
            Ok(()) => {
                self.filled += len;
                self.hear()
            }
        })
    }

    /// Processes the received replies, and passes on their contents.
    fn hear(&mut self) -> Result<(), Cause> {
        let (mut at, now) = (0, self.node.clock.now());
        let outcome = loop {
            let settled = self.settle(&mut at, now);
            // The wire is free again.
            self.batch.cast();
            match settled {
                Ok(Some(deferred)) => self.pass_on(deferred, now),
                Ok(None) => break Ok(()),
                Err(cause) => break Err(cause),
            }
        };
        self.reading.copy_within(at..self.filled, 0);
        self.filled -= at;
        outcome
    }

    fn pass_on(&mut self, deferred: Deferred, now: crate::Instant) {
        deferred.events.into_iter().for_each(|event| self.events.report(event));
        if let Some((mut slot, answer)) = deferred.vote {
            self.batch.add(&mut slot, answer, now);
        }
    }

    /// Parses whole replies from `at` on. Returns the rest to pass on after their votes, or `None`
    /// once the bytes hold no further whole reply.
    fn settle(&mut self, at: &mut usize, now: crate::Instant) -> Result<Option<Deferred>, Cause> {
        let node = self.node;
        let mut wire = node.wire();
        // That of the server when the connection was made.
        let role = self.other.as_ref().map_or(Role::Master, |(role, _)| *role);
        loop {
            let rest = &self.reading[*at..self.filled];
            if let Some(len) = wire.at_once(rest, &mut self.batch, now) {
                *at += len;
                continue;
            }
            let Some(len) = resp::len(rest).map_err(|Garbage| garbage())? else { return Ok(None) };
            *at += len;
            if resp::is_aside(&rest[..len]) {
                match reply::aside(&rest[..len]).map_err(|Garbage| garbage())? {
                    Aside::Events(events) => return Ok(Some(Deferred { events, vote: None })),
                    Aside::Subscribed => wire.subscribed(),
                }
                continue;
            }
            let settled = wire.settle(resp::parse(&rest[..len]).map_err(|Garbage| garbage())?);
            if let Settled::Event(event, vote) = settled {
                return Ok(Some(Deferred { events: vec![*event], vote }));
            }
            let (vote, outcome) = vote(settled, role);
            if let Some((mut slot, answer)) = vote {
                self.batch.add(&mut slot, answer, now);
            }
            outcome?;
        }
    }

    /// Ends a connection with a request that is unanswered for too long: it may lead nowhere.
    fn watch(&mut self, cx: &mut Context<'_>, oldest: Option<crate::Instant>) -> Poll<Cause> {
        let limit = self.node.stall_timeout;
        loop {
            match (&mut self.stall, oldest) {
                (None, None) => return Poll::Pending,
                (None, Some(since)) => {
                    let waited = self.node.clock.now().saturating_since(since);
                    if waited >= limit {
                        return Poll::Ready(Cause::TimedOut);
                    }
                    self.stall = Some(Stall::set(limit - waited));
                }
                // A timer whose request was answered is left to run out. Resetting it for every
                // request would cost more than one extra wake-up per second.
                (Some(stall), _) => {
                    ready!(stall.poll(cx));
                    self.stall = None;
                }
            }
        }
    }
}

/// Returns how often the role of a server that isn't a master is read again.
fn pace() -> Interval {
    const PACE: Duration = Duration::from_secs(1);
    let mut pace = interval_at(Instant::now() + PACE, PACE);
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    pace
}

/// Forgets what the socket has taken. While it takes less than there is to send, only now and then:
/// the rest must be moved for it.
fn compact(writing: &mut Vec<u8>, written: &mut usize) {
    let is_worth_it = *written >= COMPACT_MIN && *written >= writing.len() / 2;
    if *written == writing.len() {
        writing.clear();
        *written = 0;
    } else if is_worth_it {
        writing.drain(..std::mem::take(written));
    }
}

/// Returns the vote that a reply leads to, if any, and an error if the connection must close.
fn vote(settled: Settled, role: Role) -> (Option<(VoteSlot, Answer)>, Result<(), Cause>) {
    match settled {
        Settled::Vote(slot, answer) => {
            // Only a new connection can find the right server, unless this one never was a master.
            let moved = moved(&answer, role);
            (Some((slot, answer)), moved.map_or(Ok(()), Err))
        }
        // Events are passed on after the votes and never get here.
        Settled::More | Settled::Event(..) => (None, Ok(())),
        Settled::Garbage(slot) => {
            (Some((slot, Answer::unknown(Cause::ConnectionClosed))), Err(garbage()))
        }
        Settled::Role(reply) => match facts::role(&reply) {
            Ok(now) if now != role => (None, Err(role_changed())),
            _ => (None, Ok(())),
        },
        // A server gives the reason for closing a connection in an error that answers no request.
        Settled::Unasked(Value::ServerError(error)) => (None, Err(resp::refusal(&error))),
        Settled::Unasked(_) => (None, Err(garbage())),
    }
}

fn garbage() -> Cause {
    not_connected("it sent bytes that are not a Redis reply")
}

fn role_changed() -> Cause {
    not_connected("the role of the server has changed")
}

/// Returns why the server is not the one to which the connection was made, if the answer shows
/// that.
fn moved(answer: &Answer, role: Role) -> Option<Cause> {
    match (&answer.verdict, answer.admission.as_deref()) {
        (Verdict::Unknown(cause @ Cause::Demoted(_)), _) if role == Role::Master => {
            Some(cause.clone())
        }
        (_, Some(AdmissionReply::Facts { facts, .. } | AdmissionReply::Scores { facts, .. }))
            if facts.role != role =>
        {
            Some(role_changed())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::super::handshake::Identity;
    use super::super::stream::Closed;
    use super::*;
    use crate::{Clock, Facts, Node, Op, RedisSetup, Sink, Token, Vote};

    #[derive(Default)]
    struct Votes(Mutex<Vec<Answer>>);

    impl Sink for Votes {
        fn vote(&self, vote: Vote) {
            self.0.lock().unwrap().push(vote.answer);
        }

        fn event(&self, _: usize, _: NodeEvent) {}
    }

    /// Sends an acquire over a connection that accepts nothing more. Returns the answers, and why
    /// the connection ended.
    async fn closed_after(said: &'static [u8]) -> (Vec<Answer>, Cause) {
        let setup = RedisSetup::new(Clock::paused(), LAST_WORDS);
        let node = RedisNode::new("redis://127.0.0.1:1", &setup).unwrap();
        let facts = Facts::master("abc");
        node.wire().up(
            Identity { facts, client_id: 1, native: None, no_release: None },
            setup.clock.now(),
        );
        let (votes, token) = (Arc::new(Votes::default()), Token::parse("t").unwrap());
        let slot = VoteSlot::new(votes.clone(), 0, 0, setup.clock.now());
        node.submit(Op::acquire(*b"k", token, 1), slot);
        let (events, stream) = (Events::new(votes.clone(), 0), Box::new(Closed(said)));
        let cause = Pump::new(&node, &events, (stream, Vec::new()), Role::Master).run().await;
        (std::mem::take(&mut *votes.0.lock().unwrap()), cause)
    }

    #[test]
    fn written_bytes_are_dropped_before_all_are_sent() {
        let (mut writing, mut written, mut sent) = (Vec::new(), 0, 0_u32);
        for step in 0..100_000_u32 {
            writing.extend_from_slice(&step.to_be_bytes());
            // One request stays behind.
            while writing.len() - written > 4 {
                assert_eq!(writing[written..written + 4], sent.to_be_bytes());
                (written, sent) = (written + 4, sent + 1);
            }
            compact(&mut writing, &mut written);
            assert!(writing.len() <= COMPACT_MIN + 4);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn received_replies_are_used_after_sending_fails() {
        let (answers, cause) = closed_after(b"+OK\r\n").await;
        assert_eq!((answers, cause), (vec![Answer::granted()], Cause::ConnectionClosed));
        let (answers, cause) = closed_after(b"").await;
        assert_eq!((answers, cause), (vec![], Cause::ConnectionClosed));
    }

    #[tokio::test(start_paused = true)]
    async fn unsolicited_error_is_the_cause_of_the_disconnect() {
        let (answers, cause) = closed_after(b"+OK\r\n-ERR max number of clients reached\r\n").await;
        assert_eq!(answers, [Answer::granted()]);
        assert_eq!(cause, Cause::ErrorReply("ERR max number of clients reached".into()));
    }
}
