//! Many contenders for one key: tasks of one process, and processes.
//!
//! The contestants run in turn, each round on separate masters: this library, this library on
//! masters without pushes (so it polls), `rslock`, and the floor, whose contenders know whose turn
//! it is.

// Modules of a program, and no library.
#![allow(unreachable_pub)]

#[path = "../support/mod.rs"]
mod support;

mod contender;
mod figures;
mod requests;
mod ring;
mod turns;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use redlock_testkit::{RedisServer, RedisServers};

use contender::{MASTERS, ORDERS, Orders, Who, micros};
use figures::{Figures, Hold, NAMES, REQUESTS};
use requests::Count;
use support::stats::median;
use turns::Turns;

/// The contenders, how long they hold the lock, and the fault.
#[derive(Clone, Copy)]
struct Case {
    processes: usize,
    /// In each process.
    tasks: usize,
    hold_us: u64,
    life: Life,
    trouble: Trouble,
    /// The clients of the second half of the processes, if they differ.
    beside: Option<Who>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Life {
    /// A process contends for the whole round.
    Long,
    /// A process ends with its first lock, and another one follows it.
    Short,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Trouble {
    None,
    /// A master dies in the middle of the round: not the meeting point, or just that one.
    OtherDies,
    MeetingPointDies,
}

/// One line of a table.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Contestant {
    Client(Who),
    Floor,
}

const CONTESTANTS: [Contestant; 5] = [
    Contestant::Client(Who::Redlock),
    Contestant::Client(Who::NoQueue),
    Contestant::Client(Who::Polling),
    Contestant::Client(Who::Rslock),
    Contestant::Floor,
];

fn main() -> anyhow::Result<()> {
    if let Ok(orders) = std::env::var(ORDERS) {
        return contender::contend(&orders);
    }
    let is_quick = std::env::args().any(|arg| arg == "--quick");
    let (rounds, seconds) = if is_quick { (1, 2) } else { (5, 3) };
    for case in cases().into_iter().filter(Case::is_wanted) {
        race(case, rounds, seconds)?;
    }
    let even = [8, 32].map(|processes| Case { processes, ..CASE });
    for case in even.into_iter().filter(|case| !is_quick && case.is_wanted()) {
        println!("\nFor half a minute, because shares even out:");
        race(case, 1, 30)?;
    }
    Ok(())
}

const CASE: Case = Case {
    processes: 8,
    tasks: 1,
    hold_us: 1_000,
    life: Life::Long,
    trouble: Trouble::None,
    beside: None,
};

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for hold_us in [1_000, 0] {
        for (processes, tasks) in [(1, 1), (1, 64), (1, 1_000), (8, 1), (32, 1)] {
            cases.push(Case { processes, tasks, hold_us, ..CASE });
        }
    }
    for processes in [8, 32] {
        cases.push(Case { processes, life: Life::Short, ..CASE });
    }
    cases.push(Case { trouble: Trouble::OtherDies, ..CASE });
    cases.push(Case { trouble: Trouble::MeetingPointDies, ..CASE });
    for beside in [Who::Rslock, Who::NoQueue] {
        cases.push(Case { beside: Some(beside), ..CASE });
    }
    cases
}

/// Rounds in turn, so that what else the machine does meets all alike.
fn race(case: Case, rounds: usize, seconds: u64) -> anyhow::Result<()> {
    println!("\n{}", case.name());
    let takes_part: Vec<_> = CONTESTANTS.into_iter().filter(|who| case.suits(*who)).collect();
    let mut outcomes = vec![Vec::new(); takes_part.len()];
    for round in 0..rounds {
        for turn in 0..takes_part.len() {
            let place = (round + turn) % takes_part.len();
            outcomes[place].push(case.round(takes_part[place], seconds)?);
        }
    }
    for (place, name) in NAMES.iter().enumerate() {
        let of = |rounds: &Vec<Figures>| {
            let values: Vec<f64> = rounds.iter().map(|figures| figures[place]).collect();
            median(&values).unwrap_or(f64::NAN)
        };
        line(name, &takes_part, outcomes.iter().map(of));
    }
    if case.trouble == Trouble::None {
        let counts = takes_part.iter().map(|who| case.requests(*who));
        let counts = counts.collect::<anyhow::Result<Vec<f64>>>()?;
        line(REQUESTS, &takes_part, counts.into_iter());
    }
    Ok(())
}

fn line(name: &str, takes_part: &[Contestant], values: impl Iterator<Item = f64>) {
    print!("  {name:<24}");
    for (who, value) in takes_part.iter().zip(values) {
        print!("  {} {value:>9.2}", who.name());
    }
    println!();
}

impl Contestant {
    fn name(self) -> &'static str {
        match self {
            Self::Client(who) => who.name(),
            Self::Floor => "floor",
        }
    }
}

impl Case {
    /// Returns `true` if the arguments select this case. Arguments that are not options are parts
    /// of the names of cases, and `$` is the end of a name.
    fn is_wanted(&self) -> bool {
        let mut parts = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).peekable();
        let is_any = parts.peek().is_none();
        is_any || parts.any(|part| format!("{}$", self.name()).contains(&part))
    }

    fn name(&self) -> String {
        let Self { processes, tasks, hold_us, .. } = self;
        let life = if self.life == Life::Short { ", each for one lock" } else { "" };
        let trouble = match self.trouble {
            Trouble::None => "",
            Trouble::OtherDies => ", a master dies",
            Trouble::MeetingPointDies => ", the meeting point dies",
        };
        let beside = self.beside.map(|who| format!(", half of them {}", who.name()));
        let beside = beside.unwrap_or_default();
        format!("{processes} processes x {tasks} tasks, hold {hold_us} us{life}{trouble}{beside}")
    }

    /// The floor knows no trouble. With a thousand tasks `rslock` serves a few of them a second.
    fn suits(&self, who: Contestant) -> bool {
        let is_plain = self.trouble == Trouble::None && self.life == Life::Long;
        match who {
            _ if self.beside.is_some() => who == Contestant::Client(Who::Redlock),
            // The cost of the queue without waiters is only the last step of a release.
            Contestant::Client(Who::NoQueue) => self.contenders() == 1,
            Contestant::Floor => is_plain,
            Contestant::Client(Who::Rslock) => is_plain && self.tasks < 1_000,
            Contestant::Client(_) => true,
        }
    }

    fn contenders(&self) -> usize {
        self.processes * self.tasks
    }

    fn round(&self, who: Contestant, seconds: u64) -> anyhow::Result<Figures> {
        let servers = RedisServers::start(5)?;
        let times = times(seconds);
        let holds = self.holds(who, &servers, times)?;
        let cpu = match self.trouble {
            Trouble::None => servers.iter().map(requests::cpu).sum::<anyhow::Result<f64>>()?,
            _ => f64::NAN,
        };
        Ok(figures::figures(holds, self.contenders(), times.1, cpu))
    }

    /// Returns the number of requests per lock, from a separate round, because masters that report
    /// each command to a monitor are slower.
    fn requests(&self, who: Contestant) -> anyhow::Result<f64> {
        let servers = RedisServers::start(5)?;
        let count = Count::begin(&servers)?;
        let times = times(3);
        let holds = self.holds(who, &servers, times)?;
        Ok(count.end(servers, times.0)? as f64 / holds.len() as f64)
    }

    /// The locks of a round.
    fn holds(
        &self,
        who: Contestant,
        servers: &RedisServers,
        (begin, end): (u64, u64),
    ) -> anyhow::Result<Vec<Hold>> {
        match who {
            Contestant::Floor if self.processes == 1 => self.floor(servers, end),
            Contestant::Floor => self.clients(Who::Ring, servers, (begin, end)),
            Contestant::Client(who) => self.clients(who, servers, (begin, end)),
        }
    }

    fn floor(&self, servers: &RedisServers, end: u64) -> anyhow::Result<Vec<Hold>> {
        let names: Vec<String> = servers.iter().map(RedisServer::name).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let hold = Duration::from_micros(self.hold_us);
        runtime.block_on(async {
            Turns::connect(&names).await?.run(self.contenders(), hold, end).await
        })
    }

    fn clients(
        &self,
        who: Who,
        servers: &RedisServers,
        (begin, end): (u64, u64),
    ) -> anyhow::Result<Vec<Hold>> {
        let urls = urls(who, servers)?;
        thread::scope(|scope| {
            let chains: Vec<_> = (0..self.processes)
                .map(|process| {
                    let beside = self.beside.filter(|_| process >= self.processes / 2);
                    let orders = Orders {
                        who: beside.unwrap_or(who),
                        first: process * self.tasks,
                        tasks: self.tasks,
                        of: self.contenders(),
                        hold_us: self.hold_us,
                        begin,
                        end,
                        is_short: self.life == Life::Short,
                    };
                    let urls = &urls;
                    scope.spawn(move || chain(orders, urls))
                })
                .collect();
            self.make_trouble(servers, (begin, end))?;
            let mut holds = Vec::new();
            for chain in chains {
                let chained = chain.join().map_err(|_| anyhow::anyhow!("a chain panicked"))?;
                holds.extend(chained?);
            }
            Ok(holds)
        })
    }

    fn make_trouble(&self, servers: &RedisServers, (begin, end): (u64, u64)) -> anyhow::Result<()> {
        if self.trouble == Trouble::None {
            return Ok(());
        }
        let middle = begin.midpoint(end).saturating_sub(micros());
        thread::sleep(Duration::from_micros(middle));
        // Contenders look at the meeting point, and query it first.
        let mut by_load: Vec<_> = (0..servers.len()).collect();
        let loads: Vec<u64> =
            servers.iter().map(requests::commands).collect::<anyhow::Result<_>>()?;
        by_load.sort_by_key(|master| loads[*master]);
        let victim = match self.trouble {
            Trouble::MeetingPointDies => by_load.last(),
            _ => by_load.first(),
        };
        let victim = victim.context("there are masters")?;
        servers[*victim].kill();
        Ok(())
    }
}

/// The begin and the end of a round that is about to begin, on the common clock: contenders connect
/// before.
fn times(seconds: u64) -> (u64, u64) {
    let begin = micros() + 500_000;
    (begin, begin + seconds * 1_000_000)
}

/// Runs processes that contend one after the other until the end. A long process is the only one.
fn chain(orders: Orders, urls: &str) -> anyhow::Result<Vec<Hold>> {
    let mut holds = Vec::new();
    loop {
        holds.extend(output(spawn(orders, urls)?)?);
        if !orders.is_short || micros() >= orders.end {
            return Ok(holds);
        }
    }
}

fn spawn(orders: Orders, urls: &str) -> anyhow::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.env(ORDERS, orders.words()).env(MASTERS, urls).stdout(Stdio::piped());
    Ok(command.spawn()?)
}

fn output(mut child: Child) -> anyhow::Result<Vec<Hold>> {
    let output = child.stdout.take().context("it is piped")?;
    let mut holds = Vec::new();
    for line in BufReader::new(output).lines() {
        holds.push(Hold::parse(&line?).context("a line of a contender")?);
    }
    anyhow::ensure!(child.wait()?.success(), "a contender failed");
    Ok(holds)
}

/// Returns the URLs of the masters, for a user with or without the right to pushes.
fn urls(who: Who, servers: &RedisServers) -> anyhow::Result<String> {
    if who == Who::Ring {
        let names: Vec<String> = servers.iter().map(RedisServer::name).collect();
        return Ok(names.join(","));
    }
    if who != Who::Polling {
        return Ok(servers.urls().join(","));
    }
    for server in servers.iter() {
        let user = ["ACL", "SETUSER", "polling", "on", ">polling", "~*", "&*", "+@all"];
        server.command(&[&user[..], &["-client|tracking"]].concat())?;
    }
    let names = servers.iter().map(|server| format!("redis://polling:polling@{}", server.name()));
    Ok(names.collect::<Vec<_>>().join(","))
}
