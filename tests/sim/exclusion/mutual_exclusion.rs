//! The promise itself: whatever happens inside the assumptions, there is one holder at a time.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use anyhow::ensure;
use redlock_quorum::Quarantine;
use redlock_testkit::{Fault, Nemesis};

use crate::arena::{GUARD, NODE_TIMEOUT, ms};
use crate::exclusion::contenders::Campaign;
use crate::seeds;

pub(super) const FIVE: Campaign = Campaign {
    masters: 5,
    contenders: 8,
    callers: 1,
    length: ms(8_000),
    quarantine: Quarantine::Off,
};
pub(super) const THREE: Campaign = Campaign {
    masters: 3,
    contenders: 6,
    callers: 2,
    length: ms(8_000),
    quarantine: Quarantine::Off,
};

/// All that keys survive, on a minority of the masters: processes that stop or restart with their
/// keys, networks that lose, delay and part, clocks that jump by as much as the guard.
pub(super) fn nemesis(seed: u64, masters: usize) -> Nemesis {
    Nemesis::new(seed).at_most((masters - 1) / 2).delay_max(NODE_TIMEOUT).clock_step_max(GUARD)
}

/// Runs one campaign after the other. Each must have some claims, and all together many: a lock
/// that is never acquired proves nothing.
fn campaigns(test: &str, campaign: Campaign, seeds: u64) {
    let (runs, claims) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    seeds::each(test, 0..seeds, |seed| {
        let (runs, claims) = (runs.clone(), claims.clone());
        async move {
            let outcome = campaign.run(seed, &nemesis(seed, campaign.masters)).await?;
            ensure!(outcome.claims > 0, "no claim at all");
            runs.fetch_add(1, Relaxed);
            claims.fetch_add(outcome.claims, Relaxed);
            Ok(())
        }
    });
    let (runs, claims) = (runs.load(Relaxed), claims.load(Relaxed));
    // One run alone, replayed, may be one of the poor ones.
    assert!(runs == 1 || claims >= 5 * runs, "{claims} claims in {runs} runs prove nothing");
}

#[test]
fn five_masters_with_two_faulty_have_one_holder_at_a_time() {
    campaigns("five_masters_with_two_faulty_have_one_holder_at_a_time", FIVE, 100);
}

#[test]
fn three_masters_with_one_faulty_have_one_holder_at_a_time() {
    campaigns("three_masters_with_one_faulty_have_one_holder_at_a_time", THREE, 100);
}

/// Safety needs no majority: only progress does.
#[test]
fn faulty_majority_costs_time_and_never_makes_two_holders() {
    seeds::each(
        "faulty_majority_costs_time_and_never_makes_two_holders",
        0..40,
        |seed| async move {
            let nemesis = nemesis(seed, FIVE.masters).at_most(4);
            let outcome = FIVE.run(seed, &nemesis).await?;
            ensure!(outcome.claims > 0, "no claim at all");
            Ok(())
        },
    );
}

/// Any number of masters lose data at any time, with all other faults. The same campaigns without a
/// quarantine show two holders: `faults.rs`.
#[test]
fn forgetful_masters_have_one_holder_at_a_time() {
    const FORGETFUL: Campaign = Campaign { quarantine: Quarantine::On, ..FIVE };
    seeds::each("forgetful_masters_have_one_holder_at_a_time", 0..40, |seed| async move {
        use Fault::{ClockStep, Delay, Kill, KillAndLoseData, Partition, Pause};
        let faults = [KillAndLoseData, KillAndLoseData, Kill, Partition, Pause, Delay, ClockStep];
        let nemesis = nemesis(seed, FORGETFUL.masters).at_most(4).faults(faults);
        let outcome = FORGETFUL.run(seed, &nemesis).await?;
        ensure!(outcome.claims > 0, "no claim at all");
        Ok(())
    });
}

#[test]
fn campaign_is_reproducible() {
    let run = |seed| seeds::simulate(FIVE.run(seed, &nemesis(seed, 5))).unwrap();
    assert_eq!(run(1), run(1));
    assert_ne!(run(1).story, run(2).story);
}
