//! The life of connections: made, used, and made again.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::RedisNode;
use super::handshake::{Identity, Talk};
use super::pump::Pump;
use super::stream::{self, Stream, not_connected};
use crate::{Cause, Events, NodeEvent};

/// The first pause before a connection is tried again; it doubles with every failure.
const PAUSE_MIN: Duration = Duration::from_millis(20);
/// The longest such pause: a master that is back is reached within about a second.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Keeps a node connected until it is dropped.
pub(super) struct Link {
    node: Arc<RedisNode>,
    events: Events,
}

impl Link {
    /// From here on the first connection is being made, and not only from the first poll: a master
    /// that was never tried must not look like one that cannot be reached.
    pub(super) fn new(node: Arc<RedisNode>, events: Events) -> Self {
        node.wire().connecting();
        Self { node, events }
    }

    pub(super) async fn run(self) {
        let mut pause = PAUSE_MIN;
        loop {
            let was_up = self.session().await;
            pause = if was_up { PAUSE_MIN } else { PAUSE_MAX.min(pause * 2) };
            // Half of it is random, so that many clients do not come back in step.
            sleep(pause.mul_f64(rand::random_range(0.5..1.0))).await;
        }
    }

    /// One connection from beginning to end. Returns whether it ever was of use.
    async fn session(&self) -> bool {
        let opened = timeout(self.node.connect_timeout, self.open()).await;
        let (cause, was_up) = match opened.unwrap_or(Err(Cause::TimedOut)) {
            Err(cause) => (cause, false),
            Ok((stream, identity)) => {
                let facts = self.node.wire().up(identity);
                self.events.report(NodeEvent::Up(facts));
                (Pump::new(&self.node, stream).run().await, true)
            }
        };
        self.down(cause);
        was_up
    }

    /// A new connection, with nothing of the one before it left at the server.
    async fn open(&self) -> Result<(Box<dyn Stream>, Identity), Cause> {
        let node = &self.node;
        let mut stream = stream::connect(&node.address.place, node.tls.as_ref()).await?;
        let mut talk = Talk::new(&mut *stream);
        let identity = talk.greet(&node.address.login).await?;
        let predecessor = node.wire().predecessor(&identity);
        if let Some(predecessor) = predecessor {
            talk.kill(predecessor).await?;
        }
        Ok((stream, identity))
    }

    /// Requests without an answer are answered *unknown* before the event is reported.
    fn down(&self, cause: Cause) {
        let unanswered = self.node.wire().down(cause.clone());
        drop(unanswered);
        self.events.report(NodeEvent::Down { cause, retries_now: false });
    }
}

/// A node that is not driven any more leaves no request without an answer.
impl Drop for Link {
    fn drop(&mut self) {
        self.down(not_connected("the runtime that drove the connection is gone"));
    }
}
