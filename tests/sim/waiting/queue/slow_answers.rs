//! A meeting point whose answers are late now and then, and a process that waits.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::long_holds::{Load, assert_in_order};
use super::*;

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

/// A server, a network or a client that pauses for a moment costs nobody its turn.
#[test]
fn late_answers_of_the_meeting_point_keep_the_order() {
    seeds::each("late_answers_of_the_meeting_point_keep_the_order", 0..10, |seed| async move {
        for holds in [60, 200, 1_000].map(ms) {
            for callers in [1, 2] {
                let load = Load { callers, holds, pauses: ms(0), trip: ms(1) };
                let masters = admitted(3, seed);
                let stumbles = tokio::spawn(stumble(masters.clone(), seed));
                assert_in_order(&masters, load, seed).await;
                stumbles.abort();
            }
        }
        Ok(())
    });
}
