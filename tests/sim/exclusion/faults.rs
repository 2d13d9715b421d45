//! The menu of faults: what each costs inside the assumptions, and that the checker finds the two
//! holders where an assumption is broken.

use std::sync::Arc;

use redlock_core::{Instant, Role, Verb};
use redlock_quorum::{AcquireError, Guard, LostReason, Quarantine, Redlock, Verdict};
use redlock_testkit::{Fault, History, Nemesis, SimNodes, check};
use tokio::time::sleep;

use crate::arena::{
    GUARD, NODE_TIMEOUT, RESOURCE, TTL, VALIDITY, acquires, copies, count, ended, full, handle,
    heal, hold, let_go, masters, ms, partition, settle, trusting, trusting_handle, until_free,
};
use crate::exclusion::contenders::Campaign;
use crate::seeds;

/// One held lock, and a second client that wants it, both without a quarantine. This shows the
/// effect of copies, clocks and keys alone. Returns whether the checker finds two holders.
struct Duel {
    masters: SimNodes,
    history: Arc<History>,
    second: Redlock,
    guard: Guard,
}

impl Duel {
    /// The first one has the lock on the masters that are not in `without`.
    async fn begin(without: &[usize]) -> Self {
        let (masters, first) = trusting(5);
        let history = Arc::new(History::new(masters.clock()));
        without.iter().for_each(|master| masters[*master].partition());
        let request = first.lock(RESOURCE).min_copies(5 - without.len()).auto_extend(false);
        let guard = request.await.unwrap();
        assert_eq!(guard.copies(), 5 - without.len());
        without.iter().for_each(|master| masters[*master].heal());
        let second = trusting_handle(&masters.another_client()).build().unwrap();
        history.contender(1, RESOURCE).granted("first", until(&masters, &guard));
        Self { masters, history, second, guard }
    }

    /// The second one tries once. Tells the two holders, if there are two.
    async fn end(self) -> Option<String> {
        if let Ok(guard) = self.second.try_lock(RESOURCE).await {
            self.history.contender(2, RESOURCE).granted("second", until(&self.masters, &guard));
            assert!(self.guard.is_held(), "the first one cannot know");
        }
        check(&self.history.records()).err().map(|overlap| overlap.to_string())
    }
}

fn until(masters: &SimNodes, guard: &Guard) -> Instant {
    masters.clock().now().saturating_add(guard.remaining())
}

fn assert_two_holders(found: Option<String>) {
    let found = found.expect("an assumption is broken, and the checker must find two holders");
    assert!(found.starts_with("two holders of \"orders:42\""), "{found}");
}

// Inside the assumptions.

#[tokio::test(start_paused = true)]
async fn master_stopped_within_the_node_timeout_still_votes() {
    let (masters, redlock) = masters(5);
    hold(&masters[..3]);
    let acquiring = tokio::spawn(redlock.lock(RESOURCE).into_future());
    sleep(NODE_TIMEOUT - ms(10)).await;
    assert!(!acquiring.is_finished());
    let_go(&masters[..3]);
    let guard = acquiring.await.unwrap().unwrap();
    assert_eq!((guard.copies(), guard.remaining()), (5, VALIDITY - NODE_TIMEOUT + ms(10)));
}

#[tokio::test(start_paused = true)]
async fn stopped_minority_costs_no_time() {
    let (masters, redlock) = masters(5);
    hold(&masters[..2]);
    let begin = masters.clock().now();
    let guard = redlock.lock(RESOURCE).await.unwrap();
    assert_eq!(masters.clock().now(), begin, "the majority is not kept waiting");
    let said: Vec<_> = guard.votes().iter().map(|vote| vote.verdict.clone()).collect();
    assert_eq!(&said[..2], [Verdict::Pending, Verdict::Pending]);
    guard.release().await.unwrap();
    assert_eq!(masters.clock().now(), begin);
    let_go(&masters[..2]);
    settle().await;
    assert_eq!(copies(&masters), 0, "the late grant's release follows it");
}

#[tokio::test(start_paused = true)]
async fn stopped_majority_refuses_all_and_the_deadline_stays() {
    let (masters, redlock) = masters(5);
    let begin = masters.clock().now();
    let guard = full(&redlock, &masters).await;
    hold(&masters[..3]);
    let other = handle(&masters.another_client()).build().unwrap();
    let error = other.try_lock(RESOURCE).await.unwrap_err();
    assert!(matches!(error, AcquireError::NoQuorum { .. }), "{error}");
    ended(&guard).await;
    assert_eq!(masters.clock().now().saturating_since(begin), VALIDITY);
    let_go(&masters[..3]);
    drop(guard);
    until_free(&masters, ms(5)).await;
}

#[tokio::test(start_paused = true)]
async fn masters_that_restart_with_their_keys_keep_the_lock() {
    let (masters, redlock) = trusting(5);
    let guard = full(&redlock, &masters).await;
    let other = trusting_handle(&masters.another_client()).build().unwrap();
    for master in masters.iter() {
        master.crash_and_restart(true);
        let error = other.try_lock(RESOURCE).await.unwrap_err();
        assert!(matches!(error, AcquireError::Held { .. }), "{error}");
        sleep(TTL / 2).await;
        assert_eq!((guard.check(), guard.copies()), (Ok(()), 5));
    }
}

#[tokio::test(start_paused = true)]
async fn client_cut_off_from_a_majority_fails_cleanly() {
    let (masters, redlock) = masters(5);
    let other = handle(&masters.another_client()).build().unwrap();
    partition(&masters[..3]);
    let error = redlock.try_lock(RESOURCE).await.unwrap_err();
    let causes: Vec<_> =
        error.votes().unwrap().iter().map(|vote| vote.verdict.to_string()).collect();
    assert_eq!(&causes[..3], ["connection closed"; 3]);
    let guard = other.lock(RESOURCE).await.unwrap();
    heal(&masters[..3]);
    settle().await;
    assert_eq!(copies(&masters), 5, "nothing of the first one is in the way");
    guard.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn masters_with_lost_replies_are_unknown_and_released() {
    let (masters, redlock) = masters(5);
    masters[..3].iter().for_each(|master| master.lose_replies(true));
    let error = redlock.try_lock(RESOURCE).await.unwrap_err();
    assert!(matches!(error, AcquireError::NoQuorum { .. }), "{error}");
    settle().await;
    assert_eq!(copies(&masters), 0, "the release reached them as the acquire did");
}

#[tokio::test(start_paused = true)]
async fn reply_delayed_beyond_the_ttl_is_not_a_grant() {
    let (masters, redlock) = masters(3);
    let late = ms(1_500);
    masters[..2].iter().for_each(|master| master.delay(ms(0)..=ms(0), late..=late));
    let acquired = redlock.lock(RESOURCE).wait(ms(100)).await;
    assert!(matches!(acquired, Err(AcquireError::NoQuorum { .. })), "{acquired:?}");
    sleep(late * 2).await;
    assert_eq!(copies(&masters), 0);
}

/// A grant that arrives after its attempt was abandoned is not part of the next attempt.
#[tokio::test(start_paused = true)]
async fn grants_of_a_lost_attempt_are_invalid_for_the_next() {
    let (masters, redlock) = masters(3);
    masters[0].put(RESOURCE, "stranger", 60_000);
    masters[1].delay(ms(0)..=ms(0), ms(60)..=ms(60));
    masters[2].delay(ms(0)..=ms(0), ms(55)..=ms(55));
    let acquired = redlock.lock(RESOURCE).wait(ms(500)).await;
    assert!(acquired.is_err(), "each attempt has one or no grant in time: {acquired:?}");
    settle().await;
    assert_eq!(copies(&masters), 1);
}

#[tokio::test(start_paused = true)]
async fn error_replies_are_not_votes_and_release_works_afterwards() {
    let (masters, redlock) = masters(5);
    for error in [
        "OOM command not allowed when used memory > 'maxmemory'",
        "READONLY You can't write against a read only replica",
        "LOADING Redis is loading the dataset in memory",
        "BUSY Redis is busy running a script",
        "MISCONF Errors writing to the AOF file",
        "NOPERM User default has no permissions",
        "CLUSTERDOWN Hash slot not served",
        "MOVED 1 10.0.0.1:6379",
        "WRONGTYPE Operation against a key holding the wrong kind of value",
    ] {
        masters[..2].iter().for_each(|master| master.error_replies(Some(error)));
        let guard = redlock.lock(RESOURCE).await.unwrap();
        assert_eq!(guard.copies(), 3);
        let votes = guard.votes().to_string();
        assert!(votes.starts_with(&format!("sim-0:6379 error reply: {error}, ")), "{votes}");
        masters[2].error_replies(Some(error));
        let status = redlock.status(RESOURCE).await;
        assert_eq!(status.state, redlock_quorum::State::Undecided);
        let refused = redlock.try_lock(RESOURCE).await.unwrap_err();
        assert!(matches!(refused, AcquireError::NoQuorum { .. }), "{refused}");
        masters.iter().for_each(|master| master.error_replies(None));
        guard.release().await.unwrap();
        until_free(&masters, ms(1_000)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn demoted_masters_end_a_lease() {
    let (masters, redlock) = masters(5);
    let guard = full(&redlock, &masters).await;
    let error = Some("READONLY You can't write against a read only replica.");
    masters[..3].iter().for_each(|master| master.error_replies(error));
    sleep(TTL / 2).await;
    assert_eq!(guard.check().unwrap_err().reason, LostReason::NotOurs);
}

/// A replica shows its role on a new connection, and gets no more requests. Its confirmations as a
/// master must not stay valid.
#[tokio::test(start_paused = true)]
async fn masters_returning_as_replicas_end_a_lease() {
    let (masters, redlock) = masters(5);
    let guard = redlock.lock(RESOURCE).min_copies(5).auto_extend(false).await.unwrap();
    masters[..2].iter().for_each(|master| master.set_role(Role::Replica));
    settle().await;
    assert_eq!((guard.is_held(), guard.copies()), (true, 3));
    masters[2].set_role(Role::Replica);
    settle().await;
    assert_eq!(guard.check().unwrap_err().reason, LostReason::DataLost);
}

#[tokio::test(start_paused = true)]
async fn clock_errors_within_the_guard_are_covered() {
    for without in [&[][..], &[0], &[0, 1]] {
        let duel = Duel::begin(without).await;
        duel.masters.iter().for_each(|master| master.step_clock(GUARD.as_millis() as i64));
        sleep(VALIDITY - ms(1)).await;
        assert_eq!(duel.end().await, None);
        let duel = Duel::begin(without).await;
        duel.masters.iter().for_each(|master| master.set_clock_rate(1.083));
        sleep(VALIDITY - ms(1)).await;
        assert_eq!(duel.end().await, None);
    }
}

#[tokio::test(start_paused = true)]
async fn clocks_that_jump_back_only_prolong_keys() {
    let duel = Duel::begin(&[]).await;
    duel.masters.iter().for_each(|master| master.step_clock(-5_000));
    sleep(TTL + GUARD * 2).await;
    assert_eq!(copies(&duel.masters), 5);
    assert!(!duel.guard.is_held());
    let masters = duel.masters.clone();
    assert_eq!(duel.end().await, None);
    until_free(&masters, ms(5_000)).await;
}

/// With `m` copies of five the lock survives `m + 3 - 5 - 1` masters that break the rules.
#[tokio::test(start_paused = true)]
async fn each_copy_beyond_a_quorum_survives_one_faulty_master() {
    for (without, broken) in [(&[][..], 2), (&[0], 1), (&[0, 1], 0)] {
        let duel = Duel::begin(without).await;
        duel.masters[2..2 + broken].iter().for_each(|master| master.flush());
        assert_eq!(duel.end().await, None);
        let duel = Duel::begin(without).await;
        duel.masters[2..2 + broken].iter().for_each(|master| master.step_clock(5_000));
        assert_eq!(duel.end().await, None);
    }
}

// Outside of them: the violation is there, and the checker sees it.

#[tokio::test(start_paused = true)]
async fn one_more_clock_jump_beyond_the_guard_makes_two_holders() {
    for (without, broken) in [(&[][..], 3), (&[0], 2), (&[0, 1], 1)] {
        let duel = Duel::begin(without).await;
        duel.masters[2..2 + broken].iter().for_each(|master| master.step_clock(5_000));
        assert_two_holders(duel.end().await);
    }
}

#[tokio::test(start_paused = true)]
async fn one_more_master_losing_its_keys_makes_two_holders() {
    for (without, broken) in [(&[][..], 3), (&[0], 2), (&[0, 1], 1)] {
        // Simulates an eviction or a FLUSHALL: the process continues, and the key is gone.
        let duel = Duel::begin(without).await;
        duel.masters[2..2 + broken].iter().for_each(|master| master.flush());
        assert_two_holders(duel.end().await);
    }
}

#[tokio::test(start_paused = true)]
async fn connected_holder_notices_a_restart_without_data() {
    for (without, broken) in [(&[][..], 3), (&[0], 2), (&[0, 1], 1)] {
        let duel = Duel::begin(without).await;
        duel.masters[2..2 + broken].iter().for_each(|master| master.crash_and_restart(false));
        settle().await;
        assert_eq!(duel.guard.check().unwrap_err().reason, LostReason::DataLost);
    }
}

#[tokio::test(start_paused = true)]
async fn restart_without_data_makes_two_holders_if_one_is_cut_off() {
    for (without, broken) in [(&[][..], 3), (&[0], 2), (&[0, 1], 1)] {
        let duel = Duel::begin(without).await;
        for master in &duel.masters[2..2 + broken] {
            master.partition();
            master.crash_and_restart(false);
        }
        settle().await;
        assert_two_holders(duel.end().await);
    }
}

#[tokio::test(start_paused = true)]
async fn clock_faster_than_guard_and_drift_makes_two_holders() {
    let duel = Duel::begin(&[0, 1]).await;
    duel.masters[2].set_clock_rate(1.5);
    sleep(ms(800)).await;
    assert_two_holders(duel.end().await);
}

const LONG: Campaign = Campaign {
    masters: 5,
    contenders: 6,
    callers: 1,
    length: ms(20_000),
    quarantine: Quarantine::Off,
};

/// Runs campaigns until one shows two holders. If none does, there is no seed to replay.
fn assert_caught(seeds: u64, nemesis: impl Fn(u64) -> Nemesis) {
    let found = (0..seeds).find_map(|seed| {
        let outcome = seeds::simulate(LONG.run(seed, &nemesis(seed)));
        let error = outcome.err()?.to_string();
        // The contenders' own look at the masters may notice it first.
        (error.starts_with("two holders") || error.contains("masters only")).then_some(error)
    });
    assert!(found.is_some(), "none of {seeds} seeds found it");
}

#[test]
fn campaign_of_clock_jumps_beyond_the_guard_is_caught() {
    assert_caught(20, |seed| {
        let faults = [Fault::ClockStep, Fault::Partition];
        Nemesis::new(seed).at_most(2).faults(faults).clock_step_max(TTL * 2)
    });
}

#[test]
fn campaign_of_forgetful_masters_is_caught() {
    assert_caught(100, |seed| {
        let faults = [Fault::KillAndLoseData, Fault::Partition];
        Nemesis::new(seed).at_most(2).faults(faults)
    });
}

#[tokio::test(start_paused = true)]
async fn one_lock_sends_the_minimum_of_requests() {
    let (masters, redlock) = masters(5);
    let guard = full(&redlock, &masters).await;
    guard.release().await.unwrap();
    for master in masters.iter() {
        assert_eq!(acquires(master).len(), 1);
        assert_eq!(count(master, |verb| matches!(verb, Verb::Release)), 1);
        assert_eq!(master.log().len(), 2, "{:?}", master.log());
    }
}
