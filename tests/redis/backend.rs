//! The backend of the conformance tests: a separate real server.

use std::sync::Arc;
use std::time::{Duration, Instant};

use redlock_core::{Clock, Member, Node, RedisNode, RedisSetup};
use redlock_testkit::lab::{NO_TRACKING_RIGHTS, PATIENCE, text};
use redlock_testkit::{RedisServer, ServerOptions};

fn node(url: &str, quarantine: bool) -> Arc<RedisNode> {
    let mut setup = RedisSetup::new(Clock::system(), Duration::from_secs(5));
    setup.namespace = Some((*b"locks:").into());
    setup.quarantine = quarantine;
    Arc::new(RedisNode::new(url, &setup).unwrap())
}

pub(crate) struct Backend {
    node: Arc<RedisNode>,
    master: RedisServer,
}

impl Backend {
    pub(crate) async fn start() -> Self {
        Self::with(&ServerOptions::new(), true)
    }

    /// Returns a master that pushes changes, and a master without RESP3 that pushes nothing.
    pub(crate) async fn of_each_protocol() -> [Self; 2] {
        let old = ServerOptions::new().arguments(["--rename-command", "HELLO", "NOT-HELLO"]);
        [Self::start().await, Self::with(&old, true)]
    }

    /// A master of clients that have no quarantine.
    pub(crate) async fn without_quarantine() -> Self {
        Self::with(&ServerOptions::new(), false)
    }

    fn with(options: &ServerOptions, quarantine: bool) -> Self {
        let master = RedisServer::with(&options.clone().brand_new()).unwrap();
        Self { node: node(&master.url(), quarantine), master }
    }

    /// A master that pushes nothing.
    pub(crate) async fn without_tracking() -> Self {
        let master = RedisServer::with(&ServerOptions::new().brand_new()).unwrap();
        let words = ["ACL", "SETUSER", "few", "on", ">secret", "~*", "+@all"];
        master.command(&[&words[..], &NO_TRACKING_RIGHTS].concat()).unwrap();
        let url = format!("redis://few:secret@{}", master.name());
        Self { node: node(&url, true), master }
    }

    pub(crate) fn node(&self) -> Arc<dyn Node> {
        self.node.clone()
    }

    /// The same master over another connection.
    pub(crate) fn another_node(&self) -> Arc<dyn Node> {
        node(&self.master.url(), true)
    }

    /// Lets so much of the master's time pass.
    pub(crate) async fn pass(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    /// Waits until the server has noticed that the subscriber of a channel is gone.
    pub(crate) async fn until_deserted(&self, channel: &[u8]) {
        let channel = str::from_utf8(channel).unwrap();
        let deadline = Instant::now() + PATIENCE;
        while text::<(String, u32)>(&self.master, &["PUBSUB", "NUMSUB", channel]).1 > 0 {
            assert!(Instant::now() < deadline, "{channel} has a subscriber");
            self.pass(Duration::from_millis(5)).await;
        }
    }

    /// Sets a key as a stranger would.
    pub(crate) async fn put(&self, key: &[u8], value: &[u8], px: u64) {
        let (key, value) = (str::from_utf8(key).unwrap(), str::from_utf8(value).unwrap());
        self.master.command(&["SET", key, value, "PX", &px.to_string()]).unwrap();
    }

    /// Sets a key that is not a string.
    pub(crate) async fn put_other_type(&self, key: &[u8], px: u64) {
        let key = str::from_utf8(key).unwrap();
        self.master.command(&["RPUSH", key, "a"]).unwrap();
        self.master.command(&["PEXPIRE", key, &px.to_string()]).unwrap();
    }

    /// Removes one member of the only ballot set.
    pub(crate) async fn remove_member(&self, member: Member) {
        self.master.command(&["ZREM", &self.ballots(), &member.number().to_string()]).unwrap();
    }

    /// Sets the score of a member to more than any client writes.
    pub(crate) async fn raise_beyond(&self, member: Member) {
        let member = member.number().to_string();
        self.master.command(&["ZADD", &self.ballots(), "inf", &member]).unwrap();
    }

    fn ballots(&self) -> String {
        let pattern = "locks:redlock-quorum:1:ballots*";
        let found: Vec<String> = text(&self.master, &["KEYS", pattern]);
        found[0].clone()
    }

    /// Makes the server reject all ballots.
    pub(crate) async fn refuse_ballots(&self) {
        self.master.command(&["ACL", "SETUSER", "default", "-zadd"]).unwrap();
    }

    /// Deletes all keys.
    pub(crate) async fn flush(&self) {
        self.master.command(&["FLUSHALL"]).unwrap();
    }
}
