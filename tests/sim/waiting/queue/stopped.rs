//! Processes that stop while they wait: they stay in the queue, and do not come when they are called.

use redlock_testkit::Executed;

use super::*;

/// How the key becomes free.
#[derive(Clone, Copy, Debug)]
enum End {
    /// Its holder calls the first in the queue.
    Released,
    /// Its holder knows of no other process, and calls none. It may also have died.
    Deleted,
}

/// For how long one stopped process and a key that becomes free may keep the key idle.
const EACH: Duration = ms(200);
const BESIDE: Duration = ms(300);
/// How many commands a waiter may cause in a second at one master.
const COMMANDS_A_SECOND: f64 = 200.0;

/// So many stopped processes wait before so many live ones.
#[derive(Clone, Copy, Debug)]
struct Crowd {
    stopped: u64,
    live: u64,
    end: End,
    /// Each way.
    trip: Duration,
    seed: u64,
}

/// Returns the maximum number of commands that a master executes for this request.
fn commands(done: &Executed) -> usize {
    match done.verb {
        Verb::Enter { .. } | Verb::Leave { .. } => 16,
        Verb::Watch | Verb::Inspect | Verb::Take { .. } => 4,
        _ => 3,
    }
}

/// Starts processes one after the other. Those that stop do so after all have started.
async fn come(masters: &SimNodes, crowd: Crowd, served: &Served) -> Vec<Waiter> {
    let mut waiting = Vec::new();
    for nth in 0..crowd.stopped + crowd.live {
        let waiter = wait(masters, crowd.seed * 100 + nth, ms(5), served);
        waiter.client.iter().for_each(|it| it.delay(ms(0)..=crowd.trip, ms(0)..=crowd.trip));
        waiting.push(waiter);
        sleep(ms(10)).await;
    }
    // The time of their next query differs between seeds.
    sleep(ms(1_000) + ms(73) * (crowd.seed as u32)).await;
    for stopped in waiting.iter().take(crowd.stopped as usize) {
        stopped.client.iter().for_each(|master| master.lose_requests(true));
    }
    waiting
}

/// Creates a holder, or another program's key if it must notify no client.
async fn hold_until(masters: &SimNodes, holder: &Redlock, end: End) -> Option<Guard> {
    match end {
        End::Released => Some(holder.lock(RESOURCE).await.unwrap()),
        End::Deleted => {
            masters.iter().for_each(|master| master.put(RESOURCE, "stranger", 100_000));
            None
        }
    }
}

async fn becomes_free(masters: &SimNodes, guard: Option<Guard>) {
    match guard {
        Some(guard) => guard.release().await.unwrap(),
        None => masters.iter().for_each(|master| master.put(RESOURCE, "stranger", 1)),
    }
}

/// How long the live processes of the crowd wait for the first of them to be served.
async fn assert_served_in_time(crowd: Crowd) {
    let (masters, holder) = masters(3);
    let served = Served::default();
    let guard = hold_until(&masters, &holder, crowd.end).await;
    let mut stopped = come(&masters, crowd, &served).await;
    let live = stopped.split_off(crowd.stopped as usize);
    becomes_free(&masters, guard).await;
    let (begun, at) = (masters.clock().now(), meeting_point(&masters));
    let before = masters[at].log().len();
    while served.lock().unwrap().is_empty() {
        sleep(ms(1)).await;
    }
    let took = masters.clock().now().saturating_since(begun);
    let most = EACH * crowd.stopped as u32 + BESIDE;
    assert!(took <= most, "{crowd:?}: {took:?}");
    let commands: usize = masters[at].log()[before..].iter().map(commands).sum();
    let most = COMMANDS_A_SECOND * crowd.live as f64 * (took + ms(200)).as_secs_f64();
    assert!(commands as f64 <= most, "{crowd:?}: {commands} commands in {took:?}");
    all_served(live).await;
    let took = masters.clock().now().saturating_since(begun);
    let most = EACH * crowd.stopped as u32 + BESIDE + ms(50) * crowd.live as u32;
    assert!(took <= most, "the last one, {crowd:?}: {took:?}");
    stopped.into_iter().for_each(|waiter| waiter.task.abort());
}

#[tokio::test(start_paused = true)]
async fn stopped_process_keeps_the_key_idle_for_200_ms_at_most() {
    for (stopped, live) in [(1, 1), (2, 1), (3, 1), (5, 1), (10, 1), (1, 3), (3, 3), (10, 3)] {
        for (end, trip) in [
            (End::Released, ms(0)),
            (End::Released, ms(2)),
            (End::Deleted, ms(0)),
            (End::Deleted, ms(2)),
        ] {
            for seed in 1..=8 {
                assert_served_in_time(Crowd { stopped, live, end, trip, seed }).await;
            }
        }
    }
}
