//! The cost of held locks: memory, CPU with their extensions, and allocations per lock.

mod support;

use std::alloc::System;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use redlock_quorum::{Guard, Redlock};
use redlock_testkit::{RedisServer, RedisServers};
use rslock::{Lock, LockManager};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

use support::floor::Floor;
use support::stats::{RATIOS, Rows, Stop, cpu};
use support::{Arena, Flavour, Key, Who};

// Counting costs every allocation some nanoseconds, so only this bench does it.
#[global_allocator]
static COUNTING: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const TTL: Duration = Duration::from_secs(30);
/// The keeper extends once in this time.
const THIRD: Duration = Duration::from_secs(10);
/// How many requests are on their way at a time while locks are acquired or extended by hand.
const WINDOW: usize = 256;

fn main() -> anyhow::Result<()> {
    let mut rows = Rows::begin("hold", RATIOS)?;
    let servers = RedisServers::start(5)?;
    let names: Vec<String> = servers.iter().map(RedisServer::name).collect();
    let arena = Arena::new(Flavour::CurrentThread, &names)?;
    allocations(&arena, &mut rows)?;
    for locks in [10_000, 100_000] {
        let [ours, rslock] = [hold(&arena, locks)?, hold_by_hand(&arena, locks)?];
        let floor = Cost { bytes: f64::NAN, cpu: extend_raw(&arena, &names, locks)? };
        let costs = [floor, ours, rslock];
        let case = format!("{locks} held locks, current_thread");
        let column = |figure: fn(&Cost) -> f64| {
            costs
                .each_ref()
                .map(figure)
                .map(|figure| Vec::from_iter(figure.is_finite().then_some(figure)))
        };
        rows.compare(&format!("{case}: memory a lock"), "bytes", &column(|cost| cost.bytes))?;
        rows.compare(&format!("{case}: client CPU an extension"), "us", &column(|cost| cost.cpu))?;
        servers.iter().try_for_each(empty)?;
    }
    Ok(())
}

/// No lock is held any longer, so the master may vote immediately.
fn empty(server: &RedisServer) -> anyhow::Result<()> {
    server.command(&["FLUSHALL"])?;
    server.init()
}

/// The cost of one held lock.
struct Cost {
    /// Bytes while nothing is being done.
    bytes: f64,
    /// Microseconds of client CPU for each extension, all masters together.
    cpu: f64,
}

/// How often memory is allocated, or grown, for one lock that is acquired and released.
fn allocations(arena: &Arena, rows: &mut Rows) -> anyhow::Result<()> {
    const LOCKS: usize = 2_000;
    let mut counts: [Vec<f64>; 3] = Default::default();
    for who in Who::ALL {
        let region = Region::new(COUNTING);
        arena.round(who, 1, Stop::After(LOCKS))?;
        let change = region.change();
        counts[who as usize]
            .push((change.allocations + change.reallocations) as f64 / LOCKS as f64);
        arena.rest();
    }
    // The floor puts its ballots together as texts, and does nothing else with memory: a ratio with it
    // would mean nothing.
    counts[0].clear();
    rows.compare("acquire + release, 1 task, current_thread: allocations a lock", "", &counts)
}

/// Ours: the keeper extends, and nothing else is done.
fn hold(arena: &Arena, locks: usize) -> anyhow::Result<Cost> {
    let region = Region::new(COUNTING);
    let ours = arena.ours.clone();
    let guards: Vec<Guard> =
        arena.runtime.block_on(gather('h', locks, |key| lock(ours.clone(), key)))?;
    arena.rest();
    let bytes = held_bytes(&region) / locks as f64;
    // From here on each lock is extended once in this time, whenever that is.
    let before = cpu();
    arena.runtime.block_on(async { tokio::time::sleep(THIRD).await });
    let cpu = (cpu() - before).as_secs_f64() * 1e6 / locks as f64;
    let held = guards.iter().filter(|guard| guard.is_held()).count();
    println!("{held} of {locks} are still held after a third of their TTL");
    drop(guards);
    arena.runtime.block_on(async { tokio::time::sleep(Duration::from_secs(2)).await });
    Ok(Cost { bytes, cpu })
}

async fn lock(redlock: Redlock, key: String) -> anyhow::Result<Guard> {
    Ok(redlock.lock(key).ttl(TTL).await?)
}

/// `rslock`: it has no keeper, so its user extends.
fn hold_by_hand(arena: &Arena, locks: usize) -> anyhow::Result<Cost> {
    let region = Region::new(COUNTING);
    let acquire = |key: String| {
        let manager = arena.rslock.clone();
        async move { anyhow::Ok(manager.lock(key.as_bytes(), TTL).await?) }
    };
    let held: Vec<Lock> = arena.runtime.block_on(gather('g', locks, acquire))?;
    let bytes = held_bytes(&region) / locks as f64;
    let before = cpu();
    arena.runtime.block_on(extend_by_hand(&arena.rslock, &held))?;
    let cpu = (cpu() - before).as_secs_f64() * 1e6 / locks as f64;
    Ok(Cost { bytes, cpu })
}

async fn extend_by_hand(manager: &LockManager, held: &[Lock]) -> anyhow::Result<()> {
    let extensions = stream::iter(held).map(|lock| manager.extend(lock, TTL));
    Ok(extensions.buffer_unordered(WINDOW).map_ok(drop).try_collect().await?)
}

/// The floor: every key is extended once, as fast as that goes. An extension has no ballot.
fn extend_raw(arena: &Arena, names: &[String], locks: usize) -> anyhow::Result<f64> {
    arena.runtime.block_on(async {
        let mut floor = Floor::connect(names).await?;
        floor.hold(locks, WINDOW as u64).await?;
        let before = cpu();
        floor.extend(locks, WINDOW as u64).await?;
        Ok((cpu() - before).as_secs_f64() * 1e6 / locks as f64)
    })
}

/// Acquires `locks` locks, some at a time, each on its own key that begins with `mark`, so that the
/// keys of other clients do not interfere.
async fn gather<T, F>(
    mark: char,
    locks: usize,
    acquire: impl Fn(String) -> F,
) -> anyhow::Result<Vec<T>>
where
    F: Future<Output = anyhow::Result<T>>,
{
    let keys = (0..locks).map(|lock| Key(mark, lock).to_string());
    stream::iter(keys.map(acquire)).buffer_unordered(WINDOW).try_collect().await
}

fn held_bytes(region: &Region<'_, System>) -> f64 {
    let change = region.change();
    change.bytes_allocated as f64 - change.bytes_deallocated as f64
}
