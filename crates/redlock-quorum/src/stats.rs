//! `Stats`: counters of a handle.

use std::sync::Arc;
use std::time::Duration;

use redlock_protocol::client::counts::Said;

/// Statistics of a handle and all its clones since it was built.
///
/// The numbers are read one by one while they change, so two related numbers may differ by the
/// events in between. They start at zero with each handle.
///
/// Related numbers add up if nothing is under way. `attempts` is the sum of `outcomes`. `acquired`
/// is `outcomes.won` plus `handed_over`. `requests` is `acquired` plus `failed` plus `cancelled`
/// (and `waiting`, while some are under way). The number of `waits` is `acquired` plus `failed`.
/// Each event is counted once.
///
/// `held`, `waiting` and the fields marked so in [`NodeStats`] are current values. All others only
/// grow.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Stats {
    /// Attempts: tokens that were requested from masters. Includes resumed leases.
    pub attempts: u64,
    /// Attempts by outcome. Each is in one of these, or still under way.
    pub outcomes: Outcomes,
    /// Waits of attempts for masters: one if all were queried at the same time, two if the meeting
    /// point was queried before the others.
    pub rounds: u64,
    /// Proposed ballots: one with each attempt if locks have fencing tokens, and one for each
    /// second ballot.
    pub ballots: u64,
    /// Ballots proposed because too few masters had accepted the previous one. Each costs a round
    /// trip.
    pub second_ballots: u64,
    /// Attempts that failed because no ballot was accepted in time, although a quorum had granted
    /// the key.
    pub ballots_refused: u64,
    /// Requests for a lock, and for a lease to resume. Each is finally acquired, failed or
    /// cancelled. A request that is repeated because its runtime is gone is another request.
    pub requests: u64,
    /// Locks acquired and leases resumed, including those released immediately because the caller
    /// had gone.
    pub acquired: u64,
    /// Locks that passed from one caller of this process to the next, without a request.
    pub handed_over: u64,
    /// Requests that failed with an error. Most were refused by masters, or not answered, until
    /// their wait was over.
    pub failed: u64,
    /// Requests whose caller went away, or whose runtime ended, before there was an answer.
    pub cancelled: u64,
    /// Locks currently held.
    pub held: u64,
    /// Requests for a lock currently without an answer.
    pub waiting: u64,
    /// Time from a request for a lock to its answer, successful or not.
    pub waits: Histogram,
    /// Queries to a meeting point about the holder of a key that callers wait for.
    pub watches: u64,
    /// Requests of waiting callers, sent because time had passed and not because of a push:
    /// watches, and attempts after an uninterrupted pause.
    pub polls: u64,
    /// Reads of a key for a stream of changes ([`Redlock::watch`](crate::Redlock::watch) and
    /// [`Election::observe`](crate::Election::observe)): about one per second for each stream, one
    /// more for each push, and at most ten per second.
    pub observations: u64,
    /// Reports of masters that a key has changed, or that all keys may have changed.
    pub pushes: u64,
    /// Extensions sent, automatic or by the holder.
    pub extensions: u64,
    /// The remaining time of the lease at each extension that moved its deadline. Values close to
    /// zero mean that leases are about to be lost.
    pub margins: Histogram,
    /// Lost locks, by reason.
    pub losses: Losses,
    /// Each master, in the order in which they were configured.
    pub nodes: Vec<NodeStats>,
}

/// Attempts by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Outcomes {
    /// Attempts that a quorum granted in time.
    pub won: u64,
    /// Attempts that failed because another client holds the key.
    pub held: u64,
    /// Attempts without a winner, because contenders split the masters.
    pub split: u64,
    /// Attempts that too few masters answered.
    pub unanswered: u64,
    /// Attempts that a quorum granted too late, when no validity was left.
    pub too_late: u64,
    /// Attempts that ended because the handle was shut down, or its runtime ended.
    pub aborted: u64,
}

/// Lost locks, by reason. See [`LostReason`](crate::LostReason).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[expect(missing_docs, reason = "each is named after its reason")]
#[non_exhaustive]
pub struct Losses {
    pub not_extended: u64,
    pub not_ours: u64,
    pub data_lost: u64,
    pub max_hold: u64,
    pub shutdown: u64,
    pub panicked: u64,
}

/// Statistics of one master.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct NodeStats {
    /// The master: `host:port`, or the path of its socket.
    pub node: Arc<str>,
    /// `true` if there is a connection now.
    pub is_up: bool,
    /// Connections made.
    pub connections: u64,
    /// The answers of the master, and the reasons for missing answers.
    pub votes: VoteStats,
    /// Releases that it was sent and has not acknowledged yet. They will be repeated.
    pub unacknowledged: u64,
}

/// The answers of one master to all requests, each named after its [`Verdict`](crate::Verdict), and
/// after the [`Cause`](crate::Cause) if that is unknown.
///
/// An expected answer that does not arrive within the node timeout is recorded as `timed_out`, and
/// again by its content when it arrives. An answer that a quorum has made unnecessary, such as most
/// answers to releases, is not expected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[expect(missing_docs, reason = "each is named after its verdict or cause")]
#[non_exhaustive]
pub struct VoteStats {
    pub granted: u64,
    pub held: u64,
    pub not_ours: u64,
    pub free: u64,
    pub timed_out: u64,
    pub connection_refused: u64,
    pub connection_closed: u64,
    pub not_connected: u64,
    pub unusable: u64,
    pub not_sent: u64,
    pub error_reply: u64,
    pub demoted: u64,
    pub not_admitted: u64,
    pub twin: u64,
    pub ballot_refused: u64,
}

/// Durations, counted by their length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Histogram {
    /// The number of durations.
    pub count: u64,
    /// The sum of all durations.
    #[cfg_attr(feature = "serde", serde(rename = "sum_seconds", serialize_with = "seconds"))]
    pub sum: Duration,
    /// The number of durations up to each of [`Self::BOUNDS`] and longer than the previous bound.
    /// The last bucket contains durations longer than all bounds.
    pub buckets: [u64; 16],
}

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

impl Histogram {
    pub(crate) const BUCKETS: usize = Self::BOUNDS.len() + 1;

    /// The longest duration of each bucket but the last: 1 ms to 1 min.
    pub const BOUNDS: [Duration; 15] = [
        ms(1),
        ms(2),
        ms(5),
        ms(10),
        ms(20),
        ms(50),
        ms(100),
        ms(200),
        ms(500),
        ms(1_000),
        ms(2_000),
        ms(5_000),
        ms(10_000),
        ms(30_000),
        ms(60_000),
    ];
}

impl Outcomes {
    pub(crate) const KINDS: usize = 6;

    pub(crate) fn new(counts: [u64; Self::KINDS]) -> Self {
        let [won, held, split, unanswered, too_late, aborted] = counts;
        Self { won, held, split, unanswered, too_late, aborted }
    }

    /// Returns each number with the name of its field.
    pub fn by_name(&self) -> [(&'static str, u64); 6] {
        [
            ("won", self.won),
            ("held", self.held),
            ("split", self.split),
            ("unanswered", self.unanswered),
            ("too_late", self.too_late),
            ("aborted", self.aborted),
        ]
    }
}

impl Losses {
    pub(crate) const KINDS: usize = 6;

    pub(crate) fn new(counts: [u64; Self::KINDS]) -> Self {
        let [not_extended, not_ours, data_lost, max_hold, shutdown, panicked] = counts;
        Self { not_extended, not_ours, data_lost, max_hold, shutdown, panicked }
    }

    /// Returns each number with the name of its field.
    pub fn by_name(&self) -> [(&'static str, u64); 6] {
        [
            ("not_extended", self.not_extended),
            ("not_ours", self.not_ours),
            ("data_lost", self.data_lost),
            ("max_hold", self.max_hold),
            ("shutdown", self.shutdown),
            ("panicked", self.panicked),
        ]
    }
}

impl VoteStats {
    pub(crate) const KINDS: usize = Said::KINDS;

    pub(crate) fn new(counts: [u64; Self::KINDS]) -> Self {
        let [granted, held, not_ours, free, timed_out, connection_refused, rest @ ..] = counts;
        let [connection_closed, not_connected, unusable, not_sent, error_reply, rest @ ..] = rest;
        let [demoted, not_admitted, twin, ballot_refused] = rest;
        Self {
            granted,
            held,
            not_ours,
            free,
            timed_out,
            connection_refused,
            connection_closed,
            not_connected,
            unusable,
            not_sent,
            error_reply,
            demoted,
            not_admitted,
            twin,
            ballot_refused,
        }
    }

    /// Returns each number with the name of its field.
    pub fn by_name(&self) -> [(&'static str, u64); 15] {
        [
            ("granted", self.granted),
            ("held", self.held),
            ("not_ours", self.not_ours),
            ("free", self.free),
            ("timed_out", self.timed_out),
            ("connection_refused", self.connection_refused),
            ("connection_closed", self.connection_closed),
            ("not_connected", self.not_connected),
            ("unusable", self.unusable),
            ("not_sent", self.not_sent),
            ("error_reply", self.error_reply),
            ("demoted", self.demoted),
            ("not_admitted", self.not_admitted),
            ("twin", self.twin),
            ("ballot_refused", self.ballot_refused),
        ]
    }
}

#[cfg(feature = "serde")]
fn seconds<S: serde::Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(duration.as_secs_f64())
}
