//! Uncontended acquire and release, one task, on 1, 3, 5 and 7 masters.

#![allow(clippy::expect_used, reason = "criterion's closures cannot fail otherwise")]

mod support;

use std::time::{Duration, Instant};

use criterion::Criterion;
use redlock_testkit::{RedisServer, RedisServers};

use support::stats::{Outcome, RATIOS, Rows, Stop};
use support::{Arena, Flavour, Who, svg};

const CASES: [(usize, Flavour); 5] = [
    (1, Flavour::CurrentThread),
    (3, Flavour::CurrentThread),
    (5, Flavour::CurrentThread),
    (7, Flavour::CurrentThread),
    (5, Flavour::MultiThread),
];

fn main() -> anyhow::Result<()> {
    let mut rows = Rows::begin("acquire", RATIOS)?;
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(2))
        .sample_size(20)
        .configure_from_args();
    for (masters, flavour) in CASES {
        let servers = RedisServers::start(masters)?;
        let names: Vec<String> = servers.iter().map(RedisServer::name).collect();
        let arena = Arena::new(flavour, &names)?;
        in_turn(&arena, masters, flavour, &mut rows)?;
        one_by_one(&mut criterion, &arena, masters, flavour);
    }
    criterion.final_summary();
    Ok(())
}

/// The ratios: every contestant in every round.
fn in_turn(arena: &Arena, masters: usize, flavour: Flavour, rows: &mut Rows) -> anyhow::Result<()> {
    let race = arena.race(1, Duration::from_millis(200), 15)?;
    let case = format!("1 task, {masters} masters, {}", flavour.name());
    race.compare(rows, &format!("{case}: acquire p50"), "us", |outcome| outcome.acquire(0.5))?;
    race.compare(rows, &format!("{case}: acquire + release p50"), "us", |outcome| {
        outcome.cycle(0.5)
    })?;
    race.compare(rows, &format!("{case}: acquire + release p99"), "us", |outcome| {
        outcome.cycle(0.99)
    })?;
    race.compare(rows, &format!("{case}: client CPU a lock"), "us", Outcome::cpu_per_lock)?;
    svg::latencies(&format!("acquire-{masters}-{}", flavour.name()), &case, &race)
}

/// The same for criterion, which compares a commit with the previous one.
fn one_by_one(criterion: &mut Criterion, arena: &Arena, masters: usize, flavour: Flavour) {
    let mut group = criterion.benchmark_group(format!("acquire+release/{}", flavour.name()));
    for who in Who::ALL {
        group.bench_function(format!("{}/{masters}", who.name()), |bencher| {
            bencher.iter_custom(|locks| {
                let begin = Instant::now();
                let stop = Stop::After(locks as usize);
                arena.round(who, 1, stop).expect("the masters of this bench answer");
                begin.elapsed()
            });
        });
    }
    group.finish();
}
