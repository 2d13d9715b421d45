//! How many ballots locks have, counted.

use std::time::{Duration, Instant};

use anyhow::Context;
use redlock_quorum::{Redlock, RedlockBuilder, Stats};
use redlock_testkit::lab::WallClocks;
use redlock_testkit::{RedisServer, RedisServers, ServerOptions};
use tokio::task::JoinSet;

use super::support::Flavour;
use super::support::stats::Rows;

const MASTERS: usize = 5;
const LOCKS: usize = 5_000;
const COLUMNS: [&str; 3] =
    ["with one ballot, at least", "further ballots / locks", "locks a second"];
/// In milliseconds.
const HOUR: i64 = 3_600_000;
const WAIT: Duration = Duration::from_secs(60);

/// The masters of a case, and their fault.
struct Case {
    what: &'static str,
    ahead: [i64; MASTERS],
    dead: usize,
}

const CASES: [Case; 4] = [
    Case { what: "all is well", ahead: [0; MASTERS], dead: 0 },
    Case { what: "two of five dead", ahead: [0; MASTERS], dead: 2 },
    Case { what: "clocks 100 ms apart", ahead: [0, 100, 200, 300, 400], dead: 0 },
    Case { what: "clocks 1 h apart", ahead: [0, HOUR, -HOUR, 2 * HOUR, -2 * HOUR], dead: 0 },
];

pub fn report() -> anyhow::Result<()> {
    let mut rows = Rows::begin("ballots", COLUMNS)?;
    let runtime = Flavour::MultiThread.build()?;
    for case in CASES {
        runtime.block_on(uncontended(&case, &mut rows))?;
    }
    runtime.block_on(behind_init(&mut rows))?;
    for per_second in [Some(10_000), None] {
        runtime.block_on(busy(per_second, &mut rows))?;
    }
    for contenders in [8, 64] {
        runtime.block_on(contended(contenders, &mut rows))?;
    }
    Ok(())
}

/// The masters of one case. Their clocks stop with this value, so it outlives them.
struct Masters {
    servers: Vec<RedisServer>,
    _clocks: WallClocks,
}

impl Masters {
    fn start(ahead: &[i64]) -> anyhow::Result<Self> {
        let clocks = WallClocks::new(ahead);
        let server = |place| RedisServer::with(&clocks.on(place, ServerOptions::new()));
        let servers = (0..ahead.len()).map(server).collect::<anyhow::Result<_>>()?;
        Ok(Self { servers, _clocks: clocks })
    }

    fn handles(&self, count: usize) -> anyhow::Result<Vec<Redlock>> {
        (0..count).map(|_| Ok(builder(&self.servers).build()?)).collect()
    }
}

/// A busy machine is not a fault of a master, so a delayed attempt is not repeated.
fn builder(servers: &[RedisServer]) -> RedlockBuilder {
    let urls = servers.iter().map(RedisServer::url);
    Redlock::builder().nodes(urls).node_timeout(Duration::from_secs(2)).wait(WAIT)
}

async fn lock(redlock: &Redlock, key: String) -> anyhow::Result<()> {
    let guard = redlock.lock(key).await?;
    guard.fencing_token().context("a lock without a token")?;
    // The measurement excludes masters that are slow to acknowledge it.
    let _ = guard.release().await;
    Ok(())
}

/// Two clients in turn, without waiting.
async fn uncontended(case: &Case, rows: &mut Rows) -> anyhow::Result<()> {
    let masters = Masters::start(&case.ahead)?;
    let handles = masters.handles(2)?;
    masters.servers[..case.dead].iter().for_each(RedisServer::kill);
    let before = Count::of(&handles);
    for nth in 0..LOCKS {
        lock(&handles[nth % 2], format!("fresh:{nth}")).await?;
    }
    before.row(&handles, &format!("{}: fresh keys, two clients in turn", case.what), rows)?;
    for keys in [1, 20] {
        let before = Count::of(&handles);
        for nth in 0..LOCKS {
            lock(&handles[nth % 2], format!("repeated:{}", nth / 2 % keys)).await?;
        }
        let what = format!("{}: {keys} repeated keys, two clients in turn", case.what);
        before.row(&handles, &what, rows)?;
    }
    Ok(())
}

/// The floor of new masters is some seconds ahead of their clocks. Each round has its own prefix,
/// the client that admitted its masters, and a client that connects afterwards.
async fn behind_init(rows: &mut Rows) -> anyhow::Result<()> {
    const ROUNDS: usize = 20;
    let servers = RedisServers::with(MASTERS, &ServerOptions::new().brand_new())?;
    let mut handles = Vec::new();
    let begin = Instant::now();
    for round in 0..ROUNDS {
        let builder = builder(&servers).prefix(format!("namespace:{round}:"));
        let first = builder.clone().build()?;
        first.init().await?;
        let second = builder.build()?;
        for nth in 0..200 {
            lock([&first, &second][nth % 2], format!("key:{nth}")).await?;
        }
        handles.extend([first, second]);
    }
    let before = Count { begin, ..Count::default() };
    before.row(&handles, &format!("the first 200 locks behind an init, {ROUNDS} times"), rows)
}

/// Two clients with 64 tasks each, all with separate keys: this many locks per second, or as many
/// as they can.
async fn busy(per_second: Option<u32>, rows: &mut Rows) -> anyhow::Result<()> {
    const TASKS: u32 = 64;
    let masters = Masters::start(&[0; MASTERS])?;
    let handles = masters.handles(2)?;
    let (before, mut tasks) = (Count::of(&handles), JoinSet::new());
    let pause = per_second.map_or(Duration::ZERO, |rate| Duration::from_secs(2) * TASKS / rate);
    let end = Instant::now() + Duration::from_secs(5);
    for (client, redlock) in handles.iter().enumerate() {
        for task in 0..TASKS {
            let redlock = redlock.clone();
            tasks.spawn(async move {
                // They start at different times, and stay apart.
                let mut next = tokio::time::Instant::now() + pause * task / TASKS;
                for nth in 0.. {
                    tokio::time::sleep_until(next).await;
                    next += pause;
                    lock(&redlock, format!("{client}:{task}:{}", nth % 100)).await?;
                    if Instant::now() >= end {
                        break;
                    }
                }
                anyhow::Ok(())
            });
        }
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    let rate = per_second
        .map_or_else(|| "as fast as they can".into(), |rate| format!("{rate} locks a second"));
    before.row(&handles, &format!("two clients with 64 tasks each, {rate}"), rows)
}

/// Clients that contend for one key, each with its own handle.
async fn contended(contenders: usize, rows: &mut Rows) -> anyhow::Result<()> {
    let masters = Masters::start(&[0; MASTERS])?;
    let handles = masters.handles(contenders)?;
    let (before, mut tasks) = (Count::of(&handles), JoinSet::new());
    let end = Instant::now() + Duration::from_secs(5);
    for redlock in handles.clone() {
        tasks.spawn(async move {
            while Instant::now() < end {
                let Ok(guard) = redlock.lock("contended").await else { continue };
                tokio::time::sleep(Duration::from_millis(1)).await;
                let _ = guard.release().await;
            }
        });
    }
    tasks.join_all().await;
    before.row(&handles, &format!("{contenders} clients that want one key"), rows)
}

/// A snapshot of the statistics of several handles.
struct Count {
    begin: Instant,
    acquired: u64,
    further: u64,
}

impl Default for Count {
    fn default() -> Self {
        Self { begin: Instant::now(), acquired: 0, further: 0 }
    }
}

impl Count {
    fn of(handles: &[Redlock]) -> Self {
        let sum = |one: fn(&Stats) -> u64| handles.iter().map(|handle| one(&handle.stats())).sum();
        let (acquired, further) = (sum(|stats| stats.acquired), sum(|stats| stats.second_ballots));
        Self { acquired, further, ..Self::default() }
    }

    /// A lock with two further ballots is in both numbers, so this is a lower bound of locks with
    /// one ballot.
    fn row(&self, handles: &[Redlock], what: &str, rows: &mut Rows) -> anyhow::Result<()> {
        let now = Self::of(handles);
        let (acquired, further) = (now.acquired - self.acquired, now.further - self.further);
        let share = acquired.saturating_sub(further) as f64 / acquired as f64;
        let rate = acquired as f64 / (now.begin - self.begin).as_secs_f64();
        let share = format!("**{:.2} %**", share * 100.0);
        rows.row(what, [share, format!("{further} / {acquired}"), format!("{rate:.0}")])
    }
}
