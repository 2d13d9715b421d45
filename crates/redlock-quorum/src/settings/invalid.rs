//! The errors of invalid requests and settings.

use std::time::Duration;

use redlock_core::admission::MAX_TTL_MAX;
use redlock_core::duration::spelled;
use redlock_core::{InvalidLabel, InvalidResource, InvalidTtl, Resource, Ttl};
use redlock_protocol::quorum::MASTERS_MAX;
use redlock_protocol::terms::InvalidTiming;

/// The shortest `max_hold`: the unit of Redis.
pub(crate) const MAX_HOLD_MIN: Duration = Duration::from_millis(1);
/// The longest period of a job, in days.
pub(crate) const PERIOD_DAYS: u64 = 3_650;

/// The reason why a request is invalid. Nothing was sent to any master.
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
    /// The name of a semaphore is too long for the names of its locks.
    #[error(
        "the name of the semaphore has {len} bytes; the limit is {max}: use a digest of long names"
    )]
    SemaphoreName {
        /// The number of bytes in the name.
        len: usize,
        /// The largest number.
        max: usize,
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
        /// The number of times that an owner can enter its lock.
        max: u16,
    },
    /// The period of a job is out of range.
    #[error("a period must be between 1 ms and {days} days", days = PERIOD_DAYS)]
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

/// The reason why a handle cannot be built. Nothing was connected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// There are no masters.
    #[error("no masters given: pass 1 to {max} (five is typical)", max = MASTERS_MAX)]
    NoMasters,
    /// No environment variable names masters.
    #[error("no masters configured: {}", none_named(*.below_run))]
    NoneNamed {
        /// `true` if this process was started by `redlock run`, which removes the masters from the
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
        /// The reason why the value is invalid.
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
        /// The address of the master.
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
        "max_ttl must be between {} and {} (got {})",
        spelled(Ttl::MIN), spelled(MAX_TTL_MAX), spelled(*.max_ttl)
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
        "the prefix {prefix:?} cannot be used: it must have at most 512 bytes, without the \
         reserved word \"redlock-quorum:\""
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

impl From<InvalidTiming> for InvalidRequest {
    fn from(invalid: InvalidTiming) -> Self {
        match invalid {
            InvalidTiming::Ttl(invalid) => Self::Ttl(invalid),
            InvalidTiming::NodeTimeout { node_timeout, ttl } => {
                Self::NodeTimeout { node_timeout, ttl }
            }
            InvalidTiming::StopMargin { margin, validity, ttl } => {
                Self::StopMargin { margin, validity, ttl }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_timeout_over_a_quarter_of_the_ttl_is_refused() {
        let ttl = Duration::from_millis(199);
        let invalid = InvalidTiming::NodeTimeout { node_timeout: Duration::from_millis(50), ttl };
        let refused = InvalidRequest::from(invalid);
        assert!(refused.to_string().contains("a quarter of the TTL 199ms, 49.75ms"), "{refused}");
    }
}
