//! `Nemesis`: a campaign of faults that follows from one seed.

use std::fmt;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{RngExt, SeedableRng};

use super::{SimNode, SimNodes};

/// A fault, or its end, of a simulated master.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The process dies and comes back later with its keys.
    Kill,
    /// The process dies and comes back later without its keys. Outside of what a lock without
    /// quarantine survives, so only on request.
    KillAndLoseData,
    /// The process is stopped for a while.
    Pause,
    /// The connections of the master break for a while.
    Partition,
    /// Requests vanish for a while.
    LoseRequests,
    /// Replies vanish for a while.
    LoseReplies,
    /// Both ways are slow for a while.
    Delay,
    /// The clock of the master is set permanently. This counts against no limit.
    ClockStep,
    /// Several masters are stopped one after the other and resumed in another order.
    SwizzleClog,
}

/// An action on one master at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// The fault begins.
    Begin(Fault),
    /// The fault ends.
    End(Fault),
    /// The master's clock is set by so many milliseconds.
    StepClock(i64),
}

/// One line of a campaign.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Step {
    /// When, from the beginning of the campaign.
    pub at: Duration,
    /// The master, by its place in the list.
    pub node: usize,
    /// Whose network, for a fault of the network: one client's, or every client's where there is
    /// none. A fault of the server is the same for all, regardless of the client that causes it.
    pub client: Option<usize>,
    /// The action.
    pub action: Action,
}

/// Plans a campaign of faults from a seed, and carries it out.
#[derive(Clone, Debug)]
pub struct Nemesis {
    seed: u64,
    faults: Vec<Fault>,
    at_most: usize,
    delay_max: Duration,
    clock_step_max: Duration,
}

impl Nemesis {
    /// Creates a plan of all faults that keys survive, on one master at a time, with delays of up
    /// to 100 ms each way and clocks that are never wrong by more than 50 ms.
    pub fn new(seed: u64) -> Self {
        use Fault::{
            ClockStep, Delay, Kill, LoseReplies, LoseRequests, Partition, Pause, SwizzleClog,
        };
        Self {
            seed,
            faults: vec![
                Kill,
                Pause,
                Partition,
                LoseRequests,
                LoseReplies,
                Delay,
                ClockStep,
                SwizzleClog,
            ],
            at_most: 1,
            delay_max: Duration::from_millis(100),
            clock_step_max: Duration::from_millis(50),
        }
    }

    /// Only these faults.
    #[must_use]
    pub fn faults(mut self, faults: impl Into<Vec<Fault>>) -> Self {
        self.faults = faults.into();
        self
    }

    /// Sets the maximum number of masters with a fault at the same time.
    #[must_use]
    pub fn at_most(mut self, nodes: usize) -> Self {
        self.at_most = nodes;
        self
    }

    /// Sets the longest delay each way.
    #[must_use]
    pub fn delay_max(mut self, delay: Duration) -> Self {
        self.delay_max = delay;
        self
    }

    /// Sets the largest difference between the errors of one clock at two times.
    #[must_use]
    pub fn clock_step_max(mut self, step: Duration) -> Self {
        self.clock_step_max = step;
        self
    }

    /// Returns the steps of the whole plan, in order of time. Every fault that begins also ends.
    pub fn plan(&self, nodes: usize, clients: usize, length: Duration) -> Vec<Step> {
        let mut plan = Plan {
            rng: StdRng::seed_from_u64(self.seed),
            busy_until: vec![Duration::ZERO; nodes],
            offsets: vec![0; nodes],
            steps: Vec::new(),
        };
        let mut at = plan.between(0, 300);
        while at < length && nodes > 0 {
            if let Some(fault) = self.faults.choose(&mut plan.rng).copied() {
                self.strike(&mut plan, fault, at, clients);
            }
            at += plan.between(20, 400);
        }
        // Of two steps at one moment the one planned first goes first: the sort is stable.
        plan.steps.sort_by_key(|step| step.at);
        plan.steps
    }

    /// Carries the campaign out on the masters that all of `clients` see, and heals everything.
    pub async fn run(&self, clients: &[SimNodes], length: Duration) {
        let Some(nodes) = clients.first() else { return };
        let mut passed = Duration::ZERO;
        for step in self.plan(nodes.len(), clients.len(), length) {
            tokio::time::sleep(step.at - passed).await;
            passed = step.at;
            match step.client {
                Some(client) => self.act(&clients[client][step.node], step.action),
                None => clients.iter().for_each(|all| self.act(&all[step.node], step.action)),
            }
        }
    }

    fn strike(&self, plan: &mut Plan, fault: Fault, at: Duration, clients: usize) {
        let free = self.free(plan, at);
        match fault {
            Fault::ClockStep => self.step_clock(plan, at),
            Fault::SwizzleClog => free.into_iter().for_each(|node| {
                let (begin, length) = (at + plan.between(0, 200), plan.between(300, 1_500));
                plan.fault(Fault::Pause, node, Some(0), begin, length);
            }),
            _ => {
                let Some(node) = free.first().copied() else { return };
                let network = !matches!(fault, Fault::Kill | Fault::KillAndLoseData | Fault::Pause);
                let alone = network && plan.rng.random();
                // A fault of the server reaches every client through any of them.
                let client = if alone { plan.rng.random_range(0..clients) } else { 0 };
                let client = (alone || !network).then_some(client);
                let length = plan.between(50, 2_500);
                plan.fault(fault, node, client, at, length);
            }
        }
    }

    /// Masters that may get into trouble now, in random order.
    fn free(&self, plan: &mut Plan, at: Duration) -> Vec<usize> {
        let (busy, mut free): (Vec<_>, Vec<_>) =
            (0..plan.busy_until.len()).partition(|node| plan.busy_until[*node] > at);
        free.shuffle(&mut plan.rng);
        free.truncate(self.at_most.saturating_sub(busy.len()));
        free
    }

    /// Sets a clock somewhere into a window, so that steps never add up to more than the bound.
    fn step_clock(&self, plan: &mut Plan, at: Duration) {
        let node = plan.rng.random_range(0..plan.offsets.len());
        let bound = i64::try_from(self.clock_step_max.as_millis()).unwrap_or(i64::MAX);
        let offset = plan.rng.random_range(0..=bound);
        let step = offset - std::mem::replace(&mut plan.offsets[node], offset);
        plan.steps.push(Step { at, node, client: Some(0), action: Action::StepClock(step) });
    }

    fn act(&self, node: &SimNode, action: Action) {
        use Fault::{
            ClockStep, Delay, Kill, KillAndLoseData, LoseReplies, LoseRequests, Partition, Pause,
            SwizzleClog,
        };
        let zero = Duration::ZERO..=Duration::ZERO;
        let slow = Duration::ZERO..=self.delay_max;
        match action {
            Action::Begin(Kill | KillAndLoseData) => node.down(),
            Action::End(kill @ (Kill | KillAndLoseData)) => {
                node.crash_and_restart(kill == Kill);
                node.up();
            }
            Action::Begin(Pause | SwizzleClog) => node.hold(),
            Action::End(Pause | SwizzleClog) => node.release(),
            Action::Begin(Partition) => node.partition(),
            Action::End(Partition) => node.heal(),
            Action::Begin(LoseRequests) => node.lose_requests(true),
            Action::End(LoseRequests) => node.lose_requests(false),
            Action::Begin(LoseReplies) => node.lose_replies(true),
            Action::End(LoseReplies) => node.lose_replies(false),
            Action::Begin(Delay) => node.delay(slow.clone(), slow),
            Action::End(Delay) => node.delay(zero.clone(), zero),
            Action::Begin(ClockStep) | Action::End(ClockStep) => {}
            Action::StepClock(millis) => node.step_clock(millis),
        }
    }
}

/// A campaign in the making.
struct Plan {
    rng: StdRng,
    busy_until: Vec<Duration>,
    /// How far each clock has been set from where it began, in milliseconds.
    offsets: Vec<i64>,
    steps: Vec<Step>,
}

impl Plan {
    fn between(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_millis(self.rng.random_range(least..=most))
    }

    fn fault(
        &mut self,
        fault: Fault,
        node: usize,
        client: Option<usize>,
        begin: Duration,
        length: Duration,
    ) {
        let end = begin + length;
        self.busy_until[node] = end;
        self.steps.push(Step { at: begin, node, client, action: Action::Begin(fault) });
        self.steps.push(Step { at: end, node, client, action: Action::End(fault) });
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {:?} on master {}", self.at, self.action, self.node)?;
        match self.client {
            Some(client) => write!(f, " (client {client})"),
            None => write!(f, " (all clients)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn one_seed_is_one_campaign() {
        assert_eq!(Nemesis::new(7).plan(5, 3, MINUTE), Nemesis::new(7).plan(5, 3, MINUTE));
        assert_ne!(Nemesis::new(7).plan(5, 3, MINUTE), Nemesis::new(8).plan(5, 3, MINUTE));
    }

    #[test]
    fn faults_stay_within_the_limit_and_all_end() {
        for seed in 0..50 {
            let mut troubled = Vec::new();
            let mut worst = 0;
            for step in Nemesis::new(seed).at_most(2).plan(5, 3, MINUTE) {
                match step.action {
                    Action::Begin(_) => troubled.push(step.node),
                    Action::End(_) => troubled.retain(|node| *node != step.node),
                    Action::StepClock(_) => {}
                }
                worst = worst.max(troubled.len());
            }
            assert_eq!((worst, troubled), (2, vec![]), "seed {seed}");
        }
    }

    #[test]
    fn clocks_stay_within_bounds_and_data_is_kept_by_default() {
        let plan = Nemesis::new(3).plan(5, 1, MINUTE * 10);
        let mut offsets = [0; 5];
        for step in plan {
            if let Action::StepClock(millis) = step.action {
                offsets[step.node] += millis;
            }
            assert!((0..=50).contains(&offsets[step.node]), "{step}");
            assert_ne!(step.action, Action::Begin(Fault::KillAndLoseData));
        }
        let asked = Nemesis::new(3).faults([Fault::KillAndLoseData]).plan(5, 1, MINUTE);
        assert!(asked.iter().any(|step| step.action == Action::Begin(Fault::KillAndLoseData)));
    }
}
