//! What recipes add to the locks that they are made of.

#![allow(clippy::expect_used, reason = "criterion's closures cannot fail otherwise")]

use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use redlock_quorum::Redlock;
use redlock_testkit::RedisServers;

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
        // Nothing is left that would be waited for.
        let _ = redlock.shutdown(Duration::from_secs(1)).await;
    });
}

criterion_group!(recipes, reentry);
criterion_main!(recipes);
