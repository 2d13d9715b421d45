//! `Node`: the one seam between the quorum and a master.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::admission::Identity;
use crate::{Events, Op, VoteSlot};

/// One of the N independent masters, real or simulated.
///
/// A node carries out requests in the order of their submission, over a reconnect as well, so a
/// release never overtakes the acquire it follows. A node has no timeout for a request. The caller
/// that counts the votes decides how long to wait.
///
/// A node reports facts and judges nothing: what several masters together mean is decided above.
pub trait Node: Send + Sync {
    /// Returns the display name of this master: `host:port`, without user or password.
    fn name(&self) -> &str;

    /// Submits one request. Returns immediately. The answer is cast through `slot`, now or later.
    ///
    /// A node that knows it cannot reach the master immediately answers [`Answer::unsent`]. An
    /// acquire is never sent twice: after a lost connection its outcome is *unknown*. A node that
    /// keeps nothing of its [admission](crate::admission) answers requests about it in the same
    /// way.
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

    /// Connects, and reports the state of the connection to `events`. The returned future does the
    /// node's input and output, and its owner polls it until it is dropped. `None` for a node that
    /// works without being polled, which reports [`NodeEvent::Up`] or [`NodeEvent::Down`]
    /// immediately.
    ///
    /// [`NodeEvent::Up`]: crate::NodeEvent::Up
    /// [`NodeEvent::Down`]: crate::NodeEvent::Down
    ///
    /// Dropping the future closes the connection. After that, this may be called again.
    fn drive(self: Arc<Self>, events: Events) -> Option<BoxFuture<'static, ()>>;

    /// Returns `true` for a master in virtual time. A handle must get the clock of that time,
    /// because otherwise its leases never end. Default: `false`.
    fn is_in_virtual_time(&self) -> bool {
        false
    }

    /// Sets whether a new connection is urgent, because a held lease lacks a copy on this master.
    /// While it is, the pauses between attempts to connect are short. Does nothing by default.
    fn set_urgent(&self, urgent: bool) {
        let _ = urgent;
    }
}
