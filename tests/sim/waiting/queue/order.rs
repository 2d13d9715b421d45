//! The order in which keys, tokens and turns follow one another, whatever TTLs and clocks are.

use redlock_quorum::FencingToken;

use super::*;

/// Eight processes that come one after the other, with these TTLs in turn, and a change when the
/// first four have come: in which order they are served, with which tokens.
async fn served_with(
    masters: &SimNodes,
    seed: u64,
    ttls: &[Duration],
    change: impl AsyncFn(&SimNodes),
) -> Vec<(u64, FencingToken)> {
    let served = Arc::new(Mutex::new(Vec::new()));
    let holder = handle(masters).seed(seed * 100).build().unwrap();
    let guard = holder.lock(RESOURCE).await.unwrap();
    let mut waiting = Vec::new();
    for (number, ttl) in (1..=8_u64).zip(ttls.iter().cycle().copied()) {
        let (client, redlock) = process(masters, seed * 100 + number);
        let (served, handle) = (served.clone(), redlock.clone());
        let task = tokio::spawn(async move {
            let guard = handle.lock(RESOURCE).ttl(ttl).wait_forever().await.unwrap();
            served.lock().unwrap().push((number, guard.fencing_token().unwrap()));
            sleep(ms(5)).await;
            guard.release().await.unwrap();
        });
        waiting.push(Waiter { client, redlock, task });
        sleep(ms(20)).await;
        if number == 4 {
            change(masters).await;
        }
    }
    guard.release().await.unwrap();
    all_served(waiting).await;
    Arc::into_inner(served).unwrap().into_inner().unwrap()
}

fn assert_in_order(served: &[(u64, FencingToken)]) {
    assert!(served.is_sorted_by(|a, b| a.0 < b.0), "turns: {served:?}");
    assert!(served.is_sorted_by(|a, b| a.1 < b.1), "tokens: {served:?}");
}

/// Trap 21: each key lives as long as its own holder wants.
#[tokio::test(start_paused = true)]
async fn waiters_with_different_ttls_are_served_in_order() {
    let masters = admitted(5, 0);
    let served = served_with(&masters, 0, &[ms(200), ms(60_000), ms(1_000)], async |_| {}).await;
    assert_in_order(&served);
    let lives: Vec<u64> = masters[meeting_point(&masters)]
        .log()
        .into_iter()
        .filter(|done| done.verdict == Verdict::Granted)
        .filter_map(|done| match done.verb {
            Verb::Enter { px } => Some(px),
            _ => None,
        })
        .collect();
    assert_eq!(lives, [220, 66_000, 1_100, 220, 66_000, 1_100, 220, 66_000]);
}

/// Trap 21. If the clock is stepped ahead, the key of the holder is gone at the meeting point. The first
/// process in the queue takes it there in vain, and the release may find it in the middle of that.
#[test]
fn stepped_clock_of_the_meeting_point_keeps_the_order() {
    seeds::each("stepped_clock_of_the_meeting_point", 0..40, |seed| async move {
        for step in [HOUR, -HOUR] {
            let masters = admitted(5, seed);
            let step_clock = async |masters: &SimNodes| {
                masters[meeting_point(masters)].step_clock(step);
                sleep(RENEWED).await;
            };
            let served = served_with(&masters, seed, &[ms(1_000)], step_clock).await;
            assert_in_order(&served);
        }
        Ok(())
    });
}

/// By then each has renewed its place.
const RENEWED: Duration = Duration::from_millis(1_300);
/// In milliseconds.
const HOUR: i64 = 3_600_000;

/// Trap 20: successive reservations are between them.
#[tokio::test(start_paused = true)]
async fn tokens_grow_although_the_masters_clocks_run_backwards() {
    for (stepped, step) in [(5, -HOUR), (2, HOUR)] {
        let masters = admitted(5, 0);
        let step_clocks = async |masters: &SimNodes| {
            masters[..stepped].iter().for_each(|master| master.step_clock(step));
            sleep(RENEWED).await;
        };
        assert_in_order(&served_with(&masters, 0, &[ms(1_000)], step_clocks).await);
    }
}

/// Trap 20: a master that lost its ballots gives the key and has no vote.
#[tokio::test(start_paused = true)]
async fn taken_key_is_valid_only_with_ballots() {
    for (without, is_served) in [(2, true), (3, false)] {
        let (masters, served) = (admitted(5, 0), Served::default());
        let guard = handle(&masters).build().unwrap().lock(RESOURCE).await.unwrap();
        let waiting = behind_a_holder(&masters, 1, &served).await;
        let at = meeting_point(&masters);
        for other in (0..5).filter(|other| *other != at).take(without) {
            masters[other].edit_data(|data| data.sets.clear());
        }
        guard.release().await.unwrap();
        sleep(ms(500)).await;
        assert_eq!(!served.lock().unwrap().is_empty(), is_served, "{without} without ballots");
        waiting.into_iter().for_each(|waiter| waiter.task.abort());
    }
}
