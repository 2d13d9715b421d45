//! What the conformance tests run on here: a real server of their own.

use std::sync::Arc;
use std::time::Duration;

use redlock_core::{Clock, Events, Node, NodeEvent, RedisNode, RedisSetup, Sink, Vote};
use redlock_testkit::RedisServer;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Waits for the first connection.
#[derive(Default)]
struct Reached(Notify);

impl Sink for Reached {
    fn vote(&self, _vote: Vote) {}

    fn event(&self, _master: usize, event: NodeEvent) {
        if let NodeEvent::Up(_) = event {
            self.0.notify_one();
        }
    }
}

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
        let reached = Arc::new(Reached::default());
        let drive = node.clone().drive(Events::new(reached.clone(), 0)).unwrap();
        let driving = tokio::spawn(drive);
        let up = timeout(Duration::from_secs(10), reached.0.notified());
        up.await.expect("the master is reached");
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

    /// Sets a key that is no string.
    pub(crate) async fn put_other_type(&self, key: &[u8], px: u64) {
        let key = str::from_utf8(key).unwrap();
        self.master.command(&["RPUSH", key, "a"]).unwrap();
        self.master.command(&["PEXPIRE", key, &px.to_string()]).unwrap();
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.driving.abort();
    }
}
