//! Meeting points that are lost, or that not all processes see.

use super::*;
use crate::arena::{partition, requests};

/// The meeting point of the key, on masters of this seed.
pub(super) async fn where_they_meet(seed: u64) -> usize {
    let masters = admitted(5, seed);
    let _guard = handle(&masters).build().unwrap().lock(RESOURCE).await.unwrap();
    let served = Served::default();
    let waiter = wait(&masters, 1, ms(1), &served);
    sleep(ms(20)).await;
    waiter.task.abort();
    meeting_point(&masters)
}

/// Trap 11. A release now and then also calls processes that wait at other masters, in proportion to
/// their number. A single process is served more often than each of many that cannot see it.
#[test]
fn two_meeting_points_starve_no_process_and_cause_no_storm() {
    seeds::each(
        "two_meeting_points_starve_no_process_and_cause_no_storm",
        0..6,
        |seed| async move {
            for (here, there, most) in [(4, 4, 4), (7, 1, 2), (1, 7, 8)] {
                two_meeting_points(seed, (here, there), most).await;
            }
            Ok(())
        },
    );
}

/// No process gets the key more than `most` times as often as another.
async fn two_meeting_points(seed: u64, (here, there): (u64, u64), most: usize) {
    let (at, masters) = (where_they_meet(seed).await, admitted(5, seed));
    let clients: Vec<_> =
        (0..here + there).map(|number| process(&masters, seed * 100 + number)).collect();
    for (client, _) in clients.iter().skip(usize::try_from(here).unwrap()) {
        partition(&client[at..=at]);
    }
    let got = come_again(&masters, &clients, ms(2), 40).await;
    let grants = || got.iter().map(|one| one.grants);
    let all: usize = grants().sum();
    let (least, largest) = (grants().min().unwrap(), grants().max().unwrap());
    assert!(largest <= least * most, "{here}:{there}: {got:?}");
    assert!(got.iter().all(|one| one.longest() < ms(5_000)), "{here}:{there}: {got:?}");
    let each = requests(&masters) as f64 / all as f64;
    assert!(each < 16.0, "{here}:{there}: {each} requests a grant");
}

/// Processes that saw a slow meeting point for a moment meet at another master until that is over,
/// and no longer, because waiters at two masters have unequal shares.
#[tokio::test(start_paused = true)]
async fn processes_return_to_the_common_meeting_point() {
    for seed in 0..8 {
        let (at, masters) = (where_they_meet(seed).await, admitted(5, seed));
        let clients: Vec<_> = (0..4).map(|number| process(&masters, seed * 100 + number)).collect();
        let slow = clients.iter().take(2).map(|(client, _)| client[at].clone());
        let slow: Vec<_> = slow.collect();
        let faults = tokio::spawn(async move {
            sleep(ms(500)).await;
            slow.iter().for_each(|master| master.delay(ms(100)..=ms(100), ms(0)..=ms(1)));
            sleep(ms(300)).await;
            slow.iter().for_each(|master| master.delay(ms(0)..=ms(1), ms(0)..=ms(1)));
        });
        let got = come_again(&masters, &clients, ms(40), 20).await;
        faults.await.unwrap();
        let grants = || got.iter().map(|one| one.grants);
        let (least, most) = (grants().min().unwrap(), grants().max().unwrap());
        assert!(least * 10 >= most * 8, "seed {seed}: {got:?}");
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Paused,
    PausedForAMoment,
    Killed,
    /// It does not listen for a moment, and has the queue and the key that it had.
    AwayForAMoment,
    Restored,
    Quarantined,
}

/// Trap 12.
#[tokio::test(start_paused = true)]
async fn losing_the_meeting_point_costs_eight_waiters_a_second_once() {
    use Fault::*;
    for fault in [Paused, PausedForAMoment, Killed, AwayForAMoment, Restored, Quarantined] {
        let (masters, holder) = masters(5);
        let served = Served::default();
        let guard = holder.lock(RESOURCE).await.unwrap();
        let waiting = behind_a_holder(&masters, 8, &served).await;
        let at = meeting_point(&masters);
        match fault {
            Paused | PausedForAMoment => hold(&masters[at..=at]),
            Killed | AwayForAMoment => masters[at].down(),
            Restored | Quarantined => masters[at].crash_and_restart(fault == Restored),
        }
        let begun = masters.clock().now();
        let _ = guard.release().await;
        if matches!(fault, PausedForAMoment | AwayForAMoment) {
            sleep(ms(20)).await;
            let_go(&masters[at..=at]);
            masters[at].up();
        }
        all_served(waiting).await;
        let took = masters.clock().now().saturating_since(begun);
        let most = if fault == Paused { ms(1_500) } else { ms(200) };
        assert!(took <= most, "{fault:?}: {took:?} {served:?}");
        let_go(&masters[at..=at]);
    }
}
