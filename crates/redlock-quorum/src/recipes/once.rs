//! `OnceRequest`: a job that runs once per period or scheduled time, on the host that comes first.
//! See rules M2 to M5 of `docs/PROTOCOL.md`.
//!
//! It has two parts. The *lease* exists while the job runs, so that a dead host frees it and a
//! waiting host runs the job instead. The *mark* records the completed run, and outlives the lease.
//!
//! # States
//!
//! | state | request | then |
//! |---|---|---|
//! | requested | the lock of the name | held; or the error of the lock, and nothing runs |
//! | held | its mark, from every master | completed before: released, nothing runs; else the job runs |
//! | running | nothing: the lock is kept | ended; or lost, and the job is stopped |
//! | ended | every master raises the mark | a quorum has it: released; else left to expire |
//!
//! The mark is read and written under the lock. Of two runs of one name, the second reads what the
//! first has written, or finds the lock taken. The mark of the first is on a quorum before its lock
//! is released. Otherwise the lock stays until it expires.
//!
//! # Failures
//!
//! | failure | effect |
//! |---|---|
//! | the host dies while the job runs | the lease expires, no mark: another host runs it |
//! | the lock is lost | the job is stopped, no mark |
//! | the job fails (`try_run`), panics, or is dropped | released, no mark |
//! | too few masters answer for the mark | queried again for one TTL; then `NoQuorum`, nothing runs |
//! | too few masters accept the mark | the same; then a warning, and the lock is left to expire |
//! | the future is dropped while the mark is written | the lock is left to expire |
//! | a master lost its data | the others have the mark, and it is written back when it is read |
//! | a quorum lost its data, the others are away | the mark is lost: the job may run again |
//! | a clock was ahead when the mark was made | the mark is not valid until an operator removes it |

use std::fmt;
use std::future::Future;
use std::time::{Duration, SystemTime};

use redlock_core::{Mark, Resource};
use redlock_protocol::marks::When;

use super::once_guard::{Begun, Decided, decided, reading};
use crate::error::AcquireError;
use crate::guard::{Guard, Hold};
use crate::lock_options::lock_options;
use crate::marks::LastRun;
use crate::redlock::Redlock;
use crate::request::LockRequest;
use crate::run_error::RunError;
use crate::settings::{InvalidRequest, PERIOD_DAYS};

impl Redlock {
    /// Requests a job under `name` that runs once. Choose the time with
    /// [`within`](OnceRequest::within) or [`fire`](OnceRequest::fire), and then
    /// [`run`](OnceRequest::run) it. Sends nothing before that.
    pub fn once(&self, name: impl Into<Resource>) -> OnceRequest {
        OnceRequest { request: self.lock(name), when: None }
    }

    /// Returns the last completed run of `name`, or `None` if there is no mark of one. Queries all
    /// masters, and needs no lock.
    ///
    /// # Errors
    /// Returns [`AcquireError::NoQuorum`] if fewer than a quorum of voting masters have answered.
    pub async fn last_run(
        &self,
        name: impl Into<Resource>,
    ) -> Result<Option<LastRun>, AcquireError> {
        let name = name.into();
        match self.handle.read_mark(&name).await? {
            Ok(reading) => Ok(reading.mark.as_ref().map(LastRun::from)),
            Err(votes) => Err(AcquireError::NoQuorum { resource: name, votes }),
        }
    }

    /// Returns the masters' time: the lower median of the clocks of the voting masters. Reads them
    /// together with the mark of `name`.
    ///
    /// # Errors
    /// The same as [`last_run`](Self::last_run).
    #[doc(hidden)]
    pub async fn masters_time(&self, name: &Resource) -> Result<SystemTime, AcquireError> {
        match self.handle.read_mark(name).await? {
            Ok(reading) => Ok(SystemTime::UNIX_EPOCH + Duration::from_millis(reading.now)),
            Err(votes) => Err(AcquireError::NoQuorum { resource: name.clone(), votes }),
        }
    }
}

/// The outcome of a job that runs once.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "the outcome shows whether the job ran here or was already completed"]
pub enum Once<T> {
    /// The job ran here, and this is its output.
    Ran(T),
    /// The job was already completed.
    Done {
        /// Start of the last run, by the masters' clocks.
        at: SystemTime,
        /// Label of the lock under which it was completed, if it had one.
        by: Option<String>,
    },
}

/// A job that runs once per period or per scheduled time, on one of many hosts. Created by
/// [`Redlock::once`]. It has the options of its lock: see [`LockRequest`].
///
/// If many hosts run this at about the same time, one does the work under the lock of the name. The
/// others wait for it, and then find that the job was completed:
///
/// ```no_run
/// use std::time::Duration;
///
/// use redlock_quorum::{Once, Redlock};
///
/// # async fn example(redlock: Redlock) -> anyhow::Result<()> {
/// const HOUR: Duration = Duration::from_secs(3_600);
/// // A daily report: hosts may come early, so the period is shorter than a day.
/// let report = redlock.once("report").within(12 * HOUR).wait(HOUR);
/// match report.try_run(|_hold| write_report()).await? {
///     Once::Ran(()) => println!("written here"),
///     Once::Done { by, .. } => println!("written by {}", by.unwrap_or_default()),
/// }
/// # Ok(())
/// # }
/// # async fn write_report() -> anyhow::Result<()> { Ok(()) }
/// ```
///
/// Its [`wait`](Self::wait) is how long a host waits for another one to do the work. Make it longer
/// than the TTL and the work together. A host that has stopped waiting cannot take over if the
/// working host dies. The mark also contains the [`label`](Self::label), as the name of the host
/// that did the work.
///
/// # Limits
///
/// The job never runs twice *at the same time*, because it runs under a lock. It may run twice,
/// *one after the other*:
///
/// - if masters that kept its mark have lost their data, and the others are out of reach or slower
///   than the node timeout. A mark is written back to masters that lost it whenever it is read;
/// - if its work ends well, and its host dies before a quorum has the mark;
/// - after 32 days, or twice the period if longer, because marks expire after that time.
///
/// Work that must never run twice needs its own check, such as a store that accepts each scheduled
/// time only once.
#[must_use = "a job does nothing unless started"]
#[derive(Clone)]
pub struct OnceRequest {
    request: LockRequest,
    when: Option<Until>,
}

/// The condition, which is checked when the job is requested.
#[derive(Clone, Copy, Debug)]
enum Until {
    Within(Duration),
    Fire(u64),
}

lock_options!(OnceRequest, request);

impl OnceRequest {
    /// The longest period: ten years.
    pub const PERIOD_MAX: Duration = Duration::from_secs(PERIOD_DAYS * 24 * 3_600);

    /// The largest number of a scheduled run: 2^53 - 1.
    pub const FIRE_MAX: u64 = Mark::END - 1;

    /// Skips the job if a completed run began less than `period` ago by the masters' clocks. Must
    /// be between 1 ms and [`PERIOD_MAX`](Self::PERIOD_MAX).
    ///
    /// Choose it shorter than the time between two runs, such as 12 hours for a daily job. Hosts
    /// start slightly early or late, and a host that starts after 23 hours and 59 minutes should
    /// still run the job.
    pub fn within(self, period: Duration) -> Self {
        Self { when: Some(Until::Within(period)), ..self }
    }

    /// Skips the job if this scheduled run, or a later one, was completed. Must be between 1 and
    /// [`FIRE_MAX`](Self::FIRE_MAX). All hosts must use the same number for one run: its planned
    /// time in seconds since 1970, or your own growing number.
    ///
    /// Skipped runs are not made up for.
    pub fn fire(self, fire: u64) -> Self {
        Self { when: Some(Until::Fire(fire)), ..self }
    }

    /// Runs the job under the lock of the name, unless it was already completed. Afterwards,
    /// records its completion, whatever its output is. If the lock is lost while the job runs, the
    /// job is dropped at its next await point, and no completion is recorded.
    ///
    /// If too few masters accept the mark, that is logged and the lock is left to expire. It does
    /// not affect the output.
    ///
    /// # Errors
    /// The same as [`LockRequest::run`]. `Acquire` also means that too few masters reported the
    /// last completion. The job did not start.
    ///
    /// # Cancel safety
    /// Dropping the future drops the job and releases the lock in the background, without a mark.
    /// If the future is dropped while the mark is written, the lock is left to expire.
    pub async fn run<W, F>(self, work: W) -> Result<Once<F::Output>, RunError<F::Output>>
    where
        W: FnOnce(Hold) -> F,
        F: Future,
    {
        let guard = match self.begin().await.map_err(RunError::without_output)? {
            Begun::Done { at, by } => return Ok(Once::Done { at, by }),
            Begun::Run(guard) => guard,
        };
        let output = guard.work(work).await?;
        guard.end(output).await.map(Once::Ran)
    }

    /// Runs a job that can fail. Its completion is recorded only if it returned `Ok`. Otherwise the
    /// lock is released without a mark, so that another host repeats the job. See
    /// [`run`](Self::run).
    ///
    /// # Errors
    /// Returns the error of the job, or an error of [`run`](Self::run).
    ///
    /// # Cancel safety
    /// The same as [`run`](Self::run).
    pub async fn try_run<W, F, T, E>(self, work: W) -> Result<Once<T>, E>
    where
        W: FnOnce(Hold) -> F,
        F: Future<Output = Result<T, E>>,
        E: From<RunError<T>>,
    {
        let guard = match self.begin().await.map_err(RunError::without_output)? {
            Begun::Done { at, by } => return Ok(Once::Done { at, by }),
            Begun::Run(guard) => guard,
        };
        match guard.work(work).await {
            Ok(Ok(output)) => Ok(Once::Ran(guard.end(output).await?)),
            Ok(Err(error)) => {
                guard.leave().await;
                Err(error)
            }
            lost => RunError::flat(lost).map(Once::Ran),
        }
    }

    /// Starts the job without a closure. Returns a guard if the job is due, or who completed it.
    /// Finish with [`OnceGuard::complete`](crate::OnceGuard::complete).
    ///
    /// # Errors
    /// The same as [`run`](Self::run). No lock is held after an error.
    ///
    /// # Cancel safety
    /// Dropping the future releases the lock in the background.
    pub async fn begin(self) -> Result<Begun, RunError> {
        self.checked()?;
        let guard = self.request.clone().await?;
        self.under(guard).await
    }

    /// Starts the job under a lock that you already hold, with the mark of its resource. See
    /// [`run`](Self::run).
    ///
    /// # Errors
    /// The same as [`begin`](Self::begin). The lock is released after an error.
    ///
    /// # Cancel safety
    /// Dropping the future releases the lock in the background.
    pub async fn under(self, guard: Guard) -> Result<Begun, RunError> {
        self.decide(guard).await.map(Begun::from)
    }

    /// Starts the job like [`under`](Self::under), and also returns the scheduled time of the last
    /// run.
    #[doc(hidden)]
    pub async fn decide(self, guard: Guard) -> Result<Decided, RunError> {
        let (when, by) = (self.checked()?, self.request.checked_label()?);
        match reading(&guard).await {
            Ok(reading) => Ok(decided(guard, &reading, when, by).await),
            Err(error) => {
                guard.leave().await;
                Err(error)
            }
        }
    }

    fn checked(&self) -> Result<When, InvalidRequest> {
        match self.when {
            Some(Until::Within(period)) if period <= Self::PERIOD_MAX => {
                let millis = u64::try_from(period.as_millis()).unwrap_or(0);
                if millis == 0 { Err(InvalidRequest::Period) } else { Ok(When::Within(millis)) }
            }
            Some(Until::Fire(fire)) if (1..=Self::FIRE_MAX).contains(&fire) => Ok(When::Fire(fire)),
            Some(Until::Within(_)) => Err(InvalidRequest::Period),
            Some(Until::Fire(_)) => Err(InvalidRequest::Fire),
            None => Err(InvalidRequest::NeitherPeriodNorFire),
        }
    }
}

impl fmt::Debug for OnceRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnceRequest")
            .field("request", &self.request)
            .field("when", &self.when)
            .finish()
    }
}
