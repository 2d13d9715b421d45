//! Connections: making them, using them, and making them again.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout};

use super::RedisNode;
use super::dial;
use super::handshake::{Identity, Talk};
use super::pump::Pump;
use super::stream::{Stream, not_connected};
use super::wire::State;
use crate::{Cause, Events, NoConnection, NodeEvent, TlsFault};

/// The first pause before a new connection attempt. It doubles after each failure.
const PAUSE_MIN: Duration = Duration::from_millis(20);
/// The longest such pause: a master that is back is reached within about a second.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// The longest such pause while a held lease lacks a copy on this master.
const PAUSE_MAX_URGENT: Duration = Duration::from_millis(80);

/// OpenSSL, and so a server with TLS, closes a connection that does not begin with TLS, without an
/// error message.
const MAY_SPEAK_TLS: &str = "the server closed the connection without an answer: it might speak TLS on this port (use \
     rediss://), or be a proxy that does not pass on CLIENT and INFO (use the server's own address)";

/// Keeps a node connected until it is dropped.
pub(super) struct Link {
    node: Arc<RedisNode>,
    events: Events,
    /// Which of the node's links this is: only the latest one reports and changes the wire.
    number: u64,
}

impl Link {
    /// Marks the first connection as being made, before the first poll, so that it is not reported
    /// as unreachable before anything was tried.
    pub(super) fn new(node: Arc<RedisNode>, events: Events) -> Self {
        let number = node.links.fetch_add(1, Ordering::Relaxed) + 1;
        let unanswered = node.wire().end(State::Connecting);
        drop(unanswered);
        Self { node, events, number }
    }

    /// Ends when the node is driven by another link.
    pub(super) async fn run(self) {
        let mut serving = pin!(self.serve());
        let serve = |cx: &mut Context<'_>| match self.is_latest() {
            true => serving.as_mut().poll(cx),
            false => Poll::Ready(()),
        };
        poll_fn(serve).await;
    }

    fn is_latest(&self) -> bool {
        self.node.links.load(Ordering::Relaxed) == self.number
    }

    async fn serve(&self) {
        let mut pauses = Pauses::default();
        loop {
            let (cause, was_up) = self.session().await;
            let pause = pauses.next(was_up, Instant::now());
            self.down(cause, pause.is_none());
            if let Some(pause) = pause {
                self.pause(pause).await;
            }
        }
    }

    /// Waits for `pause`, or for the longest pause currently allowed if that is shorter, because a
    /// connection can become urgent during the wait.
    async fn pause(&self, pause: Duration) {
        // Half of it is random, so that many clients do not come back in step.
        let share = rand::random_range(0.5..1.0);
        let begun = Instant::now();
        let end = |longest: Duration| begun + pause.min(longest).mul_f64(share);
        let mut timer = pin!(sleep_until(end(PAUSE_MAX)));
        poll_fn(|cx| {
            if self.node.wire().is_urgent(cx.waker()) {
                timer.as_mut().reset(end(PAUSE_MAX_URGENT));
            }
            timer.as_mut().poll(cx)
        })
        .await;
    }

    /// Runs one connection from beginning to end. Returns why it ended, and whether it ever worked.
    async fn session(&self) -> (Cause, bool) {
        let opened = timeout(self.node.connect_timeout, self.open()).await;
        match opened.unwrap_or(Err(Cause::TimedOut)) {
            Err(cause) => (cause, false),
            Ok(Opened { stream, identity, pushed, read }) => {
                let role = identity.facts.role;
                let facts = self.node.wire().up(identity, self.node.clock.now());
                self.events.report(NodeEvent::Up(facts));
                pushed.into_iter().for_each(|event| self.events.report(event));
                let pump = Pump::new(&self.node, &self.events, (stream, read), role);
                (pump.run().await, true)
            }
        }
    }

    /// Opens a new connection. Nothing of the previous one is left at the server.
    async fn open(&self) -> Result<Opened, Cause> {
        let node = &self.node;
        let (place, limit) = (&node.address.place, node.connect_timeout);
        let login = node.logins.next(limit).await?;
        let tls = match &node.tls {
            Some(connectors) => Some(connectors.next(limit).await?),
            None => None,
        };
        let mut stream = dial::connect(place, &node.resolver, tls.as_ref(), limit).await?;
        let mut talk = Talk::new(&mut *stream);
        let greeted = talk.greet(&login, node.namespace.as_deref()).await;
        let mut identity = greeted.map_err(|cause| match cause {
            Cause::ConnectionClosed if !talk.has_received() && place.is_plain_tcp() => {
                not_connected(NoConnection::of_tls(TlsFault::Required, MAY_SPEAK_TLS))
            }
            cause => cause,
        })?;
        let predecessor = node.wire().predecessor(&identity.facts.run_id);
        if let Some(predecessor) = predecessor {
            identity.facts.has_barrier = talk.kill(predecessor).await?;
        }
        let (pushed, read) = talk.into_rest();
        Ok(Opened { stream, identity, pushed, read })
    }

    /// Requests without an answer are answered *unknown* before the event is reported.
    fn down(&self, cause: Cause, retries_now: bool) {
        let unanswered = self.node.wire().end(State::Down(cause.clone()));
        drop(unanswered);
        self.events.report(NodeEvent::Down { cause, retries_now });
    }
}

/// A connection that may be used.
struct Opened {
    stream: Box<dyn Stream>,
    identity: Identity,
    /// Pushes that the server sent during the handshake.
    pushed: Vec<NodeEvent>,
    /// Bytes after the last reply of the handshake.
    read: Vec<u8>,
}

/// A node that is not driven any more leaves no request without an answer.
impl Drop for Link {
    fn drop(&mut self) {
        if !self.is_latest() {
            return;
        }
        self.down(not_connected("the runtime that drove the connection is gone"), false);
    }
}

/// The pauses before connections.
#[derive(Default)]
struct Pauses {
    /// Attempts that failed since there was a connection.
    failures: u32,
    /// When a pause was last left out.
    left_out: Option<Instant>,
}

impl Pauses {
    /// Returns the pause before the next connection. There is none after a working connection, so
    /// that a server that was restarted or closes idle connections is reached again immediately. A
    /// server that closes every connection is tried at most once per [`PAUSE_MAX`].
    fn next(&mut self, was_up: bool, now: Instant) -> Option<Duration> {
        if was_up {
            self.failures = 0;
            if self.left_out.is_none_or(|at| now.duration_since(at) >= PAUSE_MAX) {
                self.left_out = Some(now);
                return None;
            }
        }
        let pause = PAUSE_MIN.saturating_mul(2_u32.saturating_pow(self.failures));
        self.failures = self.failures.saturating_add(1);
        Some(pause.min(PAUSE_MAX))
    }
}

#[cfg(test)]
mod tests {
    use crate::{Clock, Node, RedisSetup, Sink, Vote};

    use super::*;

    struct Deaf;

    impl Sink for Deaf {
        fn vote(&self, _: Vote) {}
        fn event(&self, _: usize, _: NodeEvent) {}
    }

    /// Returns how long a pause of at most `pause` takes, in virtual time, if `meanwhile` happens
    /// 100 ms after its start.
    async fn paused_for(pause: Duration, urgent: bool, meanwhile: fn(&RedisNode)) -> Duration {
        let setup = RedisSetup::new(Clock::paused(), PAUSE_MAX);
        let node = Arc::new(RedisNode::new("redis://127.0.0.1:1", &setup).unwrap());
        node.set_urgent(true);
        node.set_urgent(urgent);
        let link = Link::new(node.clone(), Events::new(Arc::new(Deaf), 0));
        let begun = Instant::now();
        let pausing = tokio::spawn(async move { link.pause(pause).await });
        tokio::spawn(async move {
            sleep_until(begun + Duration::from_millis(100)).await;
            meanwhile(&node);
        });
        pausing.await.unwrap();
        begun.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_is_long_unless_a_connection_is_urgent() {
        let (ms, nothing): (_, fn(&RedisNode)) = (Duration::from_millis, |_| {});
        for _ in 0..20 {
            let long = paused_for(PAUSE_MAX, false, nothing).await;
            assert!((ms(500)..=ms(1001)).contains(&long), "{long:?}");
            let urgent = paused_for(PAUSE_MAX, true, nothing).await;
            assert!((ms(40)..=ms(81)).contains(&urgent), "{urgent:?}");
            let short = paused_for(PAUSE_MIN, true, nothing).await;
            assert!((ms(10)..=ms(21)).contains(&short), "{short:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_pause_ends_when_a_connection_becomes_urgent() {
        let took = paused_for(PAUSE_MAX, false, |node| node.set_urgent(true)).await;
        assert!(took <= Duration::from_millis(101), "{took:?}");
        let took = paused_for(PAUSE_MAX, true, |node| node.set_urgent(false)).await;
        assert!(took <= Duration::from_millis(81), "{took:?}");
    }

    #[test]
    fn pauses_double_up_to_a_second_and_restart_after_a_connection() {
        let (mut pauses, now) = (Pauses::default(), Instant::now());
        let mut next = |was_up| pauses.next(was_up, now).map(|pause| pause.as_millis());
        assert_eq!([false; 8].map(&mut next), [20, 40, 80, 160, 320, 640, 1000, 1000].map(Some));
        assert_eq!([true, false, false].map(&mut next), [None, Some(20), Some(40)]);
        assert_eq!([true, true].map(&mut next), [Some(20); 2], "one per second is not logged");
        assert_eq!(pauses.next(true, now + PAUSE_MAX), None);
    }
}
