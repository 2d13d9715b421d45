//! Locks a second: 1, 16, 64 and 256 tasks on keys of their own, five masters.

mod support;

use std::time::Duration;

use redlock_testkit::{RedisServer, RedisServers};

use support::stats::{Outcome, Rows};
use support::{Arena, Flavour};

const CASES: [(usize, Flavour); 5] = [
    (1, Flavour::CurrentThread),
    (16, Flavour::CurrentThread),
    (64, Flavour::CurrentThread),
    (256, Flavour::CurrentThread),
    (64, Flavour::MultiThread),
];

fn main() -> anyhow::Result<()> {
    let mut rows = Rows::begin("throughput")?;
    let servers = RedisServers::start(5)?;
    let names: Vec<String> = servers.iter().map(RedisServer::name).collect();
    for (tasks, flavour) in CASES {
        let race = Arena::new(flavour, &names)?.race(tasks, Duration::from_millis(200), 15)?;
        let case = format!("{tasks} tasks, 5 masters, {}", flavour.name());
        race.row(&mut rows, &format!("{case}: locks a second"), "/s", Outcome::rate)?;
        race.row(&mut rows, &format!("{case}: client CPU a lock"), "us", Outcome::cpu_per_lock)?;
        race.row(&mut rows, &format!("{case}: acquire p99"), "us", |outcome| {
            outcome.acquire(0.99)
        })?;
    }
    Ok(())
}
