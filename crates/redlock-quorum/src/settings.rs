//! The settings of a handle, and the checks that one request must pass.

use std::sync::Arc;
use std::time::Duration;

use redlock_core::admission::MAX_TTL_MAX;
use redlock_core::duration::spelled;
use redlock_core::{InvalidLabel, InvalidResource, InvalidTtl, Label, Resource, Ttl};
use redlock_protocol::quorum::MASTERS_MAX;
use redlock_protocol::terms::Timing;

/// The default `max_ttl`.
pub(crate) const MAX_TTL: Duration = Duration::from_secs(60);
/// The default node timeout is this, or a tenth of the TTL where that is shorter: the Redis page
/// advises some 5 to 50 ms for a TTL of 10 s.
const NODE_TIMEOUT: Duration = Duration::from_millis(50);
/// The shortest `max_hold`: the unit of Redis.
pub(crate) const MAX_HOLD_MIN: Duration = Duration::from_millis(1);
/// The default TTL.
const TTL: Duration = Duration::from_secs(10);

/// Whether a master that may have lost its keys is kept from voting for a while.
///
/// A master that restarts without its data, is flushed, or was a replica for a while, has lost its
/// locks. Until no lock from before can be alive, which takes 1.1 times `max_ttl`, its votes do not
/// count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Quarantine {
    /// It is. Each master keeps a record for that, under the prefix.
    ///
    /// A brand-new master cannot be distinguished from one that lost its data. It waits, too,
    /// unless a person confirms that it is new: `redlock init`, or
    /// [`Redlock::init`](crate::Redlock::init).
    #[default]
    On,
    /// It is not: it votes at once, and may grant what another holds. For masters that keep
    /// every write (`appendfsync always`), and for work that two holders do not harm.
    ///
    /// All clients of a namespace must have the same. A client with `Off` refuses to work if a
    /// record shows that others have a quarantine.
    Off,
}

/// Everything a handle was built with, checked.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) prefix: Arc<[u8]>,
    /// The default TTL that was given; `None` if none was given.
    pub(crate) ttl: Option<Duration>,
    /// The `max_ttl` that was given; it counts while no master has another one in its record.
    /// `None` if none was given.
    pub(crate) max_ttl: Option<Duration>,
    pub(crate) quarantine: Quarantine,
    /// Locks have fencing tokens.
    pub(crate) fencing: bool,
    /// Processes that wait for a key stand in one queue.
    pub(crate) queue: bool,
    /// A lock that is released passes to the next caller of this process.
    pub(crate) hand_over: bool,
    pub(crate) wait: Duration,
    pub(crate) node_timeout: Option<Duration>,
    pub(crate) clock_guard: Option<Duration>,
    /// The label of requests that have none of their own.
    pub(crate) label: Option<Label>,
    pub(crate) connect_timeout: Duration,
}

/// The label that a builder or a request was given.
#[derive(Clone, Debug, Default)]
pub(crate) enum GivenLabel {
    #[default]
    Default,
    Text(String),
    None,
}

impl GivenLabel {
    /// # Errors
    /// [`InvalidLabel`] when the text cannot be a label.
    pub(crate) fn check(
        &self,
        default: impl FnOnce() -> Option<Label>,
    ) -> Result<Option<Label>, InvalidLabel> {
        match self {
            Self::Default => Ok(default()),
            Self::Text(text) => Label::parse(text).map(Some),
            Self::None => Ok(None),
        }
    }
}

/// Why a request cannot be made. Nothing was sent to any master.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidRequest {
    /// The resource name.
    #[error(transparent)]
    Resource(#[from] InvalidResource),
    /// The TTL.
    #[error(transparent)]
    Ttl(#[from] InvalidTtl),
    /// The label.
    #[error(transparent)]
    Label(#[from] InvalidLabel),
    /// The node timeout is too long for this TTL.
    #[error(
        "a node timeout of {} is too long for a TTL of {}; the limit is a quarter of it, {}: \
         shorten the timeout or lengthen the TTL",
        spelled(*.node_timeout), spelled(*.ttl), spelled(*.ttl / 4)
    )]
    NodeTimeout {
        /// The node timeout of the handle.
        node_timeout: Duration,
        /// The TTL asked for.
        ttl: Duration,
    },
    /// More time is asked for to stop than the lease has.
    #[error(
        "a stop margin of {} leaves nothing of the {} that a TTL of {} is good for; take a smaller \
         margin or a longer TTL",
        spelled(*.margin), spelled(*.validity), spelled(*.ttl)
    )]
    StopMargin {
        /// The margin asked for.
        margin: Duration,
        /// The validity that a holder may count on.
        validity: Duration,
        /// The TTL asked for.
        ttl: Duration,
    },
    /// The lock would be over before it could be held.
    #[error(
        "a max_hold of {} is too short to hold a lock; the limit is {}: give at least that, or no \
         max_hold for a lock without one",
        spelled(*.max_hold), spelled(MAX_HOLD_MIN)
    )]
    MaxHold {
        /// The time that was asked for.
        max_hold: Duration,
    },
    /// There are not so many masters.
    #[error("min_copies({copies}) is out of range for {masters} masters; take 1 to {masters}")]
    MinCopies {
        /// The number asked for.
        copies: usize,
        /// The number of masters.
        masters: usize,
    },
    /// Too many resources, or none, to lock together.
    #[error("{count} resources cannot be locked together; name 1 to {max}")]
    Resources {
        /// How many were named.
        count: usize,
        /// How many may be named.
        max: usize,
    },
    /// One resource is to be locked twice by one call.
    #[error("{resource} was named twice; name each resource once")]
    SameResource {
        /// The resource.
        resource: Resource,
    },
    /// The owner of a reentrant lock is in it too often.
    #[error(
        "the owner is in this lock {max} times, which is the limit: is it left as often as it is \
         entered?"
    )]
    Depth {
        /// How often an owner may be in its lock.
        max: u16,
    },
    /// How long a run counts that is to be done once.
    #[error("a period is 1 ms to {days} days", days = PERIOD_DAYS)]
    Period,
    /// The number of a fire.
    #[error(
        "a fire is a number from 1 to {max}, such as the seconds since 1970 for which it is planned",
        max = redlock_core::Mark::END - 1
    )]
    Fire,
    /// Work that is to be done once has no period and no fire.
    #[error("give a period or a fire: `.within(period)` or `.fire(number)`")]
    NeitherPeriodNorFire,
    /// There is no tokio runtime to work on, or it is shutting down.
    #[error(
        "there is no tokio runtime here, or it is shutting down: call from within one, or use \
         redlock_quorum::blocking"
    )]
    NoRuntime,
    /// The task that drives the handle has panicked; the handle is of no use any more.
    #[error(
        "the task that drives this handle has panicked; its message says why: was the runtime \
         built with enable_all()?"
    )]
    Panicked,
    /// This process was forked after the handle was made. Nothing was sent.
    #[error(
        "this process was forked after the lock handle was made, and cannot use it; make a handle \
         after the fork"
    )]
    Forked,
}

/// The longest period for which a run counts, in days.
pub(crate) const PERIOD_DAYS: u64 = 3_650;

/// Why a handle cannot be built. Nothing was connected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// There are no masters.
    #[error("no masters were given; give 1 to {max}, five is the normal number", max = MASTERS_MAX)]
    NoMasters,
    /// No variable of the environment names masters.
    #[error("no masters were named: {}", none_named(*.below_run))]
    NoneNamed {
        /// Whether this process was started by `redlock run`, which removes the masters from the
        /// environment of its command.
        below_run: bool,
    },
    /// A variable of the environment, or a file that it names, cannot be read.
    #[error("{name}: {why}")]
    Variable {
        /// The variable, or the option of the command that was given instead.
        name: String,
        /// The fault of the value.
        why: String,
    },
    /// A value is refused that the program did not give itself.
    #[error("{by}: {error}")]
    Given {
        /// The source of the value: a variable, a line of a file, or an option of the command.
        by: String,
        /// Why it is refused.
        error: Box<Self>,
    },
    /// There are too many masters.
    #[error("{masters} masters were given; the limit is {max}", max = MASTERS_MAX)]
    TooManyMasters {
        /// How many there were.
        masters: usize,
    },
    /// One master is listed twice.
    #[error("{node} was given twice; every master must be another server")]
    SameNode {
        /// Its address.
        node: String,
    },
    /// One of the masters cannot be set up.
    #[error(transparent)]
    Node(#[from] redlock_core::InvalidNode),
    /// The TTL, node timeout or label that requests are to have by default.
    #[error(transparent)]
    Default(#[from] InvalidRequest),
    /// The largest TTL is out of range.
    #[error(
        "a max_ttl of {} is out of range; take {} to {}",
        spelled(*.max_ttl), spelled(Ttl::MIN), spelled(MAX_TTL_MAX)
    )]
    MaxTtl {
        /// The value that was given.
        max_ttl: Duration,
    },
    /// The clock guard is longer than any lock may last.
    #[error("a clock guard of {} is too long; the limit is max_ttl, {}",
        spelled(*.guard), spelled(*.max_ttl))]
    ClockGuard {
        /// The value that was given.
        guard: Duration,
        /// The largest TTL.
        max_ttl: Duration,
    },
    /// A timeout of zero never lets a master answer.
    #[error("a {name} of zero never lets a master answer; take at least 1 ms")]
    ZeroTimeout {
        /// The name of the timeout.
        name: &'static str,
    },
    /// The operating system starts no thread for a blocking handle.
    #[error("no thread can be started for the blocking handle: {why}")]
    Thread {
        /// The error of the operating system.
        why: String,
    },
    /// The prefix cannot be used.
    #[error(
        "the prefix {prefix:?} cannot be used: it has more than 512 bytes, or it contains \
         \"redlock-quorum:\", which is reserved"
    )]
    Prefix {
        /// The value that was given.
        prefix: String,
    },
}

/// The advice if no variable names masters.
fn none_named(below_run: bool) -> &'static str {
    if below_run {
        "`redlock run` removes REDLOCK_NODES and REDLOCK_NODES_FILE from the environment of its \
         command; give `redlock run --pass-nodes` to keep them"
    } else {
        "set REDLOCK_NODES or REDLOCK_NODES_FILE; `redlock dev` starts some to play with"
    }
}

/// The node timeout of a lock with this TTL, where none is given.
pub(crate) fn node_timeout(ttl: Duration) -> Duration {
    NODE_TIMEOUT.min(ttl / 10)
}

impl Settings {
    /// How long a connection may leave a request unanswered before it is made anew: a master must
    /// have its whole node timeout.
    pub(crate) fn stall_timeout(&self) -> Duration {
        self.connect_timeout.max(self.node_timeout.unwrap_or(NODE_TIMEOUT))
    }

    /// The largest TTL while no master has another one in its record.
    pub(crate) fn max_ttl(&self) -> Duration {
        self.max_ttl.unwrap_or(MAX_TTL)
    }

    /// The longest TTL that may be used before a record was read: with a quarantine the records
    /// decide, and our own value counts only if there are none.
    pub(crate) fn unread_max_ttl(&self) -> Duration {
        match self.quarantine {
            Quarantine::On => MAX_TTL_MAX,
            Quarantine::Off => self.max_ttl(),
        }
    }

    /// The durations that follow from `ttl`, or from the handle's TTL, or from the default. The
    /// default shrinks to `max_ttl`; a TTL that was given is refused where it is longer.
    pub(crate) fn timing(
        &self,
        ttl: Option<Duration>,
        max_ttl: Duration,
    ) -> Result<Timing, InvalidRequest> {
        let ttl = Ttl::new(ttl.or(self.ttl).unwrap_or_else(|| TTL.min(max_ttl)), max_ttl)?;
        let longest = ttl.get() / 4;
        let node_timeout = self.node_timeout.unwrap_or_else(|| node_timeout(ttl.get()));
        if node_timeout > longest {
            return Err(InvalidRequest::NodeTimeout { node_timeout, ttl: ttl.get() });
        }
        let guard = self.clock_guard.unwrap_or_else(|| ttl.get() / 10);
        Ok(Timing { ttl, node_timeout, px: ttl.px(guard) })
    }

    /// The times of a request before the longest TTL is known.
    pub(crate) fn timing_unlimited(&self, ttl: Option<Duration>) -> Result<Timing, InvalidRequest> {
        match ttl.or(self.ttl) {
            Some(ttl) => self.timing(Some(ttl.min(MAX_TTL_MAX)), MAX_TTL_MAX),
            None => self.timing(None, self.max_ttl()),
        }
    }

    /// How long a key can stay at most, where all clients keep to this `max_ttl` and to our guard.
    pub(crate) fn expiry_max(&self, max_ttl: Duration) -> Duration {
        max_ttl + self.clock_guard.unwrap_or(max_ttl / 10)
    }

    /// How long a master has for an answer that concerns no lock.
    pub(crate) fn node_timeout(&self) -> Duration {
        let ttl = self.ttl.unwrap_or_else(|| TTL.min(self.max_ttl()));
        self.node_timeout.unwrap_or_else(|| node_timeout(ttl))
    }

    /// How long a script of admission may act behind its sending: it may wait for a connection, and
    /// in the network.
    pub(crate) fn act_within(&self) -> Duration {
        self.connect_timeout.saturating_mul(2)
    }

    /// How long a master has for a probe, or for another order: two node timeouts, because a probe
    /// is two round trips, and at least as long as a server takes to write the members.
    pub(crate) fn order_timeout(&self) -> Duration {
        const MIN: Duration = Duration::from_millis(50);
        self.node_timeout().saturating_mul(2).max(MIN)
    }
}

/// Whether something of the lease is left before the margin begins.
pub(crate) fn check_margin(timing: &Timing, margin: Duration) -> Result<(), InvalidRequest> {
    let (ttl, validity) = (timing.ttl.get(), timing.ttl.validity());
    if margin >= validity {
        return Err(InvalidRequest::StopMargin { margin, validity, ttl });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn settings() -> Settings {
        Settings {
            prefix: Arc::default(),
            ttl: None,
            max_ttl: None,
            quarantine: Quarantine::On,
            fencing: true,
            queue: true,
            hand_over: true,
            wait: ms(10_000),
            node_timeout: None,
            clock_guard: None,
            label: None,
            connect_timeout: ms(1_000),
        }
    }

    #[test]
    fn the_durations_follow_from_the_ttl() {
        let timing = settings().timing(None, MAX_TTL).unwrap();
        assert_eq!((timing.node_timeout, timing.px), (ms(50), 11_000));
        let timing = settings().timing(Some(ms(200)), MAX_TTL).unwrap();
        assert_eq!((timing.node_timeout, timing.px), (ms(20), 220));
    }

    #[test]
    fn a_default_ttl_shrinks_and_one_that_was_given_is_refused() {
        assert_eq!(settings().timing(None, ms(500)).unwrap().ttl.get(), ms(500));
        assert_eq!(settings().timing(None, MAX_TTL_MAX).unwrap().ttl.get(), TTL);
        let given = Settings { ttl: Some(ms(501)), ..settings() };
        for refused in [given.timing(None, ms(500)), settings().timing(Some(ms(501)), ms(500))] {
            assert!(refused.unwrap_err().to_string().contains("max_ttl is 500ms"));
        }
        assert_eq!(settings().timing(Some(ms(90_000)), ms(120_000)).unwrap().ttl.get(), ms(90_000));
    }

    #[test]
    fn a_node_timeout_over_a_quarter_of_the_ttl_is_refused_with_the_limit() {
        let settings = Settings { node_timeout: Some(ms(50)), ..settings() };
        assert!(settings.timing(Some(ms(200)), MAX_TTL).is_ok());
        let refused = settings.timing(Some(ms(199)), MAX_TTL).unwrap_err();
        assert!(refused.to_string().contains("a quarter of it, 49.75ms"), "{refused}");
    }
}
