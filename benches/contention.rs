//! Many contenders for one key: tasks of one process, and processes.
//!
//! A contender is this program once more, so that a process is a process. It prints when it asked,
//! when it was granted and when it released, on the clock that all processes share.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use redlock_quorum::Redlock;
use redlock_testkit::{RedisServer, RedisServers};

const KEY: &str = "contended";
/// The variable that makes this program a contender: tasks, seconds and hold in microseconds.
const CONTENDER: &str = "REDLOCK_CONTENDER";

fn main() -> anyhow::Result<()> {
    if let Ok(orders) = std::env::var(CONTENDER) {
        return contend(&orders);
    }
    println!(
        "{:<34} {:>9} {:>9} {:>12} {:>15} {:>15} {:>9}",
        "", "locks/s", "share min", "requests", "hand-over (us)", "wait (ms)", ""
    );
    println!(
        "{:<34} {:>9} {:>9} {:>12} {:>7} {:>7} {:>7} {:>7}",
        "", "", "", "a lock", "p50", "p99", "p50", "p99"
    );
    let seconds = if std::env::args().any(|arg| arg == "--quick") { 2 } else { 10 };
    for hold_us in [0, 1_000] {
        for (processes, tasks) in [(1, 64), (1, 1_000), (2, 1), (8, 1), (32, 1)] {
            case(processes, tasks, seconds, hold_us)?;
        }
    }
    Ok(())
}

/// One number of contenders, on masters of their own.
fn case(processes: usize, tasks: usize, seconds: u64, hold_us: u64) -> anyhow::Result<()> {
    let servers = RedisServers::start(5)?;
    let begin = micros() + 500_000;
    let orders = format!("{tasks} {seconds} {hold_us} {begin}");
    let children: Vec<Child> = (0..processes)
        .map(|_| {
            Command::new(std::env::current_exe()?)
                .env(CONTENDER, &orders)
                .env("REDLOCK_NODES", servers.urls().join(","))
                .stdout(Stdio::piped())
                .spawn()
        })
        .collect::<Result<_, _>>()?;
    let mut holds = Vec::new();
    let mut shares = Vec::new();
    for mut child in children {
        let output = child.stdout.take().context("it is piped")?;
        let before = holds.len();
        for line in BufReader::new(output).lines() {
            holds.push(Hold::parse(&line?).context("a line of a contender")?);
        }
        shares.extend(shares_of(&holds[before..], tasks));
        anyhow::ensure!(child.wait()?.success(), "a contender failed");
    }
    let requests = servers.iter().map(requests).sum::<anyhow::Result<u64>>()?;
    report(processes, tasks, seconds, hold_us, &mut holds, &shares, requests);
    Ok(())
}

/// One lock, in microseconds of the common clock.
#[derive(Clone, Copy)]
struct Hold {
    task: u64,
    asked: u64,
    granted: u64,
    released: u64,
}

impl Hold {
    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.split(' ').map(str::parse);
        let mut next = || fields.next()?.ok();
        Some(Self { task: next()?, asked: next()?, granted: next()?, released: next()? })
    }
}

/// How many locks each task got.
fn shares_of(holds: &[Hold], tasks: usize) -> Vec<usize> {
    (0..tasks as u64).map(|task| holds.iter().filter(|hold| hold.task == task).count()).collect()
}

fn report(
    processes: usize,
    tasks: usize,
    seconds: u64,
    hold_us: u64,
    holds: &mut [Hold],
    shares: &[usize],
    requests: u64,
) {
    holds.sort_by_key(|hold| hold.granted);
    let mut gaps: Vec<u64> =
        holds.windows(2).map(|pair| pair[1].granted.saturating_sub(pair[0].released)).collect();
    let mut waits: Vec<u64> = holds.iter().map(|hold| hold.granted - hold.asked).collect();
    let mean = holds.len() as f64 / shares.len() as f64;
    let least = shares.iter().min().copied().unwrap_or(0) as f64 / mean;
    println!(
        "{:<34} {:>9.0} {:>9.2} {:>12.1} {:>7} {:>7} {:>7.1} {:>7.1}",
        format!("{processes} processes x {tasks} tasks, hold {hold_us} us"),
        holds.len() as f64 / seconds as f64,
        least,
        requests as f64 / holds.len() as f64,
        quantile(&mut gaps, 0.5),
        quantile(&mut gaps, 0.99),
        quantile(&mut waits, 0.5) as f64 / 1e3,
        quantile(&mut waits, 0.99) as f64 / 1e3,
    );
}

fn quantile(values: &mut [u64], at: f64) -> u64 {
    values.sort_unstable();
    let index = (values.len() as f64 * at) as usize;
    values.get(index.min(values.len().saturating_sub(1))).copied().unwrap_or(0)
}

/// What clients have asked of a master: calls inside scripts are none of these.
fn requests(server: &RedisServer) -> anyhow::Result<u64> {
    const ASKED: [&str; 7] =
        ["set", "eval", "evalsha", "client|caching", "delifeq", "delex", "zadd"];
    let info = match server.command(&["INFO", "commandstats"])? {
        redis::Value::BulkString(bytes) => String::from_utf8(bytes)?,
        other => anyhow::bail!("INFO commandstats: {other:?}"),
    };
    let calls = |name: &str| {
        let line = info.lines().find_map(|line| {
            line.strip_prefix(&format!("cmdstat_{name}:calls="))?.split(',').next()
        });
        line.and_then(|calls| calls.parse::<u64>().ok()).unwrap_or(0)
    };
    Ok(ASKED.iter().map(|name| calls(name)).sum())
}

fn micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

fn contend(orders: &str) -> anyhow::Result<()> {
    let orders: Vec<u64> = orders.split(' ').map(str::parse).collect::<Result<_, _>>()?;
    let [tasks, seconds, hold_us, begin] = orders[..] else { anyhow::bail!("four numbers") };
    let nodes = std::env::var("REDLOCK_NODES")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let holds = runtime.block_on(async {
        let redlock = Redlock::connect(nodes.split(','))?;
        redlock.status("warm").await;
        tokio::time::sleep(Duration::from_micros(begin.saturating_sub(micros()))).await;
        let end = begin + seconds * 1_000_000;
        let work = (0..tasks).map(|task| {
            let redlock = redlock.clone();
            tokio::spawn(async move { contender(&redlock, task, hold_us, end).await })
        });
        let mut holds = Vec::new();
        for outcome in futures::future::join_all(work).await {
            holds.extend(outcome??);
        }
        anyhow::Ok(holds)
    })?;
    let mut out = std::io::stdout().lock();
    for Hold { task, asked, granted, released } in holds {
        writeln!(out, "{task} {asked} {granted} {released}")?;
    }
    Ok(())
}

async fn contender(
    redlock: &Redlock,
    task: u64,
    hold_us: u64,
    end: u64,
) -> anyhow::Result<Vec<Hold>> {
    let mut holds = Vec::new();
    while micros() < end {
        let asked = micros();
        let guard = redlock.lock(KEY).wait_forever().await?;
        let granted = micros();
        if hold_us > 0 {
            tokio::time::sleep(Duration::from_micros(hold_us)).await;
        }
        let released = micros();
        // A release that is not confirmed in time goes on by itself.
        let _ = guard.release().await;
        holds.push(Hold { task, asked, granted, released });
    }
    Ok(holds)
}
