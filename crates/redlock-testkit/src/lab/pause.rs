//! `Paused`: a server that is stopped until a value is dropped.

use crate::RedisServer;

/// A real server under SIGSTOP. It continues (SIGCONT) when the value is dropped, also during a
/// panic.
#[derive(Debug)]
#[must_use = "a server goes on when this is dropped"]
pub struct Paused<'a>(&'a RedisServer);

impl<'a> Paused<'a> {
    /// Pauses a server, and returns once it has stopped.
    ///
    /// # Panics
    /// Panics if the server is not running, or does not stop within 5 s.
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
        // Fails only if the server has exited in the meantime.
        let _ = self.0.resume();
    }
}
