//! `Node`: the one seam between the quorum and a master.

use std::sync::Arc;

use futures::future::BoxFuture;

use crate::{Cause, Op, VoteSlot};

/// One of the N independent masters, real or simulated.
///
/// Requests submitted to one node are carried out in the order of their submission, over a
/// reconnect too: a release never overtakes the acquire it follows. A node has no timeout of its
/// own for a request; whoever counts the votes decides how long it waits.
pub trait Node: Send + Sync {
    /// What people call this master: `host:port`, without user or password.
    fn name(&self) -> &str;

    /// Hands over one request. Returns at once; the answer is cast into `slot`, now or later.
    ///
    /// A node that knows it cannot reach the master answers [`Answer::unsent`] at once. An
    /// acquire is never sent twice: after a lost connection its outcome is *unknown*.
    ///
    /// [`Answer::unsent`]: crate::Answer::unsent
    fn submit(&self, op: Op, slot: VoteSlot);

    /// What is known about the connection.
    fn state(&self) -> NodeState {
        NodeState::Up { incarnation: 0 }
    }

    /// The node's own input and output, for whoever owns the node to poll until dropped; none for
    /// a node that answers without it. `changed` is called whenever [`Node::state`] changes.
    ///
    /// Dropping it closes the connection. It may be asked for again after that.
    fn drive(
        self: Arc<Self>,
        changed: Arc<dyn Fn() + Send + Sync>,
    ) -> Option<BoxFuture<'static, ()>> {
        drop(changed);
        None
    }
}

/// What is known about the connection to a master.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodeState {
    /// Never reached yet, and trying.
    Connecting,
    /// Reached and allowed to vote.
    Up {
        /// Counts the server processes seen at this address: when it changes, the master was
        /// restarted or replaced, and may have forgotten every key.
        incarnation: u64,
    },
    /// Not to be reached, or not allowed to vote; tried again in the background.
    Down(Cause),
}
