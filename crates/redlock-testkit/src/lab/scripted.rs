//! `ScriptedServer`: a server that sends exactly the bytes that a test gives it.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::PATIENCE;

/// The reply of a server that has neither of two commands.
pub const KNOWS_NONE: &str = "*2\r\n*-1\r\n*-1\r\n";

/// The reply of a server before 6.0 to RESP3.
pub const NO_RESP3: &str = "-ERR unknown command 'HELLO'\r\n";
/// The two replies of a server before 6.0 to tracking.
pub const NO_TRACKING: &str = "-ERR Syntax error, try CLIENT HELP\r\n";

/// Listens on the loopback interface. Each connection is a [`Peer`], which the test plays.
#[derive(Debug)]
pub struct ScriptedServer {
    listener: TcpListener,
}

impl ScriptedServer {
    /// Listens on a free port.
    pub async fn bind() -> Self {
        Self { listener: TcpListener::bind("127.0.0.1:0").await.unwrap() }
    }

    /// `127.0.0.1:PORT`.
    pub fn name(&self) -> String {
        self.listener.local_addr().unwrap().to_string()
    }

    /// `redis://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("redis://{}", self.name())
    }

    /// Accepts the next connection.
    ///
    /// # Panics
    /// Panics if none arrives within [`PATIENCE`].
    pub async fn accept(&self) -> Peer {
        let accepted = timeout(PATIENCE, self.listener.accept()).await.expect("a connection");
        let stream = accepted.unwrap().0;
        stream.set_nodelay(true).unwrap();
        Peer { stream, unread: Vec::new() }
    }

    /// Accepts the next connection, and answers its handshake as a healthy master does.
    ///
    /// # Panics
    /// Panics if none arrives within [`PATIENCE`], or if it does not start with a handshake.
    pub async fn admit(&self, run_id: &str, client_id: u32) -> Peer {
        let mut peer = self.accept().await;
        peer.handshake(run_id, client_id).await;
        peer
    }
}

/// One connection, seen from the server. It is closed when the value is dropped.
#[derive(Debug)]
pub struct Peer {
    stream: TcpStream,
    unread: Vec<u8>,
}

impl Peer {
    /// Sends these bytes.
    ///
    /// # Panics
    /// When the client has gone.
    pub async fn say(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.unwrap();
    }

    /// Sends these bytes in pieces that the network does not put together again.
    ///
    /// # Panics
    /// As [`Peer::say`].
    pub async fn say_in_pieces(&mut self, bytes: &[u8], of: usize) {
        for piece in bytes.chunks(of) {
            self.say(piece).await;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Reads the words of the next command. Returns `None` if the client has disconnected.
    ///
    /// # Panics
    /// Panics if neither happens within [`PATIENCE`].
    pub async fn command(&mut self) -> Option<Vec<String>> {
        loop {
            if let Some((words, len)) = parse(&self.unread) {
                self.unread.drain(..len);
                return Some(words);
            }
            let read = timeout(PATIENCE, self.stream.read_buf(&mut self.unread)).await;
            // A client that leaves replies unread resets the connection.
            if read.expect("a command in time").unwrap_or(0) == 0 {
                return None;
            }
        }
    }

    /// Reads the words of the next command, which must begin with `first`.
    ///
    /// # Panics
    /// Panics if it is a different command, or if none arrives.
    pub async fn expect(&mut self, first: &str) -> Vec<String> {
        let words = self.command().await.expect("a command, not the end");
        assert_eq!(words[0], first, "{words:?}");
        words
    }

    /// Waits until the client has gone.
    ///
    /// # Panics
    /// When it sends a command.
    pub async fn expect_end(&mut self) {
        assert_eq!(self.command().await, None, "the client should have gone");
    }

    /// Answers a handshake as a master in good health does.
    ///
    /// # Panics
    /// When the client sends something else; so do the next two.
    pub async fn handshake(&mut self, run_id: &str, client_id: u32) {
        let facts = self.facts(run_id, client_id, "master").await;
        self.say(facts).await;
    }

    /// Answers a handshake as a replica does.
    pub async fn handshake_as_replica(&mut self, run_id: &str) {
        let facts = self.facts(run_id, 1, "slave").await;
        self.say(facts).await;
    }

    /// Reads all commands of a handshake, and returns the replies to them.
    pub async fn facts(&mut self, run_id: &str, client_id: u32, role: &str) -> String {
        let mut replies = String::new();
        loop {
            let words = self.command().await.expect("a handshake");
            match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
                ["AUTH", ..] | ["SELECT", _] | ["CLIENT", "SETINFO", ..] => replies += "+OK\r\n",
                ["HELLO", "3"] => replies += NO_RESP3,
                ["CLIENT", "TRACKING", "ON", "OPTIN"] | ["CLIENT", "CACHING", "YES"] => {
                    replies += NO_TRACKING;
                }
                ["COMMAND", "INFO", ..] => replies += KNOWS_NONE,
                ["CLIENT", "ID"] => replies += &format!(":{client_id}\r\n"),
                ["INFO", "server"] => {
                    replies += &bulk(&format!("redis_mode:standalone\r\nrun_id:{run_id}\r\n"));
                }
                ["INFO", "replication"] => return replies + &bulk(&format!("role:{role}\r\n")),
                _ => panic!("this is no part of a handshake: {words:?}"),
            }
        }
    }
}

/// Encodes a text as a bulk reply.
pub fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

/// A whole command at the beginning of `bytes`, and how long it is.
fn parse(bytes: &[u8]) -> Option<(Vec<String>, usize)> {
    let mut at = 0;
    let number = |sign: u8, at: &mut usize| -> Option<usize> {
        let end = bytes.get(*at..)?.windows(2).position(|pair| pair == b"\r\n")? + *at;
        assert_eq!(bytes[*at], sign, "no command: {}", bytes[*at..].escape_ascii());
        let number = str::from_utf8(&bytes[*at + 1..end]).unwrap().parse().unwrap();
        *at = end + 2;
        Some(number)
    };
    let words = number(b'*', &mut at)?;
    let mut command = Vec::with_capacity(words);
    for _ in 0..words {
        let len = number(b'$', &mut at)?;
        command.push(String::from_utf8_lossy(bytes.get(at..at + len)?).into_owned());
        at += len + 2;
    }
    (at <= bytes.len()).then_some((command, at))
}
