//! Locks per second: 1, 16, 64 and 256 tasks on separate keys, five masters.

mod support;

use std::time::Duration;

use redlock_testkit::{RedisServer, RedisServers};

use support::stats::{Outcome, RATIOS, Rows, median};
use support::svg::{self, Axis};
use support::{Arena, Flavour};

fn main() -> anyhow::Result<()> {
    let mut rows = Rows::begin("throughput", RATIOS)?;
    let servers = RedisServers::start(5)?;
    let names: Vec<String> = servers.iter().map(RedisServer::name).collect();
    let mut lines: [Vec<(f64, f64)>; 3] = Default::default();
    for tasks in [1, 16, 64, 256] {
        let rates = case(&names, tasks, Flavour::CurrentThread, &mut rows)?;
        for (line, rates) in lines.iter_mut().zip(&rates) {
            line.extend(median(rates).map(|rate| (tasks as f64, rate)));
        }
    }
    case(&names, 64, Flavour::MultiThread, &mut rows)?;
    draw(&lines)
}

/// Runs one number of tasks. Returns locks per second, by contestant and round.
fn case(
    names: &[String],
    tasks: usize,
    flavour: Flavour,
    rows: &mut Rows,
) -> anyhow::Result<[Vec<f64>; 3]> {
    let race = Arena::new(flavour, names)?.race(tasks, Duration::from_millis(200), 15)?;
    let case = format!("{tasks} tasks, {}", flavour.name());
    race.compare(rows, &format!("{case}: locks a second"), "/s", Outcome::rate)?;
    race.compare(rows, &format!("{case}: client CPU a lock"), "us", Outcome::cpu_per_lock)?;
    race.compare(rows, &format!("{case}: acquire p99"), "us", |outcome| outcome.acquire(0.99))?;
    Ok(race.figures(Outcome::rate))
}

fn draw(lines: &[Vec<(f64, f64)>; 3]) -> anyhow::Result<()> {
    let highest = lines.iter().flatten().map(|(_, rate)| *rate).fold(1.0, f64::max);
    let x = Axis {
        title: "tasks",
        marks: [1.0, 16.0, 64.0, 256.0].map(|tasks: f64| (tasks, tasks.to_string())).to_vec(),
        is_log: true,
    };
    let y = Axis::linear("locks a second", highest);
    svg::write("throughput", "Five masters, current_thread", (x, y), lines)
}
