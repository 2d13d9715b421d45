//! One connection in use: moves bytes between the wire and the socket.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use super::RedisNode;
use super::reply::{self, Garbage};
use super::stream::{Stream, cause, not_connected};
use super::wire::Settled;
use crate::{Answer, Cause, Instant, Verdict, VoteSlot};

pub(super) struct Pump<'a> {
    node: &'a RedisNode,
    stream: Box<dyn Stream>,
    writing: Vec<u8>,
    written: usize,
    reading: Vec<u8>,
    filled: usize,
    votes: Vec<(VoteSlot, Answer)>,
    stall: Option<Pin<Box<Sleep>>>,
}

impl<'a> Pump<'a> {
    pub(super) fn new(node: &'a RedisNode, stream: Box<dyn Stream>) -> Self {
        Self {
            node,
            stream,
            writing: Vec::new(),
            written: 0,
            reading: vec![0; 4096],
            filled: 0,
            votes: Vec::new(),
            stall: None,
        }
    }

    /// Serves the connection until it is of no use any more, and returns why.
    pub(super) async fn run(mut self) -> Cause {
        poll_fn(|cx| self.poll(cx)).await
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Cause> {
        loop {
            let oldest = self.take(cx);
            if let Err(error) = self.write(cx) {
                return Poll::Ready(cause(&error));
            }
            match self.read(cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(cause)) => return Poll::Ready(cause),
                Poll::Pending => return self.watch(cx, oldest),
            }
        }
    }

    fn take(&mut self, cx: &mut Context<'_>) -> Option<Instant> {
        if self.written == self.writing.len() {
            self.writing.clear();
            self.written = 0;
        }
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
                let outcome = self.settle();
                let now = self.node.clock.now();
                self.votes.drain(..).for_each(|(slot, answer)| slot.cast_at(answer, now));
                outcome
            }
        })
    }

    /// Takes whole replies out of what was read. Votes are cast once the wire is free again.
    fn settle(&mut self) -> Result<(), Cause> {
        let mut at = 0;
        let mut wire = self.node.wire();
        let outcome = loop {
            let rest = &self.reading[at..self.filled];
            let len = match reply::len(rest) {
                Ok(Some(len)) => len,
                Ok(None) => break Ok(()),
                Err(Garbage) => break Err(garbage()),
            };
            at += len;
            // A push answers no request; this connection has subscribed to nothing.
            if rest[0] == b'>' {
                continue;
            }
            match reply::parse(&rest[..len]).and_then(|reply| wire.settle(reply)) {
                Ok(Settled::Vote(slot, answer)) => {
                    let demoted = demoted(&answer);
                    self.votes.push((slot, answer));
                    if let Some(cause) = demoted {
                        break Err(cause);
                    }
                }
                Ok(Settled::Again) => {}
                Ok(Settled::Garbage(slot)) => {
                    self.votes.push((slot, Answer::unknown(Cause::ConnectionClosed)));
                    break Err(garbage());
                }
                Err(Garbage) => break Err(garbage()),
            }
        };
        drop(wire);
        self.reading.copy_within(at..self.filled, 0);
        self.filled -= at;
        outcome
    }

    /// Ends a connection with a request that is unanswered for too long: it may lead nowhere.
    fn watch(&mut self, cx: &mut Context<'_>, oldest: Option<Instant>) -> Poll<Cause> {
        let limit = self.node.stall_timeout;
        loop {
            match (&mut self.stall, oldest) {
                (None, None) => return Poll::Pending,
                (None, Some(since)) => {
                    let waited = self.node.clock.now().saturating_since(since);
                    if waited >= limit {
                        return Poll::Ready(Cause::TimedOut);
                    }
                    self.stall = Some(Box::pin(sleep(limit - waited)));
                }
                // A timer that outlives what it was set for is left to run out: setting it anew
                // for every request would cost more than one look a second.
                (Some(stall), _) => {
                    ready!(stall.as_mut().poll(cx));
                    self.stall = None;
                }
            }
        }
    }
}

fn garbage() -> Cause {
    not_connected("it sent what is no reply of a Redis")
}

/// A server that is no master any more: only a new connection can find the right one.
fn demoted(answer: &Answer) -> Option<Cause> {
    match &answer.verdict {
        Verdict::Unknown(cause @ Cause::Demoted(_)) => Some(cause.clone()),
        _ => None,
    }
}
