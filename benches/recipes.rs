//! The cost of recipes in addition to their locks.

#![allow(clippy::expect_used, reason = "criterion's closures cannot fail otherwise")]

use std::time::Duration;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use redlock_quorum::Redlock;
use redlock_testkit::RedisServers;
use redlock_testkit::lab::calls;

/// An owner that is in its lock takes it once more, and leaves it again. Nothing is sent.
fn reentry(criterion: &mut Criterion) {
    let masters = RedisServers::start(5).expect("masters can be started");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime can be built");
    let redlock = Redlock::connect(masters.urls()).expect("the masters can be used");
    let owner = redlock.reentrant("reentry");
    let outermost = runtime.block_on(async { owner.lock().await }).expect("the lock is free");
    let before = redlock.stats();
    criterion.bench_function("recipes/reentry", |bencher| {
        bencher.to_async(&runtime).iter(|| async {
            let guard = owner.lock().await.expect("its owner holds it");
            guard.release().await
        });
    });
    assert_eq!(redlock.stats().attempts, before.attempts, "nothing is acquired by a re-entry");
    runtime.block_on(async {
        outermost.release().await.expect("the masters are there");
        // It is idle, so this does not wait.
        let _ = redlock.shutdown(Duration::from_secs(1)).await;
    });
}

/// Free keys that are locked together and released. With one round trip per key, the time would
/// grow from the first key on. Each key costs every master one `SET`.
fn sets(criterion: &mut Criterion) {
    let masters = RedisServers::start(5).expect("masters can be started");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime can be built");
    let redlock = Redlock::connect(masters.urls()).expect("the masters can be used");
    let mut group = criterion.benchmark_group("recipes/set");
    for keys in [1, 2, 8, 64] {
        let names: Vec<String> = (0..keys).map(|key| format!("key:{key}")).collect();
        let sets = || masters.iter().map(|server| calls(server, "set")).sum::<u64>();
        let (before, acquired) = (sets(), redlock.stats().acquired);
        group.bench_with_input(BenchmarkId::from_parameter(keys), &names, |bencher, names| {
            bencher.to_async(&runtime).iter(|| async {
                let set = redlock.lock_all(names).await.expect("the locks are free");
                set.release().await
            });
        });
        let locks = redlock.stats().acquired - acquired;
        println!("{keys} keys: {:.2} SETs a lock", (sets() - before) as f64 / locks as f64);
    }
    group.finish();
}

criterion_group!(recipes, reentry, sets);
criterion_main!(recipes);
