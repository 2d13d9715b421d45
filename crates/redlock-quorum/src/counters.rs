//! `Counters`: the numbers of the driver, readable from other threads.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redlock_core::ListWarning;
use redlock_protocol::client::counts::Count;

use crate::lost::LostReason;
use crate::stats::{Histogram, Losses, NodeStats, Outcomes, Stats, VoteStats};

/// The counters that [`Stats`] reports. Only the driver writes them, so that counting is a load and
/// a store without locking. Any thread may read them.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) attempts: Counter,
    pub(crate) rounds: Counter,
    pub(crate) ballots: Counter,
    pub(crate) second_ballots: Counter,
    pub(crate) ballots_refused: Counter,
    outcomes: [Counter; Outcomes::KINDS],
    pub(crate) requests: Counter,
    pub(crate) acquired: Counter,
    pub(crate) handed_over: Counter,
    pub(crate) cancelled: Counter,
    pub(crate) failed: Counter,
    pub(crate) held: Counter,
    pub(crate) waiting: Counter,
    pub(crate) waits: Durations,
    pub(crate) watches: Counter,
    pub(crate) polls: Counter,
    pub(crate) observations: Counter,
    pub(crate) pushes: Counter,
    pub(crate) extensions: Counter,
    pub(crate) margins: Durations,
    losses: [Counter; Losses::KINDS],
    nodes: Box<[NodeCounters]>,
    names: Arc<[Arc<str>]>,
    /// Why the list of this handle may be wrong although it works. It is locked only to be replaced
    /// and to be read.
    list_warning: Mutex<Option<ListWarning>>,
}

/// The numbers of one master.
#[derive(Debug, Default)]
struct NodeCounters {
    is_up: AtomicBool,
    connections: Counter,
    votes: [Counter; VoteStats::KINDS],
    unacknowledged: Counter,
}

impl Counters {
    pub(crate) fn new(names: Arc<[Arc<str>]>) -> Arc<Self> {
        let nodes = names.iter().map(|_| NodeCounters::default()).collect();
        Arc::new(Self { nodes, names, ..Self::default() })
    }

    /// Counts an event.
    pub(crate) fn count(&self, count: Count) {
        let counter = match count {
            Count::Request => &self.requests,
            Count::Attempt => &self.attempts,
            Count::Round => &self.rounds,
            Count::Ballot => &self.ballots,
            Count::SecondBallot => &self.second_ballots,
            Count::BallotRefused => &self.ballots_refused,
            // In the order of the kinds.
            Count::Ended(end) => &self.outcomes[end as usize],
            Count::Cancelled => &self.cancelled,
            Count::HandedOver => &self.handed_over,
            Count::Watch => &self.watches,
            Count::Poll => &self.polls,
            Count::Observation => &self.observations,
            Count::Push => &self.pushes,
            Count::Extension => &self.extensions,
            Count::Vote(master, said) => &self.nodes[usize::from(master)].votes[said as usize],
        };
        counter.add(1);
    }

    /// Counts a lost lock. A released lock is not lost.
    pub(crate) fn loss(&self, reason: LostReason) {
        // The counters are in the order of the reasons. The last reason, a release, has none.
        if let Some(losses) = self.losses.get(reason as usize) {
            losses.add(1);
        }
    }

    /// Records a new connection to `master`.
    pub(crate) fn up(&self, master: usize) {
        let node = &self.nodes[master];
        node.connections.add(1);
        node.is_up.store(true, Ordering::Relaxed);
    }

    /// Records that `master` has no connection.
    pub(crate) fn down(&self, master: usize) {
        self.nodes[master].is_up.store(false, Ordering::Relaxed);
    }

    /// Sets how many releases `master` has not acknowledged.
    pub(crate) fn unacknowledged(&self, master: usize, releases: usize) {
        self.nodes[master].unacknowledged.set(releases);
    }

    /// Sets or clears the warning that the list of this handle may be wrong.
    pub(crate) fn set_list_warning(&self, warning: Option<ListWarning>) {
        *self.list_warning.lock().unwrap_or_else(PoisonError::into_inner) = warning;
    }

    /// Returns why the list of this handle may be wrong although it works.
    pub(crate) fn list_warning(&self) -> Option<ListWarning> {
        self.list_warning.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn stats(&self) -> Stats {
        let node = |(name, node): (&Arc<str>, &NodeCounters)| NodeStats {
            node: name.clone(),
            is_up: node.is_up.load(Ordering::Relaxed),
            connections: node.connections.get(),
            votes: VoteStats::new(node.votes.each_ref().map(Counter::get)),
            unacknowledged: node.unacknowledged.get(),
        };
        Stats {
            attempts: self.attempts.get(),
            rounds: self.rounds.get(),
            ballots: self.ballots.get(),
            second_ballots: self.second_ballots.get(),
            ballots_refused: self.ballots_refused.get(),
            outcomes: Outcomes::new(self.outcomes.each_ref().map(Counter::get)),
            requests: self.requests.get(),
            acquired: self.acquired.get(),
            handed_over: self.handed_over.get(),
            cancelled: self.cancelled.get(),
            failed: self.failed.get(),
            held: self.held.get(),
            waiting: self.waiting.get(),
            waits: self.waits.histogram(),
            watches: self.watches.get(),
            polls: self.polls.get(),
            observations: self.observations.get(),
            pushes: self.pushes.get(),
            extensions: self.extensions.get(),
            margins: self.margins.histogram(),
            losses: Losses::new(self.losses.each_ref().map(Counter::get)),
            nodes: self.names.iter().zip(&self.nodes).map(node).collect(),
        }
    }
}

/// A number with one writer at a time: the driver, wherever it is.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, more: u64) {
        self.0.store(self.get().wrapping_add(more), Ordering::Relaxed);
    }

    pub(crate) fn set(&self, number: usize) {
        // No table of the driver is that long.
        self.0.store(u64::try_from(number).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Durations by their length, and all of them together in nanoseconds.
#[derive(Debug, Default)]
pub(crate) struct Durations {
    sum: Counter,
    buckets: [Counter; Histogram::BUCKETS],
}

impl Durations {
    pub(crate) fn add(&self, duration: Duration) {
        let place = Histogram::BOUNDS.partition_point(|bound| *bound < duration);
        self.buckets[place].add(1);
        self.sum.add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
    }

    fn histogram(&self) -> Histogram {
        let buckets = self.buckets.each_ref().map(Counter::get);
        let sum = Duration::from_nanos(self.sum.get());
        Histogram { count: buckets.iter().sum(), sum, buckets }
    }
}

#[cfg(test)]
mod tests {
    use redlock_core::{Cause, NotAdmitted, Verdict, WhyNot};
    use redlock_protocol::client::effects::Effects;

    use super::*;

    fn counters() -> Arc<Counters> {
        Counters::new(Arc::from(["a:1".into(), "b:1".into()]))
    }

    /// The numbers that are not zero.
    fn moved<const N: usize>(numbers: [(&'static str, u64); N]) -> Vec<&'static str> {
        numbers.iter().filter(|(_, number)| *number > 0).map(|(name, _)| *name).collect()
    }

    #[test]
    fn answers_have_separate_counters() {
        let unknown = Verdict::Unknown;
        for (verdict, name) in [
            (Verdict::Granted, "granted"),
            (Verdict::HELD, "held"),
            (Verdict::NotOurs, "not_ours"),
            (Verdict::Free, "free"),
            (unknown(Cause::TimedOut), "timed_out"),
            (unknown(Cause::ConnectionRefused), "connection_refused"),
            (unknown(Cause::ConnectionClosed), "connection_closed"),
            (unknown(Cause::NotConnected("".into())), "not_connected"),
            (unknown(Cause::Unusable("".into())), "unusable"),
            (unknown(Cause::NotSent("".into())), "not_sent"),
            (unknown(Cause::ErrorReply(String::new())), "error_reply"),
            (unknown(Cause::Demoted(String::new())), "demoted"),
            (unknown(Cause::NotAdmitted(NotAdmitted::new(WhyNot::Loading).into())), "not_admitted"),
            (unknown(Cause::TwinOf(String::new())), "twin"),
        ] {
            let counters = counters();
            let mut effects = Effects::default();
            effects.count_vote(1, &verdict);
            effects.count_vote(1, &Verdict::Pending);
            effects.counts.into_iter().for_each(|count| counters.count(count));
            let stats = counters.stats();
            assert_eq!(moved(stats.nodes[1].votes.by_name()), [name]);
            assert_eq!(stats.nodes[0].votes, VoteStats::default());
        }
    }

    #[test]
    fn losses_are_counted_by_reason_and_releases_are_not() {
        for (reason, names) in [
            (LostReason::NotExtended, vec!["not_extended"]),
            (LostReason::NotOurs, vec!["not_ours"]),
            (LostReason::DataLost, vec!["data_lost"]),
            (LostReason::MaxHold, vec!["max_hold"]),
            (LostReason::Shutdown, vec!["shutdown"]),
            (LostReason::Panicked, vec!["panicked"]),
            (LostReason::Released, vec![]),
        ] {
            let counters = counters();
            counters.loss(reason);
            assert_eq!(moved(counters.stats().losses.by_name()), names);
        }
    }

    #[test]
    fn duration_is_counted_in_its_histogram_bucket() {
        let durations = Durations::default();
        let nanos = Duration::from_nanos;
        for duration in [nanos(0), nanos(1_000_000), nanos(1_000_001), Duration::from_secs(61)] {
            durations.add(duration);
        }
        let histogram = durations.histogram();
        assert_eq!(histogram.count, 4);
        assert_eq!(histogram.sum, nanos(61_002_000_001));
        assert_eq!((histogram.buckets[0], histogram.buckets[1], histogram.buckets[15]), (2, 1, 1));
        assert!(Histogram::BOUNDS.is_sorted());
    }
}
