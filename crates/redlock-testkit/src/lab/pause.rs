//! `Paused`: a server that is stopped until a value is dropped.

use crate::RedisServer;

/// A real server under SIGSTOP. It goes on (SIGCONT) when the value is dropped, also while a panic
/// unwinds.
#[derive(Debug)]
#[must_use = "a server goes on when this is dropped"]
pub struct Paused<'a>(&'a RedisServer);

impl<'a> Paused<'a> {
    /// Pauses a server, and returns when it stands still.
    ///
    /// # Panics
    /// When the server is not running, or does not stop within 5 s.
    pub fn new(server: &'a RedisServer) -> Self {
        server.pause().unwrap();
        Self(server)
    }

    /// Pauses several servers, one after the other.
    ///
    /// # Panics
    /// As [`Paused::new`].
    pub fn all(servers: impl IntoIterator<Item = &'a RedisServer>) -> Vec<Self> {
        servers.into_iter().map(Self::new).collect()
    }
}

impl Drop for Paused<'_> {
    fn drop(&mut self) {
        // It fails only for a server that has ended meanwhile.
        let _ = self.0.resume();
    }
}
