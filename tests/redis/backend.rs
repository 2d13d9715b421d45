//! What the conformance tests run on here: a real server of their own.

use std::sync::Arc;
use std::time::Duration;

use redlock_core::{Clock, Node, NodeState, RedisNode, RedisSetup};
use redlock_testkit::RedisServer;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::timeout;

pub(crate) struct Backend {
    node: Arc<RedisNode>,
    driving: JoinHandle<()>,
    // Dropped last, when nobody talks to it any more.
    master: RedisServer,
}

impl Backend {
    pub(crate) async fn start() -> Self {
        let master = RedisServer::start().unwrap();
        let setup = RedisSetup::new(Clock::system(), Duration::from_secs(5));
        let node = Arc::new(RedisNode::new(&master.url(), &setup).unwrap());
        let changed = Arc::new(Notify::new());
        let tell = changed.clone();
        let drive = node.clone().drive(Arc::new(move || tell.notify_one())).unwrap();
        let driving = tokio::spawn(drive);
        let up = async {
            while !matches!(node.state(), NodeState::Up { .. }) {
                changed.notified().await;
            }
        };
        timeout(Duration::from_secs(10), up).await.expect("the master is reached");
        Self { node, driving, master }
    }

    pub(crate) fn node(&self) -> Arc<dyn Node> {
        self.node.clone()
    }

    /// Lets so much of the master's time pass.
    pub(crate) async fn pass(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    /// Sets a key as a stranger would.
    pub(crate) async fn put(&self, key: &[u8], value: &[u8], px: u64) {
        let (key, value) = (str::from_utf8(key).unwrap(), str::from_utf8(value).unwrap());
        self.master.command(&["SET", key, value, "PX", &px.to_string()]).unwrap();
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.driving.abort();
    }
}
