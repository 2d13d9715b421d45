//! The cost of a ballot: fenced and plain locks, and raw sockets that write the same bytes as
//! either, in one run. Also the number of ballots per lock, because each ballot after the first
//! costs a round trip.

// Modules of a program, and no library.
#![allow(unreachable_pub)]

#[path = "../support/mod.rs"]
mod support;

mod trips;

use std::sync::Arc;
use std::time::{Duration, Instant};

use redlock_quorum::Redlock;
use redlock_testkit::{RedisServer, RedisServers};
use tokio::runtime::Runtime;
use tokio::sync::Mutex;

use support::floor::Floor;
use support::proxies::Proxies;
use support::stats::{Outcome, Rows, Stop, server_cpu};
use support::{Flavour, measured, peers};

const ROUNDS: usize = 15;
const LENGTH: Duration = Duration::from_millis(200);
const COLUMNS: [&str; 3] =
    ["redlock: fenced / plain", "floor: fenced / plain", "the first / the second"];

fn main() -> anyhow::Result<()> {
    trips::report()?;
    let mut rows = Rows::begin("fenced", COLUMNS)?;
    let servers = RedisServers::start(5)?;
    let names: Vec<String> = servers.iter().map(RedisServer::name).collect();
    for flavour in [Flavour::CurrentThread, Flavour::MultiThread] {
        for tasks in [1, 64] {
            let case = format!("{tasks} tasks, {}", flavour.name());
            race(&names, &servers, flavour, tasks)?.report(&mut rows, &case)?;
        }
    }
    let proxies = Proxies::start(&servers)?;
    proxies.delay(5, Duration::from_millis(1));
    let race = race(&proxies.names(), &servers, Flavour::CurrentThread, 1)?;
    race.report(&mut rows, "1 task, masters 1 ms away")
}

/// The measured contestants: the floor and ours, each plain and fenced.
const WHO: [(Who, Mode); 4] = [
    (Who::Ours, Mode::Plain),
    (Who::Ours, Mode::Fenced),
    (Who::Floor, Mode::Plain),
    (Who::Floor, Mode::Fenced),
];

#[derive(Clone, Copy)]
enum Who {
    Ours,
    Floor,
}

#[derive(Clone, Copy)]
enum Mode {
    Plain,
    Fenced,
}

/// All four on one runtime, connected to the same masters.
struct Arena {
    runtime: Runtime,
    ours: [Redlock; 2],
    floors: [Arc<Mutex<Floor>>; 2],
}

/// One contestant's rounds, and what each lock of them cost the masters.
#[derive(Default)]
struct Round {
    outcomes: Vec<Outcome>,
    server_us: Vec<f64>,
}

struct Race([Round; 4]);

/// A figure: its name, its unit, and its computation from the outcome of a round.
type Figure = (&'static str, &'static str, fn(&Outcome) -> f64);

/// Rounds in turn; who is first changes from round to round. The first of all is for warming up.
fn race(
    names: &[String],
    servers: &RedisServers,
    flavour: Flavour,
    tasks: usize,
) -> anyhow::Result<Race> {
    let arena = Arena::new(names, flavour)?;
    let mut race = Race(Default::default());
    for round in 0..=ROUNDS {
        for turn in 0..WHO.len() {
            let place = (round + turn) % WHO.len();
            let before = server_cpu(servers)?;
            let outcome = arena.round(WHO[place], tasks, Stop::At(Instant::now() + LENGTH))?;
            arena.rest();
            if round > 0 {
                let used = (server_cpu(servers)? - before) * 1e6 / outcome.samples.len() as f64;
                race.0[place].server_us.push(used);
                race.0[place].outcomes.push(outcome);
            }
        }
    }
    Ok(race)
}

impl Arena {
    fn new(names: &[String], flavour: Flavour) -> anyhow::Result<Self> {
        let runtime = flavour.build()?;
        let urls: Vec<String> = names.iter().map(|name| format!("redis://{name}")).collect();
        let ours = |fencing| Redlock::builder().nodes(urls.clone()).fencing(fencing).build();
        let ours = [ours(false)?, ours(true)?];
        let plain = runtime.block_on(Floor::connect(names))?;
        let fenced = runtime.block_on(Floor::connect_fenced(names))?;
        let floors = [plain, fenced].map(|floor| Arc::new(Mutex::new(floor)));
        Ok(Self { runtime, ours, floors })
    }

    /// On a task, as a user's code: what `block_on` itself polls is treated differently.
    fn round(&self, who: (Who, Mode), tasks: usize, stop: Stop) -> anyhow::Result<Outcome> {
        let (who, mode) = who;
        let (ours, floor) = (self.ours[mode as usize].clone(), self.floors[mode as usize].clone());
        let run = async move { floor.lock().await.run(tasks, stop).await };
        self.runtime.block_on(async {
            match who {
                Who::Ours => self.runtime.spawn(measured(peers::run(ours, tasks, stop))).await?,
                Who::Floor => self.runtime.spawn(measured(run)).await?,
            }
        })
    }

    /// Lets the timers of a round run out and its last replies come.
    fn rest(&self) {
        const NODE_TIMEOUT: Duration = Duration::from_millis(50);
        self.runtime.block_on(async {
            for floor in &self.floors {
                let mut floor = floor.lock().await;
                let _ = tokio::time::timeout(NODE_TIMEOUT * 4, floor.settle()).await;
            }
            tokio::time::sleep(NODE_TIMEOUT * 6 / 5).await;
        });
    }
}

impl Race {
    fn report(&self, rows: &mut Rows, case: &str) -> anyhow::Result<()> {
        let figures: [Figure; 4] = [
            ("acquire p50", "us", |outcome| outcome.acquire(0.5)),
            ("acquire p99", "us", |outcome| outcome.acquire(0.99)),
            ("locks a second", "/s", Outcome::rate),
            ("client CPU a lock", "us", Outcome::cpu_per_lock),
        ];
        for (what, unit, figure) in figures {
            let rounds = self.0.each_ref();
            let rounds = rounds.map(|who| who.outcomes.iter().map(figure).collect::<Vec<_>>());
            rows.relate(&format!("{case}: {what}"), unit, &rounds)?;
        }
        let cpu = self.0.each_ref().map(|who| who.server_us.clone());
        rows.relate(&format!("{case}: CPU of all masters a lock"), "us", &cpu)
    }
}
