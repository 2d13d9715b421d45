//! Streams of changes.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::ensure;
use futures::future::join_all;
use futures::{FutureExt, StreamExt};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use redlock_core::{Instant, Verb};
use redlock_quorum::{Redlock, State, Watch};
use redlock_testkit::{Nemesis, SimNodes};
use tokio::time::{sleep, timeout};

use crate::arena::{
    NODE_TIMEOUT, RESOURCE, TTL, full, handle, heal, masters, ms, partition, requests,
    trusting_handle,
};
use crate::seeds;

/// The next state, which must come soon.
async fn next(watch: &mut Watch) -> State {
    timeout(ms(2_000), watch.next()).await.expect("a change").expect("it continues").state
}

fn token(state: &State) -> Option<&str> {
    match state {
        State::Held { token, .. } => Some(token),
        _ => None,
    }
}

#[tokio::test(start_paused = true)]
async fn each_change_of_the_state_or_token_is_reported_once() {
    let (masters, redlock) = masters(5);
    let mut watch = handle(&masters).build().unwrap().watch(RESOURCE);
    assert_eq!(next(&mut watch).await, State::Free);
    for _ in 0..3 {
        let guard = full(&redlock, &masters).await;
        assert_eq!(token(&next(&mut watch).await), Some(guard.token().as_str()));
        // Extensions change the key, and not its holder.
        assert_eq!(timeout(TTL * 5, watch.next()).now_or_never(), None);
        assert!(timeout(TTL * 5, watch.next()).await.is_err());
        guard.release().await.unwrap();
        assert_eq!(next(&mut watch).await, State::Free);
    }
    drop(watch);
}

#[tokio::test(start_paused = true)]
async fn change_is_reported_by_a_push_or_within_a_second() {
    for (tracks, within) in [(true, ms(110)), (false, ms(1_010))] {
        let (masters, redlock) = masters(5);
        masters.iter().for_each(|master| master.set_tracking(tracks));
        let mut watch = redlock.watch(RESOURCE);
        assert_eq!(next(&mut watch).await, State::Free);
        sleep(ms(300)).await;
        let guard = full(&handle(&masters).build().unwrap(), &masters).await;
        let state = timeout(within, watch.next()).await.expect("in time").unwrap().state;
        assert_eq!(token(&state), Some(guard.token().as_str()), "{tracks}");
    }
}

#[tokio::test(start_paused = true)]
async fn idle_stream_sends_few_requests_per_second() {
    const SECONDS: usize = 20;
    for n in [1, 3, 5] {
        let (masters, redlock) = masters(n);
        let guard = full(&redlock, &masters).await;
        let observer = handle(&masters).build().unwrap();
        let mut watch = observer.watch(RESOURCE);
        next(&mut watch).await;
        let reads = || {
            let is_read = |verb: &Verb| matches!(verb, Verb::Inspect | Verb::Watch);
            masters.iter().map(|master| crate::arena::count(master, is_read)).sum::<usize>()
        };
        let before = reads();
        // The lock is extended three times a second, and each extension is a push.
        assert!(timeout(ms(SECONDS as u64 * 1_000), watch.next()).await.is_err());
        let sent = reads() - before;
        assert!((n * (SECONDS - 1)..=(n + 1) * SECONDS).contains(&sent), "{n}: {sent}");
        assert!(guard.is_held());
    }
}

#[tokio::test(start_paused = true)]
async fn constant_changes_are_read_at_most_ten_times_per_second() {
    let (masters, _) = masters(5);
    let observer = handle(&masters).build().unwrap();
    let mut watch = observer.watch(RESOURCE);
    next(&mut watch).await;
    let other = masters.another_client();
    let changes = async {
        for round in 0_u32..1_000 {
            other.iter().for_each(|master| master.put(RESOURCE, format!("t{round}"), 10_000));
            sleep(ms(10)).await;
        }
    };
    let reports = async { while watch.next().await.is_some() {} };
    let before = observer.stats().observations;
    tokio::select! {
        () = changes => {}
        () = reports => panic!("it has ended"),
    }
    // A look and a read for each of ten changes a second.
    let reads = observer.stats().observations - before;
    assert!((150..=210).contains(&reads), "{reads} in 10 s");
}

#[tokio::test(start_paused = true)]
async fn state_is_undecided_without_a_quorum() {
    let (masters, redlock) = masters(5);
    let guard = full(&redlock, &masters).await;
    let client = masters.another_client();
    let mut watch = handle(&client).build().unwrap().watch(RESOURCE);
    let held = next(&mut watch).await;
    assert_eq!(token(&held), Some(guard.token().as_str()));
    partition(&client[..3]);
    assert_eq!(next(&mut watch).await, State::Undecided);
    assert!(timeout(TTL * 5, watch.next()).await.is_err(), "nothing has changed");
    heal(&client[..3]);
    assert_eq!(token(&next(&mut watch).await), token(&held));
}

#[tokio::test(start_paused = true)]
async fn stream_survives_the_loss_of_two_masters() {
    let (masters, redlock) = masters(5);
    let client = masters.another_client();
    let observer = handle(&client).build().unwrap();
    let mut watch = observer.watch(RESOURCE);
    assert_eq!(next(&mut watch).await, State::Free);
    // Whichever is the meeting point, it is among these at some time.
    for lost in [[0, 1], [2, 3], [4, 0]] {
        lost.iter().for_each(|master| client[*master].down());
        sleep(ms(2_500)).await;
        let guard = redlock.lock(RESOURCE).await.unwrap();
        let state = timeout(ms(300), watch.next()).await.expect("a push").unwrap().state;
        assert_eq!(token(&state), Some(guard.token().as_str()), "{lost:?}");
        guard.release().await.unwrap();
        assert_eq!(next(&mut watch).await, State::Free, "{lost:?}");
        lost.iter().for_each(|master| client[*master].up());
        sleep(ms(2_500)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn stream_ends_after_shutdown_or_an_invalid_name() {
    let (_masters, redlock) = masters(3);
    let mut watch = redlock.watch(RESOURCE);
    next(&mut watch).await;
    let mut bad = redlock.watch("");
    let status = bad.next().await.unwrap();
    assert_eq!(status.state, State::Undecided);
    assert!(status.to_string().contains("1 to 512 bytes"), "{status}");
    assert_eq!(bad.next().await, None);
    let (end, closed) = tokio::join!(timeout(ms(10), watch.next()), redlock.shutdown(ms(100)),);
    closed.unwrap();
    assert_eq!(end.expect("immediately"), None);
    assert_eq!(watch.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn dropped_streams_read_nothing() {
    let (masters, redlock) = masters(3);
    for _ in 0..100 {
        let mut watch = redlock.watch(RESOURCE);
        next(&mut watch).await;
    }
    let sent = requests(&masters);
    sleep(ms(10_000)).await;
    assert_eq!(requests(&masters), sent);
}

/// What one holder on at least four of five masters, or none, was for how long.
struct Lasting {
    holder: Option<String>,
    since: Instant,
    until: Instant,
}

/// The holder on four masters: any read that misses one of them still finds a quorum.
fn holder(masters: &SimNodes) -> Option<Option<String>> {
    let holders: Vec<_> = masters.iter().map(|master| master.holder(RESOURCE)).collect();
    let most = |holder: &&Option<String>| holders.iter().filter(|one| one == holder).count() >= 4;
    holders.iter().find(most).cloned()
}

async fn record(masters: &SimNodes, length: Duration) -> Vec<Lasting> {
    let (clock, mut all) = (masters.clock(), Vec::<Lasting>::new());
    let mut last = None;
    while clock.now().as_nanos() < length.as_nanos() as u64 {
        let (now, holder) = (clock.now(), holder(masters));
        match (&holder, all.last_mut()) {
            (Some(_), Some(lasting)) if last == holder => lasting.until = now,
            (Some(holder), _) => {
                all.push(Lasting { holder: holder.clone(), since: now, until: now });
            }
            (None, _) => {}
        }
        last = holder;
        sleep(ms(5)).await;
    }
    all
}

async fn contend(redlock: Redlock, mut rng: StdRng, length: Duration, masters: SimNodes) {
    while masters.clock().now().as_nanos() < length.as_nanos() as u64 {
        if let Ok(guard) = redlock.lock(RESOURCE).wait(ms(3_000)).await {
            sleep(ms(rng.random_range(0..5_000))).await;
            drop(guard);
        }
        sleep(ms(rng.random_range(0..4_000))).await;
    }
}

/// Contenders and one stream next to a nemesis. Returns how many lasting states were checked.
async fn campaign(seed: u64) -> anyhow::Result<usize> {
    const LENGTH: Duration = ms(60_000);
    let masters = SimNodes::new(5, seed);
    let clients: Vec<_> = (0..3).map(|_| masters.another_client()).collect();
    let handle = |number: usize| {
        trusting_handle(&clients[number]).seed(seed * 10 + number as u64).build().unwrap()
    };
    let reports = Arc::new(Mutex::new(Vec::new()));
    let (seen, clock) = (reports.clone(), masters.clock());
    let watch = handle(0).watch(RESOURCE);
    let watching = watch.for_each(|status| {
        seen.lock().unwrap().push((clock.now(), status.state));
        std::future::ready(())
    });
    let contenders = (1..3).map(|number| {
        let rng = StdRng::seed_from_u64(seed * 100 + number as u64);
        contend(handle(number), rng, LENGTH, masters.clone())
    });
    let nemesis = Nemesis::new(seed).at_most(1).delay_max(NODE_TIMEOUT / 2);
    let run = async {
        tokio::join!(record(&masters, LENGTH), nemesis.run(&clients, LENGTH), join_all(contenders))
            .0
    };
    let states = tokio::select! {
        states = run => states,
        () = watching => anyhow::bail!("the stream has ended"),
    };
    judge(&states, &reports.lock().unwrap())
}

fn judge(states: &[Lasting], reports: &[(Instant, State)]) -> anyhow::Result<usize> {
    for two in reports.windows(2) {
        let same = token(&two[0].1) == token(&two[1].1)
            && std::mem::discriminant(&two[0].1) == std::mem::discriminant(&two[1].1);
        ensure!(!same, "reported twice: {two:?}");
    }
    let lasting = |state: &&Lasting| state.until.saturating_since(state.since) >= ms(2_000);
    let mut checked = 0;
    for state in states.iter().filter(lasting) {
        // It was the last report when the state began, or was reported before it ended.
        let before = reports.iter().rfind(|(at, _)| *at <= state.since);
        let during = reports.iter().filter(|(at, _)| (state.since..=state.until).contains(at));
        let shows = |(_, shown): &(Instant, State)| match (&state.holder, shown) {
            (Some(holder), State::Held { token, .. }) => holder == token,
            (None, State::Free) => true,
            _ => false,
        };
        let is_seen = before.into_iter().chain(during).any(shows);
        ensure!(is_seen, "{:?} from {:?} to {:?}", state.holder, state.since, state.until);
        checked += 1;
    }
    Ok(checked)
}

#[test]
fn stream_reports_every_state_lasting_two_seconds() {
    let mut checked = 0;
    let count = Mutex::new(&mut checked);
    seeds::each("stream_reports_every_state_lasting_two_seconds", 0..20, |seed| {
        let count = &count;
        async move {
            **count.lock().unwrap() += campaign(seed).await?;
            Ok(())
        }
    });
    assert!(checked > 100, "{checked} states");
}
