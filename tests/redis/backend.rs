//! What the conformance tests run on here: a real server of their own.

use std::sync::Arc;
use std::time::Duration;

use redlock_core::{Clock, Node, RedisNode, RedisSetup};
use redlock_testkit::{RedisServer, ServerOptions};

fn node(url: &str) -> Arc<RedisNode> {
    let mut setup = RedisSetup::new(Clock::system(), Duration::from_secs(5));
    setup.namespace = Some((*b"locks:").into());
    Arc::new(RedisNode::new(url, &setup).unwrap())
}

pub(crate) struct Backend {
    node: Arc<RedisNode>,
    master: RedisServer,
}

impl Backend {
    pub(crate) async fn start() -> Self {
        let master = RedisServer::with(&ServerOptions::new().brand_new()).unwrap();
        Self { node: node(&master.url()), master }
    }

    /// A master that pushes nothing.
    pub(crate) async fn without_tracking() -> Self {
        let master = RedisServer::with(&ServerOptions::new().brand_new()).unwrap();
        let words = ["ACL", "SETUSER", "few", "on", ">secret", "~*", "+@all", "-client|tracking"];
        master.command(&words).unwrap();
        let url = format!("redis://few:secret@{}", master.name());
        Self { node: node(&url), master }
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

    /// Deletes all keys.
    pub(crate) async fn flush(&self) {
        self.master.command(&["FLUSHALL"]).unwrap();
    }
}
