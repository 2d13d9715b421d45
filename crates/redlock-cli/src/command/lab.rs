//! Fixtures for the tests of several commands.

use redlock_quorum::{InitNode, Redlock};
use redlock_testkit::SimNodes;

/// Returns the report of an `init` on three simulated masters.
pub(super) async fn nodes() -> Vec<InitNode> {
    let masters = SimNodes::new(3, 1);
    let redlock = Redlock::builder().masters(masters.nodes()).clock(masters.clock());
    redlock.build().unwrap().init().await.unwrap().nodes
}
