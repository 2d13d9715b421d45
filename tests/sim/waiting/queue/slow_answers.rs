//! A meeting point whose answers are late now and then, and a process that waits.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::long_holds::{Begun, Load, far, open_releases, take_again_and_again};
use super::*;

/// How many waits are counted for each load.
const WAITS: usize = 20;

/// Pauses the meeting point for 10 to 40 ms, again and again.
async fn stumble(masters: SimNodes, seed: u64) {
    sleep(ms(2_000)).await;
    let at = meeting_point(&masters);
    let mut random = StdRng::seed_from_u64(seed);
    loop {
        sleep(ms(random.random_range(50..=150))).await;
        masters[at].hold();
        sleep(ms(random.random_range(10..=40))).await;
        masters[at].release();
    }
}

/// No wait of process B is passed by more than two holds of process A, unless a release was open.
async fn assert_in_order(load: Load, seed: u64) {
    let masters = admitted(3, seed);
    let clock = masters.clock();
    let ((_a, a), (_b, b)) =
        (far(&masters, load.trip, seed * 2), far(&masters, load.trip, seed * 2 + 1));
    let begun = Begun::default();
    let callers = take_again_and_again(&a, load, &clock, &begun);
    let stumbles = tokio::spawn(stumble(masters.clone(), seed));
    sleep(load.holds / 3).await;
    for number in 0..WAITS {
        let asked = clock.now();
        let guard = b.lock(RESOURCE).wait(ms(30_000)).await.expect("it is served");
        let passed = begun.lock().unwrap().iter().filter(|at| **at > asked).count() as u64;
        let open = open_releases(&masters, asked);
        assert!(passed <= 2 + open, "wait {number} of {load:?}: {passed} passed, {open} open");
        sleep(ms(1)).await;
        guard.release().await.unwrap();
        sleep(load.holds / 7 * (number as u32 % 5)).await;
    }
    stumbles.abort();
    callers.into_iter().for_each(|caller| caller.abort());
}

/// A server, a network or a client that pauses for a moment costs nobody its turn.
#[test]
fn late_answers_of_the_meeting_point_keep_the_order() {
    seeds::each("late_answers_of_the_meeting_point_keep_the_order", 0..10, |seed| async move {
        for holds in [60, 200, 1_000].map(ms) {
            for callers in [1, 2] {
                let load = Load { callers, holds, pauses: ms(0), trip: ms(1) };
                assert_in_order(load, seed).await;
            }
        }
        Ok(())
    });
}
