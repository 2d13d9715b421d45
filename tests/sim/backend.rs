//! What the conformance tests run on here: a simulated master.

use std::sync::Arc;
use std::time::Duration;

use redlock_core::Node;
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

    pub(crate) fn node(&self) -> Arc<dyn Node> {
        self.master.clone()
    }

    /// Lets so much of the master's time pass.
    pub(crate) async fn pass(&self, time: Duration) {
        tokio::time::advance(time).await;
    }

    /// Sets a key as a stranger would.
    pub(crate) async fn put(&self, key: &[u8], value: &[u8], px: u64) {
        self.master.put(key, value, px);
    }

    /// Sets a key that is no string.
    pub(crate) async fn put_other_type(&self, key: &[u8], px: u64) {
        self.master.put_other_type(key, px);
    }

    /// Deletes all keys.
    pub(crate) async fn flush(&self) {
        self.master.flush();
    }
}
