//! Fencing tokens of the real lock: their order, their cost, and that refused ballots keep no
//! contender from its share.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use anyhow::ensure;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use redlock_core::{Member, Verb};
use redlock_quorum::{AcquireError, Lease, Quarantine, Redlock, Verdict};
use redlock_testkit::{Fault, Nemesis};
use tokio::time::sleep;

use crate::arena::{GUARD, NODE_TIMEOUT, RESOURCE, TTL, admitted, count, handle, masters, ms};
use crate::exclusion::contenders::Campaign;
use crate::seeds;

pub(super) const HOUR: i64 = 3_600_000;

/// An hour in units of a token.
const HOUR_US: u64 = 3_600_000_000;

pub(super) async fn token(redlock: &Redlock, resource: &str) -> u64 {
    let guard = redlock.lock(resource.to_owned()).await.unwrap();
    let token = guard.fencing_token().expect("locks have fencing tokens").get();
    guard.release().await.unwrap();
    token
}

#[tokio::test(start_paused = true)]
async fn each_lock_has_a_larger_token_than_the_previous() {
    let (masters, first) = masters(5);
    let second = handle(&masters.another_client()).build().unwrap();
    let mut largest = 0;
    for redlock in [&first, &second].into_iter().cycle().take(20) {
        let token = token(redlock, RESOURCE).await;
        assert!(token > largest && token % 32 == 0, "{token} behind {largest}");
        largest = token;
    }
}

#[tokio::test(start_paused = true)]
async fn plain_lock_has_no_token_and_no_ballot() {
    let masters = admitted(3, 0);
    let redlock = handle(&masters).fencing(false).build().unwrap();
    let guard = redlock.lock(RESOURCE).await.unwrap();
    assert_eq!((guard.fencing_token(), guard.hold().fencing_token()), (None, None));
    assert_eq!(redlock.stats().ballots, 0);
    let fenced = handle(&masters.another_client()).build().unwrap();
    let error = fenced.try_lock(RESOURCE).await.unwrap_err();
    assert!(matches!(error, AcquireError::Held { .. }), "both exclude each other: {error}");
}

#[tokio::test(start_paused = true)]
async fn resumed_lease_gets_a_larger_token() {
    let (_masters, redlock) = masters(3);
    let guard = redlock.lock(RESOURCE).await.unwrap();
    let first = guard.fencing_token();
    assert_eq!(guard.hold().fencing_token(), first);
    let guard = redlock.resume(guard.into_lease()).await.unwrap();
    let second = guard.fencing_token();
    assert!(first.is_some() && first < second, "{first:?} {second:?}");
    let lease = guard.into_lease();
    assert_eq!(lease.fencing_token, second);
    let known = Lease::new(lease.resource.clone(), lease.token.as_str(), lease.ttl).unwrap();
    let guard = redlock.resume(known).await.unwrap();
    assert!(second < guard.fencing_token(), "it needs to know none: {:?}", guard.fencing_token());
}

#[tokio::test(start_paused = true)]
async fn plain_resumed_lease_has_no_token() {
    let masters = admitted(3, 0);
    let redlock = handle(&masters).build().unwrap();
    let lease = redlock.lock(RESOURCE).await.unwrap().into_lease();
    assert!(lease.fencing_token.is_some());
    let plain = handle(&masters.another_client()).fencing(false).build().unwrap();
    let guard = plain.resume(lease).await.unwrap();
    assert_eq!((guard.fencing_token(), plain.stats().ballots), (None, 0));
    let is_resume = |verb: &Verb| matches!(verb, Verb::Resume { .. });
    assert_eq!(masters.iter().map(|master| count(master, is_resume)).sum::<usize>(), 0);
}

#[tokio::test(start_paused = true)]
async fn masters_without_ballots_do_not_vote() {
    let (masters, _) = masters(3);
    masters[0].refuse_ballots(Some("NOPERM this user has no permissions"));
    let redlock = handle(&masters.another_client()).build().unwrap();
    let guard = redlock.lock(RESOURCE).await.unwrap();
    let verdict = guard.votes().iter().next().unwrap().verdict.to_string();
    assert!(
        verdict.contains("it cannot store the ballots") && verdict.contains("NOPERM"),
        "{verdict}"
    );
    guard.release().await.unwrap();
    masters[1].refuse_ballots(Some("NOPERM this user has no permissions"));
    let redlock = handle(&masters.another_client()).build().unwrap();
    let error = redlock.lock(RESOURCE).await.unwrap_err();
    assert!(matches!(error, AcquireError::NoQuorum { .. }), "{error}");
    let plain = handle(&masters.another_client()).fencing(false).build().unwrap();
    drop(plain.lock(RESOURCE).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn impossible_score_is_named_and_excludes_one_master() {
    let (masters, redlock) = masters(3);
    token(&redlock, RESOURCE).await;
    let member = Member::of(RESOURCE.as_bytes());
    masters[0].edit_data(|data| {
        let run = data.record.run.unwrap();
        assert!(data.accept(run, member, 1 << 53));
    });
    let guard = redlock.lock(RESOURCE).min_copies(3).await.unwrap();
    let verdict = guard.votes().iter().next().unwrap().verdict.clone();
    assert!(verdict.to_string().contains("2^53"), "{verdict}");
    assert_eq!(guard.copies(), 2);
}

#[tokio::test(start_paused = true)]
async fn sent_ballots_stay_below_2_to_the_53() {
    let (masters, redlock) = masters(3);
    token(&redlock, RESOURCE).await;
    let member = Member::of(RESOURCE.as_bytes());
    for master in masters.iter() {
        master.edit_data(|data| {
            let run = data.record.run.unwrap();
            assert!(data.accept(run, member, (1 << 53) - 1));
        });
    }
    let error = redlock.try_lock(RESOURCE).await.unwrap_err();
    assert!(matches!(error, AcquireError::Held { .. }), "{error}");
    assert!(error.votes().unwrap().iter().all(|vote| vote.verdict == Verdict::BallotRefused));
    let error = redlock.try_lock(RESOURCE).await.unwrap_err();
    assert!(error.to_string().contains("no fencing token is left"), "{error}");
    token(&redlock, "another member").await;
}

// Masters that refused.

#[tokio::test(start_paused = true)]
async fn minority_refusing_the_ballot_still_holds_copies() {
    let (masters, redlock) = masters(5);
    token(&redlock, "first").await;
    let member = Member::of(RESOURCE.as_bytes());
    // They answer after the others.
    for master in &masters[3..] {
        master.edit_data(|data| {
            let run = data.record.run.unwrap();
            assert!(data.accept(run, member, 1_800_000_000_000_031));
        });
    }
    let begin = masters.clock().now();
    let guard = redlock.lock(RESOURCE).min_copies(5).await.unwrap();
    assert_eq!((guard.copies(), redlock.stats().second_ballots), (5, 0));
    assert_eq!(masters.clock().now(), begin);
    sleep(TTL * 2).await;
    assert_eq!((guard.check(), guard.copies()), (Ok(()), 5), "they are extended like the others");
}

#[tokio::test(start_paused = true)]
async fn readd_also_requests_the_score() {
    let (masters, redlock) = masters(3);
    let guard = redlock.lock(RESOURCE).min_copies(3).await.unwrap();
    let forced = masters[0].holder(RESOURCE).unwrap();
    masters[0].put(RESOURCE, "another", 1);
    sleep(TTL).await;
    assert_eq!((masters[0].holder(RESOURCE), guard.copies()), (Some(forced), 3));
    let verbs: Vec<_> = masters[0].log().iter().map(|one| one.verb).collect();
    assert!(verbs.iter().any(|verb| matches!(verb, Verb::GiveBack { .. })), "{verbs:?}");
}

#[tokio::test(start_paused = true)]
async fn lock_fails_if_no_quorum_accepts_its_ballot_in_time() {
    let (masters, redlock) = masters(3);
    token(&redlock, "first").await;
    // One master grants and refuses, and then is silent. Another is dead.
    masters[2].down();
    let member = Member::of(RESOURCE.as_bytes());
    masters[0].edit_data(|data| {
        let run = data.record.run.unwrap();
        assert!(data.accept(run, member, 1_800_000_000_000_031));
    });
    masters[0].delay(ms(0)..=ms(0), ms(45)..=ms(45));
    masters[1].delay(ms(0)..=ms(0), ms(45)..=ms(45));
    let begin = masters.clock().now();
    let error = redlock.try_lock(RESOURCE).await.unwrap_err();
    assert!(matches!(error, AcquireError::Held { .. }), "{error}");
    let took = masters.clock().now().saturating_since(begin);
    assert_eq!(took, ms(45) + NODE_TIMEOUT, "one node timeout after the quorum");
    assert_eq!(redlock.stats().ballots_refused, 1);
    sleep(TTL).await;
    assert_eq!(crate::arena::copies(&masters), 0, "all locks are released");
    assert_eq!(masters.clock().now().saturating_since(begin), took + TTL);
    let guard = redlock.lock(RESOURCE).await.unwrap();
    assert!(guard.fencing_token().unwrap().get() > 1_800_000_000_000_000);
}

// Costs.

/// How many of so many locks of two clients that take turns needed another round trip.
async fn second_ballots(apart_ms: i64, locks: u64) -> u64 {
    let masters = admitted(5, 0);
    for (nth, master) in masters.iter().enumerate() {
        master.step_clock(apart_ms * nth as i64);
    }
    let clients = [masters.clone(), masters.another_client()];
    let clients = clients.map(|client| handle(&client).build().unwrap());
    for nth in 0..locks {
        let redlock = &clients[nth as usize % 2];
        token(redlock, &format!("resource:{}", nth / 2 % 7)).await;
        sleep(ms(10)).await;
    }
    let stats = clients.map(|redlock| redlock.stats());
    assert_eq!(stats.iter().map(|stats| stats.attempts).sum::<u64>(), locks);
    stats.iter().map(|stats| stats.second_ballots).sum()
}

#[test]
fn masters_with_different_clocks_cost_no_round_trip() {
    for apart in [0, 100, HOUR] {
        let second = seeds::simulate(second_ballots(apart, 1_000));
        assert!(second <= 10, "{second} of 1,000 with clocks {apart} ms apart");
    }
}

#[tokio::test(start_paused = true)]
async fn client_an_hour_behind_learns_it_from_the_scores() {
    let (masters, behind) = masters(5);
    token(&behind, "something").await;
    masters.iter().for_each(|master| master.step_clock(HOUR));
    let ahead = handle(&masters.another_client()).build().unwrap();
    let before = token(&ahead, RESOURCE).await;
    let after = token(&behind, RESOURCE).await;
    assert!(after > before && after - before < HOUR_US, "{before} {after}");
    assert_eq!(behind.stats().second_ballots, 2, "the first does not know how far");
    sleep(ms(100)).await;
    token(&ahead, "another").await;
    sleep(ms(100)).await;
    token(&behind, "another").await;
    assert_eq!(behind.stats().second_ballots, 2, "the learned lead applies to all members");
}

/// Returns how many second ballots two clients need that are 20 ms apart, and take turns on one key
/// faster than that.
async fn second_ballots_in_turn(seed: u64, locks: u64) -> u64 {
    let masters = admitted(5, seed);
    let clients = [masters.clone(), masters.another_client()].map(|client| {
        client.iter().for_each(|master| master.delay(ms(0)..=ms(1), ms(0)..=ms(1)));
        let redlock = handle(&client).seed(seed).build().unwrap();
        (client, redlock)
    });
    let [(_, behind), (_, ahead)] = &clients;
    token(behind, "it is connected from here on").await;
    masters.iter().for_each(|master| master.step_clock(20));
    let mut rng = StdRng::seed_from_u64(seed);
    for nth in 0..locks {
        token([ahead, behind][nth as usize % 2], RESOURCE).await;
        sleep(Duration::from_micros(rng.random_range(0..3_000))).await;
    }
    behind.stats().second_ballots + ahead.stats().second_ballots
}

#[test]
fn alternating_clients_learn_their_clock_difference_once() {
    for seed in 0..4 {
        let second = seeds::simulate(second_ballots_in_turn(seed, 1_000));
        println!("{second} of 1,000 with seed {seed}");
        assert!(second <= 20, "{second} of 1,000 with seed {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn score_near_the_maximum_does_not_spread_from_one_master() {
    let (masters, redlock) = masters(5);
    token(&redlock, RESOURCE).await;
    let member = Member::of(RESOURCE.as_bytes());
    masters[0].edit_data(|data| {
        let run = data.record.run.unwrap();
        assert!(data.accept(run, member, (1 << 53) - 1));
    });
    let clients = [redlock, handle(&masters.another_client()).build().unwrap()];
    for redlock in clients.iter().cycle().take(10) {
        let guard = redlock.lock(RESOURCE).min_copies(5).await.unwrap();
        assert!(guard.fencing_token().unwrap().get() < 1 << 52);
        guard.release().await.unwrap();
    }
    masters[1].down();
    masters[2].down();
    let error = clients[0].try_lock(RESOURCE).await.unwrap_err();
    assert!(error.votes().unwrap().iter().any(|vote| vote.verdict == Verdict::BallotRefused));
    token(&clients[0], "another member").await;
}

/// They are followed in the first attempt, also of a client that makes only one.
#[tokio::test(start_paused = true)]
async fn scores_near_the_maximum_on_a_quorum_are_exceeded() {
    for far in [2, 3] {
        let (masters, redlock) = masters(3);
        token(&redlock, RESOURCE).await;
        let member = Member::of(RESOURCE.as_bytes());
        for (nth, master) in masters.iter().take(far).enumerate() {
            master.edit_data(|data| {
                let run = data.record.run.unwrap();
                assert!(data.accept(run, member, (1 << 52) + 64 * nth as u64));
            });
        }
        for _ in 0..4 {
            let redlock = handle(&masters.another_client()).build().unwrap();
            let guard = redlock.try_lock(RESOURCE).await.unwrap();
            assert!(guard.fencing_token().unwrap().get() >= 1 << 52);
            guard.release().await.unwrap();
        }
    }
}

// The order of tokens under faults.

const FIVE: Campaign = Campaign {
    masters: 5,
    contenders: 8,
    callers: 2,
    length: ms(8_000),
    quarantine: Quarantine::On,
};

/// Masters also lose data. Their ballots are then raised above all accepted ballots.
fn nemesis(seed: u64) -> Nemesis {
    use Fault::{
        ClockStep, Delay, Kill, KillAndLoseData, LoseReplies, LoseRequests, Partition, Pause,
    };
    let faults =
        [KillAndLoseData, Kill, Partition, Pause, Delay, ClockStep, LoseReplies, LoseRequests];
    let nemesis = Nemesis::new(seed).at_most(2 + (seed % 3) as usize).faults(faults);
    nemesis.delay_max(NODE_TIMEOUT).clock_step_max(GUARD)
}

/// Each campaign checks its tokens (`contenders.rs`). This test runs as many seeds as you pass:
/// `REDLOCK_SEED=0..100000`.
#[test]
fn tokens_keep_their_order_under_faults() {
    let counters: Arc<[AtomicUsize; 3]> = Arc::default();
    seeds::each("tokens_keep_their_order_under_faults", 0..16, |seed| {
        let counters = counters.clone();
        async move {
            let outcome = FIVE.run(seed, &nemesis(seed)).await?;
            ensure!(outcome.tokens > 0, "no token at all");
            let counted = [1, outcome.tokens, outcome.handed_over as usize];
            counters.iter().zip(counted).for_each(|(counter, more)| {
                counter.fetch_add(more, Relaxed);
            });
            Ok(())
        }
    });
    let [runs, tokens, handed_over] = counters.each_ref().map(|counter| counter.load(Relaxed));
    println!("{tokens} fencing tokens in {runs} campaigns; {handed_over} leases were handed on");
    assert!(handed_over > 0 || runs < 16, "no lease was handed over");
}
