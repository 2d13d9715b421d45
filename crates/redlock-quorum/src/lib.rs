//! A distributed lock over N independent Redis masters: a majority decides, and no single machine
//! is trusted.
//!
//! ```no_run
//! use redlock_quorum::Redlock;
//!
//! # async fn example() -> anyhow::Result<()> {
//! let redlock = Redlock::connect([
//!     "redis://10.0.0.1:6379",
//!     "redis://10.0.0.2:6379",
//!     "redis://10.0.0.3:6379",
//!     "redis://10.0.0.4:6379",
//!     "redis://10.0.0.5:6379",
//! ])?;
//! let guard = redlock.lock("orders:42").await?;
//! // ... the work, with guard.check()? before every step that matters ...
//! guard.release().await?;
//! # Ok(())
//! # }
//! ```
//!
//! A `?` between the lock and its release drops the guard, which releases the lock without waiting
//! for an answer, at the end of `main` too; [`Guard`] describes when that leaves a key behind.
//!
//! # How it works
//!
//! 1. The clock is read.
//! 2. `SET key token NX PX ttl` goes to all masters at once, with a token that was never used
//!    before; each has the node timeout to answer.
//! 3. As soon as a majority has granted the lock is won, if anything of it is left: it lasts for
//!    the TTL less what has elapsed, less 1 % and 2 ms for clocks that run at different rates.
//! 4. While the [`Guard`] exists a keeper extends it at a third of the TTL.
//! 5. A lock that is not won, or not needed any more, is released: every master on which the key
//!    may be is asked to delete it if its value is that token, until it has acknowledged that. An
//!    attempt that was not won is repeated when the key changes, or after a pause.
//!
//! This is the algorithm of the Redis page [Distributed Locks][page].
//!
//! [page]: https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/
//!
//! # What it does not give you
//!
//! * A holder that is stopped for longer than its lease does not know it while it is stopped.
//!   Its late writes are refused by stores that compare [`FencingToken`]s, and by nothing else: see
//!   [Fencing](#fencing).
//! * Clocks that run at rates more than 1 % apart, and masters' clocks that jump by more than the
//!   clock guard, can give a lock away early.
//! * A master that loses its data unseen may grant again what it granted before: by eviction, or by
//!   a snapshot of its machine. One that restarts or is flushed does not vote until no lock from
//!   before can be alive: [`Quarantine`].
//! * Brand-new masters do not vote for that time either, until [`Redlock::init`] is called or
//!   `redlock init` is run once.
//! * Processes get a lock in order of arrival if they [queue](RedlockBuilder::queue), which is the
//!   default. A caller of the same process can pass them for up to 100 ms after a grant
//!   ([hand-over](RedlockBuilder::hand_over)).
//! * A process that is forked after a handle was made cannot use it: each call fails with
//!   [`InvalidRequest::Forked`], and dropped guards release nothing. [`Guard::check`] and
//!   [`Guard::is_held`] only know the deadline at the time of the fork, so use no guard in the child.
//!
//! While these assumptions hold there is at most one holder at a time, and two of five masters may
//! be dead, paused or cut off without an effect on callers.
//!
//! # Fencing
//!
//! Every lock carries a number, [`Guard::fencing_token`]. No two locks of a resource have the same
//! one, and one that is asked for after another was returned has the larger one, whatever clocks
//! do, and messages that are delayed or lost. Under the assumptions above the order of tokens is
//! that of the locks.
//!
//! It protects nothing by itself. A store accepts a write only with a token that is not smaller
//! than the largest one it has seen; tests and writes in one step; and has the token of a new
//! holder installed before that holder reads. The guide has it for SQLite, PostgreSQL and object
//! stores.
//!
//! A [`Lease`] that is resumed gets a new one, larger than all before; its smaller one is good
//! until the store has seen that. The locks of a handle with
//! [`fencing(false)`](RedlockBuilder::fencing), which masters before Redis 6.2 need, carry none.
//!
//! Tokens compare for one resource, on one set of masters with one prefix. Ballots that are lost
//! without a quarantine, or written by others, break the order.
//!
//! # When not to use it
//!
//! For one process, `tokio::sync::Mutex`. For one host, `flock`. For work where two holders cost
//! no more than doing it twice, one Redis and a plain `SET NX PX`.
//!
//! # Cancel safety
//!
//! Every future of this crate may be dropped at any time: attempts, extensions and releases belong
//! to the handle and not to the future. An acquire that is dropped leaves no key on any master that
//! can be reached. The documentation of each function describes further effects.
//!
//! # Features
//!
//! * `tls` (default): `rediss://` URLs and certificates. Without it they are refused.
//! * `serde`: [`Lease`] and [`FencingToken`] can be written down and read back, and [`Stats`] can
//!   be written down. Off by default.

#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct ReadmeDoctests;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/GUIDE.md")]
struct GuideDoctests;

pub mod blocking;
mod builder;
mod counters;
mod driver;
#[doc(hidden)]
pub mod environment;
mod error;
mod guard;
mod handle;
mod hold;
mod inbox;
mod init;
mod lease;
mod lock_options;
mod loss;
mod lost;
mod marks;
mod recipes;
mod redlock;
mod report;
mod request;
mod run_error;
mod settings;
mod stats;
mod status;
mod votes;

pub use builder::RedlockBuilder;
pub use error::{
    AcquireError, ExtendError, ForgottenKeys, MarkError, ReleaseError, Unreleased, UnreleasedKey,
};
pub use guard::{Guard, Hold};
pub use init::{Init, InitError, InitNode, InitReport};
pub use lease::Lease;
pub use loss::Loss;
pub use lost::{Ended, Lost, LostReason};
pub use marks::LastRun;
pub use recipes::lock_all::LockAllRequest;
pub use recipes::once::{Once, OnceRequest};
#[doc(hidden)]
pub use recipes::once_guard::Decided;
pub use recipes::once_guard::{Begun, OnceGuard};
pub use recipes::reentrant::{Reentrant, ReentrantGuard, ReentrantRequest};
pub use recipes::set::{GuardSet, HoldSet, SetLoss};
pub use redlock::Redlock;
#[doc(hidden)]
pub use redlock_core::SharedQueue;
pub use redlock_core::admission::{Names, RecordedSet, SetId};
#[doc(hidden)]
pub use redlock_core::commands;
pub use redlock_core::server_error;
pub use redlock_core::{
    Cause, Clock, FencingToken, Instant, InvalidFencingToken, InvalidLabel, InvalidNode,
    InvalidResource, InvalidTls, InvalidToken, InvalidTtl, InvalidUrl, Label, Lists, Mark, Node,
    NotAdmitted, Resource, Tls, Token, Verdict, WhyNot,
};
#[doc(hidden)]
pub use redlock_protocol::ballot::clock::LEAD_MAX_US;
#[doc(hidden)]
pub use redlock_protocol::quorum::quorum;
pub use report::{NodeReport, ServerReport, Standing};
pub use request::LockRequest;
pub use run_error::RunError;
pub use settings::{BuildError, InvalidRequest, Quarantine};
pub use stats::{Histogram, Losses, NodeStats, Outcomes, Stats, VoteStats};
pub use status::{State, Status};
pub use votes::{NodeVote, Votes};
