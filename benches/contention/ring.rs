//! The floor between processes: contenders that know whose turn it is, each a process with raw
//! sockets.
//!
//! A contender watches the key while the previous one holds it, is woken by the push of the
//! release, sends its request to the master that pushed and then to the others, and releases on
//! all. This is the cost of a lock that passes between processes. No request is refused, and no
//! contender has to choose a time.

use std::env::temp_dir;
use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

use anyhow::Context;
use redis::{Cmd, Parser, Value, cmd};

use super::contender::{KEY, Orders, micros};
use super::figures::Hold;
use super::support::floor::{PX, RELEASE};

/// The sorted set with the ballots.
const BALLOTS: &str = "ballots";

struct Contender {
    masters: Vec<Master>,
    /// The socket on which the previous contender reports that it has the key.
    turn: UnixDatagram,
    next: PathBuf,
    digest: String,
}

struct Master {
    stream: TcpStream,
    parser: Parser,
    /// How many replies are still to come.
    owed: usize,
}

/// Returns the socket of the contender with this number. The start of a round is its name.
fn place(begin: u64, contender: usize) -> PathBuf {
    temp_dir().join(format!("redlock-ring-{begin}-{contender}"))
}

/// Takes turns with the others until the end.
pub fn contend(orders: Orders, names: &[&str]) -> anyhow::Result<Vec<Hold>> {
    let own = place(orders.begin, orders.first);
    let mut contender = Contender::join(orders, names).context("a contender of the floor")?;
    sleep(Duration::from_micros(orders.begin.saturating_sub(micros())));
    let holds = contender.take_turns(orders);
    fs::remove_file(own)?;
    holds
}

impl Contender {
    fn join(orders: Orders, names: &[&str]) -> anyhow::Result<Self> {
        let turn = UnixDatagram::bind(place(orders.begin, orders.first))?;
        turn.set_read_timeout(Some(Duration::from_secs(10)))?;
        let mut masters = Vec::with_capacity(names.len());
        for name in names {
            masters.push(Master::connect(name)?);
        }
        for command in [&["HELLO", "3"][..], &["CLIENT", "TRACKING", "ON", "OPTIN"]] {
            masters[0].send(cmd(command[0]).arg(&command[1..]))?;
        }
        masters[0].settle()?;
        let next = place(orders.begin, (orders.first + 1) % orders.of);
        let digest = redis::Script::new(RELEASE).get_hash().to_owned();
        Ok(Self { masters, turn, next, digest })
    }

    fn take_turns(&mut self, orders: Orders) -> anyhow::Result<Vec<Hold>> {
        let mut holds = Vec::new();
        let mut asked = micros();
        loop {
            if orders.first > 0 || !holds.is_empty() {
                self.turn.recv(&mut [0])?;
                self.watch()?;
            }
            let token = format!("{:018}{:018}", orders.first, holds.len());
            self.acquire(&token)?;
            let granted = micros();
            // The next one is gone where the end is near.
            let _ = self.turn.send_to(&[0], &self.next);
            sleep(Duration::from_micros(orders.hold_us));
            let released = micros();
            self.release(&token)?;
            holds.push(Hold { contender: orders.first, asked, granted, released });
            asked = released;
            if released >= orders.end {
                self.masters.iter_mut().try_for_each(Master::settle)?;
                return Ok(holds);
            }
        }
    }

    /// Waits until the key is free.
    fn watch(&mut self) -> anyhow::Result<()> {
        let first = &mut self.masters[0];
        first.settle()?;
        first.send(cmd("CLIENT").arg("CACHING").arg("YES"))?;
        first.send(cmd("GET").arg(KEY))?;
        first.reply()?;
        if first.reply()? != Value::Nil {
            while !matches!(first.read()?, Value::Push { .. }) {}
        }
        Ok(())
    }

    /// A ballot to each master follows the request, as for a lock with a fencing token.
    fn acquire(&mut self, token: &str) -> anyhow::Result<()> {
        let set = cmd("SET").arg(KEY).arg(token).arg("NX").arg("PX").arg(PX).clone();
        let ballot = cmd("ZADD").arg(BALLOTS).arg("GT").arg("CH").arg(micros()).arg(KEY).clone();
        let commands = [set, ballot, cmd("GET").arg(KEY).clone()];
        let (first, others) = self.masters.split_at_mut(1);
        first[0].send_all(&commands)?;
        first[0].settle()?;
        others.iter_mut().try_for_each(|master| master.send_all(&commands))?;
        let others_needed = others.len() / 2;
        others[..others_needed].iter_mut().try_for_each(Master::settle)
    }

    fn release(&mut self, token: &str) -> anyhow::Result<()> {
        let release = cmd("EVALSHA").arg(&self.digest).arg(1).arg(KEY).arg(token).clone();
        self.masters.iter_mut().try_for_each(|master| master.send(&release))
    }
}

impl Master {
    fn connect(name: &str) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(name)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        let mut master = Self { stream, parser: Parser::new(), owed: 0 };
        master.send(cmd("SCRIPT").arg("LOAD").arg(RELEASE))?;
        master.settle()?;
        Ok(master)
    }

    fn send(&mut self, command: &Cmd) -> anyhow::Result<()> {
        self.send_all(std::slice::from_ref(command))
    }

    fn send_all(&mut self, commands: &[Cmd]) -> anyhow::Result<()> {
        self.owed += commands.len();
        let packed: Vec<_> = commands.iter().map(Cmd::get_packed_command).collect();
        Ok(self.stream.write_all(&packed.concat())?)
    }

    /// Reads all replies that are still to come.
    fn settle(&mut self) -> anyhow::Result<()> {
        while self.owed > 0 {
            self.reply()?;
        }
        Ok(())
    }

    fn reply(&mut self) -> anyhow::Result<Value> {
        loop {
            match self.read()? {
                Value::Push { .. } => {}
                Value::ServerError(error) => anyhow::bail!("a master said {error:?}"),
                reply => {
                    self.owed -= 1;
                    return Ok(reply);
                }
            }
        }
    }

    fn read(&mut self) -> anyhow::Result<Value> {
        Ok(self.parser.parse_value(&mut self.stream)?)
    }
}
