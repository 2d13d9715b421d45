//! `Node`: the one seam between the quorum and a master.

use std::sync::Arc;

use futures::future::BoxFuture;

use crate::admission::Identity;
use crate::{Events, Op, VoteSlot};

/// One of the N independent masters, real or simulated.
///
/// Requests submitted to one node are carried out in the order of their submission, over a
/// reconnect too: a release never overtakes the acquire it follows. A node has no timeout of its
/// own for a request; the counter of the votes decides how long it waits.
///
/// A node reports facts and judges nothing: what several masters together mean is decided above.
pub trait Node: Send + Sync {
    /// The name of this master for people: `host:port`, without user or password.
    fn name(&self) -> &str;

    /// Hands over one request. Returns at once; the answer is cast through `slot`, now or later.
    ///
    /// A node that knows it cannot reach the master answers [`Answer::unsent`] at once. An
    /// acquire is never sent twice: after a lost connection its outcome is *unknown*. A node that
    /// keeps nothing of its [admission](crate::admission) answers questions about that so, too.
    ///
    /// [`Answer::unsent`]: crate::Answer::unsent
    fn submit(&self, op: Op, slot: VoteSlot);

    /// Hands over requests that were made together, in their order, and leaves `requests` empty.
    /// Default: one by one.
    fn submit_all(&self, requests: &mut Vec<(Op, VoteSlot)>) {
        requests.drain(..).for_each(|(op, slot)| self.submit(op, slot));
    }

    /// Sets the identity with which this master is admitted, for the connection that is up; `None`
    /// if it is not admitted. Ballots and scores go to the set with this identity in its name;
    /// before this call they go to no set. A node must not take the identity from its own reads:
    /// only a caller that compares earlier reads with later ones notices that data was lost in
    /// between. Default: without effect, for a node that takes no ballots.
    fn set_admitted(&self, run: Option<Identity>) {
        let _ = run;
    }

    /// Connects, and reports to `events` what becomes of the connection. The future is the node's
    /// own input and output, for its owner to poll until it is dropped; none for a node that works
    /// without being polled, which reports [`NodeEvent::Up`] or [`NodeEvent::Down`] at once.
    ///
    /// [`NodeEvent::Up`]: crate::NodeEvent::Up
    /// [`NodeEvent::Down`]: crate::NodeEvent::Down
    ///
    /// Dropping the future closes the connection. It may be asked for again after that.
    fn drive(self: Arc<Self>, events: Events) -> Option<BoxFuture<'static, ()>>;

    /// Returns `true` for a master in virtual time. A handle must get the clock of that time, because
    /// otherwise its leases never end. Default: `false`.
    fn is_in_virtual_time(&self) -> bool {
        false
    }

    /// Whether a new connection is urgent, because a held lease lacks a copy on this master. The
    /// pauses between attempts to connect stay short then. Default: without effect.
    fn set_urgent(&self, urgent: bool) {
        let _ = urgent;
    }
}
