//! The backend of the conformance tests: a simulated master.

use std::sync::Arc;
use std::time::Duration;

use redlock_core::admission::SCORE_END;
use redlock_core::{Member, Node};
use redlock_testkit::{SimNode, SimNodes};

pub(crate) struct Backend {
    master: Arc<SimNode>,
}

impl Backend {
    pub(crate) async fn start() -> Self {
        tokio::time::pause();
        Self { master: SimNodes::new(1, 0)[0].clone() }
    }

    /// A master that pushes nothing.
    pub(crate) async fn without_tracking() -> Self {
        let backend = Self::start().await;
        backend.master.set_tracking(false);
        backend
    }

    /// Returns a master that pushes changes, and a master without RESP3 that pushes nothing.
    pub(crate) async fn of_each_protocol() -> [Self; 2] {
        let (new, old) = (Self::start().await, SimNodes::new(1, 0)[0].clone());
        old.set_tracking(false);
        [new, Self { master: old }]
    }

    /// A master of clients that have no quarantine.
    pub(crate) async fn without_quarantine() -> Self {
        let backend = Self::start().await;
        backend.master.set_quarantine(false);
        backend
    }

    pub(crate) fn node(&self) -> Arc<dyn Node> {
        self.master.clone()
    }

    /// The same master over another connection.
    pub(crate) fn another_node(&self) -> Arc<dyn Node> {
        self.master.another_client()
    }

    /// Lets so much of the master's time pass.
    pub(crate) async fn pass(&self, time: Duration) {
        tokio::time::advance(time).await;
    }

    /// A simulated master notices immediately that a subscriber is gone.
    pub(crate) async fn until_deserted(&self, _channel: &[u8]) {}

    /// Sets a key as a stranger would.
    pub(crate) async fn put(&self, key: &[u8], value: &[u8], px: u64) {
        self.master.put(key, value, px);
    }

    /// Sets a key that is not a string.
    pub(crate) async fn put_other_type(&self, key: &[u8], px: u64) {
        self.master.put_other_type(key, px);
    }

    /// Removes one member of the only ballot set.
    pub(crate) async fn remove_member(&self, member: Member) {
        self.master.edit_data(|data| data.sets[0].1.remove(member));
    }

    /// Sets the score of a member to more than any client writes.
    pub(crate) async fn raise_beyond(&self, member: Member) {
        self.master.edit_data(|data| assert!(data.sets[0].1.raise(member, SCORE_END)));
    }

    /// Makes the master reject all ballots.
    pub(crate) async fn refuse_ballots(&self) {
        let error = "NOPERM this user has no permissions to run the 'zadd' command";
        self.master.refuse_ballots(Some(error));
    }

    /// Deletes all keys.
    pub(crate) async fn flush(&self) {
        self.master.flush();
    }
}
