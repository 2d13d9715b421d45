//! A distributed lock over N independent Redis masters: a majority decides, so no single machine
//! has to be trusted.
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
//! If `?` returns between the lock and its release, the dropped guard releases the lock without
//! waiting for an answer. See [`Guard`] for the cases in which a key remains at the end of `main`.
//!
//! # Which one do I need?
//!
//! | You want | Use |
//! |---|---|
//! | one lock, as a guard | [`Redlock::lock`], [`Redlock::try_lock`] |
//! | one lock, and work that stops if the lock is lost | [`LockRequest::run`], [`LockRequest::try_run`] |
//! | several locks, all or none | [`Redlock::lock_all`] |
//! | a lock that the same code may acquire again | [`Redlock::reentrant`] |
//! | a periodic job on one of many hosts | [`Redlock::once`] |
//! | at most n holders at a time | [`Redlock::semaphore`] |
//! | one leader among several instances | [`Redlock::election`] |
//! | to pass a lock to another process | [`Guard::into_lease`], [`Redlock::resume`] |
//! | a store that rejects late writes of former holders | [`Guard::fencing_token`] |
//! | to see who holds a lock, once or at each change | [`Redlock::status`], [`Redlock::watch`] |
//! | code that does not await | [`blocking`] |
//! | other settings | [`Redlock::builder`], [`Redlock::from_env`] |
//!
//! Run work under a lock, and stop it if the lock is lost:
//!
//! ```no_run
//! # async fn migrate() -> u32 { 1 }
//! # async fn example(redlock: redlock_quorum::Redlock) -> anyhow::Result<()> {
//! let steps = redlock.lock("migrations").run(|_hold| migrate()).await?;
//! # Ok(())
//! # }
//! ```
//!
//! Lock two resources together:
//!
//! ```no_run
//! # async fn example(redlock: redlock_quorum::Redlock) -> anyhow::Result<()> {
//! let accounts = redlock.lock_all(["account:1", "account:2"]).await?;
//! accounts.check()?; // both are held
//! accounts.release().await?;
//! # Ok(())
//! # }
//! ```
//!
//! Acquire a lock again in the same unit of work:
//!
//! ```no_run
//! # async fn example(redlock: redlock_quorum::Redlock) -> anyhow::Result<()> {
//! let account = redlock.reentrant("account:42");
//! let outer = account.lock().await?;
//! let inner = account.lock().await?; // immediate, sends nothing
//! inner.release().await?; // the lock is still held
//! outer.release().await?;
//! # Ok(())
//! # }
//! ```
//!
//! Run a job once a day, on whichever host comes first:
//!
//! ```no_run
//! use std::time::Duration;
//!
//! # async fn report() {}
//! # async fn example(redlock: redlock_quorum::Redlock) -> anyhow::Result<()> {
//! let half_a_day = Duration::from_secs(12 * 3_600);
//! redlock.once("report").within(half_a_day).run(|_hold| report()).await?;
//! # Ok(())
//! # }
//! ```
//!
//! Let at most three holders work at a time:
//!
//! ```no_run
//! # async fn example(redlock: redlock_quorum::Redlock) -> anyhow::Result<()> {
//! let permit = redlock.semaphore("backups", 3).acquire().await?;
//! permit.release().await?;
//! # Ok(())
//! # }
//! ```
//!
//! Elect one leader among several instances:
//!
//! ```no_run
//! # async fn schedule() {}
//! # async fn example(redlock: redlock_quorum::Redlock) -> anyhow::Result<()> {
//! redlock.election("scheduler").candidate("10.0.0.7:8080").run(|_hold| schedule()).await?;
//! # Ok(())
//! # }
//! ```
//!
//! Follow who holds a lock:
//!
//! ```no_run
//! use futures_util::StreamExt;
//!
//! # async fn example(redlock: redlock_quorum::Redlock) {
//! let mut changes = redlock.watch("orders:42");
//! while let Some(status) = changes.next().await {
//!     println!("{status}");
//! }
//! # }
//! ```
//!
//! Stop a write that comes too late, in a store that compares [fencing tokens](#fencing):
//!
//! ```no_run
//! # async fn write(token: redlock_quorum::FencingToken) -> anyhow::Result<()> { Ok(()) }
//! # async fn example(redlock: redlock_quorum::Redlock) -> anyhow::Result<()> {
//! let guard = redlock.lock("orders:42").await?;
//! if let Some(token) = guard.fencing_token() {
//!     write(token).await?; // rejected if the store has seen a larger token
//! }
//! guard.release().await?;
//! # Ok(())
//! # }
//! ```
//!
//! Pass a lock to another process:
//!
//! ```no_run
//! # async fn example(redlock: redlock_quorum::Redlock) -> anyhow::Result<()> {
//! let lease = redlock.lock("orders:42").await?.into_lease(); // plain data
//! let guard = redlock.resume(lease).await?; // also in another process
//! guard.release().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # How it works
//!
//! 1. The client reads its clock.
//! 2. It sends `SET key token NX PX ttl` to all masters at the same time, with a new token. Each
//!    has the node timeout to answer.
//! 3. When a majority has granted the key, the lock is acquired, provided some validity is left:
//!    the TTL minus the elapsed time, 1% of the TTL and 2 ms for clock drift.
//! 4. While the [`Guard`] exists, the lock is extended at a third of the TTL.
//! 5. To release a lock, or to clean up after a failed attempt, the client sends every master that
//!    may have the key a request to delete it if its value is that token, and repeats it until the
//!    master acknowledges it. A failed attempt is repeated when the key changes, or after a pause.
//!
//! This is the algorithm of the Redis page [Distributed Locks][page].
//!
//! [page]: https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/
//!
//! # Limits
//!
//! - A holder paused for longer than its lease learns of the loss only after it resumes. Only a
//!   store that compares [`FencingToken`]s rejects its late writes: see [Fencing](#fencing).
//! - Clocks whose rates differ by more than 1%, and masters' clocks that jump by more than the
//!   clock guard, can end a lock early.
//! - A master that loses its data without notice may grant a lock that another client still holds.
//!   This can happen by eviction, or if its machine is reset to a snapshot. A master that restarts
//!   or is flushed does not vote until every lock it may have granted has expired: [`Quarantine`].
//! - New masters wait for that time as well, until [`Redlock::init`] is called or `redlock init` is
//!   run once.
//! - Processes get a lock in order of arrival if they [queue](RedlockBuilder::queue), which is the
//!   default. A caller of the same process can pass them for up to 100 ms after a grant
//!   ([hand-over](RedlockBuilder::hand_over)).
//! - A process that is forked after a handle was created cannot use it. Each call fails with
//!   [`InvalidRequest::Forked`], and dropped guards release nothing. [`Guard::check`] and
//!   [`Guard::is_held`] only know the deadline at the time of the fork, so use no guard in the
//!   child.
//!
//! While these assumptions hold, at most one client holds a lock at a time. Two of five masters can
//! be dead, paused or cut off without an effect on callers.
//!
//! # Fencing
//!
//! Every lock has a number, [`Guard::fencing_token`]. No two locks on a resource have the same
//! number. A lock requested after another lock was returned always has the larger one, whatever
//! clocks do, and even if messages are delayed or lost. Under the assumptions above, the order of
//! tokens is the order of the locks.
//!
//! The number protects nothing by itself. A store must accept a write only with a token that is not
//! smaller than the largest one it has seen. It must compare and write in one step, and it must
//! have the token of a new holder before that holder reads. The page on fencing in the repository
//! shows this for SQLite, PostgreSQL and object stores.
//!
//! A resumed [`Lease`] gets a new token, larger than all previous ones. Its previous token works
//! until the store has seen the new one. The locks of a handle with
//! [`fencing(false)`](RedlockBuilder::fencing), which masters before Redis 6.2 need, have no token.
//!
//! Tokens compare for one resource, on one set of masters with one prefix. Ballots that are lost
//! without a quarantine, or written by other programs, break the order.
//!
//! # When not to use it
//!
//! For one process, use `tokio::sync::Mutex`. For one host, use `flock`. If two holders only cost
//! duplicate work, use one Redis and a plain `SET NX PX`.
//!
//! # Cancel safety
//!
//! You can drop every future of this crate at any time, because attempts, extensions and releases
//! belong to the handle and not to the future. A dropped acquire leaves no key on any reachable
//! master. The documentation of each function describes further effects.
//!
//! # Features
//!
//! - `tls` (default): `rediss://` URLs and certificates. Without it, they are rejected.
//! - `blocking` (default): the module [`blocking`] and [`RedlockBuilder::build_blocking`].
//! - `serde`: [`Lease`] and [`FencingToken`] can be serialized and deserialized, and [`Stats`] can
//!   be serialized. Off by default.

#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct ReadmeDoctests;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/GUIDE.md")]
struct GuideDoctests;

#[cfg(feature = "blocking")]
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
#[cfg(feature = "recording")]
#[doc(hidden)]
pub use driver::recording;
pub use error::{
    AcquireError, ExtendError, ForgottenKeys, MarkError, ReleaseError, Unreleased, UnreleasedKey,
};
pub use guard::{Guard, Hold};
pub use init::{Init, InitError, InitNode, InitReport};
pub use lease::Lease;
pub use loss::Loss;
pub use lost::{Ended, Lost, LostReason};
pub use marks::LastRun;
pub use recipes::election::{Election, Leader, Leaders, Leadership};
pub use recipes::lock_all::LockAllRequest;
pub use recipes::once::{Once, OnceRequest};
#[doc(hidden)]
pub use recipes::once_guard::Decided;
pub use recipes::once_guard::{Begun, OnceGuard};
pub use recipes::permit::{Permit, Permits};
pub use recipes::reentrant::{Reentrant, ReentrantRequest};
pub use recipes::reentrant_guard::ReentrantGuard;
pub use recipes::semaphore::{PermitRequest, PermitsRequest, Permitted, Semaphore};
pub use recipes::set::{GuardSet, HoldSet, SetLoss};
pub use recipes::watch::Watch;
pub use redlock::Redlock;
pub use redlock_core::admission::{Names, RecordedSet, SetId};
#[doc(hidden)]
pub use redlock_core::commands;
#[doc(hidden)]
pub use redlock_core::printable;
#[doc(hidden)]
pub use redlock_core::server_error;
pub use redlock_core::{
    Cause, Clock, Credentials, FencingToken, Instant, InvalidFencingToken, InvalidLabel,
    InvalidNode, InvalidResource, InvalidTls, InvalidToken, InvalidTtl, InvalidUrl, Label,
    ListDoubt, ListWarning, Lists, Mark, NoConnection, Node, NotAdmitted, Resource, Tls, TlsFault,
    Token, Verdict, WhyNot,
};
#[doc(hidden)]
pub use redlock_core::{Facts, Reservation, SharedQueue};
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
