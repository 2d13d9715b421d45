//! A handle that stays connected for weeks, together with handles that come for one lock each, on
//! masters whose clocks drift and are stepped: how many of their locks need a second ballot.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use redlock_quorum::{Redlock, Stats};
use redlock_testkit::SimNodes;
use tokio::time::sleep;

use crate::arena::{TTL, admitted, handle, ms};
use crate::seeds;

/// The variable with the number of days for which the handle stays, such as 30 for a month.
const DAYS: &str = "REDLOCK_DAYS";
const DAYS_DEFAULT: u64 = 2;
const DAY: Duration = ms(24 * 3_600_000);

/// The longest pause between two locks outside a burst.
const PAUSE_MAX: Duration = ms(600_000);
/// Between two locks of a burst.
const SHORT_MAX: Duration = ms(1_000);
/// The locks of a burst, half of them by the handle that stays.
const BURST: usize = 20;
/// Of so many turns one is followed by a burst, which is about one in two hours.
const BURST_EVERY: u32 = 12;
/// Of so many turns one has a step of a clock between its two locks: some five a day.
const STEP_EVERY: u32 = 100;
const RESOURCES: [&str; 5] = ["a", "b", "c", "d", "e"];

/// The behavior of the clocks of five masters.
struct Clocks {
    /// Seconds of each in one second.
    rates: [f64; 5],
    steps: Steps,
}

/// In milliseconds.
enum Steps {
    None,
    /// One of them is stepped ahead, and corrected the next time.
    One(i64),
    /// All of them are stepped together, by as much as this, ahead or back.
    All(i64),
}

/// How many attempts there were, and how many of them needed another ballot.
#[derive(Debug, Default)]
struct Cost {
    attempts: u64,
    second_ballots: u64,
    bursts: u64,
}

impl Cost {
    fn add(&mut self, stats: &Stats) {
        assert_eq!(
            (stats.attempts, stats.failed),
            (stats.acquired, 0),
            "each lock has one attempt"
        );
        assert_eq!(stats.ballots, stats.attempts + stats.second_ballots);
        self.attempts += stats.attempts;
        self.second_ballots += stats.second_ballots;
    }

    /// How many of a thousand had one ballot.
    fn share(&self) -> u64 {
        (self.attempts - self.second_ballots) * 1_000 / self.attempts
    }
}

struct Uptime<'a> {
    clocks: &'a Clocks,
    masters: SimNodes,
    /// The connections of the handles that come and go, one after the other.
    visitors: SimNodes,
    staying: Redlock,
    chance: StdRng,
    /// The largest token of each resource.
    tokens: [u64; RESOURCES.len()],
    /// By how much the first master is ahead for now.
    ahead: i64,
    cost: Cost,
}

impl<'a> Uptime<'a> {
    fn new(clocks: &'a Clocks) -> Self {
        let masters = admitted(clocks.rates.len(), 0);
        for (master, rate) in masters.iter().zip(clocks.rates) {
            master.set_clock_rate(rate);
        }
        Self {
            clocks,
            visitors: masters.another_client(),
            staying: handle(&masters).build().unwrap(),
            masters,
            chance: StdRng::seed_from_u64(0),
            tokens: [0; RESOURCES.len()],
            ahead: 0,
            cost: Cost::default(),
        }
    }

    async fn pause(&mut self, longest: Duration) {
        let longest = u64::try_from(longest.as_millis()).unwrap();
        sleep(ms(self.chance.random_range(1..=longest))).await;
    }

    /// Acquires a lock on one of the resources, and checks that its token is larger than the
    /// previous one.
    async fn lock(&mut self, redlock: &Redlock) {
        let resource = self.chance.random_range(0..RESOURCES.len());
        let guard = redlock.try_lock(RESOURCES[resource]).await.unwrap();
        let token = guard.fencing_token().unwrap().get();
        assert!(token > self.tokens[resource], "{token} behind {}", self.tokens[resource]);
        self.tokens[resource] = token;
        guard.release().await.unwrap();
    }

    /// The handle that stays acquires a lock, and a new handle acquires another.
    async fn turn(&mut self, pause: Duration) {
        self.pause(pause).await;
        let staying = self.staying.clone();
        self.lock(&staying).await;
        if self.chance.random_ratio(1, STEP_EVERY) {
            self.step();
        }
        self.pause(pause).await;
        let visitor = handle(&self.visitors).build().unwrap();
        self.lock(&visitor).await;
        self.cost.add(&visitor.stats());
        visitor.shutdown(TTL).await.unwrap();
    }

    fn step(&mut self) {
        match self.clocks.steps {
            Steps::None => {}
            Steps::One(by) => {
                let ahead = if self.ahead == 0 { by } else { 0 };
                self.masters[0].step_clock(ahead - self.ahead);
                self.ahead = ahead;
            }
            Steps::All(most) => {
                let by = self.chance.random_range(-most..=most);
                self.masters.iter().for_each(|master| master.step_clock(by));
            }
        }
    }

    async fn run(mut self, length: Duration, has_bursts: bool) -> Cost {
        let until = self.masters.clock().now().saturating_add(length);
        while self.masters.clock().now() < until {
            self.turn(PAUSE_MAX).await;
            if has_bursts && self.chance.random_ratio(1, BURST_EVERY) {
                self.cost.bursts += 1;
                for _ in 0..BURST / 2 {
                    self.turn(SHORT_MAX).await;
                }
            }
        }
        self.cost.add(&self.staying.stats());
        self.cost
    }
}

fn cost(what: &str, clocks: &Clocks, has_bursts: bool) -> Cost {
    let given = std::env::var(DAYS).ok();
    let days = given.map_or(DAYS_DEFAULT, |days| days.parse().expect("REDLOCK_DAYS is a number"));
    let length = DAY * u32::try_from(days).expect("some days");
    let cost = seeds::simulate(async { Uptime::new(clocks).run(length, has_bursts).await });
    println!("{what}, {days} days: {cost:?}, {} of 1,000 with one ballot", cost.share());
    assert!(cost.attempts > 200 * days, "{cost:?}");
    cost
}

fn assert_cheap(what: &str, clocks: &Clocks) {
    let cost = cost(what, clocks, true);
    assert!(cost.share() >= 990, "{what}: {cost:?}");
}

#[test]
fn almost_all_locks_need_one_ballot_with_clocks_1_percent_apart() {
    let rates = [1.01, 0.99, 1.005, 0.995, 1.0];
    assert_cheap("apart", &Clocks { rates, steps: Steps::None });
}

#[test]
fn almost_all_locks_need_one_ballot_with_drifting_clocks() {
    let fast = [1.0001, 1.00012, 1.00008, 1.0001, 1.00005];
    assert_cheap("all fast", &Clocks { rates: fast, steps: Steps::None });
    let slow = fast.map(|rate| 2.0 - rate);
    assert_cheap("all slow", &Clocks { rates: slow, steps: Steps::None });
}

#[test]
fn almost_all_locks_need_one_ballot_with_stepped_clocks() {
    let rates = [1.0; 5];
    assert_cheap("one is stepped by an hour", &Clocks { rates, steps: Steps::One(3_600_000) });
    assert_cheap("all are stepped", &Clocks { rates, steps: Steps::All(500) });
}

/// Between two readings of TIME, the handle that stays differs from a new handle by up to 750 ms,
/// and learns that again in each burst.
#[test]
fn burst_needs_at_most_two_second_ballots_with_fast_clocks() {
    for (what, rates) in [
        ("all fast by a hundredth", [1.01, 1.009, 1.008, 1.01, 1.007]),
        ("all slow by a hundredth", [0.99, 0.991, 0.992, 0.99, 0.993]),
    ] {
        let clocks = Clocks { rates, steps: Steps::None };
        let without = cost(what, &clocks, false);
        assert!(without.share() >= 990, "{what}: {without:?}");
        let cost = cost(what, &clocks, true);
        assert!(cost.second_ballots <= 2 * cost.bursts, "{what}: {cost:?}");
    }
}
