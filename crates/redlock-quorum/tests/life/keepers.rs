//! Keepers on one runtime after the other.

use std::time::Instant;

use tokio::time::sleep;

use crate::lab::{FLAVORS, Masters, bounded, full, ms, secs};

/// The pace of extensions corresponds to one keeper, however often the runtime changed while an
/// extension was under way.
#[test]
fn runtime_changes_do_not_multiply_keepers() {
    for flavor in FLAVORS {
        bounded(move || {
            let masters = Masters::new();
            let redlock = masters.builder().ttl(secs(3)).node_timeout(ms(700)).build().unwrap();
            let guard = flavor().block_on(full(&redlock, "held"));
            for _ in 0..4 {
                let runtime = flavor();
                runtime.block_on(async {
                    // The extensions of the holder and of its keeper are on their way.
                    masters.hold(5);
                    let extended = tokio::spawn({
                        let extend = guard.hold();
                        async move { extend.lost().await }
                    });
                    sleep(ms(20)).await;
                    let _ = tokio::time::timeout(ms(20), guard.extend(secs(3))).await;
                    extended.abort();
                });
                drop(runtime);
                masters.go_on();
            }
            flavor().block_on(async {
                redlock.status("held").await;
                sleep(ms(500)).await;
                let (before, begun) = (masters.extensions(0), Instant::now());
                sleep(secs(5)).await;
                let extended = masters.extensions(0) - before;
                // One a second, and time that a busy machine adds.
                let most = begun.elapsed().as_secs() as usize + 2;
                assert!((1..=most).contains(&extended), "{extended} in {:?}", begun.elapsed());
                guard.release().await.unwrap();
            });
        });
    }
}
