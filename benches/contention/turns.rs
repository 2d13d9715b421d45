//! The floor within one process: contenders that know whose turn it is, on raw sockets.
//!
//! One task plays all of them. It writes the unavoidable commands of a lock in turn: a release to
//! all masters, followed by the next acquire.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use tokio::time::sleep;

use super::contender::{KEY, micros};
use super::figures::Hold;
use super::support::floor::{PX, RELEASE, Socket};

/// Raw sockets to a set of masters.
pub struct Turns {
    sockets: Vec<Socket>,
    digest: String,
    /// How many commands each master was sent.
    sent: u64,
}

impl Turns {
    pub async fn connect(names: &[String]) -> anyhow::Result<Self> {
        let mut sockets = Vec::with_capacity(names.len());
        for name in names {
            sockets.push(Socket::connect(name).await?);
        }
        Ok(Self { sockets, digest: redis::Script::new(RELEASE).get_hash().to_owned(), sent: 0 })
    }

    /// Passes the lock round until `end`, on the common clock. A contender requests it again
    /// immediately after its release.
    pub async fn run(
        &mut self,
        contenders: usize,
        hold: Duration,
        end: u64,
    ) -> anyhow::Result<Vec<Hold>> {
        let mut asked = vec![micros(); contenders];
        let mut holds = Vec::new();
        for contender in (0..contenders).cycle() {
            self.acquire(holds.len()).await?;
            let granted = micros();
            if !hold.is_zero() {
                sleep(hold).await;
            }
            let released = micros();
            holds.push(Hold { contender, asked: asked[contender], granted, released });
            self.release(holds.len() - 1);
            asked[contender] = released;
            if released >= end {
                break;
            }
        }
        self.answered(self.sockets.len()).await?;
        Ok(holds)
    }

    async fn acquire(&mut self, token: usize) -> anyhow::Result<()> {
        self.send(&["SET", KEY, &word(token), "NX", "PX", &PX.to_string()]);
        self.answered(self.sockets.len() / 2 + 1).await
    }

    fn release(&mut self, token: usize) {
        let digest = self.digest.clone();
        self.send(&["EVALSHA", &digest, "1", KEY, &word(token)]);
    }

    fn send(&mut self, words: &[&str]) {
        let command = redis::cmd(words[0]).arg(&words[1..]).get_packed_command();
        self.sent += 1;
        self.sockets.iter_mut().for_each(|socket| socket.write(&command));
    }

    /// Waits until so many masters have answered all that they were sent.
    async fn answered(&mut self, masters: usize) -> anyhow::Result<()> {
        poll_fn(|cx| {
            self.sockets.iter_mut().try_for_each(|socket| socket.poll(cx))?;
            let answered = self.sockets.iter().filter(|socket| socket.replied() == self.sent);
            if answered.count() >= masters { Poll::Ready(Ok(())) } else { Poll::Pending }
        })
        .await
    }
}

/// A value of the length of a token.
fn word(token: usize) -> String {
    format!("{token:036}")
}
