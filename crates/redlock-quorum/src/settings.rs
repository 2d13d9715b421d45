//! The settings of a handle, and the checks of one request.

use std::sync::Arc;
use std::time::Duration;

use redlock_core::admission::MAX_TTL_MAX;
use redlock_core::duration::spelled;
use redlock_core::{InvalidLabel, InvalidResource, InvalidTtl, Label, Resource, Ttl};
use redlock_protocol::quorum::MASTERS_MAX;
use redlock_protocol::terms::Timing;

pub(crate) const MAX_TTL: Duration = Duration::from_secs(60);
/// The default node timeout is this or a tenth of the TTL, whichever is shorter. The Redis page
/// recommends about 5 to 50 ms for a TTL of 10 s.
const NODE_TIMEOUT: Duration = Duration::from_millis(50);
/// The shortest `max_hold`: the unit of Redis.
pub(crate) const MAX_HOLD_MIN: Duration = Duration::from_millis(1);
const TTL: Duration = Duration::from_secs(10);

/// Whether a master that may have lost its keys is kept from voting for a while.
///
/// A master loses its locks if it restarts without its data, is flushed, or was a replica for a
/// while. All earlier locks have expired after 1.1 × `max_ttl`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Quarantine {
    /// Such a master does not vote until every lock it may have granted has expired. Each master
    /// stores a record for this under the prefix.
    ///
    /// A new master looks the same as a master that lost its data, so it waits as well, unless an
    /// operator confirms that it is new: `redlock init`, or
    /// [`Redlock::init`](crate::Redlock::init).
    #[default]
    On,
    /// Such a master votes immediately, and may grant a lock that another client still holds. Use
    /// it only if masters persist every write (`appendfsync always`) or duplicate holders are
    /// harmless.
    ///
    /// All clients of a prefix must use the same value. A client with `Off` does not work if a
    /// record shows that other clients use a quarantine.
    Off,
}

/// The checked settings of a handle.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) prefix: Arc<[u8]>,
    /// The default TTL, if it was set.
    pub(crate) ttl: Option<Duration>,
    /// The `max_ttl`, if it was set. It applies while no master has another value in its record.
    pub(crate) max_ttl: Option<Duration>,
    pub(crate) quarantine: Quarantine,
    /// Locks have fencing tokens.
    pub(crate) fencing: bool,
    /// Processes that wait for a key share one queue.
    pub(crate) queue: bool,
    /// A released lock passes to the next caller of this process.
    pub(crate) hand_over: bool,
    pub(crate) wait: Duration,
    pub(crate) node_timeout: Option<Duration>,
    pub(crate) clock_guard: Option<Duration>,
    /// The label of requests without their own.
    pub(crate) label: Option<Label>,
    pub(crate) connect_timeout: Duration,
}

/// The label that was set on a builder or a request.
#[derive(Clone, Debug, Default)]
pub(crate) enum GivenLabel {
    #[default]
    Default,
    Text(String),
    None,
}

impl GivenLabel {
    /// # Errors
    /// Returns [`InvalidLabel`] if the text cannot be a label.
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

/// Why a request is invalid. Nothing was sent to any master.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidRequest {
    /// The resource name is invalid.
    #[error(transparent)]
    Resource(#[from] InvalidResource),
    /// The TTL is invalid.
    #[error(transparent)]
    Ttl(#[from] InvalidTtl),
    /// The label is invalid.
    #[error(transparent)]
    Label(#[from] InvalidLabel),
    /// The node timeout is too long for this TTL.
    #[error(
        "node timeout {} must be at most a quarter of the TTL {}, {}",
        spelled(*.node_timeout), spelled(*.ttl), spelled(*.ttl / 4)
    )]
    NodeTimeout {
        /// The node timeout of the handle.
        node_timeout: Duration,
        /// The TTL of the request.
        ttl: Duration,
    },
    /// The stop margin leaves no validity.
    #[error(
        "stop margin {} must be shorter than the validity ({} for a TTL of {})",
        spelled(*.margin), spelled(*.validity), spelled(*.ttl)
    )]
    StopMargin {
        /// The requested margin.
        margin: Duration,
        /// The validity that a holder may rely on.
        validity: Duration,
        /// The TTL of the request.
        ttl: Duration,
    },
    /// The lock would be over before it could be held.
    #[error(
        "max_hold is {}, but must be at least {}; omit it for no limit",
        spelled(*.max_hold), spelled(MAX_HOLD_MIN)
    )]
    MaxHold {
        /// The requested time.
        max_hold: Duration,
    },
    /// There are fewer masters than the requested copies.
    #[error("min_copies({copies}) is out of range for {masters} masters; use 1 to {masters}")]
    MinCopies {
        /// The requested number.
        copies: usize,
        /// The number of masters.
        masters: usize,
    },
    /// Too many resources to lock together, or none.
    #[error("{count} resources cannot be locked together; pass 1 to {max}")]
    Resources {
        /// The number of resources.
        count: usize,
        /// The largest number.
        max: usize,
    },
    /// One call would lock a resource twice.
    #[error("{resource} is listed twice; list each resource once")]
    SameResource {
        /// The resource.
        resource: Resource,
    },
    /// The number of permits is out of range.
    #[error("a semaphore cannot have {permits} permits; it has 1 to {max}")]
    Permits {
        /// The number of permits.
        permits: u32,
        /// The largest number.
        max: u32,
    },
    /// More permits were requested than the semaphore has, or none.
    #[error("{count} permits cannot be acquired together; the semaphore has {permits}")]
    PermitCount {
        /// The requested number.
        count: u32,
        /// The number of permits.
        permits: u32,
    },
    /// The owner of a reentrant lock has entered it too often.
    #[error(
        "this owner has entered the lock {max} times (the limit); check that every guard is released"
    )]
    Depth {
        /// How often an owner can enter its lock.
        max: u16,
    },
    /// The period of a job is out of range.
    #[error("a period is 1 ms to {days} days", days = PERIOD_DAYS)]
    Period,
    /// The number of a scheduled run is out of range.
    #[error(
        "a fire is a number from 1 to {max}, such as its planned time in seconds since 1970",
        max = redlock_core::Mark::END - 1
    )]
    Fire,
    /// A job has neither a period nor a scheduled run.
    #[error("call `.within(period)` or `.fire(number)` first")]
    NeitherPeriodNorFire,
    /// There is no tokio runtime, or it is shutting down.
    #[error(
        "there is no tokio runtime here, or it is shutting down: call from within one, or use \
         redlock_quorum::blocking"
    )]
    NoRuntime,
    /// The background task of the handle has panicked. The handle no longer works.
    #[error(
        "the background task panicked (see its message); if you built the runtime by hand, check \
         that it calls enable_all()"
    )]
    Panicked,
    /// This process was forked after the handle was created. Nothing was sent.
    #[error(
        "the lock handle cannot be used after a fork of its process; create a new handle after the \
         fork"
    )]
    Forked,
}

/// The longest period of a job, in days.
pub(crate) const PERIOD_DAYS: u64 = 3_650;

/// Why a handle cannot be built. Nothing was connected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// There are no masters.
    #[error("no masters given: pass 1 to {max} (five is typical)", max = MASTERS_MAX)]
    NoMasters,
    /// No environment variable names masters.
    #[error("no masters configured: {}", none_named(*.below_run))]
    NoneNamed {
        /// Whether this process was started by `redlock run`, which removes the masters from the
        /// environment of its command.
        below_run: bool,
    },
    /// An environment variable, a file that it names, or a line of the configuration file cannot be
    /// read.
    #[error("{name}: {why}")]
    Variable {
        /// The variable, the option of the command that replaced it, or the line of the file.
        name: String,
        /// The reason why the value is invalid.
        why: String,
    },
    /// A value from outside of the program is invalid.
    #[error("{by}: {error}")]
    Given {
        /// The source of the value: a variable, a line of a file, or an option of the command.
        by: String,
        /// Why it is invalid.
        error: Box<Self>,
    },
    /// There are too many masters.
    #[error("there are {masters} masters in the list, but at most {max} are supported", max = MASTERS_MAX)]
    TooManyMasters {
        /// The number of masters.
        masters: usize,
    },
    /// One master is listed twice.
    #[error("{node} is listed twice; each master must be a separate server")]
    SameNode {
        /// Its address.
        node: String,
    },
    /// A master is in virtual time, and the handle has no clock of that time.
    #[error(
        "{node}: a simulated master needs the clock of its simulation; call \
         `.clock(masters.clock())`"
    )]
    NoClock {
        /// The name of the master.
        node: String,
    },
    /// One of the masters cannot be set up.
    #[error(transparent)]
    Node(#[from] redlock_core::InvalidNode),
    /// The default TTL, node timeout or label is invalid.
    #[error(transparent)]
    Default(#[from] InvalidRequest),
    /// The largest TTL is out of range.
    #[error(
        "max_ttl is {}, but must be between {} and {}",
        spelled(*.max_ttl), spelled(Ttl::MIN), spelled(MAX_TTL_MAX)
    )]
    MaxTtl {
        /// The value of the builder.
        max_ttl: Duration,
    },
    /// The clock guard is longer than the longest lock.
    #[error("clock guard {} must be at most max_ttl, {}",
        spelled(*.guard), spelled(*.max_ttl))]
    ClockGuard {
        /// The value of the builder.
        guard: Duration,
        /// The largest TTL.
        max_ttl: Duration,
    },
    /// A timeout is zero, so no master could answer.
    #[error("{name} must be greater than zero, for example 1 ms")]
    ZeroTimeout {
        /// The name of the timeout.
        name: &'static str,
    },
    /// The operating system did not start the thread of a blocking handle.
    #[error("could not start the thread of the blocking handle: {why}")]
    Thread {
        /// The error of the operating system.
        why: String,
    },
    /// The prefix is invalid.
    #[error(
        "the prefix {prefix:?} cannot be used: it has more than 512 bytes, or it contains \
         the reserved word \"redlock-quorum:\""
    )]
    Prefix {
        /// The value of the builder.
        prefix: String,
    },
}

/// Returns the advice if no variable names masters.
fn none_named(below_run: bool) -> &'static str {
    if below_run {
        "`redlock run` removes REDLOCK_NODES and REDLOCK_NODES_FILE from the environment of its \
         command; use `redlock run --pass-nodes` to keep them"
    } else {
        "set REDLOCK_NODES or REDLOCK_NODES_FILE in the environment or in /etc/redlock/config; \
         `redlock dev` starts local ones"
    }
}

/// Returns the default node timeout of a lock with this TTL.
pub(crate) fn node_timeout(ttl: Duration) -> Duration {
    NODE_TIMEOUT.min(ttl / 10)
}

impl Settings {
    /// Returns how long a connection may leave a request unanswered before it is replaced. A master
    /// must have its whole node timeout.
    pub(crate) fn stall_timeout(&self) -> Duration {
        self.connect_timeout.max(self.node_timeout.unwrap_or(NODE_TIMEOUT))
    }

    /// Returns the largest TTL while no master has another one in its record.
    pub(crate) fn max_ttl(&self) -> Duration {
        self.max_ttl.unwrap_or(MAX_TTL)
    }

    /// Returns the longest usable TTL before a record was read. With a quarantine the records
    /// decide, and our own value applies only if there are none.
    pub(crate) fn unread_max_ttl(&self) -> Duration {
        match self.quarantine {
            Quarantine::On => MAX_TTL_MAX,
            Quarantine::Off => self.max_ttl(),
        }
    }

    /// Returns the durations for `ttl`, the handle's TTL, or the default. The default shrinks to
    /// `max_ttl`. A TTL that was set and is longer is rejected.
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

    /// Returns the durations of a request before the longest TTL is known.
    pub(crate) fn timing_unlimited(&self, ttl: Option<Duration>) -> Result<Timing, InvalidRequest> {
        match ttl.or(self.ttl) {
            Some(ttl) => self.timing(Some(ttl.min(MAX_TTL_MAX)), MAX_TTL_MAX),
            None => self.timing(None, self.max_ttl()),
        }
    }

    /// Returns how long a key can stay at most, if all clients use this `max_ttl` and our clock
    /// guard.
    pub(crate) fn expiry_max(&self, max_ttl: Duration) -> Duration {
        max_ttl + self.clock_guard.unwrap_or(max_ttl / 10)
    }

    /// Returns how long to wait for a master's answer that concerns no lock.
    pub(crate) fn node_timeout(&self) -> Duration {
        let ttl = self.ttl.unwrap_or_else(|| TTL.min(self.max_ttl()));
        self.node_timeout.unwrap_or_else(|| node_timeout(ttl))
    }

    /// Returns how long after sending a script of admission may act: it may wait for a connection,
    /// and in the network.
    pub(crate) fn act_within(&self) -> Duration {
        self.connect_timeout.saturating_mul(2)
    }

    /// Returns how long to wait for a probe or another order: two node timeouts, because a probe is
    /// two round trips, and at least as long as a server takes to write the members.
    pub(crate) fn order_timeout(&self) -> Duration {
        const MIN: Duration = Duration::from_millis(50);
        self.node_timeout().saturating_mul(2).max(MIN)
    }
}

/// Checks that some validity is left before the margin begins.
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
            assert!(refused.unwrap_err().to_string().contains("exceeds max_ttl (500ms)"));
        }
        assert_eq!(settings().timing(Some(ms(90_000)), ms(120_000)).unwrap().ttl.get(), ms(90_000));
    }

    #[test]
    fn a_node_timeout_over_a_quarter_of_the_ttl_is_refused_with_the_limit() {
        let settings = Settings { node_timeout: Some(ms(50)), ..settings() };
        assert!(settings.timing(Some(ms(200)), MAX_TTL).is_ok());
        let refused = settings.timing(Some(ms(199)), MAX_TTL).unwrap_err();
        assert!(refused.to_string().contains("a quarter of the TTL 199ms, 49.75ms"), "{refused}");
    }
}
