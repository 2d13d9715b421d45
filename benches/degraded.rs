//! One and two of five masters paused, killed, or 5 ms away; and all five that far away, which
//! shows the round trips.

mod support;

use std::thread::sleep;
use std::time::{Duration, Instant};

use redlock_testkit::RedisServers;

use support::proxies::Proxies;
use support::stats::{RATIOS, Rows, Stop};
use support::{Arena, Flavour, Race, Who, svg};

const ROUNDS: usize = 9;
const DELAY: Duration = Duration::from_millis(5);

/// The fault of the first masters, and their number.
#[derive(Clone, Copy)]
enum Fault {
    Paused(usize),
    Killed(usize),
    Delayed(usize),
}

const FAULTS: [(&str, Fault); 6] = [
    ("1 of 5 paused", Fault::Paused(1)),
    ("2 of 5 paused", Fault::Paused(2)),
    ("1 of 5 killed", Fault::Killed(1)),
    ("2 of 5 killed", Fault::Killed(2)),
    ("1 of 5 delayed by 5 ms", Fault::Delayed(1)),
    ("2 of 5 delayed by 5 ms", Fault::Delayed(2)),
];

fn main() -> anyhow::Result<()> {
    let servers = RedisServers::start(5)?;
    let proxies = Proxies::start(&servers)?;
    let masters = Masters { servers, proxies };
    let columns = ["floor / itself healthy", "redlock / itself healthy", "rslock / itself healthy"];
    let mut rows = Rows::begin("degraded", columns)?;
    for (what, fault) in FAULTS {
        let (healthy, degraded) = masters.race(fault)?;
        for (name, part) in [("p50", 0.5), ("p99", 0.99)] {
            let [after, before] = [&degraded, &healthy].map(|race| {
                race.outcomes.each_ref().map(|rounds| {
                    rounds.iter().map(|outcome| outcome.acquire(part)).collect::<Vec<f64>>()
                })
            });
            let what = format!("{what}, 1 task, current_thread: acquire {name}");
            rows.against_itself(&what, &after, &before)?;
        }
        if let Fault::Paused(2) = fault {
            svg::latencies("paused-2", "1 task, 2 of 5 masters paused", &degraded)?;
        }
    }
    round_trips(&masters)
}

/// With every master 5 ms away, the time shows the number of round trips.
fn round_trips(masters: &Masters) -> anyhow::Result<()> {
    let mut rows = Rows::begin("round trips", RATIOS)?;
    let arena = Arena::new(Flavour::CurrentThread, &masters.proxies.names())?;
    masters.begin(Fault::Delayed(5))?;
    let race = arena.race(1, Duration::from_millis(300), ROUNDS)?;
    masters.end(Fault::Delayed(5))?;
    let case = "1 task, all masters delayed by 5 ms";
    race.compare(&mut rows, &format!("{case}: acquire p50"), "us", |outcome| outcome.acquire(0.5))?;
    race.compare(&mut rows, &format!("{case}: release p50"), "us", |outcome| outcome.release(0.5))
}

struct Masters {
    servers: RedisServers,
    proxies: Proxies,
}

impl Masters {
    /// Rounds with healthy masters and with the fault, in turn, on new connections every time.
    fn race(&self, fault: Fault) -> anyhow::Result<(Race, Race)> {
        let (mut healthy, mut degraded) = (Race::default(), Race::default());
        for _ in 0..ROUNDS {
            // Proxies add latency, so they are used only if necessary.
            let names = match fault {
                Fault::Delayed(_) => self.proxies.names(),
                _ => self.servers.iter().map(|server| server.name()).collect(),
            };
            let arena = Arena::new(Flavour::CurrentThread, &names)?;
            one_each(&arena, &mut healthy, Duration::from_millis(150))?;
            self.begin(fault)?;
            // A client that waits for a silent master completes one lock in this time.
            one_each(&arena, &mut degraded, Duration::from_millis(300))?;
            drop(arena);
            self.end(fault)?;
        }
        Ok((healthy, degraded))
    }

    fn begin(&self, fault: Fault) -> anyhow::Result<()> {
        match fault {
            Fault::Paused(count) => {
                self.servers[..count].iter().try_for_each(|server| server.pause())
            }
            Fault::Killed(count) => {
                self.servers[..count].iter().for_each(|server| server.kill());
                Ok(())
            }
            Fault::Delayed(count) => {
                self.proxies.delay(count, DELAY);
                Ok(())
            }
        }
    }

    /// Makes the masters whole, and empty.
    fn end(&self, fault: Fault) -> anyhow::Result<()> {
        match fault {
            Fault::Paused(count) => {
                self.servers[..count].iter().try_for_each(|server| server.resume())?
            }
            Fault::Killed(count) => {
                self.servers[..count].iter().try_for_each(|server| server.restart_empty())?;
            }
            Fault::Delayed(count) => self.proxies.delay(count, Duration::ZERO),
        }
        // A paused master first executes the requests in its buffers.
        sleep(Duration::from_millis(300));
        for server in self.servers.iter() {
            server.command(&["FLUSHALL"])?;
            // No lock is held any longer, so the master may vote immediately.
            server.init()?;
        }
        // A handle looks once a second after masters that do not vote.
        sleep(Duration::from_millis(1_500));
        Ok(())
    }
}

fn one_each(arena: &Arena, race: &mut Race, length: Duration) -> anyhow::Result<()> {
    for who in Who::ALL {
        let outcome = arena.round(who, 1, Stop::At(Instant::now() + length))?;
        arena.rest();
        race.outcomes[who as usize].push(outcome);
    }
    Ok(())
}
