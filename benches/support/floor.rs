//! The floor: the same bytes as ours on raw sockets, and nothing else.
//!
//! One task plays all clients. Their requests are written together, replies are read in place, and
//! a client continues when a majority of the masters has answered it. All masters get the same
//! commands in the same order, so one reply counter per socket shows which commands are decided. A
//! client of Redlock cannot do with less.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::Write;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use anyhow::ensure;
use redis::Script;
use redlock_core::Member;
use redlock_core::admission::MEMBERS;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;

use super::Key;
use super::stats::{Samples, Stop};

pub const RELEASE: &str = include_str!("../../crates/redlock-core/src/redis/scripts/release.lua");
const EXTEND: &str = concat!(
    include_str!("../../crates/redlock-core/src/redis/scripts/extend.lua"),
    include_str!("../../crates/redlock-core/src/redis/scripts/shown.lua")
);
/// The expiry on the wire for a TTL of ten seconds: the TTL and its clock guard.
pub const PX: u64 = 11_000;
/// The length of a token: that of a UUID as text.
const TOKEN_LEN: usize = 36;
/// A separate ballot set, with a name as long as the library's.
const BALLOTS: &str = "the-floor-bench:1:ballots:0123456789abcdef";

/// Raw sockets to a set of masters.
pub struct Floor {
    sockets: Vec<Socket>,
    release: String,
    /// The masters have a command for releases, as Valkey 9 does.
    has_release: bool,
    extend: String,
    command: Vec<u8>,
    /// The bytes to every master after the name of the ballot set.
    behind: Vec<u8>,
    /// Each acquire takes a ballot with it.
    is_fenced: bool,
    /// How many commands every master was sent.
    sent: u64,
}

/// One connection, whose replies are counted.
pub struct Socket {
    stream: TcpStream,
    writing: Vec<u8>,
    written: usize,
    reading: Box<[u8]>,
    filled: usize,
    /// How many commands the master has answered.
    replied: u64,
    /// How many lines of the answer to a fenced acquire are still to come.
    behind: u8,
    is_fenced: bool,
    is_dead: bool,
}

/// A client that waits for the answer to its latest command.
struct Waiting {
    client: usize,
    token: u64,
    since: Instant,
    acquired: Option<Instant>,
}

/// Whether this master knows `DELIFEQ`.
fn releases_by_command(name: &str) -> bool {
    let connection =
        redis::Client::open(format!("redis://{name}")).and_then(|client| client.get_connection());
    let released = |mut connection| redis::cmd("DELIFEQ").arg("none").arg("").exec(&mut connection);
    connection.and_then(released).is_ok()
}

impl Floor {
    /// Connects to masters at `host:port` and has them load the scripts.
    pub async fn connect(names: &[String]) -> anyhow::Result<Self> {
        let mut sockets = Vec::with_capacity(names.len());
        for name in names {
            sockets.push(Socket::connect(name).await?);
        }
        let digest = |code| Script::new(code).get_hash().to_owned();
        let (release, extend) = (digest(RELEASE), digest(EXTEND));
        let (command, behind) = (Vec::new(), Vec::new());
        let has_release = names.iter().all(|name| releases_by_command(name));
        let is_fenced = false;
        Ok(Self { sockets, release, has_release, extend, command, behind, is_fenced, sent: 0 })
    }

    /// The same with a ballot after each acquire, in a separate ballot set.
    pub async fn connect_fenced(names: &[String]) -> anyhow::Result<Self> {
        let mut floor = Self::connect(names).await?;
        for socket in &mut floor.sockets {
            socket.write_ballots().await?;
        }
        floor.is_fenced = true;
        Ok(floor)
    }

    /// Runs `clients` clients, each with its own key, that acquire and release until `stop`.
    pub async fn run(&mut self, clients: usize, stop: Stop) -> anyhow::Result<Samples> {
        let mut samples = Samples::default();
        let mut decided = self.sent;
        let mut line = VecDeque::with_capacity(clients);
        for client in 0..clients {
            line.push_back(self.acquire(client)?);
        }
        while !line.is_empty() {
            let replied = self.majority_beyond(decided).await?;
            for _ in decided..replied {
                // The line has one client per undecided command.
                let Some(client) = line.pop_front() else { break };
                line.extend(self.advance(client, stop, &mut samples)?);
            }
            decided = replied;
        }
        Ok(samples)
    }

    /// Sets `locks` keys, with as many requests on their way as `window`, and leaves them.
    pub async fn hold(&mut self, locks: usize, window: u64) -> anyhow::Result<()> {
        self.all(locks, window, |floor, lock| floor.send_acquire(lock, lock as u64)).await
    }

    /// Extends the keys that [`hold`](Self::hold) has set, once.
    pub async fn extend(&mut self, locks: usize, window: u64) -> anyhow::Result<()> {
        self.all(locks, window, Self::send_extend).await
    }

    /// Reads the replies that are still to come, so that nothing of a round is left for the next.
    pub async fn settle(&mut self) -> anyhow::Result<()> {
        poll_fn(|cx| {
            self.poll_sockets(cx)?;
            let mut living = self.sockets.iter().filter(|socket| !socket.is_dead);
            let is_settled = living.all(|socket| socket.replied == self.sent);
            if is_settled { Poll::Ready(Ok(())) } else { Poll::Pending }
        })
        .await
    }

    async fn all(
        &mut self,
        locks: usize,
        window: u64,
        send: fn(&mut Self, usize) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let begin = self.sent;
        for lock in 0..locks {
            send(self, lock)?;
            if (self.sent - begin).is_multiple_of(window) {
                self.majority_beyond(self.sent - window / 2).await?;
            }
        }
        self.majority_beyond(self.sent - 1).await?;
        self.settle().await
    }

    /// Returns the next step of a client whose latest command is decided. `None` if it is finished.
    fn advance(
        &mut self,
        was: Waiting,
        stop: Stop,
        samples: &mut Samples,
    ) -> anyhow::Result<Option<Waiting>> {
        let now = Instant::now();
        let Some(acquired) = was.acquired else {
            self.send_release(was.client, was.token)?;
            return Ok(Some(Waiting { acquired: Some(now), ..was }));
        };
        samples.push(was.since, acquired, now);
        if stop.is_over(samples.len(), now) {
            return Ok(None);
        }
        self.acquire(was.client).map(Some)
    }

    fn acquire(&mut self, client: usize) -> anyhow::Result<Waiting> {
        let (since, token) = (Instant::now(), self.sent);
        self.send_acquire(client, token)?;
        Ok(Waiting { client, token, since, acquired: None })
    }

    fn send_acquire(&mut self, client: usize, token: u64) -> anyhow::Result<()> {
        let key = Key('f', client);
        write!(self.command, "*6\r\n$3\r\nSET\r\n${}\r\n{key}\r\n", Key::LEN)?;
        write!(self.command, "${TOKEN_LEN}\r\n{token:0TOKEN_LEN$}\r\n")?;
        write!(self.command, "$2\r\nNX\r\n$2\r\nPX\r\n$5\r\n{PX}\r\n")?;
        if self.is_fenced {
            self.ballot_behind(&key)?;
        }
        self.send();
        Ok(())
    }

    /// `ZADD ballots XX GT CH ballot member` and `GET key`. Every ballot is above all before it.
    fn ballot_behind(&mut self, key: &Key) -> anyhow::Result<()> {
        /// As long as a ballot is that follows the clock.
        const BALLOT: u64 = 1_700_000_000_000_000;
        let (ballot, name) = (BALLOT + 32 * self.sent, key.to_string());
        let member = Member::of(name.as_bytes()).number().to_string();
        write!(self.behind, "*7\r\n$4\r\nZADD\r\n${}\r\n{BALLOTS}\r\n", BALLOTS.len())?;
        write!(self.behind, "$2\r\nXX\r\n$2\r\nGT\r\n$2\r\nCH\r\n$16\r\n{ballot}\r\n")?;
        write!(self.behind, "${}\r\n{member}\r\n", member.len())?;
        write!(self.behind, "*2\r\n$3\r\nGET\r\n${}\r\n{key}\r\n", Key::LEN)?;
        self.command.append(&mut self.behind);
        Ok(())
    }

    fn send_release(&mut self, client: usize, token: u64) -> anyhow::Result<()> {
        let (key, digest) = (Key('f', client), &self.release);
        match self.has_release {
            true => write!(self.command, "*3\r\n$7\r\nDELIFEQ\r\n")?,
            false => {
                write!(self.command, "*5\r\n$7\r\nEVALSHA\r\n$40\r\n{digest}\r\n$1\r\n1\r\n")?;
            }
        }
        write!(self.command, "${}\r\n{key}\r\n", Key::LEN)?;
        write!(self.command, "${TOKEN_LEN}\r\n{token:0TOKEN_LEN$}\r\n")?;
        self.send();
        Ok(())
    }

    fn send_extend(&mut self, client: usize) -> anyhow::Result<()> {
        let (key, digest) = (Key('f', client), &self.extend);
        write!(self.command, "*6\r\n$7\r\nEVALSHA\r\n$40\r\n{digest}\r\n$1\r\n1\r\n")?;
        write!(self.command, "${}\r\n{key}\r\n", Key::LEN)?;
        write!(self.command, "${TOKEN_LEN}\r\n{client:0TOKEN_LEN$}\r\n$5\r\n{PX}\r\n")?;
        self.send();
        Ok(())
    }

    /// Queues the command for every socket. The next poll writes it.
    fn send(&mut self) {
        for socket in &mut self.sockets {
            socket.write(&self.command);
        }
        self.command.clear();
        self.sent += 1;
    }

    /// Waits until a majority has answered more than `decided` commands, and returns their number.
    async fn majority_beyond(&mut self, decided: u64) -> anyhow::Result<u64> {
        poll_fn(|cx| {
            self.poll_sockets(cx)?;
            let replied = self.majority();
            if replied > decided { Poll::Ready(Ok(replied)) } else { Poll::Pending }
        })
        .await
    }

    /// Returns how many commands a majority has answered: the q-th largest counter.
    fn majority(&self) -> u64 {
        let reached = |count: u64| {
            let there = self.sockets.iter().filter(|socket| socket.replied >= count);
            there.count() > self.sockets.len() / 2
        };
        let counts = self.sockets.iter().map(|socket| socket.replied);
        counts.filter(|count| reached(*count)).max().unwrap_or(0)
    }

    fn poll_sockets(&mut self, cx: &mut Context<'_>) -> anyhow::Result<()> {
        self.sockets.iter_mut().try_for_each(|socket| socket.poll(cx))
    }
}

impl Socket {
    pub async fn connect(name: &str) -> anyhow::Result<Self> {
        let mut stream = TcpStream::connect(name).await?;
        stream.set_nodelay(true)?;
        for code in [RELEASE, EXTEND] {
            let load = redis::cmd("SCRIPT").arg("LOAD").arg(code).get_packed_command();
            stream.write_all(&load).await?;
            // "$40", the digest, and two line ends.
            stream.read_exact(&mut [0; 5 + 40 + 2]).await?;
        }
        Ok(Self {
            stream,
            writing: Vec::new(),
            written: 0,
            reading: vec![0; 1 << 16].into(),
            filled: 0,
            replied: 0,
            behind: 0,
            is_fenced: false,
            is_dead: false,
        })
    }

    /// Creates the ballot set again, with all its members.
    async fn write_ballots(&mut self) -> anyhow::Result<()> {
        let mut write = redis::cmd("ZADD");
        write.arg(BALLOTS);
        for member in 0..MEMBERS {
            write.arg(0).arg(member);
        }
        let delete = redis::cmd("DEL").arg(BALLOTS).get_packed_command();
        self.stream.write_all(&[delete, write.get_packed_command()].concat()).await?;
        // ":0" or ":1", ":1024", and their line ends.
        self.stream.read_exact(&mut [0; 4 + 7]).await?;
        self.is_fenced = true;
        Ok(())
    }

    /// Queues a command. The next poll writes it.
    pub fn write(&mut self, command: &[u8]) {
        self.writing.extend_from_slice(command);
    }

    /// Returns how many commands the master has answered.
    pub fn replied(&self) -> u64 {
        self.replied
    }

    /// Writes and reads until the socket would block. A broken socket is not used again.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> anyhow::Result<()> {
        while !self.is_dead && self.written < self.writing.len() {
            match Pin::new(&mut self.stream).poll_write(cx, &self.writing[self.written..]) {
                Poll::Pending => break,
                Poll::Ready(Ok(len)) => self.written += len,
                Poll::Ready(Err(_)) => self.is_dead = true,
            }
        }
        if self.written == self.writing.len() {
            self.writing.clear();
            self.written = 0;
        }
        while !self.is_dead {
            let mut free = ReadBuf::new(&mut self.reading[self.filled..]);
            match Pin::new(&mut self.stream).poll_read(cx, &mut free) {
                Poll::Pending => break,
                Poll::Ready(Ok(())) if !free.filled().is_empty() => {
                    self.filled += free.filled().len();
                    self.count()?;
                }
                Poll::Ready(_) => self.is_dead = true,
            }
        }
        Ok(())
    }

    /// Counts the replies that have come. Each is one line, and each must say yes.
    fn count(&mut self) -> anyhow::Result<()> {
        let mut at = 0;
        while let Some(end) = self.reading[at..self.filled].iter().position(|byte| *byte == b'\n') {
            let reply = &self.reading[at..=at + end];
            let is_ours = match self.behind {
                0 => matches!(reply, b"+OK\r\n" | b":1\r\n"),
                3 => reply == b":1\r\n",
                2 => reply == b"$36\r\n",
                _ => reply.len() == TOKEN_LEN + 2,
            };
            ensure!(is_ours, "said {}", reply.escape_ascii());
            self.behind = match self.behind {
                0 if self.is_fenced && reply == b"+OK\r\n" => 3,
                behind => behind.saturating_sub(1),
            };
            at += end + 1;
            self.replied += u64::from(self.behind == 0);
        }
        self.reading.copy_within(at..self.filled, 0);
        self.filled -= at;
        Ok(())
    }
}
